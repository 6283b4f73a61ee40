"""Rules: deny, ask or allow a tool, or a tool with certain arguments, in the syntax of Claude Code.

    Tool                    a tool by its name, or an alias of it
    server__*               names with `*` and `?`
    mcp__server             every tool of a server; mcp__server__tool is one of them, as Claude Code writes both
    kind:write              every tool of a kind: read, write, destructive
    Bash, Read, Edit …      Claude Code's names of tools that run commands, read or change files (`policy.claude_names`)
    Tool(path=/tmp/*)       with conditions on arguments: = and != take a glob, > >= < <= a number;
    Tool(n>100, dry=false)  several with commas between must all hold
    Bash(git push:*)        commands, wherever they stand in a shell text (`policy.shell.pattern`)
    Edit(./src/**)          files, as gitignore writes them (`policy.path_patterns`)

Deny comes before ask, ask before allow, in any layer and at any specificity. A rule that cannot be read is an error
when it is loaded, never a rule that is not there.

From text to decision:

    "Bash(git push:*)" ── parse_rule ──► Rule(concerns, arguments)         once, when the configuration is read
    Rules._find_candidates(tool) ──► _Candidates: rules that can concern it   once a tool definition, kept by digest
    Rules.decide       ──► deny, else ask, else allow, else None            each call

Each `ArgumentMatcher` answers True, False or None (undecidable), and each effect reads None its own way: a deny becomes
an ask, an ask asks, an allow does not allow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from ..core.exceptions import ErrorList
from ..core.patterns import regex
from ..core.permission import EFFECTS, Decision, Effect
from ..core.settings import Texts
from ..core.similar import did_you_mean
from ..core.tool import Kind, Tool
from ..errors import ConfigError
from .argument_conditions import PROCESS_FOLDER, ArgumentMatcher, glob, parse_conditions
from .claude_names import TOOL_WORDS, walks
from .mentioned_files import CommandFileMatcher, NamedFileMatcher
from .origin import is_local
from .path_patterns import PathPattern
from .shell.command_tools import CallArguments, runs_shell
from .shell.pattern import ShellPattern, covering

_NAME: Final = regex(r"[A-Za-z0-9_.*?/:\-]+")
_UNDERSCORES: Final = regex("_+")
_KINDS: Final = get_args(Kind)
_EXTERNAL_ORIGINS: Final = frozenset({"mcp", "openapi", "rest", "skill", "yaml"})
"""Origins of tools whose aliases are not those of code in this process."""
_MAX_CACHED_TOOLS: Final = 4_096
"""Tools for which the rules that can concern them are kept."""
_MAX_CACHED_DENIALS: Final = 131_072
"""Tools for which is kept whether a rule denies them always: 14 MB."""

RuleTexts = Mapping[Effect, Texts]
"""Rules as they are written, by effect."""

GivenRules = Mapping[Effect, Sequence[str]]
"""Rules as they are written, by effect."""


class Written(str):
    """Text of a rule with its position: `file:line`."""

    __slots__ = ("where",)
    where: str

    @classmethod
    def at(cls, text: str, where: str) -> Written:
        """Return `text` with the position `where`."""
        written = cls(text)
        written.where = where
        return written


class Rule(Struct, frozen=True, kw_only=True, dict=True):
    """One rule: its text, effect and matchers.

    `concerns` depends on the definition of the tool alone, so that it is asked once a tool; `arguments` is asked each
    call.
    """

    effect: Effect
    text: str
    layer: str
    """Origin for display: config, profile, mode, session or identity, with file and line if known."""
    concerns: Callable[[Tool], bool]
    arguments: ArgumentMatcher | None = None
    """None: any arguments."""

    def __str__(self) -> str:
        return f"{self.effect} {self.text} ({self.layer})"

    @cached_property
    def decision(self) -> Decision:
        """The decision that names this rule: every call that it matches has the same."""
        return Decision(effect=self.effect, rule=str(self), named=_names_single_tool(self.text))

    def undecided(self) -> Decision:
        """Return the decision where the arguments do not show whether this rule, a deny, holds."""
        return Decision(effect="ask", rule=f"{self}: the arguments do not show whether it holds")


def parse_rule(effect: Effect, text: str, *, layer: str = "config", home: str = "") -> Rule:
    """Parse one rule; raises `ConfigError` with the rule, its defect, and the nearest valid name.

    `home` is the folder of `~` in rules for files.
    """
    written = text.strip()
    where = text.where if isinstance(text, Written) else ""
    target, bracket, rest = written.partition("(")
    try:
        if bracket and not rest.endswith(")"):
            raise ValueError("the bracket is not closed")
        concerns = _parse_target(target.strip(), effect)
        arguments = _parse_body(rest[:-1].strip(), target.strip(), home) if bracket else None
        if isinstance(arguments, PathPattern) and target.strip() == "Read" and effect == "deny":
            concerns = _any_of(concerns, TOOL_WORDS["Edit"].means)
    except ValueError as error:
        file = where or ("" if layer == "config" else layer)
        raise ConfigError(f"rule {str(text)!r}: {error}", file=file, key=effect) from None
    origin = f"{layer} {_short_position(where)}" if where else layer
    return Rule(effect=effect, text=written, layer=origin, concerns=concerns, arguments=arguments)


def parse_rules(texts: Mapping[Effect, Iterable[str]], *, layer: str = "config", home: str = "") -> tuple[Rule, ...]:
    """Read the rules of one layer, by effect; raises `ConfigError` for the first that is broken."""
    return tuple(parse_rule(effect, text, layer=layer, home=home) for effect, rules in texts.items() for text in rules)


def broken_rules(
    texts: Mapping[Effect, Sequence[str]], *, home: str = "/"
) -> Iterator[tuple[Effect, int, ConfigError]]:
    """Yield effect, place and error of the rules that cannot be read."""
    for effect, rules in texts.items():
        for place, text in enumerate(rules):
            try:
                parse_rule(effect, text, home=home)
            except ConfigError as error:
                yield effect, place, error


def check_rules(given: Any, *, layer: str = "config") -> None:
    """Raise `ConfigError`, with every error, unless `given` maps deny, ask and allow to rules that can be read."""
    if not isinstance(given, Mapping):
        raise ConfigError("a mapping from deny, ask or allow to a list of rules was expected", key="rules")
    errors = ErrorList()
    for effect, texts in cast("Mapping[Any, Any]", given).items():
        if effect not in get_args(Effect) or not isinstance(texts, list | tuple):
            message = "deny, ask or allow with a list of rules was expected"
            errors.found.append(ConfigError(message, key=f"rules.{effect}"))
            continue
        for place, text in enumerate(cast("list[Any]", texts)):
            with errors.part():
                if not isinstance(text, str):
                    raise ConfigError("a rule is a text", key=f"rules.{effect}.{place}")
                parse_rule(effect, text, layer=layer, home="/")
    errors.raise_all()


def _short_position(where: str) -> str:
    """Return the file and its folder: enough to find it, and nothing of the rest of the disk, for models read it."""
    return "/".join(where.replace("\\", "/").split("/")[-2:])


def _names_single_tool(text: str) -> bool:
    """Whether the rule is about one tool by its name: no pattern, no kind, no whole server, no word for several."""
    target, bracket, _ = text.partition("(")
    target = target.strip()
    if target in TOOL_WORDS and not bracket:
        return False
    is_server = target.startswith("mcp__") and target.count("__") == 1
    return not is_server and not any(character in target for character in "*?:")


def _exact_target(rule: Rule) -> str:
    """Return the one spelling that a rule is about; empty for patterns, kinds and words for several tools."""
    target = rule.text.partition("(")[0].strip()
    return "" if target in TOOL_WORDS or any(character in target for character in "*?:") else target


def _glob_target(rule: Rule) -> str:
    """Return the glob of names that a rule is about; empty for any other target."""
    target = rule.text.partition("(")[0].strip()
    return target if target not in TOOL_WORDS and ":" not in target and ("*" in target or "?" in target) else ""


def named_tool(rule: Rule) -> str:
    """Return the name of the one tool that a rule is about; empty for patterns, kinds, servers and words for several.

    As the catalog writes it: without the `mcp__` of Claude Code.
    """
    target = rule.text.partition("(")[0].strip()
    return target.removeprefix("mcp__") if target not in TOOL_WORDS and _names_single_tool(target) else ""


def intended_tool(rule: Rule, tools: Iterable[Tool]) -> Tool | None:
    """Return a tool that the pattern of a rule would match with the server before it, or with `__` for one `_`.

    None where it matches one of `tools` as it is: then it is written as it was meant.
    """
    target = rule.text.partition("(")[0].strip().removeprefix("mcp__")
    known = tuple(tools) if "*" in target or "?" in target else ()
    if any(map(rule.concerns, known)):
        return None
    pattern = glob(_UNDERSCORES.sub("_", target))
    names = ((tool, {_UNDERSCORES.sub("_", name) for name in (tool.name, tool.local_name)}) for tool in known)
    return next((tool for tool, spelt in names if any(map(pattern.fullmatch, spelt))), None)


def _parse_target(target: str, effect: Effect) -> Callable[[Tool], bool]:
    if not target:
        raise ValueError("the tool name is missing; * matches every tool")
    if word := TOOL_WORDS.get(target):
        if effect != "allow":
            return lambda tool: word.means(tool) or target in spellings_of(tool, effect)
        return lambda tool: (is_local(tool) and word.means(tool)) or target in names_of(tool)
    if not _NAME.fullmatch(target):
        bad = next(character for character in target if not _NAME.fullmatch(character))
        raise ValueError(f"{bad!r} cannot be part of a tool's name; conditions go in brackets: Tool(argument=value)")
    word, colon, kind = target.partition(":")
    if colon:
        return _parse_kind(word, kind, target)
    if "*" in target or "?" in target:
        pattern = glob(target)
        return lambda tool: any(pattern.fullmatch(name) for name in spellings_of(tool, effect))
    return lambda tool: target in spellings_of(tool, effect)


def _any_of(first: Callable[[Tool], bool], second: Callable[[Tool], bool]) -> Callable[[Tool], bool]:
    """A file that must not be read is not changed either: copying, moving or replacing it reveals its content."""
    return lambda tool: first(tool) or second(tool)


def _parse_kind(word: str, kind: str, target: str) -> Callable[[Tool], bool]:
    if word == "kind" and kind in _KINDS:
        return lambda tool: tool.kind == kind
    if word == "kind":
        raise ValueError(f"the kinds are {', '.join(_KINDS)}, not {kind!r}{did_you_mean(kind, _KINDS)}")
    raise ValueError(f"{target!r} has a colon; rules by kind are written kind:read, kind:write or kind:destructive")


@lru_cache(maxsize=16)  # all rules ask about one tool, then about the next
def spellings_of(tool: Tool, effect: Effect) -> frozenset[str]:
    """Return every name of `tool` in rules of `effect`.

    Beside `names_of`, a deny and an ask also match each alias, the whole name of a tool whose name here is shortened,
    and the name that a renamed tool has in its source.

    More names for deny and ask than for allow, on purpose: a rule that takes away must not miss a tool under another
    name, and one that permits must not reach another tool.
    """
    names = names_of(tool)
    if effect == "allow":
        return names
    names |= {name for alias in tool.aliases for name in (alias, f"mcp__{alias}")}
    if not tool.source:
        return names
    for local in filter(None, (tool.local_name, tool.original_name)):
        whole = f"{_claude_name(tool.source)}__{_claude_name(local)}"
        names |= {whole, f"mcp__{whole}"}
    return names


@lru_cache(maxsize=16)
def names_of(tool: Tool) -> frozenset[str]:
    """Return the names of `tool` in rules of every effect: ours, Claude Code's for it and for its server, its aliases.

    Not those that a catalog, a registration or a server gives it: it gains no permission of another tool by them. A
    source with `__` in its name has only the former: `mcp__a__b` must not match both the tool b of a and all of a__b.
    """
    own = {tool.name, *(() if tool.origin in _EXTERNAL_ORIGINS else tool.aliases)}
    names = frozenset(f"mcp__{name}" for name in own)
    if not tool.source.startswith("mcp__"):  # `mcp__a__b` is the tool b of a, and none of a source `mcp__a`
        names |= own
    if "__" not in tool.source:
        source, local = _claude_name(tool.source), _claude_name(tool.local_name)
        names |= {f"{source}__{local}", f"mcp__{source}__{local}", f"mcp__{source}"}
    return names


def _claude_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _parse_body(body: str, target: str, home: str) -> ArgumentMatcher | None:
    if body in ("", "*"):
        return None
    if word := TOOL_WORDS.get(target):
        return word.body(body, home)
    if (matcher := parse_conditions(body)) is not None:
        return matcher
    raise ValueError(f"{body!r} is not a condition; write {target}(argument=glob) or {target}(argument>number)")


class _Candidates:
    """The rules that can concern one tool.

    `deny` and `ask` are tried one by one. Allows of commands are tried together (`covering`), because each command of
    one text may be allowed by another rule.
    """

    __slots__ = ("_allow", "_shell", "all", "ask", "deny", "reads_files")

    def __init__(self, deny: tuple[Rule, ...], ask: tuple[Rule, ...], allow: tuple[Rule, ...]) -> None:
        self.all = (*deny, *ask, *allow)
        self.deny = deny
        self.ask = ask
        self.reads_files = any(isinstance(rule.arguments, ShellPattern) for rule in (*deny, *ask))
        self._allow = tuple(rule for rule in allow if not isinstance(rule.arguments, ShellPattern))
        self._shell = {rule.arguments: rule for rule in reversed(allow) if isinstance(rule.arguments, ShellPattern)}

    def decide_by_allows(self, arguments: Mapping[str, Any], cwd: Path) -> Decision | None:
        """Return the decision of the first rule that allows the call, preferring one that names the tool itself.

        The commands of one shell text may be covered by several rules together.
        """
        first = None
        for rule in self._allow:
            if rule.arguments is None or rule.arguments.matches(arguments, every=True, cwd=cwd) is True:
                if rule.decision.named:
                    return rule.decision
                first = first or rule.decision
        if self._shell and (used := covering(tuple(reversed(self._shell)), arguments)):
            rules = [self._shell[pattern] for pattern in used]
            if len(rules) == 1:
                return rules[0].decision
            return Decision(effect="allow", rule=" and ".join(map(str, rules)), named=True)
        return first


class Rules:
    """All rules of all layers. Immutable; lives as long as the configuration it was read from.

    What a tool's rules are is kept by digest for `_MAX_CACHED_TOOLS` tools, and whether one denies it always for
    `_MAX_CACHED_DENIALS`, then all is dropped: gateways have thousands of tools.
    """

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        """Take the rules of every layer; within one effect the first that matches is the one that is named."""
        self._rules = tuple(rules)
        self._candidates: dict[bytes, _Candidates] = {}
        whole = [rule for rule in self._rules if rule.effect == "deny" and rule.arguments is None]
        self._denied_names = frozenset(name for rule in whole if (name := _exact_target(rule)))
        # One pattern: each of them over each name of a tool takes a millisecond for 40 tools under 24 patterns.
        patterns = [f"(?:{glob(target).pattern})" for rule in whole if (target := _glob_target(rule))]
        self._denied_glob = re.compile("|".join(patterns), re.DOTALL) if patterns else None
        self._denied_kinds = tuple(rule for rule in whole if not (_exact_target(rule) or _glob_target(rule)))
        self._denials: dict[bytes, bool] = {}

    @property
    def has_whole_denials(self) -> bool:
        """Whether some rule denies tools whatever their arguments are."""
        return bool(self._denied_names or self._denied_glob or self._denied_kinds)

    def denies_always(self, tool: Tool) -> bool:
        """Whether a rule denies every call of `tool`; kept, as each list and each wrong name asks it of all tools."""
        denied = self._denials.get(tool.digest)
        if denied is None:
            names, pattern = spellings_of(tool, "deny"), self._denied_glob
            denied = not self._denied_names.isdisjoint(names)
            denied = denied or (pattern is not None and any(map(pattern.fullmatch, names)))
            denied = denied or any(rule.concerns(tool) for rule in self._denied_kinds)
            if len(self._denials) >= _MAX_CACHED_DENIALS:
                self._denials.clear()
            self._denials[tool.digest] = denied
        return denied

    def decide(self, tool: Tool, arguments: Mapping[str, Any], cwd: Path = PROCESS_FOLDER) -> Decision | None:
        """Return the decision of the rules on this call, None when none matches.

        A deny whose condition is undecidable (the argument is missing, or not a plain value) asks; so does an ask.
        `cwd` is the base folder of relative paths.
        """
        known = self._candidates.get(tool.digest) or self._find_candidates(tool)
        if known.reads_files and not isinstance(arguments, CallArguments):
            arguments = CallArguments(arguments)
        return (
            _decide_by_denies(known.deny, arguments, cwd)
            or _decide_by_asks(known.ask, arguments, cwd)
            or known.decide_by_allows(arguments, cwd)
        )

    def read_files(self, tool: Tool) -> bool:
        """Whether a rule about this tool reads the files that its commands run."""
        return (self._candidates.get(tool.digest) or self._find_candidates(tool)).reads_files

    def look_at_arguments(self, tool: Tool) -> bool:
        """Whether a rule about this tool has a condition on arguments."""
        known = self._candidates.get(tool.digest) or self._find_candidates(tool)
        return any(rule.arguments is not None for rule in known.all)

    def __iter__(self) -> Iterator[Rule]:
        """Yield every rule, layer by layer."""
        return iter(self._rules)

    def _find_candidates(self, tool: Tool) -> _Candidates:
        """Return the rules that can concern `tool`, and keep them.

        A deny and an ask about files concern a tool that runs commands, too, by the files that a command names.
        """
        by_effect: dict[Effect, list[Rule]] = {"deny": [], "ask": [], "allow": []}
        for rule in self._rules:
            if rule.concerns(tool):
                by_effect[rule.effect].append(_specialize(rule, tool))
            elif rule.effect != "allow" and isinstance(rule.arguments, PathPattern):
                if runs_shell(tool):
                    by_effect[rule.effect].append(replace(rule, arguments=CommandFileMatcher(rule.arguments)))
                if _may_read_workspace(rule, tool):
                    by_effect[rule.effect].append(replace(rule, arguments=NamedFileMatcher(rule.arguments)))
        if len(self._candidates) >= _MAX_CACHED_TOOLS:
            self._candidates.clear()
        found = _Candidates(*(tuple(by_effect[effect]) for effect in EFFECTS))
        self._candidates[tool.digest] = found
        return found


def _may_read_workspace(rule: Rule, tool: Tool) -> bool:
    """Whether the tool reads files of the workspace beside what it is for, and the rule is about reading."""
    is_there = "workspace" in tool.availability.needs or "file_reader" in tool.traits
    return is_there and rule.text.startswith("Read")


def _specialize(rule: Rule, tool: Tool) -> Rule:
    """Return the rule for one tool: the meaning of a file pattern depends on whether the tool searches."""
    if isinstance(rule.arguments, PathPattern) and walks(tool):
        return replace(rule, arguments=replace(rule.arguments, walks=True))
    return rule


def _decide_by_denies(rules: tuple[Rule, ...], arguments: Mapping[str, Any], cwd: Path) -> Decision | None:
    """Return the decision of the denies; one that holds comes before an undecidable one, independent of their order."""
    undecided = None
    for rule in rules:
        answer = rule.arguments is None or rule.arguments.matches(arguments, every=False, cwd=cwd)
        if answer:
            return rule.decision
        if answer is None:
            undecided = undecided or rule
    return undecided.undecided() if undecided else None


def _decide_by_asks(rules: tuple[Rule, ...], arguments: Mapping[str, Any], cwd: Path) -> Decision | None:
    for rule in rules:
        if rule.arguments is None or rule.arguments.matches(arguments, every=False, cwd=cwd) is not False:
            return rule.decision
    return None
