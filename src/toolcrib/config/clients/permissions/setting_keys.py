"""OpenCode and Zed: permissions whose keys name tools, beside the servers: read, renamed and put back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from ....core.json import as_mapping
from ....core.permission import Effect
from ...edits import check_json_edit
from ...files import parse_json
from ..connections import NAME, ClientConnection
from .permission import (
    ALL,
    EFFECTS,
    Names,
    Permission,
    claude_name,
    data_of,
    declared_name,
    longest_first,
    pattern_rests,
)


def opencode_permissions(data: Mapping[str, Any], servers: Sequence[str]) -> list[Permission]:
    """Return the permissions of OpenCode; its last pattern that fits a tool counts, and without one the tool runs."""
    permission: Any = data.get("permission")
    given = cast("Mapping[str, Any]", permission) if isinstance(permission, Mapping) else {ALL: permission}
    off = as_mapping(data.get("tools"))
    rules = [*given.items(), *((pattern, "deny") for pattern, is_on in off.items() if is_on is False)]
    found: list[Permission] = []
    for server in servers:
        ruled: list[Permission] = []
        whole: Effect | None = None
        for pattern, value in rules:
            effect = _strictest(value)
            rests = pattern_rests(pattern, f"{claude_name(server)}_") if effect is not None else []
            if effect is not None and ALL in rests:
                ruled = [one for one in ruled if one.effect != "allow"]  # the later one counts
                whole = effect
            elif effect is not None:
                ruled += [Permission(effect, server, rest) for rest in rests if rest]
        found += ruled + ([Permission(whole, server, ALL)] if whole is not None else [])
    return found


def _strictest(value: Any) -> Effect | None:
    """Return an effect as OpenCode writes it: a word, or words by pattern of arguments, of which one is returned."""
    given = list(cast("Mapping[str, Any]", value).values()) if isinstance(value, Mapping) else [value]
    return next((effect for effect in reversed(EFFECTS) if effect in given), None)


def _opencode_key(key: str, names: Names) -> str:
    """Return the pattern of OpenCode as it means the same tools behind us; empty for one of no moved server."""
    server = next((name for name in longest_first(names) if key.startswith(f"{claude_name(name)}_")), "")
    return f"{NAME}_{declared_name(names[server], key[len(server) + 1 :])}" if server else ""


_ZED_TOOLS: Final = ("agent", "tool_permissions", "tools")
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


def _zed_key(key: str, names: Names) -> str:
    """Return the name of a tool behind us as Zed writes it; empty for one of no moved server."""
    server = next((name for name in longest_first(names) if key.startswith(f"mcp:{name}:")), "")
    return f"mcp:{NAME}:{declared_name(names[server], key[len(server) + 5 :])}" if server else ""


_SECTIONS: Final[Mapping[str, tuple[tuple[tuple[str, ...], ...], Callable[[str, Names], str]]]] = {
    "opencode": ((("permission",), ("tools",)), _opencode_key),
    "zed": ((_ZED_TOOLS,), _zed_key),
}
"""By client: paths of its sections, and the function that returns a key's new name (empty: it stays)."""


def rename_keys(client: str, text: str, names: Names, file: str = "") -> str:
    """Return the configuration of a client with its permissions of moved servers under their new names."""
    if client not in _SECTIONS or not names:
        return text
    sections, renamed = _SECTIONS[client]
    for section in sections:
        text = _with_keys(text, section, lambda key: renamed(key, names), file)
    return text


def original_keys(client: str, text: str, done: ClientConnection, file: str) -> str:
    """Return the configuration of a client with the keys of moved servers that it had, and without ours."""
    if client not in _SECTIONS:
        return text
    sections, renamed = _SECTIONS[client]
    names = {server: ours for ours, server in done.names.items()}
    for section in sections:
        before = data_of(done.content, Path(file))
        for step in section:
            before = as_mapping(before.get(step))
        old_by_new = {renamed(key, names): key for key in before}
        text = _with_keys(text, section, lambda key, old=old_by_new: old.get(key, ""), file)
    return text


def _with_keys(text: str, section: tuple[str, ...], rename: Callable[[str], str], file: str) -> str:
    """Return `text` with other keys in a section, where `rename` returns one."""
    node = parse_json(text, file).find(section) if text.strip() else None
    after, read = text, json.JSONDecoder().raw_decode
    for member in sorted(node.members if node is not None else (), key=lambda one: -one.start):
        if key := rename(member.key):
            _, end = read(text, member.start)
            after = after[: member.start] + json.dumps(key, ensure_ascii=False) + after[end:]
    return check_json_edit(text, after, section, file)
