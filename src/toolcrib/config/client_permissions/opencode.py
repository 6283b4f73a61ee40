"""OpenCode: `permission` and `tools` beside its servers, by name and by pattern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ...core.json import as_mapping
from ...core.permission import Effect
from ..connections import NAME
from .permission import ALL, EFFECTS, Names, Permission, claude_name, declared_name, longest_first, pattern_rests

__all__ = ["opencode_key", "opencode_permissions"]


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


def opencode_key(key: str, names: Names) -> str:
    """Return the pattern of OpenCode as it means the same tools behind us; empty for one of no moved server."""
    server = next((name for name in longest_first(names) if key.startswith(f"{claude_name(name)}_")), "")
    return f"{NAME}_{declared_name(names[server], key[len(server) + 1 :])}" if server else ""
