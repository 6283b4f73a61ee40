"""Attempts at stored jobs: a job is read from its row, and its call is made again if that is harmless.

What is recorded of the last attempt decides, once a process has taken up the job of another:

    nothing                                it never started, or only reads: that attempt is made
    an outcome, and its result is kept     the attempt is repeated under its idempotency key, which answers with it
    repeatable, or it did not run          the next attempt
    anything else                          none: the job ends as `outcome_unknown`, for a person to look
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol, cast

import anyio
from msgspec.structs import replace

from ..core.call import Call
from ..core.context import Listener, Progress
from ..core.json import dumps, loads
from ..core.result import ToolResult
from ..core.saved_call import SavedCall
from ..core.tool import Tool
from ..errors import CODES
from ..store.calls import OUTCOME_UNKNOWN
from ..store.jobs import Claimed, JobRow, JobRows, unpack_result
from ..store.vault import Vault, purpose_of
from .job import Job, Status
from .settings import JobLimits

_MAX_ATTEMPTS: Final = 50
"""Attempts of one job in all: a call that takes its process down with it must end some time."""

_MAX_BACKOFF: Final = 60.0

_EFFECTLESS_CODES: Final = ("overloaded", "unavailable")
"""Outcomes of a call that had no effect, and is not in the way of another one."""


class SealedJob:
    """Sealed content of a row: the call, and the approval with which it was accepted."""

    __slots__ = ("approval", "saved")

    def __init__(self, saved: SavedCall, approval: str) -> None:
        self.saved = saved
        self.approval = approval


def row_of(job: Job, call: Call, vault: Vault, approval: str) -> JobRow:
    """Return the row of a job without a worker yet, with the real arguments sealed."""
    sealed = {"call": SavedCall.of(call).to_json(), "approval": approval}
    return JobRow(
        id=job.id,
        principal=job.principal,
        session=job.session,
        call=job.call_id,
        tool=job.tool,
        source=job.source,
        status=job.status,
        accepted=job.started,
        saved=vault.seal(sealed, purpose_of("job", job.id)),
        repeatable=is_repeatable(call.target, call.session.treat_as_write),
        resumable="resumable" in call.target.traits,
        progress=progress_of(job),
        output=job.output,
    )


def row_of_saved(saved: SavedCall, tool: Tool, treat_as_write: Collection[str], vault: Vault) -> JobRow:
    """Return the row of a job for a call that was never made, and holds no approval."""
    id = f"task_{secrets.token_hex(16)}"
    return JobRow(
        id=id,
        principal=saved.session.principal,
        session=saved.session.key,
        call=saved.id,
        tool=saved.requested or tool.name,
        source=tool.source,
        status="working",
        accepted=time.time(),
        saved=vault.seal({"call": saved.to_json(), "approval": ""}, purpose_of("job", id)),
        repeatable=is_repeatable(tool, treat_as_write),
        resumable="resumable" in tool.traits,
    )


def open_row(row: JobRow, vault: Vault) -> SealedJob:
    """Return the sealed content of a row. Raises `ToolFailure("storage")` for another key."""
    values: Mapping[str, Any] = vault.open(row.saved, purpose_of("job", row.id))
    return SealedJob(SavedCall.from_json(values["call"]), str(values["approval"]))


def job_of(row: JobRow) -> Job:
    """Return the job as its row has it."""
    return Job(
        id=row.id,
        call_id=row.call,
        principal=row.principal,
        session=row.session,
        tool=row.tool,
        source=row.source,
        status=cast("Status", row.status),
        started=row.accepted,
        ended=row.ended,
        progress=Progress(call_id=row.call, **loads(row.progress)) if row.progress else None,
        output=row.output,
        result=unpack_result(row.result) if row.result is not None else None,
    )


def progress_of(job: Job) -> str:
    """Return the progress of `job` as its row holds it."""
    if job.progress is None:
        return ""
    reported = job.progress
    return dumps({"progress": reported.progress, "total": reported.total, "message": reported.message}).decode()


def is_repeatable(tool: Tool, treat_as_write: Collection[str]) -> bool:
    """Whether the call may run again: a read, or a tool declared idempotent whose source the session trusts."""
    hints = tool.annotations
    return (hints.read_only or hints.idempotent) and not tool.is_among(treat_as_write)


class Lost(Exception):
    """The job is carried by another process now."""


class SavedCallRunner(Protocol):
    """Runner of saved calls: through the pipeline, from the top."""

    async def knows(self, saved: SavedCall) -> bool:
        """Whether this process has the tool, or would have listed it by now."""
        ...

    async def make(self, saved: SavedCall, *, approval: str, listener: Listener, reserved: bool = False) -> ToolResult:
        """Make the call under its id, in as much time as a job has; `reserved`: it holds its idempotency key."""
        ...

    async def note(self, saved: SavedCall, result: ToolResult) -> None:
        """Record a call that is never made."""
        ...

    async def vouch(self, call: Call, job: str) -> str:
        """Return the approval by which that job may make a call later that is granted now; empty for none."""
        ...


class Attempts:
    """Makes the calls of jobs that this process has claimed."""

    def __init__(self, rows: JobRows, runner: SavedCallRunner, limits: JobLimits) -> None:
        self._rows = rows
        self._runner = runner
        self._limits = limits

    async def make(self, claimed: Claimed, sealed: SealedJob, listener: Listener) -> ToolResult:
        """Return the job's result; `claimed` holds the outcome of its last attempt before the claim.

        Raises `Elsewhere` before anything began, and `Lost`.
        """
        first = self._first_attempt(claimed)
        if isinstance(first, ToolResult):
            return first
        if not await self._runner.knows(sealed.saved):
            raise Elsewhere
        return await self._make(
            claimed.row, sealed, first, listener, is_begun=claimed.is_begun, is_reserved=claimed.is_reserved
        )

    async def continue_attempts(self, row: JobRow, result: ToolResult, vault: Vault, listener: Listener) -> ToolResult:
        """Return `result`, that of the attempt that was begun last, or that of a later one. Raises `Lost`."""
        if self._is_final(row, result):
            return result
        await self._pause(row.attempt)
        return await self._make(row, open_row(row, vault), row.attempt + 1, listener)

    async def _make(
        self,
        row: JobRow,
        sealed: SealedJob,
        first: int,
        listener: Listener,
        *,
        is_begun: bool = False,
        is_reserved: bool = False,
    ) -> ToolResult:
        key = sealed.saved.idempotency_key or row.key
        for attempt in range(first, _MAX_ATTEMPTS + 1):
            if not is_begun and not await self._rows.begin(row, attempt, key):
                raise Lost
            row, is_begun = replace(row, attempt=attempt), False
            saved = replace(sealed.saved, id=row.attempt_id, first=row.call, idempotency_key=key)
            result = await self._runner.make(saved, approval=sealed.approval, listener=listener, reserved=is_reserved)
            is_reserved = False
            if self._is_final(row, result):
                return result
            await self._pause(attempt)
        return _gave_up_result(row)

    def _is_final(self, row: JobRow, result: ToolResult) -> bool:
        """Whether no further attempt follows the one that was begun last."""
        is_passing = result.error is not None and CODES[result.error.code].retryable
        return not (row.repeatable and is_passing and row.attempt < self._limits.retries.attempts)

    async def _pause(self, attempt: int) -> None:
        await anyio.sleep(min(self._limits.retries.backoff * 2 ** (attempt - 1), _MAX_BACKOFF))

    def _first_attempt(self, claimed: Claimed) -> int | ToolResult:
        """Return the attempt that is to be made now, or how the job ends without one."""
        row, outcome = claimed.row, claimed.outcome
        last = row.attempt
        if not outcome:
            return last  # it never started, or was a read, which leaves no trace
        if outcome != OUTCOME_UNKNOWN and claimed.is_kept:
            return last  # the attempt has ended, and its recorded outcome is the answer
        if row.may_begin_again or outcome in _EFFECTLESS_CODES:
            return last + 1 if last < _MAX_ATTEMPTS else _gave_up_result(row)
        return _unknown_outcome(row) if outcome == OUTCOME_UNKNOWN else _result_lost(row, outcome)


def _unknown_outcome(row: JobRow) -> ToolResult:
    return ToolResult.failed(
        OUTCOME_UNKNOWN,
        f"{row.tool} was running when Toolcrib stopped, and may have had its effect; it was not run again",
        hint="check its effects before you call it again",
        details={"call_id": row.attempt_id},
    )


def _result_lost(row: JobRow, outcome: str) -> ToolResult:
    return ToolResult.failed(
        OUTCOME_UNKNOWN,
        f"{row.tool} ended ({outcome}) just when Toolcrib stopped, and its result is lost; it was not run again",
        hint="check its effects before you call it again",
        details={"call_id": row.attempt_id, "outcome": outcome},
    )


def _gave_up_result(row: JobRow) -> ToolResult:
    return ToolResult.failed(
        OUTCOME_UNKNOWN,
        f"{row.tool} was begun {row.attempt} times, and never ended; it is not begun again",
        hint="the log has the cause",
        details={"call_id": row.attempt_id},
    )


class Elsewhere(Exception):
    """This process does not have the tool, or the key of the sealed call; another one may."""
