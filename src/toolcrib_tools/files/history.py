"""What was changed in a session, so that it can be taken back.

Kept in memory with the session, and gone with it: 100 changes, 64 MiB in all, 16 MiB a file; the oldest go first. What
is larger is changed all the same, and the result says that it cannot be undone.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

import anyio
from anyio.lowlevel import RunVar

from toolcrib.plugin import Context, Workspace, Written

__all__ = [
    "MOST_BYTES",
    "MOST_CHANGES",
    "MOST_FILE_BYTES",
    "Change",
    "History",
    "apply",
    "digest",
    "history_of",
    "in_turn",
]

MOST_CHANGES: Final = 100
MOST_BYTES: Final = 64 * 1024 * 1024
MOST_FILE_BYTES: Final = 16 * 1024 * 1024
_KEY: Final = "files.history"

_turns: Final = RunVar[WeakValueDictionary[object, anyio.Lock]]("toolcrib_tools.files.turns")


def in_turn(workspace: Workspace) -> AbstractAsyncContextManager[None]:
    """Return what to hold from reading files to writing them back: changes in the same folders take turns.

    The turns of the pipeline go by the words of a path; these go by the workspace, so that two spellings of one file,
    and two sessions, cannot lose each other's changes.
    """
    known = _turns.get(None)
    turns = WeakValueDictionary[object, anyio.Lock]() if known is None else known
    if known is None:
        _turns.set(turns)
    lock = turns.get(workspace.roots)
    if lock is None:
        lock = turns[workspace.roots] = anyio.Lock()
    return lock


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change: the files as they were before, and a digest of what it made of them. None is no file."""

    id: str
    tool: str
    time: float
    """Seconds since 1970."""
    before: Mapping[str, bytes | None]
    after: Mapping[str, bytes | None]
    moved: tuple[str, str] | None = None
    """A move of what holds no content here: from, to."""

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        return sum(len(content) for content in self.before.values() if content is not None)

    @property
    def paths(self) -> Sequence[str]:
        """The paths that it touched."""
        return self.moved or tuple(self.before)


@dataclass(slots=True)
class History:
    """The changes of one session, the newest last."""

    _changes: deque[Change] = field(default_factory=deque[Change])
    _count: int = 0
    _size: int = 0

    def record(self, tool: str, before: Mapping[str, bytes | None], after: Mapping[str, bytes | None]) -> bool:
        """Keep what is needed to take a change back; return whether there was room for it."""
        contents = [content for content in before.values() if content is not None]
        if any(len(content) > MOST_FILE_BYTES for content in contents) or sum(map(len, contents)) > MOST_BYTES:
            return False
        digests = {path: digest(content) for path, content in after.items()}
        self._add(tool, dict(before), digests, None)
        return True

    def record_move(self, tool: str, source: str, target: str) -> None:
        """Keep that something was moved as it was."""
        self._add(tool, {}, {}, (source, target))

    def newest(self, path: str = "") -> Change | None:
        """Return the newest change, or the newest that touched `path`."""
        return next(self.all(path), None)

    def all(self, path: str = "") -> Iterator[Change]:
        """Yield the changes, the newest first."""
        return (change for change in reversed(self._changes) if not path or path in change.paths)

    def forget(self, change: Change) -> None:
        """Let a change go that was taken back."""
        self._changes.remove(change)
        self._size -= change.size

    def _add(
        self,
        tool: str,
        before: Mapping[str, bytes | None],
        after: Mapping[str, bytes | None],
        moved: tuple[str, str] | None,
    ) -> None:
        self._count += 1
        made = time.time()
        change = Change(id=f"b{self._count}", tool=tool, time=made, before=before, after=after, moved=moved)
        self._changes.append(change)
        self._size += change.size
        while len(self._changes) > MOST_CHANGES or self._size > MOST_BYTES:
            self._size -= self._changes.popleft().size


def history_of(ctx: Context) -> History:
    """Return the changes of the session that makes this call."""
    found = ctx.runtime.get(_KEY)
    if not isinstance(found, History):
        found = ctx.runtime[_KEY] = History()
    return found


async def apply(
    ctx: Context,
    workspace: Workspace,
    tool: str,
    before: Mapping[str, bytes | None],
    after: Mapping[str, bytes | None],
) -> tuple[Sequence[Written], bool]:
    """Write all files of `after` or none, and keep those of `before`.

    Paths are as the workspace names them. Returns what was written, and whether it can be undone.
    """
    written = await workspace.write_all(after)
    return written, history_of(ctx).record(tool, before, after)


def digest(content: bytes | None) -> bytes | None:
    """Return what tells one content of a file from another."""
    return None if content is None else hashlib.blake2b(content, digest_size=16).digest()
