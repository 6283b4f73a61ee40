"""Skill groups: the skills, tools and tags that a kind of task needs, as data.

    skill_groups:
      data_analysis:
        description: spreadsheets, tables, cleaning
        skills: [excel-analyzer, csv-processor]
        tools: [notebook_execute]
        capabilities: [data_processing, visualization]
      _always:
        skills: [local-search]

Those of `_always` belong to every task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from msgspec import Struct

from ..core.similar import did_you_mean, fold

ALWAYS: Final = "_always"
"""The group that every expansion includes; it needs no mention and is not offered for choice."""

_MAX_SKILLS_SHOWN: Final = 6
"""Skills of a group that its line names."""
_KEYS: Final = ("description", "skills", "tools", "capabilities")


class SkillGroup(Struct, frozen=True, kw_only=True):
    """One group."""

    name: str
    description: str = ""
    skills: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    """Names of tools that are not skills; a name that does not exist has no effect."""
    capabilities: tuple[str, ...] = ()
    """Tags that tools of any kind may have too."""


class Expansion(Struct, frozen=True, kw_only=True):
    """Union of some groups without duplicates, in the order of the groups."""

    skills: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """Names that are not groups."""


class SkillGroups(Struct, frozen=True, kw_only=True):
    """All groups of a configuration, in its order. Immutable."""

    groups: tuple[SkillGroup, ...] = ()
    problems: tuple[str, ...] = ()
    """Entries that could not be used, one sentence each."""

    @classmethod
    def of(cls, data: Any) -> SkillGroups:
        """Read `{group: {description, skills, capabilities}}`, or `{group: [skills]}`; never raises."""
        if not isinstance(data, Mapping):
            return cls(problems=("skill_groups: a mapping from group to its skills was expected",))
        groups: list[SkillGroup] = []
        problems: list[str] = []
        for name, value in cast("Mapping[Any, Any]", data).items():
            group = _read_group(str(name), value, problems)
            groups += [group] if group else []
        return cls(groups=tuple(groups), problems=tuple(problems))

    def joined(self, others: SkillGroups) -> SkillGroups:
        """Return both; a group that both have keeps its own description and gets the others' members."""
        merged = {group.name: group for group in self.groups}
        for group in others.groups:
            mine = merged.get(group.name)
            merged[group.name] = _merge(mine, group) if mine else group
        return SkillGroups(groups=tuple(merged.values()), problems=(*self.problems, *others.problems))

    def expand(self, groups: Iterable[str]) -> Expansion:
        """Return the union of `groups` and the group that always applies; spelling of names is forgiven."""
        by_name = {fold(group.name): group for group in self.groups}
        skills: dict[str, None] = {}
        tools: dict[str, None] = {}
        capabilities: dict[str, None] = {}
        unknown: list[str] = []
        for name in (ALWAYS, *groups):
            group = by_name.get(fold(name))
            if group is None:
                unknown += [name] if name != ALWAYS else []
                continue
            skills |= dict.fromkeys(group.skills)
            tools |= dict.fromkeys(group.tools)
            capabilities |= dict.fromkeys(group.capabilities)
        return Expansion(
            skills=tuple(skills), tools=tuple(tools), capabilities=tuple(capabilities), unknown=tuple(unknown)
        )

    def of_skill(self, skill: str) -> tuple[SkillGroup, ...]:
        """Return the groups that `skill` is in, in their order; hyphens and underscores are the same."""
        folded = fold(skill)
        return tuple(group for group in self.groups if folded in map(fold, group.skills))

    def named_in(self, text: str, chosen: Iterable[str] = ()) -> tuple[str, ...]:
        """Return `chosen` and the groups of skills that `text` names literally: a safety net for the model's choice."""
        words = f" {_words_of(text)} "
        names = dict.fromkeys(chosen)
        for group in self.groups:
            if group.name != ALWAYS and any(f" {_words_of(skill)} " in words for skill in group.skills):
                names.setdefault(group.name)
        return tuple(names)

    def described(self) -> str:
        """Return one line a group for the model that has to choose: name, description, a few of its skills."""
        return "\n".join(
            f"- {group.name}: {group.description} ({', '.join(_first_names(group.skills or group.tools))})".replace(
                ":  (", ": ("
            )
            for group in self.groups
            if group.name != ALWAYS
        )


def _read_group(name: str, value: Any, problems: list[str]) -> SkillGroup | None:
    if not isinstance(value, Mapping | list):
        problems.append(f"skill_groups.{name}: a mapping with `skills` was expected")
        return None
    given: Mapping[str, Any] = {"skills": value} if isinstance(value, list) else cast("Mapping[str, Any]", value)
    problems += [
        f"skill_groups.{name}.{key}: unknown key, not used{did_you_mean(key, _KEYS)}"
        for key in given
        if key not in _KEYS
    ]
    return SkillGroup(
        name=name,
        description=str(given.get("description") or ""),
        skills=_read_names(name, "skills", given, problems),
        tools=_read_names(name, "tools", given, problems),
        capabilities=_read_names(name, "capabilities", given, problems),
    )


def _read_names(group: str, key: str, given: Mapping[str, Any], problems: list[str]) -> tuple[str, ...]:
    value: Any = given.get(key)
    given_one = [] if value is None else [value]
    items = cast("list[Any]", value) if isinstance(value, list) else given_one
    names = tuple(item.strip() for item in items if isinstance(item, str) and item.strip())
    if len(names) != len(items):
        problems.append(f"skill_groups.{group}.{key}: a list of names was expected; other items are left out")
    return names


def _merge(mine: SkillGroup, other: SkillGroup) -> SkillGroup:
    return SkillGroup(
        name=mine.name,
        description=mine.description or other.description,
        skills=tuple(dict.fromkeys((*mine.skills, *other.skills))),
        tools=tuple(dict.fromkeys((*mine.tools, *other.tools))),
        capabilities=tuple(dict.fromkeys((*mine.capabilities, *other.capabilities))),
    )


def _words_of(text: str) -> str:
    """Return the words of `text`, one space between: `Trend-Spotter` and `trend spotter` read alike."""
    return " ".join("".join(character if character.isalnum() else " " for character in text.lower()).split())


def _first_names(skills: tuple[str, ...]) -> tuple[str, ...]:
    return (
        skills
        if len(skills) <= _MAX_SKILLS_SHOWN
        else (*skills[:_MAX_SKILLS_SHOWN], f"{len(skills) - _MAX_SKILLS_SHOWN} more")
    )
