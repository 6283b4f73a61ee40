"""Job rows: the accepted call, its worker, and its outcome.

A row is accepted before its caller gets the id, and changes hands by its `claim`, which only grows: a worker that was
taken for dead and lives can write no more than a dead one. `saved` is sealed when the job is accepted; `result` is the
result for the caller.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct

from ..core.json import dumps, loads
from ..core.result import ToolError, ToolResult
from ..errors import ToolFailure
from .calls import settle_intents
from .chain import Transaction
from .database import Connection, Lease
from .idempotency import settle_receipts
from .threads import Reader, Writer

__all__ = ["Claimed", "JobEnd", "JobMark", "JobRow", "JobRows", "pack_result", "unpack_result"]


class JobRow(Struct, frozen=True, kw_only=True):
    """One job. Times are seconds since 1970; `progress` is JSON, empty for none."""

    id: str
    principal: str
    session: str
    call: str
    tool: str
    source: str
    status: str
    accepted: float
    ended: float | None = None
    saved: str
    repeatable: bool
    resumable: bool = False
    worker: str = ""
    offered: str = ""
    claim: int = 1
    attempt: int = 0
    cancel: bool = False
    progress: str = ""
    output: str = ""
    result: str | None = None

    @property
    def attempt_id(self) -> str:
        """The id under which the attempt that was begun last is recorded: each has a row of its own."""
        return self.id_of(self.attempt)

    @property
    def may_begin_again(self) -> bool:
        """Whether a call that was cut off may be begun again."""
        return self.repeatable or self.resumable

    def id_of(self, attempt: int) -> str:
        """Return the id of the call that an attempt is."""
        return self.call if attempt < 2 else f"{self.call}.{attempt}"


class JobMark(NamedTuple):
    """Status of a job: the columns that are polled."""

    id: str
    principal: str
    worker: str
    offered: str
    claim: int


class Claimed(Struct, frozen=True, kw_only=True):
    """A job that this store has claimed, with its previous state."""

    row: JobRow
    outcome: str
    """Outcome of the last attempt's call; empty where it never started, or no outcome was recorded."""
    is_kept: bool
    """Whether its result is kept under its idempotency key. One that did not run gave the key back."""


class JobEnd(Struct, frozen=True, kw_only=True):
    """End of a job, with its last report."""

    status: str
    result: ToolResult
    ended: float
    progress: str
    output: str


_COLUMNS: Final = JobRow.__struct_fields__
_NAMES: Final = ", ".join(_COLUMNS)
_INSERT: Final = f"INSERT INTO jobs ({_NAMES}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_OURS: Final = "WHERE id = ? AND worker = ? AND claim = ? AND ended IS NULL"


class JobRows:
    """The jobs of one store. `worker` names this process among all that share it."""

    def __init__(self, writer: Writer, reader: Reader, lease: Lease) -> None:
        self._writer = writer
        self._reader = reader
        self._lease = lease

    @property
    def worker(self) -> str:
        """The id of this store: the holder of a job runs it."""
        return self._lease.id

    async def queue(self) -> str:
        """Return the name of this store's queue: 16 hexadecimal digits, equal for all processes that share it."""
        return await self._writer.run(_queue, secrets.token_hex(8))

    async def accept(self, row: JobRow, *, most: int, approval: str = "") -> None:
        """Write a new job down; `approval` is its own from now on. Durable on return.

        Raises `ToolFailure`: `overloaded` when this principal has `most` that have not ended, `storage`.
        """
        await self._writer.run(_accept, row, most, approval, durable=True)

    async def claim(self, id: str, claim: int) -> Claimed | None:
        """Take the job for this process; None when it is not to be had under this claim any more."""
        return await self._writer.run(_claim, id, claim, self.worker)

    async def begin(self, row: JobRow, attempt: int, key: str) -> bool:
        """Record the start of an attempt; False when the claim was lost.

        A later attempt takes over the idempotency key of the one before.
        """
        return await self._writer.run(_begin, row, attempt, key)

    async def release(self, row: JobRow, *, begun: bool) -> None:
        """Give the job back to the queue; `begun`: the attempt that was begun must not be continued."""
        await self._writer.run(_release, _holder(row), int(begun))

    async def gone(self, workers: Collection[str]) -> Collection[str]:
        """Return those of these workers that have died."""
        return await self._writer.run(_gone, self._lease, workers)

    async def settle(self, row: JobRow, end: JobEnd, *, kept: int, age: float) -> bool:
        """Record the end of a job, durably; False when the claim was lost, and nothing was written.

        Of the same principal's ended jobs, the newest `kept` are kept, for `age` seconds. A failing disk is tried
        again, and the caller gets `ToolFailure("storage")`.
        """
        return await self._writer.run(_settle, row, _holder(row), end, (kept, age), durable=True, keep=True)

    async def call_off(self, id: str, result: ToolResult) -> bool:
        """Request cancellation. True: the job was waiting, and has ended with `result`.

        Its worker ends a running one.
        """
        return await self._writer.run(_call_off, id, pack_result(result), time.time(), durable=True)

    async def write_reports(self, reports: Sequence[tuple[str, str, str]]) -> None:
        """Write the reports of this process's jobs: id, progress and output of each."""
        await self._writer.run(_write_reports, self.worker, reports)

    async def called_off(self) -> list[str]:
        """Return the ids of the jobs of this process that are to be cancelled."""
        sql = "SELECT id FROM jobs WHERE ended IS NULL AND worker = ? AND cancel = 1"
        return [id for (id,) in await self._rows(sql, (self.worker,))]

    async def get(self, id: str, principal: str | None) -> JobRow | None:
        """Return the job of this principal; None is the operator, who sees every job."""
        rows = await self._rows(f"SELECT {_NAMES} FROM jobs WHERE id = ?", (id,))
        found = _row(rows[0]) if rows else None
        return found if found is not None and principal in (None, found.principal) else None

    async def list(self, principal: str | None, *, since: float = 0.0) -> list[JobRow]:
        """Return the jobs of this principal, or of all with None, newest first; without those ended before `since`."""
        where, parameters = "(ended IS NULL OR ended >= ?)", [since]
        if principal is not None:
            where, parameters = f"principal = ? AND {where}", [principal, *parameters]
        rows = await self._rows(f"SELECT {_NAMES} FROM jobs WHERE {where} ORDER BY accepted DESC, id", parameters)
        return [_row(row) for row in rows]

    async def open(self) -> list[JobMark]:
        """Return the jobs that have not ended, the oldest first, at most 5,000."""
        columns = ", ".join(JobMark._fields)
        sql = f"SELECT {columns} FROM jobs WHERE ended IS NULL ORDER BY accepted, id LIMIT 5000"
        return [JobMark(*row) for row in await self._rows(sql, ())]

    async def mark(self, jobs: Sequence[JobMark]) -> list[JobMark]:
        """Return those of these jobs that this process must enqueue: no other process has, or will."""
        return await self._writer.run(_mark, jobs, self.worker)

    async def unmark(self, jobs: Sequence[JobMark]) -> None:
        """Take back that this process puts them into the queue."""
        await self._writer.run(_unmark, jobs, self.worker)

    async def hand_on(self) -> None:
        """Give the jobs of dead processes back to the queue, and settle the attempts that they had begun."""
        await self._writer.run(_hand_on, self._lease, time.time(), durable=True)

    async def remove(self, id: str) -> None:
        """Keep nothing of a job."""
        await self._writer.run(_remove, id)

    async def _rows(self, sql: str, parameters: Sequence[Any]) -> list[Any]:
        def query(connection: Connection) -> list[Any]:
            return connection.execute(sql, parameters).fetchall()

        return await self._reader.read(query)


def pack_result(result: ToolResult) -> str:
    """Return a result that was finished, as text."""
    error = result.error.to_json() if result.error else None
    packed = {
        "content": result.content,
        "structured_content": result.structured_content,
        "error": error,
        "meta": result.meta,
        "input_required": result.input_required,
    }
    return dumps({key: value for key, value in packed.items() if value}).decode()


def unpack_result(text: str) -> ToolResult:
    """Return the result that `pack_result` was given."""
    packed: dict[str, Any] = loads(text)
    error = packed.get("error")
    return ToolResult(
        content=tuple(packed.get("content", ())),
        structured_content=packed.get("structured_content"),
        error=ToolError(**error) if error else None,
        meta=packed.get("meta", {}),
        input_required=packed.get("input_required"),
    )


def _queue(transaction: Transaction, name: str) -> str:
    transaction.execute("INSERT INTO meta VALUES ('queue', ?) ON CONFLICT (key) DO NOTHING", (name,))
    return str(transaction.execute("SELECT value FROM meta WHERE key = 'queue'").fetchone()[0])


def _holder(row: JobRow) -> tuple[str, str, int]:
    """Condition that a row still belongs to this worker."""
    return row.id, row.worker, row.claim


def _accept(transaction: Transaction, row: JobRow, most: int, approval: str) -> None:
    sql = "SELECT count(*) FROM jobs WHERE principal = ? AND ended IS NULL"
    (waiting,) = transaction.execute(sql, (row.principal,)).fetchone()
    if waiting >= most:
        raise ToolFailure(
            "overloaded", f"{waiting} jobs of yours have not ended yet", hint="wait for one of them, or cancel one"
        )
    values = (getattr(row, name) for name in _COLUMNS)
    transaction.execute(_INSERT, [int(value) if isinstance(value, bool) else value for value in values])
    if approval:  # otherwise, after a crash, it would be used for a caller that has gone
        transaction.execute("UPDATE approvals SET job = ? WHERE id = ?", (row.id, approval))


def _claim(transaction: Transaction, id: str, claim: int, worker: str) -> Claimed | None:
    sql = f"SELECT {_NAMES} FROM jobs WHERE id = ? AND claim = ? AND worker = '' AND ended IS NULL"
    found = transaction.execute(sql, (id, claim)).fetchone()
    if found is None:
        return None
    row = _row(found)
    transaction.execute("UPDATE jobs SET worker = ? WHERE id = ?", (worker, id))
    outcome, is_kept = "", False
    if row.attempt:
        recorded = transaction.execute("SELECT outcome FROM calls WHERE id = ?", (row.attempt_id,)).fetchone()
        outcome = str(recorded[0]) if recorded else ""
        sql = "SELECT 1 FROM receipts WHERE principal = ? AND call = ? AND result IS NOT NULL"
        is_kept = transaction.execute(sql, (row.principal, row.attempt_id)).fetchone() is not None
    return Claimed(row=row, outcome=outcome, is_kept=is_kept)


def _begin(transaction: Transaction, row: JobRow, attempt: int, key: str) -> bool:
    if transaction.execute(f"UPDATE jobs SET attempt = ? {_OURS}", (attempt, *_holder(row))).rowcount != 1:
        return False
    if attempt > 1:
        sql = "DELETE FROM receipts WHERE principal = ? AND key = ? AND call = ?"
        transaction.execute(sql, (row.principal, key, row.id_of(attempt - 1)))
    return True


def _release(transaction: Transaction, holder: tuple[str, str, int], more: int) -> None:
    sql = f"UPDATE jobs SET worker = '', offered = '', claim = claim + 1, attempt = attempt + ? {_OURS}"
    transaction.execute(sql, (more, *holder))


def _mark(transaction: Transaction, jobs: Sequence[JobMark], worker: str) -> list[JobMark]:
    sql = "UPDATE jobs SET offered = ? WHERE id = ? AND claim = ? AND offered = '' AND worker = '' AND ended IS NULL"
    return [job for job in jobs if transaction.execute(sql, (worker, job.id, job.claim)).rowcount == 1]


def _unmark(transaction: Transaction, jobs: Sequence[JobMark], worker: str) -> None:
    for job in jobs:
        sql = "UPDATE jobs SET offered = '' WHERE id = ? AND claim = ? AND offered = ? AND worker = ''"
        transaction.execute(sql, (job.id, job.claim, worker))


def _gone(transaction: Transaction, lease: Lease, workers: Collection[str]) -> Collection[str]:
    return {worker for worker in workers if lease.is_free(transaction, worker)}


def _settle(
    transaction: Transaction, row: JobRow, holder: tuple[str, str, int], end: JobEnd, keep: tuple[int, float]
) -> bool:
    sql = (
        f"UPDATE jobs SET status = ?, ended = ?, progress = ?, output = ?, result = ?, worker = '', saved = '' {_OURS}"
    )
    values = (end.status, end.ended, end.progress, end.output, pack_result(end.result))
    written = transaction.execute(sql, (*values, *holder)).rowcount == 1
    _forget_old(transaction, row.principal, end.ended, *keep)
    return written


def _forget_old(transaction: Transaction, principal: str, now: float, kept: int, age: float) -> None:
    sql = "SELECT ended FROM jobs WHERE principal = ? AND ended IS NOT NULL ORDER BY ended DESC LIMIT 1 OFFSET ?"
    beyond = transaction.execute(sql, (principal, kept)).fetchone()
    last = max(now - age, beyond[0] if beyond else 0.0)
    transaction.execute("DELETE FROM jobs WHERE principal = ? AND ended <= ?", (principal, last))


def _call_off(transaction: Transaction, id: str, result: str, now: float) -> bool:
    sql = (
        "UPDATE jobs SET status = 'cancelled', ended = ?, result = ?, saved = ''"
        " WHERE id = ? AND worker = '' AND ended IS NULL"
    )
    if transaction.execute(sql, (now, result, id)).rowcount == 1:
        sql = "DELETE FROM receipts WHERE result IS NULL AND call IN (SELECT call FROM jobs WHERE id = ?)"
        transaction.execute(sql, (id,))  # the key is free again: nothing ran
        return True
    transaction.execute("UPDATE jobs SET cancel = 1 WHERE id = ? AND ended IS NULL", (id,))
    return False


def _write_reports(transaction: Transaction, worker: str, reports: Sequence[tuple[str, str, str]]) -> None:
    sql = "UPDATE jobs SET progress = ?, output = ? WHERE id = ? AND worker = ? AND ended IS NULL"
    for id, progress, output in reports:
        transaction.execute(sql, (progress, output, id, worker))


def _hand_on(transaction: Transaction, lease: Lease, now: float) -> None:
    rows = transaction.execute("SELECT DISTINCT worker, offered FROM jobs WHERE ended IS NULL").fetchall()
    known = {worker for row in rows for worker in row if worker}
    gone = [worker for worker in known if lease.is_free(transaction, worker)]
    if not gone:
        return
    settle_receipts(transaction, lease, settle_intents(transaction, lease, now))
    for worker in gone:
        sql = "UPDATE jobs SET worker = '', offered = '', claim = claim + 1 WHERE worker = ? AND ended IS NULL"
        transaction.execute(sql, (worker,))
        sql = "UPDATE jobs SET offered = '', claim = claim + 1 WHERE offered = ? AND worker = '' AND ended IS NULL"
        transaction.execute(sql, (worker,))


def _remove(transaction: Transaction, id: str) -> None:
    transaction.execute("DELETE FROM jobs WHERE id = ?", (id,))


def _row(values: Sequence[Any]) -> JobRow:
    known = dict(zip(_COLUMNS, values, strict=True))
    known |= {name: bool(known[name]) for name in ("repeatable", "resumable", "cancel")}
    return JobRow(**known)
