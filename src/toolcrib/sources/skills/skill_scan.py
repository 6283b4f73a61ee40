"""From the roots to the skills that can be offered, and a problem for each that cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...catalog.skill_groups import ALWAYS, SkillGroups
from ...core.events import Problem
from ...core.tool import Capability, Tool, VersionInfo
from ...errors import ConfigError
from ..skill_folder import READS, SCHEMA, Skill, read_skill
from .manifest import Manifest, manifest_of
from .skill_roots import SkillRoot, find_folders

__all__ = ["FoundSkill", "Reading", "Trusted", "read_skills"]

_ADVICE: Final = ("license", "compatibility", "allowed-tools")

Trusted = Callable[[Path, bytes], bool]
"""Whether the user has agreed to a skill: its SKILL.md, and the bytes that identify all of its files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSkill:
    """One skill that is offered."""

    skill: Skill
    root: SkillRoot
    tool: Tool
    manifest: Manifest | None
    """None for a skill that is too large to be looked through: it is offered, but not as resources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Result of one scan of the roots."""

    found: Mapping[str, FoundSkill]
    """By name."""
    problems: tuple[Problem, ...]
    folders: tuple[Path, ...]
    """Everything that holds a skill, offered or not."""


def read_skills(source: str, roots: Iterable[SkillRoot], groups: SkillGroups, trusted: Trusted) -> Reading:
    """Look through `roots`; the first skill of a name counts. Never raises for a skill that is broken."""
    found: dict[str, FoundSkill] = {}
    problems: list[Problem] = []
    folders: list[Path] = []
    outside: list[str] = []
    for root, folder in find_folders(roots, outside):
        if folder in folders:
            continue
        folders.append(folder)
        try:
            one = _found(source, root, folder, groups, trusted)
        except (_Withheld, ConfigError) as reason:
            problems.append(_problem(source, folder, reason))
            continue
        first = found.setdefault(one.tool.name, one)
        if first is not one:
            message = f"{folder}: not used, {first.skill.folder} also is a skill of this name and counts"
            problems.append(Problem(source=source, code="duplicate", tool=one.tool.name, message=message))
            continue
        problems += [
            Problem(source=source, code="invalid_skill", tool=one.tool.name, message=warning)
            for warning in one.skill.warnings
        ]
    problems += [Problem(source=source, code="outside", message=sentence) for sentence in outside]
    return Reading(found=found, problems=tuple(problems), folders=tuple(folders))


class _Withheld(Exception):
    """A skill that exists and must not be used yet."""


def _found(source: str, root: SkillRoot, folder: Path, groups: SkillGroups, trusted: Trusted) -> FoundSkill:
    skill = read_skill(folder)
    manifest: Manifest | None
    try:
        manifest = manifest_of(folder)
    except ValueError as reason:
        if root.scope == "project":
            message = f"{folder}: is withheld: it came with the project and {reason}, so it cannot be confirmed"
            raise _Withheld(message) from None
        manifest = None
    if root.scope == "project" and manifest is not None:
        is_confirmed = trusted(folder / skill.file, manifest.content) and manifest.holds(skill.file, skill.content)
        if not is_confirmed:
            raise _Withheld(f"{folder}: is withheld: it came with the project, or changed, and is not confirmed")
    return FoundSkill(skill=skill, root=root, tool=_tool(source, root, skill, groups), manifest=manifest)


def _tool(source: str, root: SkillRoot, skill: Skill, groups: SkillGroups) -> Tool:
    of_skill = groups.of_skill(skill.name)
    tags = skill.tags or tuple(dict.fromkeys(tag for group in of_skill for tag in group.capabilities))
    metadata = {key: skill.frontmatter[key] for key in _ADVICE if key in skill.frontmatter}
    return Tool(
        name=skill.name,
        local_name=skill.name,
        source=source,
        origin="skill",
        description=skill.description,
        input_schema=SCHEMA,
        annotations=READS,
        category=next((group.name for group in of_skill if group.name != ALWAYS), skill.category or "skills"),
        tags=tags,
        version_info=VersionInfo(version=skill.version),
        capability=Capability(
            type="SKILL",
            provider=root.scope,
            priority=skill.priority,
            metadata=metadata,
            skill_path=_relative(skill, root),
        ),
    )


def _relative(skill: Skill, root: SkillRoot) -> str:
    file = skill.folder / skill.file
    for base in (root.path.resolve(), root.within.resolve()):
        if file.is_relative_to(base):
            return file.relative_to(base).as_posix()
    return file.name


def _problem(source: str, folder: Path, reason: Exception) -> Problem:
    if isinstance(reason, _Withheld):
        hint = f"look at it, then run `toolcrib trust {folder}`"
        return Problem(source=source, code="untrusted", tool=folder.name, message=str(reason), hint=hint)
    return Problem(source=source, code="bad_tool", tool=folder.name, message=str(reason))
