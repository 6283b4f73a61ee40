"""Source of a list of tools that stays the same: what the sources of agents' tools share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Tool
from toolcrib.sources.source import OwnTools

__all__ = ["ListedSource", "Run"]

Run = Callable[[Mapping[str, Any], Context], Awaitable[ToolResult]]
"""Runs one tool. Raises `ToolFailure`."""


class ListedSource(OwnTools):
    """Lists the same tools from the beginning. It holds no resources: sub-agents belong to sessions."""

    def __init__(self, name: str, tools: Sequence[Tool], run: Mapping[str, Run]) -> None:
        """`run` has what runs each tool, by its name."""
        super().__init__(name, "agent", tuple(tools))
        self._run: Final = run

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run one of them. Raises `ToolFailure`."""
        return await self._run[tool.local_name](arguments, context)
