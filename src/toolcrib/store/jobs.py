"""Job rows: the accepted call, its worker, and its outcome. They are the queue as well.

A row is accepted before its caller gets the id, and changes hands by its `claim`, which only grows: a worker that was
taken for dead and lives can write no more than a dead one. `saved` is sealed when the job is accepted; `result` is the
result for the caller.

All processes that share the store take rows without a worker, one transaction at a time: so the limit of a principal's
running jobs holds for all of them together.

    accept   the row, with the sealed call; claimed at once where there is room, else `worker` is empty: it waits
    take     waiting rows are claimed, by turns among principals
    begin    a further attempt, with an id of its own (`call.2`)
    settle   the end, if the claim still holds
    hand_on  rows of dead processes wait again, with a greater `claim`
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ..core.json import dumps, loads
from ..core.result import ToolError, ToolResult
from ..errors import ToolFailure
from .calls import settle_intents
from .chain import Transaction, chunks, padded
from .database import Connection, Lease
from .idempotency import hold_key, settle_receipts
from .readers import Reader
from .threads import Writer

_EXCESS_SHARE: Final = 16
"""Of so many jobs that are kept, one more may be kept for a while."""
_MAX_COUNTED_PRINCIPALS: Final = 1000
"""Principals whose jobs that ended are counted."""
_WHERE_CLAIMED_HERE: Final = "WHERE id = ? AND worker = ? AND claim = ? AND ended IS NULL"

_WAITING_PRINCIPALS: Final = (
    "WITH RECURSIVE one (principal) AS (SELECT min(principal) FROM jobs WHERE worker = '' AND ended IS NULL UNION ALL"
    " SELECT (SELECT min(principal) FROM jobs WHERE principal > one.principal AND worker = '' AND ended IS NULL)"
    " FROM one WHERE one.principal IS NOT NULL) SELECT principal FROM one WHERE principal IS NOT NULL"
)
"""Principals of waiting jobs: one step of the index for each, however many jobs they have."""
_WORKING_COUNTS: Final = "SELECT principal, count(*) FROM jobs WHERE worker <> '' AND ended IS NULL GROUP BY principal"
_NEXT_WAITING: Final = (
    "SELECT * FROM (SELECT accepted, id, attempt, principal FROM jobs WHERE principal = ? AND worker = ''"
    " AND ended IS NULL ORDER BY accepted, id LIMIT ?) AS found"
)
"""The next jobs of one principal; those of several are joined by UNION ALL."""
_CLAIM: Final = "UPDATE jobs SET worker = ?, attempt = CASE attempt WHEN 0 THEN 1 ELSE attempt END WHERE id IN ({})"

_END: Final = (
    "UPDATE jobs SET status = column4, ended = column5, progress = column6, output = column7, result = column8,"
    " worker = '', saved = '' FROM (VALUES {}) AS given"
    " WHERE id = column1 AND worker = column2 AND claim = column3 AND ended IS NULL"
)


class JobRow(Struct, frozen=True, kw_only=True):
    """One job. Times are seconds since 1970; `progress` is JSON, empty for none.

    `saved` is sealed while the job waits or runs, and empty afterwards.
    """

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
    claim: int = 1
    """Number of the present claim; grows each time that the row changes hands."""
    attempt: int = 0
    """Attempts that were begun; 0 before the first."""
    cancel: bool = False
    progress: str = ""
    output: str = ""
    result: str | None = None
    request: str = ""
    """Hash of the request (`hash_request`) that reserves the job's own idempotency key; empty reserves none."""

    @property
    def key(self) -> str:
        """The idempotency key of its call, where the caller gave none."""
        return f"job:{self.id}"

    @property
    def attempt_id(self) -> str:
        """The id under which the attempt that was begun last is recorded: each has a row of its own."""
        return self.id_of(self.attempt)

    @property
    def may_begin_again(self) -> bool:
        """Whether a call that was cut off may be begun again."""
        return self.repeatable or self.resumable

    def id_of(self, attempt: int) -> str:
        """Return the id of the call that an attempt is.

        The first attempt has the id of the call itself.
        """
        return self.call if attempt < 2 else f"{self.call}.{attempt}"


class JobMark(NamedTuple):
    """A job that has not ended, and its worker."""

    id: str
    worker: str


class Claimed(Struct, frozen=True, kw_only=True):
    """A job that this store has claimed."""

    row: JobRow
    is_begun: bool = False
    """Whether its first attempt was begun with the claim, and its own idempotency key reserved."""
    outcome: str = ""
    """Outcome of the last attempt's call; empty where it never started, or no outcome was recorded."""
    is_kept: bool = False
    """Whether its result is kept under its idempotency key. One that did not run gave the key back."""

    @property
    def is_reserved(self) -> bool:
        """Whether the claim reserved the job's own idempotency key."""
        return self.is_begun and self.row.request != ""


class ClaimedJobs(Struct, frozen=True, kw_only=True):
    """Jobs that a process claimed from the queue together."""

    jobs: list[Claimed]
    is_more: bool
    """Whether jobs wait that it may take later: they had no room, here or by the limit of their principal."""


class JobEnd(Struct, frozen=True, kw_only=True):
    """End of a job, with its last report."""

    status: str
    result: ToolResult
    ended: float
    progress: str
    output: str


_COLUMNS: Final = JobRow.__struct_fields__
_NAMES: Final = ", ".join(_COLUMNS)
_INSERT: Final = f"INSERT INTO jobs ({_NAMES}, offered) VALUES ({', '.join('?' * len(_COLUMNS))}, '')"
"""The column `offered` has had no use since the rows are the queue: SQLite before 3.35 cannot drop one."""


class JobRows:
    """The jobs of one store. `worker` names this process among all that share it."""

    def __init__(self, writer: Writer, reader: Reader, lease: Lease) -> None:
        self._writer = writer
        self._reader = reader
        self._lease = lease
        self._unswept: dict[str, int] = {}
        """Principal → its jobs that may still end before old ones are looked for."""

    @property
    def worker(self) -> str:
        """The id of this store: the holder of a job runs it."""
        return self._lease.id

    async def accept(self, row: JobRow, *, most: int, approval: str = "", working: int = 0) -> bool:
        """Write a new job down; `approval` is its own from now on. Durable on return.

        `working`: this process holds the job from the beginning if none of its principal waits and fewer than so many
        of them work; returns whether it does. Then its first attempt is begun, and its own key reserved.

        Raises `ToolFailure`: `overloaded` when this principal has `most` that have not ended, `storage`.
        """
        return await self._writer.run(_accept, row, most, approval, self.worker, working, durable=True)

    async def is_waiting(self) -> bool:
        """Whether any job has no worker."""
        return await self._reader.row("SELECT 1 FROM jobs WHERE worker = '' AND ended IS NULL LIMIT 1") is not None

    async def take(self, room: int, *, working: int, without: Collection[str] = ()) -> ClaimedJobs:
        """Take up to `room` waiting jobs for this process, in turn between principals, each with `working` at most.

        Jobs of `without` are left to others.
        """
        return await self._writer.run(_take, self.worker, room, working, without)

    async def begin(self, row: JobRow, attempt: int, key: str) -> bool:
        """Record the start of an attempt; False when the claim was lost.

        A later attempt takes over the idempotency key of the one before, which stays taken all the time.
        """
        return await self._writer.run(_begin, row, attempt, key)

    async def release(self, row: JobRow, *, begun: bool) -> None:
        """Give the job back to the queue; `begun`: the attempt that was begun must not be continued."""
        await self._writer.run(_release, _holder(row), int(begun))

    async def settle(self, row: JobRow, end: JobEnd, *, kept: int, age: float, key: str = "") -> bool:
        """Record the end of a job, durably; False when the claim was lost, and nothing was written.

        Its idempotency key `key` is free again where its call left no outcome; empty for a call that gave it back.

        Of the same principal's ended jobs, the newest `kept` are kept, for `age` seconds; a few more until some others
        have ended. A failing disk is tried again, and the caller gets `ToolFailure("storage")`.
        """
        sweep = (kept, age) if self._may_sweep(row.principal, kept) else None
        return (await self._writer.run(_settle, row, key, end, sweep, durable=True, keep=True)).is_written

    def _may_sweep(self, principal: str, kept: int) -> bool:
        """Whether to look for old jobs now: it takes as long as a step over all that are kept."""
        left = self._unswept.get(principal, 0)
        if len(self._unswept) >= _MAX_COUNTED_PRINCIPALS:
            self._unswept.clear()
        self._unswept[principal] = left - 1 if left else kept // _EXCESS_SHARE
        return not left

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
        return await self._reader.rows(itemgetter(0), sql, (self.worker,))

    async def get(self, id: str, principal: str | None) -> JobRow | None:
        """Return the job of this principal; None is the operator, who sees every job."""
        row = await self._reader.row(f"SELECT {_NAMES} FROM jobs WHERE id = ?", (id,))
        found = _row(row) if row else None
        return found if found is not None and principal in (None, found.principal) else None

    async def list(self, principal: str | None, *, since: float = 0.0, limit: int = 1 << 60) -> list[JobRow]:
        """Return the newest jobs of this principal, or of all with None; without those ended before `since`."""
        where, parameters = "(ended IS NULL OR ended >= ?)", [since]
        if principal is not None:
            where, parameters = f"principal = ? AND {where}", [principal, *parameters]
        newest = f"SELECT id FROM jobs WHERE {where} ORDER BY accepted DESC, id LIMIT ?"  # sorts without the results
        sql = f"SELECT {_NAMES} FROM jobs WHERE id IN ({newest}) ORDER BY accepted DESC, id"
        return await self._reader.rows(_row, sql, (*parameters, limit), apart=True)  # 0.1 s for 5,000

    async def open(self) -> list[JobMark]:
        """Return the jobs that have not ended, the oldest first, at most 5,000."""
        sql = "SELECT id, worker FROM jobs WHERE ended IS NULL ORDER BY accepted, id LIMIT 5000"
        return await self._reader.rows(lambda row: JobMark(*row), sql)

    async def others(self) -> bool:
        """Whether other processes hold jobs, dead ones included."""
        sql = "SELECT 1 FROM jobs WHERE worker <> '' AND ended IS NULL AND worker <> ? LIMIT 1"
        return await self._reader.row(sql, (self.worker,)) is not None

    async def hand_on(self) -> None:
        """Give the jobs of dead processes back to the queue, and settle the attempts that they had begun."""
        await self._writer.run(_hand_on, self._lease, time.time(), durable=True)

    async def remove(self, id: str) -> None:
        """Keep nothing of a job."""
        await self._writer.run(_remove, id)


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


def _holder(row: JobRow) -> tuple[str, str, int]:
    """Condition that a row still belongs to this worker."""
    return row.id, row.worker, row.claim


def _accept(transaction: Transaction, row: JobRow, most: int, approval: str, worker: str, working: int) -> bool:
    sql = (
        "SELECT count(*), EXISTS (SELECT 1 FROM jobs WHERE principal = ? AND worker = '' AND ended IS NULL)"
        " FROM jobs WHERE principal = ? AND ended IS NULL"
    )
    open, waits = transaction.execute(sql, (row.principal, row.principal)).fetchone()
    if open >= most:
        raise ToolFailure(
            "overloaded", f"{open} jobs of yours have not ended yet", hint="wait for one of them, or cancel one"
        )
    is_held = open < working and not waits
    if is_held:
        row = replace(row, worker=worker, attempt=1)
        _hold_own_key(transaction, row)
    values = (getattr(row, name) for name in _COLUMNS)
    transaction.execute(_INSERT, [int(value) if isinstance(value, bool) else value for value in values])
    if approval:  # otherwise, after a crash, it would be used for a caller that has gone
        transaction.execute("UPDATE approvals SET job = ? WHERE id = ?", (row.id, approval))
    return is_held


def _hold_own_key(transaction: Transaction, row: JobRow) -> None:
    """Reserve the job's own key, so that an attempt after a crash is answered from the record."""
    if row.request:
        hold_key(transaction, row.principal, row.key, row.request, row.call, row.worker)


_SELECT_CLAIMED: Final = f"SELECT {_NAMES} FROM jobs WHERE id IN ({{}})"
"""A statement of its own: SQLite before 3.35 has no `RETURNING`."""


def _take(transaction: Transaction, worker: str, room: int, working: int, without: Collection[str]) -> ClaimedJobs:
    """Claim waiting jobs. The next one is always of a principal with the fewest running jobs, which a heap finds."""
    waiting = [principal for (principal,) in transaction.execute(_WAITING_PRINCIPALS).fetchall()]
    if not waiting:
        return ClaimedJobs(jobs=[], is_more=False)
    held: dict[str, int] = dict(transaction.execute(_WORKING_COUNTS).fetchall())
    free = {principal: min(room, working - held.get(principal, 0)) for principal in waiting}
    may = _next_of(transaction, {one: max(free[one], 0) + 1 + len(without) for one in waiting}, without)
    chosen: dict[str, int] = {}
    """Id → attempts before."""
    is_more = False
    turns: list[tuple[int, str, list[tuple[str, int]]]] = []
    for principal, found in may.items():
        is_more = is_more or len(found) > free[principal]
        if free[principal] > 0:
            turns.append((held.get(principal, 0), principal, found[: free[principal]][::-1]))
    heapq.heapify(turns)
    while turns and len(chosen) < room:
        count, principal, left = heapq.heappop(turns)
        id, attempt = left.pop()
        chosen[id] = attempt
        if left:
            heapq.heappush(turns, (count + 1, principal, left))
    claimed: dict[str, JobRow] = {}
    for ids in padded(list(chosen)):
        marks = ", ".join("?" * len(ids))
        transaction.execute(_CLAIM.format(marks), (worker, *ids))
        found = transaction.execute(_SELECT_CLAIMED.format(marks), ids).fetchall()
        claimed |= {row.id: row for row in map(_row, found)}
    jobs = [
        _resumed(transaction, claimed[id]) if chosen[id] else Claimed(row=claimed[id], is_begun=True) for id in chosen
    ]
    for job in jobs:
        if job.is_begun:
            _hold_own_key(transaction, job.row)
    return ClaimedJobs(jobs=jobs, is_more=is_more or bool(turns))


def _next_of(
    transaction: Transaction, most: Mapping[str, int], without: Collection[str]
) -> dict[str, list[tuple[str, int]]]:
    """Return id and attempt of the next jobs of principals, `most` of each, but for those of `without`."""
    found: dict[str, list[tuple[str, int]]] = {}
    for principals in chunks(list(most)):
        sql = " UNION ALL ".join([_NEXT_WAITING] * len(principals))
        limits = [value for principal in principals for value in (principal, most[principal])]
        for _, id, attempt, principal in sorted(transaction.execute(sql, limits).fetchall()):
            if id not in without:
                found.setdefault(principal, []).append((id, attempt))
    return found


def _resumed(transaction: Transaction, row: JobRow) -> Claimed:
    """Return a claim on a job that was begun before, with what is known of its last attempt."""
    recorded = transaction.execute("SELECT outcome FROM calls WHERE id = ?", (row.attempt_id,)).fetchone()
    sql = "SELECT 1 FROM receipts WHERE principal = ? AND call = ? AND result IS NOT NULL"
    is_kept = transaction.execute(sql, (row.principal, row.attempt_id)).fetchone() is not None
    return Claimed(row=row, outcome=str(recorded[0]) if recorded else "", is_kept=is_kept)


def _begin(transaction: Transaction, row: JobRow, attempt: int, key: str) -> bool:
    if (
        transaction.execute(f"UPDATE jobs SET attempt = ? {_WHERE_CLAIMED_HERE}", (attempt, *_holder(row))).rowcount
        != 1
    ):
        return False
    if attempt > 1:
        sql = "UPDATE receipts SET call = ?, result = NULL WHERE principal = ? AND key = ? AND call = ?"
        transaction.execute(sql, (row.id_of(attempt), row.principal, key, row.id_of(attempt - 1)))
    return True


def _release(transaction: Transaction, holder: tuple[str, str, int], more: int) -> None:
    sql = f"UPDATE jobs SET worker = '', claim = claim + 1, attempt = attempt + ? {_WHERE_CLAIMED_HERE}"
    transaction.execute(sql, (more, *holder))


class _Ended(Struct):
    """The end of a job that a worker holds."""

    holder: tuple[str, str, int]
    values: tuple[str, float, str, str, str]
    """Status, time, progress, output and result."""
    is_written: bool = True
    """Known once it is written: False when the claim was lost."""


def _settle(transaction: Transaction, row: JobRow, key: str, end: JobEnd, sweep: tuple[int, float] | None) -> _Ended:
    """Record the end of a job; its key is given back where the end has no outcome to repeat."""
    ended = _Ended(_holder(row), (end.status, end.ended, end.progress, end.output, pack_result(end.result)))
    transaction.gather(_put_ends, ended)
    if key and (end.result.error is not None or end.result.input_required is not None):
        transaction.write_gathered()
        if ended.is_written:
            free = "DELETE FROM receipts WHERE principal = ? AND key = ? AND result IS NULL"
            transaction.execute(free, (row.principal, key))
    if sweep is not None:
        _forget_old(transaction, row.principal, end.ended, *sweep)
    return ended


def _put_ends(connection: Connection, ends: Sequence[_Ended]) -> None:
    for rows in padded(ends):
        marks = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?)"] * len(rows))
        values = [value for row in rows for value in (*row.holder, *row.values)]
        if connection.execute(_END.format(marks), values).rowcount == len({row.holder for row in rows}):
            continue
        for row in rows:  # claims only grow: a job that ended with this one, at this time, was ended by this
            id, _, claim = row.holder
            sql = "SELECT 1 FROM jobs WHERE id = ? AND claim = ? AND worker = '' AND ended = ?"
            row.is_written = connection.execute(sql, (id, claim, row.values[1])).fetchone() is not None


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
        sql = (
            "DELETE FROM receipts WHERE result IS NULL AND call IN"
            " (SELECT call FROM jobs WHERE id = ? UNION SELECT call || '.' || attempt FROM jobs WHERE id = ?)"
        )
        transaction.execute(sql, (id, id))  # the key is free again: nothing ran
        return True
    transaction.execute("UPDATE jobs SET cancel = 1 WHERE id = ? AND ended IS NULL", (id,))
    return False


def _write_reports(transaction: Transaction, worker: str, reports: Sequence[tuple[str, str, str]]) -> None:
    sql = "UPDATE jobs SET progress = ?, output = ? WHERE id = ? AND worker = ? AND ended IS NULL"
    for id, progress, output in reports:
        transaction.execute(sql, (progress, output, id, worker))


def _hand_on(transaction: Transaction, lease: Lease, now: float) -> None:
    sql = "SELECT DISTINCT worker FROM jobs WHERE worker <> '' AND ended IS NULL"
    gone = [worker for (worker,) in transaction.execute(sql).fetchall() if lease.is_free(transaction, worker)]
    if not gone:
        return
    settle_receipts(transaction, lease, settle_intents(transaction, lease, now))
    for worker in gone:
        sql = "UPDATE jobs SET worker = '', claim = claim + 1 WHERE worker = ? AND ended IS NULL"
        transaction.execute(sql, (worker,))


def _remove(transaction: Transaction, id: str) -> None:
    transaction.execute("DELETE FROM jobs WHERE id = ?", (id,))


def _row(values: Sequence[Any]) -> JobRow:
    known = dict(zip(_COLUMNS, values, strict=True))
    known |= {name: bool(known[name]) for name in ("repeatable", "resumable", "cancel")}
    return JobRow(**known)
