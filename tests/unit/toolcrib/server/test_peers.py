"""Clients that we did not write, over real loopback HTTP, in every mode they have."""

from __future__ import annotations

from typing import Any, Literal

import mcp_types
import pytest
from fastmcp import Client as FastMcpClient
from mcp import Client as SdkClient

from unit.toolcrib.server.fake_backend import FakeBackend
from unit.toolcrib.server.wire_client import Site

Mode = Literal["legacy", "auto", "2026-07-28"]
MODES: tuple[Mode, ...] = ("legacy", "auto", "2026-07-28")


async def _answer(context: Any, params: Any) -> mcp_types.ElicitResult:
    return mcp_types.ElicitResult(action="accept", content={"name": "Ada"})


def _text(result: mcp_types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, mcp_types.TextContent)
    return block.text


@pytest.mark.parametrize("mode", MODES)
async def test_the_sdk_client_lists_calls_and_is_asked(site: Site, backend: FakeBackend, mode: Mode) -> None:
    async with SdkClient(site.url, mode=mode, elicitation_callback=_answer) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == list(backend.tools)
        assert _text(await client.call_tool("echo", {"text": "hi"})) == "hi"
        unknown = await client.call_tool("nonsense", {})
        assert (unknown.is_error, "Did you mean echo?" in _text(unknown)) == (True, True)
        for name, answer in (
            ("ask", "hello Ada"),
            ("ask_twice", "Ada and Ada"),
            ("wants_input", "Ada with round-1"),
        ):
            assert _text(await client.call_tool(name, {})) == answer


@pytest.mark.parametrize("mode", MODES)
async def test_the_sdk_client_hears_of_progress(site: Site, mode: Mode) -> None:
    heard: list[float] = []

    async def progress_heard(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with SdkClient(site.url, mode=mode) as client:
        assert _text(await client.call_tool("progress", {}, progress_callback=progress_heard)) == "done"
    assert heard == [1, 2, 3]


@pytest.mark.slow
async def test_the_fastmcp_client_lists_and_calls(site: Site, backend: FakeBackend) -> None:
    async with FastMcpClient(site.url) as client:
        assert [tool.name for tool in await client.list_tools()] == list(backend.tools)
        result = await client.call_tool("echo", {"text": "hi"})
        (block,) = result.content
        assert isinstance(block, mcp_types.TextContent)
        assert block.text == "hi"
