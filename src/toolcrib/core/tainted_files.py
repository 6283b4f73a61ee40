"""Marks of files that tainted sessions wrote: the values, and the protocol of their storage (see `core.taint`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Protocol

from msgspec import Struct

__all__ = ["TaintedFile", "TaintedFileStore", "fold", "top_of"]


class TaintedFile(Struct, frozen=True, kw_only=True):
    """Content that a tainted session put into a file.

    It holds for every file below `root` with that content: a copy or a renamed file keeps it, an edited one has none.
    """

    root: str
    """Workspace folder that the file lay in, an absolute path."""
    path: str
    """Absolute."""
    digest: str = ""
    """SHA-256 of the content. Empty for a folder: all files in it that were last changed before `noted`."""
    size: int = 0
    """Bytes of the content."""
    source: str = ""
    """Cause of the session's taint: a tool, or a tool with the marked file that it read."""
    session: str = ""
    """Key of the session."""
    noted: float = 0.0
    """Seconds since 1970."""

    @property
    def reason(self) -> str:
        """The origin of the content, for questions and for people."""
        return f"{self.path}, which session {self.session} wrote after it had read {self.source}"


class TaintedFileStore(Protocol):
    """Keeps marks over a restart. Raises `ToolFailure("storage")`."""

    @property
    def is_private(self) -> bool:
        """Whether no other process can change the marks."""
        ...

    async def state(self) -> object:
        """Return a value that differs after each change of the marks."""
        ...

    async def all(self) -> Sequence[TaintedFile]:
        """Return all marks."""
        ...

    async def put(self, files: Sequence[TaintedFile]) -> tuple[object, object]:
        """Store marks; those of one content and path are stored once. Return the state before and after.

        Past a limit, marks of files become one of their folder. The state after is None then.
        """
        ...

    async def remove(self, files: Sequence[TaintedFile]) -> None:
        """Remove marks."""
        ...


def top_of(root: str, path: str) -> str:
    """Return the entry directly below `root` that a path lies in; `root` for a path elsewhere."""
    place = PurePath(path)
    inside = place.relative_to(root).parts if place.is_relative_to(root) else ()
    return str(PurePath(root, inside[0])) if inside else root


def fold(places: Iterable[tuple[str, str]], most: int) -> Iterator[str]:
    """Yield the folders (see `top_of`) that stand for their files, largest first, until at most `most` marks remain.

    `places` are root and path of each mark.
    """
    counts = Counter(top_of(root, path) for root, path in places)
    total = counts.total()
    for top, count in counts.most_common():
        if total <= most or count == 1:
            return
        total -= count - 1
        yield top
