"""Abort signal of one call, for tools that do not notice a cancellation by themselves."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio

__all__ = ["Signal"]


class Signal:
    """Abort signal of a call. Lives as long as the call.

    An `async` tool is cancelled at its next pause and needs no signal. A function in a thread cannot be stopped: it
    polls `aborted`, which any thread may do. Work that outlives the call (a process, a worker) can wait for `wait`,
    which belongs to the event loop.
    """

    __slots__ = ("_event", "_outliving", "_over", "_reason", "deadline", "is_enforced", "is_starting")

    def __init__(self, deadline: float = float("inf"), *, is_enforced: bool = False) -> None:
        """`deadline` is on the clock of `time.monotonic`; from then on the signal counts as given."""
        self.deadline = deadline
        self.is_enforced = is_enforced
        """Whether the runner of the call cancels it at the deadline, so that a source need not."""
        self._reason = ""
        self._event: anyio.Event | None = None
        self._outliving = 0
        self.is_starting = False
        """Whether the call waits for the start of its source, which has not received it: nothing ran."""
        self._over: list[Callable[[], None]] = []

    @property
    def aborted(self) -> bool:
        """Whether the caller has left, the job was cancelled, or the time is up."""
        return bool(self._reason) or time.monotonic() >= self.deadline

    @property
    def reason(self) -> str:
        """`cancelled` or `timeout`; empty while the work is wanted."""
        return self._reason or ("timeout" if self.aborted else "")

    async def wait(self) -> None:
        """Return when the signal is given; never for a call that ends normally."""
        if self._event is None:
            self._event = anyio.Event()
        if self._reason:
            self._event.set()
        await self._event.wait()

    def abort(self, reason: str) -> None:
        """Give the signal; the first reason stands. The runner of the call invokes it on the event loop."""
        self._reason = self._reason or reason
        if self._event is not None:
            self._event.set()

    def outlive(self) -> Callable[[], None]:
        """Register work that outlives its call, such as a function in a thread; call the result at its end.

        Both run on the event loop.
        """
        self._outliving += 1

        def end() -> None:
            self._outliving -= 1
            while self._over and not self._outliving:
                self._over.pop()()

        return end

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call `callback` once all work has ended: now, or with the end of the last one."""
        if self._outliving:
            self._over.append(callback)
        else:
            callback()
