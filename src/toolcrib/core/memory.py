"""Memory budget of a crib: large contents are reserved before they are allocated, by the call that they are for.

A call has one share of the budget, which it gives back when it ends. `reserve` finds the share of the present call in
its context, so that a workspace and a connection need not know the call. Outside of calls nothing is reserved.

    Execute        with budget.share():            the share of this call, in its context
    workspace      await reserve(size)             before the bytes are read; four times as much is taken
    end            Share.__exit__                  everything is given back at once
"""

from __future__ import annotations

from collections import deque
from contextvars import ContextVar, Token
from typing import Final, Self

import anyio

from .settings import Section, Size

SMALL: Final = 1 << 20
"""Bytes of one content that are not reserved: as much as one unfinished message of a server has in memory."""
_COPIES: Final = 4
"""Bytes that one byte of a content takes while a call works on it: the bytes, the text, its parts and the result."""

_PRESENT: Final[ContextVar[Share | None]] = ContextVar("toolcrib_memory_share", default=None)


class MemorySettings(Section):
    """The key `memory`."""

    budget: Size = 512 * 1024 * 1024
    """Bytes that the large contents of all calls together may take; a call waits for its part until its deadline."""


class MemoryBudget:
    """The shares of all calls that run. One for a crib, used from one event loop. First come, first served."""

    def __init__(self, size: int) -> None:
        """`size` is in bytes; 0 means no limit."""
        self._size = size
        self._running = 0  # calls that hold a part and do not wait for more
        self._waiting: deque[tuple[int, anyio.Event]] = deque()
        self.held = 0
        """Bytes that are reserved now."""

    def share(self) -> Share:
        """Return the share of one call, to be entered while it runs: `reserve` adds to it there."""
        return Share(self)

    async def take(self, amount: int, held: int) -> int:
        """Return the bytes reserved for `amount`, no more than the whole budget, for a call that has `held` of it.

        Returns once there is room, or where each call that holds a part of the budget waits for more: no call would
        ever end otherwise.

        The queue is strictly in order: a small content behind a large one waits, too, so that no large one starves.
        """
        turn = (min(amount, self._size), anyio.Event())
        self._waiting.append(turn)
        self._running -= held > 0
        self._admit()
        try:
            if not turn[1].is_set():
                await turn[1].wait()
        except anyio.get_cancelled_exc_class():
            if turn[1].is_set():
                self._running -= 1
                self.held -= turn[0]
            else:
                self._waiting.remove(turn)
            self._running += held > 0
            self._admit()
            raise
        return turn[0]

    def give_back(self, held: int) -> None:
        """Take `held` back from a call that ends, and let the next ones in."""
        self._running -= 1
        self.held -= held
        self._admit()

    def _admit(self) -> None:
        """Let in the first of the queue while it fits, or without room where `_running` is 0: all holders wait."""
        while self._waiting and (self._running == 0 or self.held + self._waiting[0][0] <= self._size):
            amount, event = self._waiting.popleft()
            self.held += amount
            self._running += 1
            event.set()


class Share:
    """Reservation of one call. Entered while the call runs, and given back behind it.

    A call is one task and the tasks that it starts: they copy its context, and so reserve on its share.
    """

    __slots__ = ("_budget", "_held", "_token", "is_waiting")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._held = 0
        self.is_waiting = False
        """Whether the call waits for room, or did when it ended."""
        self._token: Token[Share | None] | None = None

    def __enter__(self) -> Self:
        """Begin: what is reserved from here on is reserved for this call."""
        self._token = _PRESENT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        """Give everything back."""
        if self._token is not None:
            _PRESENT.reset(self._token)
        held, self._held = self._held, 0
        if held:
            self._budget.give_back(held)

    async def add(self, size: int) -> None:
        """Reserve the memory for a content of `size` bytes; waits until there is room."""
        self.is_waiting = True
        self._held += await self._budget.take(size * _COPIES, self._held)
        self.is_waiting = False


async def reserve(size: int) -> None:
    """Reserve the memory for a content of `size` bytes, to be read or parsed, until the present call ends.

    Waits until there is room; the deadline of the call ends the wait, and the call, with `overloaded`.

    Contents of up to 1 MiB (`SMALL`) and all outside of calls are free.
    """
    share = _PRESENT.get()
    if share is not None and size > SMALL:
        await share.add(size)
