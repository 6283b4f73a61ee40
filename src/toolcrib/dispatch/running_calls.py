"""Locks and time of running calls: calls that write the same thing run one after another.

    Execute ── lock_keys(tool, arguments, cwd) ──► ("resource:src/a.py", "resource:/project/src/a.py")
            └─ Locks.hold(keys)                    waits until every earlier call with one of these keys has ended

The wait counts against the call's own time. Locks hold within one process only; the tool itself has to protect what
other processes write, too.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import anyio

from ..core.call import Call
from ..core.call_guards import Signal
from ..core.json import canonical
from ..core.tool import Tool

_RESOURCE_ARGUMENTS: Final = frozenset(
    {"path", "file", "file_path", "filepath", "filename", "source", "destination", "uri", "repo_path"}
)
"""Argument names for the targets of a write when the tool does not declare `execution.locks`; the usual ones of MCP
servers.
"""


def allowed_time(call: Call) -> float:
    """Return the seconds that the call may run: its own limit, the tool's where it is known, or the session's."""
    if call.options.job_seconds is not None:
        return call.options.job_seconds
    limits = call.session.limits
    own = call.tool.execution.timeout if call.tool is not None else None
    return min(call.options.timeout or own or limits.timeout, limits.max_timeout)


def lock_keys(tool: Tool, arguments: Mapping[str, Any], cwd: Path | None = None) -> tuple[str, ...]:
    """Return the lock keys of this call's writes, and of its tool if that is serial; empty for any other read.

    A text is a key as it is, and as the path relative to `cwd`: one file has many names.

    The keys are sorted, so that two calls which need the same two keys take them in the same order and cannot wait for
    each other.
    """
    own = (f"tool:{tool.source}/{tool.local_name}",) if tool.execution.serial else ()
    if tool.annotations.read_only:
        return own
    names = tool.execution.locks or [name for name in arguments if name in _RESOURCE_ARGUMENTS]
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
    """Yield the names by which others may mean the same; anything but text is known by its JSON.

    A relative path yields two keys, the second in the working directory: a call of another session may name the file by
    its absolute path. Symbolic links are not resolved, which would need the disk.
    """
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
    """All turns that are taken now. One for a crib, used from one event loop. First come, first served.

    A key is in `_lines` while it is held; its queue has the calls that wait for it. Passing a key on takes no pause in
    between: the next in line holds it from the moment in which its event is set.
    """

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
        """Pass each key to the first in its queue; forget it where none waits."""
        for key in keys:
            line = self._lines[key]
            if line:
                line.popleft().set()
            else:
                del self._lines[key]
