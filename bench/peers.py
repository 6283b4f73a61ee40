"""The other ends of the benches, each a process of its own: `python bench/peers.py ROLE …`.

raw              the thinnest stdio MCP server: `echo` reads, `note` writes; both answer at once
fastmcp C P M    FastMCP's proxy of config C over HTTP on port P; M is `default`, `reused` (one connected client for
                 all calls) or `reused-json` (that, without sessions and event streams)
unless F CMD …   CMD, unless the file F exists: then a server that takes everything and never answers
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["main"]

_SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "times": {"type": "integer"}, "loud": {"type": "boolean"}},
    "required": ["text"],
    "additionalProperties": False,
}
_TOOLS = [
    {"name": "echo", "description": "Echo a text.", "inputSchema": _SCHEMA, "annotations": {"readOnlyHint": True}},
    {
        "name": "note",
        "description": "Note a text down.",
        "inputSchema": _SCHEMA,
        "annotations": {"readOnlyHint": False, "destructiveHint": False},
    },
]


def raw() -> None:
    """Serve legacy MCP on standard input and output, one message after the other."""
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message:
            out.write(_answer(message))
            out.flush()


def _answer(message: dict[str, Any]) -> bytes:
    method, params = message.get("method"), message.get("params", {})
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "tools/call":
        reply["result"] = {"content": [{"type": "text", "text": params["arguments"]["text"]}], "isError": False}
    elif method == "initialize":
        wanted = params.get("protocolVersion", "2025-11-25")
        reply["result"] = {
            "protocolVersion": min(wanted, "2025-11-25"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "raw", "version": "1"},
        }
    elif method == "tools/list":
        reply["result"] = {"tools": _TOOLS}
    elif method == "ping":
        reply["result"] = {}
    else:
        reply["error"] = {"code": -32601, "message": "Method not found"}
    return json.dumps(reply).encode() + b"\n"


def fastmcp(config: str, port: str, manner: str) -> None:
    """Serve FastMCP's proxy until killed."""
    import uvicorn
    from fastmcp import Client
    from fastmcp.server import create_proxy

    servers = json.loads(Path(config).read_text())

    async def serve() -> None:
        if manner == "default":
            await _serve_app(uvicorn, create_proxy(servers, name="peer"), int(port), {})
            return
        plain = {"stateless_http": True, "json_response": True} if manner == "reused-json" else {}
        async with Client(servers) as client:
            await _serve_app(uvicorn, create_proxy(client, name="peer"), int(port), plain)

    asyncio.run(serve())


async def _serve_app(uvicorn: Any, proxy: Any, port: int, options: dict[str, bool]) -> None:
    app = proxy.http_app(transport="streamable-http", path="/mcp", **options)
    await uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error")).serve()


def unless(flag: str, *command: str) -> None:
    """Become `command`, or hang."""
    if not Path(flag).exists():
        os.execvp(command[0], command)
    while True:
        time.sleep(3600)


def main() -> None:
    """Run the role that the command line names."""
    role, *rest = sys.argv[1:]
    {"raw": raw, "fastmcp": fastmcp, "unless": unless}[role](*rest)


if __name__ == "__main__":
    main()
