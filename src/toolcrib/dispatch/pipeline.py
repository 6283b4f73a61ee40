"""Pipeline: some steps before, one execution, some steps after.

    call -> before -> before -> ... -> execute -> after -> after -> result
              |                                     ^
              +---- a ToolResult ends the walk -----+

A before-step returns a `Call` to go on or a `ToolResult` to stop; it may also raise `ToolFailure`. After-steps see
every result, refusals and cancellations too, so recording and redaction cannot be skipped. When an after-step
breaks, the result is withheld: what was not redacted or recorded is not handed out. Order is data: see `default.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import anyio

from ..core.call import Call
from ..core.result import ToolResult
from ..errors import ToolFailure
from ..telemetry.otel import Telemetry

__all__ = ["After", "Background", "Before", "Execute", "Pipeline", "Refused", "caller_left"]

T = TypeVar("T")

Before = Callable[[Call], Awaitable[Call | ToolResult]]
Execute = Callable[[Call], Awaitable[ToolResult]]
After = Callable[[Call, ToolResult], Awaitable[ToolResult]]
_Waiting = Callable[[], Awaitable[ToolResult]]
"""The caller's wait for a job: its result, or the notice that it continues."""
Background = Callable[[Call], Awaitable[_Waiting] | None]
"""Starts a call as a job that comes back to `Pipeline.work`; None for a call that runs in front of its caller."""

_INTERNAL = ToolResult.failed("internal", "the call failed inside Toolcrib; its log has the reason")
_CANCELLED = ToolResult.failed("cancelled", "the caller went away before the call ended")
_TAKEN_BACK = ToolResult.failed("cancelled", "the job was cancelled before it ended; it may have run in part")
_BROKEN_OFF = ToolResult.failed(
    "cancelled",
    "the tool broke off its own work; it may have run in part",
    hint="check its effects before calling it again",
)

_logger = logging.getLogger("toolcrib.dispatch")


class Refused(ToolFailure):
    """A failure with the call as far as it was resolved: the record shows the real call, not its wrapper."""

    def __init__(self, failure: ToolFailure, call: Call) -> None:
        """`failure` is the part for the model."""
        super().__init__(failure.code, failure.message, hint=failure.hint, details=failure.details)
        self.call = call


class Pipeline:
    """Run one call through the steps, in the order given. Holds no state; one serves all calls."""

    def __init__(
        self,
        *,
        before: Iterable[Before],
        execute: Execute,
        after: Iterable[After],
        background: Background | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        """Take the steps; they are called in this order, `after` included.

        `background` takes a call that every before-step has let through, instead of `execute`, if it is a job.
        `telemetry` holds a span open around each walk, with a listener only.
        """
        self._telemetry = telemetry or Telemetry()
        self._background = background
        self._before = tuple(before)
        self._execute = execute
        self._after = tuple(after)

    async def run(self, call: Call) -> ToolResult:
        """Return the result of `call`. Raises only when the caller is cancelled."""
        watch = self._telemetry.watch(call)
        if watch is None:
            return await self._run(call)
        with watch:
            return await self._run(call)

    async def work(self, call: Call, settle: Callable[[ToolResult], None]) -> None:
        """Execute and finish a call that `background` took. Settles in every case; raises only when it is cancelled."""
        watch = self._telemetry.watch_job(call)
        if watch is None:
            return await self._work(call, settle)
        with watch:
            return await self._work(call, settle)

    async def _run(self, call: Call) -> ToolResult:
        seen = [call]
        try:
            outcome = await self._guarded(seen, self._walk)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._finish(seen[-1], _CANCELLED)
            raise
        if not isinstance(outcome, ToolResult):
            return await outcome()
        return await self._finish(seen[-1], outcome)

    async def _work(self, call: Call, settle: Callable[[ToolResult], None]) -> None:
        try:
            result = await self._guarded([call], self._carry_out)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                settle(await self._finish(call, _TAKEN_BACK))
            raise
        with anyio.CancelScope(shield=True):
            settle(await self._finish(call, result))

    async def _walk(self, seen: list[Call]) -> ToolResult | _Waiting:
        """Run the steps up to the execution; `seen` keeps the call as each step left it."""
        for step in self._before:
            outcome = await step(seen[-1])
            if isinstance(outcome, ToolResult):
                return outcome
            seen.append(outcome)
        if self._background is not None:
            starting = self._background(self._telemetry.with_trace_context(seen[-1]))
            if starting is not None:
                return await starting
        return await self._carry_out(seen)

    async def _carry_out(self, seen: list[Call]) -> ToolResult:
        return await self._execute(seen[-1])

    async def _guarded(self, seen: list[Call], walk: Callable[[list[Call]], Awaitable[T]]) -> T | ToolResult:
        """Return the result of `walk`, or the result for its exception."""
        try:
            return await walk(seen)
        except ToolFailure as failure:
            if isinstance(failure, Refused):
                seen.append(failure.call)
            return ToolResult.of_failure(failure)
        except anyio.get_cancelled_exc_class():
            if caller_left():
                raise
            _logger.exception("call %s of %s was cancelled from inside", seen[-1].id, seen[-1].name)
            return _BROKEN_OFF
        except Exception:
            _logger.exception("call %s of %s failed", seen[-1].id, seen[-1].name)
            return _INTERNAL

    async def _finish(self, call: Call, result: ToolResult, first: int = 0) -> ToolResult:
        """Run the after-steps from number `first` on; a failing one makes the result an internal error, the others run.

        When the caller leaves in the middle, the remaining steps see a cancelled call.
        """
        for number in range(first, len(self._after)):
            try:
                result = await self._after[number](call, result)
            except ToolFailure as failure:
                result = ToolResult.of_failure(failure)
            except anyio.get_cancelled_exc_class():
                if caller_left():
                    with anyio.CancelScope(shield=True):
                        await self._finish(call, _CANCELLED, number + 1)
                    raise
                result = _INTERNAL
            except Exception:
                _logger.exception("finishing call %s of %s failed", call.id, call.name)
                result = _INTERNAL
        return result


def caller_left() -> bool:
    """Whether this task is being cancelled. A tool that awaits another, cancelled task raises the same exception.

    Only asyncio itself can tell the two apart; anyio's scopes cancel through it.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
