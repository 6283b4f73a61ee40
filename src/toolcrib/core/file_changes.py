"""Pending file changes: values and storage protocol, shared by their authors, store and reviewers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = ["MAX_PENDING", "PendingChange", "PendingKey", "PendingSet", "PendingStore"]

MAX_PENDING = 64 << 20
"""Maximum bytes of the changes of one session or task, replaced content included (seed 002: 64 MB)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingKey:
    """Owner of changes: one set for each session or task in each workspace."""

    principal: str
    workspace: str
    """Its roots, absolute paths, one a line."""
    owner: str
    """`session <key>` or `task <id>`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingChange:
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
    """SHA-256 of the content that the disk had, where that is kept."""
    implied: bool = False
    """A folder that was made on the way to a file."""
    applying: bool = False
    """It was accepted, and is being written to the disk."""
    changed: float = 0.0
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingSet:
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
