"""Modes and per-tool permissions: the decision for a call that no rule names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Literal, cast, get_args

from ..core.permission import Decision, Effect
from ..core.tool import Kind, Tool
from ..errors import ConfigError
from .argument_conditions import glob
from .rules import check_rules, names_of

__all__ = ["MODES", "Files", "Mode", "permitted", "read_permissions", "resolve_modes"]

_EFFECTS: Final = get_args(Effect)


def read_permissions(given: Any, *, key: str) -> dict[str, Effect]:
    """Return `given` as permissions; raises `ConfigError` with the key of the wrong entry."""
    if not isinstance(given, Mapping):
        raise ConfigError("a mapping from a tool's name to allow, ask or deny was expected", key=key)
    entries = cast("Mapping[object, object]", given)
    for name, effect in entries.items():
        if not isinstance(name, str) or not name.strip():
            raise ConfigError(f"{name!r} is not a tool name; * stands for every tool", key=key)
        if effect not in _EFFECTS:
            near = get_close_matches(str(effect), _EFFECTS, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"the effects are {', '.join(_EFFECTS)}, not {effect!r}{meant}", key=f"{key}.{name}")
    return cast("dict[str, Effect]", dict(entries))


def permitted(tool: Tool, by_mode: Mapping[str, Effect], by_all: Mapping[str, Effect], mode: str) -> Decision | None:
    """Return the decision of the permissions on `tool`, naming the entry; None without an entry."""
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


Files = Literal["direct", "review", "audit"]
"""Destination of changes by tools with the trait `file_writer`: the disk, or a review queue."""


_KINDS: Final = get_args(Kind)
_FILES: Final = get_args(Files)
_FLAGS: Final = ("plan", "shadow")
_KEYS: Final = (*_KINDS, "tools", "extends", "prompt", "files", "rules", *_FLAGS)


@dataclass(frozen=True, kw_only=True)
class Mode:
    """The effect for each kind of tool, and how a session works in it."""

    name: str
    read: Effect
    write: Effect
    destructive: Effect
    tools: Mapping[str, Effect] = field(default_factory=dict[str, Effect])
    """Permissions of single tools, by name or pattern; each takes the place of the global one (seed 002)."""
    prompt: str = ""
    """Instructions to the model, added to the profile's."""
    files: Files = "direct"
    plan: bool = False
    shadow: bool = False
    rules: Mapping[Effect, Sequence[str]] = field(default_factory=dict[Effect, Sequence[str]])
    """Rules as they are written, beside those of the configuration (`layers`)."""

    @classmethod
    def from_mapping(cls, name: str, values: Mapping[str, Any], known: Mapping[str, Mode] | None = None) -> Mode:
        """Read the keys of a mode; `known` are those that it may extend, the built-in ones when none are given.

        Raises `ConfigError` with the key.
        """
        for key, value in values.items():
            _check(f"modes.{name}.{key}", key, value)
        base = _base(name, values.get("extends"), MODES if known is None else known)
        own = {key: value for key, value in values.items() if key not in ("extends", "tools")}
        tools = read_permissions(values.get("tools") or {}, key=f"modes.{name}.tools")
        return replace(base, name=name, tools={**base.tools, **tools}, **own)

    @property
    def diverts(self) -> bool:
        """Whether changes of files wait for review."""
        return self.files != "direct"

    def decide(
        self, tool: Tool, kind: Kind | None = None, *, treat_as_write: bool = False, diverted: bool = False
    ) -> Decision:
        """Return the effect for `tool`; its own `approval: never` comes before the mode's ask.

        `kind` overrides the tool's own. `treat_as_write` treats a tool declared read-only as one that writes.
        `diverted`: the tool's file changes wait for review in this session, so that the call itself need not ask.
        """
        if diverted and self.diverts and "file_writer" in tool.traits:
            return Decision(effect="allow", rule=f"mode {self.name}: changes of files wait for review")
        kind = kind or tool.kind
        decision = self._by_kind["write" if treat_as_write and kind == "read" else kind]
        if tool.approval != "never" or decision.effect == "deny":
            return decision
        return Decision(effect="allow", rule=f"approval never: {tool.name} asks only when a rule says so")

    def before_plan(self, tool: Tool) -> Decision:
        """Return what holds until a plan was approved: the user may be asked, and nothing else runs."""
        if "asks_user" in tool.traits and tool.approval == "always":
            return Decision(effect="ask", rule=f"mode {self.name}: {tool.name} is asked for")
        if "asks_user" in tool.traits:
            return Decision(effect="allow", rule=f"mode {self.name}: the user may be asked while the plan is made")
        return Decision(effect="deny", rule=f"mode {self.name}: no tool runs until the plan is approved")

    @cached_property
    def _by_kind(self) -> Mapping[str, Decision]:
        """The decisions, made once: most calls end here."""
        effects: Mapping[str, Effect] = {"read": self.read, "write": self.write, "destructive": self.destructive}
        return {
            kind: Decision(effect=effect, rule=f"mode {self.name}: a {kind} tool is {_DONE[effect]}")
            for kind, effect in effects.items()
        }


_DONE: Final[Mapping[str, str]] = {"allow": "allowed", "ask": "asked for", "deny": "denied"}


def resolve_modes(given: Mapping[str, Mapping[str, Any]]) -> dict[str, Mode]:
    """Return the built-in modes and those of `given`, which may extend one another in any order.

    Raises `ConfigError` with the key of the wrong entry; a circle is one.
    """
    modes = dict(MODES)
    waiting = dict(given)
    while waiting:
        ready = [name for name, values in waiting.items() if _extends(name, values, waiting) is None]
        if not ready:
            circle = ", ".join(waiting)
            raise ConfigError(f"these modes extend one another: {circle}", key=f"modes.{next(iter(waiting))}.extends")
        known = {**MODES, **modes}
        modes |= {name: Mode.from_mapping(name, waiting.pop(name), known) for name in ready}
    return modes


def _extends(name: str, values: Mapping[str, Any], waiting: Mapping[str, Any]) -> str | None:
    """Return the mode that has to be built before; one that changes a built-in mode extends that."""
    base = values.get("extends")
    return base if base in waiting and not (base == name and name in MODES) else None


def _base(name: str, extends: Any, known: Mapping[str, Mode]) -> Mode:
    if extends is None:
        return Mode(name=name, read="ask", write="ask", destructive="ask")
    if extends not in known or (extends == name and name not in MODES):
        message = f"unknown mode {extends!r} to extend (known: {', '.join(known)}){_meant(str(extends), known)}"
        raise ConfigError(message, key=f"modes.{name}.extends")
    return known[extends]


def _check(place: str, key: str, value: Any) -> None:
    if key in _KINDS and value not in _EFFECTS:
        message = f"the effects are {', '.join(_EFFECTS)}, not {value!r}{_meant(str(value), _EFFECTS)}"
        raise ConfigError(message, key=place)
    if key == "files" and value not in _FILES:
        raise ConfigError(f"files is {', '.join(_FILES)}, not {value!r}{_meant(str(value), _FILES)}", key=place)
    if key in _FLAGS and not isinstance(value, bool):
        raise ConfigError(f"true or false was expected, not {value!r}", key=place)
    if key == "rules":
        check_rules(value, key=place)
    if key in ("prompt", "extends") and not isinstance(value, str):
        raise ConfigError(f"a text was expected, not {value!r}", key=place)
    if key not in _KEYS:
        other = _meant(key, _KEYS) or f"; other keys are {', '.join(_KEYS[len(_KINDS) :])}"
        raise ConfigError(f"the kinds are {', '.join(_KINDS)}{other}", key=place)


def _meant(word: str, options: Iterable[str]) -> str:
    near = get_close_matches(word, list(options), n=1)
    return f"; did you mean {near[0]}?" if near else ""


_PLAN: Final = (
    "Before anything is done, make a plan: list in numbered steps what you will do, with which tools, and what could go"
    " wrong. No tool runs until the plan is approved; then work through it."
)
_REVIEW: Final = (
    "Your changes of files wait for review: every tool that reads, lists or searches files sees them, the disk does not"
    " until they are accepted. Programs that you start see the disk."
)
MODES: Final[Mapping[str, Mode]] = MappingProxyType(
    {
        mode.name: mode
        for mode in (
            Mode(name="cautious", read="allow", write="ask", destructive="ask"),
            Mode(name="autonomous", read="allow", write="allow", destructive="allow"),
            Mode(name="manual", read="ask", write="ask", destructive="ask"),
            Mode(name="plan", read="allow", write="allow", destructive="allow", plan=True, prompt=_PLAN),
            Mode(name="review", read="allow", write="ask", destructive="ask", files="review", prompt=_REVIEW),
            Mode(name="audit", read="allow", write="ask", destructive="ask", files="audit", prompt=_REVIEW),
        )
    }
)
"""The modes that are always there."""
