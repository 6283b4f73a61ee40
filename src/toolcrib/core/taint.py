"""Taint of a session, and of what its tools store: untrusted content does not become clean by being kept.

A tool that stores something for a session which has read content of strangers marks it with the tool that brought that
content. A call that reads marked content has an untrusted result, in every session and process. What a person approved
is not marked: the question showed it. Files that a tainted session writes have marks of their own (`TaintedFile`).

    untrusted result ──► Taint.source of the session               (`Provenance`, `Execute`)
    the session stores a record, a row, a file ──► its mark         `StoredTaint.mark`
    another session reads that ──► StoredTaint.note ──► its result is untrusted, and it is tainted in its turn
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Protocol

from msgspec import Struct, field


class Taint(Struct, kw_only=True):
    """Content of strangers and private data that a session has read."""

    source: str = ""
    """The tool that first brought content of strangers into this session; empty in a new session."""
    private_read_by: str = ""
    """The tool that first read private data in this session."""
    links: dict[str, None] = field(default_factory=dict[str, None])
    """Links that untrusted results showed, the newest last; following one unchanged discloses nothing."""
    is_unread: bool = False
    """Whether the store could not be read before the last call, so that another process may know of a taint."""

    @property
    def cause(self) -> str:
        """The tool that tainted the session, or that its taint is not known; empty for no taint."""
        return self.source or ("not known, as the store cannot be read" if self.is_unread else "")


class StoredTaint(Struct, kw_only=True):
    """Untrusted content between one call and the store. Lives as long as the call and the processes that it began.

    `Execute` makes it for each call and hands it to the services of the crib. They set `read`; `Execute` reads it at
    the end of the call.
    """

    session: Taint
    """The taint of the session that makes the call."""
    is_approved: bool
    """Whether a person saw and approved the whole arguments of this very call."""
    read: str = ""
    """The mark of the first marked content that the call has read; empty for none."""
    reason: str = ""
    """The file that this content stood in and its origin, for people; empty for content of another kind."""
    is_over: bool = False
    """Whether the call has ended, so that what it reads from now on is to taint the session itself."""

    @property
    def mark(self) -> str:
        """The tool that brought the untrusted content which the call may store now; empty for none."""
        return self.read or ("" if self.is_approved else self.session.cause)

    def note(self, marks: Iterable[str]) -> None:
        """Note the marks of content that the call has read; empty ones mean none."""
        if not self.read:
            self.read = next(filter(None, marks), "")

    def note_file(self, source: str, reason: str) -> None:
        """Note that the call has read a marked file; `source` tainted the session that wrote it."""
        if not self.read:
            self.read, self.reason = source, reason

    def cause_for(self, tool: str) -> str:
        """Return the cause of the session's taint: the tool that read marked content, with the file that it read."""
        return f"{tool}: {self.reason}" if self.reason else tool


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
    """Return the entry directly below `root` that a path lies in: `/repo/src` of `/repo/src/a.py` in `/repo`.

    It is `root` itself for a path elsewhere.
    """
    place = PurePath(path)
    inside = place.relative_to(root).parts if place.is_relative_to(root) else ()
    return str(PurePath(root, inside[0])) if inside else root


def fold(places: Iterable[tuple[str, str]], most: int) -> Iterator[str]:
    """Yield the folders (see `top_of`) that stand for their files, largest first, until at most `most` marks remain.

    `places` are root and path of each mark.

    A folder that is yielded replaces all marks below it by one.
    """
    counts = Counter(top_of(root, path) for root, path in places)
    total = counts.total()
    for top, count in counts.most_common():
        if total <= most or count == 1:
            return
        total -= count - 1
        yield top
