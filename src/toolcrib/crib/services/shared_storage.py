"""Shared tables of guests and the event log of a crib: search by words and meaning, delivery to subscribers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any, Final, TypeVar

import anyio

from ...core.intent import Intent
from ...core.services.shared_storage import Event, EventHandler, Rows, Schema, TextHit
from ...core.taint import StoredTaint
from ...errors import ToolcribError
from ...store.records import RecordRows
from ...store.shared.rows import SharedRows
from ...store.shared.schema import text_key
from ...store.shared.transaction import IndexedText, SharedTransaction
from .records import MeaningSearch, RecordCollection

T = TypeVar("T")

_logger = logging.getLogger(__name__)

_POLL_SECONDS: Final = 2.0
"""Interval at which events of other processes are noticed."""
_RETRY_SECONDS: Final = (1.0, 60.0)
"""First and longest wait before an event is delivered again."""
_BATCH: Final = 100

_Spawn = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]


class StoredEvents:
    """The event log of one crib. Belongs to its event loop.

    Each subscriber has a stored position and a task of its own: events reach it in order and at least once. One that
    was handled when the process died before its position was stored is delivered again, so handlers are idempotent.
    """

    def __init__(self, rows: SharedRows, spawn: _Spawn) -> None:
        """`spawn` begins the delivery to a subscriber."""
        self._rows = rows
        self._spawn = spawn
        self._published = anyio.Event()

    async def recent(
        self, principal: str, *, project_id: str = "", types: Sequence[str] = (), limit: int = 50
    ) -> list[Event]:
        """Return the newest events; see `core.services.shared_storage.EventLog`, here and below."""
        return await self._rows.events(principal, project_id=project_id, types=types, limit=limit)

    async def subscribe(self, name: str, types: Sequence[str], handler: EventHandler) -> None:
        """Deliver events to `handler` until the crib closes."""
        position = await self._rows.position(name)
        await self._spawn(partial(self._deliver, name, frozenset(types), handler, position))

    def wake(self) -> None:
        """Have new events delivered now."""
        self._published.set()
        self._published = anyio.Event()

    async def _deliver(self, name: str, types: Set[str], handler: EventHandler, position: int) -> None:
        """Read every event once. The stored position is that of the newest one which was handled."""
        wait, longest = _RETRY_SECONDS
        while True:
            published = self._published
            try:
                events = await self._rows.events_after(position, _BATCH)
                wanted = {event.id for event in events if "*" in types or event.type in types}
                if wanted:
                    await self._rows.settle(name)
                for event in events:
                    is_wanted = event.id in wanted
                    if is_wanted:
                        await handler(event)
                    position = event.id
                    if is_wanted:
                        await self._rows.advance(name, position)
                wait = _RETRY_SECONDS[0]
            except Exception:  # a handler of a guest may raise anything; the event comes again
                _logger.warning("subscriber %s of events failed, again in %g s", name, wait, exc_info=True)
                await anyio.sleep(wait)
                wait = min(wait * 2, longest)
                continue
            if len(events) < _BATCH:
                with anyio.move_on_after(_POLL_SECONDS):
                    await published.wait()


class GuestStorage:
    """The tables of one guest for one principal; see `core.services.shared_storage.SharedStorage`."""

    def __init__(
        self,
        schema: Schema,
        principal: str,
        rows: SharedRows,
        texts: RecordRows,
        mask: Callable[[Any], Any],
        meaning: MeaningSearch,
        events: StoredEvents,
        taint: StoredTaint | None = None,
        intent: Intent | None = None,
    ) -> None:
        """`texts` are the search records, `mask` takes secrets out, `taint` and `intent` are those of the call."""
        self._taint = taint
        self._intent = intent
        self._schema = schema
        self._principal = principal
        self._rows = rows
        self._texts = texts
        self._mask = mask
        self._meaning = meaning
        self._events = events

    @property
    def known_ids(self) -> set[tuple[str, str]]:
        """Tables and ids that the principal had read before; some of them."""
        return self._rows.known_ids(self._schema.name, self._principal)

    async def read(self, work: Callable[[Rows], T], *, long: bool = False) -> T:
        """Return `work(rows)` for a `work` that only reads."""
        await self._rows.prepare(self._schema)
        return await self._rows.read(self._schema, self._principal, self._mask, work, long=long, taint=self._taint)

    async def write(self, work: Callable[[Rows], T]) -> T:
        """Return `work(rows)`, run in one durable transaction."""
        await self._rows.prepare(self._schema)
        value, done = await self._rows.write(
            self._schema, self._principal, self._mask, work, taint=self._taint, intent=self._intent
        )
        await self._announce(done)
        return value

    async def build(
        self,
        project_id: str,
        parts: Sequence[Callable[[Rows], object]],
        finish: Callable[[Rows], T],
        report: Callable[[int, int], Awaitable[None]],
    ) -> T:
        """Create a project of many rows."""
        await self._rows.prepare(self._schema)
        work = parts, finish, report
        value, done = await self._rows.build(
            self._schema, self._principal, self._mask, project_id, *work, taint=self._taint, intent=self._intent
        )
        await self._announce(done)
        return value

    def note(self, type: str, project_id: str, payload: Mapping[str, Any]) -> None:
        """Record an event with one of the next commits."""
        mark = "" if self._taint is None else self._taint.mark
        self._rows.note(type, project_id, self._principal, self._mask(dict(payload)), mark)

    async def search(
        self, query: str, *, project_id: str = "", tables: Sequence[str] = (), limit: int = 20
    ) -> list[TextHit]:
        """Return visible rows that fit a query, best first."""
        await self._rows.prepare(self._schema)
        mine = await self._rows.projects(self._principal)
        hits: list[TextHit] = []
        for project in [one for one in mine if one == project_id] if project_id else mine:
            key = text_key(self._schema.name, project)
            records = RecordCollection(self._texts, key, self._mask, self._meaning)
            for group in tables or (None,):
                found = await records.search(query, group=group, limit=limit)
                hits += [TextHit(table=one.group, id=one.id, project_id=project, score=one.score) for one in found]
        return sorted(hits, key=lambda hit: (-hit.score, hit.id))[:limit]

    async def _announce(self, done: SharedTransaction) -> None:
        """Deliver the events of a finished transaction, and make the vectors of its texts."""
        if done.published:
            self._events.wake()
        if self._meaning.embeds:
            for text in done.indexed:
                await self._embed(text)

    async def _embed(self, text: IndexedText) -> None:
        vectors = await self._meaning.search_text(text.text, text.title)
        try:
            await self._rows.add_vectors(text, vectors)
        except ToolcribError:  # the change itself is stored; without vectors its words still find it
            _logger.warning("the meaning of %s was not stored", text.id, exc_info=True)
