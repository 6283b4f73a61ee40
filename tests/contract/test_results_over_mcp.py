"""Results as a real client meets them: where they come from, and passed on without passing through the client."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from mcp import Client, StdioServerParameters, stdio_client

from contract.ways_in import TOOLCRIB, Home
from peers.ledger_server import BIG

pytestmark = pytest.mark.process

OURS = "io.toolcrib/"


@pytest.mark.long
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_long_result_is_the_argument_of_the_next_call_and_says_where_it_comes_from(
    tmp_path: Path, mode: Literal["legacy", "2026-07-28"]
) -> None:
    home = Home(folder=tmp_path)
    words = ["serve", "--config", str(home.config), "--profile", "flat", "--no-daemon"]
    server = StdioServerParameters(command=TOOLCRIB, args=words, env=home.environ, cwd=tmp_path)
    async with Client(stdio_client(server), mode=mode) as client:
        flood = await client.call_tool("t__flood", {})
        meta = flood.meta or {}
        reference = {"$artifact": meta[f"{OURS}artifact"], "offset": 600, "limit": 300}
        looked = await client.call_tool("t__look", {"query": reference})
        unknown = await client.call_tool("t__look", {"query": {"$artifact": "0" * 32}})

    piece = BIG.encode()[600:900].decode()
    assert (meta[f"{OURS}source"], meta[f"{OURS}trust"]) == ("t", "untrusted")
    assert [entry["query"] for tool, entry in home.ledger if tool == "look"] == [piece]
    assert (looked.is_error, unknown.is_error) == (False, True)
