"""Workspace interface: how the tools of a session read and write files, independent of the implementation.

The implementation is the disk; the disk with pending changes over it (modes `review` and `audit`); or a working copy
for one task (a shadow). Tools see no difference. Relative paths are relative to `root`. A path outside the declared
roots, or one that only seems to be inside (a link, `..`, a device), is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from ..errors import ToolFailure

__all__ = ["Entry", "OpenFile", "Workspace", "Written"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One file or folder. `path` is relative to the workspace's root if it is below it, else absolute."""

    path: str
    kind: Literal["file", "folder", "link", "other"]
    size: int = 0
    """Bytes; 0 for anything but a file."""
    modified: float = 0.0
    """Seconds since 1970."""
    pending: bool = False
    """Its content, or its being there, waits for review."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Result of a change."""

    path: str
    created: bool
    size: int
    pending: bool = False
    """True: it waits for review, and the disk is as it was."""


class OpenFile(Protocol):
    """One file, open for reading in windows. Both methods block: call them in a thread.

    Reads come from the file that was opened, even if its name now belongs to another, up to the size that it had then.
    """

    @property
    def size(self) -> int:
        """Bytes when it was opened."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes from `offset` on; fewer only at the end. Raises `ToolFailure`."""
        ...


class Workspace(Protocol):
    """Files as one session sees them.

    Raises `ToolFailure`: `denied` outside the roots and for guarded files, `tool_error` for a missing entry or one of
    the wrong kind, `too_large`.
    """

    @property
    def root(self) -> Path:
        """Base folder of relative paths."""
        ...

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders inside which tools may work; `root` is in the first one."""
        ...

    @property
    def diverts(self) -> bool:
        """Whether changes wait for review instead of going to the disk."""
        ...

    async def stat(self, path: str) -> Entry | None:
        """Return the entry at `path`, None if missing."""
        ...

    async def stat_many(self, paths: Sequence[str]) -> Sequence[Entry | None]:
        """Return the entry at each path, in their order.

        None for missing ones, and for those that tools may not read.
        """
        ...

    async def read(self, path: str, *, limit: int | None = None) -> bytes:
        """Return the whole file. More than `limit` bytes (100 MiB when none is given) is `too_large`."""
        ...

    def opened(self, path: str, *, limit: int | None = None) -> AbstractAsyncContextManager[OpenFile]:
        """Open a file for as long as the block runs, to read parts of it; `limit` and failures as with `read`."""
        ...

    async def read_many(self, paths: Sequence[str], *, limit: int | None = None) -> Sequence[bytes | ToolFailure]:
        """Return the content or the error for each path, in their order: cheaper than `read` for many small files."""
        ...

    async def write(self, path: str, content: bytes) -> Written:
        """Put the file there, at once or not at all; folders that are missing are made."""
        ...

    async def write_all(self, contents: Mapping[str, bytes | None]) -> Sequence[Written]:
        """Put all these files there or none of them; None removes one."""
        ...

    async def remove(self, path: str, *, recursive: bool = False) -> Sequence[Written]:
        """Remove a file, or a folder; a folder with content needs `recursive`."""
        ...

    async def move(self, source: str, target: str) -> Written:
        """Move a file or a folder; something at `target` already is a `tool_error`."""
        ...

    async def make_folder(self, path: str) -> None:
        """Make a folder and its parents; an existing one is not an error."""
        ...

    async def list(self, path: str = ".") -> Sequence[Entry]:
        """Return the entries of a folder, by name."""
        ...

    async def walk(self, path: str = ".", *, hidden: bool = False, limit: int = 100_000) -> Sequence[Entry]:
        """Return the files below a folder, by path; follows no links. `hidden` includes names with a dot."""
        ...

    def local(self, path: str) -> Path:
        """Return a real path for a program (`rg`, `git`), inside the roots. Changes that wait are not there."""
        ...

    async def overlay(self, path: str = ".") -> Mapping[str, bytes | None]:
        """Return the pending changes below `path`: content by path, None for removed files. Empty on the disk.

        A program that reads `local` does not see them: remove these paths from its results, and add their pending
        content.
        """
        ...
