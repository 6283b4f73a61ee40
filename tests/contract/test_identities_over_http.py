"""Identities over HTTP, in both eras: each principal has the mode and the profile of its own, and its own servers."""

from typing import Any

import anyio
import pytest

from conformance.test_resources import SERVER
from rig import PATIENCE
from toolcrib import Toolcrib, tool
from toolcrib.cli.processes.server import http_options
from toolcrib.config import load
from toolcrib.server.backend import CribBackend
from unit.toolcrib.server.wire_client import META, Site, call, events, initialize, modern, serving

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


_WATCHED = "test://watched-resource"
_LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
_ASKED: dict[str, dict[str, Any]] = {
    "resources/read": {"uri": _WATCHED},
    "resources/subscribe": {"uri": _WATCHED},
    "prompts/get": {"name": "one__test_simple_prompt"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "one__test_prompt_with_arguments"},
        "argument": {"name": "arg1", "value": "t"},
    },
}


def rpc(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


@pytest.mark.process
@pytest.mark.parametrize("eve", [{"rules": {"deny": ["mcp__one"]}}, {"allowed_tools": ["write", "read_resource"]}])
async def test_a_principal_learns_nothing_of_a_server_that_it_may_not_use(eve: dict[str, Any]) -> None:
    """Lists, reads, subscriptions, completions, notifications, and the session of one that may."""
    identities = {"ada": {"mode": "autonomous"}, "eve": eve}
    settings = load(None, {**CONFIG, "identities": identities, "untrusted": {"trusted": ["one"]}})
    async with Toolcrib(settings, memory=True) as crib:
        await crib.mount({"mcpServers": {"one": SERVER}}, accept=True)
        await crib.tools.wait_ready(PATIENCE)
        async with serving(CribBackend(crib), http_options(settings)) as site:
            of: dict[str, dict[str, str]] = {}
            shown = list[str]()
            for who in ("ada", "eve"):
                login = {"Authorization": f"Bearer token-of-{who}-0123456789"}
                begun = await site.post(initialize(), **login)
                of[who] = {**login, "Mcp-Session-Id": begun.headers["mcp-session-id"]}
                of[who]["MCP-Protocol-Version"] = "2025-11-25"
            shown.append(begun.text)

            async def asked(who: str, method: str, **params: Any) -> dict[str, Any]:
                return (await site.post(rpc(method, **params), **of[who])).json()

            login = {"Authorization": of["eve"]["Authorization"]}
            stolen = [(await site.post(rpc(method), **{**of["ada"], **login})).status_code for method in _LISTS]
            for method in (*_LISTS, "server/discover"):
                shown.append((await site.ask(rpc(method), **login)).text)
            for method in _LISTS:
                assert (await asked("ada", method))["result"][_LISTS[method]]
                shown.append(str(await asked("eve", method)))
            refused = {method: (await asked("eve", method, **params))["error"] for method, params in _ASKED.items()}
            assert (await asked("ada", "resources/subscribe", uri=_WATCHED))["result"] == {}
            assert (await asked("eve", "resources/unsubscribe", uri=_WATCHED))["result"] == {}
            async with (
                site.stream("GET", None, **of["ada"]) as hers,
                site.stream("GET", None, **of["eve"]) as others,
            ):
                await asked("ada", "tools/call", name="one__test_trigger_prompt_change", arguments={})
                await asked("ada", "tools/call", name="one__test_trigger_resource_update", arguments={"uri": _WATCHED})
                with anyio.fail_after(PATIENCE):
                    told = events(hers)
                    while (await anext(told)).get("params", {}).get("uri") != _WATCHED:
                        pass
                    crib.add(write)
                    first = await anext(events(others))

    assert stolen == [404] * len(_LISTS)
    assert [text for text in shown if any(word in text for word in ("one__", "test_", "test://"))] == []
    assert {error["data"]["code"] for error in refused.values()} == {"not_found"}
    assert first["method"] == "notifications/tools/list_changed", "and no notification of the server before"
