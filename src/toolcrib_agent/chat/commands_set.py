"""Commands that change something: how the chat works, what waits for an answer, what was done to files."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, cast, get_args

from rich.table import Table
from rich.text import Text

from toolcrib.core.permission import Answer, Verdict
from toolcrib.errors import UsageError
from toolcrib.policy.modes import Mode

from .approval_prompts import ANSWERS
from .chat_session import ChatSession, mode_style
from .manual_calls import run_call
from .model_discovery import ModelChoice
from .resume import go_on
from .saved_chats import new_id
from .screen import plain

__all__ = [
    "accept",
    "approve",
    "compact",
    "has_pending",
    "leave",
    "mode",
    "model",
    "new",
    "pending",
    "profile",
    "reject",
    "resume",
    "tell_pending",
    "undo",
]

_UNDO: Final = "undo_edit"
_BY: Final = "chat"


async def mode(talk: ChatSession, rest: str) -> None:
    """Show the modes, or go to one (Shift-Tab goes to the next)."""
    if rest:
        talk.set_mode(rest)
        talk.screen.say(Text.assemble("mode ", (rest, f"bold {mode_style(rest)}")))
        return
    table = Table.grid(padding=(0, 2))
    for name, one in talk.settings.modes.items():
        mark = "●" if name == talk.session.mode else " "
        table.add_row(
            Text(mark, style="cyan"), Text(name, style=f"bold {mode_style(name)}"), plain(_describe_mode(one), "dim")
        )
    talk.screen.say(table)


async def profile(talk: ChatSession, rest: str) -> None:
    """Show the profiles, or go on with another one: how tools are shown to the model."""
    if rest:
        talk.go_on_with(rest)
        talk.screen.note(f"profile {rest}: {len(talk.session.tools)} tools shown, ≈{talk.surface:,} tokens")
        return
    table = Table.grid(padding=(0, 2))
    for name, one in talk.crib.profiles.items():
        mark = "●" if name == talk.session.state.profile else " "
        table.add_row(Text(mark, style="cyan"), plain(name, "bold"), plain(one.description, "dim"))
    talk.screen.say(table)


async def model(talk: ChatSession, rest: str) -> None:
    """Show the model, or go on with another one: provider:name."""
    if not rest:
        found = talk.found
        talk.screen.note(
            f"{found.model}: {found.why}" if found else "there is none; /model provider:name takes one", ""
        )
        return
    before = talk.found, talk.speaker
    talk.found, talk.speaker = ModelChoice(model=rest, why="as you said"), None
    try:
        await talk.ready()
    except UsageError:
        talk.found, talk.speaker = before
        raise
    talk.saved = replace(talk.saved, model=rest)
    talk.screen.note(f"now it is {rest}")


async def compact(talk: ChatSession, rest: str) -> None:
    """Replace the older part of the conversation by a summary, so that the model has room again."""
    if talk.found is None or not (talk.history or talk.unread):
        raise UsageError("nothing was said to a model yet")
    speaker = await talk.ready()
    before = len(talk.history)
    talk.screen.note("summarising …")
    talk.history = await speaker.compact(talk.history)
    is_shorter = len(talk.history) < before
    talk.screen.note(f"{before} messages are {len(talk.history)} now" if is_shorter else "it is short already")


async def undo(talk: ChatSession, rest: str) -> None:
    """Take back the newest change of files in this chat, or the newest one of a file."""
    talk.asker.granting(_UNDO)
    try:
        await run_call(talk, _UNDO, {"path": rest} if rest else {})
    finally:
        talk.asker.granting("")


async def pending(talk: ChatSession, rest: str) -> None:
    """List the changes of files that wait for review (modes review and audit)."""
    if await has_pending(talk):
        await tell_pending(talk)


async def has_pending(talk: ChatSession) -> bool:
    """Whether changes wait for review in this chat; where none do, that is told."""
    if await talk.crib.pending.list(owner=_owner(talk)):
        return True
    talk.screen.note("nothing waits for review")
    return False


async def tell_pending(talk: ChatSession) -> None:
    """Tell what waits for review in this chat, if anything does."""
    waiting = await talk.crib.pending.list(owner=_owner(talk))
    for one in waiting:
        talk.screen.say(Text.assemble(("● ", "cyan"), plain(one.path), (f"  {one.kind}, {one.size:,} bytes", "dim")))
    if waiting:
        talk.screen.note("/diff shows the changes, /accept and /reject decide on them: all, or PATH …")


async def accept(talk: ChatSession, rest: str) -> None:
    """Let changes that wait take place: all of them, or those of PATH …"""
    if not await has_pending(talk):
        return
    paths = await talk.crib.pending.accept(*rest.split(), owner=_owner(talk))
    talk.screen.say(Text.assemble(("✓ ", "green"), plain(f"written: {', '.join(paths)}")))


async def reject(talk: ChatSession, rest: str) -> None:
    """Forget changes that wait: all of them, or those of PATH …"""
    if not await has_pending(talk):
        return
    paths = await talk.crib.pending.reject(*rest.split(), owner=_owner(talk))
    talk.screen.say(Text.assemble(("✓ ", "green"), plain(f"forgotten: {', '.join(paths)}")))


async def approve(talk: ChatSession, rest: str) -> None:
    """List the calls of others that wait for a yes, and answer them: ID, then yes, no, always …"""
    waiting = await talk.crib.approvals.pending()
    if not waiting:
        talk.screen.note("nothing waits for an approval; what this chat asks is asked here")
        return
    id, _, word = rest.partition(" ")
    if not id:
        for one in waiting:
            talk.screen.say(Text.assemble(plain(one.id, "dim"), " ", plain(one.tool, "bold"), f" for {one.principal}"))
            talk.screen.say(plain(one.arguments), indent=2)
            talk.screen.note(f"  {one.rule}")
        talk.screen.note("/approve ID yes answers; ID may be its beginning")
        return
    fitting = [one for one in waiting if one.id.removeprefix("approval_").startswith(id.removeprefix("approval_"))]
    if len(fitting) != 1:
        raise UsageError(f"{len(fitting)} of the waiting approvals begin with {id!r}")
    word = (word or "yes").strip()
    verdict = ANSWERS[word][0] if word in ANSWERS else word
    if verdict not in get_args(Verdict) or verdict in ("edit", "comment"):
        raise UsageError(f"{word!r} is no answer: {', '.join(one for one in get_args(Verdict) if one != 'edit')}")
    answer = Answer(verdict=cast("Verdict", verdict), by=_BY)
    settled = await talk.crib.approvals.decide(fitting[0].id, answer, hash=fitting[0].hash)
    talk.screen.note(f"{settled.id} is {settled.state}")


async def resume(talk: ChatSession, rest: str) -> None:
    """Go on with an earlier conversation: its id, or the beginning of it."""
    if not rest:
        raise UsageError("which? /history lists them, /resume ID goes on with one")
    await go_on(talk, talk.chats.find(rest))


async def new(talk: ChatSession, rest: str) -> None:
    """Begin a new conversation; the old one stays in /history."""
    await talk.take_up(replace(talk.saved, id=new_id(), title="", turns=0, created=0.0, usage={}))
    talk.screen.note("a new conversation")


async def leave(talk: ChatSession, rest: str) -> None:
    """Leave; the conversation is saved."""
    talk.is_leaving = True


def _owner(talk: ChatSession) -> str:
    return f"session {talk.session.state.key}"


def _describe_mode(one: Mode) -> str:
    words = [f"{kind} {_DONE[getattr(one, kind)]}" for kind in ("read", "write", "destructive")]
    if one.diverts:
        words.append(_WAITING[one.files])
    if one.plan:
        words.append("once a plan was approved")
    return ", ".join(words)


_DONE: Final = {"allow": "runs", "ask": "asks", "deny": "is denied"}
_WAITING: Final = {
    "review": "changes of files wait for review",
    "audit": "changes of files wait for review, the whole batch",
}
