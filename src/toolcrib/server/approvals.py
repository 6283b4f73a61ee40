"""Approval by the client's user, for clients that support it (`elicitation`).

The session has one approver for all its calls; a context variable, set for the time of a call, holds the client of the
call that asks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Final, cast

from ..core.context import Peer
from ..core.json import read_json
from ..core.permission import Answer, NoApprover, Question, Verdict
from ..mcp.server.exchange import supports

__all__ = ["ClientApprover", "current_peer"]

current_peer: ContextVar[Peer | None] = ContextVar("current_peer", default=None)
"""The client of the call that runs in this task."""

_CHOICES: Final[Mapping[Verdict, str]] = {
    "yes": "Run it this once",
    "always": "Run it, and every later call of this tool in this session",
    "turn": "Run it, and every call until the next request of the user",
    "idle": "Run it, and every call until the session rests",
    "all": "Run it, and every call of this session",
    "no": "Do not run it",
    "comment": "Do not run it, and give the model the reason (in `comment`)",
    "never": "Refuse it, and every later call of this tool in this session",
    "edit": "Run it with the arguments below instead (in `arguments`)",
}
_ONE_CALL: Final[tuple[Verdict, ...]] = ("yes", "no", "comment", "edit")
"""Verdicts permitted where several clients share one conversation: one client's answer must not cover the others."""
_USER: Final = "the client's user"


class ClientApprover:
    """Has the client show the real tool and its arguments, whole and escaped; everything but a clear yes is a no."""

    def __init__(self, *, is_shared: bool = False) -> None:
        """`is_shared`: other clients of the principal are in the same conversation, so an answer is for its call."""
        self._choices = _ONE_CALL if is_shared else tuple(_CHOICES)
        self._schema = _schema(self._choices)

    def reaches(self) -> bool:
        """Whether the client at the far end can ask its user."""
        peer = current_peer.get()
        return peer is not None and supports(peer.capabilities, {"elicitation": {}})

    async def __call__(self, question: Question) -> Answer:
        """Return the user's answer. Raises `NoApprover` when this client cannot ask."""
        peer = current_peer.get()
        if peer is None or not self.reaches():
            raise NoApprover
        form = {"message": _message(question), "requestedSchema": self._schema}
        return _answer(await peer.request("elicitation/create", form), self._choices)


def _schema(choices: Iterable[Verdict]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "decision": {
                "type": "string",
                "title": "Decision",
                "oneOf": [{"const": verdict, "title": _CHOICES[verdict]} for verdict in choices],
            },
            "comment": {"type": "string", "title": "Comment", "description": "Reason that the model reads after a no"},
            "arguments": {"type": "string", "title": "Arguments", "description": "With edit: all arguments, as JSON"},
        },
        "required": ["decision"],
    }


def _message(question: Question) -> str:
    parts = [
        f"May {question.tool.name} ({question.tool.kind}) run with these arguments?",
        question.shown,
        *(["It would change:", question.diff.rstrip("\n")] if question.diff else []),
        f"Asked because of: {question.decision.rule}",
        f"Call {question.call_id}, approval {question.approval}",
    ]
    return "\n".join(parts)


def _answer(result: Mapping[str, Any], choices: Collection[Verdict]) -> Answer:
    """Parse the client's answer; a form that was not accepted, or is unclear, is a refusal."""
    content = result.get("content")
    if result.get("action") != "accept" or not isinstance(content, dict):
        return Answer(verdict="no", by=_USER)
    form = cast("dict[str, Any]", content)
    decision, comment = form.get("decision"), form.get("comment")
    if decision not in choices:
        return Answer(verdict="no", by=_USER)
    reason = comment if isinstance(comment, str) else ""
    if decision != "edit":
        return Answer(verdict=cast("Verdict", decision), by=_USER, comment=reason)
    arguments = _arguments(form.get("arguments"))
    if arguments is None:
        return Answer(verdict="no", by=_USER, comment="the changed arguments were no JSON object")
    return Answer(verdict="edit", by=_USER, arguments=arguments)


def _arguments(text: Any) -> dict[str, Any] | None:
    try:
        value = read_json(text, strict=True) if isinstance(text, str) else None
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
