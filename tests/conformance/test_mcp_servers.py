"""Servers that nobody here wrote, over every transport, in both eras, behave as one."""

import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from peers import FASTMCP, SDK, script
from peers.opened import Opened, open_source
from rig import PATIENCE
from toolcrib.core.result import ToolResult
from toolcrib.mcp.client.handshake import Hint
from toolcrib.mcp.client.spec import ServerSpec, Transport
from toolcrib.sources.mcp.tool_list import Cached, ListingCache
from toolcrib.sources.source import Listing

ERAS: tuple[Hint, ...] = ("modern", "legacy")


class Client:
    takes_requests = True
    capabilities: dict[str, Any] = {}

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    async def notify(self, method: str, params: Any) -> None:
        self.heard.append((method, params))

    async def request(self, method: str, params: Any) -> Any:
        raise AssertionError(f"{method} was not asked for")


@asynccontextmanager
async def running(program: str, transport: Transport) -> AsyncGenerator[ServerSpec]:
    """Run a server and say how to reach it; over stdio every connection starts its own."""
    if transport == "stdio":
        yield script(program, "stdio")
        return
    listener = socket.create_server(("127.0.0.1", 0))
    descriptor, port = listener.fileno(), listener.getsockname()[1]
    command = [sys.executable, program, transport, str(descriptor)]
    async with await anyio.open_process(command, stdout=None, stderr=None, pass_fds=[descriptor]) as process:
        listener.close()
        path = "mcp" if transport == "http" else "sse"
        yield ServerSpec(name="peer", transport=transport, url=f"http://127.0.0.1:{port}/{path}", timeout=PATIENCE)
        process.kill()


@asynccontextmanager
async def connected(spec: ServerSpec, folder: Path, era: Hint) -> AsyncGenerator[Opened]:
    """Connect as if an earlier run had found out that the server is of `era`."""
    cache = ListingCache(folder / "cache", spec)
    cache.write(Cached(listing=Listing(tools=()), era=era))
    async with open_source(spec, folder, cache=True) as peer:
        yield peer
    kept = cache.read()
    assert kept is not None
    assert kept.era == era


@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
async def test_a_server_of_the_sdk(tmp_path: Path, transport: Transport) -> None:
    async with running(SDK, transport) as spec:
        for era in ERAS:
            client = Client()
            async with connected(spec, tmp_path, era) as peer:
                assert {"add", "count", "fail", "grow"} <= peer.tools.keys()
                assert peer.tools["add"].annotations.read_only
                assert await peer.call("add", a=1, b=2) == ToolResult.of_text("3", structured_content={"result": 3})
                assert (await peer.call("fail")).error is not None
                assert (await peer.call("count", peer=client, to=2)).text == "counted"

            token = {"progressToken": "mine", "total": 2}
            assert client.heard == [
                ("notifications/progress", {**token, "progress": step, "message": f"step {step}"}) for step in (1, 2)
            ]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_server_of_fastmcp(tmp_path: Path, transport: Transport) -> None:
    async with running(FASTMCP, transport) as spec:
        for era in ERAS:
            async with connected(spec, tmp_path, era) as peer:
                assert peer.tools.keys() == {"add", "fail"}
                result = await peer.call("add", a=1, b=2)
                assert (result.text, result.structured_content) == ("3", {"result": 3})
                failure = (await peer.call("fail")).error
                assert failure is not None
                assert "this went wrong" in failure.message


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_that_appears_later_is_offered(tmp_path: Path, era: Hint) -> None:
    async with running(SDK, "stdio") as spec, connected(spec, tmp_path, era) as peer:
        await peer.call("grow")
        await peer.until(lambda listing: any(tool.name == "late" for tool in listing.tools))
