"""The client brings back bounded answers, and its secrets never leave the origin that they were meant for."""

import gzip
import ssl
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.abc
import pytest
from anyio.streams.tls import TLSListener

from peers.forge import authority
from rig import PATIENCE
from toolcrib.core.services.host import Page
from toolcrib.net.client import NetLimits, WebClient, WebRequest
from toolcrib.net.guard import Guard, NetFailure

Handler = Callable[["Received", anyio.abc.ByteStream], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Received:
    """One request as it came."""

    verb: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(kw_only=True)
class Far:
    """A server at the far end."""

    port: int = 0
    handler: Handler
    received: list[Received] = field(default_factory=list[Received])

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def answer(status: int = 200, body: bytes = b"", **headers: str) -> Handler:
    async def handle(request: Received, stream: anyio.abc.ByteStream) -> None:
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await stream.send("\r\n".join([*lines, "", ""]).encode() + body)

    return handle


@asynccontextmanager
async def far(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Far]:
    plain = await anyio.create_tcp_listener(local_host="127.0.0.1")
    server = Far(port=plain.extra(anyio.abc.SocketAttribute.local_port), handler=handler)
    listener = TLSListener(plain, tls) if tls else plain

    async def serve(stream: anyio.abc.ByteStream) -> None:
        async with stream:
            try:
                while True:
                    request = await _read(stream)
                    server.received.append(request)
                    await server.handler(request, stream)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                return

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        yield server
        group.cancel_scope.cancel()


async def _read(stream: anyio.abc.ByteStream) -> Received:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += await stream.receive()
    verb, target, _ = first.split(" ")
    return Received(verb=verb, target=target, headers=headers, body=body)


@asynccontextmanager
async def client(*allow: Far, limits: NetLimits | None = None) -> AsyncGenerator[WebClient]:
    made = WebClient(Guard.of([server.origin for server in allow]), limits)
    try:
        yield made
    finally:
        await made.aclose()


async def fetched(handler: Handler, limits: NetLimits | None = None) -> Page:
    async with far(handler) as server, client(server, limits=limits) as web:
        return await web.send(WebRequest(method="GET", url=f"{server.origin}/x"))


async def refused(handler: Handler, limits: NetLimits | None = None) -> NetFailure:
    async with far(handler) as server, client(server, limits=limits) as web:
        with pytest.raises(NetFailure) as caught:
            await web.send(WebRequest(method="GET", url=f"{server.origin}/x"))
        return caught.value


async def test_an_answer_comes_back_whole() -> None:
    got = await fetched(answer(203, b"hello", content_type="Text/Plain; charset=utf-8", x_more="1"))

    assert (got.status, got.body, got.media_type) == (203, b"hello", "text/plain")
    assert got.headers["x-more"] == "1"


async def test_loopback_is_refused_unless_it_is_allowed_and_nothing_is_connected() -> None:
    async with far(answer()) as server, client() as web:
        with pytest.raises(NetFailure, match="not a public address") as caught:
            await web.send(WebRequest(method="GET", url=server.origin))

        assert (caught.value.code, caught.value.sent, server.received) == ("denied", False, [])


async def test_a_name_is_looked_up_once_and_the_connection_goes_to_that_answer() -> None:
    """DNS rebinding: the second answer of the resolver would be another host."""
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    async with far(answer(body=b"first")) as server:
        web = WebClient(Guard.of([f"rebind.example:{server.port}"]), resolve=rebinding)
        got = await web.send(WebRequest(method="GET", url=f"http://rebind.example:{server.port}/"))
        await web.aclose()

        assert (got.body, asked) == (b"first", ["rebind.example"])
        assert server.received[0].headers["host"] == f"rebind.example:{server.port}"


async def test_a_name_that_turns_private_is_refused_at_the_next_connection() -> None:
    answers = iter([["127.0.0.1"], ["93.184.216.34", "127.0.0.1"]])

    async def turning(host: str, port: int) -> Sequence[str]:
        return next(answers)

    web = WebClient(resolve=turning)
    for _ in range(2):
        with pytest.raises(NetFailure, match=r"\(127\.0\.0\.1\) is not a public address"):
            await web.send(WebRequest(method="GET", url="http://turning.example/"))
    await web.aclose()


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http://user:pass@example.org/", "http://", "http://[::1", "x"])
async def test_what_is_no_plain_http_url_is_not_sent(url: str) -> None:
    async with client() as web:
        with pytest.raises(NetFailure) as caught:
            await web.send(WebRequest(method="GET", url=url))

    assert (caught.value.code, caught.value.sent) == ("denied", False)


async def test_a_redirect_to_a_private_address_is_refused() -> None:
    async with far(answer()) as inside, far(answer(302, location=f"{inside.origin}/secret")) as outside:
        async with client(outside) as web:
            with pytest.raises(NetFailure, match="not a public address"):
                await web.send(WebRequest(method="GET", url=outside.origin))

        assert inside.received == []


async def test_credentials_stay_with_their_origin_when_a_redirect_leads_elsewhere() -> None:
    headers = {"authorization": "Bearer x", "cookie": "a=b", "x-api-key": "y", "accept": "text/html"}
    async with far(answer(body=b"there")) as other, far(answer(307, location=f"{other.origin}/y")) as first:
        async with client(first, other) as web:
            got = await web.send(WebRequest(method="GET", url=first.origin, headers=headers))

        assert (got.body, got.url) == (b"there", f"{other.origin}/y")
        sent = other.received[0].headers
        assert {"authorization", "cookie", "x-api-key"}.isdisjoint(sent)
        assert sent["accept"] == "text/html"
        assert first.received[0].headers["authorization"] == "Bearer x"


async def test_credentials_go_along_within_one_origin() -> None:
    async def handle(request: Received, stream: anyio.abc.ByteStream) -> None:
        await (answer(301, location="/new") if request.target == "/" else answer(body=b"new"))(request, stream)

    async with far(handle) as server, client(server) as web:
        request = WebRequest(method="GET", url=f"{server.origin}/", headers={"authorization": "Bearer x"})
        got = await web.send(request)

        assert (got.body, server.received[1].headers["authorization"]) == (b"new", "Bearer x")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_write_is_never_sent_to_another_origin(status: int) -> None:
    async with far(answer()) as other, far(answer(status, location=f"{other.origin}/y")) as first:
        async with client(first, other) as web:
            got = await web.send(WebRequest(method="POST", url=first.origin, content=b"data"))

        assert (got.status, other.received) == (status, [])


async def test_a_write_is_repeated_within_its_origin_only_where_the_status_says_the_same_again() -> None:
    def moved(status: int) -> Handler:
        async def handle(request: Received, stream: anyio.abc.ByteStream) -> None:
            await (answer(status, location="/new") if request.target == "/" else answer(body=b"ok"))(request, stream)

        return handle

    seen: dict[int, list[tuple[str, bytes]]] = {}
    for status in (302, 303, 308):
        async with far(moved(status)) as server, client(server) as web:
            headers = {"content-type": "text/plain"}
            await web.send(WebRequest(method="POST", url=f"{server.origin}/", headers=headers, content=b"data"))
            seen[status] = [(one.verb, one.body) for one in server.received]

    first = ("POST", b"data")
    assert seen == {302: [first], 303: [first, ("GET", b"")], 308: [first, ("POST", b"data")]}


async def test_endless_redirects_end() -> None:
    failure = await refused(answer(302, location="/x"))

    assert (failure.code, failure.sent) == ("unavailable", True)
    assert "more than 5 times" in failure.message


async def test_no_cookie_is_kept() -> None:
    async with far(answer(set_cookie="session=1; Path=/")) as server, client(server) as web:
        for _ in range(2):
            await web.send(WebRequest(method="GET", url=server.origin))

        assert ["cookie" in request.headers for request in server.received] == [False, False]


async def test_a_body_above_the_limit_is_refused_whether_it_is_announced_or_not() -> None:
    limits = NetLimits(body_bytes=1000)

    async def unannounced(request: Received, stream: anyio.abc.ByteStream) -> None:
        await stream.send(b"HTTP/1.1 200 X\r\nconnection: close\r\n\r\n" + b"x" * 2000)
        await stream.aclose()

    for handler in (answer(body=b"x" * 1001), unannounced):
        failure = await refused(handler, limits)
        assert (failure.code, failure.message) == ("too_large", "the answer has more than 1,000 bytes")


async def test_a_size_that_is_only_told_is_no_body() -> None:
    async def told(request: Received, stream: anyio.abc.ByteStream) -> None:
        await stream.send(b"HTTP/1.1 200 X\r\ncontent-length: 999999999999\r\n\r\n")

    async with far(told) as server, client(server) as web:
        got = await web.send(WebRequest(method="HEAD", url=server.origin))

    assert (got.status, got.body) == (200, b"")


async def test_a_closed_client_says_so() -> None:
    async with far(answer()) as server, client(server) as web:
        await web.aclose()
        with pytest.raises(NetFailure) as caught:
            await web.send(WebRequest(method="POST", url=server.origin))

    assert (caught.value.code, caught.value.sent) == ("unavailable", False)


async def test_compressed_bodies_are_unpacked() -> None:
    assert (await fetched(answer(body=gzip.compress(b"packed"), content_encoding="gzip"))).body == b"packed"
    assert (await fetched(answer(body=zlib.compress(b"packed"), content_encoding="deflate"))).body == b"packed"


@pytest.mark.slow
async def test_a_decompression_bomb_is_refused_long_before_it_is_unpacked() -> None:
    bomb = gzip.compress(b"\0" * (64 << 20))
    failure = await refused(answer(body=bomb, content_encoding="gzip"))
    twice = await refused(answer(body=gzip.compress(bomb), content_encoding="gzip, gzip"))

    assert (failure.code, twice.code) == ("too_large", "too_large")
    assert "more than 100 times" in failure.message


async def test_a_broken_compressed_body_is_unavailable() -> None:
    assert (await refused(answer(body=b"not gzip", content_encoding="gzip"))).code == "unavailable"


async def silent(request: Received, stream: anyio.abc.ByteStream) -> None:
    """A server that never answers."""
    await anyio.sleep_forever()


async def dripping(request: Received, stream: anyio.abc.ByteStream) -> None:
    """A server whose answer never ends, and never pauses for long."""
    await stream.send(b"HTTP/1.1 200 X\r\n\r\n")
    while True:
        await stream.send(b"x")
        await anyio.sleep(0.02)


@pytest.mark.slow
async def test_silence_and_dripping_both_end() -> None:
    for handler, limits in ((silent, NetLimits(idle_seconds=1)), (dripping, NetLimits(seconds=1))):
        failure = await refused(handler, limits)
        assert (failure.code, failure.sent) == ("timeout", True)


async def test_a_connection_that_is_refused_was_not_sent_and_one_that_breaks_was() -> None:
    async def breaks(request: Received, stream: anyio.abc.ByteStream) -> None:
        await stream.aclose()

    async with far(answer()) as server:
        gone = server
    async with client(gone) as web:
        with pytest.raises(NetFailure) as caught:
            await web.send(WebRequest(method="POST", url=gone.origin))
    broken = await refused(breaks)

    assert (caught.value.code, caught.value.sent) == ("unavailable", False)
    assert (broken.code, broken.sent) == ("unavailable", True)


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with far(answer(body=b"proxy")) as proxy, far(answer(body=b"direct")) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.origin)
        async with client(server) as web:
            got = await web.send(WebRequest(method="GET", url=server.origin))

    assert got.body == b"direct"


async def test_the_next_address_is_tried_when_one_does_not_take_the_connection() -> None:
    async def two(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.9", "127.0.0.1"]

    async with far(answer(body=b"second")) as server:
        web = WebClient(Guard.of([f"two.example:{server.port}"]), resolve=two)
        got = await web.send(WebRequest(method="GET", url=f"http://two.example:{server.port}/"))
        await web.aclose()

    assert got.body == b"second"


async def test_a_cancelled_request_closes_its_connection() -> None:
    closed, began = anyio.Event(), anyio.Event()

    async def hanging(request: Received, stream: anyio.abc.ByteStream) -> None:
        began.set()
        try:
            await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            closed.set()
            raise

    async with far(hanging) as server, client(server) as web, anyio.create_task_group() as group:
        group.start_soon(web.send, WebRequest(method="GET", url=server.origin))
        await began.wait()
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True), anyio.fail_after(PATIENCE):
            await closed.wait()


async def test_the_certificate_is_checked_for_the_name_though_the_socket_goes_to_the_address(tmp_path: Path) -> None:
    async def loopback(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    chain, trusted = authority(tmp_path, "safe.example")
    server_tls, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=trusted)
    server_tls.load_cert_chain(chain)
    async with far(answer(body=b"safe"), server_tls) as server:
        web = WebClient(Guard.of(["safe.example", "evil.example"]), resolve=loopback, tls=trusting)
        got = await web.send(WebRequest(method="GET", url=f"https://safe.example:{server.port}/"))
        with pytest.raises(NetFailure, match="certificate verify failed") as caught:
            await web.send(WebRequest(method="GET", url=f"https://evil.example:{server.port}/"))
        await web.aclose()

    assert (got.body, len(server.received), caught.value.sent) == (b"safe", 1, False)


@pytest.mark.parametrize("value", ["Bearer tok-1234567 ", "Bearer tök-1234567", "Bearer tok-1234567\r\nx: y"])
async def test_a_credential_that_no_header_can_hold_is_not_told_and_nothing_was_sent(value: str) -> None:
    async with far(answer()) as server, client(server) as web:
        with pytest.raises(NetFailure) as caught:
            await web.send(WebRequest(method="POST", url=f"{server.origin}/", headers={"authorization": value}))
        await web.send(WebRequest(method="GET", url=f"{server.origin}/after"))

    assert (caught.value.code, caught.value.sent) == ("unavailable", False)
    assert "1234567" not in str(caught.value)
    assert [request.target for request in server.received] == ["/after"]
