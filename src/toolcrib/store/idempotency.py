"""Receipts: results of calls and of interrupted workflow runs, kept so that a repetition does not run them again.

    reserve   Fresh      the key is held by this call from now on
              Replay     the same request ended before: its result
              Conflict   the key is taken by a running call, or by another request
    settling  with the row of the call, in one commit
    release   the call did not run: the key is free

A key belongs to a principal and lives for 24 hours from its reservation. A request is the tool's definition and its
arguments: a tool that was changed is another request.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final

from msgspec import Struct

from ..core.json import canonical, dumps, loads
from ..core.result import ToolError, ToolResult
from ..errors import ToolFailure
from .chain import Transaction, chunks, padded
from .database import Connection, Lease
from .readers import Reader
from .threads import Writer
from .vault import Vault

_LIFETIME_SECONDS: Final = 24 * 3600.0
"""Seconds for which keys, and the runs of workflows whose steps are known by them, are kept."""
_PURPOSE: Final = "workflow"
_PUT: Final = (
    "INSERT INTO workflow_runs VALUES (?, ?, ?, ?) ON CONFLICT (principal, id)"
    " DO UPDATE SET state = excluded.state, changed = excluded.changed"
)

_SELECT_WAITING_JOB: Final = "SELECT 1 FROM jobs WHERE ended IS NULL AND (call = ? OR call || '.' || attempt = ?)"
"""A job that was accepted holds its key until it ends, in any process."""

_HOLD_KEY: Final = (
    "INSERT INTO receipts (principal, key, request_hash, call, writer, created) VALUES {} ON CONFLICT (principal, key)"
    " DO UPDATE SET request_hash = excluded.request_hash, call = excluded.call, writer = excluded.writer,"
    f" created = excluded.created, result = NULL WHERE receipts.created < excluded.created - {_LIFETIME_SECONDS}"
    " OR (receipts.result IS NULL AND receipts.call = excluded.call"
    " AND receipts.request_hash = excluded.request_hash)"
)
"""Takes keys that are free, or expired, or held by the same call, which is made again, maybe by another process."""

_Result = tuple[str, str, str]
"""Principal, key and result of a call that has ended."""


class WorkflowRuns:
    """The runs of one store, each known to its principal alone. `clock` gives seconds since 1970."""

    def __init__(self, writer: Writer, reader: Reader, vault: Vault, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._reader = reader
        self._vault = vault
        self._clock = clock

    async def load(self, id: str, principal: str) -> Mapping[str, Any] | None:
        """Return the last saved state. Raises `ToolFailure("storage")` when it cannot be read."""
        sql = "SELECT state FROM workflow_runs WHERE principal = ? AND id = ? AND changed >= ?"
        row = await self._reader.row(sql, (principal, id, self._clock() - _LIFETIME_SECONDS))
        return self._vault.open(row[0], _PURPOSE) if row else None

    async def save(self, id: str, principal: str, state: Mapping[str, Any]) -> None:
        """Keep `state`, on the disk. Raises `ToolFailure("storage")`."""
        now = self._clock()
        row = (id, principal, self._vault.seal(state, _PURPOSE), now)
        await self._writer.run(_save, row, now - _LIFETIME_SECONDS, durable=True)

    async def forget(self, id: str, principal: str) -> None:
        """Keep nothing of the run any more."""
        await self._writer.run(_forget, id, principal)


def _save(transaction: Transaction, row: tuple[str, str, str, float], oldest: float) -> None:
    transaction.execute("DELETE FROM workflow_runs WHERE changed < ?", (oldest,))
    transaction.execute(_PUT, row)


def _forget(transaction: Transaction, id: str, principal: str) -> None:
    transaction.execute("DELETE FROM workflow_runs WHERE principal = ? AND id = ?", (principal, id))


class Fresh(Struct, frozen=True):
    """The key is new: run the call, then `settle` or `release` it."""


class Replay(Struct, frozen=True):
    """The same request ran before; this was its outcome."""

    result: ToolResult


class Conflict(Struct, frozen=True):
    """The key is taken: by a call that still runs, or by another request."""

    reason: str


Reservation = Fresh | Replay | Conflict


def hash_request(definition: bytes, arguments: Any) -> bytes:
    """Return the hash that distinguishes requests under one key: of the tool's definition and the arguments."""
    return hashlib.sha256(canonical([definition.hex(), arguments])).digest()


class Receipts:
    """The idempotency keys of one store. `clock` gives seconds since 1970.

    `clock` decides on expiry; monotonic time would not be comparable between processes.
    """

    def __init__(self, writer: Writer, lease: Lease, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._lease = lease
        self._clock = clock

    async def reserve(self, principal: str, key: str, request_hash: bytes, call_id: str) -> Reservation:
        """Reserve `key` for the call `call_id`; `request_hash` is that of its tool and arguments (`hash_request`).

        Raises `ToolFailure("storage")` when that cannot be stored: the call must not run then.
        """
        wanted = (principal, key, request_hash.hex(), call_id, self._lease.id, self._clock())
        try:
            return (await self._writer.run(_reserve, wanted)).outcome
        except ToolFailure:  # the commit may have succeeded all the same: a call that never runs must not hold the key
            self._writer.later(_withdraw, principal, key, call_id)
            raise

    def settling(self, principal: str, key: str, result: ToolResult) -> Callable[[Transaction], None]:
        """Return a function that stores the outcome of the call with `key`, for `Calls.finish`: both or neither."""
        packed = dumps(_pack(result)).decode()
        return lambda transaction: _settle(transaction, principal, key, packed)

    async def release(self, principal: str, key: str) -> None:
        """Give `key` back: the call did not run. Never waits; a later `reserve` of this store sees it free."""
        self._writer.later(_release, principal, key)


def settle_receipts(transaction: Transaction, lease: Lease, started: Set[str]) -> None:
    """Settle pending receipts of dead stores: unknown when the call had started, else free again.

    `started` are the calls that `settle_intents` found begun.
    """
    rows = transaction.execute("SELECT principal, key, call, writer FROM receipts WHERE result IS NULL").fetchall()
    free = {writer: lease.is_free(transaction, writer) for writer in {row[3] for row in rows}}
    unknown = ToolResult.failed(
        "outcome_unknown",
        "this call was running when Toolcrib stopped, and may have had its effect",
        hint="Check its effects before you repeat it under another key.",
    )
    for principal, key, call, writer in rows:
        if not free[writer]:
            continue
        if call not in started and transaction.execute(_SELECT_WAITING_JOB, (call, call)).fetchone() is not None:
            continue
        if call in started:
            _settle(transaction, principal, key, dumps(_pack(unknown)).decode())
        else:
            _release(transaction, principal, key)


class _KeyClaim(Struct):
    """A key that a call wants to hold."""

    values: tuple[str, str, str, str, str, float]
    """Principal, key, request, call, writer and time."""
    outcome: Reservation = Fresh()
    """Known once it is written."""


def _reserve(transaction: Transaction, values: tuple[str, str, str, str, str, float]) -> _KeyClaim:
    wanted = _KeyClaim(values)
    transaction.gather(_put, wanted)
    return wanted


def _put(connection: Connection, rows: Sequence[_KeyClaim | _Result]) -> None:
    """Write results, then keys: of one key in one transaction, a result ends the call before that which wants it.

    Counts the changed rows of one statement for many keys, and looks at single ones only where some were not free.
    """
    for results in padded([row for row in rows if not isinstance(row, _KeyClaim)]):
        marks = ", ".join(["(?, ?, ?)"] * len(results))
        sql = f"UPDATE receipts SET result = column3 FROM (VALUES {marks}) AS given"
        sql = f"{sql} WHERE principal = column1 AND key = column2"
        connection.execute(sql, [value for row in results for value in row])
    wanted = [row for row in rows if isinstance(row, _KeyClaim)]
    is_each_once = len({row.values[:2] for row in wanted}) == len(wanted)
    for part in chunks(wanted) if is_each_once else ([row] for row in wanted):  # PostgreSQL changes no row twice
        marks = ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(part))
        held = connection.execute(_HOLD_KEY.format(marks), [value for row in part for value in row.values]).rowcount
        if held != len(part):
            for row in part:
                row.outcome = _outcome(connection, row)


def _outcome(connection: Connection, wanted: _KeyClaim) -> Reservation:
    principal, key, request, call, *_ = wanted.values
    sql = "SELECT request_hash, call, result FROM receipts WHERE principal = ? AND key = ?"
    held, holder, result = connection.execute(sql, (principal, key)).fetchone()
    if held != request:
        return Conflict("this idempotency key was used for another tool or other arguments: use a new key")
    if result is not None:
        return Replay(_unpack(loads(result)))
    if holder == call:
        return Fresh()
    return Conflict(f"call {holder} with this idempotency key is still running: wait for its result")


def forget_receipts(transaction: Transaction, now: float) -> None:
    """Delete expired receipts."""
    transaction.execute("DELETE FROM receipts WHERE created < ?", (now - _LIFETIME_SECONDS,))


def hold_key(transaction: Transaction, principal: str, key: str, request: str, call: str, writer: str) -> None:
    """Reserve in a transaction a key that no other call can have."""
    _reserve(transaction, (principal, key, request, call, writer, time.time()))


def _settle(transaction: Transaction, principal: str, key: str, packed: str) -> None:
    transaction.gather(_put, (principal, key, packed))


def _release(transaction: Transaction, principal: str, key: str) -> None:
    transaction.execute("DELETE FROM receipts WHERE principal = ? AND key = ? AND result IS NULL", (principal, key))


def _withdraw(transaction: Transaction, principal: str, key: str, call: str) -> None:
    sql = "DELETE FROM receipts WHERE principal = ? AND key = ? AND call = ? AND result IS NULL"
    transaction.execute(sql, (principal, key, call))


def _pack(result: ToolResult) -> dict[str, Any]:
    return {
        "content": result.content,
        "structured_content": result.structured_content,
        "error": result.error.to_json() if result.error else None,
        "meta": result.meta,
        "input_required": result.input_required,
    }


def _unpack(packed: dict[str, Any]) -> ToolResult:
    error = packed["error"]
    return ToolResult(
        content=tuple(packed["content"]),
        structured_content=packed["structured_content"],
        error=ToolError(**error) if error else None,
        meta=packed["meta"],
        input_required=packed["input_required"],
    )
