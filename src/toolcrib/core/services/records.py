"""Records of a principal: values that tools keep between calls.

    notes = ctx.records("notes")
    note = await notes.add({"text": "milk"}, text="milk")
    await notes.put(note.id, {"text": "oat milk"}, text="oat milk", revision=note.revision)

The last call raises `ToolFailure("conflict")` where another one changed the record meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct, field


class Record(Struct, frozen=True, kw_only=True):
    """One thing that is remembered: plain JSON under an id."""

    id: str
    value: Mapping[str, Any]
    group: str = ""
    """Group for listing: a project, a state, a kind; one a record."""
    revision: int = 1
    """Grows by one with each change."""
    created: float
    """Seconds since 1970."""
    updated: float
    score: float = 0.0
    """Score of a search result; greater is better, and only the order is meaningful."""
    tainted: str = ""
    """The tool that had brought content of strangers into the session which stored it; empty for a clean one."""


class Records(Protocol):
    """The records of one collection of one owner. Stored over restarts, shared by all processes of one store.

    Every method raises `ToolFailure("storage")` while the store cannot be used. Secrets are masked before storing, in
    ids and groups too. The limits are 100,000 records in a collection, 1 MiB of JSON and of text in a record, and 2,000
    bytes in an id and a group: beyond them a method raises `ToolFailure("too_large")`, for a value that is not JSON
    `invalid_arguments`.
    """

    async def add(self, value: Mapping[str, Any], *, group: str = "", text: str = "", title: str = "") -> Record:
        """Add a record under the collection's next number, and return it.

        `text` is the searchable text; a word of `title` counts three times.
        """
        ...

    async def put(
        self,
        id: str,
        value: Mapping[str, Any],
        *,
        group: str = "",
        text: str = "",
        title: str = "",
        revision: int | None = None,
    ) -> Record:
        """Store a record in the place of the one with that id; return it.

        `revision` names the state that the change is based on, 0 for a new record: raises `ToolFailure("conflict")` if
        it has changed since. None overwrites any state.
        """
        ...

    async def get(self, id: str) -> Record | None:
        """Return one record; None when it does not exist."""
        ...

    async def remove(self, id: str) -> bool:
        """Forget one; return whether there was one."""
        ...

    async def list(self, *, group: str | None = None, limit: int = 1000) -> list[Record]:
        """Return those of a group, or all; the one changed last comes first."""
        ...

    async def search(self, query: str, *, group: str | None = None, limit: int = 10) -> list[Record]:
        """Return records that share words with the query, best first. A word also matches words that it begins.

        With an embedder, records of the same meaning in other words match as well, and those that match in both ways
        come first. A score is then between 0 and 1, and comparable between groups.
        """
        ...

    async def meant(self, *, group: str | None = None) -> int | None:
        """Return the number of records that are found by meaning; None if all are found by words only.

        Those that were kept before the crib had its embedder are not: `put` them again.
        """
        ...


class Embedded(Struct, frozen=True, kw_only=True):
    """Meaning of texts, as vectors of length 1: the greater the product of two, the nearer are their texts."""

    model: str
    """Vectors of one model are comparable, also after a restart."""
    vectors: tuple[tuple[float, ...], ...]


class Nearest(Struct, frozen=True, kw_only=True):
    """Search by meaning among many texts."""

    found: Mapping[str, float] = field(default_factory=dict[str, float])
    """Keys of those that are near, best first, each with a nearness up to 1."""
    unread: int = 0
    """Texts that were skipped because they have no vector yet."""
