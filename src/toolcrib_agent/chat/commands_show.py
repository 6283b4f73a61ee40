"""Slash commands that show state and change none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.highlighter import JSONHighlighter
from rich.table import Table
from rich.text import Text

from toolcrib.cli.token_count import count
from toolcrib.core.json import dumps, loads
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Tool
from toolcrib.disclosure.signatures import describe, signature
from toolcrib.errors import ToolFailure, UsageError
from toolcrib.policy.asking.questions import shown_text
from toolcrib.results.artifacts import Artifacts
from toolcrib.telemetry.tokens import definition_text, estimate

from .call_view import CallRecord, call_line, colored
from .chat_session import ChatSession, mode_style
from .commands_set import has_pending
from .manual_calls import read_call
from .screen import plain

__all__ = ["context", "cost", "describe_tool", "diff", "find", "history", "money", "show", "tools", "why"]

_FOUND: Final = 8
_EFFECT_STYLE: Final[Mapping[str, str]] = {"allow": "green", "ask": "yellow", "deny": "red"}
_EFFECT_WORD: Final[Mapping[str, str]] = {"allow": "runs", "ask": "asks", "deny": "denied"}
_BAR: Final = 40
"""Characters of the token meter."""
_WIDE: Final = 80
"""Columns of a terminal below which a table leaves out what can be done without: no name or id is broken in two."""
_SHOWN: Final = 64 * 1024
"""Bytes of a kept result that `/show` prints: ten megabytes would take a minute, and push everything else away."""


async def tools(chat: ChatSession, rest: str) -> None:
    """List the tools: what the mode does with each, what it costs, whether the model is shown it now."""
    shown = {tool.name for tool in chat.session.tools}
    scene = chat.session.scene
    listed = [tool for tool in scene.offered() if _fits(tool, rest)]
    if not listed:
        chat.screen.note(f"no tool has {rest!r} in its name, source or category" if rest else "there are no tools yet")
        _tell_sources(chat)
        return
    is_wide = chat.screen.console.width >= _WIDE
    table = _table("", "tool", *(["source", "category"] if is_wide else []), "kind", ">tokens", "")
    for tool in listed:
        effect = chat.crib.policy.decide(tool, {}, chat.session.state).effect
        table.add_row(
            Text("●" if scene.labels.name(tool) in shown else " ", style="cyan"),
            plain(tool.name, "bold"),
            *((plain(tool.source, "dim"), plain(tool.category, "dim")) if is_wide else ()),
            plain(tool.kind),
            f"≈{estimate(definition_text(tool)):,}",
            Text(_EFFECT_WORD[effect], style=_EFFECT_STYLE[effect]),
        )
    chat.screen.say(table)
    verbs = [tool.name for tool in chat.session.tools if scene.find(tool.name) is None]
    beside = f", and {', '.join(verbs)} to reach the others" if verbs else ""
    chat.screen.note(f"● {len(shown) - len(verbs)} of {len(listed)} are shown to the model now{beside}")
    _tell_sources(chat)


async def find(chat: ChatSession, rest: str) -> None:
    """Search the tools for what you want to do."""
    if not rest:
        raise UsageError("what for? /find WHAT YOU WANT TO DO")
    scene = chat.session.scene
    hits = scene.catalog.search(rest, _FOUND, allowed=scene.admitted, boost=scene.boost)
    if not hits:
        near = ", ".join(scene.catalog.nearest_categories(rest))
        chat.screen.note(f"nothing fits {rest!r}" + (f"; nearest: {near}" if near else ""))
        return
    table = _table("tool", "kind", "what it does")
    for hit in hits:
        tool = scene.catalog.tools[hit.name]
        table.add_row(plain(tool.name, "bold"), plain(tool.kind), plain(tool.summary))
    chat.screen.say(table)
    first = scene.catalog.tools[hits[0].name]
    chat.screen.note(f"/describe {first.name} shows it, /call {first.name} … runs it")


async def describe_tool(chat: ChatSession, rest: str) -> None:
    """Show what a model reads of a tool before it calls it."""
    if not rest:
        raise UsageError("which? /describe TOOL")
    tool = chat.session.scene.find(rest)
    shown = next((one for one in chat.session.tools if one.name == rest), tool)
    if shown is None:
        near = chat.crib.catalog.nearest(rest)
        raise ToolFailure("not_found", f"there is no tool {rest!r}", hint=f"did you mean {', '.join(near)}?")
    text = describe(shown)
    chat.screen.say(plain(signature(shown), "bold"))
    chat.screen.say(plain(shown.description), indent=2)
    chat.screen.say(_json(shown.input_schema), indent=2)
    chat.screen.say(plain(text.rpartition("\nexample: ")[2], "cyan"), indent=2)
    chat.screen.note(f"≈{estimate(text):,} tokens")


async def context(chat: ChatSession, rest: str) -> None:
    """Show the instructions and tools that a model receives, with their tokens; with a format, as its API gets them."""
    session = chat.session
    if rest:
        made = session.definitions(rest)
        chat.screen.say(_json(list(made)))
        for problem in made.problems:
            chat.screen.note(str(problem))
        return
    prompt, shown = (session.instructions, session.tools) if chat.agent is None else await chat.agent.preview()
    counts = await count([prompt, *map(definition_text, shown)])
    everything = sum(estimate(definition_text(tool)) for tool in session.scene.offered())
    total = sum(counts.tokens)
    chat.screen.say(plain(prompt or "no instructions", "italic"), indent=2)
    table = _table("shown", "what it does", ">tokens")
    for tool, tokens in zip(shown, counts.tokens[1:], strict=True):
        table.add_row(plain(signature(tool)), plain(tool.summary, "dim"), counts.shown(tokens))
    table.add_row(Text("instructions", style="italic"), "", counts.shown(counts.tokens[0]))
    chat.screen.say(table)
    chat.screen.say(_meter(total, everything))
    chat.screen.note(f"{counts.shown(total)} tokens by {counts.tokenizer}; all tools at once would be ≈{everything:,}")
    if chat.context:
        chat.screen.note(f"the last request took {_share(chat.context, chat.window)} of the model's window")


async def why(chat: ChatSession, rest: str) -> None:
    """Say whether a call would run and who decides; without a tool, who decided on the last call."""
    if not rest and not chat.calls:
        raise UsageError("which? /why TOOL [name=value …]; without a tool it speaks of the last call")
    name, arguments = read_call(chat, rest) if rest else _last(chat.calls[-1])
    if not rest:
        result = chat.calls[-1].result
        chat.screen.say(call_line(name, arguments))
        reason = result.error.message if result.error else "it ran"
        chat.screen.say(plain(reason), indent=2)
        if rule := str(result.meta.get("rule") or ""):
            chat.screen.say(plain(f"decided by {rule}"), indent=2)
    answer = chat.crib.explainer.why(name, chat.session, arguments)
    style = {"runs": "green", "asks": "yellow", "refused": "red"}[answer.verdict]
    word = {"runs": "would run", "asks": "would be asked", "refused": "would be refused"}[answer.verdict]
    chat.screen.say(Text.assemble((f"now it {word}", f"bold {style}"), ": ", plain(answer.reason)), indent=2)
    for text in (answer.hint, answer.deprecated):
        if text:
            chat.screen.say(plain(text, "dim"), indent=2)


async def cost(chat: ChatSession, rest: str) -> None:
    """Show what this conversation has used: requests, tokens, money."""
    usage = chat.usage
    table = Table.grid(padding=(0, 2))
    rows = {
        "model": chat.choice.model if chat.choice else "none",
        "requests": f"{usage.requests:,}",
        "tool calls": f"{usage.calls:,}",
        "tokens in": f"{usage.input_tokens:,}"
        + (f" ({usage.cache_read_tokens:,} from the cache)" if usage.cache_read_tokens else ""),
        "tokens out": f"{usage.output_tokens:,}",
        "money": money(usage.cost, usage.unpriced, usage.requests),
        "context": _share(chat.context, chat.window) if chat.context else f"≈{chat.surface:,} tokens before a word",
    }
    for key, value in rows.items():
        table.add_row(Text(key, style="dim"), plain(value))
    chat.screen.say(table)
    if usage.is_estimated:
        chat.screen.note("some tokens are estimated: this API did not say")


def money(cost: float, unpriced: int, requests: int) -> str:
    """Return US dollars for people, and what is not known of them."""
    if not requests:
        return "$0"
    if unpriced == requests:
        return "no known price"
    known = f"${cost:.4f}" if cost < 1 else f"${cost:,.2f}"
    return f"{known} and {unpriced} requests without a known price" if unpriced else known


async def history(chat_session: ChatSession, rest: str) -> None:
    """List the conversations of this folder, the newest first; `all` those of every folder."""
    listed = chat_session.chats.all("" if rest == "all" else chat_session.saved.folder)
    if not listed:
        chat_session.screen.note("no conversation was saved here yet; /history all looks everywhere")
        return
    is_wide = chat_session.screen.console.width >= _WIDE
    columns = ["id", "when", *([">turns", "model"] if is_wide else []), "about"]
    table = _table(*columns, *(["folder"] if rest == "all" else []))
    for chat in listed[:20]:
        when = datetime.fromtimestamp(chat.changed).astimezone().strftime("%Y-%m-%d %H:%M")
        mark = " ←" if chat.id == chat_session.saved.id else ""
        about = (str(chat.turns), chat.model.partition("@")[0]) if is_wide else ()
        cells = [f"{chat.id}{mark}", when, *about, chat.title]
        table.add_row(*(plain(cell) for cell in (*cells, *([chat.folder] if rest == "all" else []))))
    chat_session.screen.say(table)
    chat_session.screen.note("/resume ID goes on with one")


async def show(chat: ChatSession, rest: str) -> None:
    """Show the result of a call, not only its first lines: the last one, or that with a number."""
    if not chat.calls:
        raise UsageError("nothing was called yet")
    known = {str(one.number): one for one in chat.calls}
    shown = known.get(rest) if rest else chat.calls[-1]
    if shown is None:
        raise UsageError(f"there is no call {rest!r}, only {chat.calls[0].number} to {chat.calls[-1].number}")
    chat.screen.say(call_line(shown.name, shown.arguments))
    if not isinstance(shown.arguments, str):
        chat.screen.say(_json(shown.arguments), indent=2)
    text, rest = await _beginning(chat, shown.result)
    structured: Any = shown.result.structured_content
    if text.strip():
        chat.screen.say(plain(text), indent=2)
    elif structured is not None:
        chat.screen.say(_json(structured), indent=2)
    rule = str(shown.result.meta.get("rule") or "")
    chat.screen.note(" · ".join(filter(None, (f"{shown.seconds:.2f} s", rule))))
    if rest:
        chat.screen.note(rest, "yellow")


async def _beginning(chat: ChatSession, result: ToolResult) -> tuple[str, str]:
    """Return the text of a result, at most the beginning of one that was kept whole, and how to see what follows."""
    artifact = str(result.meta.get("artifact") or "")
    if not artifact:
        return result.text, ""
    kept = Artifacts(chat.settings.directories.data / "artifacts", chat.settings.results)
    page = await kept.read(artifact, chat.session.state.principal, 0, _SHOWN)
    if page.next_offset is None:
        return page.text, ""
    command = f"`toolcrib results show {page.id} --offset {page.next_offset}`"
    return page.text, f"{page.size - page.next_offset:,} bytes follow: {command}"


async def diff(chat: ChatSession, rest: str) -> None:
    """Show the changes of files that wait for review, as a diff."""
    if await has_pending(chat):
        owner = f"session {chat.session.state.key}"
        chat.screen.say(colored(await chat.crib.changes.diff(rest, owner=owner), limit=0))


def _last(shown: CallRecord) -> tuple[str, Mapping[str, Any]]:
    return shown.name, shown.arguments if not isinstance(shown.arguments, str) else {}


def _tell_sources(chat: ChatSession) -> None:
    for state in chat.crib.tools.sources:
        if state.state not in ("ready", "cached"):
            detail = f": {state.detail}" if state.detail else ""
            chat.screen.note(f"{state.source} is {state.state}{detail}", "yellow")


def _fits(tool: Tool, word: str) -> bool:
    return word.lower() in f"{tool.name} {tool.source} {tool.category}".lower()


def _table(*titles: str) -> Table:
    """A table with these titles; one that begins with `>` is for figures."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for title in titles:
        table.add_column(title.removeprefix(">"), justify="right" if title.startswith(">") else "left", overflow="fold")
    return table


def _json(value: Any) -> RenderableType:
    """Return JSON in colours, with what cannot be seen as escapes."""
    text = json.dumps(loads(dumps(value)), indent=2, ensure_ascii=False)
    return JSONHighlighter()(Text(shown_text(text, json_escapes=True)))


def _meter(tokens: int, everything: int) -> Text:
    """A bar: what is shown, of what all definitions would take."""
    filled = min(_BAR, max(1, round(_BAR * tokens / max(1, everything, tokens))))
    return Text.assemble(("█" * filled, mode_style("cautious")), ("░" * (_BAR - filled), "dim"))


def _share(tokens: int, window: int) -> str:
    return f"{tokens:,} of {window:,} tokens ({tokens / window:.0%})" if window else f"{tokens:,} tokens"
