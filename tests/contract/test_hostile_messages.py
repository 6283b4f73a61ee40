"""Every entrance × hostile JSON: each document is answered or refused by its code, and the next call succeeds."""

from __future__ import annotations

import io
import json
import logging
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from typer.testing import CliRunner

from contract.ways_in import TOOLCRIB, Home
from peers import SCRIPTED
from peers.opened import Opened, open_source
from peers.web import Request, WebPeer, event, web_peer
from rig import PATIENCE
from toolcrib import Toolcrib, tool
from toolcrib.cli.main import app
from toolcrib.cli.processes.hook import HookOptions, answer
from toolcrib.config import bare
from toolcrib.config.settings import RegistrationSettings
from toolcrib.core.json import MAX_DEPTH, MESSAGE_BYTES
from toolcrib.core.result import ToolResult
from toolcrib.errors import ToolFailure
from toolcrib.mcp.client.spec import ServerSpec
from toolcrib.mcp.server.backend import SessionRequest
from toolcrib.mcp.server.connection import Connection
from toolcrib.mcp.server.service import Service
from toolcrib.registration import Registrations
from toolcrib.registration.rest import RestApi
from toolcrib.server.backend import CribBackend
from toolcrib.server.http import HttpOptions
from toolcrib.server.stdio import Link, converse
from unit.toolcrib.server.fake_backend import FakeBackend, FakeSession
from unit.toolcrib.server.wire_client import META, Site, call, initialize, serving

PARSE, INVALID, PARAMS, INTERNAL = -32700, -32600, -32602, -32603
ADMIN = "admin-token-0001"


def arrays(levels: int) -> str:
    return "[" * levels + "]" * levels


def objects(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


@dataclass(frozen=True, kw_only=True)
class Row:
    """A value in the parameters of a request, and the answer: a code, or None for a result; with its id, or null."""

    text: bytes
    code: int | None = None
    has_id: bool = True


def row(text: str | bytes, code: int | None = None, *, has_id: bool = True) -> Row:
    return Row(text=text.encode() if isinstance(text, str) else text, code=code, has_id=has_id)


BOTTOMLESS: Final = 100_000
"""Levels that no parser or writer of a Python goes down; since 3.12 some take more than the recursion limit."""
ROOM: Final = MAX_DEPTH - 2
"""Levels that a value in the parameters of a message may have."""

VALUES: Final[Mapping[str, Row]] = {
    "arrays at the limit": row(arrays(ROOM)),
    "objects at the limit": row(objects(ROOM)),
    "wide and flat": row("[" + ",".join(["{}"] * 5000) + "]"),
    "brackets in a text": row(json.dumps("[{" * 20_000)),
    "one array too deep": row(arrays(ROOM + 1), PARSE),
    "one object too deep": row(objects(ROOM + 1), PARSE),
    "deeper than the writer takes": row(arrays(260), PARSE),
    "spaced and deep": row(arrays(260).replace("[", "[ "), PARSE),
    "as deep as the parser takes": row(objects(1000), PARSE),
    "deeper than the parser takes": row(arrays(100_000), PARSE, has_id=False),
    "open without end": row("[" * 100_000, PARSE, has_id=False),
    "NaN": row("NaN", PARSE, has_id=False),
    "a lone surrogate": row(r'"\ud800"', PARSE, has_id=False),
    "invalid UTF-8": row(b'"\xff\xfe"', PARSE, has_id=False),
    "a duplicate key": row('{"a":1,"a":2}', PARSE, has_id=False),
    "an integer of 30 digits": row("1" * 30, PARSE),
    "an integer of 100,000 digits": row("9" * 100_000, PARSE, has_id=False),
    "a fraction of 100,000 digits": row("0." + "9" * 100_000),
    "a number beyond doubles": row("1e999", PARSE, has_id=False),
    "nothing": row("", PARSE, has_id=False),
}

_HEAD = b'{"jsonrpc":"2.0",'
MESSAGES: Final[Mapping[str, Row]] = {
    "a deep id": row(_HEAD + b'"id":' + arrays(300).encode() + b',"method":"ping"}', PARSE, has_id=False),
    "an id that is an array": row(_HEAD + b'"id":[],"method":"ping"}', INVALID, has_id=False),
    "an id that is an object": row(_HEAD + b'"id":{"h":1},"method":"ping"}', INVALID, has_id=False),
    "a deep method": row(_HEAD + b'"id":"h","method":' + objects(300).encode() + b"}", PARSE),
    "a method that is a number": row(_HEAD + b'"id":"h","method":7}', INVALID),
    "deep parameters that are an array": row(_HEAD + b'"id":"h","method":"ping","params":[[[]]]}', INVALID),
    "a deep notification": row(
        _HEAD + b'"method":"notifications/x","params":' + objects(300).encode() + b"}", PARSE, has_id=False
    ),
    "a deep response": row(_HEAD + b'"id":"h","result":' + objects(300).encode() + b"}", PARSE, has_id=False),
    "a batch": row(b'[{"jsonrpc":"2.0","id":"h","method":"ping"}]', INVALID, has_id=False),
    "a deep batch": row(arrays(300), PARSE, has_id=False),
    "a text": row(b'"ping"', INVALID, has_id=False),
    "another version": row(b'{"jsonrpc":"1.0","id":"h","method":"ping"}', INVALID),
    "no message": row(b"{}", INVALID, has_id=False),
}
SILENT: Final[Mapping[str, bytes]] = {
    "a notification at the limit": _HEAD + b'"method":"notifications/x","params":' + objects(120).encode() + b"}",
    "a cancellation of an array": _HEAD + b'"method":"notifications/cancelled","params":{"requestId":[[1]]}}',
    "a cancellation of an object": _HEAD + b'"method":"notifications/cancelled","params":{"requestId":{"a":1}}}',
    "progress of nothing": _HEAD + b'"method":"notifications/progress","params":{"progressToken":{},"progress":[]}}',
    "an answer to nothing": _HEAD + b'"id":"x","result":' + objects(120).encode() + b"}",
}
"""Messages without an answer."""


@tool(kind="read")
def say(text: str) -> str:
    """Say it again."""
    return text


@tool(kind="read")
def hold(value: object = None) -> str:
    """Take anything."""
    return "held"


@tool(kind="read")
def deep(levels: int) -> dict[str, object]:
    """Return a nested object."""
    value: Any = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


@tool(kind="read")
def deep_text(levels: int) -> object:
    """Return a nested list, which becomes text."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@tool(kind="read")
def cyclic() -> dict[str, object]:
    """Return an object that contains itself."""
    value: dict[str, object] = {}
    value["a"] = value
    return value


@tool(kind="read")
def deep_result(levels: int) -> ToolResult:
    """Return a nested result."""
    value: Any = {}
    for _ in range(levels):
        value = {"a": value}
    return ToolResult(content=({"type": "text", "text": "deep"},), structured_content=value)


@asynccontextmanager
async def opened_crib(**options: Any) -> AsyncGenerator[Toolcrib]:
    async with Toolcrib(bare().with_values(**options), memory=True) as crib:
        for one in (say, hold, deep, deep_text, cyclic, deep_result):
            crib.add(one)
        yield crib


class Client:
    """A client of one connection, whatever carries it: sends bytes, and returns the answer."""

    def __init__(self, send: Callable[[bytes], Awaitable[Mapping[str, Any]]], *, modern: bool = False) -> None:
        self.send = send
        self.modern = modern

    def request(self, value: bytes) -> bytes:
        """Return a request that every server answers, with `value` in its parameters."""
        if self.modern:
            meta = json.dumps(META).encode()
            return _HEAD + b'"id":"h","method":"tools/list","params":{"_meta":' + meta + b',"x":' + value + b"}}"
        return _HEAD + b'"id":"h","method":"ping","params":{"x":' + value + b"}}"

    async def call(self, name: str, **arguments: Any) -> Mapping[str, Any]:
        """Call a tool and return the result."""
        more = {"_meta": META} if self.modern else {}
        answer = await self.send(json.dumps(call(name, arguments, id="n", **more)).encode())
        assert answer["id"] == "n"
        return answer["result"]

    async def is_served(self) -> bool:
        return (await self.call("say", text="still here"))["content"] == [{"type": "text", "text": "still here"}]


@asynccontextmanager
async def over_lines(*, modern: bool) -> AsyncGenerator[Client]:
    """A byte stream as standard input and output and the local daemon carry it."""
    ours, theirs = socket.socketpair()
    received = b""

    async def serve() -> None:
        async with Link(theirs) as link:
            await converse(service, link)

    async def send(message: bytes) -> Mapping[str, Any]:
        nonlocal received
        await link.send(message + b"\n")
        with anyio.fail_after(PATIENCE):
            while b"\n" not in received:
                chunk = await link.receive()
                assert chunk, "the server closed the connection"
                received += chunk
        line, _, received = received.partition(b"\n")
        return json.loads(line)

    async with (
        opened_crib() as crib,
        Service(CribBackend(crib), profile="flat", mode="cautious") as service,
        Link(ours) as link,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(serve)
        if not modern:
            await send(json.dumps(initialize()).encode())
        yield Client(send, modern=modern)
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def over_http(*, modern: bool) -> AsyncGenerator[Client]:
    async with opened_crib() as crib, serving(CribBackend(crib), HttpOptions(profile="flat")) as site:
        session = {} if modern else await site.open()

        async def send(message: bytes) -> Mapping[str, Any]:
            headers = dict(session)
            if modern:
                is_call = b'"tools/call"' in message[:200]
                headers = {"MCP-Protocol-Version": "2026-07-28"}
                headers["Mcp-Method"] = "tools/call" if is_call else "tools/list"
                headers |= {"Mcp-Name": json.loads(message)["params"]["name"]} if is_call else {}
            response = await site.post(message, **headers)
            return response.json()

        yield Client(send, modern=modern)


Entrance = Callable[[], AbstractAsyncContextManager[Client]]
ENTRANCES: Final[Mapping[str, Entrance]] = {
    "lines, handshake": lambda: over_lines(modern=False),
    "lines, stateless": lambda: over_lines(modern=True),
    "HTTP, handshake": lambda: over_http(modern=False),
    "HTTP, stateless": lambda: over_http(modern=True),
}


def outcome(answer: Mapping[str, Any]) -> tuple[Any, Any]:
    return answer.get("error", {}).get("code"), answer["id"]


def wanted(row: Row) -> tuple[Any, Any]:
    return row.code, "h" if row.has_id else None


@pytest.mark.parametrize("entrance", ENTRANCES.values(), ids=ENTRANCES)
async def test_every_hostile_message_is_answered_by_its_code_and_the_next_call_succeeds(
    entrance: Entrance, caplog: pytest.LogCaptureFixture
) -> None:
    found: dict[str, tuple[Any, Any]] = {}
    async with entrance() as client:
        for name, row in VALUES.items():
            found[name] = outcome(await client.send(client.request(row.text)))
            assert await client.is_served(), name
        for name, row in MESSAGES.items():
            found[name] = outcome(await client.send(row.text))
            assert await client.is_served(), name

    assert found == {name: wanted(row) for name, row in {**VALUES, **MESSAGES}.items()}
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("modern", [False, True])
async def test_a_message_without_an_answer_leaves_the_connection_as_it_was(modern: bool) -> None:
    async with over_lines(modern=modern) as client:
        for name, message in SILENT.items():
            answer = await client.send(message + b"\n" + client.request(b"1"))
            assert outcome(answer) == (None, "h"), name


async def test_a_message_without_an_answer_is_accepted_over_http() -> None:
    async with opened_crib() as crib, serving(CribBackend(crib), HttpOptions(profile="flat")) as site:
        session = await site.open()
        statuses = {name: (await site.post(message, **session)).status_code for name, message in SILENT.items()}

    assert statuses == dict.fromkeys(SILENT, 202)


async def test_a_body_and_a_line_above_the_size_limit_are_refused_by_code_and_by_id() -> None:
    params = b'"params":{"x":"' + b"y" * MESSAGE_BYTES + b'"}'
    message = _HEAD + b'"id":"h","method":"ping",' + params + b"}"
    async with over_lines(modern=False) as client:
        assert outcome(await client.send(message)) == (INVALID, "h")
        id_last = b'{"method":"ping",' + params + b',"jsonrpc":"2.0","id":7}'
        assert outcome(await client.send(id_last)) == (INVALID, 7)
        assert outcome(await client.send(b'{"result":{},' + params + b',"jsonrpc":"2.0","id":7}')) == (INVALID, None)
        assert await client.is_served()
    async with opened_crib() as crib, serving(CribBackend(crib), HttpOptions(profile="flat")) as site:
        assert (await site.post(message, **await site.open())).status_code == 413


@pytest.mark.parametrize("entrance", ENTRANCES.values(), ids=ENTRANCES)
async def test_deep_arguments_and_deep_values_of_tools_are_errors_of_their_call(entrance: Entrance) -> None:
    async with entrance() as client:
        results = {
            "arguments within the limit": await client.call("hold", value=json.loads(arrays(60))),
            "arguments too deep": await client.call("hold", value=json.loads(arrays(100))),
            "a value at the limit": await client.call("deep", levels=MAX_DEPTH),
            "a value one too deep": await client.call("deep", levels=MAX_DEPTH + 1),
            "a value deeper than the writer": await client.call("deep", levels=260),
            "a value deeper than Python": await client.call("deep", levels=BOTTOMLESS),
            "a value that contains itself": await client.call("cyclic"),
            "a text deeper than the writer": await client.call("deep_text", levels=260),
            "a text deeper than Python": await client.call("deep_text", levels=BOTTOMLESS),
            "a result too deep": await client.call("deep_result", levels=MAX_DEPTH),
            "a result deeper than the writer": await client.call("deep_result", levels=260),
        }
        assert await client.is_served()

    assert {name: code_of(result) for name, result in results.items()} == {
        "arguments within the limit": "ok",
        "arguments too deep": "invalid_arguments",
        "a value at the limit": "ok",
        "a value one too deep": "tool_error",
        "a value deeper than the writer": "tool_error",
        "a value deeper than Python": "tool_error",
        "a value that contains itself": "tool_error",
        "a text deeper than the writer": "ok",
        "a text deeper than Python": "tool_error",
        "a result too deep": "tool_error",
        "a result deeper than the writer": "tool_error",
    }


def code_of(result: Mapping[str, Any]) -> str:
    return result.get("_meta", {}).get("io.toolcrib/error", {}).get("code", "ok")


TEXTS: Final[Mapping[str, str]] = {
    "fine": "ok",
    "deep": "invalid_arguments",
    "deeper": "invalid_arguments",
    "bottomless": "invalid_arguments",
    "NaN": "invalid_arguments",
    "twice": "invalid_arguments",
    "surrogate": "invalid_arguments",
    "digits": "invalid_arguments",
    "huge": "too_large",
}


async def test_arguments_given_as_json_text_are_read_by_the_same_limits() -> None:
    texts = {
        "fine": '{"text":"x"}',
        "deep": objects(MAX_DEPTH + 1),
        "deeper": objects(600),
        "bottomless": arrays(100_000),
        "NaN": '{"text":NaN}',
        "twice": '{"text":"a","text":"b"}',
        "surrogate": r'{"text":"\ud800"}',
        "digits": '{"text":' + "9" * 100_000 + "}",
        "huge": '{"text":"' + "y" * (1 << 20) + '"}',
    }
    found: dict[str, dict[str, str]] = {}
    async with opened_crib() as crib:
        for profile in ("flat", "adaptive", "gateway"):
            session = crib.session(profile=profile)
            found[profile] = {}
            for name, text in texts.items():
                for given in (text, json.dumps(text)):
                    result = await session.call("say", given)
                    assert (result.error.code if result.error else "ok") == TEXTS[name], (profile, name)
                result = await session.call("call_tool", {"name": "say", "arguments": text})
                found[profile][name] = result.error.code if result.error else "ok"
            assert not (await session.call("say", {"text": "x"})).is_error

    assert found["adaptive"] == TEXTS
    assert {code for codes in found.values() for code in codes.values()}.isdisjoint({"internal"})


async def test_deep_values_from_the_library_are_errors_of_their_call() -> None:
    value: Any = 1
    for _ in range(5000):
        value = [value]
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    async with opened_crib() as crib:
        session = crib.session(profile="flat")
        codes = [(await session.call("hold", {"value": one})).error for one in (value, cyclic, json.loads(arrays(300)))]
        assert (await session.call("hold", {"value": [1]})).text == "held"

    assert [error.code if error else "ok" for error in codes] == ["invalid_arguments"] * 3


# Downstream servers


DOWNSTREAM: Final[Mapping[str, tuple[bytes, str]]] = {
    "at the limit": (b'{"structuredContent":' + objects(ROOM).encode() + b"}", "ok"),
    "one too deep": (b'{"structuredContent":' + objects(ROOM + 1).encode() + b"}", "too_large"),
    "deeper than the writer": (b'{"content":' + arrays(260).encode() + b"}", "too_large"),
    "as deep as the parser takes": (b'{"_meta":' + objects(1000).encode() + b',"content":[]}', "too_large"),
    "deeper than the parser": (b'{"content":' + arrays(100_000).encode() + b"}", "too_large"),
    "a duplicate key": (b'{"content":[],"content":[]}', "ok"),
    "a huge integer": (b'{"content":[],"structuredContent":{"a":' + b"1" * 200 + b"}}", "ok"),
    "a number of 100,000 digits": (b'{"content":[],"structuredContent":{"a":' + b"9" * 100_000 + b"}}", "tool_error"),
    "NaN": (b'{"content":[],"structuredContent":{"a":NaN}}', "ok"),
    "a lone surrogate": (rb'{"content":[{"type":"text","text":"\ud800"}]}', "ok"),
    "invalid UTF-8": (b'{"content":[{"type":"text","text":"\xff\xfe"}]}', "ok"),
    "an array": (b"[]", "tool_error"),
}
"""The `result` of an answer, and what its call comes to."""

UNASKED: Final = (
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[[1]]}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{"a":1}}}',
    b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":["info"],"data":1}}',
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{},"progress":[]}}',
    b'{"jsonrpc":"2.0","method":["a"],"params":7}',
    b'{"jsonrpc":"2.0","id":[[1]],"method":"ping"}',
    b'{"jsonrpc":"2.0","id":{"a":1},"result":{}}',
    b'{"jsonrpc":"2.0","method":"notifications/x","params":' + objects(300).encode() + b"}",
    b"[" + b'[{"jsonrpc":"2.0"}],' * 3 + b"1]",
)
"""Messages of a server that belong to no call, sent before each answer."""


def answer_of(result: bytes, key: bytes = b"<id>") -> bytes:
    return b'{"jsonrpc":"2.0","result":' + result + b',"id":' + key + b"}"


class Downstream:
    """A server in front of which a source stands: answers a call with given bytes."""

    def __init__(self, opened: Opened, answered: Callable[[bytes], Awaitable[ToolResult]], echo: str) -> None:
        self.opened = opened
        self.answered = answered
        self.echo = echo


@asynccontextmanager
async def over_pipes(folder: Path) -> AsyncGenerator[Downstream]:
    spec = ServerSpec(
        name="s", transport="stdio", command=sys.executable, args=("-IS", SCRIPTED, str(folder / "j")), timeout=PATIENCE
    )
    async with open_source(spec, folder) as peer:

        async def answered(result: bytes) -> ToolResult:
            lines = [line.decode("latin-1") for line in (*UNASKED, answer_of(result))]
            return await peer.call("raw", lines=lines)

        yield Downstream(peer, answered, "echo")


async def _echo(request: Request) -> None:
    await request.text("still here")


@asynccontextmanager
async def over_web(folder: Path, *, events: bool) -> AsyncGenerator[Downstream]:
    result = b""

    async def raw(request: Request) -> None:
        whole = answer_of(result, str(request.message["id"]).encode())
        if not events:
            await request.reply(200, whole)
            return
        await request.events()
        for message in (*UNASKED, whole):
            await request.raw(b"data: " + message + b"\n\n")
        await request.stream.aclose()

    async with web_peer(tools={"raw": raw, "echo": _echo}) as web, open_source(web.spec, folder) as peer:

        async def answered(given: bytes) -> ToolResult:
            nonlocal result
            result = given
            return await peer.call("raw")

        yield Downstream(peer, answered, "echo")


@asynccontextmanager
async def over_sse(folder: Path) -> AsyncGenerator[Downstream]:
    """The transport of 2024-11-05: requests by POST, every answer on one stream."""
    result = b""
    streams: list[Request] = []
    results: Mapping[str, Any] = {
        "initialize": {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}},
        "tools/list": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("raw", "echo")]},
    }

    class SsePeer(WebPeer):
        async def handle(self, request: Request) -> None:
            if request.verb == "GET":
                streams.append(request)
                await request.events()
                await request.raw(b"event: endpoint\ndata: /messages\n\n")
                return
            await request.reply(202)
            if request.method == "tools/call" and request.message["params"]["name"] == "raw":
                for message in (*UNASKED, answer_of(result, str(request.message["id"]).encode())):
                    await streams[-1].raw(b"data: " + message + b"\n\n")
            elif "id" in request.message:
                told = results.get(request.method, {"content": [{"type": "text", "text": "still here"}]})
                await streams[-1].raw(event({"jsonrpc": "2.0", "id": request.message["id"], "result": told}))

    async with web_peer(kind=SsePeer) as web, open_source(replace(web.spec, transport="sse"), folder) as peer:

        async def answered(given: bytes) -> ToolResult:
            nonlocal result
            result = given
            return await peer.call("raw")

        yield Downstream(peer, answered, "echo")


DOWNSTREAMS: Final[Mapping[str, Callable[[Path], AbstractAsyncContextManager[Downstream]]]] = {
    "pipes": over_pipes,
    "HTTP, one body": lambda folder: over_web(folder, events=False),
    "HTTP, events": lambda folder: over_web(folder, events=True),
    "SSE": over_sse,
}


@pytest.mark.process
@pytest.mark.parametrize("way", DOWNSTREAMS.values(), ids=DOWNSTREAMS)
async def test_a_hostile_answer_of_a_server_fails_its_call_alone_and_the_connection_lives_on(
    tmp_path: Path, way: Callable[[Path], AbstractAsyncContextManager[Downstream]], caplog: pytest.LogCaptureFixture
) -> None:
    found: dict[str, str] = {}
    async with way(tmp_path) as server:
        session = server.opened.source.state
        for name, (result, _) in DOWNSTREAM.items():
            try:
                with anyio.fail_after(PATIENCE):
                    await server.answered(result)
                found[name] = "ok"
            except ToolFailure as failure:
                found[name] = failure.code
            assert (await server.opened.call(server.echo, text="still here")).text == "still here", name
        assert server.opened.source.state == session

    assert found == {name: code for name, (_, code) in DOWNSTREAM.items()}
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


# REST, the command line, one process


async def test_a_hostile_body_of_rest_is_a_bad_request_and_the_next_one_is_served() -> None:
    options = HttpOptions(admin_token=ADMIN, profile="flat")
    bodies = [objects(MAX_DEPTH + 1).encode(), objects(1000).encode(), arrays(30_000).encode(), b"[1]", b"NaN"]
    bodies += [b'{"a":1,"a":2}', b'{"a":' + b"9" * 50_000 + b"}", b'{"a":"\xff"}', rb'{"a":"\ud800"}', b""]
    async with (
        opened_crib(registration=RegistrationSettings()) as crib,
        serving(CribBackend(crib), options, [partial(RestApi, crib.slice(Registrations))]) as site,
    ):
        statuses = [await _register(site, body) for body in bodies]
        too_large = await _register(site, b'{"a":"' + b"y" * (64 << 10) + b'"}')
        deep_definition = await _register(site, objects(100).encode())
        listed = await _rest(site, "GET")

    assert (statuses, too_large, deep_definition, listed) == ([400] * len(bodies), 413, 422, 200)


async def _register(site: Site, body: bytes) -> int:
    return await _rest(site, "POST", body)


async def _rest(site: Site, method: str, body: bytes | None = None) -> int:
    url = f"http://127.0.0.1:{site.port}/v1/instances/shop/tools"
    headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
    return (await site.client.request(method, url, content=body, headers=headers)).status_code


@pytest.mark.process
@pytest.mark.parametrize(
    "words",
    [
        ["--args", objects(MAX_DEPTH + 1)],
        ["--args", objects(900)],
        ["--args", '{"query":"a","query":"b"}'],
        ["--args", '{"query":' + "9" * 5000 + "}"],
        ["--args", "NaN"],
        [f"query:={arrays(900)}"],
        [f"query:={arrays(5000)}"],
    ],
    ids=["deep", "deeper", "twice", "digits", "NaN", "a value", "a bottomless value"],
)
def test_hostile_json_on_the_command_line_is_a_usage_error(tmp_path: Path, words: list[str]) -> None:
    home = Home(folder=tmp_path)
    result = CliRunner(env=home.environ).invoke(app, ["call", "--config", home.config, "t__look", *words])

    assert (result.exit_code, "Traceback" in result.output) == (2, False)
    assert (words[0] if words[0] == "--args" else "query") in result.output


@pytest.mark.parametrize("text", [objects(BOTTOMLESS), arrays(BOTTOMLESS), "9" * 5000])
def test_a_hook_denies_an_event_that_it_cannot_read(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    event = '{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"x":' + text + "}}"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(event.encode())))
    with pytest.raises(SystemExit) as ended:
        answer(HookOptions(mode=""))

    assert ended.value.code == 2


@pytest.mark.long
@pytest.mark.process
def test_one_process_on_standard_input_and_output_outlives_the_whole_table(tmp_path: Path) -> None:
    home = Home(folder=tmp_path)
    client = Client(_unsent)
    sent = [json.dumps(initialize()).encode()]
    sent += [client.request(row.text) for row in VALUES.values()] + [row.text for row in MESSAGES.values()]
    sent += [*SILENT.values(), json.dumps(call("t__look", {"query": "a"}, id="last")).encode()]
    done = subprocess.run(
        [TOOLCRIB, "serve", "--config", home.config, "--profile", "flat", "--no-daemon"],
        input=b"\n".join(sent) + b"\n",
        capture_output=True,
        env=home.environ,
        cwd=tmp_path,
        timeout=PATIENCE,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    codes = [outcome(answer) for answer in answers[1:-1] if "id" in answer]

    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    assert sorted(codes, key=str) == sorted(map(wanted, (*VALUES.values(), *MESSAGES.values())), key=str)
    assert (answers[-1]["id"], answers[-1]["result"]["isError"]) == ("last", False)
    assert [asked for asked, _ in home.ledger] == ["look"]


async def _unsent(message: bytes) -> Mapping[str, Any]:
    raise AssertionError(message)


# The guard, and anything else that JSON can hold


class BrokenDesk(FakeBackend):
    """Fails where no message should make it fail."""

    is_ready = True

    def open_session(self, wanted: SessionRequest, /) -> FakeSession:
        if wanted.profile == "broken":
            raise RuntimeError("secret path /srv/private")
        return super().open_session(wanted)

    async def failing(self) -> Mapping[str, str]:
        if self.is_ready:
            return await super().failing()
        raise RuntimeError("secret path /srv/private")


async def test_an_unexpected_exception_is_an_internal_error_that_tells_nothing_of_the_inside(
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend = BrokenDesk()
    async with serving(backend, HttpOptions(profile="flat")) as site:
        broken = await site.post(initialize(), path="/broken")
        backend.is_ready = False
        watched = await site.client.get(site.url.replace("/mcp", "/readyz"))
        assert (await site.post(initialize())).status_code == 200

    internal = {"code": INTERNAL, "message": "Internal error"}
    assert broken.json() == {"jsonrpc": "2.0", "id": 0, "error": internal}
    assert (watched.status_code, watched.json()) == (500, {"jsonrpc": "2.0", "id": None, "error": internal})
    assert [record.exc_info is not None for record in caplog.records if record.levelno >= logging.ERROR] == [True, True]


async def test_an_unexpected_exception_leaves_a_connection_of_lines_open() -> None:
    heard: list[Any] = []

    async def send(message: bytes) -> None:
        heard.append(json.loads(message))

    async with (
        Service(BrokenDesk(), profile="flat", mode="cautious") as service,
        Connection(service, send, profile="broken") as connection,
    ):
        for _ in range(2):
            await connection.feed(json.dumps(initialize()).encode())

    assert [outcome(answer) for answer in heard] == [(INTERNAL, 0)] * 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
PLAUSIBLE = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | JSON,
        "id": st.integers() | st.text(max_size=5) | JSON,
        "method": st.sampled_from(
            [
                "initialize",
                "tools/list",
                "tools/call",
                "ping",
                "notifications/cancelled",
                "resources/read",
                "logging/setLevel",
            ]
        )
        | JSON,
        "params": st.fixed_dictionaries(
            {},
            optional={
                "name": st.just("say") | JSON,
                "arguments": st.dictionaries(st.just("text"), JSON) | JSON,
                "_meta": JSON,
                "requestId": JSON,
                "uri": JSON,
                "level": JSON,
                "cursor": JSON,
                "inputResponses": JSON,
            },
        )
        | JSON,
        "result": JSON,
        "error": JSON,
    },
)


@pytest.mark.long
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(messages=st.lists(PLAUSIBLE | JSON, min_size=1, max_size=4), levels=st.integers(0, 400))
def test_odd_messages_never_end_a_connection(
    messages: list[Any], levels: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> list[Any]:
        heard: list[Any] = []
        answered = anyio.Event()

        async def send(message: bytes) -> None:
            heard.append(orjson.loads(message))
            if heard[-1].get("id") == "the last":
                answered.set()

        async with (
            Service(FakeBackend(), profile="flat", mode="cautious") as service,
            Connection(service, send) as connection,
        ):
            await connection.feed(json.dumps(initialize()).encode())
            for message in messages:
                around = levels if levels > 200 else 0
                await connection.feed(b"[" * around + json.dumps(message).encode() + b"]" * around)
            await connection.feed(json.dumps(call("echo", {"text": "x"}, id="the last")).encode())
            with anyio.fail_after(PATIENCE):
                await answered.wait()
        return heard

    heard = anyio.run(main)
    assert "the last" in [answer.get("id") for answer in heard]
    assert {answer.get("error", {}).get("code") for answer in heard}.isdisjoint({INTERNAL})
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
