"""Space of artifacts on the disk: expired ones are removed, and no owner keeps the others out.

The use is counted here and looked up on the disk again when it may be wrong: other processes write to the folder, too.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ..errors import ToolFailure
from .settings import RetentionSettings

KEY_FILE: Final = ".key"
OWNER_LENGTH: Final = 8
"""Characters at the beginning of a file's name that stand for its owner."""
_BLOCK_BYTES: Final = 4096
"""Bytes that even a small file takes on most disks. An artifact has two files: its data and its description."""
_RESCAN_SECONDS: Final = 30.0
"""Another process may use the same folder: its size is looked up again when the last look is older than this."""
_FULL_SECONDS: Final = 1.0
"""The same for a full folder, where a file may have been removed. A look at thousands of files takes 10 ms and more."""
_FREED_SHARE: Final = 0.05
"""Share of the quota that is freed at once, so that the next output does not look for more."""


class _StoredFile(NamedTuple):
    created: float
    room: int
    data: Path


class ArtifactSpace:
    """Bytes, in whole blocks, that the artifacts of one folder use. Safe to use from several threads."""

    def __init__(self, keeping: RetentionSettings, clock: Callable[[], float]) -> None:
        """`clock` gives seconds since 1970."""
        self._keeping = keeping
        self._clock = clock
        self._lock = threading.Lock()
        self._used = 0
        self._oldest = float("inf")
        """Time at which the oldest file was written, or before it."""
        self._scanned = float("-inf")
        self._refused: dict[str, float] = {}
        """Time of the last search through other owners' artifacts for an owner, in vain."""

    def reserve(self, folder: Path, owner: str, size: int, more: int) -> None:
        """Take room for `more` bytes of a file that has `size` bytes now; names of files of `owner` begin with that.

        In a full folder, owners that use more than `owner` make room with their oldest artifacts: one alone cannot keep
        the others out. Raises `ToolFailure("too_large")` if that is not enough.
        """
        if size + more > self._keeping.each:
            raise ToolFailure(
                "too_large",
                f"the output has more than {self._keeping.each} bytes: only its beginning and its end are kept",
                hint="Ask for less at a time: a filter, a range, a page.",
            )
        wanted = _bytes_on_disk(size + more)
        more = wanted - _bytes_on_disk(size)
        with self._lock:
            age = time.monotonic() - self._scanned
            has_room = self._used + more <= self._keeping.quota
            may_have_room = has_room or age > _FULL_SECONDS or self._oldest < self._expiry_time()
            if age > _RESCAN_SECONDS or (may_have_room and not has_room):
                self._scan(folder)
            if self._used + more > self._keeping.quota:
                self._take_from_others(folder, owner, wanted + _BLOCK_BYTES, more)
            if self._used + more > self._keeping.quota:
                raise ToolFailure(
                    "too_large",
                    f"the artifacts have {self._used} of {self._keeping.quota} bytes: no room for this output",
                    hint="Ask for less at a time; old artifacts are removed after some days.",
                )
            self._used += more

    def sweep(self, folder: Path) -> int:
        """Remove expired files; return how many."""
        with self._lock:
            return self._scan(folder)

    def written(self, at: float, *, is_new: bool) -> None:
        """Note that an artifact was written at that time, and described; one that `is_new` was not there before."""
        with self._lock:
            self._oldest = min(self._oldest, at)
            self._used += _BLOCK_BYTES if is_new else 0

    def remove(self, file: Path) -> None:
        """Remove a file, if it is there."""
        with self._lock:
            self._unlink(file)

    def _unlink(self, file: Path) -> None:
        with suppress(OSError):
            size = file.stat().st_size
            file.unlink()
            self._used -= _bytes_on_disk(size)

    def _expiry_time(self) -> float:
        """Return the time before which a file has expired."""
        return self._clock() - self._keeping.keep

    def _scan(self, folder: Path) -> int:
        """Remove expired files and sum up the others; return the number of files removed."""
        used, oldest, removed, limit = 0, float("inf"), 0, self._expiry_time()
        if folder.exists():
            for entry in os.scandir(folder):
                with suppress(OSError):
                    found = entry.stat()
                    used += _bytes_on_disk(found.st_size)
                    if entry.name == KEY_FILE:
                        continue
                    if found.st_mtime >= limit:
                        oldest = min(oldest, found.st_mtime)
                        continue
                    os.unlink(entry.path)
                    used -= _bytes_on_disk(found.st_size)
                    removed += 1
        self._used = used
        self._oldest = oldest
        self._scanned = time.monotonic()
        return removed

    def _take_from_others(self, folder: Path, owner: str, wanted: int, more: int) -> None:
        """Remove the oldest artifacts of owners that use more than `owner` will with the `wanted` bytes.

        Never from owners that use less than this one would: an owner that is over its share displaces only
        itself.
        """
        now = time.monotonic()
        if now - self._refused.get(owner, float("-inf")) < _FULL_SECONDS:
            return
        held = _files_by_owner(folder)
        used = {name: sum(kept.room for kept in artifacts) for name, artifacts in held.items()}
        own = used.pop(owner, 0) + wanted
        enough = self._keeping.quota - max(more, int(_FREED_SHARE * self._keeping.quota))
        while self._used > enough and used and used[heaviest := max(used, key=used.__getitem__)] > own:
            oldest = held[heaviest].pop()
            used[heaviest] -= oldest.room
            self._unlink(oldest.data)
            self._unlink(oldest.data.with_suffix(".json"))
        if self._used + more > self._keeping.quota:
            self._refused[owner] = now


def _bytes_on_disk(size: int) -> int:
    """Return the bytes that a file of `size` bytes takes."""
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES


def _files_by_owner(folder: Path) -> dict[str, list[_StoredFile]]:
    """Return the artifacts of each owner, the oldest last. Names and sizes tell: many files may be there to read."""
    found: defaultdict[str, list[_StoredFile]] = defaultdict(list)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".data"):
                with suppress(OSError):
                    state = entry.stat()
                    kept = _StoredFile(state.st_mtime, _bytes_on_disk(state.st_size) + _BLOCK_BYTES, Path(entry.path))
                    found[entry.name[:OWNER_LENGTH]].append(kept)
    for artifacts in found.values():
        artifacts.sort(reverse=True)
    return found
