"""MCP tasks of both eras over HTTP: background jobs as clients see them that know tasks, and nobody else does."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest

from rig import PATIENCE
from toolcrib.config import Settings
from toolcrib.config.directories import Directories
from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Execution, Tool
from toolcrib.crib import Toolcrib
from toolcrib.errors import ToolFailure
from toolcrib.jobs.settings import JobLimits
from toolcrib.mcp.jsonrpc import Request, RpcError
from toolcrib.mcp.server.exchange import Exchange
from toolcrib.server.backend import CribBackend
from toolcrib.server.http import HttpOptions
from toolcrib.testing import ScriptedSource
from unit.toolcrib.server.wire_client import Site, call, events, serving

EXTENSION = "io.modelcontextprotocol/tasks"
DECLARED: Mapping[str, Any] = {
    "_meta": {"io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}, "elicitation": {}}}
}
Heard = Callable[[Mapping[str, Any]], None]
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
OBJECT = {"type": "object", "properties": {"call": {"type": "string"}}, "required": ["call"]}
LISTED = (
    Tool(
        name="build",
        local_name="build",
        source="make",
        execution=Execution(background_after=0.01),
        output_schema=OBJECT,
    ),
    Tool(name="fail", local_name="fail", source="make", execution=Execution(background_after=0.01)),
    Tool(name="ask", local_name="ask", source="make", execution=Execution(background_after=0.01)),
    Tool(name="tick", local_name="tick", source="make"),
    Tool(name="quick", local_name="quick", source="make"),
)


class Unheard(Exchange):
    """An exchange whose messages go nowhere."""

    async def tell(self, message: bytes) -> None: ...

    async def ask(self, message: bytes) -> None: ...

    async def answer(self, message: bytes) -> None: ...


class Bench:
    """Tools that the test lets go."""

    def __init__(self) -> None:
        self.go = anyio.Event()
        self.begun = anyio.Event()
        self.stopped = anyio.Event()
        self.runs = 0

    async def build(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        self.runs += 1
        self.begun.set()
        try:
            await self.go.wait()
        except BaseException:
            self.stopped.set()
            raise
        await context.report(1, 2, "half way")
        return ToolResult.of_text("built", structured_content={"call": context.call_id})

    async def fail(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        await self.go.wait()
        raise ToolFailure("tool_error", "no such target")

    async def ask(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        await self.go.wait()
        return ToolResult(input_required={"inputRequests": {}, "requestState": "s"})

    async def tick(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        for number in count(1):
            if self.go.is_set():
                break
            await context.report(number, message="tick")
            await anyio.sleep(0.02)
        return ToolResult.of_text("ticked")

    async def quick(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        return ToolResult.of_text("quick")


@dataclass(frozen=True, kw_only=True)
class Shop:
    """A served crib with its bench."""

    site: Site
    bench: Bench
    crib: Toolcrib

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request about tasks in the stateless era, and return result or error."""
        message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {**DECLARED, **params}}
        answer = await self.site.ask(message, name=str(params.get("taskId", "")))
        return answer.json()

    async def begin(self, tool: str = "build") -> dict[str, Any]:
        """Make a call that becomes a task, and return the answer."""
        return (await self.site.ask(call(tool, **DECLARED))).json()["result"]

    async def ended(self, task: str) -> dict[str, Any]:
        """Let the bench go, and return the task when it has ended."""
        self.bench.go.set()
        with anyio.fail_after(PATIENCE):
            while (shown := (await self.ask("tasks/get", taskId=task))["result"])["status"] == "working":
                await anyio.sleep(0.02)
        return shown

    async def forgotten(self, task: str) -> dict[str, Any]:
        """Return what is said of the task once it is not kept any more."""
        with anyio.fail_after(PATIENCE):
            while "error" not in (told := await self.ask("tasks/get", taskId=task)):
                await anyio.sleep(0.05)
        return told


Open = Callable[..., AbstractAsyncContextManager[Shop]]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """Open and serve a crib."""

    @asynccontextmanager
    async def run(**limits: Any) -> AsyncGenerator[Shop]:
        settings = Settings.of(
            Directories.of({"HOME": str(tmp_path)}),
            builtins=False,
            mode="autonomous",
            jobs=JobLimits(engine="process", **limits),
        )
        bench = Bench()
        bodies = {name: getattr(bench, name) for name in ("build", "fail", "ask", "tick", "quick")}
        async with Toolcrib(settings) as crib:
            await crib.tools.mount_source(
                ScriptedSource("make", bodies, listed=list(LISTED)), prefix=False, trusted=True
            )
            async with serving(CribBackend(crib), HttpOptions(profile="flat", mode="autonomous")) as site:
                yield Shop(site=site, bench=bench, crib=crib)

    return run


@pytest.fixture
async def shop(opened: Open) -> AsyncGenerator[Shop]:
    """A shop with default limits."""
    async with opened() as shop:
        yield shop


def without_times(task: Mapping[str, Any]) -> dict[str, Any]:
    """Check the times of a task, and take out what differs from run to run."""
    assert MOMENT.fullmatch(task["createdAt"])
    assert MOMENT.fullmatch(task["lastUpdatedAt"])
    apart = ("createdAt", "lastUpdatedAt", "_meta")
    return {key: value for key, value in task.items() if key not in apart}


async def test_a_call_that_takes_long_is_a_task_for_a_client_that_takes_tasks(shop: Shop) -> None:
    begun = await shop.begin()
    task = begun["taskId"]
    working = (await shop.ask("tasks/get", taskId=task))["result"]
    ended = await shop.ended(task)
    plain = (await shop.site.ask(call("build"))).json()["result"]

    known = {"taskId": task, "ttlMs": 86_400_000, "pollIntervalMs": 1000}
    assert without_times(begun) == {"resultType": "task", "status": "working", **known}
    assert without_times(working) == {"resultType": "complete", "status": "working", **known}
    result = ended.pop("result")
    assert without_times(ended) == {
        "resultType": "complete",
        "status": "completed",
        "statusMessage": "half way",
        **known,
    }
    assert {key: result[key] for key in ("resultType", "content", "isError")} == {
        key: plain[key] for key in ("resultType", "content", "isError")
    }
    assert result["structuredContent"]["call"] == result["_meta"]["io.toolcrib/call_id"]
    assert shop.bench.runs == 2


async def test_a_client_that_declares_nothing_never_sees_a_task(shop: Shop) -> None:
    told = (await shop.site.ask(call("fail"))).json()["result"]
    shop.bench.go.set()
    built = (await shop.site.ask(call("build"))).json()["result"]
    message = {"jsonrpc": "2.0", "id": 7, "method": "tasks/get", "params": {"taskId": "task_0"}}
    refused = (await shop.site.ask(message, name="task_0")).json()["error"]

    assert (told["resultType"], "taskId" in told) == ("complete", False)
    assert "goes on in the background as task" in told["content"][0]["text"]
    assert built["content"][0]["text"] == "built", "it was promised structured content, and waits for it"
    assert (refused["code"], refused["data"]) == (
        -32021,
        {"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
    )


async def test_a_quick_call_is_answered_at_once_also_where_an_old_client_asks_for_a_task(shop: Shop) -> None:
    answer = (await shop.site.ask(call("quick", **DECLARED, task={"ttl": 60_000}))).json()["result"]

    assert (answer["resultType"], answer["content"]) == ("complete", [{"type": "text", "text": "quick"}])


async def test_a_tool_that_fails_completes_with_an_error_and_one_that_wants_input_says_so(shop: Shop) -> None:
    failed = await shop.ended((await shop.begin("fail"))["taskId"])
    shop.bench.go = anyio.Event()
    asked = await shop.ended((await shop.begin("ask"))["taskId"])

    assert (failed["status"], failed["result"]["isError"]) == ("completed", True)
    assert failed["result"]["content"][0]["text"] == "no such target"
    assert (asked["status"], asked["result"]["isError"]) == ("completed", True)
    assert "asked for input" in asked["result"]["content"][0]["text"]


@pytest.mark.slow
async def test_a_cancelled_task_stops_its_tool_and_cancelling_again_is_acknowledged(shop: Shop) -> None:
    task = (await shop.begin())["taskId"]
    with anyio.fail_after(PATIENCE):
        await shop.bench.begun.wait()
        first = (await shop.ask("tasks/cancel", taskId=task))["result"]
        await shop.bench.stopped.wait()
    shown = (await shop.ask("tasks/get", taskId=task))["result"]
    again = (await shop.ask("tasks/cancel", taskId=task))["result"]

    assert {key: value for key, value in first.items() if key != "_meta"} == {"resultType": "complete"}
    assert again == first
    assert (shown["status"], "result" in shown, "error" in shown) == ("cancelled", False, False)


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tasks/get", {"taskId": "task_unknown"}, -32602),
        ("tasks/get", {}, -32602),
        ("tasks/cancel", {"taskId": "task_unknown"}, -32602),
        ("tasks/update", {"taskId": "task_unknown", "inputResponses": {}}, -32602),
        ("tasks/result", {"taskId": "task_unknown"}, -32601),
        ("tasks/list", {}, -32601),
    ],
)
async def test_what_is_no_task_or_no_method_is_refused(
    shop: Shop, method: str, params: dict[str, Any], code: int
) -> None:
    assert (await shop.ask(method, **params))["error"]["code"] == code


async def test_answers_that_nobody_asked_for_are_acknowledged_and_change_nothing(shop: Shop) -> None:
    task = (await shop.begin())["taskId"]
    answer = (await shop.ask("tasks/update", taskId=task, inputResponses={"x": {}}))["result"]
    broken = await shop.ask("tasks/update", taskId=task, inputResponses=[])

    assert answer["resultType"] == "complete"
    assert broken["error"]["code"] == -32602
    assert (await shop.ask("tasks/get", taskId=task))["result"]["status"] == "working"


async def test_a_header_that_names_another_task_is_refused(shop: Shop) -> None:
    task = (await shop.begin())["taskId"]
    message = {"jsonrpc": "2.0", "id": 7, "method": "tasks/get", "params": {"taskId": task, **DECLARED}}

    assert (await shop.site.ask(message, name="task_other")).json()["error"]["code"] == -32020


async def test_nobody_else_can_see_or_stop_a_task(shop: Shop) -> None:
    task = (await shop.begin())["taskId"]
    strangers = CribBackend(shop.crib).stateless_tasks("mallory", {})

    for method in ("tasks/get", "tasks/cancel", "tasks/update"):
        request = Request(id=1, method=method, params={"taskId": task, "inputResponses": {}})
        with pytest.raises(RpcError) as refusal:
            await strangers.answer(request, Unheard(anyio.CancelScope()))
        assert refusal.value.code == -32602 and repr(task) in str(refusal.value)
    assert (await shop.ask("tasks/get", taskId=task))["result"]["status"] == "working"


@pytest.mark.slow
async def test_a_task_is_kept_as_long_as_it_says(opened: Open) -> None:
    async with opened(age=0.5) as shop:
        begun = await shop.begin()
        await shop.ended(begun["taskId"])
        told = await shop.forgotten(begun["taskId"])
        assert (begun["ttlMs"], told["error"]["code"]) == (500, -32602)


@dataclass(frozen=True, kw_only=True)
class Handshake:
    """A session of the handshake era."""

    shop: Shop
    headers: Mapping[str, str]

    async def ask(self, method: str, heard: Heard | None = None, **params: Any) -> dict[str, Any]:
        """Send a request, and return result or error with what was told on the way under `told`."""
        message = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
        told: list[dict[str, Any]] = []
        async with self.shop.site.stream("POST", message, **self.headers) as response:
            if "event-stream" not in response.headers["content-type"]:
                await response.aread()
                return {**response.json(), "told": told}
            async for event in events(response):
                if event.get("id") == method:
                    return {**event, "told": told}
                told.append(event)
                if heard is not None:
                    heard(event)
        raise AssertionError("the stream ended without an answer")


@pytest.fixture
async def session(shop: Shop) -> Handshake:
    """A session of revision 2025-11-25."""
    return Handshake(shop=shop, headers=await shop.site.open())


async def test_a_client_of_the_handshake_era_asks_for_a_task_and_for_its_result(session: Handshake) -> None:
    begun = (await session.ask("tools/call", name="build", arguments={}, task={"ttl": 1000}))["result"]["task"]
    task = begun["taskId"]
    listed = (await session.ask("tasks/list"))["result"]
    session.shop.bench.go.set()
    result = (await session.ask("tasks/result", taskId=task))["result"]
    shown = (await session.ask("tasks/get", taskId=task))["result"]

    known = {"taskId": task, "ttl": 86_400_000, "pollInterval": 1000}
    assert without_times(begun) == {"status": "working", **known}
    assert listed == {"tasks": [begun]}
    assert (result["content"], result["isError"]) == ([{"type": "text", "text": "built"}], False)
    assert result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task}
    assert without_times(shown) == {"status": "completed", "statusMessage": "half way", **known}


async def test_any_tool_may_be_asked_for_as_a_task_and_the_list_says_which_take_long(session: Handshake) -> None:
    tools = (await session.ask("tools/list"))["result"]["tools"]
    begun = (await session.ask("tools/call", name="quick", arguments={}, task={}))["result"]
    result = (await session.ask("tasks/result", taskId=begun["task"]["taskId"]))["result"]

    marked = {tool["name"]: tool["execution"] for tool in tools if "execution" in tool}
    assert marked == {name: {"taskSupport": "optional"} for name in ("build", "fail", "ask")}
    assert result["content"] == [{"type": "text", "text": "quick"}]


async def test_whoever_waits_for_the_result_hears_of_progress_and_of_the_end(session: Handshake) -> None:
    meta = {"progressToken": "p"}
    begun = (await session.ask("tools/call", name="tick", arguments={}, task={}, _meta=meta))["result"]["task"]

    def heard(message: Mapping[str, Any]) -> None:
        session.shop.bench.go.set()

    with anyio.fail_after(PATIENCE):
        answer = await session.ask("tasks/result", heard, taskId=begun["taskId"])

    first = answer["told"][0]
    assert first["method"] == "notifications/progress"
    assert first["params"] == {"progressToken": "p", "progress": first["params"]["progress"], "message": "tick"}
    assert answer["result"]["content"][0]["text"] == "ticked"


async def test_a_failed_task_has_failed_and_its_result_is_that_of_the_call(session: Handshake) -> None:
    begun = (await session.ask("tools/call", name="fail", arguments={}, task={}))["result"]["task"]
    session.shop.bench.go.set()
    result = (await session.ask("tasks/result", taskId=begun["taskId"]))["result"]
    shown = (await session.ask("tasks/get", taskId=begun["taskId"]))["result"]

    assert (result["isError"], result["content"][0]["text"], shown["status"]) == (True, "no such target", "failed")


async def test_a_task_that_has_ended_cannot_be_cancelled(session: Handshake) -> None:
    begun = (await session.ask("tools/call", name="build", arguments={}, task={}))["result"]["task"]
    cancelled = (await session.ask("tasks/cancel", taskId=begun["taskId"]))["result"]
    again = await session.ask("tasks/cancel", taskId=begun["taskId"])

    assert cancelled["status"] == "cancelled"
    assert again["error"]["code"] == -32602


async def test_what_was_refused_before_it_began_is_answered_as_a_call(session: Handshake) -> None:
    answer = (await session.ask("tools/call", name="nothing", arguments={}, task={}))["result"]
    broken = await session.ask("tools/call", name="build", arguments={}, task="yes")

    assert (answer["isError"], "task" in answer) == (True, False)
    assert broken["error"]["code"] == -32602


@pytest.mark.slow
async def test_many_tasks_are_listed_in_pages(session: Handshake) -> None:
    ids = [
        (await session.ask("tools/call", name="quick", arguments={}, task={}))["result"]["task"]["taskId"]
        for _ in range(101)
    ]
    first = (await session.ask("tasks/list"))["result"]
    second = (await session.ask("tasks/list", cursor=first["nextCursor"]))["result"]
    wrong = await session.ask("tasks/list", cursor="nonsense")

    assert [task["taskId"] for task in (*first["tasks"], *second["tasks"])] == ids[::-1]
    assert (len(first["tasks"]), "nextCursor" in second) == (100, False)
    assert wrong["error"]["code"] == -32602


async def test_a_revision_without_tasks_knows_none(shop: Shop) -> None:
    response = await shop.site.open(version="2025-06-18")
    headers = {**response, "MCP-Protocol-Version": "2025-06-18"}
    old = Handshake(shop=shop, headers=headers)
    tools = (await old.ask("tools/list"))["result"]["tools"]
    answer = (await old.ask("tools/call", name="quick", arguments={}, task={}))["result"]

    assert [tool["name"] for tool in tools if "execution" in tool] == []
    assert answer["content"] == [{"type": "text", "text": "quick"}]
    assert (await old.ask("tasks/list"))["error"]["code"] == -32601
