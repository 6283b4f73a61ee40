"""Background calls: a call that may outlive its caller runs as a job, for which the caller waits a while.

The permission was given before, and the job finishes the call (enrich, redact, limit, record) once, when it ends. A
caller that leaves while it waits cancels the call, as without a job.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio

from ..core.call import Call
from ..core.json import dumps
from ..core.result import ToolResult
from ..errors import ToolFailure
from ..jobs.job import LOOK, Jobs, requested_name

__all__ = ["InBackground"]

_AT_ONCE: Final = 0.0


class InBackground:
    """Decides which calls may go on in the background, and answers their callers. One for a crib."""

    def __init__(self, jobs: Jobs, envelope: Callable[[Call, ToolResult], ToolResult]) -> None:
        """`envelope` converts the caller's interim answer to the form of its profile."""
        self._jobs = jobs
        self._envelope = envelope

    def __call__(self, call: Call) -> Awaitable[Callable[[], Awaitable[ToolResult]]] | None:
        """Return the function that starts `call` as a job; None for a call that runs in the foreground.

        A call that only exceeds its waiting time stays in the foreground if the limit of jobs is reached; one that was
        requested in the background is refused then.
        """
        if call.options.job_seconds is not None:  # it is made as a job already
            return None
        threshold = call.target.execution.background_after
        if call.options.background:
            return self._start(call, _AT_ONCE)
        if threshold is None or _has_to_wait(call) or not self._jobs.room(call.session.principal):
            return None
        return self._start(call, threshold)

    async def _start(self, call: Call, threshold: float) -> Callable[[], Awaitable[ToolResult]]:
        """Start the job, and return the wait of its caller. Raises `ToolFailure("overloaded")`."""
        id = await self._jobs.start(call)
        return lambda: self._wait(call, id, threshold)

    async def _wait(self, call: Call, id: str, threshold: float) -> ToolResult:
        try:
            result = await self._jobs.wait(id, threshold)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._jobs.forget(id)
            raise
        if result is not None and not call.options.background:
            await self._jobs.forget(id)
            return result
        try:
            await self._jobs.hand_over(id)
        except ToolFailure:  # it cannot be stored, or the limit is reached: its caller waits on, as for any call
            return await self._wait(call, id, math.inf)
        if not call.options.takes_task:  # the model did not have the task tool before; now it has one task to ask for
            call.session.history.loaded.setdefault(LOOK)
        return self._envelope(call, _job_notice(call, id, threshold))


def _has_to_wait(call: Call) -> bool:
    """Whether a caller could not use the answer with a job.

    True for a session that may not ask for the result later, for a command, which ends with its answer and takes its
    jobs with it, and for an MCP client that expects structured content and accepts nothing else.
    """
    if call.options.takes_task:
        return False
    if not call.session.includes(LOOK) or call.origin == "cli":
        return True
    return call.origin == "mcp" and not call.route.verb and call.target.output_schema is not None


def _job_notice(call: Call, id: str, threshold: float) -> ToolResult:
    """Return the interim answer to the caller of a job, in seed 003's form."""
    name = requested_name(call)
    answer: dict[str, Any] = {"background": True} if call.options.background else {"auto_backgrounded": True}
    answer |= {"task_id": id, "plugin_name": call.target.source, "tool_name": name}
    if not call.options.background:
        answer["threshold_seconds"] = threshold
    took = "" if call.options.background else f" takes longer than {threshold:g} s and"
    answer["message"] = f"{name}{took} goes on in the background as task {id}. It runs once: do not call it again."
    rule = call.decision.rule if call.decision else ""
    return ToolResult.of_text(dumps(answer).decode(), structured=answer).with_meta(call_id=call.id, job=id, rule=rule)
