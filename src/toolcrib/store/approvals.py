"""Approval rows: stored before the question is asked, decided once, used once.

Every decision, use and withdrawal changes the state inside a transaction that writes alone among all processes: of
concurrent ones, one wins and the others read its outcome. Real arguments are sealed, and wiped once the call cannot run
any more. At a moment before it was made, or after it expires, an approval counts for nothing, even when the clock
moved.

The columns beside the question:

    writer    the store (lease) whose process waits for the answer
    sealed    the call, encrypted; empty once it cannot run any more
    gone      the caller left: the call runs in the background, under the id with `.late`
    job       the job that makes the call; or RESUMED, HELD (`core.permission`)
    ran       the outcome of that run

    put ─ settle ─ redeem                              the usual way: all by the process that asked
    put ─ hold ─ (call ended) ─ settle ─ put ─ redeem  the same call is made again, and takes the question over
    put ─ leave(keep) ─ settle ─ claim ─ finished      the call runs without its caller
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from ..core.permission import HELD, OPEN, RESUMED, Approval, ApprovalState, Settlement
from ..core.result import ToolResult
from ..core.saved_call import SavedCall
from ..errors import ToolFailure
from .chain import Transaction
from .database import Connection, Lease
from .jobs import pack_result, unpack_result
from .readers import Reader
from .threads import Writer
from .vault import Vault, purpose_of

_KEPT_SECONDS: Final = 30 * 86_400.0
"""Seconds for which a settled approval can be looked up."""
_CLOCK_SKEW_SECONDS: Final = 30.0
"""Seconds by which clocks of machines that share a store may differ."""
_LATE_CALL_SUFFIX: Final = ".late"
"""Suffix of the id of a call that is made after its caller left: the caller's own attempt has the plain id."""

_COLUMN_BY_FIELD: Final = {"call_id": "call", "by": "decided_by"}
_FIELDS: Final = Approval.__struct_fields__
_PUBLIC_COLUMNS: Final = ", ".join(_COLUMN_BY_FIELD.get(name, name) for name in _FIELDS)
_SECRET_COLUMNS: Final = "writer, sealed, edited, result"
_INSERT: Final = (
    f"INSERT INTO approvals ({_PUBLIC_COLUMNS}, {_SECRET_COLUMNS}) VALUES ({', '.join('?' * (len(_FIELDS) + 4))})"
)
_SELECT_ROWS: Final = f"SELECT {_PUBLIC_COLUMNS}, {_SECRET_COLUMNS} FROM approvals"
_SELECT_BEGUN_CALL: Final = "SELECT 1 FROM calls WHERE id = ? UNION ALL SELECT 1 FROM intents WHERE id = ?"


class _Row(Struct, frozen=True):
    approval: Approval
    writer: str
    sealed: str
    edited: str
    result: str


class ApprovalRows:
    """The approvals of one store. `clock` gives seconds since 1970.

    `waiting` and `claim` are for the process that runs approved calls whose callers left.
    """

    def __init__(self, writer: Writer, reader: Reader, lease: Lease, vault: Vault, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._reader = reader
        self._lease = lease
        self._vault = vault
        self._clock = clock

    def now(self) -> float:
        """Return the seconds since 1970 by which approvals are judged."""
        return self._clock()

    async def put(self, approval: Approval, saved: SavedCall, *, limit: int) -> Approval:
        """Store a question before it is asked, and return it.

        The open question of a held call, or of a dead process, about the same call is taken over with its answer: no
        question is asked twice, and it stays one of the conversation that asked. The refusal of a held call counts
        until it expires; its approval serves one call. Raises `ToolFailure`: `overloaded` when this principal has
        `limit` open questions, `storage`.
        """
        sealed = self._seal(saved.to_json(), approval.id)
        row = _Row(approval, self._lease.id, sealed, "", "")
        earlier = await self._writer.run(self._put, row, saved, limit, self._clock())
        return earlier or approval

    async def get(self, id: str) -> Approval | None:
        """Return the present state of the approval."""
        row = await self._reader.read(lambda connection: _find(connection, id))
        return _at(row.approval, self._clock()) if row else None

    async def list(
        self, *, principal: str | None = None, states: Sequence[ApprovalState] = (), limit: int = 200
    ) -> list[Approval]:
        """Return approvals, newest first; `principal` None selects all principals, empty `states` all states."""
        conditions, parameters = list[str](), list[Any]()
        if principal is not None:
            conditions.append("principal = ?")
            parameters.append(principal)
        if states:
            stored = {*states, *(OPEN if "expired" in states else ())}  # expiries are recorded later
            conditions.append(f"state IN ({', '.join('?' * len(stored))})")
            parameters += sorted(stored)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        newest = f"SELECT id FROM approvals{where} ORDER BY created DESC, id DESC LIMIT ?"  # sorts without the calls
        sql = f"SELECT {_PUBLIC_COLUMNS} FROM approvals WHERE id IN ({newest}) ORDER BY created DESC, id DESC"
        now = self._clock()
        stored = await self._reader.rows(_approval, sql, (*parameters, limit), apart=True)  # 0.1 s for 10,000
        found = [_at(approval, now) for approval in stored]
        return [approval for approval in found if not states or approval.state in states]

    async def settle(self, id: str, settlement: Settlement) -> Approval:
        """Take a pending approval to its next state, and return it. Durable on return.

        Raises `ToolFailure`: `not_found` for an id that the principal does not have, `conflict` where another answer
        was first, it expired, or it is for another call than the decider was shown.
        """
        edited = "" if settlement.arguments is None else self._seal(settlement.arguments, id)
        return await self._writer.run(_settle, id, settlement, edited, self._clock(), durable=True)

    async def edited(self, id: str) -> Mapping[str, Any] | None:
        """Return the arguments that replaced the original ones; None when unchanged."""
        row = await self._reader.read(lambda connection: _find(connection, id))
        return self._vault.open(row.edited, purpose_of("approval", id)) if row and row.edited else None

    async def redeem(self, id: str, call_id: str, hash: str) -> None:
        """Use the approval for this call.

        The same call may use it again as long as it neither started nor ended: a crash in between costs nothing.
        Raises `ToolFailure("denied")` for everything else.
        """
        await self._writer.run(_redeem, id, call_id, hash, self._clock())

    async def withdraw(self, id: str, reason: str) -> None:
        """Take back an approval that was given and cannot be used; does nothing to one that was not given."""
        await self._writer.run(_withdraw, id, reason, self._clock())

    async def leave(self, id: str, *, keep: bool) -> Approval | None:
        """Record that the caller left. `keep`: the question stays open, and its call runs later; else it is cancelled.

        Returns the approval if its state changed.
        """
        return await self._writer.run(_leave, id, keep, self._clock())

    async def hold(self, id: str, states: Sequence[ApprovalState] = ("pending",)) -> bool:
        """Let the question stand for the same call, made again; return whether it does: it is in one of `states`."""
        return await self._writer.run(_hold, id, tuple(states), self._clock(), durable=True)

    async def waiting(self) -> list[str]:
        """Return the ids of approvals that were granted, or used without a recorded run, and have no waiting caller."""
        sql = (
            "SELECT id FROM approvals WHERE state IN ('approved', 'used') AND expires > ? AND ran = '' AND job = ''"
            " AND (gone = 1 OR writer <> ?) AND sealed <> ''"
            " AND NOT EXISTS (SELECT 1 FROM calls WHERE calls.id = approvals.call)"
            " AND NOT EXISTS (SELECT 1 FROM intents WHERE intents.id = approvals.call) ORDER BY created LIMIT 100"
        )
        return await self._reader.rows(itemgetter(0), sql, (self._clock(), self._lease.id))

    async def claim(self, id: str, *, here: bool = False) -> SavedCall | None:
        """Claim the run of an approved call whose caller has left; None when another process has it, or it ran.

        `here` claims it for an immediate run, in whichever process has the answer; else it is left to the process that
        asked as long as that lives. Raises `ToolFailure("storage")`, and claims nothing, if the call cannot be
        decrypted with this installation's key.
        """
        found = await self._reader.read(lambda connection: _find(connection, id))
        if found is None or not found.sealed:
            return None
        saved = SavedCall.from_json(self._vault.open(found.sealed, purpose_of("approval", id)))
        row = await self._writer.run(self._claim, id, here, self._clock())
        return replace(saved, id=row.approval.call_id) if row else None

    async def started(self, id: str, job: str) -> None:
        """Write down which job makes the call."""
        await self._writer.run(_set, "job", id, job)

    async def finished(self, id: str, result: ToolResult) -> None:
        """Store the result for later readers, and erase the call."""
        packed = self._seal(pack_result(result), id)
        await self._writer.run(_finished, id, result.error.code if result.error else "ok", packed, durable=True)

    async def result(self, id: str) -> ToolResult | None:
        """Return the outcome of a call that ran in the background; None while it has not ended.

        If the process that waited for it ended, the durable job that went on without it holds the outcome.
        """
        row = await self._reader.read(lambda connection: _find(connection, id))
        if row is None:
            return None
        if row.result:
            return unpack_result(self._vault.open(row.result, purpose_of("approval", id)))
        sql, job = "SELECT result FROM jobs WHERE id = ? AND result IS NOT NULL", row.approval.job
        found = await self._reader.row(sql, (job,))
        return unpack_result(found[0]) if found else None

    def _seal(self, value: Any, id: str) -> str:
        """Return `value` sealed. Raises `ToolFailure("storage")` where the key cannot be had."""
        try:
            return self._vault.seal(value, purpose_of("approval", id))
        except OSError as error:
            raise ToolFailure("storage", f"the approval cannot be stored: {error}") from error

    def _put(self, transaction: Transaction, row: _Row, saved: SavedCall, limit: int, now: float) -> Approval | None:
        _tidy(transaction, now)
        asked = row.approval
        if (earlier := self._earlier(transaction, asked, now)) is not None:
            if earlier.state == "denied":
                return earlier
            sealed = self._vault.seal(saved.to_json(), purpose_of("approval", earlier.id))
            transaction.execute(
                "UPDATE approvals SET call = ?, writer = ?, sealed = ?, job = '' WHERE id = ?",
                (asked.call_id, self._lease.id, sealed, earlier.id),
            )
            return replace(earlier, call_id=asked.call_id)
        (count,) = transaction.execute(
            "SELECT count(*) FROM approvals WHERE principal = ? AND state = 'pending'", (asked.principal,)
        ).fetchone()
        if count >= limit:
            raise ToolFailure(
                "overloaded",
                f"{count} calls wait for approval already; this one was not put to an approver",
                hint="wait until some of them are answered; do not call again before",
            )
        transaction.execute(_INSERT, _values(row))
        return None

    def _earlier(self, transaction: Transaction, asked: Approval, now: float) -> Approval | None:
        """Return the question about the same call that is held, or the open one of a dead process.

        `job` is still `HELD` for one that was held.

        A question is the same if definition, arguments, folder and principal are (the hash); sessions and calls may
        differ.
        """
        rows = transaction.execute(
            f"{_SELECT_ROWS} WHERE principal = ? AND hash = ? AND gone = 0 AND expires > ?"
            " AND (state IN ('pending', 'approved') AND job IN ('', ?) OR state = 'denied' AND job = ?)"
            " ORDER BY created DESC",
            (asked.principal, asked.hash, now, HELD, HELD),
        ).fetchall()
        for row in map(_row, rows):
            if _at(row.approval, now).state == "expired":
                continue
            is_gone = row.writer != self._lease.id and self._lease.is_free(transaction, row.writer)
            if row.approval.job == HELD or is_gone:
                return row.approval
        return None

    def _claim(self, transaction: Transaction, id: str, here: bool, now: float) -> _Row | None:
        """Claim the run of an approved call; return its row, None for one that is not to be run here.

        Three conditions: no living process has claimed it, it is ours to run, and its call is not in the record.
        """
        row = _find(transaction, id)
        if row is None or not row.sealed or row.approval.ran:
            return None
        found = _at(row.approval, now)
        is_dead = row.writer != self._lease.id and self._lease.is_free(transaction, row.writer)
        if found.job and not (found.job == RESUMED and is_dead):
            return None
        is_ours = found.gone and found.state == "approved" and (here or row.writer == self._lease.id or is_dead)
        if not is_ours and not (is_dead and found.state in ("approved", "used")):
            return None
        if transaction.execute(_SELECT_BEGUN_CALL, (found.call_id, found.call_id)).fetchone() is not None:
            transaction.execute("UPDATE approvals SET ran = 'recorded', sealed = '', edited = '' WHERE id = ?", (id,))
            return None
        taken = (self._lease.id, RESUMED if here else "", id)
        transaction.execute("UPDATE approvals SET gone = 1, writer = ?, job = ? WHERE id = ?", taken)
        return row


def _tidy(transaction: Transaction, now: float) -> None:
    """Record expiries, and erase obsolete data: real arguments at once, rows after `_KEPT_SECONDS`.

    Runs with each new question, so that expiries need no timer; readers compute them (`_at`).
    """
    transaction.execute(
        "UPDATE approvals SET state = 'expired', sealed = '', edited = ''"
        " WHERE state IN ('pending', 'approved') AND expires <= ?",
        (now,),
    )
    transaction.execute(
        "UPDATE approvals SET sealed = '', edited = '' WHERE state = 'used' AND sealed <> ''"
        " AND EXISTS (SELECT 1 FROM calls WHERE calls.id = approvals.call)",
    )
    transaction.execute("DELETE FROM approvals WHERE expires < ?", (now - _KEPT_SECONDS,))


def _settle(transaction: Transaction, id: str, settlement: Settlement, edited: str, now: float) -> Approval:
    row = _find(transaction, id)
    if row is None or settlement.principal not in (None, row.approval.principal):
        raise ToolFailure("not_found", f"approval {id[:60]!r} not found")
    found = _at(row.approval, now)
    if found.state != "pending":
        raise _late(found)
    if settlement.hash and settlement.hash != found.hash:
        raise ToolFailure("conflict", f"approval {id} is for another call than the one you were shown: look again")
    settled = replace(
        found,
        state=settlement.state,
        verdict=settlement.verdict,
        by=settlement.by,
        comment=settlement.comment,
        decided=now,
        arguments=settlement.shown or found.arguments,
        expires=now + (found.expires - found.created) if found.job == HELD else found.expires,
    )
    sealed = row.sealed if settlement.state == "approved" else ""
    transaction.execute(
        "UPDATE approvals SET state = ?, verdict = ?, decided_by = ?, comment = ?, decided = ?, arguments = ?,"
        " edited = ?, sealed = ?, expires = ? WHERE id = ? AND state = 'pending'",
        (
            settlement.state,
            settlement.verdict,
            settlement.by,
            settlement.comment,
            now,
            settled.arguments,
            edited,
            sealed,
            settled.expires,
            id,
        ),
    )
    return settled


def _redeem(transaction: Transaction, id: str, call_id: str, hash: str, now: float) -> None:
    """Use the approval for the call, or raise the refusal.

    The same call may do so again until it has an intent or a row: a crash between the use and the execution leaves an
    approval that can be used.
    """
    row = _find(transaction, id)
    if row is None or row.approval.hash != hash or not _is_same_call(transaction, row.approval, call_id):
        raise ToolFailure("denied", "this approval is for another call, tool, folder or caller: nothing ran")
    found = _at(row.approval, now)
    if found.state == "used" and transaction.execute(_SELECT_BEGUN_CALL, (call_id, call_id)).fetchone() is None:
        return
    if found.state != "approved":
        raise ToolFailure("denied", f"approval {id} is {found.state} and cannot be used: nothing ran")
    transaction.execute("UPDATE approvals SET state = 'used' WHERE id = ? AND state = 'approved'", (id,))


def _leave(transaction: Transaction, id: str, keep: bool, now: float) -> Approval | None:
    """Record that the caller left; a kept call gets another id (`.late`), for the caller's attempt has its own row."""
    row = _find(transaction, id)
    if row is None or (found := _at(row.approval, now)).state not in OPEN or found.gone:
        return None
    if not keep:
        transaction.execute(
            "UPDATE approvals SET state = 'cancelled', comment = 'the caller left', sealed = '', edited = ''"
            " WHERE id = ?",
            (id,),
        )
        return replace(found, state="cancelled", comment="the caller left")
    call_id = found.call_id + _LATE_CALL_SUFFIX
    transaction.execute("UPDATE approvals SET gone = 1, call = ? WHERE id = ?", (call_id, id))
    return replace(found, gone=True, call_id=call_id)


def _hold(transaction: Transaction, id: str, states: Sequence[ApprovalState], now: float) -> bool:
    row = _find(transaction, id)
    if row is None or row.approval.gone or _at(row.approval, now).state not in states:
        return False
    transaction.execute("UPDATE approvals SET job = ? WHERE id = ?", (HELD, id))
    return True


def _withdraw(transaction: Transaction, id: str, reason: str, now: float) -> None:
    row = _find(transaction, id)
    if row is not None and _at(row.approval, now).state == "approved":
        transaction.execute(
            "UPDATE approvals SET state = 'denied', comment = ?, sealed = '', edited = '' WHERE id = ?", (reason, id)
        )


def _finished(transaction: Transaction, id: str, ran: str, result: str) -> None:
    transaction.execute(
        "UPDATE approvals SET ran = ?, result = ?, sealed = '', edited = '' WHERE id = ?", (ran, result, id)
    )


def _set(transaction: Transaction, column: str, id: str, value: str) -> None:
    transaction.execute(f"UPDATE approvals SET {column} = ? WHERE id = ?", (value, id))


def _is_same_call(transaction: Transaction, approval: Approval, call_id: str) -> bool:
    """Whether this call is the approved one, or the current attempt of the job that makes it."""
    if call_id == approval.call_id or not approval.job:
        return call_id == approval.call_id
    job = transaction.execute(
        "SELECT call, attempt FROM jobs WHERE id = ? AND ended IS NULL", (approval.job,)
    ).fetchone()
    return job is not None and call_id == f"{job[0]}.{job[1]}"


def _at(approval: Approval, now: float) -> Approval:
    """Return the approval as it counts at that moment."""
    if approval.state in OPEN and not approval.created - _CLOCK_SKEW_SECONDS <= now < approval.expires:
        return replace(approval, state="expired")
    return approval


def _late(found: Approval) -> ToolFailure:
    how = f" by {found.by}" if found.by else ""
    return ToolFailure(
        "conflict",
        f"approval {found.id} is {found.state}{how} already: this answer changes nothing",
        details={"state": found.state, "verdict": found.verdict, "by": found.by},
    )


def _find(connection: Connection, id: str) -> _Row | None:
    values = connection.execute(f"{_SELECT_ROWS} WHERE id = ?", (id,)).fetchone()
    return None if values is None else _row(values)


def _row(values: Sequence[Any]) -> _Row:
    return _Row(_approval(values[: len(_FIELDS)]), *values[len(_FIELDS) :])


def _approval(values: Sequence[Any]) -> Approval:
    given = dict(zip(_FIELDS, values, strict=True))
    given["gone"] = bool(given["gone"])
    return Approval(**given)


def _values(row: _Row) -> tuple[Any, ...]:
    shown = (getattr(row.approval, name) for name in _FIELDS)
    plain = (int(value) if isinstance(value, bool) else value for value in shown)
    return (*plain, row.writer, row.sealed, row.edited, row.result)
