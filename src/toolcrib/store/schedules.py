"""Schedule rows: calls that are made later, claimed for each due time by one of the processes that share the store.

Every change of a row is a function of the row inside one transaction (`change`). A claim names its holder and its
number; the holder ends it with the next time. The claim of a dead process is ended by what the store knows of its call:
one that was recorded, began or waits is not made again, any other is due again.

    due ── claim (worker, claim + 1) ──► call `call_ID_RUN` is made ──► change: outcome, next time, worker empty
              the process dies here ──► `recover` in another one: by the record of that call's id
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from ..errors import ToolFailure
from .calls import settle_intents
from .chain import Transaction
from .database import Connection, Lease
from .readers import Reader
from .threads import Writer

_OPEN: Final = "status IN ('active', 'paused')"
_DUE: Final = "(asked IS NOT NULL OR (status = 'active' AND next_run <= ?))"

KEPT_SECONDS: Final = 7 * 86_400.0
"""Seconds that an ended schedule is kept after its last run, and a message that cannot be read."""


class ScheduleRow(Struct, frozen=True, kw_only=True):
    """One schedule. Times are seconds since 1970."""

    id: str
    principal: str
    place: str
    status: str
    kind: str
    value: str
    zone: str
    saved: str
    digest: str
    created: float
    start: float
    next_run: float | None
    asked: float | None = None
    runs: int = 0
    last_run: float | None = None
    outcome: str = ""
    worker: str = ""
    claim: int = 0
    due: float | None = None

    @property
    def call(self) -> str:
        """The id of the call that the present run makes; the same when a dead process's run is made again."""
        return f"call_{self.id}_{self.runs + 1}"


class Look(Struct, frozen=True, kw_only=True):
    """State of the schedules of one configuration."""

    active: int
    workers: frozenset[str]
    """The stores that fire one now."""
    due: tuple[ScheduleRow, ...]
    """Due schedules that no process fires yet."""


class MessageRow(Struct, frozen=True, kw_only=True):
    """A message for the next session of a principal; `saved` is sealed."""

    id: str
    principal: str
    created: float
    saved: str


Change = Callable[[ScheduleRow], ScheduleRow | None]
"""Returns the row as it will be, None for no change. Pure: called in the writer's thread, perhaps twice."""

_COLUMNS: Final = ScheduleRow.__struct_fields__
_NAMES: Final = ", ".join(_COLUMNS)
_INSERT: Final = f"INSERT INTO schedules ({_NAMES}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_UPDATE: Final = f"UPDATE schedules SET {', '.join(f'{name} = ?' for name in _COLUMNS[1:])} WHERE id = ?"
_MESSAGE: Final = MessageRow.__struct_fields__


class ScheduleRows:
    """The schedules of one store. Every method raises `ToolFailure("storage")` while it cannot be used."""

    def __init__(self, writer: Writer, reader: Reader, lease: Lease, *, is_private: bool) -> None:
        self._is_private = is_private
        self._writer = writer
        self._reader = reader
        self._lease = lease

    @property
    def is_private(self) -> bool:
        """Whether no other process can have this store open: it is in memory."""
        return self._is_private

    @property
    def worker(self) -> str:
        """The id of this store: the holder of a claim."""
        return self._lease.id

    async def add(self, row: ScheduleRow, *, most: int) -> ScheduleRow:
        """Add a schedule, or return the active one of this principal that equals it. Durable on return.

        Raises `ToolFailure("overloaded")` when the principal has `most` open ones.
        """
        return await self._writer.run(_add, row, most, durable=True)

    async def change(self, id: str, principal: str | None, make: Change, *, keep: bool = False) -> ScheduleRow | None:
        """Change a schedule of this principal (None: of any); return its new state. Durable on return.

        None if there is no such schedule, or `make` changes nothing. Raises what `make` raises. `keep`: a failing
        disk is tried again.
        """
        return await self._writer.run(_change, id, principal, make, durable=True, keep=keep)

    async def keep_message(self, row: ScheduleRow, message: MessageRow, make: Change) -> bool:
        """Change a schedule, and with it add a message; False when `make` changes nothing, and nothing is added."""
        return await self._writer.run(_keep_message, row.id, message, make, durable=True)

    async def get(self, id: str, principal: str | None) -> ScheduleRow | None:
        """Return a schedule of this principal, or of any for None."""
        return await self._reader.read(lambda connection: _get(connection, id, principal))

    async def list(self, principal: str | None, *, every: bool = False) -> list[ScheduleRow]:
        """Return the open schedules of this principal, or of all with None, the next one first; or `every` one."""
        where = ["1 = 1" if every else _OPEN] + (["principal = ?"] if principal is not None else [])
        sql = f"SELECT {_NAMES} FROM schedules WHERE {' AND '.join(where)} ORDER BY next_run IS NULL, next_run, id"
        return await self._reader.rows(_row, sql, () if principal is None else (principal,))

    async def look(self, place: str, now: float) -> Look:
        """Return the state of the schedules of a configuration."""

        def query(connection: Connection) -> Look:
            sql = f"SELECT status, worker, count(*) FROM schedules WHERE place = ? AND {_OPEN} GROUP BY status, worker"
            counts = connection.execute(sql, (place,)).fetchall()
            sql = f"SELECT {_NAMES} FROM schedules WHERE place = ? AND {_OPEN} AND worker = '' AND {_DUE} ORDER BY id"
            return Look(
                active=sum(count for status, _, count in counts if status == "active"),
                workers=frozenset(worker for _, worker, _ in counts if worker),
                due=tuple(_row(values) for values in connection.execute(sql, (place, now)).fetchall()),
            )

        return await self._reader.read(query)

    async def recover(self) -> list[tuple[ScheduleRow, str]]:
        """Return the runs of dead processes that are over, now claimed by this process, with their outcomes.

        A run whose call never began is due again; one whose job or approval is open stays as it is.
        """
        return await self._writer.run(_recover, self._lease, time.time(), durable=True)

    async def sign_on(self, place: str) -> None:
        """Record that this process fires the schedules of a configuration."""
        await self._writer.run(_sign_on, self.worker, place)

    async def sign_off(self) -> None:
        """Record that this process fires no more."""
        await self._writer.run(_sign_off, self.worker)

    async def is_served(self, place: str) -> bool:
        """Whether a living process fires the schedules of a configuration."""
        return await self._writer.run(_is_served, self._lease, place)

    async def has_messages(self) -> bool:
        """Whether messages wait for a session of any principal."""
        return await self._reader.row("SELECT 1 FROM messages LIMIT 1") is not None

    async def messages(self, principal: str) -> list[MessageRow]:
        """Return the messages that wait for a principal, oldest first."""
        sql = f"SELECT {', '.join(_MESSAGE)} FROM messages WHERE principal = ? ORDER BY created, id"
        rows = await self._reader.rows(tuple[Any, ...], sql, (principal,))
        return [MessageRow(**dict(zip(_MESSAGE, row, strict=True))) for row in rows]

    async def take_messages(self, ids: Sequence[str]) -> frozenset[str]:
        """Remove messages, and return those that were still there: no other process takes them. Durable on return."""
        return await self._writer.run(_take_messages, ids, durable=True)


def _add(transaction: Transaction, row: ScheduleRow, most: int) -> ScheduleRow:
    sql = f"SELECT {_NAMES} FROM schedules WHERE principal = ? AND digest = ? AND status = 'active'"
    equal = transaction.execute(sql, (row.principal, row.digest)).fetchone()
    if equal is not None:
        return _row(equal)
    sql = "DELETE FROM schedules WHERE status NOT IN ('active', 'paused') AND COALESCE(last_run, created) < ?"
    transaction.execute(sql, (row.created - KEPT_SECONDS,))
    sql = f"SELECT count(*) FROM schedules WHERE principal = ? AND {_OPEN}"
    (count,) = transaction.execute(sql, (row.principal,)).fetchone()
    if count >= most:
        raise ToolFailure("overloaded", f"{count} schedules of yours are open", hint="cancel one first")
    transaction.execute(_INSERT, _values(row))
    return row


def _change(transaction: Transaction, id: str, principal: str | None, make: Change) -> ScheduleRow | None:
    row = _get(transaction, id, principal)
    changed = None if row is None else make(row)
    if changed is not None:
        transaction.execute(_UPDATE, (*_values(changed)[1:], id))
    return changed


def _keep_message(transaction: Transaction, id: str, message: MessageRow, make: Change) -> bool:
    if _change(transaction, id, None, make) is None:
        return False
    sql = f"INSERT INTO messages ({', '.join(_MESSAGE)}) VALUES (?, ?, ?, ?)"
    transaction.execute(sql, [getattr(message, name) for name in _MESSAGE])
    return True


def _take_messages(transaction: Transaction, ids: Sequence[str]) -> frozenset[str]:
    removed = [id for id in ids if transaction.execute("DELETE FROM messages WHERE id = ?", (id,)).rowcount == 1]
    return frozenset(removed)


def _recover(transaction: Transaction, lease: Lease, now: float) -> list[tuple[ScheduleRow, str]]:
    sql = f"SELECT {_NAMES} FROM schedules WHERE worker <> ''"
    rows = [_row(values) for values in transaction.execute(sql).fetchall()]
    dead = {worker for worker in {row.worker for row in rows} if lease.is_free(transaction, worker)}
    over: list[tuple[ScheduleRow, str]] = []
    if dead:
        settle_intents(transaction, lease, now)
    for row in rows:
        if row.worker not in dead or (outcome := _outcome_of(transaction, row.call)) is None:
            continue
        ours = replace(row, worker=lease.id if outcome else "", claim=row.claim + 1)
        transaction.execute(_UPDATE, (*_values(ours)[1:], row.id))
        if outcome:
            over.append((ours, outcome))
    return over


def _outcome_of(transaction: Transaction, call: str) -> str | None:
    """Return the outcome of a run's call; empty where it never began, None while it goes on or waits."""
    job = transaction.execute("SELECT status, ended FROM jobs WHERE call = ?", (call,)).fetchone()
    if job is not None:
        return None if job[1] is None else ("ok" if job[0] == "completed" else str(job[0]))
    recorded = transaction.execute("SELECT outcome FROM calls WHERE id = ?", (call,)).fetchone()
    if recorded is not None:
        return str(recorded[0])
    held = transaction.execute("SELECT state FROM approvals WHERE call = ?", (call,)).fetchone()
    return "" if held is None else f"approval {held[0]}"


def _sign_on(transaction: Transaction, worker: str, place: str) -> None:
    _sign_off(transaction, worker)
    transaction.execute("INSERT INTO schedulers VALUES (?, ?)", (worker, place))


def _sign_off(transaction: Transaction, worker: str) -> None:
    transaction.execute("DELETE FROM schedulers WHERE worker = ?", (worker,))


def _is_served(transaction: Transaction, lease: Lease, place: str) -> bool:
    workers = [
        id for (id,) in transaction.execute("SELECT worker FROM schedulers WHERE place = ?", (place,)).fetchall()
    ]
    for worker in workers:
        if lease.is_free(transaction, worker):
            _sign_off(transaction, worker)
        else:
            return True
    return False


def _get(connection: Connection | Transaction, id: str, principal: str | None) -> ScheduleRow | None:
    values = connection.execute(f"SELECT {_NAMES} FROM schedules WHERE id = ?", (id,)).fetchone()
    row = None if values is None else _row(values)
    return row if row is not None and principal in (None, row.principal) else None


def _values(row: ScheduleRow) -> list[Any]:
    return [getattr(row, name) for name in _COLUMNS]


def _row(values: Sequence[Any]) -> ScheduleRow:
    return ScheduleRow(**dict(zip(_COLUMNS, values, strict=True)))
