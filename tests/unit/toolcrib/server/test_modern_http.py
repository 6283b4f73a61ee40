"""The stateless era over HTTP: envelopes, header checks, input rounds, subscriptions."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from rig import PATIENCE
from toolcrib.config.settings import TokenSpec
from toolcrib.mcp.server.service import ServiceLimits
from toolcrib.server.http import HttpOptions
from unit.toolcrib.server.conftest import Serve
from unit.toolcrib.server.fake_backend import FakeBackend
from unit.toolcrib.server.wire_client import CAPABLE, META, Site, call, events, modern

LIST = {"jsonrpc": "2.0", "id": 5, "method": "tools/list"}
STAMP = {"io.modelcontextprotocol/serverInfo": {"name": "toolcrib", "title": "Toolcrib", "version": "0.1.0"}}


def _answers(result: dict[str, Any], name: str) -> dict[str, Any]:
    """What a client retries with after it asked its user."""
    answer = {"action": "accept", "content": {"name": name}}
    return {
        "inputResponses": dict.fromkeys(result["inputRequests"], answer),
        "requestState": result["requestState"],
        "_meta": CAPABLE,
    }


async def test_discovery_says_what_is_served(site: Site) -> None:
    response = await site.ask({"jsonrpc": "2.0", "id": "d", "method": "server/discover"})
    assert response.json() == {
        "jsonrpc": "2.0",
        "id": "d",
        "result": {
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": {
                "logging": {},
                "tools": {"listChanged": True},
                "completions": {},
                "prompts": {"listChanged": True},
                "resources": {"listChanged": True, "subscribe": True},
                "extensions": {
                    "io.modelcontextprotocol/tasks": {},
                    "io.modelcontextprotocol/skills": {"directoryRead": True},
                },
            },
            "ttlMs": 3_600_000,
            "cacheScope": "private",
            "instructions": "Call echo.",
            "_meta": STAMP,
        },
    }
    assert "mcp-session-id" not in response.headers


async def test_the_list_is_the_same_bytes_whoever_asks_and_whatever_was_called_before(site: Site) -> None:
    first = await site.ask(LIST)
    await site.ask(call("echo"))
    meta = {**CAPABLE, "io.toolcrib/session": "other"}
    second = await site.ask({**LIST, "params": {"_meta": meta}})
    assert first.content == second.content
    result = first.json()["result"]
    assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 60_000, "private")


async def test_the_list_is_not_to_be_kept_while_a_server_is_on_its_way(site: Site, backend: FakeBackend) -> None:
    backend.is_connecting = True
    ready = site.url.replace("/mcp", "/readyz")
    assert (await site.client.get(ready)).status_code == 503
    assert (await site.ask(LIST)).json()["result"]["ttlMs"] == 0
    assert (await site.client.get(ready)).status_code == 200


async def test_a_call_is_complete_and_signed_by_the_server(site: Site, backend: FakeBackend) -> None:
    response = await site.ask(call("echo", {"text": "hi"}, id="c"))
    assert response.json() == {
        "jsonrpc": "2.0",
        "id": "c",
        "result": {
            "resultType": "complete",
            "content": [{"type": "text", "text": "hi"}],
            "isError": False,
            "_meta": {"io.toolcrib/call_id": "c1", **STAMP},
        },
    }
    assert backend.seen[0].is_stateless


@pytest.mark.parametrize(
    ("params", "headers", "status", "code"),
    [
        ({}, {}, 400, -32602),
        ({"_meta": {}}, {}, 400, -32602),
        ({"_meta": {**META, "io.modelcontextprotocol/clientCapabilities": 1}}, {}, 400, -32602),
        ({"_meta": {**META, "io.modelcontextprotocol/protocolVersion": 1}}, {}, 400, -32602),
        ({"_meta": {**META, "io.modelcontextprotocol/logLevel": "loud"}}, {}, 400, -32602),
        ({"_meta": META}, {"MCP-Protocol-Version": "2027-01-01"}, 400, -32020),
        ({"_meta": META}, {"MCP-Protocol-Version": "2025-11-25"}, 400, -32020),
        ({"_meta": META}, {"Mcp-Method": "ping"}, 400, -32020),
        ({"_meta": META}, {"Mcp-Method": "TOOLS/LIST"}, 400, -32020),
        (
            {"_meta": {**META, "io.modelcontextprotocol/protocolVersion": "v9"}},
            {"MCP-Protocol-Version": "v9"},
            400,
            -32022,
        ),
    ],
)
async def test_a_request_that_contradicts_itself_is_refused(
    site: Site, params: dict[str, Any], headers: dict[str, str], status: int, code: int
) -> None:
    sent = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list", **headers}
    response = await site.post({**LIST, "params": params}, **sent)
    assert (response.status_code, response.json()["error"]["code"], response.json()["id"]) == (status, code, 5)


async def test_an_envelope_without_its_version_header_is_refused(site: Site) -> None:
    response = await site.post({**LIST, "params": {"_meta": META}})
    assert (response.status_code, response.json()["error"]["code"]) == (400, -32020)


async def test_an_unserved_revision_is_answered_with_those_that_are(site: Site) -> None:
    meta = {**META, "io.modelcontextprotocol/protocolVersion": "v9"}
    request = {**LIST, "params": {"_meta": meta}}
    response = await site.post(request, **{**modern(request), "MCP-Protocol-Version": "v9"})
    assert response.json()["error"]["data"] == {"supported": ["2026-07-28"], "requested": "v9"}


@pytest.mark.parametrize(
    ("name", "status"),
    [("echo", 200), ("=?base64?ZWNobw==?=", 200), ("wait", 400), ("=?base64?ZWNobw?=", 400)],
)
async def test_the_name_header_must_name_the_tool_of_the_body(site: Site, name: str, status: int) -> None:
    request = call("echo", _meta=META)
    assert (await site.post(request, **{**modern(request), "Mcp-Name": name})).status_code == status


@pytest.mark.parametrize(
    ("arguments", "headers", "status"),
    [
        ({"region": "eu"}, {"Mcp-Param-Region": "eu"}, 200),
        ({"region": "Grüß"}, {"Mcp-Param-Region": "=?base64?R3LDvMOf?="}, 200),
        ({"region": "eu", "count": 42}, {"Mcp-Param-Region": "eu", "Mcp-Param-Count": "42.0"}, 200),
        ({}, {}, 200),
        ({"region": "eu"}, {}, 400),
        ({"region": "eu"}, {"Mcp-Param-Region": "us"}, 400),
        ({"region": "eu"}, {"Mcp-Param-Region": "=?base64?ZXU?="}, 400),
        ({}, {"Mcp-Param-Region": "eu"}, 400),
        ({"region": "eu", "count": 42}, {"Mcp-Param-Region": "eu", "Mcp-Param-Count": "43"}, 400),
    ],
)
async def test_declared_parameter_headers_must_say_what_the_arguments_say(
    site: Site, arguments: dict[str, Any], headers: dict[str, str], status: int
) -> None:
    request = call("routed", arguments, _meta=META)
    response = await site.post(request, **modern(request), **headers)
    assert response.status_code == status
    if status == 400:
        assert response.json()["error"]["code"] == -32020


@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "nonsense/method"])
async def test_a_method_that_this_era_does_not_have_is_not_found(site: Site, method: str) -> None:
    response = await site.ask({"jsonrpc": "2.0", "id": 3, "method": method})
    assert (response.status_code, response.json()["error"]["code"], response.json()["id"]) == (404, -32601, 3)


async def test_notifications_are_accepted_and_responses_are_not(site: Site) -> None:
    version = {"MCP-Protocol-Version": "2026-07-28"}
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    assert (await site.post(note, **version)).status_code == 202
    assert (await site.post({"jsonrpc": "2.0", "id": 1, "result": {}}, **version)).status_code == 400
    assert (await site.post(note, **{"MCP-Protocol-Version": "v9"})).status_code == 400


async def test_get_and_delete_are_not_of_this_era(site: Site) -> None:
    headers = {"MCP-Protocol-Version": "2026-07-28", "Accept": "text/event-stream"}
    for method in ("GET", "DELETE", "PUT"):
        response = await site.client.request(method, site.url, headers=headers)
        assert (response.status_code, response.headers["allow"]) == (405, "POST")


async def test_log_messages_are_sent_only_to_a_request_that_asks_for_them(site: Site) -> None:
    silent = await site.ask(call("log"))
    assert silent.headers["content-type"] == "application/json"
    meta = {"io.modelcontextprotocol/logLevel": "warning"}
    messages = [message async for message in events(await site.ask(call("log", _meta=meta)))]
    assert [message["params"]["data"] for message in messages[:-1]] == ["a warning"]
    assert messages[-1]["result"]["resultType"] == "complete"


async def test_a_tools_own_question_passes_through_with_its_state_sealed(site: Site, backend: FakeBackend) -> None:
    asked = (await site.ask(call("wants_input", _meta=CAPABLE))).json()["result"]
    assert (asked["resultType"], list(asked["inputRequests"])) == ("input_required", ["who"])
    assert asked["requestState"] != "round-1"
    done = (await site.ask(call("wants_input", **_answers(asked, "Ada")))).json()["result"]
    assert done["content"][0]["text"] == "Ada with round-1"


async def test_a_tampered_or_reused_or_foreign_state_is_refused_and_nothing_runs(
    site: Site, backend: FakeBackend
) -> None:
    asked = (await site.ask(call("wants_input", _meta=CAPABLE))).json()["result"]
    good = _answers(asked, "Ada")
    ran = len(backend.seen)
    for request in (
        call("wants_input", **{**good, "requestState": good["requestState"] + "-TAMPERED"}),
        call("wants_input", {"other": "arguments"}, **good),
        call("echo", **good),
    ):
        refused = await site.ask(request)
        assert (refused.status_code, refused.json()["error"]) == (
            400,
            {
                "code": -32602,
                "message": "Invalid or expired requestState",
                "data": {"reason": "invalid_request_state"},
            },
        )
    assert len(backend.seen) == ran
    assert (await site.ask(call("wants_input", **good))).status_code == 200
    assert (await site.ask(call("wants_input", **good))).status_code == 400


@pytest.mark.parametrize("responses", [None, [], {"who": 12345}])
async def test_malformed_input_responses_are_invalid_parameters(site: Site, responses: Any) -> None:
    response = await site.ask(call("wants_input", inputResponses=responses, _meta=CAPABLE))
    assert (response.status_code, response.json()["error"]["code"]) == (400, -32602)


async def test_a_call_that_asks_in_its_middle_waits_in_memory_for_the_retry(site: Site, backend: FakeBackend) -> None:
    asked = (await site.ask(call("ask_twice", _meta=CAPABLE))).json()["result"]
    (question,) = asked["inputRequests"].values()
    assert (question["method"], question["params"]["message"]) == ("elicitation/create", "First?")
    again = (await site.ask(call("ask_twice", id=2, **_answers(asked, "Ada")))).json()["result"]
    (question,) = again["inputRequests"].values()
    assert question["params"]["message"] == "Second?"
    done = (await site.ask(call("ask_twice", id=3, **_answers(again, "Bob")))).json()
    assert (done["id"], done["result"]["content"][0]["text"]) == (3, "Ada and Bob")
    assert len(backend.seen) == 1
    assert (await site.ask(call("ask_twice", **_answers(again, "Bob")))).status_code == 400


async def test_what_a_retry_leaves_unanswered_is_asked_again(site: Site, backend: FakeBackend) -> None:
    asked = (await site.ask(call("ask", _meta=CAPABLE))).json()["result"]
    wrong: dict[str, Any] = {**_answers(asked, "Ada"), "inputResponses": {"wrong_key": {}}}
    again = (await site.ask(call("ask", **wrong))).json()["result"]
    assert again["inputRequests"] == asked["inputRequests"]
    done = (await site.ask(call("ask", **_answers(again, "Ada")))).json()["result"]
    assert done["content"][0]["text"] == "hello Ada"


async def test_calls_that_wait_for_their_clients_are_bounded(serve: Serve) -> None:
    async with serve(HttpOptions(limits=ServiceLimits(suspended=1))) as site:
        asked = (await site.ask(call("ask", _meta=CAPABLE))).json()["result"]
        refused = (await site.ask(call("ask", _meta=CAPABLE))).json()["result"]
        assert refused["_meta"]["io.toolcrib/error"]["code"] == "overloaded"
        assert (await site.ask(call("ask", **_answers(asked, "Ada")))).status_code == 200


async def test_calls_that_wait_for_one_principal_leave_room_for_those_of_another(serve: Serve) -> None:
    tokens = tuple(TokenSpec(token=f"{name}-token", principal=name) for name in ("ada", "eve"))
    asks = call("ask", _meta=CAPABLE)
    async with serve(HttpOptions(tokens=tokens, limits=ServiceLimits(suspended=4))) as site:
        answers = [
            (await site.post(asks, **modern(asks), Authorization=f"Bearer {name}-token")).json()["result"]
            for name in ("eve", "eve", "eve", "ada")
        ]
    assert ["inputRequests" in answer for answer in answers] == [True, True, False, True]


async def test_a_client_that_lacks_what_the_tool_needs_is_told_which_capability(site: Site) -> None:
    for name, capability in (("needs_sampling", "sampling"), ("ask", "elicitation"), ("wants_input", "elicitation")):
        response = await site.ask(call(name))
        assert (response.status_code, response.json()["error"]["code"]) == (400, -32021)
        assert response.json()["error"]["data"] == {"requiredCapabilities": {capability: {}}}


async def test_a_client_that_closes_its_request_cancels_the_call(site: Site, backend: FakeBackend) -> None:
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(site.ask, call("wait"))
            await backend.waiting.wait()
            tasks.cancel_scope.cancel()
        await backend.cancelled.wait()


async def test_a_conversation_is_that_of_the_key_that_the_client_names(site: Site, backend: FakeBackend) -> None:
    for key in ("one", "two", "one"):
        await site.ask(call("echo", _meta={"io.toolcrib/session": key}))
    await site.ask(call("echo"))
    first, second, third, unnamed = (seen.key for seen in backend.seen)
    assert first == third
    assert len({first, second, unnamed}) == 3


async def test_a_subscription_is_acknowledged_first_and_tells_only_what_was_asked_for(
    site: Site, backend: FakeBackend
) -> None:
    def listen(name: str, wanted: dict[str, Any]) -> dict[str, Any]:
        params = {"_meta": META, "notifications": wanted}
        return {"jsonrpc": "2.0", "id": name, "method": "subscriptions/listen", "params": params}

    tools, prompts = listen("t", {"toolsListChanged": True}), listen("p", {"somethingElse": True})
    async with (
        site.stream("POST", tools, **modern(tools)) as changes,
        site.stream("POST", prompts, **modern(prompts)) as nothing,
    ):
        stream, silent = events(changes), events(nothing)
        acknowledged = {
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {
                "notifications": {"toolsListChanged": True},
                "_meta": {"io.modelcontextprotocol/subscriptionId": "t"},
            },
        }
        assert await anext(stream) == acknowledged
        assert (await anext(silent))["params"]["notifications"] == {}
        backend.touch()
        backend.add("new_tool")
        assert await anext(stream) == {
            "jsonrpc": "2.0",
            "method": "notifications/tools/list_changed",
            "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": "t"}},
        }
        site.stop.set()
        for last, identity in ((stream, "t"), (silent, "p")):
            assert (await anext(last))["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == identity


async def test_a_subscription_must_say_what_it_wants(site: Site) -> None:
    response = await site.ask({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen"})
    assert (response.status_code, response.json()["error"]["code"]) == (400, -32602)


async def test_an_unknown_profile_is_not_found(site: Site) -> None:
    request = {**LIST, "params": {"_meta": META}}
    assert (await site.post(request, path="/nonsense", **modern(request))).status_code == 404
