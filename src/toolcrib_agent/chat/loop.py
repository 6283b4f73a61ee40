"""Main loop of a chat: read, answer, save; and the display of one turn. Ctrl-C interrupts the turn; twice leaves.

What is finished is printed for good, in its order; what still changes is in the region at the bottom: the last block of
the answer, the calls that run, and a line that says what happens, for how long, and how to stop it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup
from markdown_it import MarkdownIt
from msgspec import Struct, field
from rich.console import Group, RenderableType
from rich.spinner import Spinner
from rich.text import Text

from toolcrib import Job, Output
from toolcrib.errors import ToolcribError
from toolcrib.plugin import innermost

from ..events import (
    AgentEvent,
    Answered,
    Asked,
    CallBegun,
    CallEnded,
    CallProgress,
    Compacted,
    Concluding,
    Finished,
    Outcome,
    Requesting,
    Retrying,
    Selected,
    SubAgentEvent,
    TextDelta,
    ThinkingDelta,
    UsageReport,
)
from ..limits import Usage
from .call_view import CallRecord, between, call_line, named, result_block
from .chat_session import ChatSession, keep, mode_style, next_mode
from .commands import is_command, run_command
from .commands_set import tell_pending
from .screen import Screen, Tail, plain
from .welcome import NO_MODEL_HINT, tell_problems

_PARSER: Final = MarkdownIt().enable("strikethrough").enable("table")
"""Configured like rich's parser: both must see the same ends of blocks."""

_FRAME_SECONDS: Final = 0.1
_OUTPUT: Final = 120
"""Characters of what a running call says that stand in its line."""
_THOUGHTS: Final = 100
_READ: Final = 256 * 1024
"""Bytes of a file that is read to show what is done to it."""

_logger = logging.getLogger(__name__)


class MarkdownStream:
    """Markdown that arrives in pieces. `rest` is the last block, whose layout may still change."""

    def __init__(self) -> None:
        """Start with empty text."""
        self.rest = ""

    def add(self, piece: str) -> str:
        """Take a piece of text; return the blocks that it finished, as Markdown, mostly none."""
        self.rest += piece
        if "\n" not in piece:
            return ""
        done, self.rest = finished(self.rest)
        return done

    def end(self) -> str:
        """Return the remaining text, finished or not."""
        left, self.rest = self.rest, ""
        return left


def finished(text: str) -> tuple[str, str]:
    """Split `text` into blocks that later text cannot change, and the rest.

    The last block may always go on; a list or a fence is one block, however long it is.
    """
    starts = [token.map[0] for token in _PARSER.parse(text) if token.level == 0 and token.nesting >= 0 and token.map]
    if len(starts) < 2:
        return "", text
    lines = text.splitlines(keepends=True)
    return "".join(lines[: starts[-1]]), "".join(lines[starts[-1] :])


class _Running(Struct, kw_only=True):
    """A call that has not ended."""

    name: str
    arguments: Mapping[str, Any] | str
    last_line: str = ""
    diff: str = ""
    """Change of a file that the call is about to make."""
    spinner: Spinner = field(default_factory=lambda: Spinner("dots", style="cyan"))


class TurnView:
    """Shows the events of one turn. Lives as long as the turn.

    `take` prints what is final and records the rest; `draw` returns the region from these records, for the screen
    to show at the next frame.
    """

    def __init__(self, chat: ChatSession, typed: Callable[[], str]) -> None:
        """`typed` says what was typed while it goes on."""
        self._chat = chat
        self._screen: Screen = chat.screen
        self._typed = typed
        self._begun = time.monotonic()
        self._text = MarkdownStream()
        self._streamed = ""
        """Text of the model since its last call."""
        self._thoughts = ""
        self._stands_below_calls = False
        """The lines above are those of calls: text that follows begins after an empty line."""
        self._running: dict[str, _Running] = {}
        self._used = Usage()
        self._asked_at = 0.0
        """Time of the newest question. One is enough: the asker puts one at a time."""
        self._waited: dict[str, float] = {}
        """Seconds that a person took to answer, by call."""
        self._doing = "thinking"
        self._spinner = Spinner("dots", style="cyan")
        self.outcome: Outcome | None = None
        self._show: Mapping[type[Any], Callable[[Any], None]] = {
            Selected: self._selected,
            Requesting: self._requesting,
            TextDelta: self._text_delta,
            ThinkingDelta: self._thinking,
            Retrying: self._retrying,
            UsageReport: self._use,
            Asked: self._asked,
            Answered: self._answered,
            CallBegun: self._call_begun,
            CallProgress: self._call_progress,
            CallEnded: self._call_ended,
            Compacted: self._compacted,
            Concluding: self._concluding,
            SubAgentEvent: self._of_agent,
            Finished: self._finished,
        }

    def take(self, event: AgentEvent) -> None:
        """Show an event. Approvals are left to the asker, which shows them itself."""
        show = self._show.get(type(event))
        if show is not None:
            show(event)

    async def animate(self) -> None:
        """Draw the region anew until it is cancelled."""
        while True:
            self._screen.redraw()
            await anyio.sleep(_FRAME_SECONDS)

    def draw(self) -> RenderableType:
        """Return the region."""
        parts: list[RenderableType] = []
        if self._text.rest.strip():
            parts.append(Tail(self._screen.markdown(self._text.rest), self._screen.height))
        parts += [self._line_of(running) for running in list(self._running.values())[: self._screen.height]]
        parts += [Text(), self._status()]
        if typed := self._typed():
            parts.append(Text.assemble(("❯ ", "dim"), plain(typed)))
        return Group(*parts)

    def _status(self) -> RenderableType:
        seconds = int(time.monotonic() - self._begun)
        doing = self._doing
        if self._thoughts and not self._text.rest:
            doing = f"thinking: {' '.join(self._thoughts[-_THOUGHTS:].split())}"
        tokens = f" · {self._used.tokens:,} tokens" if self._used.tokens else ""
        mode = self._chat.session.mode
        about = (f"{seconds} s{tokens} · esc interrupts · ", "dim")
        self._spinner.update(text=Text.assemble(plain(f" {doing} ", "cyan"), about, (mode, mode_style(mode))))
        return self._spinner

    def _line_of(self, running: _Running) -> RenderableType:
        tail = f"  {running.last_line[-_OUTPUT:]}" if running.last_line else ""
        running.spinner.update(text=Text.assemble(" ", call_line(running.name, running.arguments), plain(tail, "dim")))
        return running.spinner

    def _requesting(self, event: Requesting) -> None:
        self._doing = "thinking"
        self._thoughts = ""
        self._chat.context, self._chat.window = event.context, event.window

    def _text_delta(self, event: TextDelta) -> None:
        self._doing = "writing"
        self._streamed += event.text
        if done := self._text.add(event.text):
            self._print(done)

    def _thinking(self, event: ThinkingDelta) -> None:
        self._thoughts += event.text

    def _retrying(self, event: Retrying) -> None:
        if event.discards:  # blocks that were finished stand on the screen already, and stay
            self._text.end()
            self._streamed = ""
        self._screen.note(f"the model's API failed ({event.reason}); again in {event.wait:.0f} s", "yellow")

    def _use(self, event: UsageReport) -> None:
        self._used = event.total

    def _call_begun(self, event: CallBegun) -> None:
        self._flush()
        self._streamed = self._thoughts = ""
        self._doing = "calling"
        diff = _written(self._chat, event)
        self._running[event.id] = _Running(name=event.name, arguments=event.arguments, diff=diff)

    def _call_progress(self, event: CallProgress) -> None:
        update, running = event.update, self._running.get(event.id)
        text = update.chunk if isinstance(update, Output) else update.message
        if running is not None and isinstance(text, str) and text.strip():
            running.last_line = text.strip().split("\n")[-1]

    def _call_ended(self, event: CallEnded) -> None:
        running = self._running.pop(event.id, None) or _Running(name=event.name, arguments="")
        waited = self._waited.pop(str(event.result.meta.get("call_id")), 0.0)
        shown = CallRecord(
            name=event.name,
            arguments=running.arguments,
            result=event.result,
            seconds=max(0.0, event.seconds - waited),
            diff="" if event.result.is_error else running.diff,
        )
        self._screen.say(result_block(self._chat.remember(shown)))
        self._stands_below_calls = True

    def _asked(self, event: Asked) -> None:
        self._asked_at = time.monotonic()

    def _answered(self, event: Answered) -> None:
        """Subtract the time that a person took to answer from the tool's time."""
        call = event.question.call_id
        self._waited[call] = self._waited.get(call, 0.0) + time.monotonic() - self._asked_at

    def _selected(self, event: Selected) -> None:
        why = f"the task is {event.intent.get('complexity', 'medium')}: {event.reason}"
        why = f"{why} (not analysed by the model: {event.problem})" if event.problem else why
        self._screen.note(f"selected {', '.join(event.tools)} because {why}")

    def _compacted(self, event: Compacted) -> None:
        self._screen.note(f"older messages are a summary now: {event.before:,} → {event.after:,} tokens")

    def _concluding(self, event: Concluding) -> None:
        self._screen.note(f"{event.reason}: the model is asked for its answer", "yellow")

    def _of_agent(self, event: SubAgentEvent) -> None:
        inner = event.event
        if isinstance(inner, CallEnded):
            mark = ("✗ ", "red") if inner.result.is_error else ("✓ ", "green")
            line = Text.assemble(("↳ " * event.depth, "dim"), mark, call_line(inner.name, {}, style=""))
            self._screen.say(line, indent=2)

    def _finished(self, event: Finished) -> None:
        self._flush()
        outcome = event.outcome
        self.outcome = outcome
        if outcome.stopped == "cancelled":
            self._screen.note("interrupted: the partial answer is kept", "yellow")
        elif outcome.stopped == "failed":
            self._screen.fail(outcome.reason, "say it again to try once more; /model goes on with another one")
        else:
            if outcome.text.strip() != self._streamed.strip():
                self._print(outcome.text)
            if not outcome.is_complete:
                self._screen.fail(f"{outcome.stopped}: {outcome.reason}")

    def _flush(self) -> None:
        if left := self._text.end().strip():
            self._print(left)

    def _print(self, text: str) -> None:
        if self._stands_below_calls:
            self._screen.gap()
        self._stands_below_calls = False
        self._screen.say(self._screen.markdown(text))
        self._screen.gap()


def _written(chat: ChatSession, event: CallBegun) -> str:
    """Return the diff of a call that writes a whole file, against the file as it is now."""
    name, arguments = named(event.name, event.arguments)
    tool, workspace = chat.session.visible.find(name), chat.session.state.files.workspace
    if tool is None or tool.kind == "read" or workspace is None or isinstance(arguments, str):
        return ""
    path, content = arguments.get("path"), arguments.get("content")
    if (
        not isinstance(path, str)
        or not isinstance(content, str)
        or chat.settings.policy.modes[chat.session.mode].diverts
    ):
        return ""
    place = workspace.root / path
    try:
        if place.exists() and place.stat().st_size > _READ:
            return ""
        return between(path, place.read_text() if place.exists() else None, content)
    except (OSError, ValueError):
        return ""


class Keys:
    """Keys while the model works: text goes to the next prompt, Enter queues it, Escape interrupts."""

    def __init__(self, chat: ChatSession, interrupt: Callable[[], None]) -> None:
        """`interrupt` ends the turn."""
        self._chat = chat
        self._interrupt = interrupt
        self.typed = chat.typed
        """Text of the next prompt."""

    def __call__(self, key: str) -> None:
        """Take one key, or what was pasted."""
        if key in ("c-c", "escape"):
            self._interrupt()
        elif key == "s-tab":
            self._chat.set_mode(next_mode(self._chat))
        elif key == "backspace":
            self.typed = self.typed[:-1]
        elif key == "enter":
            if self.typed.strip():
                self._chat.queue.append(self.typed)
            self.typed = ""
        elif key.isprintable() or "\n" in key:
            self.typed += key
        self._chat.screen.redraw()


class Loop:
    """Runs one conversation at a terminal.

    An interrupt has three meanings. While the model works, the first ends the run in an orderly way, so that the
    partial answer is kept; the second cancels the turn. While a command runs, it cancels the command. At an empty
    prompt, the second in a row leaves.
    """

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
        """Return the next input; empty after an interrupt, and when the user leaves."""
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
            raise KeyboardInterrupt  # the scope was cancelled: a signal came, where no key could
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
        except Exception as error:  # shown and logged; the conversation must survive it
            _logger.exception("a chat went wrong")
            self._chat.screen.fail(f"internal error ({innermost(error)!r}); the conversation goes on")

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
            chat.screen.fail(str(innermost(errors)))
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
            await agent.run(text, history=chat.history, on_event=view.take)
        group.cancel_scope.cancel()

    def _tell_news(self) -> None:
        """Print before a prompt what happened meanwhile: problems of sources, jobs that ended."""
        chat = self._chat
        problems = chat.crib.problems
        tell_problems(chat.screen, problems[self._reported :])
        self._reported = len(problems)
        ended, self._jobs[:] = [job for job in self._jobs if job.ended is not None], []
        for job in ended:
            chat.screen.note(f"job {job.tool} is {job.status}: `toolcrib jobs result {job.id}` has what it gave")
