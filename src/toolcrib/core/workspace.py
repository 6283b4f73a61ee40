"""Workspace interface: how the tools of a session read and write files, independent of the implementation.

The implementation is the disk; the disk with pending changes over it (modes `review` and `audit`); or a working copy
for one task (a shadow). Tools see no difference. Relative paths are relative to `root`. A path outside the declared
roots, or one that only seems to be inside (a link, `..`, a device), is refused.

Pending changes are values (`PendingChange`, `PendingSet`) and a storage protocol, so that their authors, their store
and their reviewers share no code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from ..errors import ToolFailure

MAX_PENDING = 64 << 20
"""Maximum bytes of the changes of one session or task, replaced content included (seed 002: 64 MB)."""


class FileEntry(Struct, frozen=True, kw_only=True):
    """One file or folder. `path` is relative to the workspace's root if it is below it, else absolute."""

    path: str
    kind: Literal["file", "folder", "link", "other"]
    size: int = 0
    """Bytes; 0 for anything but a file."""
    modified: float = 0.0
    """Seconds since 1970."""
    pending: bool = False
    """Its content, or its being there, waits for review."""


class Written(Struct, frozen=True, kw_only=True):
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

    async def stat(self, path: str) -> FileEntry | None:
        """Return the entry at `path`, None if missing."""
        ...

    async def stat_many(self, paths: Sequence[str]) -> Sequence[FileEntry | None]:
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

    async def list(self, path: str = ".") -> Sequence[FileEntry]:
        """Return the entries of a folder, by name."""
        ...

    async def walk(self, path: str = ".", *, hidden: bool = False, limit: int = 100_000) -> Sequence[FileEntry]:
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


class PendingKey(Struct, frozen=True, kw_only=True):
    """Owner of changes: one set for each session or task in each workspace."""

    principal: str
    workspace: str
    """Its roots, absolute paths, one a line."""
    owner: str
    """`session <key>` or `task <id>`."""


class PendingChange(Struct, frozen=True, kw_only=True):
    """Target state of one path. It hides the disk at and below it."""

    path: str
    """Absolute."""
    kind: Literal["file", "folder", "gone"]
    content: str = ""
    """SHA-256 of a file's content."""
    size: int = 0
    mode: int = -1
    """Permissions of a file; -1 for those that a new one gets."""
    base: str = ""
    """The state of the disk that the change was made for; empty for nothing (`workspace.batch.state_of`)."""
    before: str = ""
    """SHA-256 of the content that the disk had, if that is kept."""
    implied: bool = False
    """A folder that was made on the way to a file."""
    applying: bool = False
    """It was accepted, and is being written to the disk."""
    changed: float = 0.0
    """Seconds since 1970."""


class PendingSet(Struct, frozen=True, kw_only=True):
    """All changes of one key, as they were at one moment."""

    key: PendingKey
    files: str = ""
    """`review` or `audit`, as they were made."""
    version: int = 0
    changed: float = 0.0
    changes: tuple[PendingChange, ...] = ()


class PendingStore(Protocol):
    """Keeps changes over a restart. Raises `ToolFailure("storage")`."""

    async def get(self, key: PendingKey) -> PendingSet:
        """Return the pending changes; an empty set for an unknown key."""
        ...

    async def version(self, key: PendingKey) -> int:
        """Return the version of the set, 0 for an unknown key."""
        ...

    async def sets(self, principal: str) -> Sequence[PendingSet]:
        """Return the sets of a principal that hold something, the newest first."""
        ...

    async def content(self, key: PendingKey, digest: str) -> bytes:
        """Return a content. Raises `ToolFailure("not_found")` for one that is not kept any more."""
        ...

    async def replace(self, new: PendingSet, contents: Mapping[str, bytes]) -> bool:
        """Store a set in place of its predecessor; False when that is no longer the newest version.

        `contents` holds the new ones. Durable on return. Raises `ToolFailure("too_large")` when the contents have more
        than `MAX_PENDING` bytes.
        """
        ...
