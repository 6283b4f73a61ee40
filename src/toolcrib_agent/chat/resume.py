"""Saving and resuming a conversation: messages, mode, profile, and pending file changes."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from toolcrib.core.host import SESSIONS
from toolcrib.core.json import loads
from toolcrib.core.session import LOCAL
from toolcrib.errors import ToolcribError, ToolFailure

from ..events import Outcome
from .chat_session import ChatSession
from .saved_chats import SavedChat
from .screen import plain

__all__ = ["go_on", "keep", "tell_where"]


async def go_on(chat: ChatSession, saved: SavedChat) -> None:
    """Take `saved` up in this chat, and show where it was left. Raises `ConfigError` for a file that cannot be read."""
    messages = chat.chats.messages(saved)
    await chat.take_up(saved, messages)
    tell_where(chat)


def tell_where(chat: ChatSession) -> None:
    """Show the end of a resumed conversation; print no output for a new one."""
    messages, saved = chat.unread, chat.saved
    if not messages:
        return
    chat.screen.note(f"going on with {saved.id}: {saved.title} ({saved.turns} turns)")
    if prompt := _last(messages, "user-prompt"):
        chat.screen.say(plain(f"❯ {prompt}", "bold"))
    if text := _last(messages, "text"):
        chat.screen.say(chat.screen.markdown(text))
    chat.screen.gap()


def _last(messages: list[Any], kind: str) -> str:
    """Return the last text of the user or the model."""
    parts = [part for message in messages for part in message.get("parts", ()) if part.get("part_kind") == kind]
    return str(parts[-1].get("content", "")) if parts else ""


async def keep(chat: ChatSession, prompt: str, outcome: Outcome) -> None:
    """Take over the outcome of a turn and save the conversation; a write error is shown, not raised."""
    chat.history, chat.usage = outcome.history, chat.usage + outcome.usage
    saved = replace(
        chat.saved,
        model=chat.choice.model if chat.choice else "",
        profile=chat.session.state.profile,
        mode=chat.session.mode,
        title=await _description_of(chat) or chat.saved.title or prompt,
        turns=chat.saved.turns + 1,
        usage=asdict(chat.usage),
    )
    chat.saved = saved
    from ..history import dump  # loads Pydantic AI, as the turn that is saved has done already

    try:
        chat.saved = chat.chats.save(saved, loads(dump(outcome.history)))
    except ToolcribError as error:
        chat.screen.fail(f"this conversation is not saved: {error}")


async def _description_of(chat: ChatSession) -> str:
    """Return the session's description (`session_describe`); empty without one."""
    try:
        found = await chat.crib.store.records.get((LOCAL, SESSIONS), chat.session.state.key)
    except ToolFailure:  # the store cannot be used: it stays as it is called
        return ""
    return str(found.value.get("description", "")) if found is not None else ""
