"""The shim between a client and one daemon after another, over real sockets and pipes."""

import json
import os
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.to_thread import run_sync

from rig import PATIENCE
from toolcrib.core.json import dumps
from toolcrib.daemon.listener import LocalServer
from toolcrib.daemon.rendezvous import DaemonEndpoint, Hello, Order, private_directory
from toolcrib.daemon.shim import Shim, relay_session
from toolcrib.errors import UsageError
from toolcrib.mcp.jsonrpc import RpcError, error_message, request_message, result_message
from toolcrib.mcp.stdio import read_messages
from toolcrib.server.pipes import LISTENER
from toolcrib.server.stdio import Link

KEY = "00112233445566778899aabbccddeeff"
HELLO = Hello(key=KEY, version="1", profile="flat", mode="cautious", cwd="/", pid=1)
HANDSHAKE = [
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    {"jsonrpc": "2.0", "id": 3, "method": "resources/subscribe", "params": {"uri": "a:b"}},
]


@dataclass
class Daemon:
    """A daemon that answers every request but calls, and remembers what it received."""

    endpoint: DaemonEndpoint
    tools: tuple[str, ...] = ("one",)
    store: str = "store"
    refuses: str = ""
    """A method."""
    heard: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    """Call, with `again` in front of one that was sent before, and message."""
    came: anyio.Event = field(default_factory=anyio.Event)
    called: anyio.Event = field(default_factory=anyio.Event)
    gone: anyio.Event = field(default_factory=anyio.Event)
    link: Link | None = None

    async def serve(self, hello: Hello, link: Link, received: bytes) -> None:
        self.link = link
        self.came.set()
        async for line in read_messages(link.receive, received):
            if not isinstance(line, bytes):
                await link.send(error_message(line, RpcError(-32600, "too long")) + b"\n")
                continue
            call, brace, text = line.partition(b"{")
            message = json.loads(brace + text)
            self.heard.append((call.decode().strip().replace(hello.session, "S"), message))
            method = message.get("method")
            if method == "tools/call":
                self.called.set()
            elif self.refuses and method == self.refuses:
                await link.send(error_message(message["id"], RpcError(-32602, "gone")) + b"\n")
            elif "id" in message and method:
                body = {"tools": self.tools} if method == "tools/list" else {}
                await link.send(result_message(message["id"], dumps(body)) + b"\n")
        if self.called.is_set():  # it works on a call
            await link.hung_up()
            self.gone.set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Leaving ends it as a kill does."""
        server = LocalServer(
            self.endpoint, serve=self.serve, greeting=lambda hello: "", store=self.store, version="1", idle_seconds=60
        )
        async with anyio.create_task_group() as tasks:
            listening = anyio.Event()
            tasks.start_soon(server.run, listening.set)
            await listening.wait()
            yield
            tasks.cancel_scope.cancel()


@dataclass
class Client:
    """What a client holds of a shim: the pipes to it, and the shim's own ends."""

    source: int
    sink: int
    to_shim: FileIO
    from_shim: FileIO
    status: list[int] = field(default_factory=list[int])
    said: list[str] = field(default_factory=list[str])
    heard: bytes = b""

    async def run(self, endpoint: DaemonEndpoint, *, find: Callable[[], Shim] | None = None) -> None:
        order = Order(
            directory=str(endpoint.directory), key=KEY, files=(), overrides={}, project="/", idle_seconds=1.0,
            log=str(endpoint.directory / "log"), log_level="info", lock=-1, report=-1,
        )  # fmt: skip
        shim = Shim(endpoint=endpoint, hello=HELLO, order=order, say=self.said.append)

        def relay() -> int:
            return relay_session(shim, find or (lambda: shim), self.source, self.sink, pauses=(0.0, 0.01))

        self.status.append(await run_sync(relay))

    async def say(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            await run_sync(self.to_shim.write, dumps(message) + b"\n")

    async def hear(self) -> Any:
        """Return the next message."""
        with anyio.fail_after(PATIENCE):
            while b"\n" not in self.heard:
                chunk = await run_sync(self.from_shim.read, 65536)
                assert chunk
                self.heard += chunk
        line, _, self.heard = self.heard.partition(b"\n")
        return json.loads(line)

    async def greet(self) -> None:
        """Open a session with a list of tools and a subscription."""
        await self.say(*HANDSHAKE)
        assert sorted([(await self.hear())["id"] for _ in range(3)]) == [1, 2, 3]


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[DaemonEndpoint]:
    """A place whose lock is held, so that no shim starts a daemon of its own."""
    place = DaemonEndpoint(directory=private_directory(tmp_path / "run"), key=KEY)
    lock = place.lock()
    assert lock is not None
    yield place
    os.close(lock)


@pytest.fixture
def client() -> Iterator[Client]:
    source, to_shim = os.pipe()
    from_shim, sink = os.pipe()
    with FileIO(to_shim, "w") as to_shim_file, FileIO(from_shim) as from_shim_file:
        yield Client(source=source, sink=sink, to_shim=to_shim_file, from_shim=from_shim_file)
    # A shim's process ends with its session. Here its thread would read on from the next test's pipe, which gets the
    # same number: so it has to be gone before the number is.
    for thread in threading.enumerate():
        if thread.name == LISTENER:
            thread.join(PATIENCE)
            assert not thread.is_alive()
    os.close(source)
    os.close(sink)


def call(id: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "one"}}


async def test_a_shim_relays_both_ways_with_an_id_for_each_call_and_ends_well_with_its_client(
    endpoint: DaemonEndpoint, client: Client
) -> None:
    daemon = Daemon(endpoint)
    async with daemon.running(), anyio.create_task_group() as tasks:
        tasks.start_soon(client.run, endpoint)
        await client.say({"jsonrpc": "2.0", "id": "a", "method": "ping"})
        assert await client.hear() == {"jsonrpc": "2.0", "id": "a", "result": {}}
        client.to_shim.close()

    assert (client.status, [call for call, _ in daemon.heard]) == ([0], ["call_S_1"])


async def test_a_session_goes_on_at_the_next_daemon_which_gets_what_opened_it_and_what_has_no_answer(
    endpoint: DaemonEndpoint, client: Client
) -> None:
    first, second = Daemon(endpoint), Daemon(endpoint, tools=("one", "two"))
    news: list[Any] = []
    async with anyio.create_task_group() as tasks:
        async with first.running():
            tasks.start_soon(client.run, endpoint)
            await client.greet()
            withdrawn = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
            await client.say(call(4), call(5), withdrawn, {"jsonrpc": "2.0", "id": 6, "method": "ping"})
            assert (await client.hear())["id"] == 6  # what was sent before it is noted
            assert first.link is not None
            await first.called.wait()
            await first.link.send(request_message("question", "elicitation/create", {}) + b"\n")
            await first.link.send(b'{"jsonrpc":"2.0","id":4,"result":{"half')
            assert (await client.hear())["id"] == "question"
        async with second.running():
            news += [await client.hear() for _ in range(3)]
            await second.called.wait()
            client.to_shim.close()
            client.from_shim.close()
            await second.gone.wait()

    methods = ["initialize", "notifications/initialized", "tools/list", "resources/subscribe"]
    opening, (again,) = second.heard[:4], second.heard[4:]
    assert {call for call, _ in opening} == {"again opening"}
    assert sorted(message["method"] for _, message in opening) == sorted(methods)
    assert again == ("again call_S_5", call(4))
    assert [(one["method"], one.get("params")) for one in news] == [
        ("notifications/cancelled", {"requestId": "question"}),
        ("notifications/tools/list_changed", None),
        ("notifications/resources/updated", {"uri": "a:b"}),
    ]


async def test_a_subscription_that_the_next_daemon_refuses_is_named_and_not_asked_for_again(
    endpoint: DaemonEndpoint, client: Client
) -> None:
    second, third = Daemon(endpoint, refuses="resources/subscribe"), Daemon(endpoint)
    news: list[Any] = []
    async with anyio.create_task_group() as tasks:
        async with Daemon(endpoint).running():
            tasks.start_soon(client.run, endpoint)
            await client.greet()
        async with second.running():
            news += [await client.hear() for _ in range(3)]
        async with third.running():
            await client.say({"jsonrpc": "2.0", "id": 4, "method": "ping"})
            assert (await client.hear())["id"] == 4
            client.to_shim.close()

    assert (news[0]["params"]["level"], "a:b" in news[0]["params"]["data"]) == ("error", True)
    assert [one["method"] for one in news] == [
        "notifications/message",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    ]
    assert "resources/subscribe" not in [message.get("method") for _, message in third.heard]


async def test_without_a_request_the_next_daemon_is_joined_at_the_next_message_of_the_client(
    endpoint: DaemonEndpoint, client: Client
) -> None:
    async with anyio.create_task_group() as tasks:
        first = Daemon(endpoint)
        async with first.running():
            tasks.start_soon(client.run, endpoint)
            await first.came.wait()
        second = Daemon(endpoint)
        async with second.running():
            await client.say({"jsonrpc": "2.0", "id": 1, "method": "ping"})
            assert await client.hear() == {"jsonrpc": "2.0", "id": 1, "result": {}}
            client.to_shim.close()

    assert (client.status, len(client.said)) == ([0], 2)


async def test_a_request_that_ends_three_daemons_and_a_call_that_the_next_daemon_cannot_know_are_errors(
    endpoint: DaemonEndpoint, client: Client
) -> None:
    answers: list[Any] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.run, endpoint)
        await client.say(call(1))
        for _ in range(3):
            daemon = Daemon(endpoint)
            async with daemon.running():
                await daemon.called.wait()
        last = Daemon(endpoint)
        async with last.running():
            answers.append(await client.hear())
            await client.say(call(2))
            with anyio.fail_after(PATIENCE):
                await last.called.wait()
        async with Daemon(endpoint, store="another").running():
            answers.append(await client.hear())
            client.to_shim.close()

    assert [(one["id"], one["error"]["code"], one["error"]["data"]["code"]) for one in answers] == [
        (1, -32603, "outcome_unknown"),
        (2, -32603, "outcome_unknown"),
    ]
    assert [one["error"]["data"]["call_id"][-2:] for one in answers] == ["_1", "_2"]


async def test_a_session_without_another_daemon_ends_with_an_error_for_each_request(
    endpoint: DaemonEndpoint, client: Client
) -> None:
    def find() -> Shim:
        raise UsageError("nothing there")

    async def run() -> None:
        await client.run(endpoint, find=find)

    daemon = Daemon(endpoint)
    answer: Any = None
    async with anyio.create_task_group() as tasks:
        async with daemon.running():
            tasks.start_soon(run)
            await client.say(call(1))
            await daemon.called.wait()
        answer = await client.hear()
    client.to_shim.close()

    assert (client.status, answer["id"], "nothing there" in answer["error"]["message"]) == ([7], 1, True)


async def test_a_client_that_is_gone_altogether_ends_the_connection_although_the_daemon_still_works(
    endpoint: DaemonEndpoint, client: Client
) -> None:
    daemon = Daemon(endpoint)
    async with daemon.running(), anyio.create_task_group() as tasks:
        tasks.start_soon(client.run, endpoint)
        await client.say(call(1))
        await daemon.called.wait()
        client.to_shim.close()
        client.from_shim.close()
        with anyio.fail_after(PATIENCE):
            await daemon.gone.wait()


async def test_a_request_that_is_cut_is_refused_by_the_id_at_its_end(endpoint: DaemonEndpoint, client: Client) -> None:
    long = {"method": "ping", "params": {"x": "y" * 6_000_000}, "jsonrpc": "2.0", "id": "last"}
    async with Daemon(endpoint).running(), anyio.create_task_group() as tasks:
        tasks.start_soon(client.run, endpoint)
        await client.say(long)
        assert (await client.hear())["id"] == "last"
        client.to_shim.close()
