"""The repositories below a folder, found before every command: what has not changed since is not read again.

A folder's time of change (ctime) tells whether an entry was added; nobody can set it back. A folder that changed in the
second before it was read is read again: its time may be too coarse to tell two changes apart.
"""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final

__all__ = ["Repositories"]

_SKIPPED: Final = frozenset({"node_modules", ".venv", "venv", "__pycache__"})
"""Made by package managers, with more folders than all the rest; no repository of anybody is in them."""
_MOST: Final = 20_000
"""Folders that are looked at, those nearest to the root first: some 40 ms when nothing has changed."""
_SETTLED: Final = 1_000_000_000
"""Nanoseconds: well above what any file system rounds its times to."""
_BARE: Final = frozenset({"HEAD", "objects", "refs"})


@dataclass(frozen=True, slots=True)
class _Seen:
    """A folder as it was read."""

    changed: int
    folders: tuple[str, ...]
    """Names of the folders in it that are looked at."""
    repository: str
    """The name of its repository, `.` where it is one itself; empty where there is none."""


class Repositories:
    """Finds repositories, and remembers what it has read. Safe in several threads."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._found: dict[str, dict[Path, None]] = {}
        """What was found below each root: those stay, however many folders somebody puts in front of them."""
        self._lock = Lock()

    def below(self, root: Path) -> list[Path]:
        """Return where the repositories below a folder are kept, without its own: those known before come first.

        That is a `.git`, a folder or a file, or a bare repository. Blocks: it is for a thread.
        """
        with self._lock:
            known = [place for place in self._found.get(str(root), ()) if os.path.lexists(place)]
            found = self._found[str(root)] = dict.fromkeys([*known, *self._below(str(root))])
            return list(found)

    def _below(self, root: str) -> list[Path]:
        found: list[Path] = []
        looked: dict[str, _Seen] = {}
        waiting = deque([root])
        while waiting and len(looked) < _MOST:
            place = waiting.popleft()
            seen = self._look(place)
            if seen is None:
                continue
            looked[place] = seen
            if seen.repository and place != root:
                found.append(Path(place, seen.repository))
            waiting.extend(f"{place}/{name}" for name in seen.folders)
        for gone in [place for place in self._seen if place.startswith(f"{root}/") and place not in looked]:
            del self._seen[gone]
        self._seen |= looked
        return found

    def _look(self, place: str) -> _Seen | None:
        """Return what is in a folder; None for what is none any more."""
        try:
            changed = os.stat(place, follow_symlinks=False).st_ctime_ns
            known = self._seen.get(place)
            if known is not None and known.changed == changed:
                return known
            settled = changed if time.time_ns() - changed > _SETTLED else 0
            with os.scandir(place) as entries:
                names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except OSError:
            return None
        if names.keys() >= _BARE:
            return _Seen(settled, (), ".")
        folders = tuple(name for name, is_folder in names.items() if is_folder and name not in _SKIPPED | {".git"})
        return _Seen(settled, folders, ".git" if ".git" in names else "")
