"""The handshake era over HTTP: sessions, calls, streams, cancelling."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from rig import PATIENCE
from toolcrib.config.settings import TokenSpec
from toolcrib.mcp.server.calls import ToolCall
from toolcrib.mcp.server.service import ServiceLimits
from toolcrib.server.http import HttpOptions
from unit.toolcrib.server.conftest import Serve
from unit.toolcrib.server.fake_backend import FakeBackend, Seen
from unit.toolcrib.server.wire_client import Site, call, events, initialize, serving

LIST: Mapping[str, Any] = {"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {}}


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ],
)
async def test_the_handshake_settles_on_a_revision_that_both_know(site: Site, asked: str, answered: str) -> None:
    known: dict[str, Any] = {"tasks": {"cancel": {}, "list": {}, "requests": {"tools": {"call": {}}}}}
    tasks: dict[str, Any] = known if answered == "2025-11-25" else {}
    response = await site.post(initialize(asked))
    assert response.json()["result"] == {
        "protocolVersion": answered,
        "capabilities": {
            "logging": {},
            "tools": {"listChanged": True},
            "completions": {},
            "prompts": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
            "extensions": {"io.modelcontextprotocol/skills": {"directoryRead": True}},
            **tasks,
        },
        "serverInfo": {"name": "toolcrib", "title": "Toolcrib", "version": "0.1.0"},
        "instructions": "Call echo.",
    }
    assert response.headers["content-type"] == "application/json"
    assert len(response.headers["mcp-session-id"]) >= 32


async def test_a_handshake_without_a_revision_is_refused_and_leaves_no_session(site: Site) -> None:
    response = await site.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})
    assert response.json()["error"]["code"] == -32602
    assert "mcp-session-id" not in response.headers


async def test_a_call_is_answered_with_plain_json_and_the_call_id(site: Site) -> None:
    session = await site.open()
    response = await site.post(call("echo", {"text": "hi"}), **session)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert response.json() == {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {
            "content": [{"type": "text", "text": "hi"}],
            "isError": False,
            "_meta": {"io.toolcrib/call_id": "c1"},
        },
    }


async def test_an_unknown_tool_is_a_result_that_the_model_can_read(site: Site) -> None:
    session = await site.open()
    result = (await site.post(call("ecko"), **session)).json()["result"]
    assert result["isError"] is True
    assert result["content"][0]["text"] == "not_found: there is no tool ecko\nDid you mean echo?"
    assert result["_meta"]["io.toolcrib/error"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"method": "nonsense/method"}, -32601),
        ({"method": "server/discover"}, -32601),
        ({"method": "tools/call", "params": {"arguments": {}}}, -32602),
        ({"method": "tools/call", "params": {"name": "echo", "arguments": "x"}}, -32602),
        ({"method": "tools/call", "params": {"name": "echo", "_meta": {"progressToken": {}}}}, -32602),
        ({"method": "tools/call", "params": {"name": "echo", "_meta": {"io.toolcrib/timeout": -1}}}, -32602),
        ({"method": "tools/call", "params": {"name": "echo", "_meta": {"io.toolcrib/dryRun": "yes"}}}, -32602),
        ({"method": "tools/list", "params": {"cursor": "page-2"}}, -32602),
        ({"method": "logging/setLevel", "params": {"level": "loud"}}, -32602),
        ({"method": "initialize", "params": {}}, -32601),
    ],
)
async def test_a_request_that_cannot_be_served_gets_its_error_code(
    site: Site, message: dict[str, object], code: int
) -> None:
    session = await site.open()
    response = await site.post({"jsonrpc": "2.0", "id": "r", **message}, **session)
    assert (response.status_code, response.json()["id"], response.json()["error"]["code"]) == (200, "r", code)


async def test_a_tool_that_breaks_tells_nothing_of_its_insides(site: Site) -> None:
    session = await site.open()
    response = await site.post(call("broken"), **session)
    assert response.json()["error"] == {"code": -32603, "message": "Internal error"}


async def test_metadata_that_speaks_to_the_gateway_is_not_handed_on(site: Site, backend: FakeBackend) -> None:
    session = await site.open()
    meta = {
        "traceparent": "00-1",
        "tracestate": "a=b",
        "baggage": "k=v",
        "Authorization": "Bearer secret",
        "com.example/apiKey": "secret",
        "com.example/access_token": "secret",
        "com.example/tab": 7,
        "io.toolcrib/idempotencyKey": "k1",
        "io.toolcrib/dryRun": True,
        "io.toolcrib/timeout": 5,
    }
    headers = {**session, "X-Api-Key": "secret", "Cookie": "secret"}
    await site.post(call("echo", {"text": "x"}, _meta=meta), **headers)
    (seen,) = backend.seen
    assert seen == Seen(
        call=ToolCall(
            name="echo",
            arguments={"text": "x"},
            progress_token=None,
            meta={
                "traceparent": "00-1",
                "tracestate": "a=b",
                "baggage": "k=v",
                "com.example/tab": 7,
                "io.modelcontextprotocol/logLevel": "debug",
            },
            timeout=5.0,
            idempotency_key="k1",
            dry_run=True,
            version="",
            session_key="",
            input_responses={},
            request_state=None,
            client="test/1",
        ),
        resume=None,
        key=seen.key,
        principal="local",
        profile="adaptive",
        is_stateless=False,
    )
    assert session["Mcp-Session-Id"] not in repr(seen)


async def test_progress_turns_the_answer_into_a_stream_that_ends_with_the_result(site: Site) -> None:
    session = await site.open()
    request = call("progress", _meta={"progressToken": "p"})
    response = await site.post(request, **session)
    assert response.headers["content-type"] == "text/event-stream"
    messages = [message async for message in events(response)]
    assert [message["params"]["progress"] for message in messages[:3]] == [1, 2, 3]
    assert messages[3]["result"]["content"] == [{"type": "text", "text": "done"}]


async def test_log_messages_below_the_level_that_the_client_set_are_not_sent(site: Site) -> None:
    session = await site.open()
    before = [message async for message in events(await site.post(call("log"), **session))]
    level = {"jsonrpc": "2.0", "id": 2, "method": "logging/setLevel", "params": {"level": "warning"}}
    assert (await site.post(level, **session)).json()["result"] == {}
    after = [message async for message in events(await site.post(call("log"), **session))]
    assert [message["params"]["level"] for message in before[:-1]] == ["debug", "warning"]
    assert [message["params"]["level"] for message in after[:-1]] == ["warning"]


async def test_a_question_of_a_tool_goes_down_its_stream_and_comes_back_by_another_post(site: Site) -> None:
    session = await site.open(capabilities={"elicitation": {}})
    async with site.stream("POST", call("ask"), **session) as response:
        stream = events(response)
        question = await anext(stream)
        assert question["method"] == "elicitation/create"
        answer = {"action": "accept", "content": {"name": "Ada"}}
        reply = await site.post({"jsonrpc": "2.0", "id": question["id"], "result": answer}, **session)
        assert (reply.status_code, reply.content) == (202, b"")
        assert (await anext(stream))["result"]["content"][0]["text"] == "hello Ada"


async def test_a_client_that_refuses_to_be_asked_ends_the_call_with_a_readable_error(site: Site) -> None:
    session = await site.open(capabilities={"elicitation": {}})
    async with site.stream("POST", call("ask"), **session) as response:
        stream = events(response)
        question = await anext(stream)
        error = {"code": -1, "message": "user is away"}
        await site.post({"jsonrpc": "2.0", "id": question["id"], "error": error}, **session)
        result = (await anext(stream))["result"]
    assert result["isError"] is True
    assert "the client refused elicitation/create: user is away" in result["content"][0]["text"]


async def test_a_client_is_not_asked_for_what_it_did_not_declare(site: Site) -> None:
    session = await site.open()
    result = (await site.post(call("ask"), **session)).json()["result"]
    assert "did not declare" in result["content"][0]["text"]


async def test_a_tool_of_the_stateless_era_gets_its_input_by_elicitation(site: Site, backend: FakeBackend) -> None:
    session = await site.open(capabilities={"elicitation": {}})
    async with site.stream("POST", call("wants_input"), **session) as response:
        stream = events(response)
        question = await anext(stream)
        answer = {"action": "accept", "content": {"name": "Ada"}}
        await site.post({"jsonrpc": "2.0", "id": question["id"], "result": answer}, **session)
        assert (await anext(stream))["result"]["content"][0]["text"] == "Ada with round-1"
    assert [seen.resume for seen in backend.seen] == [
        None,
        {"inputResponses": {"who": answer}, "requestState": "round-1"},
    ]


async def test_a_cancelled_call_is_cancelled_at_the_desk_and_answered_as_cancelled(
    site: Site, backend: FakeBackend
) -> None:
    session = await site.open()
    answers: list[int] = []

    async def run() -> None:
        answers.append((await site.post(call("wait", id=8), **session)).json()["error"]["code"])

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await backend.waiting.wait()
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 8}}
            assert (await site.post(cancel, **session)).status_code == 202
            await backend.cancelled.wait()
    assert answers == [-32800]


async def test_a_session_cannot_cancel_the_call_of_another(site: Site, backend: FakeBackend) -> None:
    session, other = await site.open(), await site.open()
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            response = await site.post(call("wait", id=8), **session)
            assert response.json()["result"]["content"][0]["text"] == "waited"

        tasks.start_soon(run)
        await backend.waiting.wait()
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 8}}
        await site.post(cancel, **other)
        backend.release.set()


async def test_a_client_that_goes_away_in_the_middle_of_a_call_cancels_it(site: Site, backend: FakeBackend) -> None:
    session = await site.open()
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                await site.post(call("wait"), **session)

            tasks.start_soon(run)
            await backend.waiting.wait()
            tasks.cancel_scope.cancel()
        await backend.cancelled.wait()


def test_a_client_that_goes_away_cancels_its_call_under_asyncio_run_too() -> None:
    async def main() -> None:
        backend = FakeBackend()
        async with serving(backend, HttpOptions(port=0)) as site:
            await test_a_client_that_goes_away_in_the_middle_of_a_call_cancels_it(site, backend)

    asyncio.run(main())


async def test_an_ended_session_is_unknown_and_its_calls_are_cancelled(site: Site, backend: FakeBackend) -> None:
    session = await site.open()
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            assert (await site.post(call("wait"), **session)).json()["error"]["code"] == -32800

        tasks.start_soon(run)
        await backend.waiting.wait()
        assert (await site.client.delete(site.url, headers=session)).status_code == 204
        await backend.cancelled.wait()
    assert (await site.post(LIST, **session)).status_code == 404
    assert (await site.client.delete(site.url, headers=session)).status_code == 404


async def test_a_session_is_known_to_its_own_principal_only(serve: Serve) -> None:
    async with serve(HttpOptions(token="s3cret")) as site:
        bearer = {"Authorization": "Bearer s3cret"}
        response = await site.post(initialize(), **bearer)
        session = {"Mcp-Session-Id": response.headers["mcp-session-id"]}
        assert (await site.post(LIST, **session, **bearer)).status_code == 200
        assert (await site.post(LIST, **session)).status_code == 401
        assert (await site.post(LIST, **session, Authorization="Bearer other")).status_code == 401


async def test_requests_without_a_session_are_told_to_begin_one(site: Site) -> None:
    response = await site.post(LIST)
    assert (response.status_code, "initialize" in response.json()["error"]["message"]) == (400, True)
    assert (await site.post(LIST, Mcp_Session_Id="a" * 7000)).status_code == 404
    assert (await site.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status_code == 400


async def test_at_the_cap_the_session_that_was_idle_longest_makes_room(serve: Serve, backend: FakeBackend) -> None:
    async with serve(HttpOptions(limits=ServiceLimits(sessions=3))) as site:
        first, second, third = [await site.open() for _ in range(3)]
        assert (await site.post(LIST, **first)).status_code == 200
        fourth = await site.open()
        statuses = [(await site.post(LIST, **session)).status_code for session in (first, second, third, fourth)]
    assert statuses == [200, 404, 200, 200]


async def test_a_principal_with_many_sessions_takes_no_place_of_another_and_reaches_none(serve: Serve) -> None:
    tokens = tuple(TokenSpec(token=f"{name}-token", principal=name) for name in ("ada", "eve"))
    ada, eve = ({"Authorization": f"Bearer {one.token}"} for one in tokens)
    async with serve(HttpOptions(tokens=tokens, limits=ServiceLimits(sessions=4))) as site:
        hers = {"Mcp-Session-Id": (await site.post(initialize(), **ada)).headers["mcp-session-id"]}
        for _ in range(10):
            assert (await site.post(initialize(), **eve)).status_code == 200
        statuses = [(await site.post(LIST, **hers, **who)).status_code for who in (eve, ada)]
    assert statuses == [404, 200]


async def test_no_session_in_use_is_given_up_for_a_new_one(serve: Serve, backend: FakeBackend) -> None:
    async with serve(HttpOptions(limits=ServiceLimits(sessions=1))) as site:
        session = await site.open()
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                assert (await site.post(call("wait"), **session)).status_code == 200

            tasks.start_soon(run)
            await backend.waiting.wait()
            refused = await site.post(initialize())
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
            backend.release.set()


async def test_the_stream_of_a_session_tells_of_a_changed_list(site: Site, backend: FakeBackend) -> None:
    session = await site.open()
    async with site.stream("GET", None, **session) as response:
        assert response.headers["content-type"] == "text/event-stream"
        backend.touch()
        backend.add("new_tool")
        stream = events(response)
        assert await anext(stream) == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    listed = (await site.post(LIST, **session)).json()["result"]["tools"]
    assert listed[-1]["name"] == "new_tool"


async def test_a_second_stream_takes_the_place_of_the_first(site: Site, backend: FakeBackend) -> None:
    session = await site.open()
    async with site.stream("GET", None, **session) as first, site.stream("GET", None, **session) as second:
        assert [message async for message in events(first)] == []
        backend.add("new_tool")
        assert (await anext(events(second)))["method"] == "notifications/tools/list_changed"


async def test_a_change_that_a_lost_stream_carried_is_announced_on_the_next(site: Site, backend: FakeBackend) -> None:
    session = await site.open()
    change = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    async with site.stream("GET", None, **session) as lost:
        backend.add("new_tool")
        assert await anext(events(lost)) == change
    async with site.stream("GET", None, **session, **{"Last-Event-ID": "7"}) as next_one:
        assert await anext(events(next_one)) == change


async def test_the_profile_of_the_path_is_the_profile_of_the_session(site: Site, backend: FakeBackend) -> None:
    response = await site.post(initialize(), path="/flat")
    session = {"Mcp-Session-Id": response.headers["mcp-session-id"]}
    await site.post(call("echo"), path="/flat", **session)
    assert [seen.profile for seen in backend.seen] == ["flat"]
    unknown = await site.post(initialize(), path="/nonsense")
    assert (unknown.status_code, "did you mean flat" in unknown.json()["error"]["message"]) == (404, True)


async def test_a_user_is_asked_before_a_guarded_tool_runs_when_the_client_can_ask(site: Site) -> None:
    session = await site.open(capabilities={"elicitation": {}})
    async with site.stream("POST", call("guarded", {"text": "a\u202eb"}), **session) as response:
        stream = events(response)
        question = await anext(stream)
        message = question["params"]["message"]
        assert "May echo (read) run" in message
        assert "a\\u202eb" in message
        answer = {"action": "accept", "content": {"decision": "always"}}
        await site.post({"jsonrpc": "2.0", "id": question["id"], "result": answer}, **session)
        assert (await anext(stream))["result"]["content"][0]["text"] == "always"


@pytest.mark.parametrize("answer", [{"action": "decline"}, {"action": "accept", "content": {"decision": "sure"}}])
async def test_everything_but_a_clear_yes_is_a_no(site: Site, answer: dict[str, object]) -> None:
    session = await site.open(capabilities={"elicitation": {}})
    async with site.stream("POST", call("guarded"), **session) as response:
        stream = events(response)
        question = await anext(stream)
        await site.post({"jsonrpc": "2.0", "id": question["id"], "result": answer}, **session)
        assert (await anext(stream))["result"]["content"][0]["text"] == "no"


async def test_a_guarded_tool_is_denied_when_the_client_cannot_ask_its_user(site: Site) -> None:
    session = await site.open()
    result = (await site.post(call("guarded"), **session)).json()["result"]
    assert result["_meta"]["io.toolcrib/error"]["code"] == "denied"


async def test_the_first_list_waits_for_servers_that_were_never_seen_before(site: Site, backend: FakeBackend) -> None:
    session = await site.open()
    backend.ready = anyio.Event()
    listed: list[str] = []
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            response = await site.post(LIST, **session)
            listed.append(response.json()["result"]["tools"][-1]["name"])

        tasks.start_soon(run)
        assert (await site.post({"jsonrpc": "2.0", "id": 9, "method": "ping"}, **session)).json()["result"] == {}
        assert listed == []
        backend.add("late")
        backend.ready.set()
    assert listed == ["late"]
