"""Pipeline: some steps before, one execution, some steps after.

    call -> before -> before -> ... -> execute -> after -> after -> result
              |                                     ^
              +---- a ToolResult ends the walk -----+

A before-step returns a `Call` to go on or a `ToolResult` to stop; it may also raise `ToolFailure`. After-steps see
every result, refusals and cancellations too, so recording and redaction cannot be skipped. When an after-step
breaks, the result is withheld: what was not redacted or recorded is not handed out. Order is data: see `default.py`.

Failures on the way, and what the caller gets:

    a step or tool raises ToolFailure      that failure as a result
    any other exception                    `internal`; the traceback is in the log of `toolcrib.dispatch` only
    the caller is cancelled                the after-steps run on a result `cancelled`, shielded; then it is raised
    the tool cancels itself                `cancelled` as a result: `caller_left` tells the two cancellations apart

All of this runs on the event loop of the crib. Steps that need a thread start one themselves.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import anyio
from anyio import to_thread
from msgspec import Struct

from ..core.call import Call
from ..core.result import SpooledResult, ToolResult
from ..errors import ToolFailure
from ..telemetry.otel import Telemetry
from .plan import After, Before, Execute, Plan, Plans, SessionPlans

__all__ = ["After", "Background", "Before", "Execute", "Pipeline", "Refused", "caller_left", "definition_changed"]

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
    """A failure with the call as far as it was resolved: the record shows the real call, not its wrapper.

    Raised by `Resolve` and `decide`, which know the real tool when they refuse; `_outcome_of` puts the call in the
    walk.
    """

    def __init__(self, failure: ToolFailure, call: Call) -> None:
        """`failure` is the part for the model."""
        super().__init__(failure.code, failure.message, hint=failure.hint, details=failure.details)
        self.call = call


def definition_changed(name: str) -> ToolFailure:
    """Return the failure of a call whose tool has changed since the call was saved."""
    return ToolFailure(
        "definition_changed",
        f"{name} is defined in another way than when this call was made; it did not run",
        hint="look at the tool again, then call it anew",
    )


class _Walk(Struct):
    """One call on its way, as the last step left it, and the plan that it goes by.

    Mutable on purpose: when a step raises, the exception does not carry the call, and the record needs the call as it
    was at that moment.
    """

    call: Call
    plan: Plan


class Pipeline:
    """Run one call through the steps, in the order given. One serves all calls.

    Has no state of its own beside the plans: concurrent calls share it, and each has a `_Walk`.
    """

    def __init__(
        self, plans: Plans, *, background: Background | None = None, telemetry: Telemetry | None = None
    ) -> None:
        """Take the steps, as the plans that bind them.

        `background` takes a call that every before-step has let through, instead of the execution, if it is a job.
        `telemetry` holds a span open around each walk, with a listener only.
        """
        self._telemetry = telemetry or Telemetry()
        self._background = background
        self._plans = plans

    # For tests and for tools that describe the pipeline; calls go by the plans.
    @property
    def steps(self) -> tuple[Sequence[Before], Execute, Sequence[After]]:
        """The list: before-steps, the execution, after-steps."""
        return self._plans.before, self._plans.execute, self._plans.after

    def run(self, call: Call) -> Coroutine[Any, Any, ToolResult]:
        """Return the result of `call`. Raises only when the caller is cancelled."""
        telemetry = self._telemetry
        watch = None if time.monotonic() < telemetry.silent_until else telemetry.watch(call)
        return self._run(call) if watch is None else self._watched(call, watch)

    async def _watched(self, call: Call, watch: AbstractContextManager[None]) -> ToolResult:
        """Run the call inside its span."""
        with watch:
            return await self._run(call)

    async def work(self, call: Call, settle: Callable[[ToolResult], None]) -> None:
        """Execute and finish a call that `background` took. Settles in every case; raises only when it is cancelled.

        `settle` gets the finished result before this returns. The job service runs this in a task of its own, so that a
        caller who leaves does not cancel it; cancelling that task cancels the job.
        """
        watch = self._telemetry.watch_job(call)
        if watch is None:
            return await self._work(call, settle)
        with watch:
            return await self._work(call, settle)

    async def _run(self, call: Call) -> ToolResult:
        plans = self._plans.of(call.session)
        walk = _Walk(call, plans.of(call.tool))
        try:
            try:  # two levels: `_outcome_of` raises a cancellation again only where it is really the caller who left
                outcome = await self._go(walk, plans)
            except BaseException as error:  # noqa: BLE001 - it is raised again where the caller has left
                outcome = _outcome_of(error, walk)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):  # the record of a call that may have had effects is not optional
                await self._finish(walk, _CANCELLED)
            raise
        if isinstance(outcome, ToolResult):
            return await self._finish(walk, outcome)
        return await outcome()

    async def _work(self, call: Call, settle: Callable[[ToolResult], None]) -> None:
        walk = _Walk(call, self._plans.of(call.session).of(call.tool))
        try:
            try:
                result = await walk.plan.execute(call)
            except BaseException as error:  # noqa: BLE001 - it is raised again where the job was cancelled
                result = _outcome_of(error, walk)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                settle(await self._finish(walk, _TAKEN_BACK))
            raise
        with anyio.CancelScope(shield=True):
            settle(await self._finish(walk, result))

    async def _go(self, walk: _Walk, plans: SessionPlans) -> ToolResult | _Waiting:
        """Run the steps up to the execution.

        Behind the step that finds the tool, the list goes on in the plan of that tool; behind one that waited, in the
        plan of that moment.

        `place` is the number of a step in the whole list, the same in every plan. A plan leaves out steps that cannot
        have an effect, so `plan.behind[place]` says where its own list goes on.
        """
        call, plan = walk.call, walk.plan
        steps = plan.before
        while steps:
            left, steps = steps, ()
            for place, step in left:
                outcome = step(call)
                if outcome is call:  # most steps, most of the time; they are not awaited either
                    continue
                if isinstance(outcome, Call):
                    walk.call = call = outcome
                    if call.tool is plan.tool:
                        continue
                else:
                    outcome = outcome if isinstance(outcome, ToolResult) else await outcome
                    if isinstance(outcome, ToolResult):
                        return outcome
                    walk.call = call = outcome
                    plans = self._plans.of(call.session)
                # The rest of `left` is bound to another tool, or to terms that may have changed during the wait.
                walk.plan = plan = plans.of(call.tool)
                steps = plan.before[plan.behind[place] :]
                break
        if self._background is not None and (call.options.background or plan.may_wait):
            starting = self._background(self._telemetry.with_trace_context(call))
            if starting is not None:
                return await starting
        return await plan.execute(call)

    def _finish(self, walk: _Walk, result: ToolResult) -> Awaitable[ToolResult]:
        """Run the after-steps; a failing one makes the result an internal error, the others run."""
        finished = _finished(self._plans.after_of(walk.plan, walk.call), walk.call, result)
        return finished if result.spooled is None else _without_file(finished, result.spooled)


async def _without_file(finished: Awaitable[ToolResult], spooled: SpooledResult) -> ToolResult:
    """Remove the file of a spooled result behind the after-steps: one that raised may have come before `limit`."""
    try:
        return await finished
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(partial(spooled.path.unlink, missing_ok=True))


async def _finished(steps: Sequence[After], call: Call, result: ToolResult) -> ToolResult:
    """Return the result after `steps`. When the caller leaves in the middle, the others see a cancelled call.

    An after-step that raises does not stop the others: `Record` has to run. The result that it should have changed is
    replaced by the failure, so that nothing unredacted is handed on.
    """
    for step in steps:
        try:
            outcome = step(call, result)
            if outcome is not result:
                result = outcome if isinstance(outcome, ToolResult) else await outcome
        except ToolFailure as failure:
            result = ToolResult.of_failure(failure)
        except anyio.get_cancelled_exc_class():
            if caller_left():
                with anyio.CancelScope(shield=True):  # no caller reads the result any more; the record is still due
                    await _finished(steps[steps.index(step) + 1 :], call, _CANCELLED)
                raise
            result = _INTERNAL
        except Exception:
            _logger.exception("finishing call %s of %s failed", call.id, call.name)
            result = _INTERNAL
    return result


def _outcome_of(error: BaseException, walk: _Walk) -> ToolResult:
    """Return the result for an exception of the walk; raises it again where the caller has left."""
    if isinstance(error, ToolFailure):
        if isinstance(error, Refused):
            walk.call = error.call
        return ToolResult.of_failure(error)
    call = walk.call
    if isinstance(error, anyio.get_cancelled_exc_class()):
        if caller_left():
            raise error
        _logger.error("call %s of %s was cancelled from inside", call.id, call.name, exc_info=error)
        return _BROKEN_OFF
    if not isinstance(error, Exception):
        raise error
    _logger.error("call %s of %s failed", call.id, call.name, exc_info=error)
    return _INTERNAL


def caller_left() -> bool:
    """Whether this task is being cancelled. A tool that awaits another, cancelled task raises the same exception.

    Only asyncio itself can distinguish the two; anyio's scopes cancel through it.

    Outside of a task, where the two look alike, it returns True.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
