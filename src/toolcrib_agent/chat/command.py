"""`toolcrib chat`: an agent in the terminal; with `-p` one prompt and one answer, as text, JSON or JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TextIO

import anyio
import typer
from msgspec import Struct, field, to_builtins

from toolcrib import Settings
from toolcrib.agents import Redactor
from toolcrib.cli.options import ConfigFiles, settings_of
from toolcrib.cli.output import note
from toolcrib.errors import CODES, UsageError
from toolcrib.plugin import dumps, escape

from ..events import (
    AgentEvent,
    CallBegun,
    CallEnded,
    Compacted,
    Concluding,
    Finished,
    Outcome,
    Requesting,
    Retrying,
    Selected,
    Stopped,
    SubAgentEvent,
    TextDelta,
    ThinkingDelta,
    UsageReport,
)
from .call_view import call_line
from .chat_session import Chats, ChatSession, keep
from .keyboard import typing_ahead
from .screen import console_for
from .setup import ChatOptions, converse, for_folder, has_keys, open_chat, with_signals
from .welcome import without_model

Format = Literal["text", "json", "events"]

EXITS: Final[Mapping[Stopped, int]] = {
    "answered": 0,
    "limit": CODES["budget_exceeded"].exit,
    "fruitless": CODES["tool_error"].exit,
    "blank": CODES["tool_error"].exit,
    "cut": CODES["too_large"].exit,
    "filtered": CODES["denied"].exit,
    "failed": CODES["unavailable"].exit,
    "cancelled": 130,
}
"""The exit status, by what ended the run."""

_PLAIN: Final[Mapping[type[Any], str]] = {
    Selected: "selected",
    Requesting: "requesting",
    TextDelta: "text",
    ThinkingDelta: "thinking",
    Retrying: "retrying",
    Compacted: "compacted",
    Concluding: "concluding",
}
"""Events that are printed unchanged, with their JSON type."""

_PIPED: Final = 4 << 20
"""Characters of standard input that go along with a prompt."""
_INTERRUPTED: Final = 130


def with_context(prompt: str, piped: str) -> str:
    """Return the prompt with the text of standard input appended in a fence."""
    if not piped.strip():
        return prompt
    inside = piped.replace("</stdin", "&lt;/stdin")
    return f"{prompt}\n\n<stdin>\n{inside.rstrip()}\n</stdin>"


async def run_script(chat: ChatSession, prompt: str, format: Format, target: TextIO | None = None) -> int:
    """Run one turn and print the answer on `target`; return the exit status. Raises `UsageError` without a model.

    The session has no approver: calls that its mode marks `ask` are refused.
    """
    agent = await chat.ready()
    script = _Script(format=format, out=target or sys.stdout)
    chat.interrupt = agent.cancel
    outcome = await agent.run(prompt, history=chat.history, on_event=script.take)
    await keep(chat, prompt, outcome)
    script.end(outcome, {"model": chat.choice.model if chat.choice else "", "chat": chat.saved.id})
    return EXITS[outcome.stopped]


class _Script(Struct, kw_only=True):
    """Prints one run."""

    format: Format
    out: TextIO
    calls: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    streamed: str = ""
    """Since the last call."""
    is_read: bool = True
    """Whether the output still has a reader."""

    def take(self, event: AgentEvent) -> None:
        """Print an event, where they are printed one by one, and take note of it."""
        try:
            if self.format == "text":
                self._tell_text(event)
            elif self.format == "events" and (data := _event_json(event)) is not None:
                self._write(f"{dumps(data).decode()}\n")
        except BrokenPipeError:  # a reader that has gone ends no work
            self.is_read = False
        if isinstance(event, TextDelta):
            self.streamed += event.text
        elif isinstance(event, CallBegun):
            self.calls[event.id] = {"tool": event.name, "arguments": event.arguments}
            self.streamed = ""
        elif isinstance(event, CallEnded):
            self.calls.setdefault(event.id, {"tool": event.name}).update(_ended(event))

    def end(self, outcome: Outcome, about: Mapping[str, Any]) -> None:
        """Print what is to be printed at the end; raises `BrokenPipeError` where the output has no reader."""
        if not self.is_read:
            raise BrokenPipeError
        if self.format == "json":
            self._write(f"{dumps({**_finished(outcome), **about, 'calls': list(self.calls.values())}).decode()}\n")
        elif self.format == "text":
            gap = "\n" if self.streamed else ""
            rest = "" if self.streamed.strip() == outcome.text.strip() else f"{gap}{outcome.text}"
            self._write(f"{escape(rest, lines=True)}\n")
            if outcome.reason:
                note(f"{outcome.stopped}: {outcome.reason}")

    def _tell_text(self, event: AgentEvent) -> None:
        """The answer as it comes; calls beside it, on standard error."""
        if isinstance(event, TextDelta):
            self._write(escape(event.text, lines=True))
        elif isinstance(event, CallBegun):
            if self.streamed:
                self._write("\n")
            note(f"… {call_line(event.name, event.arguments).plain}")
        elif isinstance(event, CallEnded):
            mark = f"✗ {event.result.error.code}" if event.result.error else "✓"
            note(f"{mark} {event.name} ({event.seconds:.1f} s; {event.rule})")
        elif isinstance(event, Retrying):
            note(f"the model's API failed ({event.reason}); again in {event.wait:.0f} s")
        elif isinstance(event, Concluding):
            note(event.reason)

    def _write(self, text: str) -> None:
        if self.is_read:
            self.out.write(text)
            self.out.flush()


def _event_json(event: AgentEvent) -> dict[str, Any] | None:
    """Return an event as JSON; None for what a script has no use for."""
    if type(event) in _PLAIN:
        return {"type": _PLAIN[type(event)], **to_builtins(event)}
    match event:
        case UsageReport():
            return {"type": "usage", **to_builtins(event.total)}
        case CallBegun():
            return {"type": "call", "id": event.id, "name": event.name, "arguments": event.arguments}
        case CallEnded():
            return {"type": "result", "id": event.id, "name": event.name, **_ended(event), "text": event.result.text}
        case SubAgentEvent():
            inner = _event_json(event.event)
            return inner and {"type": "agent", "tool": event.tool, "depth": event.depth, "event": inner}
        case Finished():
            return {"type": "finished", **_finished(event.outcome)}
        case _:
            return None


def _finished(outcome: Outcome) -> dict[str, Any]:
    data = {"text": outcome.text, "stopped": outcome.stopped, "reason": outcome.reason}
    return {**data, "usage": {**to_builtins(outcome.usage), "cost": round(outcome.usage.cost, 6)}}


def _ended(event: CallEnded) -> dict[str, Any]:
    data = {"ok": not event.result.is_error, **({"code": event.result.error.code} if event.result.error else {})}
    return {**data, "rule": event.rule, "seconds": round(event.seconds, 3)}


def chat(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="WORDS …", help="What to say first; after --resume, the ID first.")
    ] = None,
    prompt: Annotated[
        str, typer.Option("--prompt", "-p", metavar="TEXT", help="Answer this prompt and exit, without questions.")
    ] = "",
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="PROVIDER:NAME", help="Or local:NAME@URL; else one is looked for.")
    ] = "",
    mode: Annotated[str, typer.Option("--mode", help="cautious, autonomous, plan, review … or your own.")] = "",
    profile: Annotated[str, typer.Option("--profile", help="How the tools are shown to the model.")] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a conversation: ID, or one of a list.")] = False,
    goes_on: Annotated[bool, typer.Option("--continue", help="Go on with the newest one of this folder.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With -p: print one JSON object.")] = False,
    events: Annotated[bool, typer.Option("--events", help="With -p: print a JSON line for every event.")] = False,
    config: ConfigFiles = None,
) -> None:
    """Talk to a model that works with all your tools on the current folder. /help lists what you can type there.

    With -p it ends with 0 for an answer, 6 at a limit, 7 when the model cannot be reached; standard input goes along.
    """
    if (as_json or events) and not prompt:
        raise UsageError("--json and --events are for -p TEXT")
    settings = for_folder(settings_of(config), Path.cwd(), asks=not prompt)
    arguments = list(words or ())
    if resume and not arguments:
        raise UsageError(f"which? toolcrib chat --resume ID{_newest(settings)}")
    id = arguments.pop(0) if resume else ""
    wanted = ChatOptions(model=model, mode=mode, profile=profile, goes_on=goes_on, resume=id)
    if not prompt:
        with typing_ahead() if has_keys(settings) else nullcontext():
            anyio.run(_chat, settings, wanted, " ".join(arguments))
        return
    if arguments:
        raise UsageError(f"-p has the prompt: {arguments[0]!r} has no place beside it")
    format: Format = "events" if events else "json" if as_json else "text"
    piped = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read(_PIPED)
    status = anyio.run(_script, settings, wanted, with_context(prompt, piped), format)
    if status:
        raise typer.Exit(status)


async def _chat(settings: Settings, wanted: ChatOptions, first: str) -> None:
    async with open_chat(settings, wanted, console_for()) as chat:
        await converse(chat, first)


async def _script(settings: Settings, wanted: ChatOptions, prompt: str, format: Format) -> int:
    """Answer one prompt; return the exit status."""
    status = [_INTERRUPTED]
    async with open_chat(settings, wanted, console_for(sys.stderr), asks=False) as chat:
        if chat.choice is None:
            raise UsageError(without_model())
        await chat.crib.tools.wait_ready(settings.sources.ready_timeout)

        async def main() -> None:
            status[0] = await run_script(chat, prompt, format)

        await with_signals(lambda: chat.interrupt(), main)
    return status[0]


def _newest(settings: Settings) -> str:
    """List the saved conversations, for `--resume` without an id."""
    newest = Chats(settings, Redactor(())).all()[:10]
    lines = (f"\n  {chat.id}  {chat.title}  ({chat.folder})" for chat in newest)
    return f"; the newest are{''.join(lines)}" if newest else "; none was saved yet"
