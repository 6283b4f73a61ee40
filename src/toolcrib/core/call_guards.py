"""Guards of running calls: the abort signal of each, the deadlines of all, and a watchdog of the event loop.

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

from .tool import Tool

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


class Signal:
    """Abort signal of a call. Lives as long as the call.

    An `async` tool is cancelled at its next pause and needs no signal. A function in a thread cannot be stopped: it
    polls `aborted`, which any thread may do. Work that outlives the call (a process, a worker) can wait for `wait`,
    which belongs to the event loop.

    `Execute` makes one for each call, with the deadline; `Context.signal` hands it to the source.
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


class Deadlines:
    """The scopes that are open now, and when each ends. Used from one event loop.

    The timer is set for the earliest end and left alone when that call returns in time: it finds nothing to do then
    and is set for the next. A ring of the timer looks at every open scope once.

    Owners: `Execute` for calls, `McpSource` for requests to servers, the MCP server for waiting requests. An owner uses
    it in pairs:

        scope = deadlines.open(end, signal)
        try:
            with scope:
                …
        finally:
            deadlines.close(scope)
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
    """Looks at the clock while tools run in this process. One for a crib, used from one event loop.

    A timer is due every 50 ms while a tool runs in this process. One that comes more than 100 ms late, less the time in
    which the thread waited for a processor, found the event loop blocked: the tools that run now, or ended meanwhile,
    are named in a warning. `Execute` reads `due` to give the loop a turn.
    """

    def __init__(self) -> None:
        """Start with nothing running and no timer."""
        self._running: dict[str, int] = {}
        self._ended: set[str] = set()
        self._blocked = 0.0
        """Lateness of the next check when the last of them ended."""
        self.due = math.inf
        """Deadline for the next turn of the event loop, by `time.monotonic`.

        A call that begins later gives it one: calls that never pause, one after the other, would leave it none.
        """
        self._timer: asyncio.TimerHandle | None = None
        self._waited = 0.0
        self._reported: dict[str, float] = {}

    def enter(self, tool: Tool) -> None:
        """A call of `tool` begins."""
        if tool.origin in _ELSEWHERE:
            return
        if self._timer is not None and not self._running and time.monotonic() > self.due:
            self._timer.cancel()  # its check would take the program's own work before this call for the call's
            self._look(self.due)
        self._running[tool.name] = self._running.get(tool.name, 0) + 1
        if self._timer is None:
            self._set()

    def leave(self, tool: Tool) -> None:
        """Record the end of a call. The next check reports one that stood in its way, and no code of the program.

        The timer of a call that blocked until its end runs after it: `_ended` and `_blocked` keep name and lateness for
        it.
        """
        if tool.origin in _ELSEWHERE:
            return
        left = self._running.pop(tool.name) - 1
        if left:
            self._running[tool.name] = left
        if (late := self._late(self.due)) > _STANDS:
            self._ended.add(tool.name)
            self._blocked = late

    def _set(self) -> None:
        self.due = time.monotonic() + _EVERY
        self._waited = _waited()
        self._timer = asyncio.get_running_loop().call_later(_EVERY, self._look, self.due)

    def _look(self, due: float) -> None:
        self._timer, self.due = None, math.inf
        late = self._late(due) if self._running else self._blocked
        if late > _STANDS:
            self._report(late, sorted({*self._running, *self._ended}))
        self._ended.clear()
        self._blocked = 0.0
        if self._running:
            self._set()

    def _late(self, due: float) -> float:
        late = time.monotonic() - due
        return late if late <= _STANDS else late - (_waited() - self._waited)

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
