"""A conversation kept and taken up again: its messages, its mode and profile, and what waits for review in it."""

from __future__ import annotations

from dataclasses import asdict, replace
from importlib import import_module
from typing import Any, Final

from toolcrib.core.host import SESSIONS
from toolcrib.core.json import loads
from toolcrib.core.session import LOCAL
from toolcrib.errors import ToolcribError, ToolFailure

from ..events import Outcome
from .chat_session import ChatSession
from .saved_chats import SavedChat
from .screen import plain

__all__ = ["go_on", "keep", "tell_where"]

_HISTORY: Final = "toolcrib_agent.history"
"""Loads Pydantic AI, as the turn that is kept has done before."""


async def go_on(talk: ChatSession, saved: SavedChat) -> None:
    """Take `saved` up in this chat, and show where it was left. Raises `ConfigError` for a file that cannot be read."""
    messages = talk.chats.messages(saved)
    await talk.take_up(saved, messages)
    tell_where(talk)


def tell_where(talk: ChatSession) -> None:
    """Show where the conversation was left; nothing of one that has not begun."""
    messages, saved = talk.unread, talk.saved
    if not messages:
        return
    talk.screen.note(f"going on with {saved.id}: {saved.title} ({saved.turns} turns)")
    if prompt := _last(messages, "user-prompt"):
        talk.screen.say(plain(f"❯ {prompt}", "bold"))
    if text := _last(messages, "text"):
        talk.screen.say(talk.screen.markdown(text))
    talk.screen.gap()


def _last(messages: list[Any], kind: str) -> str:
    """Return what was said last by the user or the model."""
    parts = [part for message in messages for part in message.get("parts", ()) if part.get("part_kind") == kind]
    return str(parts[-1].get("content", "")) if parts else ""


async def keep(talk: ChatSession, prompt: str, outcome: Outcome) -> None:
    """Take over what came of a turn, and write the conversation down; a disk that refuses is told."""
    talk.history, talk.usage = outcome.history, talk.usage + outcome.usage
    saved = replace(
        talk.saved,
        model=talk.found.model if talk.found else "",
        profile=talk.session.state.profile,
        mode=talk.session.mode,
        title=await _description_of(talk) or talk.saved.title or prompt,
        turns=talk.saved.turns + 1,
        usage=asdict(talk.usage),
    )
    talk.saved = saved
    try:
        talk.saved = talk.chats.save(saved, loads(import_module(_HISTORY).dump(outcome.history)))
    except ToolcribError as error:
        talk.screen.fail(f"this conversation is not saved: {error}")


async def _description_of(talk: ChatSession) -> str:
    """Return what the model has said that the conversation is about (`session_describe`); empty where it has not."""
    try:
        found = await talk.crib.store.records.get((LOCAL, SESSIONS), talk.session.state.key)
    except ToolFailure:  # the store cannot be used: it stays as it is called
        return ""
    return str(found.value.get("description", "")) if found is not None else ""
