"""Identities over HTTP, in both eras: each principal has the mode and the profile of its own."""

from typing import Any

import pytest

from toolcrib import Toolcrib, tool
from toolcrib.cli.processes.server import http_options
from toolcrib.config import load
from toolcrib.server.backend import CribBackend
from unit.toolcrib.server.wire_client import META, Site, call, initialize, modern, serving

CONFIG: dict[str, Any] = {
    "mode": "cautious",
    "profile": "flat",
    "builtins": False,
    "tokens": [{"token": f"token-of-{name}-0123456789", "principal": name} for name in ("ada", "bob", "eve")],
    "identities": {"ada": {"mode": "autonomous"}, "bob": {"mode": "plan", "profile": "gateway"}},
}


@tool(kind="write")
def write(text: str) -> str:
    """Write a text."""
    return f"wrote {text}"


async def reached(site: Site, principal: str, era: str, message: dict[str, Any]) -> dict[str, Any]:
    login = {"Authorization": f"Bearer token-of-{principal}-0123456789"}
    if era == "2026-07-28":
        whole = {**message, "params": {**message.get("params", {}), "_meta": META}}
        return (await site.post(whole, **modern(whole), **login)).json()["result"]
    begun = await site.post(initialize(), **login)
    session = {"Mcp-Session-Id": begun.headers["mcp-session-id"], "MCP-Protocol-Version": era}
    return (await site.post(message, **login, **session)).json()["result"]


@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_each_principal_has_the_mode_and_the_profile_of_its_identity(era: str) -> None:
    settings = load(None, CONFIG)
    async with Toolcrib(settings, memory=True) as crib:
        crib.add(write)
        async with serving(CribBackend(crib), http_options(settings)) as site:
            texts: dict[str, str] = {}
            for who, message in (
                ("ada", call("write", {"text": "a"})),
                ("bob", call("tool_exec", {"op": "write", "args": {"text": "b"}})),
                ("eve", call("write", {"text": "e"})),
            ):
                texts[who] = (await reached(site, who, era, message))["content"][0]["text"]

    assert texts["ada"] == "wrote a"
    assert '{"op":"write","ok":false' in texts["bob"]
    assert "mode plan" in texts["bob"]
    assert "mode cautious" in texts["eve"]
