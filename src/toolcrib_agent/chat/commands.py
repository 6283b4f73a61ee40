"""Slash commands of a chat: their table, the parser of a line, and the commands that show state."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import orjson
from msgspec import Struct
from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.highlighter import JSONHighlighter
from rich.table import Table
from rich.text import Text

from toolcrib import ToolResult
from toolcrib.agents import definition_text, estimate, shown_text
from toolcrib.cli.processes.token_count import count
from toolcrib.disclosure.signatures import describe, signature
from toolcrib.errors import ToolcribError, ToolFailure, UsageError
from toolcrib.plugin import dumps, nearest

from . import commands_set
from .call_view import CallRecord, call_line, colored
from .chat_session import ChatSession, mode_style, modes_of
from .commands_set import has_pending, read_call
from .screen import plain

_FOUND: Final = 8
_EFFECT_STYLE: Final[Mapping[str, str]] = {"allow": "green", "ask": "yellow", "deny": "red"}
_EFFECT_WORD: Final[Mapping[str, str]] = {"allow": "runs", "ask": "asks", "deny": "denied"}
_BAR: Final = 40
"""Characters of the token meter."""
_WIDE: Final = 80
"""Columns of a terminal below which a table leaves out what can be done without: no name or id is broken in two."""
_SHOWN: Final = 64 * 1024
"""Bytes of a kept result that `/show` prints: ten megabytes would take a minute, and push everything else away."""

_KEYS: Final[Mapping[str, str]] = {
    "Shift-Tab": "the next mode, also while the model works",
    "Alt-Enter": "a new line (also Ctrl-J, or \\ before Enter)",
    "Esc, Ctrl-C": "interrupt the model; Ctrl-C twice leaves",
    "Ctrl-R": "search what was typed before",
    "@": "names a file of this folder",
    "typing": "while the model works: sent when it is done",
}

_BARE: Final = ("call",)
"""Words that need no slash: with no model to talk to, `call TOOL …` is what one types all the time."""
_TAKE_TOOLS: Final = ("call", "describe", "why")
_FILES: Final = 50
"""Maximum number of files offered as completions."""


async def tools(chat: ChatSession, rest: str) -> None:
    """List the tools: what the mode does with each, what it costs, whether the model is shown it now."""
    shown = {tool.name for tool in chat.session.tools}
    visible = chat.session.visible
    word = rest.lower()
    listed = [tool for tool in visible.offered() if word in f"{tool.name} {tool.source} {tool.category}".lower()]
    if not listed:
        chat.screen.note(f"no tool has {rest!r} in its name, source or category" if rest else "there are no tools yet")
        _tell_sources(chat)
        return
    is_wide = chat.screen.console.width >= _WIDE
    table = _table("", "tool", *(["source", "category"] if is_wide else []), "kind", ">tokens", "")
    for tool in listed:
        effect = chat.crib.policy.decide(tool, {}, chat.session.state).effect
        table.add_row(
            Text("●" if visible.aliases.name(tool) in shown else " ", style="cyan"),
            plain(tool.name, "bold"),
            *((plain(tool.source, "dim"), plain(tool.category, "dim")) if is_wide else ()),
            plain(tool.kind),
            f"≈{estimate(definition_text(tool)):,}",
            Text(_EFFECT_WORD[effect], style=_EFFECT_STYLE[effect]),
        )
    chat.screen.say(table)
    verbs = [tool.name for tool in chat.session.tools if visible.find(tool.name) is None]
    beside = f", and {', '.join(verbs)} to reach the others" if verbs else ""
    chat.screen.note(f"● {len(shown) - len(verbs)} of {len(listed)} are shown to the model now{beside}")
    _tell_sources(chat)


async def find(chat: ChatSession, rest: str) -> None:
    """Search the tools for what you want to do."""
    if not rest:
        raise UsageError("what for? /find WHAT YOU WANT TO DO")
    visible = chat.session.visible
    hits = visible.catalog.search(rest, _FOUND, allowed=visible.admitted, boost=visible.boost)
    if not hits:
        near = ", ".join(visible.catalog.nearest_categories(rest))
        chat.screen.note(f"nothing fits {rest!r}" + (f"; nearest: {near}" if near else ""))
        return
    table = _table("tool", "kind", "what it does")
    for hit in hits:
        tool = visible.catalog.tools[hit.name]
        table.add_row(plain(tool.name, "bold"), plain(tool.kind), plain(tool.summary))
    chat.screen.say(table)
    first = visible.catalog.tools[hits[0].name]
    chat.screen.note(f"/describe {first.name} shows it, /call {first.name} … runs it")


async def _describe_tool(chat: ChatSession, rest: str) -> None:
    """Show what a model reads of a tool before it calls it."""
    if not rest:
        raise UsageError("which? /describe TOOL")
    tool = chat.session.visible.find(rest)
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
    everything = sum(estimate(definition_text(tool)) for tool in session.visible.offered())
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
    page = await chat.crib.artifacts.read(artifact, chat.session.state.principal, 0, _SHOWN)
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


def _table(*titles: str) -> Table:
    """A table with these titles; one that begins with `>` is for figures."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for title in titles:
        table.add_column(title.removeprefix(">"), justify="right" if title.startswith(">") else "left", overflow="fold")
    return table


def _json(value: Any) -> RenderableType:
    """Return JSON in colours, with what cannot be seen as escapes."""
    text = json.dumps(orjson.loads(dumps(value)), indent=2, ensure_ascii=False)
    return JSONHighlighter()(Text(shown_text(text, json_escapes=True)))


def _meter(tokens: int, everything: int) -> Text:
    """A bar: what is shown, of what all definitions would take."""
    filled = min(_BAR, max(1, round(_BAR * tokens / max(1, everything, tokens))))
    return Text.assemble(("█" * filled, mode_style("cautious")), ("░" * (_BAR - filled), "dim"))


def _share(tokens: int, window: int) -> str:
    return f"{tokens:,} of {window:,} tokens ({tokens / window:.0%})" if window else f"{tokens:,} tokens"


class SlashCommand(Struct, frozen=True, kw_only=True):
    """A slash command. `run` raises `ToolcribError` for a request that it refuses."""

    run: Callable[[ChatSession, str], Awaitable[None]]
    takes: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The first line of what its function says."""
        return (self.run.__doc__ or "").partition("\n")[0].rstrip(".")


async def _help(chat: ChatSession, rest: str) -> None:
    """Show the commands and the keys."""
    table = Table.grid(padding=(0, 2))
    for name, command in COMMANDS.items():
        words = Text.assemble((f"/{name}", "bold cyan"), (f" {command.takes}" if command.takes else "", "dim"))
        table.add_row(words, command.summary)
    chat.screen.say(table)
    chat.screen.gap()
    keys = Table.grid(padding=(0, 2))
    for key, meaning in _KEYS.items():
        keys.add_row(Text(key, style="bold"), meaning)
    chat.screen.say(keys)


COMMANDS: Final[Mapping[str, SlashCommand]] = {
    "tools": SlashCommand(run=tools, takes="[WORD]"),
    "find": SlashCommand(run=find, takes="WHAT"),
    "describe": SlashCommand(run=_describe_tool, takes="TOOL"),
    "call": SlashCommand(run=commands_set.call, takes="TOOL name=value …"),
    "why": SlashCommand(run=why, takes="[TOOL name=value …]"),
    "show": SlashCommand(run=show, takes="[NUMBER]"),
    "context": SlashCommand(run=context, takes="[anthropic|openai|mcp]"),
    "mode": SlashCommand(run=commands_set.mode, takes="[MODE]"),
    "profile": SlashCommand(run=commands_set.profile, takes="[PROFILE]"),
    "model": SlashCommand(run=commands_set.model, takes="[PROVIDER:NAME]"),
    "approve": SlashCommand(run=commands_set.approve, takes="[ID ANSWER]"),
    "undo": SlashCommand(run=commands_set.undo, takes="[PATH]"),
    "pending": SlashCommand(run=commands_set.pending),
    "diff": SlashCommand(run=diff, takes="[PATH]"),
    "accept": SlashCommand(run=commands_set.accept, takes="[PATH …]"),
    "reject": SlashCommand(run=commands_set.reject, takes="[PATH …]"),
    "cost": SlashCommand(run=cost),
    "compact": SlashCommand(run=commands_set.compact),
    "history": SlashCommand(run=history, takes="[all]"),
    "resume": SlashCommand(run=commands_set.resume, takes="ID"),
    "new": SlashCommand(run=commands_set.new, aliases=("clear",)),
    "help": SlashCommand(run=_help, aliases=("?",)),
    "quit": SlashCommand(run=commands_set.leave, aliases=("exit", "q")),
}
"""Commands by word, in the order of `/help`."""

_BY_WORD: Final = {word: one for name, one in COMMANDS.items() for word in (name, *one.aliases)}


def is_command(line: str, *, has_model: bool) -> bool:
    """True if a line is for the chat and not for the model."""
    word = line.lstrip().partition(" ")[0]
    if word.startswith("/"):
        return "/" not in word[1:]  # a path is something to talk about
    return not has_model and word in (*_BARE, *COMMANDS)


async def run_command(chat: ChatSession, line: str) -> None:
    """Run the command of `line`; a failure is shown and the chat goes on."""
    word, _, rest = line.strip().removeprefix("/").partition(" ")
    command = _BY_WORD.get(word.lower())
    try:
        if command is None:
            near = nearest(word, _BY_WORD, 1)
            raise UsageError(f"there is no /{word}" + (f"; did you mean /{near[0]}?" if near else "; /help lists all"))
        await command.run(chat, rest.strip())
    except ToolFailure as failure:
        chat.screen.fail(f"{failure.code}: {failure.message}", failure.hint)
    except ToolcribError as error:
        chat.screen.fail(str(error))


def complete(chat: ChatSession, text: str) -> Iterator[tuple[str, str]]:
    """Yield what may stand in place of the last word of `text`, and what it means."""
    if text.startswith("/") and " " not in text:
        for name, command in COMMANDS.items():
            if f"/{name}".startswith(text):
                yield f"/{name}", command.summary
        return
    word = text.rpartition(" ")[2].rpartition("\n")[2]
    if word.startswith("@"):
        yield from _files(chat, word[1:])
        return
    command, _, rest = text.removeprefix("/").partition(" ")
    if command not in COMMANDS or not (text.startswith("/") or chat.choice is None) or " " in rest:
        return
    for name, meaning in _values(chat, command):
        if name.startswith(rest):
            yield name, meaning


def _files(chat: ChatSession, begun: str) -> Iterator[tuple[str, str]]:
    """Yield the files of the folder that a path may go on with; hidden ones where the dot is typed."""
    folder, _, name = begun.rpartition("/")
    try:
        found = sorted(Path(chat.saved.folder, folder).iterdir())
    except (OSError, ValueError):
        return
    fitting = (one for one in found if one.name.startswith(name) and (name or not one.name.startswith(".")))
    for one in list(fitting)[:_FILES]:
        is_folder = one.is_dir()
        path = f"{folder}/{one.name}" if folder else one.name
        yield f"@{path}/" if is_folder else f"@{path}", "folder" if is_folder else ""


def _values(chat_session: ChatSession, command: str) -> Iterable[tuple[str, str]]:
    if command in _TAKE_TOOLS:
        verbs = [tool for tool in chat_session.session.tools if chat_session.session.visible.find(tool.name) is None]
        return ((tool.name, tool.summary) for tool in (*chat_session.session.visible.offered(), *verbs))
    if command == "mode":
        return ((name, "") for name in modes_of(chat_session.settings))
    if command == "profile":
        return ((name, one.description) for name, one in chat_session.crib.profiles.items())
    if command == "resume":
        return ((chat.id, chat.title) for chat in chat_session.chats.all(chat_session.saved.folder)[:20])
    return ()
