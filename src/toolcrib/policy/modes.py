"""Modes: what a call of each kind does when no rule speaks of it, and what single tools do. A mode is data.

    reviewer:
      read: allow
      write: ask
      destructive: deny
      tools:                  names, or patterns with * and ?
        git_push: deny
        run_tests: allow

A kind that is not named asks. What `tools` says takes the place of the permissions that hold in every mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, cast, get_args

from ..core.permission import Decision, Effect
from ..core.tool import Kind, Tool
from ..errors import ConfigError
from .permissions import read_permissions

__all__ = ["MODES", "Mode"]

_EFFECTS: Final = get_args(Effect)
_KINDS: Final = get_args(Kind)


@dataclass(frozen=True, kw_only=True)
class Mode:
    """The effect for each kind of tool."""

    name: str
    read: Effect
    write: Effect
    destructive: Effect
    tools: Mapping[str, Effect] = field(default_factory=dict[str, Effect])
    """Permissions of single tools, by name or pattern; each takes the place of the global one (seed 002)."""

    @classmethod
    def from_mapping(cls, name: str, values: Mapping[str, Any]) -> Mode:
        """Read `{read: allow, write: ask, destructive: deny, tools: {…}}`; a kind that is not named asks.

        Raises `ConfigError` with the key.
        """
        tools = read_permissions(values.get("tools") or {}, key=f"modes.{name}.tools")
        for key, value in values.items():
            if key == "tools":
                continue
            if key not in _KINDS:
                message = f"the kinds are {', '.join(_KINDS)}{_meant(key, (*_KINDS, 'tools'))}"
                raise ConfigError(message, key=f"modes.{name}.{key}")
            if value not in _EFFECTS:
                message = f"the effects are {', '.join(_EFFECTS)}, not {value!r}{_meant(str(value), _EFFECTS)}"
                raise ConfigError(message, key=f"modes.{name}.{key}")
        given = cast("Mapping[str, Effect]", values)
        read, write, destructive = given.get("read"), given.get("write"), given.get("destructive")
        return cls(name=name, read=read or "ask", write=write or "ask", destructive=destructive or "ask", tools=tools)

    def decide(self, tool: Tool, *, wary: bool = False) -> Decision:
        """Return the effect for `tool`; its own `approval: never` comes before the mode's ask.

        `wary` takes a tool that says it only reads for one that writes.
        """
        decision = self._by_kind["write" if wary and tool.kind == "read" else tool.kind]
        if tool.approval != "never" or decision.effect == "deny":
            return decision
        return Decision(effect="allow", rule=f"approval never: {tool.name} asks only when a rule says so")

    @cached_property
    def _by_kind(self) -> Mapping[str, Decision]:
        """The decisions, made once: most calls end here."""
        effects: Mapping[str, Effect] = {"read": self.read, "write": self.write, "destructive": self.destructive}
        return {
            kind: Decision(effect=effect, rule=f"mode {self.name}: a {kind} tool is {_DONE[effect]}")
            for kind, effect in effects.items()
        }


_DONE: Final[Mapping[Effect, str]] = {"allow": "allowed", "ask": "asked for", "deny": "denied"}


def _meant(word: str, options: tuple[str, ...]) -> str:
    near = get_close_matches(word, options, n=1)
    return f"; did you mean {near[0]}?" if near else ""


MODES: Final[Mapping[str, Mode]] = MappingProxyType(
    {
        mode.name: mode
        for mode in (
            Mode(name="cautious", read="allow", write="ask", destructive="ask"),
            Mode(name="autonomous", read="allow", write="allow", destructive="allow"),
            Mode(name="manual", read="ask", write="ask", destructive="ask"),
        )
    }
)
"""The modes that are always there."""
