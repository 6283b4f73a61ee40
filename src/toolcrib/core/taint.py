"""Taint of a session, and of what its tools store: untrusted content does not become clean by being kept.

A tool that stores something for a session which has read content of strangers marks it with the tool that brought that
content. A call that reads marked content has an untrusted result, in every session and process. What a person approved
is not marked: the question showed it.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

__all__ = ["StoredTaint", "Taint"]


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
    """Untrusted content between one call and the store. Lives as long as the call and the processes that it began."""

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
