"""Guards of the event loop: deadlines of running work, and a watchdog.

One timer of the event loop serves all deadlines of one owner: `anyio.move_on_after` would cost a timer and a look for
the event loop each time. The watchdog names the tools that ran while the event loop stood still: a blocking `async`
function, for example.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio

from .signal import Signal
from .tool import Tool

__all__ = ["Deadlines", "Lag"]

_EVERY: Final = 0.05
"""Seconds between two looks, while a tool runs in this process."""
_STANDS: Final = 0.1
"""Seconds late that count as standing still (security.md T37)."""
_QUIET: Final = 60.0
"""Seconds until the same tools are named again: an overloaded machine blocks repeatedly."""
_NAMED: Final = 5
"""Names in one message."""
_ELSEWHERE: Final = frozenset({"mcp", "openapi"})
"""Origins of tools that run in other processes."""
_SCHEDULED: Final = Path("/proc/thread-self/schedstat")
"""Nanoseconds on a processor, nanoseconds waited for one, turns: of the thread that reads it, on Linux."""

_logger = logging.getLogger("toolcrib.dispatch")


class Deadlines:
    """The scopes that are open now, and when each ends. Used from one event loop.

    The timer is set for the earliest end and left alone when that call returns in time: it finds nothing to do then
    and is set for the next. A ring of the timer looks at every open scope once.
    """

    def __init__(self) -> None:
        """Start with nothing open and no timer."""
        self._ends: dict[anyio.CancelScope, tuple[float, Signal | None]] = {}
        self.scope: Callable[[], anyio.CancelScope] = self._first_scope
        """Returns a scope without an end, for `watch`."""
        self._timer: asyncio.TimerHandle | None = None
        self._rings = math.inf

    def open(self, end: float, signal: Signal | None = None) -> anyio.CancelScope:
        """Return a scope, to be entered at once, that is cancelled at `end` on the clock of `time.monotonic`.

        `signal` is given before: work that is shielded from the cancellation receives it all the same. The scope must
        be handed to `close` when it was left, with any outcome.
        """
        scope = self.scope()
        self.watch(scope, end, signal)
        return scope

    def watch(self, scope: anyio.CancelScope, end: float, signal: Signal | None = None) -> None:
        """Cancel `scope` at `end`, unless it was handed to `close` before; see `open`."""
        self._ends[scope] = (end, signal)
        if end <= time.monotonic():
            scope.cancel("deadline exceeded")
        if end < self._rings:
            self._set(end)

    def close(self, scope: anyio.CancelScope) -> None:
        """Forget `scope`; it is not cancelled any more."""
        del self._ends[scope]

    def _first_scope(self) -> anyio.CancelScope:
        """Return a scope; the others are made by its class, since anyio looks up the event loop for each of its own."""
        scope = anyio.CancelScope()
        self.scope = type(scope)
        return scope

    def _set(self, end: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings = end
        self._timer = asyncio.get_running_loop().call_later(max(0.0, end - time.monotonic()), self._ring)

    def _ring(self) -> None:
        """Cancel expired work, and set the timer for the next one."""
        self._timer, self._rings = None, math.inf
        now = time.monotonic()
        for scope, (end, signal) in self._ends.items():
            if end <= now:
                if signal is not None:
                    signal.abort("timeout")
                scope.cancel("deadline exceeded")
        following = min((end for end, _ in self._ends.values() if end > now), default=math.inf)
        if following < math.inf:
            self._set(following)


class Lag:
    """Looks at the clock while tools run in this process. One for a crib, used from one event loop."""

    def __init__(self) -> None:
        """Start with nothing running and no timer."""
        self._running: dict[str, int] = {}
        self._ended: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._waited = 0.0
        self._reported: dict[str, float] = {}

    def enter(self, tool: Tool) -> None:
        """A call of `tool` begins."""
        if tool.origin in _ELSEWHERE:
            return
        self._running[tool.name] = self._running.get(tool.name, 0) + 1
        if self._timer is None:
            self._set()

    def leave(self, tool: Tool) -> None:
        """Record the end of a call. It may have blocked the loop, so it is remembered until the next check."""
        if tool.origin in _ELSEWHERE:
            return
        left = self._running.pop(tool.name) - 1
        if left:
            self._running[tool.name] = left
        self._ended.add(tool.name)

    def _set(self) -> None:
        due = time.monotonic() + _EVERY
        self._waited = _waited()
        self._timer = asyncio.get_running_loop().call_later(_EVERY, self._look, due)

    def _look(self, due: float) -> None:
        self._timer = None
        late = time.monotonic() - due - (_waited() - self._waited)
        if late > _STANDS:
            self._report(late, sorted({*self._running, *self._ended}))
        self._ended.clear()
        if self._running:
            self._set()

    def _report(self, late: float, names: list[str]) -> None:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        shown, now = ", ".join(names[:_NAMED]) + more, time.monotonic()
        self._reported = {line: when for line, when in self._reported.items() if now - when < _QUIET}
        if shown in self._reported:
            return
        self._reported[shown] = now
        _logger.warning(
            "the event loop stood still for %.2f s while these tools ran: %s; "
            "one that blocks belongs in `def` instead of `async def`",
            late,
            shown,
        )


def _waited() -> float:
    """Return the seconds that this thread waited for a processor so far: no tool is to blame for those."""
    try:
        return int(_SCHEDULED.read_bytes().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
