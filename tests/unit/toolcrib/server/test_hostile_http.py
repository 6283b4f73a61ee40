"""Hostile HTTP over a real socket: what is refused, how, and what it costs the others (security.md R11, R16, T11)."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack, suppress
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from anyio.abc import SocketStream

from rig import PATIENCE
from toolcrib.core.json import dumps
from toolcrib.mcp.server.service import ServiceLimits
from toolcrib.server.http import HttpOptions, serve_http
from unit.toolcrib.server.conftest import Serve
from unit.toolcrib.server.fake_backend import FakeBackend
from unit.toolcrib.server.wire_client import ACCEPT, META, Site, call, initialize, modern

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


def _request(site: Site, body: bytes, *, method: str = "POST", **headers: str) -> bytes:
    shown = {
        "Host": f"127.0.0.1:{site.port}",
        "Content-Type": "application/json",
        "Accept": ACCEPT,
        "Content-Length": str(len(body)),
        "Connection": "close",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [f"{method} /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in shown.items() if value)]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _status(response: bytes) -> int:
    return int(response.split(b" ", 2)[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": ""}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost.evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:8737@evil.example"}, 403),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content_Type": ""}, 415),
        ({"Accept": "text/html"}, 406),
        ({"Accept": ""}, 406),
        ({"Content_Length": "5000000"}, 413),
        ({"Content_Length": "999999999999999"}, 413),
    ],
)
async def test_a_request_is_refused_by_its_headers_alone(site: Site, headers: dict[str, str], status: int) -> None:
    response = await site.raw(_request(site, PING, **headers))
    assert _status(response) == status
    assert b"access-control-allow-origin" not in response.lower()


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc": ',
        b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","method":"ping"}',
        b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"ping"}',
        b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}',
        json.dumps([{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in range(1000)]).encode(),
        b"",
    ],
    ids=["json", "utf8", "nesting", "duplicate", "digits", "nan", "batch", "empty"],
)
async def test_a_body_that_is_no_single_strict_message_is_a_bad_request(site: Site, body: bytes) -> None:
    assert _status(await site.raw(_request(site, body))) == 400
    assert (await site.post(initialize())).status_code == 200


async def test_a_body_without_a_length_is_cut_off_at_the_cap(site: Site) -> None:
    head = _request(site, b"", Content_Length="", Transfer_Encoding="chunked")
    chunk = b"100000\r\n" + b"a" * 0x100000 + b"\r\n"
    async with await anyio.connect_tcp("127.0.0.1", site.port) as stream:
        await stream.send(head)
        for _ in range(6):
            await stream.send(chunk)
        assert _status(await stream.receive()) == 413


async def test_a_preflight_from_another_page_gets_no_permission(site: Site) -> None:
    evil = await site.raw(_request(site, b"", method="OPTIONS", Origin="http://evil.example"))
    ours = await site.raw(_request(site, b"", method="OPTIONS", Origin=f"http://127.0.0.1:{site.port}"))
    assert (_status(evil), _status(ours)) == (403, 405)
    assert b"access-control" not in (evil + ours).lower()


async def test_headers_without_end_are_refused(site: Site) -> None:
    response = await site.raw(b"POST /mcp HTTP/1.1\r\n" + b"X-Filler: " + b"a" * 70_000)
    assert _status(response) == 431


@pytest.mark.slow
async def test_stalled_bodies_and_headers_are_closed_and_cost_nobody_else_anything(serve: Serve) -> None:
    async with serve(HttpOptions(limits=ServiceLimits(patience=2))) as site:
        stalled: list[SocketStream] = []
        for number in range(100):
            stalled.append(await anyio.connect_tcp("127.0.0.1", site.port))
            data = _request(site, b"{", Content_Length="500") if number % 2 else b"POST /mcp HTTP/1.1\r\nHost: x"
            await stalled[-1].send(data)
        assert (await site.post(initialize())).status_code == 200
        endings: list[bytes] = []
        with anyio.fail_after(PATIENCE):
            for stream in stalled:
                received = b""
                try:
                    while True:
                        received += await stream.receive()
                except anyio.EndOfStream:
                    await stream.aclose()
                endings.append(received[:12])
    assert set(endings[1::2]) == {b"HTTP/1.1 408"}
    assert set(endings[::2]) == {b""}


async def test_at_the_limit_of_open_files_idle_connections_make_room_and_running_requests_do_not(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a token: what has none must not be able to shut a probe out."""

    def leave_room_for_30(which: int) -> tuple[int, int]:
        return 72, 72

    monkeypatch.setattr("resource.getrlimit", leave_room_for_30)
    async with serve(HttpOptions(token="s3cret")) as site, AsyncExitStack() as sockets:

        async def connect(data: bytes = b"") -> SocketStream:
            stream = await sockets.enter_async_context(await anyio.connect_tcp("127.0.0.1", site.port))
            await stream.send(data or b"GET /healthz HTTP/1.1\r\n")
            return stream

        async def probe() -> int:
            request = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nConnection: close\r\n\r\n"
            return _status(await site.raw(request.encode()))

        with anyio.fail_after(PATIENCE):
            first, *_ = [await connect() for _ in range(40)]
            beside_idle = [await probe() for _ in range(3)]
            with pytest.raises(anyio.EndOfStream):
                await first.receive()
            [await connect(_request(site, b"{", Content_Length="9")) for _ in range(30)]
            beside_halves = await probe()
            for _ in range(30):  # answered by the headers, and whole after that
                refused = await connect(_request(site, b"{", Content_Length="9", Connection="keep-alive"))
                await refused.receive()
                with suppress(anyio.BrokenResourceError):
                    await refused.send(b"12345678")
            beside_refused = await probe()
            for id in range(30):
                message: Any = call("wait", id=id, _meta=META)
                headers = {name.replace("-", "_"): value for name, value in modern(message).items()}
                await connect(_request(site, dumps(message), Authorization="Bearer s3cret", **headers))
            beside_requests = await probe()
            await sockets.aclose()
            while (afterwards := await probe()) == 503:
                await anyio.lowlevel.checkpoint()

    assert (beside_idle, beside_halves, beside_refused) == ([200] * 3, 200, 200)
    assert (beside_requests, afterwards) == (503, 200)
    assert [record.getMessage().partition(":")[0] for record in caplog.records if record.levelname == "WARNING"] == [
        "idle connections are closed for new ones",
        "connections are refused",
    ]


async def test_abandoned_sessions_are_capped(serve: Serve) -> None:
    async with serve(HttpOptions(limits=ServiceLimits(sessions=10))) as site:
        ids = [(await site.post(initialize())).headers["mcp-session-id"] for _ in range(30)]
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        alive = [(await site.post(ping, Mcp_Session_Id=one)).status_code for one in ids]
    assert len(set(ids)) == 30
    assert alive == [404] * 20 + [200] * 10


async def test_calls_beyond_the_queue_are_refused_at_once_and_none_is_lost(serve: Serve, backend: FakeBackend) -> None:
    async with serve(HttpOptions(limits=ServiceLimits(running=4, queue=8))) as site:
        outcomes: list[str] = []

        async def one(number: int) -> None:
            response = await site.ask(call("wait", id=number))
            result = response.json()["result"]
            if result["isError"]:
                error = result["_meta"]["io.toolcrib/error"]
                outcomes.append(f"{error['code']} {error['retryable']} {response.headers['retry-after']}")
                if outcomes.count(outcomes[-1]) == 28:
                    backend.release.set()
            else:
                outcomes.append(result["content"][0]["text"])

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                for number in range(40):
                    tasks.start_soon(one, number)
    assert sorted(outcomes) == ["overloaded True 1"] * 28 + ["waited"] * 12
    assert backend.most_running == 4


async def test_without_the_token_nothing_is_told_but_that_the_server_lives(serve: Serve) -> None:
    async with serve(HttpOptions(token="s3cret")) as site:
        refused = await site.post(initialize())
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer realm="toolcrib"')
        assert (await site.post(initialize(), Authorization="Bearer s3cret")).status_code == 200
        health = await site.client.get(site.url.replace("/mcp", "/healthz"))
        assert health.json() == {"status": "ok"}


@pytest.mark.parametrize(("token", "warned"), [("", 1), ("s3cret", 0)])
async def test_a_server_that_others_reach_by_a_name_without_a_token_is_logged(
    serve: Serve, caplog: pytest.LogCaptureFixture, token: str, warned: int
) -> None:
    async with serve(HttpOptions(token=token, hosts=("crib.example.org",))):
        pass
    messages = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert ["need no token" in one and "crib.example.org" in one for one in messages] == [True] * warned


async def test_other_paths_are_not_found(site: Site) -> None:
    for path in ("/", "/mcp/../etc", "/mcp/a/b", "/mcp/%2e%2e", "/mcpx"):
        response = await site.client.post(site.url.replace("/mcp", path), json={})
        assert response.status_code in (404, 415)


async def test_the_end_of_the_server_waits_for_running_calls_and_closes_streams(
    site: Site, backend: FakeBackend
) -> None:
    session = await site.open()
    answers: list[str] = []

    async def run() -> None:
        response = await site.post(call("wait"), **session)
        answers.append(response.json()["result"]["content"][0]["text"])

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks, site.stream("GET", None, **session) as stream:
            tasks.start_soon(run)
            await backend.waiting.wait()
            site.stop.set()
            assert [line async for line in stream.aiter_lines()] == []
            refused = await site.post(initialize())
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            backend.release.set()
        await site.stopped.wait()
    assert answers == ["waited"]


@pytest.mark.parametrize("is_modern", [False, True])
async def test_the_end_of_the_server_does_not_wait_for_ever(
    serve: Serve, backend: FakeBackend, caplog: pytest.LogCaptureFixture, *, is_modern: bool
) -> None:
    async with serve(HttpOptions(limits=ServiceLimits(drain=0.1))) as site:
        session = {} if is_modern else await site.open()
        answers: list[int] = []

        async def run() -> None:
            reply = await (site.ask(call("wait")) if is_modern else site.post(call("wait"), **session))
            answers.append(reply.json()["error"]["code"])

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await backend.waiting.wait()
                site.stop.set()
            await site.stopped.wait()
    assert answers == [-32800]
    assert backend.cancelled.is_set()
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_server_that_is_cancelled_cuts_its_connections(backend: FakeBackend) -> None:
    scope, begun = anyio.CancelScope(), anyio.Event()
    urls: list[str] = []

    def started(url: str) -> None:
        urls.append(url)
        begun.set()

    async def serve() -> None:
        with scope:
            await serve_http(backend, HttpOptions(), started=started)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            await begun.wait()
            port = urlsplit(urls[0]).port or 0
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                await stream.send(b"POST /mcp HTTP/1.1\r\n")
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
                with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                    await stream.receive()
            with pytest.raises(OSError):
                await anyio.connect_tcp("127.0.0.1", port)
