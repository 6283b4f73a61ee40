"""Permissions of single tools: seed 002's `toolPermissions`, one mapping for all modes and one of each mode.

    git_push: deny          a tool by any of its names
    mcp__github__*: ask     names with * and ?

A name beats a pattern, a longer pattern a shorter one, and what the mode says of a tool replaces what all modes say.
What comes of it is one entry in the table of rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, cast, get_args

from ..core.permission import Decision, Effect
from ..core.tool import Tool
from ..errors import ConfigError
from .match import glob
from .rules import names_of

__all__ = ["permitted", "read_permissions"]

_EFFECTS: Final = get_args(Effect)


def read_permissions(given: Any, *, key: str) -> dict[str, Effect]:
    """Return `given` as permissions; raises `ConfigError` naming the key of what is wrong."""
    if not isinstance(given, Mapping):
        raise ConfigError("a mapping from a tool's name to allow, ask or deny was expected", key=key)
    entries = cast("Mapping[object, object]", given)
    for name, effect in entries.items():
        if not isinstance(name, str) or not name.strip():
            raise ConfigError(f"{name!r} is no name of a tool; * stands for every tool", key=key)
        if effect not in _EFFECTS:
            near = get_close_matches(str(effect), _EFFECTS, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"the effects are {', '.join(_EFFECTS)}, not {effect!r}{meant}", key=f"{key}.{name}")
    return cast("dict[str, Effect]", dict(entries))


def permitted(tool: Tool, by_mode: Mapping[str, Effect], by_all: Mapping[str, Effect], mode: str) -> Decision | None:
    """Return what the permissions say of `tool`, naming the entry; None when they say nothing."""
    for permissions, where in ((by_mode, f"tools of mode {mode}"), (by_all, "tool_permissions")):
        if permissions and (found := _entry(tool, permissions)):
            named = not any(character in found.name for character in "*?")
            return Decision(effect=found.effect, rule=f"{found.effect} {found.name} ({where})", named=named)
    return None


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    effect: Effect


def _entry(tool: Tool, permissions: Mapping[str, Effect]) -> _Entry | None:
    """Return the entry that means `tool` most exactly."""
    names = names_of(tool)
    exact = [name for name in permissions if name in names]
    fitting = exact or [name for name in permissions if _fits(name, names)]
    if not fitting:
        return None
    strictest = ("deny", "ask", "allow")
    name = min(fitting, key=lambda name: (-len(name.replace("*", "")), strictest.index(permissions[name]), name))
    return _Entry(name, permissions[name])


def _fits(pattern: str, names: set[str]) -> bool:
    if "*" not in pattern and "?" not in pattern:
        return False
    compiled = glob(pattern)
    return any(compiled.fullmatch(name) for name in names)
