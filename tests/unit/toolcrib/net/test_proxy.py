"""The proxy of commands lets out what was named, at addresses that were checked, and says what it does not let out.

What a hostile command would write is written here byte by byte; what arrived is seen at the far end.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketListener, SocketStream

from rig import PATIENCE
from toolcrib.core.sandbox import Reach
from toolcrib.errors import UsageError
from toolcrib.net.guard import HostPattern, host_pattern, private_host
from toolcrib.net.proxy import Proxy, ProxyLimits

LOOPBACK = "127.0.0.1"
PUBLIC = "93.184.216.34"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nSet-Cookie: a=1\r\n\r\nhello"


@dataclass(kw_only=True)
class Far:
    """A server that keeps what it hears, and answers once it has heard an end."""

    port: int = 0
    answer: bytes = ANSWER
    end: bytes = b"\r\n\r\n"
    heard: list[bytes] = field(default_factory=list[bytes])
    ended: anyio.Event = field(default_factory=anyio.Event)

    async def serve(self, stream: SocketStream) -> None:
        place = len(self.heard)
        self.heard.append(b"")
        async with stream:
            try:
                while not self.heard[place].endswith(self.end):
                    self.heard[place] += await stream.receive()
                await stream.send(self.answer)
                while True:
                    self.heard[place] += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                self.ended.set()


@dataclass(kw_only=True)
class World:
    """A proxy, a server, and the names that lead to it."""

    port: int
    far: Far
    refused: list[str]
    asked: list[str]
    names: dict[str, list[str]]

    async def say(self, text: str | bytes) -> bytes:
        """Write something to the proxy; return all it answers until it closes."""
        said = text.encode() if isinstance(text, str) else text
        with anyio.fail_after(PATIENCE):
            async with await anyio.connect_tcp(LOOPBACK, self.port) as stream:
                await stream.send(said.replace(b"PORT", b"%d" % self.far.port))
                return await everything(stream)

    async def tunnel(self, host: str) -> SocketStream:
        """Open a tunnel that is granted."""
        stream = await anyio.connect_tcp(LOOPBACK, self.port)
        await stream.send(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += await stream.receive(1)
        assert head.startswith(b"HTTP/1.1 200 "), head
        return stream


async def everything(stream: SocketStream) -> bytes:
    said = b""
    try:
        while True:
            said += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return said


async def listening() -> tuple[SocketListener, int]:
    made = await anyio.create_tcp_listener(local_host=LOOPBACK)
    (listener,) = made.listeners
    assert isinstance(listener, SocketListener)
    return listener, listener.extra(SocketAttribute.local_port)


@asynccontextmanager
async def world(
    *hosts: str,
    private: Sequence[str] = ("far.test:PORT",),
    names: dict[str, list[str]] | None = None,
    limits: ProxyLimits | None = None,
    **far: Any,
) -> AsyncGenerator[World]:
    """Run a proxy and a server; every name that is not in `names` leads to the server's machine."""
    server = Far(**far)
    refused: list[str] = []
    asked: list[str] = []
    known = names or {}

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return known.get(host, [LOOPBACK])

    inside, port = await listening()
    outside, server.port = await listening()
    reach = Reach(hosts=hosts, private=tuple(text.replace("PORT", str(server.port)) for text in private))
    async with outside, anyio.create_task_group() as group:
        group.start_soon(outside.serve, server.serve)
        group.start_soon(Proxy(resolve=resolve, limits=limits).serve, inside, reach, refused.append)
        yield World(port=port, far=server, refused=refused, asked=asked, names=known)
        group.cancel_scope.cancel()


# What gets out


async def test_a_request_in_clear_is_written_anew_and_its_answer_brought_back() -> None:
    async with world() as there:
        said = await there.say(
            "GET http://far.test:PORT/a?b=c HTTP/1.1\r\nHost: far.test:PORT\r\nAccept: text/x\r\n"
            "Proxy-Authorization: Basic abc\r\nProxy-Connection: keep-alive\r\n"
            "Connection: x-secret\r\nX-Secret: 1\r\n\r\n"
        )

    host = f"far.test:{there.far.port}"
    assert there.far.heard == [
        f"GET /a?b=c HTTP/1.1\r\nhost: {host}\r\naccept: text/x\r\nconnection: close\r\n\r\n".encode()
    ]
    assert said == b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nset-cookie: a=1\r\nconnection: close\r\n\r\nhello"
    assert (there.asked, there.refused) == (["far.test"], []), "a name is looked up once"


@pytest.mark.parametrize(
    ("framing", "body", "arrived"),
    [
        ("Content-Length: 4", b"data", b"content-length: 4\r\nconnection: close\r\n\r\ndata"),
        (
            "Transfer-Encoding: chunked",
            b"4\r\ndata\r\n0\r\n\r\n",
            b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n4\r\ndata\r\n0\r\n\r\n",
        ),
        ("Content-Length: 4\r\nExpect: 100-continue", b"data", b"content-length: 4\r\nconnection: close\r\n\r\ndata"),
    ],
    ids=["length", "chunks", "expect"],
)
async def test_a_body_goes_along(framing: str, body: bytes, arrived: bytes) -> None:
    async with world(end=arrived[-4:]) as there:
        head = f"POST http://far.test:PORT/ HTTP/1.1\r\nHost: far.test:PORT\r\n{framing}\r\n\r\n".encode()
        said = await there.say(head + body)

    assert there.far.heard[0].endswith(arrived)
    assert b"hello" in said


async def test_an_answer_without_a_length_ends_where_it_ends() -> None:
    async with world(answer=b"HTTP/1.0 200 OK\r\n\r\nall of it") as there:
        with anyio.fail_after(PATIENCE):
            async with await anyio.connect_tcp(LOOPBACK, there.port) as stream:
                await stream.send(f"GET http://far.test:{there.far.port}/ HTTP/1.0\r\n\r\n".encode())
                said = b""
                while b"all of it" not in said:
                    said += await stream.receive()

    assert said.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_tunnel_carries_both_ways_and_ends_with_either_end() -> None:
    async with world(end=b"!", answer=b"back") as there:
        with anyio.fail_after(PATIENCE):
            async with await there.tunnel(f"far.test:{there.far.port}") as stream:
                await stream.send(b"out!")
                assert await stream.receive() == b"back"
                await stream.send_eof()
                await there.far.ended.wait()

    assert there.far.heard == [b"out!"]


# What does not


REFUSED = [
    "127.0.0.1:PORT", "localhost:PORT", "localhost.:PORT", "[::1]:PORT", "[::ffff:127.0.0.1]:PORT", "127.1:PORT",
    "2130706433:PORT", "0x7f000001:PORT", "0177.0.0.1:PORT", "0.0.0.0:PORT", "[::]:PORT", "169.254.169.254:80",
    "metadata.google.internal:80", "metadata:80", "100.100.100.200:80", "inside.test:443", "both.test:443",
    "other.test:22", "far.test:443", "10.0.0.1:443", "93.184.216.34:443",
]  # fmt: skip


@pytest.mark.parametrize("target", REFUSED)
async def test_even_where_every_public_host_may_be_asked_no_other_address_is_reached(target: str) -> None:
    """`*` allows every name; each of these is an address, or leads to one that is not public."""
    names = {"inside.test": ["192.168.0.7"], "both.test": [PUBLIC, LOOPBACK], "other.test": [PUBLIC]}
    async with world("*", names=names) as there:
        said = await there.say(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")
        plain = await there.say(f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n")

    assert (said.split(b"\r\n")[0], plain.split(b"\r\n")[0]) == (b"HTTP/1.1 403 Refused by the sandbox",) * 2
    assert there.far.heard == []
    assert len(there.refused) == 2


@pytest.mark.parametrize(
    "host",
    ["evil.test", "far.test.evil.test", "notfar.test", "test", "a.far.test", "sub.wide.test.evil.test", "wide.test"],
)
async def test_a_name_that_was_not_allowed_is_not_even_looked_up(host: str) -> None:
    async with world("far.test", "*.wide.test", names={}) as there:
        said = await there.say(f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n")

    assert said.startswith(b"HTTP/1.1 403 ")
    assert said.endswith(f"{host}:443: it is not among the hosts that this command may reach\n".encode())
    assert (there.asked, there.refused) == (
        [],
        [f"{host}:443: it is not among the hosts that this command may reach"],
    )


async def test_a_name_that_leads_elsewhere_the_next_time_changes_nothing() -> None:
    """DNS rebinding: a name that may be private is connected to at the address which was checked, looked up once."""
    async with world(names={"far.test": [LOOPBACK]}) as there:
        first = await there.say("GET http://far.test:PORT/ HTTP/1.1\r\nHost: far.test:PORT\r\n\r\n")
        there.names["far.test"] = ["169.254.169.254"]
        second = await there.say("GET http://far.test:PORT/ HTTP/1.1\r\nHost: far.test:PORT\r\n\r\n")

    assert (first[:12], second[:12]) == (b"HTTP/1.1 200", b"HTTP/1.1 403")
    assert there.asked == ["far.test"] * 2
    assert "169.254.169.254" in there.refused[0]


HEAD = "Host: far.test:PORT\r\n"


@pytest.mark.parametrize(
    "text",
    [
        f"GET / HTTP/1.1\r\n{HEAD}\r\n",
        f"GET https://far.test:PORT/ HTTP/1.1\r\n{HEAD}\r\n",
        f"GET ftp://far.test:PORT/ HTTP/1.1\r\n{HEAD}\r\n",
        f"GET file:///etc/passwd HTTP/1.1\r\n{HEAD}\r\n",
        f"GET http://evil.test@far.test:PORT/ HTTP/1.1\r\n{HEAD}\r\n",
        f"GET http://far.test:PORT@evil.test/ HTTP/1.1\r\n{HEAD}\r\n",
        f"GET http://far.test:PORT\\@evil.test/ HTTP/1.1\r\n{HEAD}\r\n",
        f"GET http://far.test:PORT#@evil.test/ HTTP/1.1\r\n{HEAD}\r\n",
        f"GET http://far.test%00.evil.test/ HTTP/1.1\r\n{HEAD}\r\n",
        f"GET http:far.test:PORT/ HTTP/1.1\r\n{HEAD}\r\n",
        f"GET //far.test:PORT/ HTTP/1.1\r\n{HEAD}\r\n",
        f"OPTIONS * HTTP/1.1\r\n{HEAD}\r\n",
        "GET http://far.test:PORT/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        "GET http://far.test:PORT/ HTTP/1.1\r\nHost: far.test:1\r\n\r\n",
        f"GET http://far.test:PORT/ HTTP/1.1\r\n{HEAD}Host: evil.test\r\n\r\n",
        "GET http://far.test:PORT/ HTTP/1.1\r\n\r\n",
        f"GET http://far.test:PORT/ HTTP/1.1 HTTP/1.1\r\n{HEAD}\r\n",
        f"GET http://far.test:99999/ HTTP/1.1\r\n{HEAD}\r\n",
        "CONNECT far.test:PORT HTTP/1.1\r\nHost: evil.test:443\r\n\r\n",
        f"CONNECT far.test HTTP/1.1\r\n{HEAD}\r\n",
        f"CONNECT http://far.test:PORT/ HTTP/1.1\r\n{HEAD}\r\n",
        f"CONNECT evil.test@far.test:PORT HTTP/1.1\r\n{HEAD}\r\n",
        f"CONNECT far.test:PORT,evil.test:443 HTTP/1.1\r\n{HEAD}\r\n",
        f"CONNECT far.test:+PORT HTTP/1.1\r\n{HEAD}\r\n",
        f"CONNECT far.test:0 HTTP/1.1\r\n{HEAD}\r\n",
        f"CONNECT :PORT HTTP/1.1\r\n{HEAD}\r\n",
        f"PUT http://far.test:PORT/ HTTP/1.1\r\n{HEAD}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        f"POST http://far.test:PORT/ HTTP/1.1\r\n{HEAD}Content-Length: 4\r\nContent-Length: 5\r\n\r\ndata!",
        f"POST http://far.test:PORT/ HTTP/1.1\r\n{HEAD}Content-Length: +4\r\n\r\ndata",
        f"POST http://far.test:PORT/ HTTP/1.1\r\n{HEAD}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        f"POST http://far.test:PORT/ HTTP/1.1\r\n{HEAD}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        f"GET http://far.test:PORT/ HTTP/1.1\r\n{HEAD}A: b\0c\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        f"GET http://far.test:PORT/ HTTP/1.1\r\n{HEAD}A: {'a' * 100_000}\r\n\r\n",
    ],
)
async def test_what_could_be_read_in_two_ways_or_is_no_request_goes_nowhere(text: str) -> None:
    async with world() as there:
        said = await there.say(text)

    assert said.startswith(b"HTTP/1.1 400 Bad request\r\n")
    assert there.far.heard == []


async def test_one_connection_carries_one_request() -> None:
    """What a client writes behind its request is neither answered nor passed on."""
    first = "GET http://far.test:PORT/1 HTTP/1.1\r\nHost: far.test:PORT\r\n\r\n"
    smuggled = "POST http://far.test:PORT/2 HTTP/1.1\r\nHost: far.test:PORT\r\nContent-Length: 0\r\n\r\n"
    async with world() as there:
        said = await there.say(first + smuggled)

    assert said.count(b"HTTP/1.1") == 1
    assert [heard.split(b" ")[1] for heard in there.far.heard] == [b"/1"]


async def test_a_line_end_in_a_header_stays_in_the_header() -> None:
    """An old continuation line is joined, so that the far side cannot take it for a header of its own."""
    async with world() as there:
        await there.say("GET http://far.test:PORT/ HTTP/1.1\r\nHost: far.test:PORT\r\nA: b\r\n X-Evil: 1\r\n\r\n")

    assert b"\r\na: b X-Evil: 1\r\n" in there.far.heard[0]


@pytest.mark.parametrize(
    ("asked", "arrives"), [("far.test", True), ("FAR.test", True), ("evil.test", False), (None, True)]
)
async def test_tls_in_a_tunnel_has_to_ask_for_its_host(asked: str | None, arrives: bool) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    hello = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname=asked)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    said = hello.read()
    async with world(end=said[-4:], answer=b"back") as there:
        with anyio.fail_after(PATIENCE):
            async with await there.tunnel(f"far.test:{there.far.port}") as stream:
                await stream.send(said[:50])
                await stream.send(said[50:])
                answer = b""
                while arrives and answer != b"back":
                    answer += await stream.receive()
                rest = b"" if arrives else await everything(stream)

    assert (answer, rest, b"".join(there.far.heard)) == ((b"back", b"", said) if arrives else (b"", b"", b""))
    told = f"far.test:{there.far.port}: TLS asks for 'evil.test' there, which is another host"
    assert there.refused == ([] if arrives else [told])


async def test_tls_that_does_not_tell_which_host_it_asks_for_goes_nowhere() -> None:
    """The first message of version 1.0, which our library does not read as far as the name: a far side may."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    hello = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="evil.test").do_handshake()
    said = bytearray(hello.read())
    said[9:11] = b"\x03\x01"
    async with world(end=bytes(said[-4:]), answer=b"back") as there:
        with anyio.fail_after(PATIENCE):
            async with await there.tunnel(f"far.test:{there.far.port}") as stream:
                await stream.send(bytes(said))
                rest = await everything(stream)

    assert (rest, b"".join(there.far.heard)) == (b"", b"")
    assert [text.partition(": ")[2] for text in there.refused] == [
        "TLS there does not tell which host it asks for (versions before 1.2 do not here)"
    ]


async def test_what_does_not_answer_is_told_and_is_no_refusal() -> None:
    async with world(private=["far.test:1"]) as there:
        said = await there.say("CONNECT far.test:1 HTTP/1.1\r\nHost: far.test:1\r\n\r\n")

    assert said.startswith(b"HTTP/1.1 502 Not reached\r\n")
    assert there.refused == []


async def test_a_far_side_that_breaks_off_is_told() -> None:
    async with world(answer=b"no http at all\r\n\r\n") as there:
        said = await there.say("GET http://far.test:PORT/ HTTP/1.1\r\nHost: far.test:PORT\r\n\r\n")

    assert said.startswith(b"HTTP/1.1 502 Not reached\r\n")


async def test_traffic_has_an_end() -> None:
    async with world(limits=ProxyLimits(traffic=1000), end=b"!", answer=b"x" * 5000) as there:
        with anyio.fail_after(PATIENCE):
            async with await there.tunnel(f"far.test:{there.far.port}") as stream:
                await stream.send(b"out!")
                got = await everything(stream)
        after = await there.say("CONNECT far.test:PORT HTTP/1.1\r\nHost: far.test:PORT\r\n\r\n")

    assert len(got) < 5000
    assert after.startswith(b"HTTP/1.1 403 ")


async def test_a_connection_that_says_nothing_is_closed_and_too_many_wait() -> None:
    async with world(limits=ProxyLimits(head_seconds=0.2, connections=2)) as there:
        with anyio.fail_after(PATIENCE):
            silent = [await anyio.connect_tcp(LOOPBACK, there.port) for _ in range(4)]
            said = await there.say("GET http://far.test:PORT/ HTTP/1.1\r\nHost: far.test:PORT\r\n\r\n")
            ends = [await everything(stream) for stream in silent]
            for stream in silent:
                await stream.aclose()

    assert said.startswith(b"HTTP/1.1 200 ")
    assert ends == [b""] * 4


async def test_a_tunnel_in_which_nothing_moves_is_closed() -> None:
    async with world(limits=ProxyLimits(idle_seconds=0.2)) as there:
        with anyio.fail_after(PATIENCE):
            async with await there.tunnel(f"far.test:{there.far.port}") as stream:
                assert await everything(stream) == b""


# Patterns


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("pypi.org", HostPattern(name="pypi.org")),
        ("PyPI.org.", HostPattern(name="pypi.org")),
        ("github.com:22", HostPattern(name="github.com", port=22)),
        ("*.pythonhosted.org", HostPattern(name="*.pythonhosted.org")),
        ("*", HostPattern(name="*")),
    ],
)
def test_a_pattern_is_read(text: str, pattern: HostPattern) -> None:
    assert host_pattern(text) == pattern


@pytest.mark.parametrize(
    "text",
    ["", "https://pypi.org", "pypi.org/simple", "*pypi.org", "py*.org", "a.*.org", "1.2.3.4", "[::1]:443", "127.1",
     "a b", "a:0", "a:99999", "a:b", "user@a", "-a.org", "ä.org"],
)  # fmt: skip
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a host"):
        host_pattern(text)


@pytest.mark.parametrize(
    ("pattern", "host", "port", "fits"),
    [
        ("pypi.org", "pypi.org", 443, True),
        ("pypi.org", "pypi.org", 80, True),
        ("pypi.org", "pypi.org", 22, False),
        ("pypi.org", "evil-pypi.org", 443, False),
        ("github.com:22", "github.com", 22, True),
        ("github.com:22", "github.com", 443, False),
    ],
)
def test_a_pattern_stands_for_its_host_at_its_port_or_those_of_the_web(
    pattern: str, host: str, port: int, fits: bool
) -> None:
    assert host_pattern(pattern).fits(host, port) is fits


def test_what_is_private_is_named_with_its_port() -> None:
    assert private_host("[::1]:8080") == ("::1", 8080)
    for text in ("localhost", "http://localhost", "http://localhost:80"):
        with pytest.raises(UsageError, match="named with its port"):
            private_host(text)
