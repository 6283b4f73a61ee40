"""Jobs of this process: they end with it. For calls cut off by a crash, the store has the intents."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio

from ..core.call import Call
from ..core.result import ToolResult
from ..errors import ToolFailure
from ..system.tasks import Background
from .job import Job, Status, Work, no_such_job, seconds_for, still_works
from .run import JobPeer, Run, both, new_job, working
from .settings import JobLimits


class InProcessJobs:
    """Carries jobs as tasks of this event loop. One for a crib.

    Every call that may become a job has a `Run` from its start; only handed over ones (`is_job`) can be seen, counted
    and listed.
    """

    def __init__(self, notify: Callable[[Job], None], limits: JobLimits | None = None) -> None:
        """`notify` receives each job that is handed over, and again when it ends."""
        self._notify = notify
        self._limits = limits or JobLimits()
        self._tasks = Background()
        self._runs: dict[str, Run] = {}
        self._work: Work | None = None

    async def open(self, work: Work) -> None:
        """Begin; `work` carries out a call."""
        self._work = work
        await self._tasks.start()

    async def close(self) -> None:
        """Cancel running jobs, and return once that is recorded."""
        self._work = None  # from here on no job is accepted
        for run in tuple(self._runs.values()):
            run.scope.cancel("the crib is closed")
        for run in tuple(self._runs.values()):
            await run.ended.wait()
        await self._tasks.stop()

    @property
    def works(self) -> bool:
        """Whether any job is running."""
        return any(run.is_job and run.job.result is None for run in self._runs.values())

    @property
    def age(self) -> float:
        """For how many seconds a job is kept once it has ended."""
        return self._limits.age

    def room(self, principal: str) -> bool:
        """Whether this principal may start another job."""
        return self._work is not None and working(self._runs.values(), principal) < self._limits.working

    async def start(self, call: Call) -> str:
        """Start carrying out `call`; return the id of the job. Raises `ToolFailure("overloaded")`."""
        self._forget_old()
        work = self._work
        if work is None:
            raise ToolFailure("unavailable", "no job can start: Toolcrib is closing")
        if not self.room(call.session.principal):
            raise ToolFailure(
                "overloaded",
                f"{self._limits.working} jobs of yours work already",
                hint="wait for one of them, or cancel one",
            )
        line = JobPeer(call.client.peer) if call.client.peer is not None else None
        run = Run(new_job(call), self._limits.output, line)
        call = call.evolve(
            peer=line, listener=both(run.hear, call.client.listener), job_seconds=seconds_for(call, self._limits)
        )
        self._runs[run.job.id] = run
        self._tasks.spawn(lambda: self._carry_out(run, call, work))
        return run.job.id

    async def wait(self, id: str, seconds: float) -> ToolResult | None:
        """Return the result once it exists; None when the job is still running after `seconds`."""
        run = self._runs[id]
        with anyio.move_on_after(seconds):
            await run.ended.wait()
        return run.job.result

    async def forget(self, id: str) -> None:
        """Cancel it if it works, wait until that is recorded, and keep nothing of it."""
        run = self._runs[id]
        run.scope.cancel("the caller went away")
        with anyio.CancelScope(shield=True):
            await run.ended.wait()
        self._runs.pop(id, None)

    async def hand_over(self, id: str) -> Job:
        """Let its principal have it as a job."""
        run = self._runs[id]
        run.is_job = True
        if run.line is not None:
            run.line.cut()
        self._notify(run.job)
        return run.job

    async def get(self, id: str, principal: str) -> Job:
        """Return the job; raises `ToolFailure("not_found")` where this principal has no such job."""
        return self._find(id, principal).job

    async def result(self, id: str, principal: str, seconds: float | None = None) -> ToolResult:
        """Wait for the result. Raises `ToolFailure`: `not_found`, or `timeout` while it works."""
        run = self._find(id, principal)
        with anyio.move_on_after(seconds):
            await run.ended.wait()
        if run.job.result is None:
            raise ToolFailure("timeout", f"{run.job.tool} still works as task {id}", hint="ask again later")
        return run.job.result

    async def cancel(self, id: str, principal: str) -> Job:
        """Cancel it, and return it once that is recorded."""
        run = self._find(id, principal)
        run.scope.cancel("the job was cancelled")
        await run.ended.wait()
        return run.job

    async def delete(self, id: str, principal: str) -> None:
        """Keep nothing of a job that has ended. Raises `ToolFailure`: `not_found`, or `conflict` while it works."""
        run = self._find(id, principal)
        if run.job.result is None:
            raise still_works(run.job)
        self._runs.pop(id, None)

    async def changed(self, seen: Job, seconds: float) -> Job:
        """Return the job once it differs from `seen`, or its state after `seconds`."""
        run = self._find(seen.id, seen.principal)
        with anyio.move_on_after(seconds):
            while run.job == seen:
                await run.changed.wait()
        return run.job

    async def list(self, principal: str, status: Status | None = None) -> tuple[Job, ...]:
        """Return the jobs of this principal, the newest first."""
        self._forget_old()
        jobs = (run.job for run in reversed(self._runs.values()) if run.is_job)
        return tuple(job for job in jobs if job.principal == principal and status in (None, job.status))

    async def _carry_out(self, run: Run, call: Call, work: Work) -> None:
        try:
            with run.scope:
                await work(call, run.settle)
        finally:
            # Without effect after the result of `work`, which settles in every usual case.
            run.settle(ToolResult.failed("internal", "the job ended without a result; the log has the reason"))
            if run.is_job:
                self._notify(run.job)

    def _find(self, id: str, principal: str) -> Run:
        self._forget_old()
        run = self._runs.get(id)
        if run is None or not run.is_job or run.job.principal != principal:
            raise no_such_job(id)
        return run

    def _forget_old(self) -> None:
        """Forget expired jobs, and the earliest beyond the limit."""
        since = time.time() - self._limits.age
        ended = sorted(
            (run for run in self._runs.values() if run.is_job and run.job.ended is not None),
            key=lambda run: run.job.ended or 0.0,
        )
        for place, run in enumerate(ended):
            if place < len(ended) - self._limits.kept or (run.job.ended or 0.0) < since:
                del self._runs[run.job.id]
