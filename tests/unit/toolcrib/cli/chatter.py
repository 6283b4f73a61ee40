"""Somebody who sits at a chat: what is typed is written down, what is shown is read, and the model has a script."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from toolcrib.config import Settings, load
from toolcrib.testing.models import ScriptedModel
from toolcrib_agent import Agent
from toolcrib_agent.chat.chat_session import ChatAgent, ChatSession
from toolcrib_agent.chat.keyboard import Pressed
from toolcrib_agent.chat.model_discovery import ModelChoice
from toolcrib_agent.chat.screen import console_for
from toolcrib_agent.chat.setup import ChatDependencies, ChatOptions, converse, for_folder, load_agent, open_chat

Typed = str | type[BaseException]


class Typist:
    """A keyboard with a script. A command that is a class of exceptions is that key; at the end, the input ends."""

    def __init__(self, commands: Sequence[Typed], answers: Sequence[Typed]) -> None:
        self._commands = list(commands)
        self._answers = list(answers)
        self.prompts: list[str] = []
        """What was asked, and what stood in the answer already."""
        self.defaults: list[str] = []
        self.press: Pressed = _nobody

    @property
    def has_keys(self) -> bool:
        return True

    async def command(self, default: str = "") -> str:
        self.defaults.append(default)
        return _typed(self._commands)

    async def answer(self, prompt: str, *, default: str = "", keys: Mapping[str, str] | None = None) -> str:
        self.prompts.append(prompt)
        typed = _typed(self._answers)
        return (keys or {}).get(typed, typed)

    @contextmanager
    def watching(self, pressed: Pressed) -> Generator[None]:
        self.press = pressed
        yield
        self.press = _nobody


class Chatter:
    """A user with a home and a project folder, who starts one chat after another."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.project = home / "project"
        self.project.mkdir(exist_ok=True)
        self.typist = Typist((), ())
        self.talk: ChatSession | None = None
        """Of the newest chat, which may be over."""

    def settings(self, **overrides: Any) -> Settings:
        environ = {"HOME": str(self.home), "TERM": "dumb"}
        return for_folder(load((), overrides, environ, cwd=self.project), self.project)

    async def chats(
        self,
        *commands: Typed,
        answers: Sequence[Typed] = (),
        model: ScriptedModel | None = None,
        wanted: ChatOptions | None = None,
        **overrides: Any,
    ) -> str:
        """Hold one chat to its end, and return all that was shown."""
        shown = io.StringIO()
        async with self.opened(shown, commands, answers, model, wanted, **overrides) as talk:
            await converse(talk)
        return shown.getvalue()

    @asynccontextmanager
    async def opened(
        self,
        shown: io.StringIO,
        commands: Sequence[Typed] = (),
        answers: Sequence[Typed] = (),
        model: ScriptedModel | None = None,
        wanted: ChatOptions | None = None,
        asks: bool = True,
        **overrides: Any,
    ) -> AsyncGenerator[ChatSession]:
        """Open a chat whose commands and answers are typed as they stand there."""
        self.typist = Typist(commands, answers)

        async def agent(talk: ChatSession) -> ChatAgent:
            return Agent(model, talk.session) if model else await load_agent(talk)

        async def find(settings: Settings, named: str) -> ModelChoice | None:
            return ModelChoice(model="scripted:model", why="the test says so") if model else None

        parts = ChatDependencies(keyboard=lambda talk, settings: self.typist, agent_loader=agent, find=find)
        settings, wanted = self.settings(**overrides), wanted or ChatOptions()
        async with open_chat(settings, wanted, console_for(shown, width=120), asks=asks, dependencies=parts) as talk:
            self.talk = talk
            yield talk


def _typed(script: list[Typed]) -> str:
    """Return the next thing that is typed."""
    typed = script.pop(0) if script else EOFError
    if isinstance(typed, str):
        return typed
    raise typed


def _nobody(key: str) -> None:
    """Nobody hears keys between turns."""
