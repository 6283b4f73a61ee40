"""Job queue of one process, and the keeper that enqueues every waiting job."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, Protocol

import anyio
from msgspec import Struct

from ..errors import ToolFailure, UsageError
from ..store.jobs import JobMark, JobRow, JobRows
from ..system.tasks import Background
from .job import JobLimits

__all__ = ["Carry", "Gone", "Keeper", "LocalQueue", "Queue", "QueuedJob", "Saw"]


class QueuedJob(Struct, frozen=True, kw_only=True):
    """A job to be had, under this claim."""

    id: str
    claim: int
    principal: str


Carry = Callable[[str, int], Awaitable[None]]
"""Carries out the job with this id, if it can be had under this claim. Never raises but when it is cancelled."""

Gone = Callable[[Collection[str]], Awaitable[Collection[str]]]
"""Returns those of these workers that have died."""


class Queue(Protocol):
    """Brings every offered job to one process that runs it; a job that is offered twice counts once.

    A process that dies with a job may leave it in the queue, or may not: its claim is void then, and the process that
    finds it offers the job anew.
    """

    async def open(self, carry: Carry, worker: str) -> None:
        """Begin to take jobs; `worker` names this process. Raises `UsageError` when that is impossible here."""
        ...

    async def offer(self, offers: Sequence[QueuedJob]) -> None:
        """Let jobs be had."""
        ...

    async def tidy(self, gone: Gone) -> None:
        """Release the jobs of dead workers, and forget ended ones. Called periodically."""
        ...

    async def close(self) -> None:
        """Take no further job; return when every carrying has returned."""
        ...


class LocalQueue:
    """Carries everything in this process, `working` jobs of one principal at a time."""

    def __init__(self, working: int) -> None:
        self._limits = defaultdict[str, anyio.Semaphore](lambda: anyio.Semaphore(working))
        self._tasks = Background()
        self._carry: Carry | None = None
        self._offered: set[tuple[str, int]] = set()

    async def open(self, carry: Carry, worker: str) -> None:
        """Begin; other processes share nothing with this queue."""
        self._carry = carry
        await self._tasks.start()

    async def offer(self, offers: Sequence[QueuedJob]) -> None:
        """Begin each as soon as its principal has room."""
        for offer in offers:
            key = (offer.id, offer.claim)
            if key not in self._offered:
                self._offered.add(key)
                self._tasks.spawn(lambda offer=offer: self._take(offer))

    async def tidy(self, gone: Gone) -> None:
        """Without effect: no other process takes from this queue."""

    async def close(self) -> None:
        """Cancel waiting jobs."""
        self._carry = None
        await self._tasks.stop()

    async def _take(self, offer: QueuedJob) -> None:
        try:
            async with self._limits[offer.principal]:
                if self._carry is not None:
                    await self._carry(offer.id, offer.claim)
        finally:
            self._offered.discard((offer.id, offer.claim))


_LOG: Final = logging.getLogger(__name__)
_IDLE_SECONDS: Final = 1.0
"""Interval of checks for waiting jobs and dead workers while the queue does not run here."""
_LOOK_SECONDS: Final = 0.25
"""Interval of checks for waiting jobs while it runs."""
_TIDY_SECONDS: Final = 5.0
"""Between two times that the queue is tidied up."""
_REST_SECONDS: Final = 10.0
"""Without a job for so long the queue is closed: DBOS polls 20 times a second, for 5 % of a core."""


Saw = Callable[[Sequence[JobMark]], Awaitable[None]]


class Keeper:
    """Starts the queue when a job needs it, maintains it, and closes it when there is none. One for a crib."""

    def __init__(
        self, rows: JobRows, limits: JobLimits, make: Callable[[], Awaitable[Queue]], carry: Carry, saw: Saw
    ) -> None:
        """`saw` receives the unfinished jobs at every look."""
        self._rows = rows
        self._limits = limits
        self._make = make
        self._carry = carry
        self._saw = saw
        self._queue: Queue | None = None
        self._opening = anyio.Lock()
        self._passed_on: set[str] = set()
        self._due: dict[str, float] = {}
        self._wake = anyio.Event()
        self._offering = 0
        """Offers on their way into the queue."""
        self._shares = False
        """Whether the queue was here: then this process takes jobs that others put into it, too."""

    async def start(self) -> Queue:
        """Return the queue, started now if it was not. Where that is impossible, this process is its own queue."""
        async with self._opening:
            if self._queue is None:
                queue = await self._make()
                try:
                    await queue.open(self._carry, self._rows.worker)
                except UsageError as error:
                    _LOG.warning("this process shares its jobs with no other: %s", error)
                    queue = LocalQueue(self._limits.working)
                    await queue.open(self._carry, self._rows.worker)
                self._queue, self._shares = queue, True
                self._due["rest"] = time.monotonic() + _REST_SECONDS
        return self._queue

    async def offer(self, row: JobRow) -> None:
        """Put a job that was accepted here into the queue."""
        await self._put([JobMark(row.id, row.principal, "", row.offered, row.claim)])

    def pass_on(self, row: JobRow) -> None:
        """Leave a job to others: this process does not have its tool."""
        self._passed_on.add(row.id)

    def look_again(self) -> None:
        """Look now: there may be tools that were not there before."""
        self._passed_on.clear()
        self._wake.set()

    async def watch(self) -> None:
        """Look after the queue until cancelled."""
        while True:
            try:
                await self._look()
                if self._queue is not None and self._is_due("tidy", _TIDY_SECONDS):
                    await self._queue.tidy(self._rows.gone)
            except ToolFailure as failure:
                _LOG.debug("jobs cannot be looked after now: %s", failure.message)
            except Exception:  # noqa: BLE001 - after any failure of the queue, the next look comes
                _LOG.exception("jobs could not be looked after")
            self._wake = anyio.Event()
            with anyio.move_on_after(_LOOK_SECONDS if self._shares else _IDLE_SECONDS):
                await self._wake.wait()

    async def close(self) -> None:
        """Take nothing from the queue any more."""
        async with self._opening:
            if self._queue is not None:
                await self._queue.close()

    async def _look(self) -> None:
        """Enqueue jobs without a worker: accepted by a gateway, or left by a dead process."""
        rows = await self._rows.open()
        await self._saw(rows)
        if not self._limits.work:
            return
        ours = ("", self._rows.worker)
        others = any(row.worker not in ours or row.offered not in ours for row in rows)
        if others and self._is_due("hand on", _IDLE_SECONDS):
            await self._rows.hand_on()
            rows = await self._rows.open()
        waiting = [row for row in rows if not row.worker and not row.offered and row.id not in self._passed_on]
        if waiting:
            await self._put(await self._rows.mark(waiting))
        elif rows and self._shares:
            await self.start()
        if rows:
            self._due["rest"] = time.monotonic() + _REST_SECONDS
        elif self._is_due("rest", _REST_SECONDS):
            await self._rest()

    async def _rest(self) -> None:
        """Close the queue until there is a job again. One of this process alone costs nothing, and stays."""
        async with self._opening:
            queue = self._queue
            if queue is None or self._offering or isinstance(queue, LocalQueue):
                return
            await queue.tidy(self._rows.gone)
            if not self._offering:
                self._queue = None
                await queue.close()

    async def _put(self, jobs: Sequence[JobMark]) -> None:
        self._offering += 1
        try:
            queue = await self.start()
            await queue.offer([QueuedJob(id=job.id, claim=job.claim, principal=job.principal) for job in jobs])
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._rows.unmark(jobs)
            raise
        finally:
            self._offering -= 1

    def _is_due(self, what: str, seconds: float) -> bool:
        """Whether the last run of `what` is that long ago; if so, it counts as run now."""
        now = time.monotonic()
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + seconds
        return True
