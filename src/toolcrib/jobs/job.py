"""Job: a granted call that outlives the answer to its caller. And the interface of job services.

    working ──> completed │ failed │ cancelled │ input_required      each of these is final

A `Job` is a value: a state that a job had. Waiting for a change compares two of them (`Jobs.changed`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, Protocol

from msgspec import Struct

from ..core.call import Call
from ..core.context import Progress
from ..core.result import ToolResult
from ..errors import ToolFailure
from .settings import JobLimits

Status = Literal["working", "input_required", "completed", "failed", "cancelled"]
"""The words of MCP tasks."""

LOOK: Final = "get_background_task"
"""The tool by which a model gets the result of a job."""

Settle = Callable[[ToolResult], None]
"""Takes the finished result of a call: enriched, redacted, limited, recorded, in its envelope."""

Work = Callable[[Call, Settle], Awaitable[None]]
"""Carries out a granted call and finishes it, once. Settles in every case, also when it is cancelled."""


class Job(Struct, frozen=True, kw_only=True):
    """Snapshot of one job. Times are seconds since 1970."""

    id: str
    """128 random bits: it cannot be guessed, and is shown to its principal alone."""
    call_id: str
    """The call of the job, and the id of its record."""
    principal: str
    session: str
    tool: str
    source: str
    status: Status
    started: float
    ended: float | None = None
    progress: Progress | None = None
    """The last progress that the tool reported."""
    output: str = ""
    """The end of its output so far."""
    result: ToolResult | None = None
    """In the envelope of the session that started it, once it ended."""

    def to_json(self) -> dict[str, Any]:
        """Return the report for a caller while the job works; without the result."""
        shown: dict[str, Any] = {"task_id": self.id, "tool_name": self.tool, "status": self.status}
        shown["started"] = round(self.started, 3)
        if self.ended is not None:
            shown["seconds"] = round(self.ended - self.started, 3)
        if self.progress is not None:
            report = {
                "progress": self.progress.progress,
                "total": self.progress.total,
                "message": self.progress.message,
            }
            shown["progress"] = {key: value for key, value in report.items() if value not in (None, "")}
        if self.output:
            shown["output"] = self.output
        return shown


class Jobs(Protocol):
    """Job service: in this process, or durable.

    A job starts while its caller waits for it (`wait`). One that ends in that time was an ordinary call, and is
    forgotten (`forget`). Any other is handed over (`hand_over`): from then on its principal can query it. For other
    principals, and for `get` before that, it does not exist.
    """

    async def open(self, work: Work) -> None:
        """Begin; `work` carries out a call."""
        ...

    async def close(self) -> None:
        """Cancel running jobs, or leave them to the next process; return once every cancellation is recorded."""
        ...

    @property
    def works(self) -> bool:
        """Whether this process runs jobs that others wait for."""
        ...

    @property
    def age(self) -> float:
        """For how many seconds a job is kept once it has ended."""
        ...

    def room(self, principal: str) -> bool:
        """Whether this principal may start another job."""
        ...

    async def start(self, call: Call) -> str:
        """Start running `call`, which holds its grant; return the id of the job.

        Raises `ToolFailure("overloaded")` when the limits are reached. A cancellation during the start leaves no job.
        """
        ...

    async def wait(self, id: str, seconds: float) -> ToolResult | None:
        """Return the result once it exists; None when the job is still running after `seconds`."""
        ...

    async def forget(self, id: str) -> None:
        """Cancel it if it works, wait until that is recorded, and keep nothing of it."""
        ...

    async def hand_over(self, id: str) -> Job:
        """Hand the job over to its principal; from then on, requests of the tool to its client are refused."""
        ...

    async def get(self, id: str, principal: str) -> Job:
        """Return the job; raises `ToolFailure("not_found")` where this principal has no such job."""
        ...

    async def result(self, id: str, principal: str, seconds: float | None = None) -> ToolResult:
        """Wait for the result, at most `seconds`. Raises `ToolFailure`: `not_found`, or `timeout` while it works."""
        ...

    async def cancel(self, id: str, principal: str) -> Job:
        """Cancel the job, and return it once that is recorded; one that has ended stays unchanged.

        Raises `ToolFailure("not_found")`.
        """
        ...

    async def delete(self, id: str, principal: str) -> None:
        """Keep nothing of a job that has ended. Raises `ToolFailure`: `not_found`, or `conflict` while it works."""
        ...

    async def changed(self, seen: Job, seconds: float) -> Job:
        """Return the job once it differs from `seen`, or its state after `seconds`.

        Raises `ToolFailure("not_found")`, also when it is forgotten meanwhile.
        """
        ...

    async def list(self, principal: str, status: Status | None = None) -> tuple[Job, ...]:
        """Return the jobs of this principal, the newest first."""
        ...


def requested_name(call: Call) -> str:
    """Return the caller's name for the tool of `call`: its op, or the requested name; never a meta-tool's."""
    return call.route.op or ("" if call.route.verb else call.route.requested) or call.target.name


def seconds_for(call: Call, limits: JobLimits) -> float:
    """Return the time limit of `call` as a job: the session's limits are for callers that wait."""
    return min(call.options.timeout or call.target.execution.timeout or limits.seconds, limits.max_seconds)


def no_such_job(id: str) -> ToolFailure:
    """Return the failure for an unknown job id; the same for another principal's job."""
    return ToolFailure("not_found", f"task {id[:60]!r} not found", hint="ended tasks are forgotten after a while")


def still_works(job: Job) -> ToolFailure:
    """Return the refusal to forget a job that has not ended."""
    return ToolFailure("conflict", f"{job.tool} still works as task {job.id}", hint="cancel it first")


def status_of(result: ToolResult) -> Status:
    """Return the status that a result implies for its job."""
    if result.input_required is not None:
        return "input_required"
    if result.error is None:
        return "completed"
    return "cancelled" if result.error.code == "cancelled" else "failed"
