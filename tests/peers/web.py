"""An HTTP server of our own, down to the bytes, for what no decent server does."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc

from rig import PATIENCE
from toolcrib.mcp.client.spec import ServerSpec

_OPEN = {"type": "object"}
_CAPABILITIES: dict[str, Any] = {"tools": {}}


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request as it came."""

    verb: str
    path: str
    headers: Mapping[str, str]
    message: Mapping[str, Any]
    stream: anyio.abc.ByteStream

    @property
    def method(self) -> str:
        """The JSON-RPC method."""
        return self.message.get("method", "")

    async def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        await self.stream.send(data)

    async def reply(self, status: int, body: bytes = b"", kind: str = "application/json", **headers: str) -> None:
        """Send a whole answer."""
        lines = [f"HTTP/1.1 {status} X", f"content-type: {kind}", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.raw("\r\n".join([*lines, "", ""]).encode() + body)

    async def result(self, result: Any, **headers: str) -> None:
        """Answer with a JSON-RPC result."""
        message = {"jsonrpc": "2.0", "id": self.message["id"], "result": result}
        await self.reply(200, json.dumps(message).encode(), **headers)

    async def text(self, words: str) -> None:
        """Answer a call with text."""
        await self.result({"content": [{"type": "text", "text": words}]})

    async def error(self, code: int, message: str, status: int = 200) -> None:
        """Answer with a JSON-RPC error."""
        body = {"jsonrpc": "2.0", "id": self.message.get("id"), "error": {"code": code, "message": message}}
        await self.reply(status, json.dumps(body).encode())

    async def events(self) -> None:
        """Begin a stream of events that ends with the connection."""
        await self.raw(b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")


Behaviour = Callable[[Request], Awaitable[None]]


@dataclass(kw_only=True)
class WebPeer:
    """A running server of the old era with sessions; `tools` say how each call goes, `aside` what a GET gives."""

    url: str = ""
    tools: dict[str, Behaviour] = field(default_factory=dict[str, Behaviour])
    schemas: dict[str, Any] = field(default_factory=dict[str, Any])
    modern: bool = False
    refused: Mapping[str, Any] | None = None
    """The JSON-RPC error that the first request gets."""
    aside: Behaviour | None = None
    requests: list[Request] = field(default_factory=list[Request])
    sessions: int = 0

    @property
    def spec(self) -> ServerSpec:
        """How to reach it."""
        headers = {"x-ours": "configured"}
        return ServerSpec(name="web", transport="http", url=self.url, headers=headers, timeout=PATIENCE)

    def of(self, method: str) -> list[Request]:
        """Return the requests with this method."""
        return [request for request in self.requests if request.method == method]

    async def handle(self, request: Request) -> None:
        """Answer one request."""
        self.requests.append(request)
        if request.verb == "GET" and self.aside is not None:
            await self.aside(request)
        elif self.refused is not None and len(self.requests) == 1:
            body = {"jsonrpc": "2.0", "id": request.message["id"], "error": self.refused}
            await request.reply(400, json.dumps(body).encode())
        elif request.verb != "POST":
            await request.reply(405)
        elif "id" not in request.message or not request.method:
            await request.reply(202)
        else:
            await self._answer(request)

    async def _answer(self, request: Request) -> None:
        match request.method:
            case "server/discover" if self.modern:
                await request.result({"supportedVersions": ["2026-07-28"], "capabilities": _CAPABILITIES})
            case "initialize" if not self.modern:
                self.sessions += 1
                agreed = {"protocolVersion": "2025-11-25", "capabilities": _CAPABILITIES}
                await request.result(agreed, mcp_session_id=f"session-{self.sessions}")
            case "tools/list":
                tools = [{"name": name, "inputSchema": self.schemas.get(name, _OPEN)} for name in self.tools]
                for tool in tools:
                    tool["annotations"] = {"readOnlyHint": tool["name"].startswith("read")}
                await request.result({"tools": tools})
            case "tools/call":
                await self.tools[request.message["params"]["name"]](request)
            case method:
                await request.error(-32601, f"no {method}", status=400)


def event(message: Any, **fields: str) -> bytes:
    """Return one server-sent event."""
    head = "".join(f"{name}: {value}\n" for name, value in fields.items())
    return f"{head}data: {json.dumps(message)}\n\n".encode()


@asynccontextmanager
async def web_peer(kind: type[WebPeer] = WebPeer, **how: Any) -> AsyncGenerator[WebPeer]:
    """Run a server until the block ends."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    peer = kind(url=f"http://127.0.0.1:{port}/mcp", **how)

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            try:
                while (request := await _read(stream)) is not None:
                    await peer.handle(request)
                    if request.headers.get("x-over"):
                        return
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, EOFError):
                return

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        yield peer
        group.cancel_scope.cancel()


async def _read(stream: anyio.abc.ByteStream) -> Request | None:
    data = b""
    while b"\r\n\r\n" not in data:
        try:
            data += await stream.receive()
        except anyio.EndOfStream:
            return None
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += await stream.receive()
    verb, path, _ = first.split(" ")
    return Request(verb=verb, path=path, headers=headers, message=json.loads(body) if body else {}, stream=stream)
