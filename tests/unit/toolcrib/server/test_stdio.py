"""MCP over a byte stream: a client at the other end of a socket pair, as the local daemon and `serve` see it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from rig import PATIENCE
from toolcrib.core.json import MESSAGE_BYTES
from toolcrib.mcp.server.service import Service, ServiceLimits
from toolcrib.mcp.stdio import read_messages
from toolcrib.server.stdio import Link, converse, serve_stdio
from unit.toolcrib.server.fake_backend import FakeBackend
from unit.toolcrib.server.wire_client import META, call, initialize

PING = {"jsonrpc": "2.0", "id": 9, "method": "ping"}
PONG: dict[str, Any] = {"jsonrpc": "2.0", "id": 9, "result": {}}


@dataclass(kw_only=True)
class Client:
    """The client's end."""

    link: Link
    ended: anyio.Event = field(default_factory=anyio.Event)
    """Set when the server has nothing more to do for this client."""
    _received: bytes = b""

    async def send(self, *sent: Mapping[str, Any] | bytes) -> None:
        for message in sent:
            await self.link.send(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")

    async def hear(self) -> dict[str, Any]:
        with anyio.fail_after(PATIENCE):
            while b"\n" not in self._received:
                chunk = await self.link.receive()
                assert chunk, "the server closed the connection"
                self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)

    async def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        await self.send(message)
        return await self.hear()

    async def wait_for_the_end(self) -> None:
        with anyio.fail_after(PATIENCE):
            await self.ended.wait()


@pytest.fixture
async def service(backend: FakeBackend) -> AsyncGenerator[Service]:
    limits = ServiceLimits(drain=0.2)
    async with Service(backend, profile="adaptive", mode="cautious", limits=limits) as service:
        yield service


@asynccontextmanager
async def connected(service: Service, received: bytes = b"") -> AsyncGenerator[Client]:
    ours, theirs = socket.socketpair()

    async def serve() -> None:
        async with Link(theirs) as link:
            await converse(service, link, received=received, profile="flat")
        client.ended.set()

    async with Link(ours) as link, anyio.create_task_group() as tasks:
        client = Client(link=link)
        tasks.start_soon(serve)
        yield client
        tasks.cancel_scope.cancel()


async def test_a_client_is_served_with_the_profile_it_joined_with(service: Service, backend: FakeBackend) -> None:
    async with connected(service) as client:
        hello = await client.ask(initialize())
        result = await client.ask(call("echo", text="hi"))

    assert hello["result"]["serverInfo"]["name"] == "toolcrib"
    assert result["result"]["isError"] is False
    assert [(seen.call.name, seen.profile) for seen in backend.seen] == [("echo", "flat")]


async def test_what_came_behind_the_greeting_is_the_first_that_is_heard(service: Service) -> None:
    first = json.dumps(initialize()).encode() + b"\n"
    async with connected(service, first[:-20]) as client:
        await client.send(first[-20:])
        assert "result" in await client.hear()


@pytest.mark.parametrize("rest", [b"\n", b""])
async def test_what_was_asked_is_answered_although_the_client_says_no_more(service: Service, rest: bytes) -> None:
    async with connected(service) as client:
        await client.ask(initialize())
        await client.send(json.dumps(PING).encode() + rest)
        client.link.socket.shutdown(socket.SHUT_WR)
        assert await client.hear() == PONG
        await client.wait_for_the_end()


async def test_a_client_that_only_waits_for_news_is_done_when_it_says_no_more(service: Service) -> None:
    params = {"notifications": {"toolsListChanged": True}, "_meta": META}
    async with connected(service) as client:
        await client.send({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params})
        assert (await client.hear())["method"] == "notifications/subscriptions/acknowledged"
        client.link.socket.shutdown(socket.SHUT_WR)
        await client.wait_for_the_end()


async def test_a_client_that_is_gone_has_its_calls_cancelled(service: Service, backend: FakeBackend) -> None:
    async with connected(service) as client:
        await client.ask(initialize())
        await client.send(call("wait"))
        await backend.waiting.wait()
        client.link.socket.close()
        with anyio.fail_after(PATIENCE):
            await backend.cancelled.wait()
        await client.wait_for_the_end()


async def test_a_client_that_only_stopped_talking_keeps_its_running_call(
    service: Service, backend: FakeBackend
) -> None:
    async with connected(service) as client:
        await client.ask(initialize())
        await client.send(call("wait"))
        await backend.waiting.wait()
        client.link.socket.shutdown(socket.SHUT_WR)
        backend.release.set()
        assert (await client.hear())["result"]["isError"] is False


async def test_a_stop_gives_running_calls_their_time_and_then_ends(service: Service, backend: FakeBackend) -> None:
    async with connected(service) as client:
        await client.ask(initialize())
        await client.send(call("wait"))
        await backend.waiting.wait()
        service.stop()
        await client.wait_for_the_end()

    assert backend.cancelled.is_set()


async def test_a_message_above_the_cap_is_refused_and_the_next_one_is_heard(service: Service) -> None:
    async with connected(service) as client:
        await client.ask(initialize())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.send, b'{"x": "' + b"y" * MESSAGE_BYTES + b'"}\n', PING)
            assert (await client.hear())["error"]["code"] == -32600
            assert await client.hear() == PONG


async def test_lines_are_given_whole_whatever_the_pieces_they_come_in() -> None:
    ours, theirs = socket.socketpair()
    text = b'{"a":1}\r\n\n  \n{"b":"' + b"z" * 200_000 + b'"}\n{"c":3}'
    heard: list[object] = []

    async def speak() -> None:
        async with Link(ours) as link:
            for place in range(0, len(text), 7_001):
                await link.send(text[place : place + 7_001])

    async with Link(theirs) as link, anyio.create_task_group() as tasks:
        tasks.start_soon(speak)
        heard += [message async for message in read_messages(link.receive)]

    assert heard == [b'{"a":1}', b'{"b":"' + b"z" * 200_000 + b'"}', b'{"c":3}']


async def test_standard_input_and_output_are_served_to_their_end(service: Service) -> None:
    source, asked = os.pipe()
    answered, sink = os.pipe()
    os.write(asked, b"".join(json.dumps(message).encode() + b"\n" for message in (initialize(), PING)))
    os.close(asked)
    with anyio.fail_after(PATIENCE):
        await serve_stdio(service, source, sink)
    os.close(sink)
    with os.fdopen(answered, "rb") as answers:
        heard = [json.loads(line) for line in answers]
    os.close(source)

    assert [message["id"] for message in heard] == [initialize()["id"], 9]


@pytest.mark.process
def test_what_is_printed_or_inherited_never_gets_between_the_messages() -> None:
    program = """
import os, subprocess, sys
from toolcrib.server.pipes import take_stdio
source, sink = take_stdio()
print("x" * 1_000_000)
os.write(1, b"straight to one")
child = "import sys; print('y'); sys.exit(len(sys.stdin.read()))"
assert subprocess.run([sys.executable, "-c", child]).returncode == 0, "the child read what was ours"
os.write(sink, b"answer to " + os.read(source, 100))
"""
    done = subprocess.run([sys.executable, "-c", program], input=b"question", capture_output=True, check=True)

    assert done.stdout == b"answer to question"
    assert len(done.stderr) > 1_000_000
