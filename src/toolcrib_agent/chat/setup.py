"""Assembly of a chat: settings of this folder, crib, keyboard, model and agent.

The agent loads after the first screen is drawn: imports take 2 to 5 s (measured).
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup
from msgspec import Struct, structs
from rich.console import Console

from toolcrib import Settings, Toolcrib
from toolcrib.agents import Redactor
from toolcrib.core.extras import install_extra
from toolcrib.errors import UsageError

from ..limits import Usage
from .approval_prompts import Asker
from .chat_session import (
    ChatAgent,
    Chats,
    ChatSession,
    SavedChat,
    mode_style,
    new_id,
    next_mode,
    open_session,
    tell_where,
)
from .commands import complete
from .keyboard import Keyboard, Plain
from .loop import Loop
from .model_discovery import ModelChoice, find_model, local_models
from .screen import Screen
from .welcome import welcome

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from ..agent import Agent


_LOCAL: Final = ("local:", "ollama:")
"""Models that delegate nothing to one on this machine: they are there themselves."""

_PATIENCE: Final = 3600.0
"""Seconds that a question waits at the terminal: the user may be at lunch, and a refusal loses work."""
_HISTORY_FILE: Final = "chat-history"


async def load_agent(chat: ChatSession) -> ChatAgent:
    """Make an agent for the session and the model of `chat`. Raises `UsageError` if there can be none."""
    if chat.choice is None:
        raise UsageError("there is no model")
    named = chat.choice.model

    def load() -> tuple[Model, type[Agent]]:
        # Pydantic AI and the model's client take seconds to import: in a thread, so that the first screen stays alive.
        from ..agent import Agent
        from ..models import model_of

        return model_of(named), Agent

    try:
        model, agent_type = await to_thread.run_sync(load)
    except UsageError:
        raise
    except ImportError as error:
        raise UsageError(f"what talks to models is not installed ({error}); {install_extra('chat')}") from error
    except Exception as error:  # what a model's client makes of its variables is its own business
        raise UsageError(f"model {named!r} cannot be used: {error}") from error
    local = [] if named.startswith(_LOCAL) else await local_models(chat.settings.environment)
    agent: ChatAgent = agent_type(model, chat.session, local=local[0].model if local else None)
    return agent


class ChatOptions(Struct, frozen=True, kw_only=True):
    """Options of the command line; an empty value means not given."""

    model: str = ""
    profile: str = ""
    mode: str = ""
    resume: str = ""
    """The beginning of a conversation's id."""
    goes_on: bool = False
    """True to continue the newest conversation of this folder."""


def for_folder(settings: Settings, folder: Path, *, asks: bool = True) -> Settings:
    """Return the settings of a chat in `folder`: its tools work there, and one that asks waits for the answer."""
    settings = replace(settings, workspace=settings.workspace.model_copy(update={"roots": (folder,)}))
    if not asks:
        return settings
    asking = settings.approvals
    patient = {"expires": max(asking.expires, _PATIENCE), "timeout": max(asking.timeout, _PATIENCE)}
    return replace(settings, approvals=asking.model_copy(update=patient))


class ChatDependencies(Struct, frozen=True, kw_only=True):
    """Replaceable parts of a chat that touch the outside world."""

    keyboard: Callable[[Callable[[], ChatSession], Settings], Keyboard] | None = None
    """Factory of the keyboard, called before its chat exists; None takes the best available one."""
    agent_loader: Callable[[ChatSession], Awaitable[ChatAgent]] = load_agent
    find: Callable[[Settings, str], Awaitable[ModelChoice | None]] = find_model


@asynccontextmanager
async def open_chat(
    settings: Settings,
    wanted: ChatOptions,
    console: Console,
    *,
    asks: bool = True,
    dependencies: ChatDependencies | None = None,
) -> AsyncGenerator[ChatSession]:
    """Open the crib of `settings` and the requested conversation. Does not wait for servers.

    Without `asks` no question is put: the mode decides. Raises `UsageError` for what does not exist, `ConfigError`.
    """
    logging.getLogger("toolcrib").addHandler(logging.NullHandler())
    dependencies = dependencies or ChatDependencies()
    opened: list[ChatSession] = []
    screen = Screen(console)
    keys = (dependencies.keyboard or _keyboard)(lambda: opened[0], settings)
    asker = Asker(screen, keys, lambda: opened[0].interrupt())
    chats = Chats(settings, Redactor(settings.secrets))
    earlier = _earlier(chats, wanted, str(settings.workspace.roots[0]))
    saved = _with_options(earlier or SavedChat(id=new_id(), folder=str(settings.workspace.roots[0])), wanted, settings)
    async with Toolcrib(settings.at_once()) as crib:
        chat = ChatSession(
            crib=crib,
            session=open_session(crib, asker if asks else None, saved),
            settings=settings,
            screen=screen,
            keyboard=keys,
            asker=asker,
            chats=chats,
            saved=saved,
            agent_loader=dependencies.agent_loader,
            choice=await dependencies.find(settings, wanted.model or (earlier.model if earlier else "")),
            unread=chats.messages(saved) if earlier else [],
            usage=Usage(**saved.usage),
        )
        opened.append(chat)
        try:
            yield chat
        finally:
            await chat.session.__aexit__(None, None, None)


async def converse(chat: ChatSession, first: str = "") -> None:
    """Run the chat until the user leaves. The agent loads behind the first screen."""
    welcome(chat)
    tell_where(chat)
    loop = Loop(chat)
    chat.interrupt = loop.interrupt
    async with anyio.create_task_group() as group:
        group.start_soon(_prepare, chat)
        await with_signals(loop.interrupt, lambda: loop.run(first))
        group.cancel_scope.cancel()
    if chat.saved.turns:
        chat.screen.note(f"`toolcrib chat --resume {chat.saved.id}` goes on here")


async def with_signals(interrupt: Callable[[], None], main: Callable[[], Awaitable[None]]) -> None:
    """Run `main`; Ctrl-C calls `interrupt`, and a terminal that is closed ends it."""

    async def hear(group: TaskGroup) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for number in signals:
                if number == signal.SIGINT:
                    interrupt()
                else:
                    group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(hear, group)
        await main()
        group.cancel_scope.cancel()


async def _prepare(chat: ChatSession) -> None:
    """Load the agent early. A failure is reported at the first question."""
    if chat.choice is None:
        return
    with suppress(Exception):
        await chat.ready()


def _earlier(chats: Chats, wanted: ChatOptions, folder: str) -> SavedChat | None:
    """Return the conversation to continue. Raises `UsageError` if there is none."""
    if wanted.resume:
        return chats.find(wanted.resume)
    if not wanted.goes_on:
        return None
    newest = next(iter(chats.all(folder)), None)
    if newest is None:
        raise UsageError(f"no conversation was saved in {folder}; --resume ID goes on with one of another folder")
    return newest


def _with_options(saved: SavedChat, wanted: ChatOptions, settings: Settings) -> SavedChat:
    """Fill in how the conversation works: as it is wanted, else as it was, else as the configuration says."""
    defaults = settings.chat
    return structs.replace(
        saved,
        profile=wanted.profile or saved.profile or defaults.profile,
        mode=wanted.mode or saved.mode or defaults.mode,
    )


def has_keys(settings: Settings) -> bool:
    """True if the terminal and the installed packages allow key handling."""
    terminal = settings.environment.get("TERM", "")
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and terminal not in ("", "dumb")
    return is_terminal and find_spec("prompt_toolkit") is not None


def _keyboard(chat: Callable[[], ChatSession], settings: Settings) -> Keyboard:
    """Return the best keyboard that there is."""
    if not has_keys(settings):
        return Plain(lambda: chat().session.mode)
    from . import prompt_input  # needs prompt_toolkit of the extra `chat`, which `has_keys` looked for

    def completed(text: str) -> Iterator[tuple[str, str]]:
        return complete(chat(), text)

    around = prompt_input.PromptContext(
        prompt=lambda: [(_ansi(mode_style(chat().session.mode)), "❯ ")],
        toolbar=lambda: [*_toolbar(chat())],
        complete=completed,
        next_mode=lambda: chat().set_mode(next_mode(chat())),
    )
    history = prompt_input.history_at(settings.directories.state / _HISTORY_FILE, Redactor(settings.secrets).text)
    keyboard: Keyboard = prompt_input.PromptInput(around, history)
    return keyboard


def _toolbar(chat: ChatSession) -> list[tuple[str, str]]:
    """The line below the prompt: mode, model, tools, context, money."""
    dim, mode = "ansibrightblack", chat.session.mode
    mode_segment = [("bold " + _ansi(mode_style(mode)), f" {mode}"), (dim, " ⇧⇥")]
    segments = [chat.model_name, f"{len(chat.session.tools)} tools shown"]
    segments.append(f"{chat.context:,} tokens" if chat.context else f"≈{chat.surface:,} tokens")
    if chat.usage.cost:
        segments.append(f"${chat.usage.cost:.4f}")
    waiting = [state.source for state in chat.crib.tools.sources if state.state == "connecting"]
    segments += [f"{', '.join(waiting)} connecting"] if waiting else []
    return [*mode_segment, *((dim, f" · {text}") for text in segments)]


def _ansi(style: str) -> str:
    return f"ansi{style}"
