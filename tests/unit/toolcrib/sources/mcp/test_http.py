"""A call over streamable HTTP ends as it should, whatever the server sends, and the next one works."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from peers.opened import open_source
from peers.web import Request, WebPeer, event, web_peer
from rig import PATIENCE
from toolcrib.core.result import ToolResult
from toolcrib.mcp.client.spec import McpLimits

Behaviour = Callable[[Request], Awaitable[None]]


async def echo(request: Request) -> None:
    await request.text("hello")


async def as_event(request: Request) -> None:
    result = {"content": [{"type": "text", "text": "by event"}]}
    await request.events()
    await request.raw(b": ping\n\n" + event({"jsonrpc": "2.0", "method": "notifications/odd"}))
    await request.raw(event({"jsonrpc": "2.0", "id": request.message["id"], "result": result}))
    await request.stream.aclose()


async def hang(request: Request) -> None:
    await anyio.sleep_forever()


async def endless(request: Request) -> None:
    await request.events()
    while True:
        await request.raw(b": still here\n\n")


async def wrong_id(request: Request) -> None:
    await request.reply(200, json.dumps({"jsonrpc": "2.0", "id": 9999, "result": {"content": []}}).encode())


async def wrong_id_event(request: Request) -> None:
    await request.events()
    await request.raw(event({"jsonrpc": "2.0", "id": 9999, "result": {"content": []}}))
    await request.stream.aclose()


async def malformed(request: Request) -> None:
    await request.reply(200, b'{"jsonrpc":"2.0","id":1,"result":')


async def truncated(request: Request) -> None:
    await request.raw(b'HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{"jsonrpc"')
    await request.stream.aclose()


async def disconnect(request: Request) -> None:
    await request.stream.aclose()


async def html(request: Request) -> None:
    await request.reply(200, b"<html>", kind="text/html")


async def accepted(request: Request) -> None:
    await request.reply(202)


async def compressed(request: Request) -> None:
    await request.reply(200, b"\x1f\x8b", content_encoding="gzip")


async def redirect(request: Request) -> None:
    await request.reply(307, location="http://127.0.0.1:1/stolen")


async def flood(request: Request) -> None:
    await request.reply(200, b"y" * 2_000_000)


def status(number: int) -> Behaviour:
    async def behave(request: Request) -> None:
        await request.reply(number, b"no", kind="text/plain")

    return behave


async def rpc_refusal(request: Request) -> None:
    await request.error(-32602, "bad arguments", status=400)


@pytest.mark.parametrize("tool", [echo, as_event])
@pytest.mark.parametrize("modern", [True, False])
async def test_a_call_is_answered_with_json_or_with_events(tmp_path: Path, tool: Behaviour, modern: bool) -> None:
    async with web_peer(tools={"t": tool}, modern=modern) as web, open_source(web.spec, tmp_path) as peer:
        assert (await peer.call("t")).text in ("hello", "by event")


@pytest.mark.parametrize(
    ("behave", "code"),
    [
        (wrong_id, "tool_error"),
        (wrong_id_event, "outcome_unknown"),
        (malformed, "tool_error"),
        (truncated, "outcome_unknown"),
        (disconnect, "outcome_unknown"),
        (html, "tool_error"),
        (accepted, "unavailable"),
        (compressed, "unavailable"),
        (redirect, "unavailable"),
        (flood, "outcome_unknown"),
        (status(401), "unavailable"),
        (status(410), "unavailable"),
        (status(429), "unavailable"),
        (status(500), "outcome_unknown"),
        (status(503), "unavailable"),
        (rpc_refusal, "invalid_arguments"),
    ],
)
async def test_a_broken_answer_ends_its_call_at_once_and_the_next_one_works(
    tmp_path: Path, behave: Behaviour, code: str
) -> None:
    async with web_peer(tools={"t": behave, "echo": echo}) as web, open_source(web.spec, tmp_path) as peer:
        with anyio.fail_after(PATIENCE):
            failure = await peer.failing("t")
        assert failure.code == code
        assert (await peer.call("echo")).text == "hello"


@pytest.mark.slow
@pytest.mark.parametrize("behave", [hang, endless])
async def test_a_call_without_an_answer_ends_at_its_deadline_and_the_server_is_told(
    tmp_path: Path, behave: Behaviour
) -> None:
    told = anyio.Event()

    class Watching(WebPeer):
        async def handle(self, request: Request) -> None:
            if request.method == "notifications/cancelled":
                told.set()
            await super().handle(request)

    async with web_peer(tools={"t": behave, "echo": echo}) as web:
        web.__class__ = Watching
        async with open_source(web.spec, tmp_path) as peer:
            with anyio.fail_after(PATIENCE):
                assert (await peer.failing("t", 1)).code == "timeout"
                await told.wait()
            assert (await peer.call("echo")).text == "hello"


@pytest.mark.slow
async def test_in_the_modern_era_closing_the_stream_is_the_cancellation(tmp_path: Path) -> None:
    closed = anyio.Event()

    async def wait_for_end(request: Request) -> None:
        try:
            await request.stream.receive()
        except anyio.EndOfStream:
            closed.set()

    async with web_peer(tools={"t": wait_for_end}, modern=True) as web, open_source(web.spec, tmp_path) as peer:
        assert (await peer.failing("t", 1)).code == "timeout"
        with anyio.fail_after(PATIENCE):
            await closed.wait()
        assert web.of("notifications/cancelled") == []


@pytest.mark.parametrize("status", [404, 400])
async def test_a_server_that_forgot_our_session_gets_a_new_one_and_the_call_again(tmp_path: Path, status: int) -> None:
    async def first_session_only(request: Request) -> None:
        if request.headers["mcp-session-id"] != "session-1":
            await request.text("hello again")
        elif status == 404:
            await request.reply(404)
        else:
            await request.error(-32000, "Bad Request: No valid session ID provided", status=400)

    async with web_peer(tools={"t": first_session_only}) as web, open_source(web.spec, tmp_path) as peer:
        assert (await peer.call("t")).text == "hello again"
        assert web.sessions == 2


async def test_a_read_is_repeated_once_after_a_disconnect(tmp_path: Path) -> None:
    calls: list[Request] = []

    async def once(request: Request) -> None:
        calls.append(request)
        await (disconnect if len(calls) == 1 else echo)(request)

    async with web_peer(tools={"read": once}) as web, open_source(web.spec, tmp_path) as peer:
        assert (await peer.call("read")).text == "hello"
    assert len(calls) == 2


async def test_headers_say_what_each_era_wants_and_nothing_of_the_caller(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    sent: dict[bool, Any] = {}
    for modern in (True, False):
        async with web_peer(tools={"t": echo}, schemas={"t": schema}, modern=modern) as web:
            async with open_source(web.spec, tmp_path) as peer:
                await peer.call("t", region="eu")
            call = web.of("tools/call")[0]
            names = ("x-ours", "mcp-protocol-version", "mcp-session-id", "mcp-method", "mcp-name", "mcp-param-region")
            sent[modern] = {name: call.headers[name] for name in names if name in call.headers}
            assert {"authorization", "cookie"} & call.headers.keys() == set()
            assert call.message["params"].get("_meta", {}).get("traceparent") == "00-abc-def-01"

    assert sent == {
        True: {
            "x-ours": "configured",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": "t",
            "mcp-param-region": "eu",
        },
        False: {"x-ours": "configured", "mcp-protocol-version": "2025-11-25", "mcp-session-id": "session-1"},
    }


@pytest.mark.parametrize(
    ("modern", "supported", "asked"),
    [
        (True, ["2026-07-28"], ["server/discover", "server/discover", "tools/list"]),
        (False, ["2025-11-25"], ["server/discover", "initialize", "notifications/initialized", "tools/list"]),
        (False, "2026-07-28", ["server/discover", "initialize", "notifications/initialized", "tools/list"]),
    ],
)
async def test_a_server_that_offers_our_revision_in_refusing_it_is_asked_once_more(
    tmp_path: Path, modern: bool, supported: Any, asked: list[str]
) -> None:
    refusal = {"code": -32022, "message": "Unsupported protocol version", "data": {"supported": supported}}
    async with web_peer(tools={"t": echo}, modern=modern, refused=refusal) as web:
        async with open_source(web.spec, tmp_path) as peer:
            assert (await peer.call("t")).text == "hello"
        methods = [request.method for request in web.requests if request.method]

    assert [method for method in methods if method != "tools/call"][: len(asked)] == asked


@pytest.mark.parametrize("events", [True, False])
async def test_a_large_result_goes_to_disk_as_text(tmp_path: Path, events: bool) -> None:
    text = "line\n" * 200_000

    async def big(request: Request) -> None:
        message = {
            "jsonrpc": "2.0",
            "id": request.message["id"],
            "result": {"content": [{"type": "text", "text": text}]},
        }
        if events:
            await request.events()
            await request.raw(event(message))
            await request.stream.aclose()
        else:
            await request.reply(200, json.dumps(message).encode())

    limits = McpLimits(inline_bytes=300_000, memory_bytes=100_000)
    async with web_peer(tools={"t": big}) as web, open_source(web.spec, tmp_path, limits=limits) as peer:
        spooled = (await peer.call("t")).spooled

    assert spooled is not None
    assert spooled.path.read_text() == text
    assert [path.name for path in (tmp_path / "spooled").iterdir()] == [spooled.path.name]


async def test_a_stream_that_breaks_is_taken_up_where_it_broke(tmp_path: Path) -> None:
    async def begin(request: Request) -> None:
        await request.events()
        await request.raw(b"id: 7\nretry: 10\ndata: \n\n")
        await request.stream.aclose()

    async def go_on(request: Request) -> None:
        if request.headers.get("last-event-id") != "7":
            await request.reply(405)
            return
        call = web.of("tools/call")[0]
        await request.events()
        await request.raw(event({"jsonrpc": "2.0", "id": call.message["id"], "result": {"content": []}}))
        await request.stream.aclose()

    async with web_peer(tools={"t": begin}, aside=go_on) as web, open_source(web.spec, tmp_path) as peer:
        assert await peer.call("t") == ToolResult()


async def test_a_change_of_tools_is_heard_on_the_stream_beside_the_calls(tmp_path: Path) -> None:
    async def tell(request: Request) -> None:
        await request.events()
        web.tools["late"] = echo
        await request.raw(event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
        await anyio.sleep_forever()

    async with web_peer(tools={"t": echo}, aside=tell) as web, open_source(web.spec, tmp_path) as peer:
        await peer.until(lambda listing: len(listing.tools) == 2)


async def test_nobody_listening_is_said_at_once(tmp_path: Path) -> None:
    async with web_peer(tools={"t": echo}) as web:
        spec = web.spec
    async with open_source(spec, tmp_path) as peer:
        assert peer.source.state.state == "failed"
        assert "does not accept connections" in peer.source.state.detail


async def test_a_url_that_is_none_is_said_at_once(tmp_path: Path) -> None:
    async with web_peer() as web:
        spec = replace(web.spec, url="http://[nonsense")
    async with open_source(spec, tmp_path) as peer:
        assert peer.source.state.state == "failed"


@pytest.mark.parametrize("where", ["elsewhere", "http://[nonsense"])
async def test_messages_go_to_no_other_origin_than_that_of_the_event_stream(tmp_path: Path, where: str) -> None:
    async def name_endpoint(request: Request) -> None:
        await request.events()
        endpoint = elsewhere.url if where == "elsewhere" else where
        await request.raw(f"event: endpoint\ndata: {endpoint}\n\n".encode())
        await anyio.sleep_forever()

    async with web_peer() as elsewhere, web_peer(aside=name_endpoint) as web:
        async with open_source(replace(web.spec, transport="sse"), tmp_path) as peer:
            assert peer.source.state.state == "failed"
            assert "another origin" in peer.source.state.detail
        assert elsewhere.requests == []
