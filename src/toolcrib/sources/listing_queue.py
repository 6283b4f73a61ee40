"""Large listings that are made ready beside everything else, one after the other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack

import anyio
from msgspec import Struct

from ..core.builds import build_in_slices
from ..system.tasks import Background

_logger = logging.getLogger(__name__)

Take = Callable[[], Generator[None, None, None]]
"""Begins to take a listing: in steps that change nothing, and a last one that puts it in force."""


class _Waiting(Struct, eq=False, kw_only=True):
    take: Take
    is_first: bool
    is_restarted: bool = False
    is_dropped: bool = False
    error: Exception | None = None
    done: anyio.Event
    """Set when the listing, or the one that came in its place, is in force or was given up."""


class ListingQueue:
    """The listings that wait, one a source: the newest. Used from one event loop.

    One task works through them, a slice at a time, so that ten thousand definitions stop no call. It steps a generator
    whose steps change nothing until the last: a listing that is replaced, or judged by new pins, begins again.
    """

    def __init__(self) -> None:
        self._tasks = Background()
        self._waiting: dict[str, _Waiting] = {}
        self._is_working = False
        self.is_open = False
        """Whether listings are taken here."""

    async def open(self, stack: AsyncExitStack) -> None:
        """Take listings until `stack` closes; what waits then is given up."""
        await self._tasks.start()
        stack.push_async_callback(self._close)
        self.is_open = True

    def put(self, source: str, take: Take, *, is_first: bool) -> None:
        """Take a listing of `source` in its turn, in place of an earlier one that waits.

        `is_first` says that until then the source has none in force.
        """
        before = self._waiting.get(source)
        if before is not None:
            before.take, before.is_restarted = take, True
            return
        self._waiting[source] = _Waiting(take=take, is_first=is_first, done=anyio.Event())
        if not self._is_working:
            self._is_working = True
            self._tasks.spawn(self._work)

    def restart(self) -> None:
        """Begin again with every listing that waits: what decides on it has changed."""
        for waiting in self._waiting.values():
            waiting.is_restarted = True

    def drop(self, source: str) -> None:
        """Give up what waits of `source`."""
        waiting = self._waiting.pop(source, None)
        if waiting is not None:
            waiting.is_dropped = True
            waiting.done.set()

    def __contains__(self, source: object) -> bool:
        """Whether a listing of `source` waits."""
        return source in self._waiting

    def is_first(self, source: str) -> bool:
        """Whether a listing of `source` waits and there is none in force."""
        waiting = self._waiting.get(source)
        return waiting is not None and waiting.is_first

    async def wait(self, source: str) -> Exception | None:
        """Return when no listing of `source` waits; with the reason where the last of them could not be taken."""
        error = None
        while (waiting := self._waiting.get(source)) is not None:
            await waiting.done.wait()
            error = waiting.error
        return error

    async def _work(self) -> None:
        try:
            while self._waiting:
                source, waiting = next(iter(self._waiting.items()))
                try:
                    await build_in_slices(self._steps(waiting))
                except Exception as error:
                    _logger.exception("the listing of source %s cannot be taken", source)
                    waiting.error = error
                if self._waiting.get(source) is waiting:
                    self.drop(source)
        finally:
            self._is_working = False

    def _steps(self, waiting: _Waiting) -> Generator[None, None, None]:
        """Yield after every step of the listing, begun again where it was replaced or what decides on it changed."""
        steps = waiting.take()
        while not waiting.is_dropped:
            if waiting.is_restarted:
                waiting.is_restarted = False
                steps = waiting.take()
            try:
                next(steps)
            except StopIteration:
                if not waiting.is_restarted:  # a listener of the change may have led to another
                    return
            yield

    async def _close(self) -> None:
        self.is_open = False
        await self._tasks.stop()
        for source in tuple(self._waiting):
            self.drop(source)
