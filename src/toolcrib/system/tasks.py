"""Background work: the task group of a source or a server, and threads for functions that block.

A source is opened in one task, called from many and closed in another, so no task group of a caller can own what runs
between. A task of our own does; it lives from `start` to `stop`.

Python cannot stop a thread. A call that is cancelled leaves its function running, and gives its place to another: a
hundred hung functions block no other call. Neither the loop nor the end of the process waits for them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, Final

import anyio
import anyio.abc
from anyio import from_thread
from anyio.lowlevel import EventLoopToken, current_token

from ..core.call_guards import Signal
from ..core.from_thread import LOOP

_logger = logging.getLogger(__name__)

_MAX_THREADS: Final = 64
"""Functions that run at once: a turn of that many takes as long as one."""
_MAX_LOST_THREADS: Final = 64
"""Functions that may hang, unwanted, before others have to wait for them."""


class Background:
    """A task group with a host task. A task that fails is logged and leaves the others running.

    For one event loop: `start`, `spawn` and `stop` belong to it, and it is not started again after `stop`.
    """

    def __init__(self) -> None:
        self._group: anyio.abc.TaskGroup | None = None
        self._stopping = anyio.Event()
        self._due = deque[Callable[[], Awaitable[None]]]()
        self._woken = asyncio.Event()
        self._host: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin; must come first."""
        started = anyio.Event()
        self._host = asyncio.create_task(self._live(started), name="toolcrib background")
        await started.wait()

    def spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` beside everything else; does nothing before `start` and after `stop`."""
        if self._group is None or self._stopping.is_set():
            return
        if asyncio.current_task() is not None:
            self._group.start_soon(_guarded, work)
        else:  # a callback of the loop: where `sniffio` is installed, anyio starts no task there
            self._due.append(work)
            self._woken.set()

    async def stop(self) -> None:
        """Cancel every task and wait for them. Safe to call twice."""
        self._stopping.set()
        self._woken.set()
        if self._host is not None:
            with anyio.CancelScope(shield=True):
                await self._host
            self._host = None

    async def _live(self, started: anyio.Event) -> None:
        async with anyio.create_task_group() as group:
            self._group = group
            started.set()
            while not self._stopping.is_set():
                await self._woken.wait()
                self._woken.clear()
                while self._due:
                    group.start_soon(_guarded, self._due.popleft())
            self._group = None
            group.cancel_scope.cancel()


async def _guarded(work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except Exception:  # it is logged, and the others live on
        _logger.exception("a background task failed")


class _Job:
    """One function call, run by a worker, awaited by a task."""

    __slots__ = ("_context", "_function", "_taken", "done", "error", "is_lost", "over", "result", "token")

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._context = copy_context()
        self._taken = threading.Lock()
        self.token: EventLoopToken = current_token()
        self._context.run(LOOP.set, self.token)
        self.done = anyio.Event()
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_lost = False
        """Its place was given to another, because its caller left and it does not end."""
        self.over: Callable[[], None] | None = None

    def take(self) -> bool:
        """Begin it, or see to it that it never begins; the first request decides."""
        return self._taken.acquire(blocking=False)

    def run(self) -> None:
        if not self.take():
            return
        try:
            self.result = self._context.run(self._function)
        except BaseException as error:  # noqa: BLE001 - the waiting task raises it
            self.error = error


class Threads:
    """A pool of daemon threads, grown as needed. Used from one event loop; `close` ends the idle ones.

    AnyIO's worker threads are not daemons: the process could not end while one function hangs.
    """

    def __init__(self, size: int = _MAX_THREADS, lost: int = _MAX_LOST_THREADS) -> None:
        """At most `size` functions run at once, others wait for a place.

        A function that hangs after its call has ended gives its place to another, `lost` of them at most.
        """
        self._slots = anyio.Semaphore(size)
        self._spare = lost
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._workers = 0
        """Threads that were started."""
        self._idle = 0
        """Threads without a job, counted on the event loop."""

    async def run(self, function: Callable[[], Any], signal: Signal | None = None) -> Any:
        """Return or raise the result of `function()`; when cancelled, returns at once and lets it finish.

        `signal` is given when a function outlives its call so. One that has not begun then never begins.
        """
        await self._slots.acquire()
        job = _Job(function)
        if self._idle:
            self._idle -= 1
        else:
            self._workers += 1
            threading.Thread(target=self._work, name=f"toolcrib function {self._workers}", daemon=True).start()
        self._jobs.put(job)
        try:
            await job.done.wait()
        except BaseException:
            if not job.done.is_set() and not job.take():
                self._abandon(job, signal)
            raise
        if job.error is not None:
            raise job.error
        return job.result

    def close(self) -> None:
        """End the threads that wait for work, and the others when their function returns."""
        for _ in range(self._workers):
            self._jobs.put(None)

    def _abandon(self, job: _Job, signal: Signal | None) -> None:
        """Let a function that runs be where it is."""
        if signal is not None:
            job.over = signal.outlive()
        if self._spare:
            self._spare -= 1
            job.is_lost = True
            self._slots.release()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
            try:
                from_thread.run_sync(self._finish, job, token=job.token)
            except RuntimeError:  # the loop ended while the function ran; no task waits
                return

    def _finish(self, job: _Job) -> None:
        self._idle += 1
        if job.is_lost:
            self._spare += 1
        else:
            self._slots.release()
        if job.over is not None:
            job.over()
        job.done.set()
