"""A client that sends exactly what a test says: JSON-RPC over real HTTP, and bytes over a real socket."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2

from rig import PATIENCE
from toolcrib.mcp.server.backend import Backend
from toolcrib.server.http import HttpOptions, MakeRoute, serve_http

ACCEPT = "application/json, text/event-stream"
META: Mapping[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
CAPABLE: Mapping[str, Any] = {**META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}


def initialize(version: str = "2025-11-25", capabilities: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The opening request of the handshake era."""
    params = {
        "protocolVersion": version,
        "capabilities": capabilities or {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def call(name: str, arguments: Mapping[str, Any] | None = None, *, id: int | str = 1, **params: Any) -> dict[str, Any]:
    """A `tools/call`."""
    return {
        "jsonrpc": "2.0",
        "id": id,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments or {}, **params},
    }


def modern(message: Mapping[str, Any]) -> dict[str, str]:
    """The headers that a message of the stateless era travels with."""
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": str(message["method"])}
    if name := message.get("params", {}).get("name"):
        headers["Mcp-Name"] = name
    return headers


@dataclass(frozen=True, kw_only=True)
class Site:
    """A running server and a client of it."""

    url: str
    client: httpx2.AsyncClient
    stop: anyio.Event
    stopped: anyio.Event

    @property
    def port(self) -> int:
        """Where it listens."""
        return urlsplit(self.url).port or 0

    async def post(self, message: Any, *, path: str = "", **headers: str) -> httpx2.Response:
        """Send one message; header names take `_` for `-`."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        shown = {"Content-Type": "application/json", "Accept": ACCEPT}
        shown.update({name.replace("_", "-"): value for name, value in headers.items()})
        return await self.client.post(self.url + path, content=body, headers=shown)

    async def ask(self, message: Mapping[str, Any], *, name: str = "", **headers: str) -> httpx2.Response:
        """Send one message of the stateless era with the headers that belong to it; `name` is another `Mcp-Name`."""
        meta = {**META, **message.get("params", {}).get("_meta", {})}
        whole = {**message, "params": {**message.get("params", {}), "_meta": meta}}
        named = {"Mcp-Name": name} if name else {}
        return await self.post(whole, **modern(whole), **named, **headers)

    async def open(self, **options: Any) -> dict[str, str]:
        """Begin a session and return the headers of its further requests."""
        response = await self.post(initialize(**options))
        headers = {"Mcp-Session-Id": response.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, **headers)
        return headers

    @asynccontextmanager
    async def stream(
        self, method: str, message: Mapping[str, Any] | None, **headers: str
    ) -> AsyncGenerator[httpx2.Response]:
        """Open a response and leave reading it to the test; leaving closes the connection."""
        shown = {"Content-Type": "application/json", "Accept": ACCEPT}
        shown.update({name.replace("_", "-"): value for name, value in headers.items()})
        async with (
            httpx2.AsyncClient(verify=False) as client,
            client.stream(method, self.url, json=message, headers=shown) as response,
        ):
            yield response

    async def raw(self, data: bytes) -> bytes:
        """Send bytes and return everything until the server closes the connection."""
        received = b""
        async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
            await stream.send(data)
            with anyio.fail_after(PATIENCE):
                try:
                    while True:
                        received += await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return received


async def events(response: httpx2.Response) -> AsyncGenerator[dict[str, Any]]:
    """The messages of an event stream, as they come."""
    async for line in response.aiter_lines():
        if line.startswith("data:"):
            yield json.loads(line[5:])


@asynccontextmanager
async def serving(backend: Backend, options: HttpOptions, routes: Iterable[MakeRoute] = ()) -> AsyncGenerator[Site]:
    """Serve `backend` for as long as the context is open; with the `routes` of slices too."""
    stop, stopped, begun = anyio.Event(), anyio.Event(), anyio.Event()
    urls: list[str] = []

    def started(url: str) -> None:
        urls.append(url)
        begun.set()

    async def run() -> None:
        await serve_http(backend, options, started=started, stop=stop, routes=routes)
        stopped.set()

    async with httpx2.AsyncClient(verify=False) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await begun.wait()
        yield Site(url=urls[0], client=client, stop=stop, stopped=stopped)
        stop.set()
