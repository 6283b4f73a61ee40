"""Check of a source of one's own against what the interface `toolcrib.Source` asks of it."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping
from typing import Any, Final

import anyio
from msgspec.structs import replace

from ..core.context import Context
from ..core.result import ToolResult
from ..core.tool import Tool
from ..errors import ToolFailure
from ..sources.source import Listing, Source

_AT_ONCE: Final = 20
"""Calls beside each other."""
_PAUSE: Final = 0.2
"""Seconds after which a call that hangs is cancelled."""


async def check_source(
    source: Source,
    tool: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    hangs: str = "",
    context: Context | None = None,
    seconds: float = 30.0,
) -> Listing:
    """Open a source, check it, close it, and return its first listing.

    `tool` may be called many times with `arguments`; `hangs` takes none and does not answer. The calls have `context`,
    each with an id of its own, else one without a workspace and a crib. `seconds` is the limit of each step.

    Checked are the listing and the state, calls one by one and beside each other, that a cancelled call ends and leaves
    the source usable, and that closing may be repeated.

    Raises `AssertionError` with the part of the interface that does not hold, and what a step raises.
    """
    checked = _Checked(source, context or Context(call_id="c1", session_key="test", principal="local"), seconds)
    try:
        listing = await checked.open()
        tools = {one.name: one for one in listing.tools}
        for name in filter(None, (tool, hangs)):
            _hold(name in tools, f"the source lists no tool {name!r}, only {', '.join(tools) or 'none'}")
        await checked.call(tools[tool], arguments or {})
        await checked.call_at_once(tools[tool], arguments or {})
        if hangs:
            await checked.cancel(tools[hangs])
            await checked.call(tools[tool], arguments or {})
    finally:
        await checked.step("close", source.close)
    await checked.step("close, a second time,", source.close)
    _hold(source.state.state == "closed", f"state: 'closed' after `close`, not {source.state.state!r}")
    return listing


class _Checked:
    """A source under check, and what it has published."""

    def __init__(self, source: Source, context: Context, seconds: float) -> None:
        self._source = source
        self._context = context
        self._numbers = itertools.count()
        self._seconds = seconds
        self._listings: list[Listing] = []

    async def open(self) -> Listing:
        source = self._source
        await self.step("open", lambda: source.open(self._listings.append))
        await self.step("ready", source.ready)
        _hold(self._listings, "ready returns once a listing was published: none was")
        listing = self._listings[-1]
        names = [tool.name for tool in listing.tools]
        _hold(len(names) == len(set(names)), "a listing has each name once")
        for tool in listing.tools:
            _hold(tool.local_name == tool.name, f"{tool.name!r}: `local_name` is the name, not {tool.local_name!r}")
            _hold(tool.source == source.name, f"{tool.name!r}: `source` is {source.name!r}, not {tool.source!r}")
        state = source.state
        _hold(state.source == source.name, f"state: `source` is {source.name!r}, not {state.source!r}")
        _hold(state.state == "ready", f"state: 'ready' once it has listed, not {state.state!r}")
        _hold(state.tools == len(names), f"state: `tools` counts the listing, {len(names)}, not {state.tools}")
        return listing

    async def call(self, tool: Tool, arguments: Mapping[str, Any]) -> None:
        call_id = f"{self._context.call_id}-{next(self._numbers)}"
        context = replace(self._context, call_id=call_id, deadline=time.monotonic() + self._seconds)
        try:
            result: object = await self.step(
                f"call of {tool.name!r}", lambda: self._source.call(tool, arguments, context)
            )
        except ToolFailure as failure:
            raise AssertionError(f"a call of {tool.name!r} failed: {failure.code}: {failure.message}") from failure
        _hold(isinstance(result, ToolResult), f"a call returns a ToolResult, not {type(result).__name__}")

    async def call_at_once(self, tool: Tool, arguments: Mapping[str, Any]) -> None:
        calls = (self.call(tool, arguments) for _ in range(_AT_ONCE))
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def cancel(self, tool: Tool) -> None:
        with anyio.move_on_after(_PAUSE) as scope:
            await self.call(tool, {})
        _hold(scope.cancelled_caught, f"a call of {tool.name!r} hangs until it is cancelled: it ended by itself")

    async def step(self, name: str, run: Any) -> Any:
        with anyio.move_on_after(self._seconds) as scope:
            return await run()
        _hold(not scope.cancelled_caught, f"{name} did not end within {self._seconds:g} s")
        return None


def _hold(holds: object, message: str) -> None:
    if not holds:
        raise AssertionError(message)
