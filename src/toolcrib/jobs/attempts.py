"""The attempts of one job: which comes next after a crash or a failure, and under which id.

The first attempt is the call that was accepted, under its own id. Every further one is a call of its own, `id.2`,
`id.3` …, and only what may be repeated has further ones, and what goes on where it was: a workflow. An idempotency key
of the job's own makes the store keep what a call with effects came to until the job has it: made again, it is answered
with that, and does not run.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final, Protocol

import anyio

from ..core.call import Call
from ..core.context import Listener
from ..core.result import ToolResult
from ..core.saved import SavedCall
from ..errors import CODES
from ..store.calls import OUTCOME_UNKNOWN
from ..store.jobs import Claimed, JobRow, JobRows
from .job import JobLimits
from .rows import Told

__all__ = ["Attempts", "Door", "Elsewhere", "Lost"]

_LOG: Final = logging.getLogger(__name__)
_MAX_ATTEMPTS: Final = 50
"""Attempts of one job in all: a call that takes its process down with it must end some time."""
_MAX_BACKOFF: Final = 60.0
_DID_NOT_RUN: Final = ("overloaded", "unavailable")
"""Outcomes of a call that had no effect, and is not in the way of another one."""


class Lost(Exception):
    """The job is carried by another process now."""


class Elsewhere(Exception):
    """This process does not have the tool; another one may."""


class Door(Protocol):
    """How saved calls are made again: through the one door, from the top."""

    async def knows(self, saved: SavedCall) -> bool:
        """Whether this process has the tool, or had it listed by now if it came to have it."""
        ...

    async def make(self, saved: SavedCall, *, approval: str, listener: Listener) -> ToolResult:
        """Make the call under its id, in as much time as a job has."""
        ...

    async def note(self, saved: SavedCall, result: ToolResult) -> None:
        """Record a call that is never made."""
        ...

    async def vouch(self, call: Call, job: str) -> str:
        """Return the approval by which that job may make a call later that is granted now; empty for none."""
        ...


class Attempts:
    """Makes the calls of jobs that this process has claimed."""

    def __init__(self, rows: JobRows, door: Door, limits: JobLimits) -> None:
        self._rows = rows
        self._door = door
        self._limits = limits

    async def make(self, row: JobRow, told: Told, claimed: Claimed, listener: Listener) -> ToolResult:
        """Return what the job comes to; `claimed` says what its last attempt came to before it was claimed.

        Raises `Elsewhere` before anything began, and `Lost`.
        """
        first = self._first(row, claimed)
        if isinstance(first, ToolResult):
            return first
        if not await self._door.knows(told.saved):
            raise Elsewhere
        key = told.saved.idempotency_key or f"job:{row.id}"
        for attempt in range(first, _MAX_ATTEMPTS + 1):
            if not await self._rows.begin(row, attempt, key):
                raise Lost
            row = replace(row, attempt=attempt)
            saved = replace(told.saved, id=row.attempt_id, first=row.call, idempotency_key=key)
            result = await self._door.make(saved, approval=told.approval, listener=listener)
            if not (row.repeatable and _is_passing(result) and attempt < self._limits.attempts):
                return result
            await anyio.sleep(min(self._limits.backoff * 2 ** (attempt - 1), _MAX_BACKOFF))
        return _given_up(row)

    def _first(self, row: JobRow, claimed: Claimed) -> int | ToolResult:
        """Return the attempt that is to be made now, or how the job ends without one."""
        last, outcome = row.attempt, claimed.outcome
        if not outcome:
            return last or 1  # it never started, or was a read, which leaves no trace
        if outcome != OUTCOME_UNKNOWN and claimed.is_kept:
            return last  # it has ended, and is answered with what it came to
        if row.may_begin_again or outcome in _DID_NOT_RUN:
            return last + 1 if last < _MAX_ATTEMPTS else _given_up(row)
        return _unknown(row) if outcome == OUTCOME_UNKNOWN else _result_lost(row, outcome)


def _is_passing(result: ToolResult) -> bool:
    return result.error is not None and CODES[result.error.code].retryable


def _unknown(row: JobRow) -> ToolResult:
    return ToolResult.failed(
        OUTCOME_UNKNOWN,
        f"{row.tool} was running when Toolcrib stopped, and may have had its effect; it was not run again",
        hint="look at what it should have changed before you call it again",
        details={"call_id": row.attempt_id},
    )


def _result_lost(row: JobRow, outcome: str) -> ToolResult:
    return ToolResult.failed(
        OUTCOME_UNKNOWN,
        f"{row.tool} ended ({outcome}) just when Toolcrib stopped, and its result is lost; it was not run again",
        hint="look at what it should have changed before you call it again",
        details={"call_id": row.attempt_id, "outcome": outcome},
    )


def _given_up(row: JobRow) -> ToolResult:
    return ToolResult.failed(
        OUTCOME_UNKNOWN,
        f"{row.tool} was begun {row.attempt} times, and never ended; it is not begun again",
        hint="the log says what stopped it",
        details={"call_id": row.attempt_id},
    )
