"""Zed: `agent.tool_permissions` beside its servers, by names `mcp:SERVER:TOOL`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...core.json import as_mapping
from ...core.permission import Effect
from ..connections import NAME
from .permission import ALL, Names, Permission, declared_name, longest_first

__all__ = ["ZED_TOOLS", "zed_key", "zed_permissions"]

ZED_TOOLS: Final = ("agent", "tool_permissions", "tools")
"""Path of the mapping from a tool's name to what Zed does before a call of it."""
_EFFECTS: Final[Mapping[str, Effect]] = {"allow": "allow", "confirm": "ask", "deny": "deny"}


def zed_permissions(data: Mapping[str, Any], servers: Sequence[str]) -> list[Permission]:
    """Return Zed's permissions of the servers' tools; of a tool without an entry the default counts.

    A default that denies is left out: it denies our own tools in Zed.
    """
    agent = as_mapping(data.get("agent"))
    permissions = as_mapping(agent.get("tool_permissions"))
    found: list[Permission] = []
    for server in servers:
        prefix = f"mcp:{server}:"
        for key, value in as_mapping(permissions.get("tools")).items():
            if key.startswith(prefix) and (effect := _EFFECTS.get(str(as_mapping(value).get("default")))):
                found.append(Permission(effect, server, key.removeprefix(prefix)))
        if permissions.get("default") == "allow" or agent.get("always_allow_tool_actions") is True:
            found.append(Permission("allow", server, ALL))
    return found


def zed_key(key: str, names: Names) -> str:
    """Return the name of a tool behind us as Zed writes it; empty for one of no moved server."""
    server = next((name for name in longest_first(names) if key.startswith(f"mcp:{name}:")), "")
    return f"mcp:{NAME}:{declared_name(names[server], key[len(server) + 5 :])}" if server else ""
