"""What `sources.base.Source` promises, for every kind of source.

A kind is a function that opens a source whose tools are `echo` (returns its `text`), `fail` (fails) and `hang` (never
ends). One more kind is one more function in `KINDS`.
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from peers import scripted
from peers.api import kind_api, kind_handlers
from peers.catalog import KIND
from peers.journal import Journal
from peers.web import Request, web_peer
from rig import PATIENCE
from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.crib.definitions import read_definition
from toolcrib.errors import ToolFailure
from toolcrib.sources.base import Listing, Source
from toolcrib.sources.mcp.source import McpSource
from toolcrib.sources.mcp.spec import ServerSpec
from toolcrib.sources.python.source import PythonSource
from toolcrib.sources.rest.source import Registered, RestSource
from toolcrib.sources.yaml.implementation import Command
from toolcrib.sources.yaml.run_endpoint import EndpointRunner
from toolcrib.sources.yaml.source import YamlSource

__all__: list[str] = []

Kind = Callable[[Path], AbstractAsyncContextManager[Source]]


@asynccontextmanager
async def python(folder: Path) -> AsyncGenerator[Source]:
    def echo(text: str) -> str:
        return text

    def fail() -> str:
        raise ToolFailure("tool_error", "no way")

    async def hang() -> str:
        await anyio.sleep_forever()
        return ""

    source = PythonSource("kind")
    source.add(echo, fail, hang)
    yield source


def _mcp(spec: ServerSpec, folder: Path) -> McpSource:
    return McpSource(spec, environment=os.environ, cache_dir=folder / "cache", spill_dir=folder / "spill")


@asynccontextmanager
async def mcp_stdio(folder: Path) -> AsyncGenerator[Source]:
    journal = Journal(folder / "journal")
    yield _mcp(scripted(journal.path, name="kind"), folder)
    journal.close()


@asynccontextmanager
async def mcp_http(folder: Path) -> AsyncGenerator[Source]:
    async def echo(request: Request) -> None:
        await request.text(request.message["params"]["arguments"]["text"])

    async def fail(request: Request) -> None:
        await request.error(-32000, "no way")

    async def hang(request: Request) -> None:
        await anyio.sleep_forever()

    async with web_peer(tools={"echo": echo, "fail": fail, "hang": hang}) as web:
        yield _mcp(web.spec, folder)


@asynccontextmanager
async def openapi(folder: Path) -> AsyncGenerator[Source]:
    async with kind_api() as source:
        yield source


@asynccontextmanager
async def yaml(folder: Path) -> AsyncGenerator[Source]:
    path = folder / "kind.yaml"
    path.write_text(KIND, encoding="utf-8")
    yield YamlSource("kind", path)


@asynccontextmanager
async def rest(folder: Path) -> AsyncGenerator[Source]:
    async with kind_handlers() as running:
        source = RestSource("kind")
        for name, method in (("echo", "POST"), ("fail", "POST"), ("hang", "GET")):
            endpoint = {"url": f"{running.origin}/{name}", "method": method, "allow_private": True}
            given = {"name": name, "implementation": {"endpoint": endpoint}}
            read = read_definition("kind", given, over_rest=False, commands=False)
            assert not isinstance(read.how, Command)
            runner = EndpointRunner(read.how)
            source.put(Registered(tool=read.tool, run=runner, closing=runner))
        yield source


KINDS: dict[str, Kind] = {
    "python": python,
    "mcp over stdio": mcp_stdio,
    "mcp over HTTP": mcp_http,
    "openapi": openapi,
    "yaml": yaml,
    "registered": rest,
}


_PEERS = ("anyio.abc._sockets", "peers.web")
"""Tasks of the server at the far end, which ends after us."""


class Opened:
    """A source that is open, and what it published."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.listings: list[Listing] = []

    async def call(self, name: str, seconds: float = PATIENCE, **arguments: Any) -> ToolResult:
        tool = next(tool for tool in self.listings[-1].tools if tool.name == name)
        context = Context(call_id="c", session_key="s", principal="local", deadline=time.monotonic() + seconds)
        with anyio.move_on_at(anyio.current_time() + seconds) as scope:
            return await self.source.call(tool, arguments, context)
        assert scope.cancelled_caught
        raise ToolFailure("timeout", "the dispatcher's own limit")


@pytest.fixture(params=KINDS)
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Opened]:
    async with KINDS[request.param](tmp_path) as source:
        opened = Opened(source)
        with anyio.fail_after(PATIENCE):
            await source.open(opened.listings.append)
            await source.ready()
        yield opened
        await source.close()


async def test_a_listing_is_published_under_the_names_of_the_source(opened: Opened) -> None:
    tools = opened.listings[-1].tools

    assert {"echo", "fail", "hang"} <= {tool.name for tool in tools}
    assert [tool.name for tool in tools] == [tool.local_name for tool in tools]
    assert {tool.source for tool in tools} == {opened.source.name}
    assert (opened.source.state.state, opened.source.state.tools) == ("ready", len(tools))


async def test_a_call_returns_its_result(opened: Opened) -> None:
    assert (await opened.call("echo", text="grüße\n")).text == "grüße\n"


async def test_a_failure_is_a_tool_failure(opened: Opened) -> None:
    with pytest.raises(ToolFailure, match="no way") as caught:
        await opened.call("fail")

    assert caught.value.code == "tool_error"


async def test_a_call_that_hangs_ends_by_its_deadline_and_harms_no_other(opened: Opened) -> None:
    results: list[str] = []

    async def neighbour() -> None:
        results.append((await opened.call("echo", text="next to it")).text)

    async with anyio.create_task_group() as group:
        group.start_soon(neighbour)
        with pytest.raises(ToolFailure) as caught:
            await opened.call("hang", 1)
        assert caught.value.code == "timeout"

    assert results == ["next to it"]
    assert (await opened.call("echo", text="after it")).text == "after it"


async def test_many_calls_run_beside_each_other(opened: Opened) -> None:
    results: dict[int, str] = {}

    async def call(number: int) -> None:
        results[number] = (await opened.call("echo", text=str(number))).text

    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(call, number)

    assert results == {number: str(number) for number in range(50)}


async def test_a_cancelled_call_leaves_the_source_usable(opened: Opened) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(opened.call, "hang")
        assert (await opened.call("echo", text="x")).text == "x"
        group.cancel_scope.cancel()

    assert (await opened.call("echo", text="y")).text == "y"


@pytest.mark.parametrize("kind", KINDS)
async def test_closing_leaves_no_task_and_may_be_repeated(kind: str, tmp_path: Path) -> None:
    async with KINDS[kind](tmp_path) as source:
        before = asyncio.all_tasks()
        opened = Opened(source)
        with anyio.fail_after(PATIENCE):
            await source.open(opened.listings.append)
            await source.ready()
            await opened.call("echo", text="x")
            await source.close()
            await source.close()
        left = {task.get_name() for task in asyncio.all_tasks() - before}

        assert {name for name in left if not name.startswith(_PEERS)} == set()
        assert source.state.state == "closed"
