"""Roots of skills, and the skill folders in them. The first skill of a name counts; the project comes first."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ...workspace.safe_paths import MAX_DEPTH, SKIPPED, is_text
from ..skill_folder import skill_file

__all__ = ["FOLDERS", "SkillRoot", "find_folders", "project_roots", "user_roots"]

FOLDERS: Final = (".toolcrib/skills", ".agents/skills", ".claude/skills")
"""Below a project and below a home, first to last."""

_MAX_LOOKED_AT: Final = 5_000
"""Folders that one root is looked through for skills."""
_MAX_SKILLS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillRoot:
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
    return tuple(SkillRoot(path=project / name, scope="project", within=project) for name in FOLDERS)


def user_roots(home: Path) -> tuple[SkillRoot, ...]:
    """Return the roots of a user, whether they exist or not."""
    return tuple(SkillRoot(path=home / name, scope="user", within=home) for name in FOLDERS)


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
                outside.append(f"{folder} leads out of {root.within}, to {real}; it is left out")
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
