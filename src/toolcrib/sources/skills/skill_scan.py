"""Roots of skills, the folders in them, and the skills that can be offered, with a problem for each that cannot.

The first skill of a name counts; the project comes first, and in one root the skill in a folder of its name. The
manifest of a skill is its files, each with size and SHA-256: to it a user agrees, and a client verifies it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from ...catalog.skill_groups import ALWAYS, SkillGroups
from ...core.events import Problem
from ...core.json import canonical
from ...core.tool import READS, Capability, Tool, VersionInfo
from ...errors import ConfigError
from ...workspace.safe_paths import MAX_DEPTH, SKIPPED, files_beneath, is_text, read_beneath
from ..skill_folder import SCHEMA, Skill, read_skill, skill_file

_FOLDERS: Final = (".toolcrib/skills", ".agents/skills", ".claude/skills")
"""Below a project and below a home, first to last."""

_MAX_LOOKED_AT: Final = 5_000
"""Folders that one root is looked through for skills."""
_MAX_SKILLS: Final = 1_000

MAX_FILES: Final = 512
MAX_BYTES: Final = 16 << 20
"""Of one skill, all files together; with `MAX_FILES` the limits of the MCP skills extension."""

_ADVICE: Final = ("license", "compatibility", "allowed-tools")

Trusted = Callable[[Path, bytes], bool]
"""Whether the user has agreed to a skill: its SKILL.md, and the bytes that identify all of its files."""


class SkillRoot(Struct, frozen=True, kw_only=True):
    """A folder with skills in it, at any depth."""

    path: Path
    scope: Literal["project", "user", "named"]
    within: Path
    """Links may lead anywhere below this folder, and nowhere else."""

    @classmethod
    def named(cls, path: str | Path) -> SkillRoot:
        """A root that the operator named."""
        there = Path(path).absolute()
        return cls(path=there, scope="named", within=there)


def project_roots(project: Path) -> tuple[SkillRoot, ...]:
    """Return the roots of a project, whether they exist or not."""
    return tuple(SkillRoot(path=project / name, scope="project", within=project) for name in _FOLDERS)


def user_roots(home: Path) -> tuple[SkillRoot, ...]:
    """Return the roots of a user, whether they exist or not."""
    return tuple(SkillRoot(path=home / name, scope="user", within=home) for name in _FOLDERS)


def find_folders(roots: Iterable[SkillRoot], outside: list[str]) -> Iterator[tuple[SkillRoot, Path]]:
    """Yield each skill folder with its root; folders that lead outside are reported in `outside`.

    So is a configured root that does not exist; the default roots are optional. The folders inside a skill are its own,
    and are not searched for further skills.
    """
    for root in roots:
        if root.scope == "named" and not root.path.is_dir():
            outside.append(f"{root.path}, a root of skills, is not a folder")
        for count, real in enumerate(_walk(root, outside), start=1):
            if count > _MAX_SKILLS:
                outside.append(f"{root.path} has more than {_MAX_SKILLS} skills; the others are left out")
                break
            yield root, real


def _walk(root: SkillRoot, outside: list[str]) -> Iterator[Path]:
    """Yield folders with a SKILL.md at or below `root`, links resolved, each once."""
    within = _real(root.within)
    seen: set[Path] = set()
    pending = [(root.path, 0)]
    while pending and len(seen) < _MAX_LOOKED_AT:
        folder, depth = pending.pop()
        real = _real(folder)
        if real in seen:
            continue
        seen.add(real)
        if not real.is_relative_to(within):
            if skill_file(folder):
                outside.append(
                    f"{folder} leads out of {root.within}, to {real}; to use it, add that folder to `skills`"
                )
        elif skill_file(folder):
            yield real
        elif depth < MAX_DEPTH:
            pending += [(inner, depth + 1) for inner in reversed(_folders(folder))]


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _is_looked_into(path: Path) -> bool:
    return path.name not in SKIPPED and is_text(path.name) and os.path.isdir(path)


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if _is_looked_into(path))
    except OSError:
        return []


class FileStamp(Struct, frozen=True, kw_only=True):
    """State of one file at the time of the scan."""

    size: int
    sha256: str


class Manifest(Struct, frozen=True, kw_only=True, dict=True):
    """Every file of one skill by its path with `/`. Immutable."""

    files: Mapping[str, FileStamp]

    @cached_property
    def content(self) -> bytes:
        """The bytes that a confirmation is about: they change when any file is changed, added or removed."""
        return canonical({name: stamp.sha256 for name, stamp in self.files.items()})

    def holds(self, name: str, content: bytes) -> bool:
        """Whether `name` is unchanged."""
        stamp = self.files.get(name)
        return stamp is not None and stamp.sha256 == hashlib.sha256(content).hexdigest()


def manifest_of(folder: Path) -> Manifest:
    """Read every file of the skill in `folder`. Raises `ValueError` when there are too many, or too much of them."""
    files: dict[str, FileStamp] = {}
    total = 0
    for name in files_beneath(folder, limit=MAX_FILES + 1):
        content = read_beneath(folder, name, MAX_BYTES)
        total += len(content)
        if len(files) == MAX_FILES or total > MAX_BYTES:
            raise ValueError(f"has more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB")
        files[name] = FileStamp(size=len(content), sha256=hashlib.sha256(content).hexdigest())
    return Manifest(files=files)


class FoundSkill(Struct, frozen=True, kw_only=True):
    """One skill that is offered."""

    skill: Skill
    root: SkillRoot
    tool: Tool
    manifest: Manifest | None
    """None for a skill that is too large to be looked through: it is offered, but not as resources."""


class SkillScan(Struct, frozen=True, kw_only=True):
    """Result of one scan of the roots."""

    found: Mapping[str, FoundSkill]
    """By name."""
    problems: tuple[Problem, ...]
    folders: tuple[Path, ...]
    """Everything that holds a skill, offered or not."""


def read_skills(source: str, roots: Iterable[SkillRoot], groups: SkillGroups, trusted: Trusted) -> SkillScan:
    """Look through `roots`; of skills with one name, one counts. Never raises for a skill that is broken."""
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
            left = one
            if first.root is root and _has_own_name(one) and not _has_own_name(first):
                found[one.tool.name], first, left = one, one, first
            message = f"{left.skill.folder}: not used, {first.skill.folder} also is a skill of this name and counts"
            problems.append(Problem(source=source, code="duplicate", tool=one.tool.name, message=message))
            if left is one:
                continue
        problems += [
            Problem(source=source, code="invalid_skill", tool=one.tool.name, message=warning)
            for warning in one.skill.warnings
        ]
    problems += [Problem(source=source, code="outside", message=sentence) for sentence in outside]
    return SkillScan(found=found, problems=tuple(problems), folders=tuple(folders))


def _has_own_name(found: FoundSkill) -> bool:
    """Whether the skill is named as its folder; a copy that was laid beside it is not."""
    return found.skill.folder.name == found.skill.name


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
    advice = {key: skill.frontmatter[key] for key in _ADVICE if key in skill.frontmatter}
    metadata = {"compression_hint": "skip", **advice}  # instructions with their middle left out cannot be followed
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
        traits=("file_reader",),
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
