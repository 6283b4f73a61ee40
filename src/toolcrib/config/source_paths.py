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
from ..sources.settings import CatalogSpec, PluginSettings, SkillsSpec
from ..sources.skill_folder import skill_file
from ..sources.skills.skill_scan import SkillRoot, find_folders, manifest_of, project_roots, user_roots
from . import files
from .directories import PROJECT_FOLDER
from .keys import CatalogEntry, SkillSettings

__all__ = ["PlacedSkills", "confirmable_in", "placed", "skills_spec"]

_MARKS: Final = (PROJECT_FOLDER, ".git", ".agents", ".claude")
"""What makes a folder a project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSkills:
    """The key `skills` of one file, with absolute paths."""

    settings: SkillSettings
    roots: tuple[SkillRoot, ...]
    groups: Path | None


def placed(values: Mapping[str, Any], file: Path, *, project: bool) -> Mapping[str, Any]:
    """Return the `values` of `file` with paths that count from its folder. `project`: it came with a project."""
    folder = file.parent
    found = dict(values)
    if "catalogs" in values:
        found["catalogs"] = tuple(_catalog(entry, folder, project=project) for entry in values["catalogs"])
    if "lock" in values:
        found["lock"] = _under(folder, values["lock"])
    if "store" in values and values["store"].path is not None:
        found["store"] = values["store"].model_copy(update={"path": _under(folder, values["store"].path)})
    if "plugins" in values:
        found["plugins"] = _plugins(values["plugins"], file, project=project)
    if "skills" in values:
        found["skills"] = _skills(values["skills"], folder, project=project)
    return found


def skills_spec(given: PlacedSkills | None, home: Path, cwd: Path) -> SkillsSpec | None:
    """Return where skills are looked for; None when none are configured. Named roots come first, a home last."""
    if given is None:
        return None
    roots: list[SkillRoot] = [*given.roots]
    if given.settings.project:
        roots += project_roots(_project(cwd, home))
    if given.settings.user:
        roots += user_roots(home)
    return SkillsSpec(roots=tuple(roots), groups=given.groups) if roots else None


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


def _catalog(entry: CatalogEntry, folder: Path, *, project: bool) -> CatalogSpec:
    folders = () if isinstance(entry.code, bool) else entry.code
    return CatalogSpec(
        path=_under(folder, entry.file),
        name=entry.name,
        code=None if entry.code is False else tuple(_under(folder, path) for path in folders),
        confirm=project,
    )


def _plugins(plugins: PluginSettings, file: Path, *, project: bool) -> PluginSettings:
    """Return the plugins of `file`, with folders that count from its own.

    Raises `ConfigError` for folders in a file that came with a project: their code could change after it was confirmed.
    """
    if "folders" not in plugins.model_fields_set:
        return plugins
    if project and plugins.folders:
        message = "a project's configuration brings no plugins: name the folder in your own configuration"
        raise ConfigError(message, file=str(file), key="plugins.folders")
    folders = tuple(_under(file.parent, str(folder)) for folder in plugins.folders)
    return plugins.model_copy(update={"folders": folders})


def _skills(skills: SkillSettings, folder: Path, *, project: bool) -> PlacedSkills:
    paths = [_under(folder, path) for path in skills.paths]
    scope = "project" if project else "named"
    roots = tuple(SkillRoot(path=path, scope=scope, within=path) for path in paths)
    return PlacedSkills(settings=skills, roots=roots, groups=_under(folder, skills.groups) if skills.groups else None)


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
