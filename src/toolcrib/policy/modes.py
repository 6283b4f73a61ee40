"""Modes and per-tool permissions: the decision for a call that no rule names.

Modes decide by the kind of a call (`kind_of`): the tool's own, or that of the HTTP method (RFC 9110) in its arguments.

`Mode.decide` is the last word of `decision.Policy`: only calls that no rule, permission or answer decides come here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Literal, Self

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import model_validator

from ..core.permission import EFFECTS, Decision, Effect
from ..core.settings import Flag, Section, Text, conflicts, setting
from ..core.similar import did_you_mean
from ..core.tool import Kind, Tool
from ..errors import ConfigError, ConfigErrors
from .argument_conditions import glob
from .rules import GivenRules, RuleTexts, broken_rules, names_of, spellings_of

Permissions = Mapping[Text, Effect]
"""allow, ask or deny by a tool's name or pattern; `*` is every tool."""

Files = Literal["direct", "review", "audit"]
"""Destination of changes by tools with the trait `file_writer`: the disk, or a review queue."""

DONE: Final[Mapping[Effect, str]] = {"allow": "allowed", "ask": "asked for", "deny": "denied"}
"""Participles for the rules that decisions name."""

_PLAN: Final = (
    "Before anything is done, make a plan: list in numbered steps what you will do, with which tools, and what could go"
    " wrong. No tool runs until the plan is approved; then work through it."
)
_REVIEW: Final = (
    "Your changes of files wait for review: every tool that reads, lists or searches files sees them, the disk does not"
    " until they are accepted. Programs that you start see the disk."
)

_BY_METHOD: Final = "by_method"
_BY_ACTION: Final = "by_action"
_METHOD_ARGUMENT: Final = "method"
_KIND_BY_METHOD: Final[Mapping[str, Kind]] = {
    "GET": "read",
    "HEAD": "read",
    "OPTIONS": "read",
    "POST": "write",
    "PUT": "write",
    "PATCH": "write",
}
"""Kind by method; a missing one, DELETE among them, counts as destructive."""


def permitted(tool: Tool, by_mode: Mapping[str, Effect], by_all: Mapping[str, Effect], mode: str) -> Decision | None:
    """Return the decision of the permissions on `tool`, naming the entry; None without an entry."""
    for permissions, where in ((by_mode, f"tools of mode {mode}"), (by_all, "tool_permissions")):
        if permissions and (found := _find_permission(tool, permissions)):
            named = not any(character in found.name for character in "*?")
            return Decision(effect=found.effect, rule=f"{found.effect} {found.name} ({where})", named=named)
    return None


class _Permission(Struct, frozen=True):
    name: str
    effect: Effect


def _find_permission(tool: Tool, permissions: Mapping[str, Effect]) -> _Permission | None:
    """Return the entry that means `tool` most exactly.

    An exact name comes before a pattern; among patterns the one with most fixed characters, then the stricter effect.
    """
    allowed, others = names_of(tool), spellings_of(tool, "deny")
    names = {name: allowed if effect == "allow" else others for name, effect in permissions.items()}
    exact = [name for name in permissions if name in names[name]]
    fitting = exact or [name for name in permissions if _matches_name(name, names[name])]
    if not fitting:
        return None
    name = min(fitting, key=lambda name: (-len(name.replace("*", "")), EFFECTS.index(permissions[name]), name))
    return _Permission(name, permissions[name])


def _matches_name(pattern: str, names: frozenset[str]) -> bool:
    if "*" not in pattern and "?" not in pattern:
        return False
    compiled = glob(pattern)
    return any(compiled.fullmatch(name) for name in names)


class ModeSettings(Section):
    """One entry of `modes`; keys without a value are those of the mode that it extends."""

    extends: str | None = None
    """Another mode, which it changes."""
    read: Effect | None = None
    """Effect for tools that only read."""
    write: Effect | None = None
    """Effect for tools that change something."""
    destructive: Effect | None = None
    """Effect for tools that destroy something."""
    tools: Permissions = setting({})
    """Permissions of single tools, by name or pattern."""
    prompt: str | None = None
    """Instructions to the model, added to the profile's."""
    files: Files | None = None
    """Destination of file changes: the disk, or the changes that wait for review."""
    plan: Flag | None = None
    """Whether no tool runs until a plan is approved."""
    shadow: Flag | None = None
    """Whether the session works in a git worktree of its own."""
    rules: RuleTexts = setting({})
    """Rules beside those of the configuration."""
    file: str = setting("", in_code=True)
    """Position in the configuration: `file:line`."""

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        if found := list(broken_rules(self.rules)):
            raise conflicts([(("rules", effect, place), str(error)) for effect, place, error in found])
        return self


class Mode(Struct, frozen=True, kw_only=True, dict=True):
    """The effect for each kind of tool, and how a session works in it.

    A value: two sessions with a mode of one name share it. `resolve_modes` builds them when the configuration is read.
    """

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
    def of(cls, name: str, given: ModeSettings, known: Mapping[str, Mode] | None = None) -> Mode:
        """Return the mode of these settings; `known` are those that it may extend, by default the built-in ones.

        Raises `ConfigError` for another one.
        """
        base = _base_mode(name, given, MODES if known is None else known)
        changed = {key: getattr(given, key) for key in given.model_fields_set - {"extends", "tools", "file"}}
        return replace(base, name=name, tools={**base.tools, **given.tools}, **changed)

    def restricted_by(self, other: Mode, permissions: Permissions = MappingProxyType({})) -> Mode:
        """Return the mode that asks, denies and holds back wherever this one or `other` does: one of them, or both.

        `permissions` are those of every mode. Where each has a stricter part, the mode is named after both. It never
        permits more than either; a tool that only one of them names may be asked for where neither would.
        """
        named: Permissions = {**permissions, **self.tools}
        others: Permissions = {**permissions, **other.tools}
        both = replace(
            self,
            read=_stricter(self.read, other.read),
            write=_stricter(self.write, other.write),
            destructive=_stricter(self.destructive, other.destructive),
            tools={
                name: _stricter(self._strictest_effect(named, name), other._strictest_effect(others, name))
                for name in {**named, **others}
            },
            files=self.files if self.diverts else other.files,
            plan=self.plan or other.plan,
            shadow=self.shadow or other.shadow,
            rules=_join_rules(self.rules, other.rules),
        )
        for one, tools in ((self, named), (other, others)):
            if both == replace(
                one, name=self.name, prompt=self.prompt, tools=tools, rules=_join_rules(one.rules, one.rules)
            ):
                return one
        prompt = "\n\n".join(dict.fromkeys(text for text in (self.prompt, other.prompt) if text))
        return replace(both, name=f"{self.name}+{other.name}", prompt=prompt)

    def _strictest_effect(self, tools: Permissions, name: str) -> Effect:
        """Return the entry of a name or, where only the kind or a pattern decides, the strictest effect of these."""
        patterns: list[Effect] = [tools[pattern] for pattern in tools if "*" in pattern or "?" in pattern]
        return tools.get(name) or _stricter(self.read, self.write, self.destructive, *patterns)

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
        """Return the decision before a plan is approved: questions to the user run, and nothing else."""
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
            kind: Decision(effect=effect, rule=f"mode {self.name}: a {kind} tool is {DONE[effect]}")
            for kind, effect in effects.items()
        }


def _stricter(*effects: Effect) -> Effect:
    return min(effects, key=EFFECTS.index)


def _join_rules(own: GivenRules, others: GivenRules) -> GivenRules:
    """Return the denies and asks of both, and the rules that both allow."""
    joined: dict[Effect, Sequence[str]] = {
        "deny": tuple(dict.fromkeys((*own.get("deny", ()), *others.get("deny", ())))),
        "ask": tuple(dict.fromkeys((*own.get("ask", ()), *others.get("ask", ())))),
        "allow": tuple(text for text in own.get("allow", ()) if text in others.get("allow", ())),
    }
    return {effect: joined[effect] for effect in joined if joined[effect]}


def resolve_modes(given: Mapping[str, ModeSettings]) -> dict[str, Mode]:
    """Return the built-in modes and those of `given`, which may extend one another in any order.

    Raises `ConfigError`, or `ConfigErrors` with every error, for modes that extend an unknown one or form a circle.
    """
    modes, waiting, errors = dict(MODES), dict(given), list[ConfigError]()
    while waiting:
        ready = [name for name, one in waiting.items() if _pending_base(name, one, waiting) is None]
        if not ready:
            name, circle = next(iter(waiting)), ", ".join(waiting)
            errors.append(_extends_error(name, waiting[name], f"these modes extend one another: {circle}"))
            break
        known = {**MODES, **modes}
        for name in ready:
            one = waiting.pop(name)
            try:
                modes[name] = Mode.of(name, one, known)
            except ConfigError as error:
                errors.append(error)
                modes[name] = Mode.of(name, one.model_copy(update={"extends": None}))  # for those that extend it
    if errors:
        raise ConfigErrors.of(errors)
    return modes


def _pending_base(name: str, given: ModeSettings, waiting: Mapping[str, Any]) -> str | None:
    """Return the mode that has to be built before; one that changes a built-in mode extends that."""
    base = given.extends
    return base if base in waiting and not (base == name and name in MODES) else None


def _base_mode(name: str, given: ModeSettings, known: Mapping[str, Mode]) -> Mode:
    if given.extends is None:
        return Mode(name=name, read="ask", write="ask", destructive="ask")
    if given.extends not in known or (given.extends == name and name not in MODES):
        message = f"unknown mode {given.extends!r} to extend (known: {', '.join(known)})"
        raise _extends_error(name, given, message + did_you_mean(given.extends, known))
    return known[given.extends]


def _extends_error(name: str, given: ModeSettings, message: str) -> ConfigError:
    return ConfigError(message, file=given.file, key=f"modes.{name}.extends")


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


def reads_by_action(tool: Tool, arguments: Mapping[str, Any]) -> bool:
    """Whether the tool declares that a call with these arguments reads."""
    if _BY_ACTION not in tool.traits:
        return False
    reads: Mapping[str, Sequence[Any]] = tool.capability.metadata.get("reads", {})
    return any(arguments.get(name) in values for name, values in reads.items())


def kind_of(tool: Tool, arguments: Mapping[str, Any]) -> Kind:
    """Return the kind of a call: the tool's own, or that of the method or the action for a tool declared so.

    An HTTP method that is not known counts as destructive; a missing one (the argument is not text) as the tool's own
    kind.
    """
    if reads_by_action(tool, arguments):
        return "read"
    if _BY_METHOD not in tool.traits:
        return tool.kind
    method = arguments.get(_METHOD_ARGUMENT)
    return _KIND_BY_METHOD.get(method.strip().upper(), "destructive") if isinstance(method, str) else tool.kind
