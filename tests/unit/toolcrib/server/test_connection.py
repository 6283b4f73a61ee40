"""One client at a pair of pipes, both eras: what goes in, what comes out, in which order."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack
from typing import Any

import anyio
import pytest

from rig import PATIENCE
from toolcrib.core.session import LOCAL
from toolcrib.mcp.jsonrpc import RpcError
from toolcrib.mcp.server.connection import Connection
from toolcrib.mcp.server.service import Service, ServiceLimits
from unit.toolcrib.server.fake_backend import FakeBackend
from unit.toolcrib.server.wire_client import CAPABLE, META, call, initialize

LIST = {"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {"_meta": META}}


class Line:
    """The client's side."""

    def __init__(self, service: Service) -> None:
        self._out, self._in = anyio.create_memory_object_stream[dict[str, Any]](100)
        self.connection = Connection(service, self._take)

    async def _take(self, message: bytes) -> None:
        assert b"\n" not in message
        await self._out.send(json.loads(message))

    async def send(self, message: Mapping[str, Any] | bytes) -> None:
        await self.connection.feed(message if isinstance(message, bytes) else json.dumps(message).encode())

    async def next(self) -> dict[str, Any]:
        with anyio.fail_after(PATIENCE):
            return await self._in.receive()

    async def ask(self, message: Mapping[str, Any] | bytes) -> dict[str, Any]:
        await self.send(message)
        return await self.next()

    def left(self) -> int:
        return self._in.statistics().current_buffer_used

    def close(self) -> None:
        self._out.close()
        self._in.close()


@pytest.fixture
async def line(backend: FakeBackend) -> AsyncGenerator[Line]:
    async with Service(backend, profile="adaptive", mode="cautious") as service:
        one = Line(service)
        async with one.connection:
            yield one
        one.close()


async def test_a_handshake_client_lists_and_calls(line: Line, backend: FakeBackend) -> None:
    assert (await line.ask(initialize()))["result"]["protocolVersion"] == "2025-11-25"
    await line.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert len((await line.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}))["result"]["tools"]) > 3
    answer = await line.ask(call("echo", {"text": "hi"}, id="c"))
    assert (answer["id"], answer["result"]["content"][0]["text"]) == ("c", "hi")
    assert backend.seen[0].principal == "local"


async def test_a_stateless_client_needs_no_handshake(line: Line) -> None:
    discovered = await line.ask({"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": META}})
    assert discovered["result"]["supportedVersions"] == ["2026-07-28"]
    assert (await line.ask(LIST))["result"]["resultType"] == "complete"
    assert (await line.ask(call("echo", {"text": "x"}, _meta=META)))["result"]["resultType"] == "complete"


async def test_discovery_alone_does_not_decide_the_era(line: Line) -> None:
    await line.ask({"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": META}})
    assert "result" in await line.ask(initialize())


async def test_the_eras_do_not_mix_on_one_connection(line: Line) -> None:
    await line.ask(initialize())
    assert (await line.ask(LIST))["error"]["code"] == -32600
    assert (await line.ask(initialize()))["error"]["code"] == -32600


async def test_a_handshake_on_a_stateless_connection_is_told_what_is_served(line: Line) -> None:
    await line.ask(LIST)
    error = (await line.ask(initialize()))["error"]
    assert (error["code"], error["data"]) == (-32022, {"supported": ["2026-07-28"], "requested": "2025-11-25"})
    assert (await line.ask({"jsonrpc": "2.0", "id": 1, "method": "ping"}))["error"]["code"] == -32601
    assert (await line.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}))["error"]["code"] == -32602


async def test_requests_before_the_handshake_are_told_to_begin_with_it(line: Line) -> None:
    assert (await line.ask({"jsonrpc": "2.0", "id": 1, "method": "ping"}))["result"] == {}
    error = (await line.ask({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}))["error"]
    assert (error["code"], "initialize" in error["message"]) == (-32600, True)
    assert (await line.ask({"jsonrpc": "2.0", "id": 3, "method": "server/discover"}))["error"]["code"] == -32602


async def test_two_stateless_clients_have_a_conversation_each(backend: FakeBackend) -> None:
    """What the user of one answers, and what strangers told one, is nothing to the other."""
    async with Service(backend, profile="adaptive", mode="cautious") as service:
        lines = Line(service), Line(service)
        for one in lines:
            async with one.connection:
                for _ in range(2):
                    await one.ask(call("echo", {"text": "x"}, _meta=META))
            one.close()
    first, again, other, _ = (seen.key for seen in backend.seen)
    assert first == again
    assert len({first, other, ""}) == 3


async def test_a_bad_line_is_answered_and_the_next_one_works(line: Line) -> None:
    assert (await line.ask(b'{"jsonrpc": '))["error"]["code"] == -32700
    assert (await line.ask(b"[]"))["error"]["code"] == -32600
    assert "result" in await line.ask(initialize())


async def test_calls_run_beside_each_other_and_a_slow_one_holds_up_nothing(line: Line, backend: FakeBackend) -> None:
    await line.ask(initialize())
    await line.send(call("wait", id=1))
    assert (await line.ask(call("echo", {"text": "quick"}, id=2)))["id"] == 2
    backend.release.set()
    assert (await line.next())["id"] == 1


async def test_a_cancelled_call_is_never_answered(line: Line, backend: FakeBackend) -> None:
    await line.ask(initialize())
    await line.send(call("wait", id=1))
    await backend.waiting.wait()
    await line.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    with anyio.fail_after(PATIENCE):
        await backend.cancelled.wait()
    assert (await line.ask({"jsonrpc": "2.0", "id": 2, "method": "ping"}))["id"] == 2
    assert line.left() == 0


async def test_an_id_that_is_still_running_is_refused(line: Line, backend: FakeBackend) -> None:
    await line.ask(initialize())
    await line.send(call("wait", id=1))
    await backend.waiting.wait()
    assert (await line.ask(call("echo", id=1)))["error"]["code"] == -32600


async def test_progress_comes_before_the_result(line: Line) -> None:
    await line.ask(initialize())
    await line.send(call("progress", _meta={"progressToken": 7}))
    messages = [await line.next() for _ in range(4)]
    assert [message.get("method", "result") for message in messages] == ["notifications/progress"] * 3 + ["result"]


async def test_a_question_is_asked_and_answered_on_the_same_line(line: Line) -> None:
    await line.ask(initialize(capabilities={"elicitation": {}}))
    question = await line.ask(call("ask"))
    assert question["method"] == "elicitation/create"
    answer = {"action": "accept", "content": {"name": "Ada"}}
    done = await line.ask({"jsonrpc": "2.0", "id": question["id"], "result": answer})
    assert done["result"]["content"][0]["text"] == "hello Ada"


async def test_a_call_cancelled_while_it_asks_takes_its_question_back(line: Line) -> None:
    await line.ask(initialize(capabilities={"elicitation": {}}))
    question = await line.ask(call("ask", id=1))
    await line.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    assert await line.next() == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": question["id"]},
    }


async def test_a_stateless_client_answers_by_calling_again(line: Line) -> None:
    asked = (await line.ask(call("ask", id=1, _meta=CAPABLE)))["result"]
    (key,) = asked["inputRequests"]
    answers = {key: {"action": "accept", "content": {"name": "Ada"}}}
    retry = call("ask", id=2, _meta=CAPABLE, inputResponses=answers, requestState=asked["requestState"])
    done = await line.ask(retry)
    assert (done["id"], done["result"]["content"][0]["text"]) == (2, "hello Ada")


async def test_a_changed_list_is_told_to_a_handshake_client_unasked(line: Line, backend: FakeBackend) -> None:
    await line.ask(initialize())
    backend.add("new_tool")
    assert await line.next() == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


async def test_a_subscription_ends_when_it_is_cancelled(line: Line, backend: FakeBackend) -> None:
    wanted = {"_meta": META, "notifications": {"toolsListChanged": True}}
    listen = {"jsonrpc": "2.0", "id": "s", "method": "subscriptions/listen", "params": wanted}
    assert (await line.ask(listen))["method"] == "notifications/subscriptions/acknowledged"
    backend.add("new_tool")
    assert (await line.next())["method"] == "notifications/tools/list_changed"
    await line.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "s"}})
    await anyio.wait_all_tasks_blocked()
    backend.add("another")
    await anyio.wait_all_tasks_blocked()
    assert (line.left(), line.connection.running) == (0, 0)


async def test_leaving_the_connection_cancels_what_runs(backend: FakeBackend) -> None:
    async with Service(backend, profile="adaptive", mode="cautious") as service:
        line = Line(service)
        async with line.connection:
            await line.ask(initialize())
            await line.send(call("wait"))
            await backend.waiting.wait()
        assert backend.cancelled.is_set()
        line.close()


async def test_streams_are_counted_by_principal_and_one_principal_cannot_take_them_all(backend: FakeBackend) -> None:
    limits = ServiceLimits(streams=4, streams_per_principal=2)
    service = Service(backend, profile="adaptive", mode="cautious", limits=limits)

    def opens(stack: ExitStack, principal: str) -> bool:
        try:
            stack.enter_context(service.streaming(principal))
        except RpcError:
            return False
        return True

    with ExitStack() as stack:
        assert [opens(stack, "mallory") for _ in range(3)] == [True, True, False]
        assert [opens(stack, name) for name in ("ada", LOCAL, LOCAL)] == [True, True, False]
    with ExitStack() as stack:
        assert [opens(stack, LOCAL) for _ in range(5)] == [True] * 4 + [False]
