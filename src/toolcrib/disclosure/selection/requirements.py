"""What a task wants, gathered from everybody who has a say: the schema, the plan, the intent, the caller.

A word may be a capability tag, a category (all its tools) or a tool's name. One that is none of them is a warning and
counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from ...catalog.names import fold, nearest
from ...catalog.skill_groups import ALWAYS, SkillGroup, SkillGroups
from ...core.tool import Tool
from ..base import Scene
from .state import SelectionState

__all__ = ["INTENT", "Offer", "Wanted", "offer_of", "wanted", "words"]

INTENT: Final = (
    "allowed_tools",
    "complexity",
    "is_follow_up",
    "needs_plan",
    "relevant_skill_groups",
    "required_capabilities",
    "required_skills",
    "required_tools",
    "skill_groups",
    "task_type",
)
"""What an intent may say. `relevant_skill_groups` is the document's word for `skill_groups`."""

_PLAN: Final = ("required_capabilities", "required_skills", "required_tools")
"""Both words that the original had for it: it met only one of them, and a plan then silently chose nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What may be selected at all, and how it is spoken of."""

    scene: Scene
    tools: Mapping[str, Tool]
    """By catalog name, in the catalog's order."""
    tags: Mapping[str, tuple[str, ...]]
    """Folded tag → names of the tools that have it."""
    categories: Mapping[str, tuple[str, ...]]
    """Folded category → names of its tools."""

    def by_name(self, word: str) -> tuple[str, ...]:
        """Return the tool that `word` names, if it is offered."""
        tool = self.scene.find(word)
        return (tool.name,) if tool is not None and tool.name in self.tools else ()

    def tagged(self, tag: str) -> tuple[str, ...]:
        """Return the names of the tools that have the tag, however it is spelt."""
        return self.tags.get(fold(tag), ())

    def in_category(self, category: str) -> tuple[str, ...]:
        """Return the names of the tools of the category, however it is spelt."""
        return self.categories.get(fold(category), ())


@dataclass(slots=True, kw_only=True)
class Wanted:
    """What is wanted and who said so; filled while the sources are read."""

    tags: dict[str, str] = field(default_factory=dict[str, str])
    """Folded tag → who asked for it."""
    names: dict[str, str] = field(default_factory=dict[str, str])
    """Catalog name → who asked for it."""
    whitelist: frozenset[str] | None = None
    """Catalog names; None lets everything pass."""
    warnings: list[str] = field(default_factory=list[str])

    def restrict(self, names: Iterable[str]) -> None:
        """Let only these names pass, of those that passed before."""
        given = frozenset(names)
        self.whitelist = given if self.whitelist is None else self.whitelist & given


def offer_of(scene: Scene) -> Offer:
    """Return what the session may be given: in scope, switched on, and not for internal use only."""
    offered = (tool for tool in scene.offered() if tool.capability.constraints.get("internal_use_only") is not True)
    tools = {tool.name: tool for tool in offered}
    tags: dict[str, list[str]] = {}
    categories: dict[str, list[str]] = {}
    for tool in tools.values():
        for tag in {fold(tag) for tag in tool.tags}:
            tags.setdefault(tag, []).append(tool.name)
        if tool.category:
            categories.setdefault(fold(tool.category), []).append(tool.name)
    return Offer(scene=scene, tools=tools, tags=_frozen(tags), categories=_frozen(categories))


def wanted(offer: Offer) -> Wanted:
    """Return what schema, plan, intent and caller want together."""
    session, options = offer.scene.session, offer.scene.profile.options
    intent, plan = session.state_of(SelectionState).intent, session.state_of(SelectionState).plan or {}
    found = Wanted()
    _schema(offer, words(options.get("tools")), found)
    _require(offer, session.state_of(SelectionState).required, "the caller", found)
    for key in _PLAN:
        by_name = key != "required_capabilities"
        _require(offer, words(plan.get(key)), "the plan", found, by_name=by_name)
        _require(offer, words(intent.get(key)), "the intent", found, by_name=by_name)
    _expand(offer, intent, found)
    if "allowed_tools" in intent:
        _restrict(offer, words(intent["allowed_tools"]), "the intent", found)
    for key in intent:
        if key not in INTENT:
            close = nearest(key, INTENT, 1)
            meant = f"; did you mean {close[0]}?" if close else ""
            found.warnings.append(f"the intent says {key!r}, which means nothing{meant}")
    return found


def words(given: Any) -> tuple[str, ...]:
    """Return the words that `given` holds: a list of them, or one."""
    if isinstance(given, str):
        return (given,) if given.strip() else ()
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        return ()
    return tuple(word for word in cast("Iterable[Any]", given) if isinstance(word, str) and word.strip())


def _schema(offer: Offer, listed: tuple[str, ...], found: Wanted) -> None:
    """The agent's own list of tools: what it names is wanted, and if it names anything, nothing else passes."""
    if not listed:
        return
    names = _restrict(offer, listed, "the schema", found)
    found.names |= dict.fromkeys(names, "the schema")


def _restrict(offer: Offer, listed: tuple[str, ...], who: str, found: Wanted) -> tuple[str, ...]:
    names: list[str] = []
    for word in listed:
        meant = offer.by_name(word) or offer.tagged(word) or offer.in_category(word)
        if not meant:
            found.warnings.append(_unknown(offer, word, who))
        names += meant
    if names or not listed:
        found.restrict(names)
    return tuple(names)


def _require(offer: Offer, listed: Iterable[str], who: str, found: Wanted, *, by_name: bool = False) -> None:
    """Take every word as a tag, a category or a name; `by_name` looks for the name first."""
    for word in listed:
        named = offer.by_name(word) if by_name else ()
        if not named and offer.tagged(word):
            found.tags.setdefault(fold(word), who)
        elif names := named or offer.in_category(word) or offer.by_name(word):
            found.names = dict.fromkeys(names, who) | found.names
        else:
            found.warnings.append(_unknown(offer, word, who))


def _expand(offer: Offer, intent: Mapping[str, Any], found: Wanted) -> None:
    """Turn the groups of skills that the intent chose into skills and capabilities."""
    chosen = (*words(intent.get("skill_groups")), *words(intent.get("relevant_skill_groups")))
    groups = _groups(offer)
    expansion = groups.expand(chosen)
    for name in expansion.unknown:
        known = nearest(name, [group.name for group in groups.groups if group.name != ALWAYS])
        meant = f"; did you mean {', '.join(known)}?" if known else ""
        found.warnings.append(f"the intent chose the skill group {name!r}, which does not exist{meant}")
    always = groups.expand(())
    for skill in expansion.skills:
        who = ALWAYS if skill in always.skills else "a skill group"
        found.names = dict.fromkeys(offer.by_name(skill), who) | found.names
    for tag in expansion.capabilities:
        if offer.tagged(tag):
            found.tags.setdefault(fold(tag), ALWAYS if tag in always.capabilities else "a skill group")


def _groups(offer: Offer) -> SkillGroups:
    """The groups of the sources and of the profile, and those that the skills themselves are in."""
    said = SkillGroups.of(offer.scene.profile.options.get("skill_groups", {}))
    own: dict[str, tuple[str, ...]] = {}
    for tool in offer.tools.values():
        if tool.capability.type == "SKILL" and tool.category:
            own[tool.category] = (*own.get(tool.category, ()), tool.name)
    of_skills = SkillGroups(groups=tuple(SkillGroup(name=name, skills=names) for name, names in own.items()))
    return offer.scene.skill_groups().joined(said).joined(of_skills)


def _frozen(names: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {key: tuple(listed) for key, listed in names.items()}


def _unknown(offer: Offer, word: str, who: str) -> str:
    tags = [tag for tool in offer.tools.values() for tag in tool.tags]
    known = [*tags, *(tool.category for tool in offer.tools.values()), *offer.tools]
    close = nearest(word, known)
    meant = f"; did you mean {', '.join(close)}?" if close else ""
    return f"{who} asks for {word!r}, which no tool here offers{meant}"
