"""YAML catalogs and skills of our configuration file: their paths, and whether they need a confirmation.

What a project's own configuration names came with the project: it counts once its user has confirmed it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigError
from ..sources.skill_folder import skill_file
from ..sources.skills.manifest import manifest_of
from ..sources.skills.skill_roots import SkillRoot, find_folders, project_roots, user_roots
from . import files
from .directories import PROJECT_FOLDER
from .plugins import placed_plugins

__all__ = ["CatalogSpec", "SkillsSpec", "confirmable_in", "placed", "skills_spec"]

_MARKS: Final = (PROJECT_FOLDER, ".git", ".agents", ".claude")
"""What makes a folder a project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSpec:
    """One YAML catalog that is to be mounted."""

    path: Path
    name: str = ""
    """Empty takes one from the file's name."""
    code: tuple[Path, ...] | None = ()
    """Folders, beside the catalog's own, that its modules may come from; None: it may not load code."""
    confirm: bool = False
    """It came with a project, and counts only as its user has confirmed it."""

    def key(self) -> list[Any]:
        """Return what tells two apart, as JSON."""
        return [str(self.path), self.name, None if self.code is None else [str(path) for path in self.code]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillsSpec:
    """Where skills are looked for, first to last, and how they are grouped."""

    roots: tuple[SkillRoot, ...]
    groups: Path | None = None
    """A YAML file with `skill_groups`."""

    def key(self) -> list[Any]:
        """Return what tells two apart, as JSON."""
        return [[str(root.path), root.scope] for root in self.roots] + [[str(self.groups or "")]]


def placed(values: Mapping[str, Any], file: Path, *, project: bool) -> Mapping[str, Any]:
    """Return `values`, which `file` says, with paths that count from its folder. `project`: it came with a project."""
    folder = file.parent
    found = dict(values)
    if "catalogs" in values:
        found["catalogs"] = tuple(_catalog(entry, folder, project=project) for entry in values["catalogs"])
    if "lock" in values:
        found["lock"] = _under(folder, values["lock"])
    if "store" in values and values["store"].path is not None:
        found["store"] = values["store"].model_copy(update={"path": _under(folder, values["store"].path)})
    if "plugins" in values:
        found["plugins"] = placed_plugins(values["plugins"], file, project=project)
    if "skills" in values:
        said = dict(values["skills"])
        paths = [_under(folder, path) for path in said.get("paths", ())]
        scope = "project" if project else "named"
        said["paths"] = tuple(SkillRoot(path=path, scope=scope, within=path) for path in paths)
        said["groups"] = _under(folder, said["groups"]) if said.get("groups") else None
        found["skills"] = said
    return found


def skills_spec(said: Mapping[str, Any] | None, home: Path, cwd: Path) -> SkillsSpec | None:
    """Return where skills are looked for; None when none are configured. Named roots come first, a home last."""
    if not said:
        return None
    roots: list[SkillRoot] = [*said["paths"]]
    if said.get("project"):
        roots += project_roots(_project(cwd, home))
    if said.get("user"):
        roots += user_roots(home)
    return SkillsSpec(roots=tuple(roots), groups=said.get("groups")) if roots else None


def confirmable_in(path: Path) -> list[tuple[Path, bytes]]:
    """Return what a user confirms at `path`, as `Trust` takes it: a file, or each skill at or below a folder.

    A skill is its SKILL.md with bytes that stand for all of its files. Raises `ConfigError` when there is nothing, or a
    skill is too large to be looked through.
    """
    if path.is_file() and path.name.lower() != "skill.md":
        return [(path, files.read(path))]
    root = SkillRoot.named(path.parent if path.is_file() else path)
    found: list[tuple[Path, bytes]] = []
    for _, folder in find_folders((root,), []):
        try:
            found.append((folder / skill_file(folder), manifest_of(folder).content))
        except ValueError as error:
            raise ConfigError(str(error), file=str(folder)) from None
    if not found:
        raise ConfigError("there is neither a file nor a skill", file=str(path))
    return found


def _catalog(entry: Mapping[str, Any], folder: Path, *, project: bool) -> CatalogSpec:
    code: bool | tuple[str, ...] = entry.get("code", True)
    folders = () if isinstance(code, bool) else code
    return CatalogSpec(
        path=_under(folder, entry["file"]),
        name=entry.get("name", ""),
        code=None if code is False else tuple(_under(folder, path) for path in folders),
        confirm=project,
    )


def _under(folder: Path, path: str | Path) -> Path:
    return folder / os.path.expanduser(path)


def _project(cwd: Path, home: Path) -> Path:
    """Return the nearest folder, from `cwd` upwards, that is a project; `cwd` itself when none is."""
    for folder in (cwd, *cwd.parents):
        if folder == home:
            break
        if any((folder / mark).exists() for mark in _MARKS):
            return folder
    return cwd
