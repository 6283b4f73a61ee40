"""Admission of calls: limit of running calls, queue, refusals, and fair turns.

At most `running` calls run; up to `queue` wait, and the callers take turns, however many calls each has waiting. When
the queue is full the newest call of the caller with the most waiting is refused, so that a greedy caller never
displaces a modest one (security.md R11).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio


class Overloaded(Exception):
    """The call was refused without having been started; the same call may be sent again."""


class _Ticket:
    """One call that waits. `admitted` is decided before `decided` is set."""

    __slots__ = ("admitted", "decided")

    def __init__(self) -> None:
        self.decided = anyio.Event()
        self.admitted = False

    def decide(self, admitted: bool) -> None:
        self.admitted = admitted
        self.decided.set()


class Admission:
    """Counts running calls of one process. Used from one event loop.

    Each `enter` or successful `try_enter` is followed by one `leave`. `running` may exceed `limit` for a while: a call
    that comes back from `outside` does not queue again. Until enough calls have left, no other one is admitted then.
    """

    def __init__(self, *, running: int, queue: int) -> None:
        self.limit = running
        self.queue = queue
        self.running = 0
        self.waiting = 0
        self._idle = anyio.Event()
        self._lines: OrderedDict[str, deque[_Ticket]] = OrderedDict()

    def try_enter(self) -> bool:
        """Take a free place at once, if one is free and no call waits: a newcomer never overtakes one that waits."""
        if self.running >= self.limit or self.waiting:
            return False
        self.running += 1
        return True

    async def enter(self, caller: str) -> None:
        """Wait for a place, in turn with other callers. Raises `Overloaded` when the queue is full."""
        if self.try_enter():
            return
        if self.waiting >= self.queue:
            self._make_room(caller)
        ticket = _Ticket()
        self._lines.setdefault(caller, deque()).append(ticket)
        self.waiting += 1
        try:
            await ticket.decided.wait()
        except BaseException:
            self._withdraw(caller, ticket)
            raise
        if not ticket.admitted:
            raise Overloaded

    def leave(self) -> None:
        """Give a place back; the next caller in turn gets it."""
        self.running -= 1
        while self.waiting and self.running < self.limit:
            caller, line = next(iter(self._lines.items()))
            ticket = self._take(caller, line.popleft())
            if line:
                self._lines.move_to_end(caller)
            self.running += 1
            ticket.decide(True)
        if not self.running:
            self._idle.set()

    async def idle(self) -> None:
        """Return when no call runs."""
        while self.running:
            self._idle = anyio.Event()
            await self._idle.wait()

    @asynccontextmanager
    async def outside(self) -> AsyncGenerator[None]:
        """Lend the place out while a running call waits for a human; it is taken back without queueing.

        Its answer has come, and its tool is in the middle of its work: behind a full queue it could pass its timeout.
        """
        self.leave()
        try:
            yield
        finally:
            self.running += 1

    def _make_room(self, caller: str) -> None:
        """Refuse the newest waiting call of the caller with the most; the newcomer itself unless it has two fewer.

        Two, so that the exchange leaves no caller with fewer waiting calls than the newcomer's.
        """
        mine = len(self._lines.get(caller, ()))
        heaviest = max(self._lines, key=lambda other: len(self._lines[other]), default=caller)
        if len(self._lines.get(heaviest, ())) <= mine + 1:
            raise Overloaded
        self._take(heaviest, self._lines[heaviest].pop()).decide(False)

    def _take(self, caller: str, ticket: _Ticket) -> _Ticket:
        self.waiting -= 1
        if not self._lines[caller]:
            del self._lines[caller]
        return ticket

    def _withdraw(self, caller: str, ticket: _Ticket) -> None:
        if ticket.decided.is_set():
            # Cancelled between the decision and its wake-up: an admitted one holds a place that it will not use.
            if ticket.admitted:
                self.leave()
            return
        self._lines[caller].remove(ticket)
        self._take(caller, ticket)
