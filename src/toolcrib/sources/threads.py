"""Threads for functions that block.

Python cannot stop a thread. A call that is cancelled leaves its function running, and the function keeps its place
until it ends: a hundred hung functions take at most `size` threads, and neither the loop nor the end of the process
waits for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, Final

import anyio
from anyio import from_thread
from anyio.lowlevel import EventLoopToken, current_token

__all__ = ["Threads"]

_SIZE: Final = 32


class _Job:
    """One function call, run by a worker, awaited by a task."""

    __slots__ = ("_context", "_function", "done", "error", "result", "token")

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._context = copy_context()
        self.token: EventLoopToken = current_token()
        self.done = anyio.Event()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self._context.run(self._function)
        except BaseException as error:  # noqa: BLE001 - the waiting task raises it
            self.error = error


class Threads:
    """A pool of daemon threads, grown as needed. Used from one event loop; `close` ends the idle ones."""

    def __init__(self, size: int = _SIZE) -> None:
        """At most `size` functions run at once; others wait for a place."""
        self._slots = anyio.Semaphore(size)
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._workers = 0
        self._idle = 0

    async def run(self, function: Callable[[], Any]) -> Any:
        """Return what `function()` returns or raises; when cancelled, returns at once and lets it run out."""
        await self._slots.acquire()
        job = _Job(function)
        if self._idle:
            self._idle -= 1
        else:
            self._workers += 1
            threading.Thread(target=self._work, name=f"toolcrib function {self._workers}", daemon=True).start()
        self._jobs.put(job)
        await job.done.wait()
        if job.error is not None:
            raise job.error
        return job.result

    def close(self) -> None:
        """End the threads that wait for work, and the others when their function returns."""
        for _ in range(self._workers):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
            try:
                from_thread.run_sync(self._finish, job, token=job.token)
            except RuntimeError:  # the loop ended while the function ran; nobody waits
                return

    def _finish(self, job: _Job) -> None:
        self._idle += 1
        self._slots.release()
        job.done.set()
