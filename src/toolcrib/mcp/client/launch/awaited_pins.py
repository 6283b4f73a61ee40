"""Pins of what was missing when the user confirmed a project: a program, trees of packages and build outputs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ....core.awaited_files import AwaitedFiles
from ..spec import ServerSpec
from .digests import COMMAND, MISSING, program_pin, project_root
from .packages import tree_pin
from .sources import tracked

BUILD_FOLDERS: Final = frozenset("bin build .build _build dist obj out .output release target".split())
"""Folders of build outputs."""


def awaited_files(folder: Path) -> AwaitedFiles:
    """Return the record of awaited files in `folder`, for the files of servers."""
    return AwaitedFiles(folder, _late_pin)


def _late_pin(path: Path) -> str:
    """Return the pin of what was awaited."""
    if path.is_dir():
        return tree_pin(path)
    return program_pin(path, path.name, [project_root(path.parent)])


class AwaitedPins:
    """The awaited files of a server, as they were taken or are now."""

    def __init__(self, spec: ServerSpec) -> None:
        self._spec = spec
        self._pinned = spec.pinned or {}
        self.names = [name for name, pin in self._pinned.items() if pin == MISSING and name != COMMAND]
        self._record = awaited_files(Path(spec.awaited)) if spec.awaited else None
        self._here = Path(spec.cwd or ".").absolute()
        self._root = project_root(self._here)

    def pin(self, name: str) -> str:
        """Return the pin that was taken of an awaited file; empty for none."""
        return self._record.pin(Path(name)) if self._record is not None else ""

    def is_traced(self, name: str) -> bool:
        """Whether an awaited file came while a command of an agent ran."""
        command = os.path.normpath(self._here / self._spec.command)
        path = command if name == COMMAND else name
        return self._record is not None and path in self.names and self._record.is_traced(Path(path))

    def join(self, now: dict[str, str]) -> dict[str, str]:
        """Return the pins with those of awaited files; `now` loses what counts by them, or does not count."""
        pinned, record = dict(self._pinned), self._record
        command = os.path.normpath(self._here / self._spec.command)
        is_program = command in self.names and os.path.lexists(command) and self._pinned.get(COMMAND) == MISSING
        found: list[str] = []
        for name in self.names:
            del pinned[name]
            is_there = record is not None and ((name == command and is_program) or name in now)
            if record is None or not is_there:
                now.pop(name, None)
                continue
            path = Path(name)
            if not path.is_dir():
                now[name] = _late_pin(path)
            pinned[name] = "" if tracked(path, self._root) else record.taken(path, now[name])
            found.append(name)
        if is_program and record is not None:  # it counts by its path
            del now[COMMAND], pinned[COMMAND]
        if found and record is not None:
            for name in now.keys() - pinned.keys():
                if self._came_with(record, found, name):
                    del now[name]
        return pinned

    def _came_with(self, record: AwaitedFiles, found: Sequence[str], name: str) -> bool:
        """Whether a file that only an awaited one loads is as it was when that was taken, or the project confirmed."""
        path = Path(name)
        changed = max(one.st_ctime_ns for one in (path.lstat(), path.stat())) if path.exists() else 0
        if not path.is_relative_to(self._root) or changed < record.confirmed(Path(found[0])):
            return path.is_relative_to(self._root)
        if tracked(path, self._root):
            return False
        if any(path.is_relative_to(one) for one in found):
            return True  # it is part of a tree
        folder = _build_folder(path, self._root)
        times = [
            record.taken_at(Path(one)) for one in found if folder and folder == _build_folder(Path(one), self._root)
        ]
        return changed <= max(times, default=-1)


def _build_folder(path: Path, root: Path) -> Path | None:
    """Return the outermost folder of build outputs around a path."""
    above = [one for one in path.parents if one.is_relative_to(root) and one.name in BUILD_FOLDERS]
    return above[-1] if above else None
