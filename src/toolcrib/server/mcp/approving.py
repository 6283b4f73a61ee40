"""Asking the client's user whether a call may run, where the client can be asked (`elicitation`).

The session has one approver for all its calls; which client is at the far end of the call that asks, a context
variable says, which is set for the time of that call.
"""

from __future__ import annotations

import json
from contextvars import ContextVar
from typing import Any, Final, cast

from ...core.context import Peer
from ...core.permission import Answer, NobodyToAsk, Question
from .client import supports

__all__ = ["approve_by_client", "current_peer"]

current_peer: ContextVar[Peer | None] = ContextVar("current_peer", default=None)
"""The client of the call that runs in this task."""

_CHOICES: Final = {
    "yes": "Run it this once",
    "always": "Run it, and every later call of this tool in this session",
    "no": "Do not run it",
    "never": "Refuse it, and every later call of this tool in this session",
}
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "decision": {
            "type": "string",
            "title": "Decision",
            "oneOf": [{"const": verdict, "title": title} for verdict, title in _CHOICES.items()],
        }
    },
    "required": ["decision"],
}
_USER: Final = "the client's user"


async def approve_by_client(question: Question) -> Answer:
    """Have the client show the real tool and its arguments, whole and escaped; everything but a clear yes is a no.

    Raises `NobodyToAsk` when this client cannot ask its user.
    """
    peer = current_peer.get()
    if peer is None or not supports(peer.capabilities, {"elicitation": {}}):
        raise NobodyToAsk
    shown = json.dumps(question.arguments, ensure_ascii=True, sort_keys=True, indent=1)
    message = (
        f"May {question.tool.name} ({question.tool.kind}) run with these arguments?\n{shown}\n"
        f"Asked because of: {question.decision.rule}"
    )
    result = await peer.request("elicitation/create", {"message": message, "requestedSchema": _SCHEMA})
    content = result.get("content")
    decision = cast("dict[str, Any]", content).get("decision") if isinstance(content, dict) else None
    if result.get("action") == "accept" and decision in _CHOICES:
        return Answer(verdict=decision, by=_USER)
    return Answer(verdict="no", by=_USER)
