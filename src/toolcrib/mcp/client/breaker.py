"""Circuit breaker: restarts of a server that does not start (security.md T23).

The first restart is immediate; failures wait longer and longer, with jitter; too many of them in a short time open the
breaker: nothing is tried, and calls fail at once, until a time that doubles with every further failure.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from .limits import McpLimits

__all__ = ["Breaker"]

_LONGEST_BACKOFF: Final = 10.0


class Breaker:
    """The failures of one server. Lives as long as its source."""

    def __init__(self, limits: McpLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._failures: deque[float] = deque(maxlen=limits.breaker_failures)
        self._in_a_row = 0
        self._period = 0.0
        self._until = 0.0

    @property
    def open_for(self) -> float:
        """Seconds for which nothing is tried; 0 when it is closed."""
        return max(0.0, self._until - self._clock())

    def failed(self) -> float:
        """Note a failed start and return the seconds to wait before the next."""
        now = self._clock()
        self._failures.append(now)
        self._in_a_row += 1
        limits = self._limits
        full = len(self._failures) == limits.breaker_failures
        if self._period or (full and now - self._failures[0] <= limits.breaker_window):
            self._period = min(self._period * 2, limits.breaker_open_max) if self._period else limits.breaker_open
            self._until = now + self._period
            return self._period
        delay = min(limits.backoff * 2 ** min(self._in_a_row - 1, 16), _LONGEST_BACKOFF)
        return delay * random.uniform(0.5, 1.5)

    def succeeded(self) -> None:
        """Note that the server works: forget its failures."""
        self._failures.clear()
        self._in_a_row = 0
        self._period = self._until = 0.0
