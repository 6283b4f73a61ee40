"""A conversation taken up again: its messages, its mode and profile, and what waits for review in it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from anyio import to_thread

from ...core.json import dumps
from .keeping import SavedChat
from .talk import Talk

__all__ = ["go_on"]


async def go_on(talk: Talk, saved: SavedChat) -> None:
    """Take `saved` up in this chat, and say so.

    Raises `ConfigError` for a file that cannot be read, `UsageError` for messages that are none.
    """
    messages = talk.chats.messages(saved)
    history: Any = await to_thread.run_sync(import_module, "toolcrib.agent.history") if messages else None
    await talk.take_up(saved, history.load(dumps(messages)) if messages else ())
    talk.screen.note(f"going on with {saved.id}: {saved.title or 'nothing was said yet'} ({saved.turns} turns)")
