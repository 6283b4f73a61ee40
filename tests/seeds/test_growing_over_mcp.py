"""Lists that grow, over MCP: clients of the handshake era get them and are told, for those of the stateless era they
stand still. The default profile stands still for both.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from rig import PATIENCE
from seeds.rigging import built_in
from toolcrib.crib import Toolcrib
from toolcrib.mcp.server.connection import Connection
from toolcrib.mcp.server.service import Service
from toolcrib.server.backend import CribBackend

CHANGED = "notifications/tools/list_changed"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
GROWING = [
    ("tiered", "load_tools", {"category": "hooks"}, "list_hooks"),
    ("introspection", "get_tool_schemas", {"names": ["calculate"]}, "calculate"),
]


class Client:
    """The far end of a pair of pipes, of one era."""

    def __init__(self, service: Service, *, is_modern: bool) -> None:
        self._out, self._in = anyio.create_memory_object_stream[dict[str, Any]](100)
        self._meta: Mapping[str, Any] = {"_meta": ENVELOPE} if is_modern else {}
        self._numbers = itertools.count(1)
        self.connection = Connection(service, self._take)
        self.told: list[str] = []
        """Notifications that came so far."""

    async def _take(self, message: bytes) -> None:
        await self._out.send(json.loads(message))

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the result of one request."""
        number = next(self._numbers)
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": {**(params or {}), **self._meta}}
        await self.connection.feed(json.dumps(request).encode())
        with anyio.fail_after(PATIENCE):
            while True:
                message = await self._in.receive()
                if message.get("id") == number:
                    return message["result"]
                self.told.append(message["method"])

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return await self.ask("tools/call", {"name": name, "arguments": arguments})

    async def listed(self) -> list[str]:
        return [tool["name"] for tool in (await self.ask("tools/list"))["tools"]]

    async def hears(self) -> str:
        """Return the next notification, however long it takes."""
        if not self.told:
            with anyio.fail_after(PATIENCE):
                self.told.append((await self._in.receive())["method"])
        return self.told.pop(0)

    def close(self) -> None:
        self._out.close()
        self._in.close()


@asynccontextmanager
async def client(crib: Toolcrib, profile: str, *, is_modern: bool) -> AsyncGenerator[Client]:
    async with Service(CribBackend(crib), profile=profile, mode="autonomous") as service:
        one = Client(service, is_modern=is_modern)
        async with one.connection:
            if not is_modern:
                opening = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": {"name": "t", "version": "1"},
                }
                await one.ask("initialize", opening)
            try:
                yield one
            finally:
                one.close()


@pytest.mark.parametrize(("profile", "verb", "arguments", "tool"), GROWING)
async def test_a_client_of_the_handshake_era_gets_the_growing_list_and_is_told(
    profile: str, verb: str, arguments: Mapping[str, Any], tool: str
) -> None:
    async with built_in(builtins=("hooks", "math")) as crib, client(crib, profile, is_modern=False) as one:
        before = await one.listed()
        assert before == [known.name for known in crib.session(profile=profile).tools]
        assert (await one.call(verb, arguments))["isError"] is False
        assert await one.hears() == CHANGED
        after = await one.listed()
        assert after[: len(before)] == before
        assert tool in after[len(before) :]
        await one.call(verb, arguments)
        assert (await one.listed(), one.told) == (after, [])


@pytest.mark.parametrize(("profile", "verb", "arguments", "tool"), GROWING)
async def test_a_client_of_the_stateless_era_gets_the_standing_list_and_reaches_the_rest_with_call_tool(
    profile: str, verb: str, arguments: Mapping[str, Any], tool: str
) -> None:
    async with built_in(builtins=("hooks", "math")) as crib, client(crib, profile, is_modern=True) as one:
        before = await one.listed()
        assert {verb, "call_tool"} < set(before)
        assert (await one.call(verb, arguments))["isError"] is False
        assert await one.listed() == before
        given = {"expression": "6 * 7"} if tool == "calculate" else {}
        answered = await one.call("call_tool", {"name": tool, "arguments": given})
        assert answered["isError"] is False
        assert one.told == []


@pytest.mark.parametrize("is_modern", [False, True])
async def test_the_default_profile_stands_still_for_both(crib: Toolcrib, is_modern: bool) -> None:
    async with client(crib, "adaptive", is_modern=is_modern) as one:
        before = await one.listed()
        await one.call("search_tools", {"query": "list"})
        await one.call("describe_tools", {"names": list(crib.catalog.tools)[:3]})
        assert (await one.listed(), one.told) == (before, [])


async def test_a_tool_that_is_switched_off_for_all_leaves_the_list_of_a_client_that_is_told(crib: Toolcrib) -> None:
    name = "calculate"
    async with client(crib, "flat", is_modern=False) as one:
        before = await one.listed()
        crib.tools.disable(name)
        try:
            assert await one.hears() == CHANGED
            assert await one.listed() == [other for other in before if other != name]
        finally:
            crib.tools.enable(name)
