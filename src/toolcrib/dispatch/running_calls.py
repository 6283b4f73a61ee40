"""Guards of running calls: locks, deadlines, and a watchdog of the event loop.

Calls that write the same thing run one after another. One timer of the event loop serves all deadlines:
`anyio.move_on_after` would cost a timer a call. The watchdog names the tools that ran while the event loop stood
still: a blocking `async` function, for example.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import anyio

from ..core.call import Call
from ..core.context import Signal
from ..core.json import canonical
from ..core.tool import Tool

__all__ = ["Deadlines", "Lag", "Locks", "allowed_time", "lock_keys"]


def allowed_time(call: Call) -> float:
    """Return the seconds that the call may run: its own limit, the tool's where it is known, or the session's."""
    if call.options.job_seconds is not None:
        return call.options.job_seconds
    limits = call.session.limits
    own = call.tool.execution.timeout if call.tool is not None else None
    return min(call.options.timeout or own or limits.timeout, limits.max_timeout)


class Deadlines:
    """The scopes that are open now, and when each ends. One for a crib, used from one event loop.

    The timer is set for the earliest end and left alone when that call returns in time: it finds nothing to do then
    and is set for the next. A ring of the timer looks at every open scope once.
    """

    def __init__(self) -> None:
        """Start with nothing open and no timer."""
        self._ends: dict[anyio.CancelScope, tuple[float, Signal | None]] = {}
        self._scope: Callable[[], anyio.CancelScope] = self._first_scope
        self._timer: asyncio.TimerHandle | None = None
        self._rings = math.inf

    def open(self, end: float, signal: Signal | None = None) -> anyio.CancelScope:
        """Return a scope, to be entered at once, that is cancelled at `end` on the clock of `time.monotonic`.

        `signal` is given before: work that is shielded from the cancellation receives it all the same. The scope must
        be handed to `close` when it was left, with any outcome.
        """
        scope = self._scope()
        self._ends[scope] = (end, signal)
        if end <= time.monotonic():
            scope.cancel("deadline exceeded")
        if end < self._rings:
            self._set(end)
        return scope

    def close(self, scope: anyio.CancelScope) -> None:
        """Forget `scope`; it is not cancelled any more."""
        del self._ends[scope]

    def _first_scope(self) -> anyio.CancelScope:
        """Return a scope; the others are made by its class, since anyio looks up the event loop for each of its own."""
        scope = anyio.CancelScope()
        self._scope = type(scope)
        return scope

    def _set(self, end: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings = end
        self._timer = asyncio.get_running_loop().call_later(max(0.0, end - time.monotonic()), self._ring)

    def _ring(self) -> None:
        """Cancel expired calls, and set the timer for the next one."""
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


_RESOURCE_ARGUMENTS: Final = frozenset(
    {"path", "file", "file_path", "filepath", "filename", "source", "destination", "uri", "repo_path"}
)
"""Argument names for the targets of a write when the tool does not declare them; the usual ones of MCP servers."""


def lock_keys(tool: Tool, arguments: Mapping[str, Any], cwd: Path | None = None) -> tuple[str, ...]:
    """Return the lock keys of this call's writes, and of its tool if that is serial; empty for any other read.

    A text is a key as it is, and as the path relative to `cwd`: one file has many names.
    """
    own = (f"tool:{tool.source}/{tool.local_name}",) if tool.execution.serial else ()
    if tool.annotations.read_only:
        return own
    names = tool.execution.locks or _RESOURCE_ARGUMENTS
    parts = [part for name in names for part in _values(arguments, name.split("."))]
    return tuple(sorted({*own, *(f"resource:{key}" for part in parts for key in _keys(part, cwd))}))


def _values(value: Any, steps: Sequence[str]) -> Iterator[Any]:
    """Yield the values at a dotted name, in lists too: `operations.path` is the path of every operation."""
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _values(item, steps)
    elif steps and isinstance(value, Mapping):
        yield from _values(cast("Mapping[str, Any]", value).get(steps[0]), steps[1:])
    elif not steps and value is not None:
        yield value


def _keys(value: Any, cwd: Path | None) -> Iterator[str]:
    """Yield the names by which others may mean the same; anything but text is known by its JSON."""
    if not isinstance(value, str):
        yield canonical(value).decode()
        return
    value = value.removeprefix("file://")
    if not value or "://" in value:
        yield value
        return
    path = os.path.normpath(value)
    yield path
    if cwd is not None and not os.path.isabs(path):
        yield os.path.normpath(os.path.join(cwd.absolute(), path))


class Locks:
    """All turns that are taken now. One for a crib, used from one event loop. First come, first served."""

    def __init__(self) -> None:
        """Start with nothing held."""
        self._lines: dict[str, deque[anyio.Event]] = {}

    @asynccontextmanager
    async def hold(self, keys: tuple[str, ...], signal: Signal | None = None) -> AsyncGenerator[None]:
        """Hold every key inside the block; waits for earlier holders.

        Work that registers in `signal` to outlive the block keeps the keys until it is over: a function in a thread
        that cannot be stopped would otherwise write together with the next.
        """
        held: list[str] = []
        try:
            for key in keys:
                await self._take(key)
                held.append(key)
            yield
        finally:
            if signal is None:
                self._free(held)
            else:
                signal.when_over(partial(self._free, held))

    async def _take(self, key: str) -> None:
        line = self._lines.get(key)
        if line is None:
            self._lines[key] = deque()
            return
        turn = anyio.Event()
        line.append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():  # it came in the moment of leaving
                self._free([key])
            else:
                line.remove(turn)
            raise

    def _free(self, keys: Iterable[str]) -> None:
        for key in keys:
            line = self._lines[key]
            if line:
                line.popleft().set()
            else:
                del self._lines[key]


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
