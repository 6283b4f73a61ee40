"""`toolcrib chat -p`: one prompt, one answer, no questions. Text, one JSON object, or one JSON line an event."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, TextIO

from toolcrib.cli.output import escape, note
from toolcrib.core.json import dumps
from toolcrib.core.result import ToolResult
from toolcrib.errors import CODES

from ..events import (
    AgentEvent,
    CallBegun,
    CallEnded,
    Compacted,
    Concluding,
    Finished,
    OfAgent,
    Outcome,
    Requesting,
    Retrying,
    Stopped,
    TextDelta,
    ThinkingDelta,
    Used,
)
from .call_view import call_line
from .chat_session import ChatSession
from .resume import keep

__all__ = ["EXITS", "Format", "event_json", "run_script", "with_context"]

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
    Requesting: "requesting",
    TextDelta: "text",
    ThinkingDelta: "thinking",
    Retrying: "retrying",
    Compacted: "compacted",
    Concluding: "concluding",
}
"""Events that are printed unchanged, with their JSON type."""


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
    outcome = await agent.run(prompt, history=chat.history, tell=script.take)
    await keep(chat, prompt, outcome)
    script.end(outcome, {"model": chat.choice.model if chat.choice else "", "chat": chat.saved.id})
    return EXITS[outcome.stopped]


@dataclass(kw_only=True)
class _Script:
    """Prints one run."""

    format: Format
    out: TextIO
    calls: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    streamed: str = ""
    """Since the last call."""

    def take(self, event: AgentEvent) -> None:
        """Print an event, where they are printed one by one, and take note of it."""
        if isinstance(event, TextDelta):
            self.streamed += event.text
        elif isinstance(event, CallBegun):
            self.calls[event.id] = {"tool": event.name, "arguments": event.arguments}
            if self.streamed and self.format == "text":
                self._write("\n")
            self.streamed = ""
        elif isinstance(event, CallEnded):
            self.calls.setdefault(event.id, {"tool": event.name}).update(_ended(event))
        if self.format == "text":
            self._tell_text(event)
        elif self.format == "events" and (data := event_json(event)) is not None:
            self._write(f"{dumps(data).decode()}\n")

    def end(self, outcome: Outcome, about: Mapping[str, Any]) -> None:
        """Print what is to be printed at the end."""
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
            note(f"… {call_line(event.name, event.arguments).plain}")
        elif isinstance(event, CallEnded):
            mark = f"✗ {event.result.error.code}" if event.result.error else "✓"
            note(f"{mark} {event.name} ({event.seconds:.1f} s; {event.rule})")
        elif isinstance(event, Retrying):
            note(f"the model's API failed ({event.reason}); again in {event.wait:.0f} s")
        elif isinstance(event, Concluding):
            note(event.reason)

    def _write(self, text: str) -> None:
        self.out.write(text)
        self.out.flush()


def event_json(event: AgentEvent) -> dict[str, Any] | None:
    """Return an event as JSON; None for what a script has no use for."""
    if type(event) in _PLAIN:
        return {"type": _PLAIN[type(event)], **asdict(event)}
    match event:
        case Used():
            return {"type": "usage", **asdict(event.total)}
        case CallBegun():
            return {"type": "call", "id": event.id, "name": event.name, "arguments": event.arguments}
        case CallEnded():
            return {"type": "result", "id": event.id, "name": event.name, **_ended(event), "text": event.result.text}
        case OfAgent():
            inner = event_json(event.event)
            return inner and {"type": "agent", "tool": event.tool, "depth": event.depth, "event": inner}
        case Finished():
            return {"type": "finished", **_finished(event.outcome)}
        case _:
            return None


def _finished(outcome: Outcome) -> dict[str, Any]:
    data = {"text": outcome.text, "stopped": outcome.stopped, "reason": outcome.reason}
    return {**data, "usage": {**asdict(outcome.usage), "cost": round(outcome.usage.cost, 6)}}


def _ended(event: CallEnded) -> dict[str, Any]:
    data = {"ok": not event.result.is_error, **_code(event.result)}
    return {**data, "rule": event.rule, "seconds": round(event.seconds, 3)}


def _code(result: ToolResult) -> dict[str, Any]:
    return {"code": result.error.code} if result.error else {}
