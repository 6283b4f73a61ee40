"""`crib.mount` of a server that is an object of this process: run in memory, as one behind a wire is."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal, cast

import anyio
import anyio.lowlevel
import pytest
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server import create_proxy
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from peers.serving import serving
from rig import PATIENCE, eventually
from toolcrib import Answer, Clarification, Question, Session, Toolcrib
from toolcrib.errors import UsageError

READ = {"readOnlyHint": True}


class Client:
    """A client that answers what servers ask, and hears what they say."""

    takes_requests = True
    capabilities: Mapping[str, Any] = {"elicitation": {}}

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        self.heard.append(str(params.get("message", method)))

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.heard.append(str(params["message"]))
        return {"action": "accept", "content": {"value": "Ada"}}


class Shop:
    """A server, and what happened in it."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.server = FastMCP("shop", lifespan=self._life)
        self.server.tool(self.add, annotations=READ)
        self.server.tool(self.page, annotations={**READ, "openWorldHint": True})
        self.server.tool(self.order, annotations=READ)
        self.server.tool(self.hang, annotations=READ)
        self.server.tool(self.fail)
        self.server.tool(self.grow, annotations=READ)
        self.server.resource("shop://opening")(lambda: "nine to five")

    @asynccontextmanager
    async def _life(self, server: FastMCP[Any]) -> AsyncGenerator[Mapping[str, Any]]:
        self.happened.append("entered")
        try:
            yield {}
        finally:
            await anyio.lowlevel.checkpoint()  # raises where it is cancelled
            self.happened.append("left")

    def add(self, a: int, b: int) -> int:
        return a + b

    def page(self) -> str:
        return "words of strangers"

    def fail(self) -> str:
        raise ToolError("the shop is closed")

    async def order(self, ctx: Context) -> str:
        await ctx.report_progress(1, 2, "half way")
        return str(cast("Any", await ctx.elicit("for whom?", response_type=str)).data)

    async def hang(self) -> str:
        self.happened.append("hanging")
        try:
            await anyio.sleep_forever()
        finally:
            self.happened.append("ended")
        return ""

    async def grow(self, ctx: Context) -> str:
        self.server.tool(lambda: "late", name="late")
        await ctx.session.send_tool_list_changed()
        return "grown"


@asynccontextmanager
async def _opened(shop: Shop) -> AsyncGenerator[Session]:
    async with Toolcrib(mode="autonomous") as crib:
        await crib.mount(shop.server)
        yield crib.session()


async def test_its_tools_have_its_name_and_hints_and_their_results_count_as_of_this_process() -> None:
    shop = Shop()
    async with Toolcrib() as crib:
        await crib.mount(shop.server)
        tools = {name: tool.kind for name, tool in crib.catalog.tools.items() if tool.source == "shop"}
        session = crib.session()
        result = await session.call("shop__add", {"a": 1, "b": 2})
        wrong = await session.call("shop__add", {"a": "much", "b": 2})

    assert tools == {
        **dict.fromkeys(("shop__add", "shop__page", "shop__order", "shop__hang", "shop__grow"), "read"),
        "shop__fail": "destructive",
    }
    assert (result.structured_content, result.meta["trust"]) == ({"result": 3}, "reviewed")
    assert wrong.error is not None and wrong.error.code == "invalid_arguments"


async def test_a_tool_that_declares_an_open_world_and_a_proxy_return_text_of_strangers() -> None:
    async with Toolcrib() as crib:
        await crib.mount(Shop().server)
        await crib.mount(create_proxy(Shop().server), name="far")
        results = [await crib.call(name, arguments) for name, arguments in (("shop__page", {}), ("far__page", {}))]

    assert [result.meta["trust"] for result in results] == ["untrusted"] * 2


async def test_its_lifespan_is_entered_once_and_left_when_the_crib_closes_in_the_middle_of_a_call() -> None:
    shop = Shop()
    async with _opened(shop) as session, anyio.create_task_group() as group:
        await session.call("shop__add", {"a": 1, "b": 2})
        group.start_soon(session.call, "shop__hang")
        await eventually(lambda: "hanging" in shop.happened)
        group.cancel_scope.cancel()

    assert shop.happened == ["entered", "hanging", "ended", "left"]


async def test_a_call_that_is_late_is_cancelled_in_the_server() -> None:
    shop = Shop()
    async with _opened(shop) as session:
        result = await session.call("shop__hang", timeout=0.1)
        await eventually(lambda: "ended" in shop.happened)

    assert result.error is not None and result.error.code == "timeout"


async def test_its_error_is_a_tool_error_that_the_model_reads() -> None:
    async with _opened(Shop()) as session:
        result = await session.call("shop__fail")

    assert result.error is not None
    assert (result.error.code, result.error.message) == ("tool_error", "the shop is closed")


async def test_it_reports_progress_to_the_client_of_a_call_and_asks_it() -> None:
    client = Client()
    async with _opened(Shop()) as session:
        result = await session.call("shop__order", peer=client, progress_token="1")

    assert (result.text, client.heard) == ("Ada", ["half way", "[shop] for whom?"])


class Cup(BaseModel):
    size: int
    milk: bool = False
    kind: Literal["green", "black"] = "green"


async def test_the_elicitor_of_a_session_answers_its_questions_where_no_client_calls() -> None:
    server = FastMCP("shop")
    asked: list[tuple[str, tuple[str, ...]]] = []

    @server.tool
    async def pour(ctx: Context) -> str:
        """Pour a cup."""
        cup = cast("Any", await ctx.elicit("Which cup?", response_type=Cup))
        sure = await ctx.session.elicit_form("Pour it?", {"type": "object", "properties": {}}, ctx.request_id)
        return f"{cup.data} {sure.action}"

    def answer(question: Clarification) -> str:
        asked.append((question.question, question.options))
        return {"Milk": "yes", "Kind": "black"}.get(question.question.split()[0], "no" if question.options else "3")

    async with Toolcrib(mode="autonomous") as crib, crib.session(elicitor=answer) as session:
        await crib.mount(server)
        poured = await session.call("shop__pour")

    assert poured.text == "size=3 milk=True kind='black' decline"
    assert asked == [
        ("[shop] Which cup?\n\nSize (1 of 3)", ()),
        ("Milk (2 of 3) (need not be answered) (default: no)", ("yes", "no")),
        ("Kind (3 of 3) (need not be answered) (default: green)", ("green", "black")),
        ("[shop] Pour it?", ("yes", "no")),
    ]


async def test_each_client_is_asked_for_its_own_call_when_calls_of_several_run() -> None:
    clients = [Client(), Client()]
    async with _opened(Shop()) as session, anyio.create_task_group() as group:
        for place, client in enumerate(clients):
            group.start_soon(partial(session.call, "shop__order", peer=client, progress_token=str(place)))

    assert [client.heard for client in clients] == [["half way", "[shop] for whom?"]] * 2


async def test_its_resources_are_those_of_a_session_and_a_new_tool_is_listed_once_it_says_so() -> None:
    async with _opened(Shop()) as session:
        read = await session.resources.read("shop://opening")
        await session.call("shop__grow")
        with anyio.fail_after(PATIENCE):
            while (late := await session.call("shop__late")).is_error:
                await anyio.lowlevel.checkpoint()

    assert (read.content[0]["resource"]["text"], late.text) == ("nine to five", "late")


async def test_a_large_result_is_cut_and_kept_whole_as_one_from_elsewhere() -> None:
    server = MCPServer("big")
    server.add_tool(lambda: "x" * (20 << 20), name="read", description="Read")
    async with Toolcrib(mode="autonomous") as crib:
        await crib.mount(server)
        result = await crib.call("big__read")

    assert not result.is_error and len(result.text) < 1 << 20 and "read_artifact" in result.text


async def test_the_servers_of_the_sdk_are_mounted_the_same_way_and_questions_about_their_calls_are_asked() -> None:
    server = MCPServer("clerk")
    server.add_tool(lambda: "hello", name="greet", description="Greet")
    asked: list[str] = []

    def answer(question: Question) -> Answer:
        asked.append(question.tool.name)
        return Answer(verdict="yes")

    async with Toolcrib() as crib, crib.session(approver=answer) as session:
        await crib.mount(server)
        await crib.mount(server._lowlevel_server, name="low")  # pyright: ignore[reportPrivateUsage]
        texts = [(await session.call(name)).text for name in ("clerk__greet", "low__greet")]

    assert (texts, asked) == (["hello", "hello"], ["clerk__greet", "low__greet"])


async def test_a_server_whose_lifespan_fails_is_a_problem_and_leaves_the_others_as_they_are() -> None:
    @asynccontextmanager
    async def broken(server: MCPServer[Any]) -> AsyncGenerator[None]:
        raise OSError("no database")
        yield

    async with Toolcrib() as crib:
        await crib.mount(MCPServer[Any]("broken", lifespan=broken))
        await crib.mount(Shop().server)
        result = await crib.call("shop__add", {"a": 1, "b": 2})
        problems = [problem.source for problem in crib.problems]
        details = [state.detail for state in crib.tools.sources if state.source == "broken"]

    assert (result.structured_content, problems) == ({"result": 3}, ["broken"])
    assert "no database" in details[0]


async def test_what_is_no_server_and_a_name_that_is_taken_are_refused_with_what_mount_takes() -> None:
    async with Toolcrib() as crib:
        await crib.mount(Shop().server)
        with pytest.raises(UsageError, match="a source named shop is mounted already"):
            await crib.mount(Shop().server)
        with pytest.raises(UsageError, match="or an object of FastMCP or of the MCP SDK, not int"):
            await crib.mount(5)
        with pytest.raises(UsageError, match="is not a URL of an MCP server"):
            await crib.mount("server.py")
        with pytest.raises(UsageError, match="leave `name` out"):
            await crib.mount({"mcpServers": {}}, name="shop")


async def test_a_server_by_its_url_alone_is_named_after_its_host_or_as_the_program_says() -> None:
    async with serving(Shop().server.http_app()) as origin, Toolcrib() as crib:
        await crib.mount(f"{origin}/mcp")
        await crib.mount(f"{origin}/mcp", name="shop")
        results = [await crib.call(f"{name}__add", {"a": 1, "b": 2}) for name in ("127-0-0-1", "shop")]

    assert [(one.structured_content, one.meta["trust"]) for one in results] == [({"result": 3}, "untrusted")] * 2


async def test_the_keyword_servers_takes_objects_and_urls_beside_entries_and_reports_anything_else() -> None:
    async with serving(Shop().server.http_app()) as origin:
        servers = {"here": Shop().server, "there": f"{origin}/mcp", "wrong": 5}
        async with Toolcrib(servers=servers, accept=True) as crib:
            results = [await crib.call(f"{name}__add", {"a": 1, "b": 2}) for name in ("here", "there")]
            problems = [(problem.source, problem.code) for problem in crib.problems]

    assert [one.structured_content for one in results] == [{"result": 3}] * 2
    assert problems == [("wrong", "bad_config")]
