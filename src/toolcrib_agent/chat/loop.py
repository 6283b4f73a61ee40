"""Main loop of a chat: read, answer, save. Ctrl-C interrupts the current turn; twice leaves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, cast

import anyio
from anyio.abc import TaskGroup

from toolcrib.errors import ToolcribError
from toolcrib.jobs.job import Job

from .chat_session import ChatSession
from .commands import is_command, run_command
from .commands_set import tell_pending
from .resume import keep
from .screen import plain
from .turn_view import Keys, TurnView
from .welcome import NO_MODEL_HINT, tell_problems

__all__ = ["Loop"]

_LOG: Final = logging.getLogger(__name__)


class Loop:
    """Runs one conversation at a terminal."""

    def __init__(self, chat: ChatSession) -> None:
        """Read no input before `run`."""
        self._chat = chat
        self._scope: anyio.CancelScope | None = None
        """Scope that an interrupt cancels: a turn, a command, or the wait for a line."""
        self._cancel: Callable[[], None] | None = None
        """Ends a turn in an orderly way; pressed again, the scope is cancelled."""
        self._warned = False
        """Ctrl-C was pressed with nothing to interrupt: the next one leaves."""
        self._reported = 0
        """Number of the crib's problems that were shown."""
        self._jobs: list[Job] = []

    def interrupt(self) -> None:
        """End what goes on now; what a signal and a key do."""
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()
        elif self._scope is not None:
            self._scope.cancel()

    async def run(self, first: str = "") -> None:
        """Run until the user leaves; `first` is sent before any input is read."""
        chat = self._chat
        chat.queue += [first] if first else []
        stop = chat.crib.calls.on_job(self._jobs.append)
        try:
            while not chat.is_leaving:
                self._tell_news()
                line = await self._next()
                if line.strip():
                    await self._guarded(line.strip())
        finally:
            stop()

    async def _next(self) -> str:
        """Return the next input; None if there is none yet."""
        chat = self._chat
        if chat.queue:
            line = chat.queue.pop(0)
            chat.screen.say(plain(f"❯ {line}", "bold"))
            return line
        default, chat.typed = chat.typed, ""
        try:
            with anyio.CancelScope() as self._scope:
                line = await chat.keyboard.command(default)
                self._warned = False
                return line
            raise KeyboardInterrupt
        except EOFError:
            chat.is_leaving = True
        except KeyboardInterrupt:
            chat.is_leaving = self._warned
            self._warned = True
            if not chat.is_leaving:
                chat.screen.note("Ctrl-C again leaves")
        finally:
            self._scope = None
        return ""

    async def _guarded(self, line: str) -> None:
        """Do what a line says; a bug of ours, or of a model's client, must not take the conversation with it."""
        try:
            await self._interruptible(line)
        except Exception as error:  # noqa: BLE001 - shown and logged; the conversation must survive it
            _LOG.exception("a chat went wrong")
            self._chat.screen.fail(f"internal error ({_innermost(error)!r}); the conversation goes on")

    async def _interruptible(self, line: str) -> None:
        chat = self._chat
        if is_command(line, has_model=chat.choice is not None):
            with anyio.CancelScope() as self._scope:
                await run_command(chat, line)
            if self._scope.cancelled_caught:
                chat.screen.note("interrupted")
            self._scope = None
        elif chat.choice is None:
            chat.screen.note(NO_MODEL_HINT)
        else:
            await self._turn(line)

    async def _turn(self, text: str) -> None:
        """Run one turn of the model, and save the conversation also if it fails."""
        chat = self._chat
        keys = Keys(chat, self.interrupt)
        view = TurnView(chat, lambda: keys.typed)
        try:
            with chat.keyboard.watching(keys), chat.screen.moving(view.draw):
                async with anyio.create_task_group() as group:
                    group.start_soon(view.animate)
                    await self._answered(text, view, group)
        except* ToolcribError as errors:
            chat.screen.fail(str(_innermost(errors)))
        finally:
            chat.typed = keys.typed
            self._scope = self._cancel = None
        if view.outcome is not None:
            await keep(chat, text, view.outcome)
        if chat.settings.policy.modes[chat.session.mode].diverts:
            await tell_pending(chat)

    async def _answered(self, text: str, view: TurnView, group: TaskGroup) -> None:
        """Have what answers run until it ends, or is interrupted: then it still says how it ended."""
        chat = self._chat
        with anyio.CancelScope() as self._scope:
            agent = await chat.ready()
            self._cancel = agent.cancel
            await agent.run(text, history=chat.history, tell=view.take)
        group.cancel_scope.cancel()

    def _tell_news(self) -> None:
        """Tell before a prompt what came up meanwhile: problems of sources, jobs that ended."""
        chat = self._chat
        problems = chat.crib.problems
        tell_problems(chat.screen, problems[self._reported :])
        self._reported = len(problems)
        ended, self._jobs[:] = [job for job in self._jobs if job.ended is not None], []
        for job in ended:
            chat.screen.note(f"job {job.tool} is {job.status}: `toolcrib jobs result {job.id}` has what it gave")


def _innermost(error: BaseException) -> BaseException:
    """Task groups wrap what is raised inside them; a group of one is that one."""
    inside = cast("tuple[BaseException, ...]", getattr(error, "exceptions", ()))
    return _innermost(inside[0]) if len(inside) == 1 else error
