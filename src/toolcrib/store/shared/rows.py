"""Tables of guests, shared by the members of a project, and the log of their events."""

from __future__ import annotations

import secrets
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, TypeVar

import anyio

from ...core.intent import Intent
from ...core.json import dumps, loads
from ...core.services.shared_storage import Event, Schema
from ...core.taint import StoredTaint
from ...errors import UsageError
from ..chain import EVENT_COLUMNS, Transaction
from ..database import Connection, Lease
from ..readers import Reader
from ..records import SearchText, put_vectors, remove_record
from ..row_marks import RowMarks
from ..statements import MINE, Statements
from ..threads import Writer
from .schema import full_name, migrate, text_key
from .transaction import IndexedText, SharedTransaction, put_event

T = TypeVar("T")

_KEPT_EVENTS: Final = 100_000
"""Events that are kept; older ones go with the next maintenance."""
_PRINCIPALS: Final = 1000
"""Principals whose ids are remembered; past it all are forgotten."""
_KNOWN: Final = 1000
"""Ids of one principal that are remembered."""
_AT_ONCE: Final = 200
"""Parts of a project that are one transaction: 0.2 s."""
_PART_SECONDS: Final = 0.3
"""The most that the parts of a larger one hold the lock before the others get their turn."""
_REST_SECONDS: Final = 0.15
"""Between two such transactions: a process that waits for the lock of a file tries again every 100 ms."""
_BUILT: Final = "building:"
"""Beginning of the key under which a project that is not finished is noted; its guest and lease are the value."""
_REMOVED: Final = 200
"""Rows of unfinished projects that one transaction removes."""
_EVENT_COLUMNS: Final = ", ".join(EVENT_COLUMNS)


class SharedRows:
    """The tables of all guests of one store, and the events.

    Every method raises `ToolFailure("storage")` while the store cannot be used.
    """

    def __init__(self, writer: Writer, reader: Reader, lease: Lease, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._reader = reader
        self._lease = lease
        self._clock = clock
        self._given_up: set[str] = set()
        """Projects of this store that were not finished."""
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

        def query(connection: Connection) -> T:
            return work(self._rows(schema, principal, mask, connection, taint))

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
        builder: str = "",
    ) -> tuple[T, SharedTransaction]:
        """Return `work` of the rows, and the finished transaction. Durable on return, or with the record of `intent`.

        What a session tainted by `taint` stores is marked. `builder` is the member that it writes as, if not as the
        principal. `work` runs in the writer's thread, and perhaps again when its commit failed: it has no effect but by
        its rows.
        """

        def change(transaction: Transaction) -> tuple[T, SharedTransaction]:
            rows = self._rows(schema, principal, mask, transaction, taint, builder)
            return work(rows), rows

        return await (self._writer.run(change, durable=True) if intent is None else intent.run(change))

    async def build(
        self,
        schema: Schema,
        principal: str,
        mask: Callable[[Any], Any],
        project_id: str,
        parts: Sequence[Callable[[Any], object]],
        finish: Callable[[Any], T],
        report: Callable[[int, int], Awaitable[None]],
        *,
        taint: StoredTaint | None = None,
        intent: Intent | None = None,
    ) -> tuple[T, SharedTransaction]:
        """Create a project; see `core.services.shared_storage.SharedStorage`. Return and durability as of `write`.

        Of a large project only the last transaction is one with `intent`, and makes the principal its owner. Until
        then its owner has a secret name, and `forget_unfinished` may remove its rows.
        """
        if len(parts) <= _AT_ONCE:

            def whole(rows: SharedTransaction) -> T:
                rows.create_project(project_id)
                for part in parts:
                    part(rows)
                return finish(rows)

            return await self.write(schema, principal, mask, whole, taint=taint, intent=intent)
        builder, built = secrets.token_hex(16), f"{_BUILT}{project_id}"
        indexed, position = list[IndexedText](), 0

        def some(transaction: Transaction) -> tuple[int, SharedTransaction]:
            deadline, number = time.monotonic() + _PART_SECONDS, position
            rows = self._rows(schema, principal, mask, transaction, taint, builder)
            if not number:
                noted = dumps([schema.name, self._lease.id]).decode()
                transaction.execute("INSERT INTO meta (key, value) VALUES (?, ?)", (built, noted))
                rows.create_project(project_id)
            while number < len(parts) and (number == position or time.monotonic() < deadline):
                parts[number](rows)
                number += 1
            return number, rows

        def end(rows: SharedTransaction) -> T:
            value = finish(rows)
            rows.hand_over(project_id, built)
            return value

        try:
            while position < len(parts):
                position, done = await self._writer.run(some)
                indexed += done.indexed
                await report(position, len(parts))
                await anyio.sleep(_REST_SECONDS)
            value, done = await self.write(schema, principal, mask, end, taint=taint, intent=intent, builder=builder)
        except BaseException:
            self._given_up.add(project_id)
            self._writer.tidy(self.forget_unfinished)
            raise
        done.indexed[:0] = indexed
        return value, done

    def forget_unfinished(self, transaction: Transaction) -> None:
        """Remove some rows of projects that this store gave up, or one that is gone; the next ones follow."""
        sql = "SELECT key, value FROM meta WHERE key LIKE ?"
        for built, noted in transaction.execute(sql, (f"{_BUILT}%",)).fetchall():
            project_id, (guest, lease) = built.removeprefix(_BUILT), loads(noted)
            schema = self._prepared.get(guest)
            if schema is None or not (project_id in self._given_up or self._lease.is_free(transaction, lease)):
                continue
            # A builder that lost its lease and goes on is refused now: it would hand over a project with rows missing.
            sql = "UPDATE members SET principal = ? WHERE project_id = ?"
            transaction.execute(sql, (secrets.token_hex(16), project_id))
            if _remove_rows(transaction, schema, project_id):
                self._writer.tidy(self.forget_unfinished)
                return
            transaction.execute("DELETE FROM members WHERE project_id = ?", (project_id,))
            transaction.execute("DELETE FROM meta WHERE key = ?", (built,))

    def known_ids(self, guest: str, principal: str) -> set[tuple[str, str]]:
        """Return tables and ids of rows that a principal had read before; see `SharedStorage`."""
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

    def _rows(
        self,
        schema: Schema,
        principal: str,
        mask: Callable[[Any], Any],
        connection: Connection | Transaction,
        taint: StoredTaint | None,
        builder: str = "",
    ) -> SharedTransaction:
        transaction = connection if isinstance(connection, Transaction) else None
        below = connection.connection if isinstance(connection, Transaction) else connection
        member = builder or principal
        return SharedTransaction(
            statements=self._statements_of(schema),
            principal=principal,
            member=member,
            now=self._clock(),
            mask=mask,
            connection=below,
            marks=RowMarks(schema.name, member, below, taint),
            transaction=transaction,
        )

    def _statements_of(self, schema: Schema) -> Statements:
        found = self._statements.get(schema.name)
        if found is None or found.schema is not schema:
            found = self._statements[schema.name] = Statements(schema)
        return found


def _remove_rows(transaction: Transaction, schema: Schema, project_id: str) -> int:
    """Remove up to `_REMOVED` rows of a project, with their search records and marks. Return their number."""
    removed, marks = 0, RowMarks(schema.name, "", transaction.connection, None)
    for table in schema.tables:
        sql = f"SELECT id FROM {full_name(schema, table)} WHERE project_id = ? LIMIT ?"
        for (id,) in transaction.execute(sql, (project_id, _REMOVED - removed)).fetchall():
            transaction.execute(f"DELETE FROM {full_name(schema, table)} WHERE id = ?", (id,))
            marks.remove(transaction, table.name, (id,))
            remove_record(transaction, text_key(schema.name, project_id), id)
            removed += 1
    return removed


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
