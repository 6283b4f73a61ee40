"""Rules: deny, ask or allow a tool, or a tool with certain arguments, in the way users know.

    Tool                    a tool by its name, or an alias of it
    server__*               names with `*` and `?`
    mcp__server             every tool of a server; mcp__server__tool is one of them, as Claude Code writes both
    kind:write              every tool of a kind: read, write, destructive
    Tool(path=/tmp/*)       with conditions on arguments: = and != take a glob, > >= < <= a number;
    Tool(n>100, dry=false)  several with commas between must all hold

Deny comes before ask, ask before allow, whatever the layer and however special the rule. A rule that cannot be read
is an error when it is loaded, never a rule that is not there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, get_args

from ..core.permission import Decision, Effect
from ..core.tool import Kind, Tool
from ..errors import ConfigError
from .match import ArgumentMatcher, BodyParser, glob, parse_conditions

__all__ = ["Rule", "Rules", "names_of", "parse_rule", "parse_rules"]

_NAME: Final = re.compile(r"[A-Za-z0-9_.*?/:\-]+")
_KINDS: Final = get_args(Kind)
_CACHED: Final = 4_096
"""Tools for which the rules that can concern them are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule as it was written, and what it means."""

    effect: Effect
    text: str
    layer: str
    """Where it comes from, for people: config, profile, session, or a file."""
    concerns: Callable[[Tool], bool]
    arguments: ArgumentMatcher | None = None
    """None: whatever the arguments."""

    def __str__(self) -> str:
        return f"{self.effect} {self.text} ({self.layer})"

    decided: Decision = field(init=False)
    """The decision that names this rule, made once: every call that it matches has the same."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "decided", Decision(effect=self.effect, rule=str(self)))

    def unclear(self) -> Decision:
        """Return the decision where the arguments do not show whether this rule, a deny, holds."""
        return Decision(effect="ask", rule=f"{self}: the arguments do not show whether it holds")


def parse_rule(
    effect: Effect, text: str, *, layer: str = "config", bodies: Sequence[BodyParser] = (parse_conditions,)
) -> Rule:
    """Read one rule; raises `ConfigError` naming it, what is wrong, and what was probably meant.

    `bodies` are the syntaxes that may stand in the brackets; the first that knows a body reads it.
    """
    written = text.strip()
    target, bracket, rest = written.partition("(")
    try:
        if bracket and not rest.endswith(")"):
            raise ValueError("the bracket is not closed")
        concerns = _target(target.strip())
        arguments = _body(rest[:-1].strip(), target.strip(), bodies) if bracket else None
    except ValueError as error:
        raise ConfigError(f"rule {text!r}: {error}", file="" if layer == "config" else layer, key=effect) from None
    return Rule(effect=effect, text=written, layer=layer, concerns=concerns, arguments=arguments)


def parse_rules(texts: Mapping[Effect, Iterable[str]], *, layer: str = "config") -> tuple[Rule, ...]:
    """Read the rules of one layer, by effect; raises `ConfigError` for the first that is broken."""
    return tuple(parse_rule(effect, text, layer=layer) for effect, rules in texts.items() for text in rules)


def _target(target: str) -> Callable[[Tool], bool]:
    if not target:
        raise ValueError("it names no tool; * stands for every tool")
    if not _NAME.fullmatch(target):
        bad = next(character for character in target if not _NAME.fullmatch(character))
        raise ValueError(f"{bad!r} cannot be part of a tool's name; conditions go in brackets: Tool(argument=value)")
    word, colon, kind = target.partition(":")
    if colon:
        return _kind_target(word, kind, target)
    if "*" in target or "?" in target:
        pattern = glob(target)
        return lambda tool: any(pattern.fullmatch(name) for name in names_of(tool))
    return lambda tool: target in names_of(tool)


def _kind_target(word: str, kind: str, target: str) -> Callable[[Tool], bool]:
    if word == "kind" and kind in _KINDS:
        return lambda tool: tool.kind == kind
    if word == "kind":
        near = get_close_matches(kind, _KINDS, n=1)
        meant = f"; did you mean kind:{near[0]}?" if near else ""
        raise ValueError(f"the kinds are {', '.join(_KINDS)}, not {kind!r}{meant}")
    raise ValueError(f"{target!r} has a colon; rules by kind are written kind:read, kind:write or kind:destructive")


def names_of(tool: Tool) -> set[str]:
    """Return every name by which a rule may mean `tool`: ours, its aliases, Claude Code's for it and for its server.

    A source with `__` in its name has only the former: `mcp__a__b` must not mean both the tool b of a and all of a__b.
    """
    own = {tool.name, *tool.aliases}
    names = own | {f"mcp__{name}" for name in own}
    if "__" not in tool.source:
        source, local = _claude_name(tool.source), _claude_name(tool.local_name)
        names |= {f"{source}__{local}", f"mcp__{source}__{local}", f"mcp__{source}"}
    return names


def _claude_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _body(body: str, target: str, bodies: Sequence[BodyParser]) -> ArgumentMatcher | None:
    if body in ("", "*"):
        return None
    for parser in bodies:
        if (matcher := parser(body)) is not None:
            return matcher
    raise ValueError(f"{body!r} is no condition; write {target}(argument=glob) or {target}(argument>number)")


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The rules that can concern one tool."""

    deny: tuple[Rule, ...]
    ask: tuple[Rule, ...]
    allow: tuple[Rule, ...]


class Rules:
    """All rules of all layers. Immutable; lives as long as the configuration it was read from."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        """Take the rules of every layer; within one effect the first that matches is the one that is named."""
        self._rules = tuple(rules)
        self._known: dict[bytes, _Candidates] = {}

    def decide(self, tool: Tool, arguments: Mapping[str, Any]) -> Decision | None:
        """Return what the rules say of this call, None when none of them speaks.

        A deny whose condition cannot be told (the argument is missing, or no plain value) asks; so does an ask.
        """
        known = self._known.get(tool.digest) or self._learn(tool)
        return _denied(known.deny, arguments) or _asked(known.ask, arguments) or _allowed(known.allow, arguments)

    def _learn(self, tool: Tool) -> _Candidates:
        by_effect: dict[Effect, list[Rule]] = {"deny": [], "ask": [], "allow": []}
        for rule in self._rules:
            if rule.concerns(tool):
                by_effect[rule.effect].append(rule)
        if len(self._known) >= _CACHED:
            self._known.clear()
        found = _Candidates(*(tuple(by_effect[effect]) for effect in ("deny", "ask", "allow")))
        self._known[tool.digest] = found
        return found


def _denied(rules: tuple[Rule, ...], arguments: Mapping[str, Any]) -> Decision | None:
    unclear = None
    for rule in rules:
        answer = rule.arguments is None or rule.arguments.matches(arguments, every=False)
        if answer:
            return rule.decided
        if answer is None:
            unclear = unclear or rule
    return unclear.unclear() if unclear else None


def _asked(rules: tuple[Rule, ...], arguments: Mapping[str, Any]) -> Decision | None:
    for rule in rules:
        if rule.arguments is None or rule.arguments.matches(arguments, every=False) is not False:
            return rule.decided
    return None


def _allowed(rules: tuple[Rule, ...], arguments: Mapping[str, Any]) -> Decision | None:
    for rule in rules:
        if rule.arguments is None or rule.arguments.matches(arguments, every=True) is True:
            return rule.decided
    return None
