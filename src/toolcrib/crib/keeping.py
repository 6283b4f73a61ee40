"""What tools keep, within limits: one record that is too large is refused, and says how much there may be.

Secrets are masked in all of it, in ids and groups as well: what is asked for is masked in the same way, and found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from ..core.host import Record
from ..core.json import dumps
from ..errors import ToolFailure
from ..store.records import MOST_RECORDS, RecordRows, Said
from .meaning import Meaning, mixed

__all__ = ["Collection"]

_NAME_BYTES: Final = 2000
"""Of an id or a group: PostgreSQL's indexes hold 2,704 bytes, with the owner and the collection."""
_VALUE_BYTES: Final = 1 << 20
"""Of a record as JSON."""
_CANDIDATES: Final = 50
"""Records that share words with a query and are weighed by their meaning, at least."""
_TEXT: Final = 1 << 20
"""Characters that a search goes by."""


class Collection:
    """One collection of one owner. As long as the store is open."""

    def __init__(self, rows: RecordRows, key: tuple[str, str], mask: Callable[[Any], Any], meaning: Meaning) -> None:
        """`key` is the owner with the collection's name; `mask` takes secrets out."""
        self._rows = rows
        self._key = key
        self._mask = mask
        self._meaning = meaning

    async def add(self, value: Mapping[str, Any], *, group: str = "", text: str = "", title: str = "") -> Record:
        """Keep a new one; see `core.host.Records`, here and below. Raises `ToolFailure` for what is over a limit."""
        group = self._name(group, "group")
        kept, said = await self._content(value, text, title)
        return await self._rows.add(self._key, kept, group=group, text=said)

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
        """Keep one in the place of what has the id."""
        named, group = self._name(id, "id"), self._name(group, "group")
        kept, said = await self._content(value, text, title)
        return await self._rows.put(self._key, named, kept, group=group, text=said, revision=revision)

    async def get(self, id: str) -> Record | None:
        """Return one."""
        return await self._rows.get(self._key, self._name(id, "id"))

    async def remove(self, id: str) -> bool:
        """Forget one."""
        return await self._rows.remove(self._key, self._name(id, "id"))

    async def list(self, *, group: str | None = None, limit: int = 1000) -> list[Record]:
        """Return those of a group, or all."""
        return await self._rows.list(self._key, group=self._group(group), limit=_within(limit))

    async def search(self, query: str, *, group: str | None = None, limit: int = 10) -> list[Record]:
        """Return those that share words with the query, or mean the same."""
        group, limit = self._group(group), _within(limit)
        model = await self._meaning.model()
        if not model or not limit:
            return await self._rows.search(self._key, query, group=group, limit=limit)
        wide = max(limit, _CANDIDATES)
        found = await self._rows.search(self._key, query, group=group, limit=wide)
        shares = {record.id: min(record.score, 1.0) for record in found}
        held = await self._rows.vectors(self._key, group=group, model=model)
        scores = mixed(shares, await self._meaning.cosines(query, held), limit)
        records = await self._rows.some(self._key, list(scores))
        return [replace(record, score=scores[record.id]) for record in records]

    async def meant(self, *, group: str | None = None) -> int | None:
        """Return how many are found by their meaning; None where there is no embedder."""
        group, model = self._group(group), await self._meaning.model()
        return await self._rows.count_vectors(self._key, group=group, model=model) if model else None

    async def _content(self, value: Mapping[str, Any], text: str, title: str) -> tuple[Mapping[str, Any], Said]:
        size = _size(value)
        if size > _VALUE_BYTES:
            raise _too_large(f"it has {size:,} bytes as JSON, {_VALUE_BYTES:,} is the most")
        if len(text) + len(title) > _TEXT:
            raise _too_large(f"its text has {len(text) + len(title):,} characters, {_TEXT:,} is the most")
        return self._mask(value), await self._meaning.said(self._mask(text), self._mask(title))

    def _group(self, group: str | None) -> str | None:
        return None if group is None else self._name(group, "group")

    def _name(self, name: str, what: str) -> str:
        try:
            size = len(name.encode())
        except UnicodeEncodeError as error:
            raise _cannot_hold(f"its {what} is no Unicode text") from error
        if "\0" in name:
            raise _cannot_hold(f"its {what} has a NUL character, which not every database takes")
        if size > _NAME_BYTES:
            raise _too_large(f"its {what} has {size:,} bytes, {_NAME_BYTES:,} is the most")
        return self._mask(name)


def _size(value: Mapping[str, Any]) -> int:
    try:
        return len(dumps(value))
    except TypeError as error:
        raise _cannot_hold(str(error.__cause__ or error)) from error


def _within(limit: int) -> int:
    return max(0, min(limit, MOST_RECORDS))


def _too_large(why: str) -> ToolFailure:
    return ToolFailure("too_large", f"this cannot be kept: {why}", hint="keep a shorter one, or several")


def _cannot_hold(why: str) -> ToolFailure:
    return ToolFailure("invalid_arguments", f"this cannot be kept: {why}")
