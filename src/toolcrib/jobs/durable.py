"""Durable jobs: stored before they are announced, run here at once if there is room, else by another process.

    call with a waiting caller ── runs here ── hand_over: row of this worker ──┐
    call in the background ─────── _accept: row ── room here? ── yes ──────────┼─> runs here ─> settle: row ends
                                                      └─ no ── waits in queue ─┤
    other process ── QueueWatcher.take: claim ─────────────────────────────────┘

A row has one worker or none. That of a dead process goes back to the queue, and whether its call is made again is
decided by what is recorded of its last attempt (`attempts`): a call with effects is never made twice by itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Final

import anyio
from anyio.lowlevel import checkpoint_if_cancelled
from msgspec.structs import replace

from ..core.call import Call
from ..core.context import Listener
from ..core.result import ToolResult
from ..core.saved_call import SavedCall
from ..core.tool import Tool
from ..errors import ToolFailure
from ..store.idempotency import hash_request
from ..store.jobs import Claimed, JobEnd, JobRow, JobRows
from ..store.vault import Vault
from ..system.tasks import Background
from .attempts import Attempts, Elsewhere, Lost, SavedCallRunner, job_of, open_row, progress_of, row_of, row_of_saved
from .job import Job, Status, Work, no_such_job, seconds_for, still_works
from .queue import QueueWatcher
from .run import JobPeer, Run, both, new_job, working
from .settings import JobLimits

_logger = logging.getLogger(__name__)

_TEND_SECONDS: Final = 0.25
"""Interval of writing job reports and of checking for cancellations."""
_POLL_SECONDS: Final = 0.1
"""Between two looks at a job that another process carries."""
_MAX_WORKING_JOBS: Final = 64
"""Jobs that one process carries at a time."""
_STOPPED_RESULT: Final = ToolResult.failed(
    "cancelled", "the job was cancelled before it ended; it may have run in part", hint="check its effects"
)
_NEVER_BEGAN_RESULT: Final = ToolResult.failed("cancelled", "the job was cancelled before it began")
_BROKEN_RESULT: Final = ToolResult.failed("internal", "the job ended without a result; the log has the reason")


class DurableJobs:
    """Durable jobs: accepts them, and runs them when the limits let this process work. One for a crib, on its loop.

    A job that another process carries is followed in the store, by looks every 0.1 s while a caller waits for it.
    """

    def __init__(
        self,
        notify: Callable[[Job], None],
        limits: JobLimits,
        *,
        rows: JobRows,
        vault: Vault,
        runner: SavedCallRunner,
    ) -> None:
        """`notify` receives jobs as in `InProcessJobs`; `runner` makes calls again."""
        self._notify = notify
        self._limits = limits
        self._rows = rows
        self._vault = vault
        self._runner = runner
        self._attempts = Attempts(rows, runner, limits)
        self._queue = QueueWatcher(rows, limits, self._room, self._start_claimed, self._check_followed)
        self._tasks = Background()
        self._work: Work | None = None
        self._is_draining = False
        self._runs: dict[str, Run] = {}
        self._accepted: dict[str, tuple[Job, Listener | None]] = {}
        """Jobs that wait in the queue since this process accepted them, each with its listener here."""
        self._followed_ids: set[str] = set()
        """Of them, those that another process carries."""
        self._change_event = anyio.Event()
        """Set when a run begins, and then replaced."""

    async def open(self, work: Work) -> None:
        """Begin; `work` carries out a call. What was left is taken up."""
        self._work = work
        await self._tasks.start()
        self._tasks.spawn(self._write_reports)
        self._tasks.spawn(self._queue.watch)

    async def drain(self, seconds: float) -> None:
        """Take no further jobs from the queue, and wait at most `seconds` for running ones. `close` comes next."""
        self._is_draining = True
        with anyio.move_on_after(seconds):
            for run in tuple(self._runs.values()):
                await run.left.wait()

    async def close(self) -> None:
        """Leave repeatable and waiting jobs to the next process; cancel the rest, and wait for their records."""
        self._work = None
        runs = tuple(self._runs.values())
        for run in runs:
            run.scope.cancel("the crib is closed")
        for run in runs:
            await run.left.wait()
        await self._tasks.stop()

    def look_again(self) -> None:
        """Take note that there may be tools now that were not there."""
        self._queue.look_again()

    @property
    def works(self) -> bool:
        """Whether this process runs jobs, or has accepted some that it will run."""
        is_waited_for = self._limits.work and not self._accepted.keys() <= self._followed_ids
        return is_waited_for or any(run.is_job and run.job.result is None for run in self._runs.values())

    @property
    def age(self) -> float:
        """For how many seconds a job is kept once it has ended."""
        return self._limits.age

    def room(self, principal: str) -> bool:
        """Whether this principal may start another job in this process."""
        return self._work is not None and working(self._runs.values(), principal) < self._limits.working

    async def start(self, call: Call) -> str:
        """Begin: in the queue where the caller wants it in the background, else here and now.

        Raises `ToolFailure`: `overloaded`, `unavailable`, or `storage` for one that cannot be written down.
        """
        if self._work is None:
            raise ToolFailure("unavailable", "no job can start: Toolcrib is closing")
        job = new_job(call)
        if call.options.background:
            await self._accept(call, job, self._work)
        else:
            self._begin(call, job, self._work)
        return job.id

    async def submit(self, saved: SavedCall, tool: Tool, treat_as_write: Collection[str] = ()) -> str:
        """Accept a call that no caller waits for; return the id of the job. Its decision is made when it runs.

        Raises `ToolFailure`: `overloaded`, `storage`.
        """
        row = row_of_saved(saved, tool, treat_as_write, self._vault)
        await self._rows.accept(row, most=self._limits.waiting)
        self._queue.look()
        return row.id

    async def wait(self, id: str, seconds: float) -> ToolResult | None:
        """Return the result once it exists; None for a job that waits in the queue, or is still running."""
        run = self._runs.get(id)
        if run is None or run.is_job:
            return None
        with anyio.move_on_after(seconds):
            await run.ended.wait()
        return run.job.result

    async def forget(self, id: str) -> None:
        """Cancel it if it works, wait until that is recorded, and keep nothing of it."""
        with anyio.CancelScope(shield=True):
            run = self._runs.get(id)
            if run is not None:
                run.scope.cancel("the caller went away")
                await run.left.wait()
                self._runs.pop(id, None)
            elif self._accepted.pop(id, None) is not None:
                await self._rows.call_off(id, _NEVER_BEGAN_RESULT)

    async def hand_over(self, id: str) -> Job:
        """Write it down, and let its principal have it. Raises `ToolFailure("storage")`: then it is still a call."""
        if id in self._accepted:
            job, _ = self._accepted[id]
            self._notify(job)
            return job
        run = self._runs[id]
        if run.call is None:  # a job that began here as it was accepted
            self._notify(run.job)
            return run.job
        approval = run.call.approval
        row = replace(row_of(run.job, run.call, self._vault, approval), worker=self._rows.worker, attempt=1)
        with anyio.CancelScope(shield=True):  # written, announced and silenced together, or none of it
            await self._rows.accept(row, most=self._limits.waiting, approval=approval)
            run.is_job, run.row = True, row
            self._wake()
            if run.line is not None:
                run.line.cut()
            self._notify(run.job)
            if run.left.is_set():  # its call ended while the row was written
                await self._finish(run, row, run.job.result)
                self._drop(run)
        return run.job

    async def get(self, id: str, principal: str) -> Job:
        """Return the job, in any process. Raises `ToolFailure("not_found")`."""
        run = self._runs.get(id)
        if run is not None and run.is_job:
            if run.job.principal != principal:
                raise no_such_job(id)
            return run.job
        row = await self._rows.get(id, principal)
        if row is None or (row.ended is not None and row.ended < time.time() - self._limits.age):
            raise no_such_job(id)
        job = job_of(row)
        if job.result is not None and self._accepted.pop(id, None) is not None:
            self._notify(job)  # before a caller here has its result
        return job

    async def result(self, id: str, principal: str, seconds: float | None = None) -> ToolResult:
        """Wait for the result. Raises `ToolFailure`: `not_found`, or `timeout` while it works."""
        job = await self.get(id, principal)
        with anyio.move_on_after(seconds):
            while job.result is None:
                job = await self._wait_for_change(job)
        if job.result is None:
            raise ToolFailure("timeout", f"{job.tool} still works as task {id}", hint="ask again later")
        return job.result

    async def changed(self, seen: Job, seconds: float) -> Job:
        """Return the job once it differs from `seen`, or its state after `seconds`."""
        job = await self.get(seen.id, seen.principal)
        with anyio.move_on_after(seconds):
            while job == seen:
                job = await self._wait_for_change(job)
        return job

    async def cancel(self, id: str, principal: str) -> Job:
        """Cancel it wherever it is, and return it once that is recorded."""
        job = await self.get(id, principal)
        while job.result is None:
            run = self._runs.get(id)
            if run is not None:
                run.is_called_off = True
                run.scope.cancel("the job was cancelled")
                await run.left.wait()
            else:
                await self._request_cancellation(job)
                await anyio.sleep(_POLL_SECONDS)
            job = await self.get(id, principal)
        return job

    async def delete(self, id: str, principal: str) -> None:
        """Keep nothing of a job that has ended. Raises `ToolFailure`: `not_found`, or `conflict` while it works."""
        job = await self.get(id, principal)
        if job.result is None:
            raise still_works(job)
        await self._rows.remove(id)

    async def list(self, principal: str, status: Status | None = None) -> tuple[Job, ...]:
        """Return the jobs of this principal in every process, the newest first."""
        rows = await self._rows.list(principal, since=time.time() - self._limits.age)
        jobs = (run.job if (run := self._runs.get(row.id)) is not None else job_of(row) for row in rows)
        return tuple(job for job in jobs if status in (None, job.status))

    def _room(self) -> int:
        """Number of jobs that may begin here now."""
        if self._work is None or self._is_draining:
            return 0
        return _MAX_WORKING_JOBS - sum(run.is_job for run in self._runs.values())

    def _start_claimed(self, claimed: Claimed) -> None:
        """Begin a job of the queue; give it back where this process has come to close meanwhile."""
        row = claimed.row
        if self._work is None or self._is_draining:
            self._tasks.spawn(lambda: self._rows.release(row, begun=False))
            return
        job, listener = self._accepted.pop(row.id, (job_of(row), None))
        run = Run(job, self._limits.output)
        run.key = row.key if claimed.is_reserved else ""
        hear = both(run.hear, listener)

        async def make() -> ToolResult:
            if row.cancel:
                return _STOPPED_RESULT if claimed.outcome else _NEVER_BEGAN_RESULT
            try:
                sealed = open_row(row, self._vault)
            except ToolFailure as failure:
                _logger.warning("job %s waits for a process with its key: %s", row.id, failure.message)
                raise Elsewhere from failure
            run.key = sealed.saved.idempotency_key or row.key
            return await self._attempts.make(claimed, sealed, hear)

        self._begin_job(run, row, make)

    def _begin_job(self, run: Run, row: JobRow, make: Callable[[], Awaitable[ToolResult]]) -> None:
        run.is_job, run.row = True, row
        self._add(run)
        self._tasks.spawn(lambda: self._carry_out(run, row, make))

    async def _carry_out(self, run: Run, row: JobRow, make: Callable[[], Awaitable[ToolResult]]) -> None:
        """Carry out a job that this process holds."""
        try:
            result = await self._make_result(run, make)
            with anyio.CancelScope(shield=True):
                await self._finish(run, row, result)
        except Lost:
            _logger.warning("job %s went to another worker, which took this one for dead", row.id)
        except Elsewhere:
            self._queue.pass_on(row)
            await self._rows.release(row, begun=False)
        finally:
            self._drop(run)
            self._queue.make_room()

    async def _make_result(self, run: Run, make: Callable[[], Awaitable[ToolResult]]) -> ToolResult | None:
        """Return the outcome of its call; None when it was cut off."""
        with run.scope:
            try:
                return await make()
            except ToolFailure as failure:
                return ToolResult.of_failure(failure)
            except (Elsewhere, Lost):
                raise
            except Exception:  # a job that stays `working` for ever would be worse
                _logger.exception("job %s failed inside Toolcrib", run.job.id)
                return _BROKEN_RESULT
        return None

    async def _finish(self, run: Run, row: JobRow, result: ToolResult | None) -> None:
        """Record the outcome of a job, then publish it; a repeatable one is left to the next process."""
        is_cut_off = result is None or (result.error is not None and result.error.code == "cancelled")
        if is_cut_off and self._work is None and row.may_begin_again and not run.is_called_off:
            await self._rows.release(row, begun=True)
            return
        job = run.ending(result or _STOPPED_RESULT) if run.job.result is None else run.job
        try:
            is_written = await self._rows.settle(
                row, _end_of(job), key=run.key, kept=self._limits.kept, age=self._limits.age
            )
        except ToolFailure as failure:  # the store retries on its own, and until then the result is here
            _logger.warning("the end of job %s is not written yet: %s", job.id, failure.message)
            run.row, is_written = None, True
        if is_written:
            run.end(job)
            self._notify(job)

    async def _accept(self, call: Call, job: Job, work: Work) -> None:
        """Write the job down, and begin it if there is room; nothing of it runs when the caller leaves meanwhile."""
        approval = call.approval or await self._runner.vouch(call, job.id)
        has_key = call.reserved or call.target.annotations.read_only
        request = "" if has_key else hash_request(call.target.digest, call.arguments).hex()
        row = replace(row_of(job, call, self._vault, approval), request=request)
        is_ours = False
        with anyio.CancelScope(shield=True):
            is_ours = await self._rows.accept(
                row,
                most=self._limits.waiting,
                approval=approval,
                working=self._limits.working if self._limits.work and self._room() > 0 else 0,
            )
        row = replace(row, worker=self._rows.worker, attempt=1) if is_ours else row
        try:
            await checkpoint_if_cancelled()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                if is_ours:
                    await self._rows.release(row, begun=False)
                await self._rows.call_off(job.id, _NEVER_BEGAN_RESULT)
            raise
        if is_ours:
            self._begin_accepted(call, job, row, work)
        else:
            self._accepted[job.id] = (job, call.client.listener)
            self._queue.look()

    def _begin_accepted(self, call: Call, job: Job, row: JobRow, work: Work) -> None:
        """Carry out a call that was granted a moment ago; only a further attempt is made from what is stored."""
        run = Run(job, self._limits.output)
        run.key = call.options.idempotency_key or row.key
        hear = both(run.hear, call.client.listener)
        live = call.evolve(
            peer=None,
            listener=hear,
            job_seconds=seconds_for(call, self._limits),
            is_stored=True,
            idempotency_key=run.key,
            reserved=not call.target.annotations.read_only,
        )

        async def make() -> ToolResult:
            results: list[ToolResult] = []
            await work(live, results.append)
            return await self._attempts.continue_attempts(
                row, results[0] if results else _BROKEN_RESULT, self._vault, hear
            )

        self._begin_job(run, row, make)

    def _begin(self, call: Call, job: Job, work: Work) -> None:
        line = JobPeer(call.client.peer) if call.client.peer is not None else None
        run = Run(job, self._limits.output, line)
        run.call = call
        listener = both(run.hear, call.client.listener)
        live = call.evolve(peer=line, listener=listener, job_seconds=seconds_for(call, self._limits))
        self._add(run)
        self._tasks.spawn(lambda: self._carry_out_here(run, live, work))

    async def _carry_out_here(self, run: Run, call: Call, work: Work) -> None:
        """Carry out a call that began in front of its caller, and may be a job before it ends."""
        results: list[ToolResult] = []
        try:
            with run.scope:
                await work(call, results.append)
        finally:
            with anyio.CancelScope(shield=True):
                result = results[0] if results else _BROKEN_RESULT
                if run.row is not None:
                    await self._finish(run, run.row, result)
                    self._drop(run)
                else:
                    run.settle(result)
                    run.leave()

    async def _check_followed(self) -> bool:
        """Look at the jobs that were accepted here and wait or work elsewhere, and report their end; false for none."""
        if not self._accepted:
            return False
        marks = await self._rows.open()
        others = {mark.id for mark in marks if mark.worker not in ("", self._rows.worker)}
        self._followed_ids = others & self._accepted.keys()
        for id in self._accepted.keys() - {mark.id for mark in marks}:
            row = await self._rows.get(id, None)
            if (row is None or row.ended is not None) and self._accepted.pop(id, None) is not None and row is not None:
                self._notify(job_of(row))
        return True

    async def _request_cancellation(self, job: Job) -> None:
        """Ask the job's worker to stop; one that waits has ended now, and is recorded as never made."""
        await self._rows.hand_on()
        row = await self._rows.get(job.id, job.principal)
        if row is None or not await self._rows.call_off(job.id, _NEVER_BEGAN_RESULT):
            return
        if row.attempt < 2:  # without effect where an attempt was recorded
            with suppress(ToolFailure):  # of a call that another key sealed nothing is known to record
                await self._runner.note(open_row(row, self._vault).saved, _NEVER_BEGAN_RESULT)
        self._accepted.pop(job.id, None)
        self._notify(await self.get(job.id, job.principal))

    async def _wait_for_change(self, job: Job) -> Job:
        """Return the job after its next change here, or as another process has it a moment later."""
        run = self._runs.get(job.id)
        if run is not None:
            await run.changed.wait()
            if run.job.result is not None and run.is_job:
                return run.job
        else:
            with anyio.move_on_after(_POLL_SECONDS):
                await self._change_event.wait()
        return await self.get(job.id, job.principal)

    def _add(self, run: Run) -> None:
        """Add a run; waiters for its job receive its reports from now on."""
        self._runs[run.job.id] = run
        self._wake()

    def _wake(self) -> None:
        self._change_event.set()
        self._change_event = anyio.Event()

    def _drop(self, run: Run) -> None:
        """Remove a run whose end is stored; its waiters read the store."""
        if run.row is not None:
            self._runs.pop(run.job.id, None)
        run.leave()

    async def _write_reports(self) -> None:
        """Write job reports, and stop jobs that were cancelled elsewhere. Idle while nothing runs."""
        written: dict[str, tuple[str, str]] = {}
        while True:
            while not any(run.row is not None for run in self._runs.values()):
                await self._change_event.wait()
            await anyio.sleep(_TEND_SECONDS)
            try:
                written = await self._write_reports_once(written)
            except ToolFailure as failure:
                _logger.debug("job reports cannot be written now: %s", failure.message)

    async def _write_reports_once(self, written: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
        jobs = [run.job for run in self._runs.values() if run.row is not None]
        now = {job.id: (progress_of(job), job.output) for job in jobs}
        reports = [(id, *report) for id, report in now.items() if written.get(id, ("", "")) != report]
        if reports:
            await self._rows.write_reports(reports)
        for id in await self._rows.called_off():
            if (run := self._runs.get(id)) is not None:
                run.is_called_off = True
                run.scope.cancel("the job was cancelled")
        return now


def _end_of(job: Job) -> JobEnd:
    return JobEnd(
        status=job.status,
        result=job.result or _BROKEN_RESULT,
        ended=job.ended or time.time(),
        progress=progress_of(job),
        output=job.output,
    )
