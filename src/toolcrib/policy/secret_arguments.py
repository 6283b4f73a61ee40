"""Decision on calls whose arguments are placeholders of kept values (`core.kept_secrets`).

Such a call asks even if rules, modes and earlier answers allow it: the question names the placeholder, and only its
approval lets the execution put the value in. A call that could not get the value is denied with the reason.

    redact       a likely secret in a result → `KeptSecrets.keep`, the model sees a placeholder
    decide       a placeholder in a call     → `decide_on_placeholders`: ask, or deny
    execute      the approved call           → `Execute._filled` puts the value in

Without a rule, a value goes back only to the source that it came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ..core.kept_secrets import KeptSecrets, placeholders_in
from ..core.patterns import regex
from ..core.permission import Decision
from ..core.schema.nodes import as_node, properties_of, resolve
from ..core.session import SessionState
from ..core.tool import Tool
from .rules import Rule, Rules
from .shell.command_tools import runs_shell

_PASSING_SOURCES: Final = frozenset({"jobs", "toolcrib"})
"""Sources whose arguments belong to another call."""
_BUILT_IN: Final = "builtin"
"""The source of all tools that come with Toolcrib: files, the web, prompts of sub-agents."""
_USE_SECRET: Final = "use_secret"
_VALUE_ORIGINS: Final = frozenset({"", "mcp", "plugin", "python"})
"""Origins of tools that get their arguments as values; others write them into URLs, commands and further calls."""
_TEXT_ARGUMENTS: Final = frozenset(
    "argv args cmd code command commands href log message query_string script sql uri url urls".split()
)
"""Names of arguments that are texts of commands, URLs or logs."""
_TEXT_LAST_WORDS: Final = frozenset("argv cmd command commands href script sql uri uris url urls".split())
"""Last words of such names: `webhook_url`, `shellCommand`."""
_WORD: Final = regex(r"[A-Z]+s?(?![a-z])|[A-Z]?[a-z]+")
LINK_FORMATS: Final = frozenset({"iri", "iri-reference", "uri", "uri-reference", "uri-template", "url"})
"""Formats of JSON Schema that are addresses."""


def passes_arguments_on(tool: Tool) -> bool:
    """Whether arguments belong to other calls, each of which is decided on by itself."""
    return tool.source in _PASSING_SOURCES or "hands_on" in tool.traits


def place_of(tool: Tool) -> str:
    """Return the origin or target of a value of the tool: its source, of a built-in tool with the category."""
    return f"{tool.source}.{tool.category}" if tool.source == _BUILT_IN else tool.source


def decide_on_placeholders(
    tool: Tool, arguments: Mapping[str, Any], session: SessionState, rules: Iterable[Rule]
) -> Decision | None:
    """Return the decision that placeholders among the arguments need: ask, or deny; None without a placeholder."""
    found = [] if passes_arguments_on(tool) else list(placeholders_in(arguments))
    if not found:
        return None
    uses: list[str] = []
    for path, placeholder in found:
        where = ".".join(map(str, path))
        kept = session.state_of(KeptSecrets).get(placeholder)
        if kept is None:
            text = f"{placeholder} in {where} stands for nothing in this conversation (any more): read the value again"
            return Decision(effect="deny", rule=text)
        if _becomes_text(tool, path):
            text = f"{where} of {tool.name} becomes text of a command, a URL or a log, where {placeholder} is never put"
            return Decision(effect="deny", rule=text)
        if (refusal := _refusal(tool, kept.sources, rules)) is not None:
            text = f"{placeholder} came from {', '.join(sorted(kept.sources))}, not from {place_of(tool)}: {refusal}"
            return Decision(effect="deny", rule=text)
        uses.append(f"{placeholder} from {', '.join(sorted(kept.sources))} as {where}")
    return Decision(effect="ask", rule=f"a hidden value is put in: {'; '.join(uses)}")


def _becomes_text(tool: Tool, path: tuple[str | int, ...]) -> bool:
    """Whether the value at `path` becomes text of a command, a URL or a log.

    A value inside a command or URL would be parsed, logged or sent on, so that a placeholder is never filled in there.
    """
    if runs_shell(tool) or tool.origin not in _VALUE_ORIGINS or any(map(_is_text_name, path)):
        return True
    return any(node.get("format") in LINK_FORMATS for node in _schemas_at(tool, path))


def _is_text_name(step: str | int) -> bool:
    """Whether an argument of this name is text of a command, a URL or a log."""
    name = str(step)
    return name.lower() in _TEXT_ARGUMENTS or (_WORD.findall(name) or [""])[-1].lower() in _TEXT_LAST_WORDS


def _schemas_at(tool: Tool, path: tuple[str | int, ...]) -> Iterator[Mapping[str, Any]]:
    """Yield the schemas on the way to `path`."""
    root = as_node(tool.input_schema)
    node = root
    for step in path:
        node = resolve(node, root)
        inner = node.get("items") if isinstance(step, int) else properties_of(node, root).get(step)
        node = as_node(inner)
        yield resolve(node, root)


def _refusal(tool: Tool, sources: Iterable[str], rules: Iterable[Rule]) -> str | None:
    """Return why a tool may not get a value of `sources`: a denying rule, or no rule for another source.

    The rule is matched as a call `use_secret(from=…, to=…, tool=…)` of a tool that does not exist.
    """
    about = Rules(rule for rule in rules if rule.text.partition("(")[0].strip() == _USE_SECRET)
    use, place = Tool(name=_USE_SECRET, source="toolcrib", local_name=_USE_SECRET), place_of(tool)
    for source in sorted(sources):
        decision = about.decide(use, {"from": source, "to": place, "tool": tool.name})
        if decision is not None and decision.effect == "deny":
            return decision.rule
        if source != place and (decision is None or decision.effect != "allow"):
            return f"a rule `allow: {_USE_SECRET}(from={source}, to={place})` would let a person be asked"
    return None
