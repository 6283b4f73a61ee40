"""The proof of `toolcrib demo`: a small MCP client that finds a tool and calls it, over the wire that any client uses.

Streamable HTTP, revision 2025-11-25, one request at a time: what the specification asks of a client and no more.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import httpx2

from ..core.json import dumps, read_json
from ..errors import ToolFailure

__all__ = ["Client", "connected"]

_REVISION: Final = "2025-11-25"
_SECONDS: Final = 60.0
_SESSION: Final = "mcp-session-id"


class Client:
    """One MCP session. `connected` opens it."""

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        """`http` belongs to the caller."""
        self._http = http
        self._url = url
        self._headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        self._last = 0

    async def open(self) -> None:
        """Shake hands."""
        hello = {
            "protocolVersion": _REVISION,
            "capabilities": {},
            "clientInfo": {"name": "toolcrib-demo", "version": "1"},
        }
        await self._request("initialize", hello)
        self._headers["mcp-protocol-version"] = _REVISION
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def tools(self) -> list[dict[str, Any]]:
        """Return the definitions that a client is shown."""
        return cast("list[dict[str, Any]]", (await self._request("tools/list", {}))["tools"])

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool and return the text of its result. Raises `ToolFailure` when it failed."""
        result = await self._request("tools/call", {"name": name, "arguments": arguments})
        blocks = cast("list[dict[str, Any]]", result.get("content", []))
        text = "\n".join(str(block.get("text", "")) for block in blocks)
        if result.get("isError"):
            raise ToolFailure("tool_error", f"{name}: {text}")
        return text

    async def _request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self._last += 1
        response = await self._post({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        if _SESSION in response.headers:
            self._headers[_SESSION] = response.headers[_SESSION]
        for message in _messages(response):
            if message.get("id") == self._last and "error" in message:
                raise ToolFailure("unavailable", f"{method}: {message['error'].get('message')}")
            if message.get("id") == self._last:
                return cast("dict[str, Any]", message["result"])
        raise ToolFailure("unavailable", f"{method} was not answered")

    async def _post(self, message: Mapping[str, Any]) -> httpx2.Response:
        response = await self._http.post(self._url, content=dumps(message), headers=self._headers)
        if response.status_code >= 400:
            raise ToolFailure("unavailable", f"the gateway answered {response.status_code}: {response.text[:300]}")
        return response


def _messages(response: httpx2.Response) -> list[dict[str, Any]]:
    """Return what came back, whether it is one JSON message or an event stream that holds several."""
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        return [read_json(response.content)]
    events = response.text.splitlines()
    return [read_json(line.removeprefix("data:")) for line in events if line.startswith("data:") and line[5:].strip()]


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[Client]:
    """Connect to the MCP endpoint `url`. Proxies of the environment are not used: the endpoint is ours."""
    async with httpx2.AsyncClient(timeout=_SECONDS, trust_env=False) as http:
        client = Client(http, url)
        await client.open()
        yield client
