"""Source of a list of tools that stays the same: what the sources of agents' tools share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from toolcrib.core.context import Context
from toolcrib.core.events import SourceState
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Tool
from toolcrib.sources.source import Listing, Publish

__all__ = ["ListedSource", "Run"]

Run = Callable[[Mapping[str, Any], Context], Awaitable[ToolResult]]
"""Runs one tool. Raises `ToolFailure`."""


class ListedSource:
    """Implements `sources.source.Source`. It holds no resources: sub-agents belong to sessions."""

    def __init__(self, name: str, tools: Sequence[Tool], run: Mapping[str, Run]) -> None:
        """`run` has what runs each tool, by its name."""
        self._name: Final = name
        self._tools: Final = tuple(tools)
        self._run: Final = run
        self._publish: Publish | None = None

    @property
    def name(self) -> str:
        """Always the same."""
        return self._name

    @property
    def state(self) -> SourceState:
        """Ready, once it is open."""
        state = "ready" if self._publish else "closed"
        return SourceState(source=self._name, kind="agent", state=state, tools=len(self._tools))

    async def open(self, publish: Publish) -> None:
        """List the tools."""
        self._publish = publish
        publish(Listing(tools=self._tools))

    async def ready(self) -> None:
        """Return at once."""

    async def close(self) -> None:
        """Be closed."""
        self._publish = None

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run one of them. Raises `ToolFailure`."""
        return await self._run[tool.local_name](arguments, context)
