"""The queue of durable jobs: the rows that have no worker. Each process takes as many of them as it has room for.

Stores tell no process that a row has come, so it is looked for: every second at rest, every 50 ms for ten seconds after
a job, at once when this process accepted one or has room again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from ..errors import ToolFailure
from ..store.jobs import Claimed, JobRow, JobRows
from .settings import JobLimits

_logger = logging.getLogger(__name__)
_IDLE_POLL_SECONDS: Final = 1.0
"""Interval of looks for waiting jobs and for dead workers while there is nothing to do."""
_BUSY_POLL_SECONDS: Final = 0.05
"""Interval of looks for waiting jobs while there was one a moment ago: other processes accept some."""
_IDLE_AFTER_SECONDS: Final = 10.0
"""Without a job for so long a process rests: a look at PostgreSQL takes 0.4 ms of CPU."""
_FOLLOW_POLL_SECONDS: Final = 0.25
"""Interval of looks at the jobs that were accepted here and wait, or work elsewhere."""


class QueueWatcher:
    """Takes waiting jobs while there is room, and gives those of dead processes back. One for a crib."""

    def __init__(
        self,
        rows: JobRows,
        limits: JobLimits,
        room: Callable[[], int],
        carry: Callable[[Claimed], None],
        follow: Callable[[], Awaitable[bool]],
    ) -> None:
        """`room` is the number of jobs that may begin here now, and `carry` begins one.

        `follow` looks at the jobs that this process accepted; false if there are none.
        """
        self._rows = rows
        self._limits = limits
        self._room = room
        self._carry = carry
        self._follow = follow
        self._passed_on: set[str] = set()
        self._due: dict[str, float] = {}
        self._wake = anyio.Event()
        self._may_wait = True
        """Whether a job may wait that there was no room for, or that was accepted since the last look."""
        self._awake_until = 0.0

    def pass_on(self, row: JobRow) -> None:
        """Leave a job to others: this process does not have its tool, or its key."""
        self._passed_on.add(row.id)

    def look_again(self) -> None:
        """Look now: there may be tools that were not there before."""
        self._passed_on.clear()
        self.look()

    def look(self) -> None:
        """Look now: a job waits."""
        self._may_wait = True
        self._wake.set()

    def make_room(self) -> None:
        """Take note that a job has ended here."""
        if self._may_wait:
            self._wake.set()

    async def watch(self) -> None:
        """Look after the queue until cancelled."""
        while True:
            self._wake = anyio.Event()
            pause = _IDLE_POLL_SECONDS
            try:
                pause = await self._look()
            except ToolFailure as failure:
                _logger.debug("jobs cannot be looked after now: %s", failure.message)
            except Exception:  # after any failure, the next look comes
                _logger.exception("jobs could not be looked after")
            with anyio.move_on_after(pause):
                await self._wake.wait()

    async def _look(self) -> float:
        """Take what there is room for; return the seconds until the next look."""
        pause = _IDLE_POLL_SECONDS
        if self._is_due("follow", _FOLLOW_POLL_SECONDS) and await self._follow():
            pause = _FOLLOW_POLL_SECONDS
        room = self._room()
        if not self._limits.work or room < 1:
            return pause
        if self._is_due("others", _IDLE_POLL_SECONDS) and await self._rows.others():
            await self._rows.hand_on()
            self._may_wait = True
        if not self._may_wait:
            self._may_wait = await self._rows.is_waiting()
        if self._may_wait:
            taken = await self._rows.take(room, working=self._limits.working, without=self._passed_on)
            self._may_wait = taken.is_more
            if taken.jobs or taken.is_more:
                self._awake_until = time.monotonic() + _IDLE_AFTER_SECONDS
            for job in taken.jobs:
                self._carry(job)
        return min(pause, _BUSY_POLL_SECONDS) if time.monotonic() < self._awake_until else pause

    def _is_due(self, what: str, seconds: float) -> bool:
        """Whether the last run of `what` is that long ago; if so, it counts as run now."""
        now = time.monotonic()
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + seconds
        return True
