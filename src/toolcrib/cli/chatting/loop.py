"""The loop of a chat: read, answer, save, until somebody leaves. Ctrl-C interrupts what goes on; twice leaves."""

from __future__ import annotations

from dataclasses import asdict, replace

import anyio
from anyio.abc import TaskGroup

from ...core.json import loads
from ...errors import ToolcribError
from ...jobs.job import Job
from .commands import is_command, run_command
from .screen import plain
from .talk import Talk
from .turns import Keys, TurnView
from .welcome import NO_MODEL_HINT, tell_problems

__all__ = ["Loop"]


class Loop:
    """Runs one conversation at a terminal."""

    def __init__(self, talk: Talk) -> None:
        """Nothing is read before `run`."""
        self._talk = talk
        self._scope: anyio.CancelScope | None = None
        """What an interrupt cancels: a turn, a command, or the waiting for a line."""
        self._warned = False
        """Ctrl-C was pressed with nothing to interrupt: the next one leaves."""
        self._told = 0
        """How many problems of the crib were told."""
        self._jobs: list[Job] = []

    def interrupt(self) -> None:
        """End what goes on now; what a signal and a key do."""
        if self._scope is not None:
            self._scope.cancel()

    async def run(self, first: str = "") -> None:
        """Go on until somebody leaves; `first` is said before anything is read."""
        talk = self._talk
        talk.queue += [first] if first else []
        stop = talk.crib.on_job(self._jobs.append)
        try:
            while not talk.is_leaving:
                self._tell_news()
                line = await self._next()
                if line.strip():
                    await self._interruptible(line.strip())
        finally:
            stop()

    async def _next(self) -> str:
        """Return the next thing to do; nothing when there is none yet."""
        talk = self._talk
        if talk.queue:
            line = talk.queue.pop(0)
            talk.screen.say(plain(f"❯ {line}", "bold"))
            return line
        default, talk.typed = talk.typed, ""
        try:
            with anyio.CancelScope() as self._scope:
                line = await talk.keyboard.command(default)
                self._warned = False
                return line
            raise KeyboardInterrupt
        except EOFError:
            talk.is_leaving = True
        except KeyboardInterrupt:
            talk.is_leaving = self._warned
            self._warned = True
            if not talk.is_leaving:
                talk.screen.note("Ctrl-C again leaves")
        finally:
            self._scope = None
        return ""

    async def _interruptible(self, line: str) -> None:
        talk = self._talk
        if is_command(line, has_model=talk.found is not None):
            with anyio.CancelScope() as self._scope:
                await run_command(talk, line)
            if self._scope.cancelled_caught:
                talk.screen.note("interrupted")
            self._scope = None
        elif talk.found is None:
            talk.screen.note(NO_MODEL_HINT)
        else:
            await self._turn(line)

    async def _turn(self, text: str) -> None:
        """Have the model answer, and save the conversation whatever came of it."""
        talk = self._talk
        keys = Keys(talk, self.interrupt)
        view = TurnView(talk, lambda: keys.typed)
        try:
            with talk.keyboard.watching(keys), talk.screen.moving(view.draw):
                async with anyio.create_task_group() as group:
                    group.start_soon(view.animate)
                    await self._answered(text, view, group)
        except ToolcribError as error:
            talk.screen.fail(str(error))
            return
        finally:
            talk.typed = keys.typed
            self._scope = None
        self._keep(text, view)
