"""Watchdog of the event loop: names the tools that ran while it stood still. A blocking `async` function stops all.

Python cannot interrupt it. The report names the tool, so that its author writes `def` for `async def`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from pathlib import Path
from typing import Final

from ..core.tool import Tool

__all__ = ["Lag"]

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

_logger: Final = logging.getLogger("toolcrib.dispatch")


class Lag:
    """Looks at the clock while tools run in this process. One for a crib, used from one event loop."""

    def __init__(self) -> None:
        """Start with nothing running and no timer."""
        self._running: Counter[str] = Counter()
        self._ended: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._waited = 0.0
        self._reported: dict[str, float] = {}

    def enter(self, tool: Tool) -> None:
        """A call of `tool` begins."""
        if tool.origin in _ELSEWHERE:
            return
        self._running[tool.name] += 1
        if self._timer is None:
            self._set()

    def leave(self, tool: Tool) -> None:
        """Record the end of a call. It may have blocked the loop, so it is remembered until the next check."""
        if tool.origin in _ELSEWHERE:
            return
        self._running[tool.name] -= 1
        self._ended.add(tool.name)

    def _set(self) -> None:
        due = time.monotonic() + _EVERY
        self._waited = _waited()
        self._timer = asyncio.get_running_loop().call_later(_EVERY, self._look, due)

    def _look(self, due: float) -> None:
        self._timer = None
        self._running = +self._running
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
