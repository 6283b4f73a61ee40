"""An MCP source in front of a real server, opened and closed around a test."""

import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from rig import PATIENCE
from toolcrib.core.context import Context, Peer
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Tool
from toolcrib.errors import ToolFailure
from toolcrib.mcp.auth.access import Access
from toolcrib.mcp.client.spec import McpLimits, ServerSpec
from toolcrib.sources.mcp.source import McpSource
from toolcrib.sources.source import Listing


class Opened:
    """A source, what it published, and the shortest way to call it."""

    def __init__(self, source: McpSource) -> None:
        self.source = source
        self.listings: list[Listing] = []
        self.published = anyio.Event()

    @property
    def tools(self) -> Mapping[str, Tool]:
        """What it offers now."""
        return {tool.name: tool for tool in self.listings[-1].tools}

    def publish(self, listing: Listing) -> None:
        """Take a listing from the source."""
        self.listings.append(listing)
        self.published.set()
        self.published = anyio.Event()

    async def until(self, condition: Callable[[Listing], bool]) -> Listing:
        """Wait for a listing that fulfils `condition`."""
        with anyio.fail_after(PATIENCE):
            while not (self.listings and condition(self.listings[-1])):
                await self.published.wait()
        return self.listings[-1]

    async def call(
        self, tool: str, /, seconds: float = PATIENCE, peer: Peer | None = None, **arguments: Any
    ) -> ToolResult:
        """Call a tool as somebody with `seconds` to wait."""
        return await self.call_as(self.tools[tool], seconds, peer, **arguments)

    async def call_as(
        self, tool: Tool, /, seconds: float = PATIENCE, peer: Peer | None = None, **arguments: Any
    ) -> ToolResult:
        """Call a tool by the definition that the caller has seen."""
        context = Context(
            call_id="c1",
            session_key="s1",
            principal="local",
            deadline=time.monotonic() + seconds,
            peer=peer,
            progress_token="mine" if peer is not None else None,
            meta={"traceparent": "00-abc-def-01", "com.example/tab": 7},
        )
        return await self.source.call(tool, arguments, context)

    async def failing(self, tool: str, /, seconds: float = PATIENCE, **arguments: Any) -> ToolFailure:
        """Call a tool that must fail, and return how."""
        with pytest.raises(ToolFailure) as caught:
            await self.call(tool, seconds, **arguments)
        return caught.value


@asynccontextmanager
async def open_source(
    spec: ServerSpec,
    folder: Path,
    *,
    limits: McpLimits | None = None,
    cache: bool = False,
    access: Access | None = None,
    waits: bool = True,
) -> AsyncGenerator[Opened]:
    """Open a source and wait until it is ready or has failed, unless the test waits for something else."""
    source = McpSource(
        spec,
        environment={**os.environ, "OUR_TOKEN": "ours alone"},
        cache_dir=folder / "cache" if cache else None,
        spool_dir=folder / "spooled",
        limits=limits,
        access=access,
    )
    opened = Opened(source)
    await source.open(opened.publish)
    try:
        if waits:
            with anyio.fail_after(PATIENCE):
                await source.ready()
        yield opened
    finally:
        await source.close()
