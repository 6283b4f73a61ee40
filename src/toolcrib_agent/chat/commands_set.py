"""Commands that change state: settings of the chat, pending approvals and file changes, and calls of the user's own.

A call that the user types (`call TOOL name=value …`) is decided and logged like the model's.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Mapping
from io import StringIO
from typing import Any, Final, cast, get_args

from msgspec.structs import replace
from rich.table import Table
from rich.text import Text

from toolcrib import Answer, Mode, Verdict
from toolcrib.cli.commands.call import parse_arguments
from toolcrib.errors import UsageError

from .approval_prompts import ANSWERS
from .call_view import CallRecord, result_block
from .chat_session import ChatSession, go_on, mode_style, modes_of, new_id
from .model_discovery import ModelChoice
from .screen import plain

_BEFORE_JSON: Final = re.compile(r"""\s*([^\s='"]+=)(?=[\[{])""")
_JSON: Final = json.JSONDecoder()

_UNDO: Final = "undo_edit"
_BY: Final = "chat"

_DONE: Final = {"allow": "runs", "ask": "asks", "deny": "is denied"}
_WAITING: Final = {
    "review": "changes of files wait for review",
    "audit": "changes of files wait for review, the whole batch",
}


def read_call(chat: ChatSession, text: str) -> tuple[str, Mapping[str, Any]]:
    """Return the tool and the arguments of `TOOL name=value name:=JSON …`, or of `TOOL {JSON}`.

    A value is read by what the tool's schema admits; an object or a list needs no quotes. Raises `UsageError` for what
    cannot be read.
    """
    name, _, rest = text.strip().partition(" ")
    if not name:
        raise UsageError("which tool? call TOOL name=value …")
    tool = next((one for one in chat.session.tools if one.name == name), None) or chat.session.visible.find(name)
    if rest.lstrip().startswith("{"):
        return name, parse_arguments((), rest, tool)
    try:
        words = _words(rest)
    except ValueError as error:
        raise UsageError(f"the arguments cannot be read: {error}; quote a value as in a shell") from error
    return name, parse_arguments(words, None, tool)


async def call(chat: ChatSession, rest: str) -> None:
    """Run a tool yourself: TOOL name=value name:=JSON …, or TOOL {JSON}."""
    name, arguments = read_call(chat, rest)
    await run_call(chat, name, arguments)


async def run_call(chat: ChatSession, name: str, arguments: Mapping[str, Any]) -> None:
    """Run one call of the session and show what came of it; what must be asked is asked."""
    begun = time.monotonic()
    result = await chat.session.call(name, dict(arguments), origin="chat")
    took = time.monotonic() - begun
    shown = chat.remember(CallRecord(name=name, arguments=arguments, result=result, seconds=took))
    chat.screen.say(result_block(shown))


def _words(text: str) -> list[str]:
    """Split as a shell does, but leave the quotes within `name={JSON}` and `name=[JSON]`. Raises `ValueError`."""
    words: list[str] = []
    at = 0
    while at < len(text):
        found = _BEFORE_JSON.match(text, at)
        end = _end_of_json(text, found.end()) if found else 0
        if found and end:
            words.append(found[1] + text[found.end() : end])
            at = end
            continue
        stream = StringIO(text[at:])
        lexer = shlex.shlex(stream, posix=True, punctuation_chars=False)
        lexer.whitespace_split, lexer.commenters = True, ""
        word = lexer.get_token()
        if word is None:
            break
        words.append(word)
        at += stream.tell()
    return words


def _end_of_json(text: str, begin: int) -> int:
    """Return the end of the JSON that begins there; 0 if it is not JSON, or if more of the word follows."""
    try:
        _, end = _JSON.raw_decode(text, begin)
    except (ValueError, RecursionError):
        return 0
    return end if not text[end : end + 1].strip() else 0


async def mode(chat: ChatSession, rest: str) -> None:
    """Show the modes, or go to one (Shift-Tab goes to the next)."""
    if rest:
        chat.set_mode(rest)
        mode = chat.session.mode
        chat.screen.say(Text.assemble("mode ", (mode, f"bold {mode_style(mode)}")))
        if mode != rest:
            chat.screen.note(f"{rest} is laxer than the mode of the identity `local`")
        return
    table = Table.grid(padding=(0, 2))
    for name in modes_of(chat.settings):
        mark = "●" if name == chat.session.mode else " "
        description = _describe_mode(chat.settings.policy.modes[name])
        table.add_row(Text(mark, style="cyan"), Text(name, style=f"bold {mode_style(name)}"), plain(description, "dim"))
    chat.screen.say(table)


async def profile(chat: ChatSession, rest: str) -> None:
    """Show the profiles, or go on with another one: how tools are shown to the model."""
    if rest:
        chat.go_on_with(rest)
        chat.screen.note(f"profile {rest}: {len(chat.session.tools)} tools shown, ≈{chat.surface:,} tokens")
        return
    table = Table.grid(padding=(0, 2))
    for name, one in chat.crib.profiles.items():
        mark = "●" if name == chat.session.state.profile else " "
        table.add_row(Text(mark, style="cyan"), plain(name, "bold"), plain(one.description, "dim"))
    chat.screen.say(table)


async def model(chat: ChatSession, rest: str) -> None:
    """Show the model, or go on with another one: provider:name."""
    if not rest:
        found = chat.choice
        chat.screen.note(
            f"{found.model}: {found.why}" if found else "there is none; /model provider:name takes one", ""
        )
        return
    before = chat.choice, chat.agent
    chat.choice, chat.agent = ModelChoice(model=rest, why="as you chose"), None
    try:
        await chat.ready()
    except UsageError:
        chat.choice, chat.agent = before
        raise
    chat.saved = replace(chat.saved, model=rest)
    chat.screen.note(f"now it is {rest}")


async def compact(chat: ChatSession, rest: str) -> None:
    """Replace the older part of the conversation by a summary, so that the model has room again."""
    if chat.choice is None or not (chat.history or chat.unread):
        raise UsageError("the conversation has no messages yet")
    agent = await chat.ready()
    before = len(chat.history)
    chat.screen.note("summarising …")
    chat.history = await agent.compact(chat.history)
    is_shorter = len(chat.history) < before
    chat.screen.note(f"{before} messages are {len(chat.history)} now" if is_shorter else "it is short already")


async def undo(chat: ChatSession, rest: str) -> None:
    """Take back the newest change of files in this chat, or the newest one of a file."""
    chat.asker.granting(_UNDO)
    try:
        await run_call(chat, _UNDO, {"path": rest} if rest else {})
    finally:
        chat.asker.granting("")


async def pending(chat: ChatSession, rest: str) -> None:
    """List the changes of files that wait for review (modes review and audit)."""
    if await has_pending(chat):
        await tell_pending(chat)


async def has_pending(chat: ChatSession) -> bool:
    """True if file changes wait for review in this chat; shows a note if not."""
    if await chat.crib.changes.list(owner=_owner(chat)):
        return True
    chat.screen.note("nothing waits for review")
    return False


async def tell_pending(chat: ChatSession) -> None:
    """Print what waits for review in this chat, if anything does."""
    waiting = await chat.crib.changes.list(owner=_owner(chat))
    for one in waiting:
        chat.screen.say(Text.assemble(("● ", "cyan"), plain(one.path), (f"  {one.kind}, {one.size:,} bytes", "dim")))
    if waiting:
        chat.screen.note("/diff shows the changes, /accept and /reject decide on them: all, or PATH …")


async def accept(chat: ChatSession, rest: str) -> None:
    """Let changes that wait take place: all of them, or those of PATH …"""
    if not await has_pending(chat):
        return
    paths = await chat.crib.changes.accept(*rest.split(), owner=_owner(chat))
    chat.screen.say(Text.assemble(("✓ ", "green"), plain(f"written: {', '.join(paths)}")))


async def reject(chat: ChatSession, rest: str) -> None:
    """Forget changes that wait: all of them, or those of PATH …"""
    if not await has_pending(chat):
        return
    paths = await chat.crib.changes.reject(*rest.split(), owner=_owner(chat))
    chat.screen.say(Text.assemble(("✓ ", "green"), plain(f"forgotten: {', '.join(paths)}")))


async def approve(chat: ChatSession, rest: str) -> None:
    """List the calls of others that wait for a yes, and answer them: ID, then yes, no, always …"""
    waiting = await chat.crib.approvals.pending()
    if not waiting:
        chat.screen.note("nothing waits for an approval; what this chat asks is asked here")
        return
    id, _, word = rest.partition(" ")
    if not id:
        for one in waiting:
            chat.screen.say(Text.assemble(plain(one.id, "dim"), " ", plain(one.tool, "bold"), f" for {one.principal}"))
            chat.screen.say(plain(one.arguments), indent=2)
            chat.screen.note(f"  {one.rule}")
        chat.screen.note("/approve ID yes answers; ID may be its beginning")
        return
    fitting = [one for one in waiting if one.id.removeprefix("approval_").startswith(id.removeprefix("approval_"))]
    if len(fitting) != 1:
        raise UsageError(f"{len(fitting)} of the waiting approvals begin with {id!r}")
    word = (word or "yes").strip()
    verdict = ANSWERS[word][0] if word in ANSWERS else word
    if verdict not in get_args(Verdict) or verdict in ("edit", "comment"):
        raise UsageError(f"{word!r} is not an answer: {', '.join(one for one in get_args(Verdict) if one != 'edit')}")
    answer = Answer(verdict=cast("Verdict", verdict), by=_BY)
    wait_idle = await chat.crib.approvals.decide(fitting[0].id, answer, hash=fitting[0].hash)
    chat.screen.note(f"{wait_idle.id} is {wait_idle.state}")


async def resume(chat: ChatSession, rest: str) -> None:
    """Go on with an earlier conversation: its id, or the beginning of it."""
    if not rest:
        raise UsageError("which? /history lists them, /resume ID goes on with one")
    await go_on(chat, chat.chats.find(rest))


async def new(chat: ChatSession, rest: str) -> None:
    """Begin a new conversation; the old one stays in /history."""
    await chat.take_up(replace(chat.saved, id=new_id(), title="", turns=0, created=0.0, usage={}))
    chat.screen.note("a new conversation")


async def leave(chat: ChatSession, rest: str) -> None:
    """Leave; the conversation is saved."""
    chat.is_leaving = True


def _owner(chat: ChatSession) -> str:
    return f"session {chat.session.state.key}"


def _describe_mode(one: Mode) -> str:
    words = [f"{kind} {_DONE[getattr(one, kind)]}" for kind in ("read", "write", "destructive")]
    if one.diverts:
        words.append(_WAITING[one.files])
    if one.plan:
        words.append("once a plan was approved")
    return ", ".join(words)
