"""Tables of guests, shared by the members of a project, and the log of their events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, TypeVar

from ..core.intent import Intent
from ..core.json import loads
from ..core.shared_storage import Event, Schema
from ..core.taint import StoredTaint
from ..errors import UsageError
from .chain import EVENT_COLUMNS, Transaction
from .database import Connection
from .readers import Reader
from .records import SearchText, put_vectors
from .row_marks import RowMarks
from .shared_schema import migrate
from .shared_transaction import IndexedText, SharedTransaction, put_event
from .statements import MINE, Statements
from .threads import Writer

__all__ = ["SharedRows", "forget_events"]

T = TypeVar("T")

_KEPT_EVENTS: Final = 100_000
"""Events that are kept; older ones go with the next maintenance."""
_PRINCIPALS: Final = 1000
"""Principals whose ids are remembered; past it all are forgotten."""
_KNOWN: Final = 1000
"""Ids of one principal that are remembered."""
_EVENT_COLUMNS: Final = ", ".join(EVENT_COLUMNS)


class SharedRows:
    """The tables of all guests of one store, and the events.

    Every method raises `ToolFailure("storage")` while the store cannot be used.
    """

    def __init__(self, writer: Writer, reader: Reader, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._prepared: dict[str, Schema] = {}
        self._statements: dict[str, Statements] = {}
        self._known_ids: defaultdict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)

    async def prepare(self, schema: Schema) -> None:
        """Bring the tables of a guest to their newest version. Raises `UsageError` when a newer guest wrote them."""
        known = self._prepared.get(schema.name)
        if known is None:
            await self._writer.run(migrate, schema, durable=True)
            self._prepared[schema.name] = schema
        elif known != schema:
            raise UsageError(f"storage: two guests use the name {schema.name!r}")

    async def read(
        self,
        schema: Schema,
        principal: str,
        mask: Callable[[Any], Any],
        work: Callable[[Any], T],
        *,
        long: bool,
        taint: StoredTaint | None = None,
    ) -> T:
        """Return `work` of the rows that a principal may see. What is marked as untrusted is noted in `taint`.

        `work` runs where the query does (`readers`): on the event loop for a SQLite file, else in a thread; `long`
        takes a thread on every database.
        """
        statements = self._statements_of(schema)

        def query(connection: Connection) -> T:
            return work(
                SharedTransaction(
                    statements=statements,
                    principal=principal,
                    now=self._clock(),
                    mask=mask,
                    connection=connection,
                    marks=RowMarks(schema.name, principal, connection, taint),
                )
            )

        return await (self._reader.read_apart(query) if long else self._reader.read(query))

    async def write(
        self,
        schema: Schema,
        principal: str,
        mask: Callable[[Any], Any],
        work: Callable[[Any], T],
        *,
        taint: StoredTaint | None = None,
        intent: Intent | None = None,
    ) -> tuple[T, SharedTransaction]:
        """Return `work` of the rows, and the finished transaction. Durable on return, or with the record of `intent`.

        What a session tainted by `taint` stores is marked.

        `work` runs in the writer's thread, and perhaps again when its commit failed: it has no effect but by its rows.
        """
        statements = self._statements_of(schema)

        def change(transaction: Transaction) -> tuple[T, SharedTransaction]:
            rows = SharedTransaction(
                statements=statements,
                principal=principal,
                now=self._clock(),
                mask=mask,
                connection=transaction.connection,
                marks=RowMarks(schema.name, principal, transaction.connection, taint),
                transaction=transaction,
            )
            return work(rows), rows

        return await (self._writer.run(change, durable=True) if intent is None else intent.run(change))

    def known_ids(self, guest: str, principal: str) -> set[tuple[str, str]]:
        """Return tables and ids of rows that a principal had read before; see `core.shared_storage.SharedStorage`."""
        if len(self._known_ids) > _PRINCIPALS:
            self._known_ids.clear()
        known = self._known_ids[guest, principal]
        if len(known) > _KNOWN:
            known.clear()
        return known

    def note(self, type: str, project_id: str, actor: str, payload: Mapping[str, Any], tainted: str = "") -> None:
        """Record an event with one of the next commits."""
        self._writer.later(put_event, type, project_id, actor, payload, self._clock(), tainted)

    async def add_vectors(self, text: IndexedText, vectors: SearchText) -> None:
        """Store the vectors of a text."""
        await self._writer.run(put_vectors, text.key, text.id, text.revision, vectors)

    async def projects(self, principal: str) -> list[str]:
        """Return the projects of a principal."""
        return await self._reader.rows(itemgetter(0), f"{MINE} ORDER BY project_id", (principal,))

    async def events(self, principal: str, *, project_id: str, types: Sequence[str], limit: int) -> list[Event]:
        """Return the newest events that a principal may see, newest first."""
        mine = f"project_id IN ({MINE}) OR (project_id = '' AND actor = ?)"
        sql, parameters = f"SELECT {_EVENT_COLUMNS} FROM events WHERE ({mine})", [principal, principal]
        if project_id:
            sql, parameters = f"{sql} AND project_id = ?", [*parameters, project_id]
        if types:
            sql, parameters = f"{sql} AND type IN ({', '.join('?' * len(types))})", [*parameters, *types]
        return await self._reader.rows(_event, f"{sql} ORDER BY id DESC LIMIT ?", [*parameters, limit])

    async def events_after(self, position: int, limit: int) -> list[Event]:
        """Return the events behind a position, in their order."""
        return await self._reader.rows(
            _event, f"SELECT {_EVENT_COLUMNS} FROM events WHERE id > ? ORDER BY id LIMIT ?", [position, limit]
        )

    async def position(self, name: str) -> int:
        """Return the position of a subscriber; a new one begins behind the newest event."""
        return await self._writer.run(_position, name, durable=True)

    async def settle(self, name: str) -> None:
        """Return when the disk has every event that can be read now, for the subscriber `name`.

        A handler may act outside of this machine: a loss of power must not take back an event that it acted on.
        """
        sql = "UPDATE event_positions SET position = position WHERE name = ?"
        await self._writer.run(_execute, sql, (name,), durable=True)

    async def advance(self, name: str, position: int) -> None:
        """Store how far a subscriber has come."""
        sql = "UPDATE event_positions SET position = ? WHERE name = ? AND position < ?"
        await self._writer.run(_execute, sql, (position, name, position))

    def _statements_of(self, schema: Schema) -> Statements:
        found = self._statements.get(schema.name)
        if found is None or found.schema is not schema:
            found = self._statements[schema.name] = Statements(schema)
        return found


def forget_events(transaction: Transaction) -> None:
    """Delete all events but the newest."""
    transaction.execute("DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?", (_KEPT_EVENTS,))


def _event(row: Sequence[Any]) -> Event:
    id, type, project_id, actor, payload, time, tainted = row
    return Event(
        id=int(id),
        type=type,
        project_id=project_id,
        actor=actor,
        payload=loads(payload),
        time=time,
        tainted=tainted,
    )


def _position(transaction: Transaction, name: str) -> int:
    found = transaction.execute("SELECT position FROM event_positions WHERE name = ?", (name,)).fetchone()
    if found:
        return int(found[0])
    newest = int(transaction.execute("SELECT max(id) FROM events").fetchone()[0] or 0)
    transaction.execute("INSERT INTO event_positions (name, position) VALUES (?, ?)", (name, newest))
    return newest


def _execute(transaction: Transaction, sql: str, parameters: Sequence[Any]) -> None:
    transaction.execute(sql, parameters)
