"""The wire of one `tools/call`: our reading, checking and framing beside a round trip of the MCP SDK in memory.

Ours is the work of both sides without an event loop: the client writes the request, the server reads it and frames the
result, the client reads that. The SDK has no such part to measure alone: its client and server run in memory, with
their tasks and streams. CPU time of the process; of many rounds the fastest counts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import anyio
from mcp import Client
from mcp.server.mcpserver import MCPServer

from toolcrib.core.json import dumps
from toolcrib.core.result import ToolResult
from toolcrib.mcp.client.session import of_reply
from toolcrib.mcp.client.spec import ServerSpec
from toolcrib.mcp.client.transport import decode, outcome_of
from toolcrib.mcp.jsonrpc import CAPABILITIES_KEY, LATEST, VERSION_KEY, Request, parse, result_message
from toolcrib.mcp.server.calls import read_call, result_body
from toolcrib.mcp.server.modern import read_envelope

ROUNDS, CALLS = 10, 1000
SPEC = ServerSpec(name="echo", transport="stdio", command="echo")


def ours(*, modern: bool) -> None:
    meta: dict[str, Any] = {"_meta": {VERSION_KEY: LATEST, CAPABILITIES_KEY: {}}} if modern else {}
    params = {"name": "echo", "arguments": {"text": "hi"}, **meta}
    text = dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    request = parse(text)
    assert isinstance(request, Request)
    if modern:
        read_envelope(request.params)
    call = read_call(request.params)
    result = ToolResult.of_text(call.arguments["text"])
    outcome = outcome_of(decode(result_message(request.id, result_body(result, modern=modern))))
    assert isinstance(outcome, Mapping)
    of_reply(outcome, SPEC, None)


def measure_ours(*, modern: bool) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(CALLS):
            ours(modern=modern)
        best = min(best, (time.process_time() - begun) / CALLS * 1e6)
    return best


async def measure_sdk(*, modern: bool) -> float:
    server = MCPServer("echo")

    @server.tool()
    async def echo(text: str) -> str:
        return text

    best = float("inf")
    async with Client(server, mode="auto" if modern else "legacy") as client:
        for _ in range(ROUNDS):
            begun = time.process_time()
            for _ in range(CALLS // 5):
                await client.call_tool("echo", {"text": "hi"})
            best = min(best, (time.process_time() - begun) / (CALLS // 5) * 1e6)
    return best


def main() -> None:
    for modern in (True, False):
        sdk = anyio.run(lambda modern=modern: measure_sdk(modern=modern))
        era = "stateless" if modern else "handshake"
        print(f"{era}: ours {measure_ours(modern=modern):.0f} µs, SDK in memory {sdk:.0f} µs")


if __name__ == "__main__":
    main()
