"""Folders that are gone, of the user's servers and of confirmed projects: a home was renamed, a project moved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ...config.directories import PROJECT_FOLDER, Places, config_files
from ...config.file_parts import read_part
from ...config.files import is_file
from ...config.trust import Trust
from ...errors import ConfigError

__all__ = ["moved_folders"]


def moved_folders(places: Places) -> Iterator[tuple[str, str]]:
    """Yield what names a folder that is gone, and what to do about it."""
    own, *_ = config_files(places.directories, places.project)
    with suppress(ConfigError):  # the check of the file says why
        for entry in read_part(own, str(own.parent), places.environ, None).entries if is_file(own) else ():
            for folder in entry.folders:
                if not folder.is_dir():
                    now = next(filter(Path.is_dir, _below(places.home, folder)), None)
                    maybe = f"; it may be {now} now" if now else ""
                    then = f"write the right one into `projects`, or `toolcrib remove {entry.name}`"
                    yield f"server {entry.name}", f"{entry.file}: {folder} does not exist{maybe}: {then}"
    trust = Trust(places.directories)
    for gone in trust.gone():
        if gone.parent.name == PROJECT_FOLDER:
            for now in filter(Path.is_file, _below(places.home, gone)):
                content, project = now.read_bytes(), now.parent.parent
                if trust.covers(gone, content) and not trust.covers(now, content):
                    then = f"{now} says the same: `toolcrib trust` in {project} confirms it there"
                    yield f"project {project}", f"{gone}, which was confirmed, does not exist; {then}"


def _below(home: Path, path: Path) -> Iterator[Path]:
    """Yield where `path` would be below `home`, with as much of it as there can be first."""
    for place in range(1, len(path.parts)):
        yield home.joinpath(*path.parts[place:])
