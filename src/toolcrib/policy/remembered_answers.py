"""Answers that reach beyond their call: those for one tool, and those for every call (`turn`, `idle`, `all`).

They live in `SessionApprovals`: as long as the session, or as its stored conversation. A taint drops the allows among
them (`Taint.mark_tainted_by`); a `never` stays.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from ..core.permission import Answer
from ..core.session import SessionState
from ..core.tool import Tool
from .destructive_commands import irrecoverable_effect

_BLANKET_VERDICTS: Final = ("all", "turn", "idle")


def approved_as(tool: Tool) -> str:
    """Return the key of an `always`: it covers this definition, not another one under the same name."""
    return f"{tool.name} {tool.digest.hex()}"


def remember(session: SessionState, tool: Tool, arguments: Mapping[str, Any], answer: Answer) -> bool:
    """Keep the part of `answer` that reaches beyond its call; return whether it has one.

    For a tool that always asks, and for an effect that cannot be undone, a blanket answer approves this call only.
    """
    verdict = answer.verdict
    if verdict == "never":
        session.approvals.remembered[tool.name] = "deny"
        return True
    if (
        verdict not in (*_BLANKET_VERDICTS, "always")
        or tool.approval == "always"
        or irrecoverable_effect(tool, arguments)
    ):
        return False
    if verdict == "always":
        session.approvals.remembered[approved_as(tool)] = "allow"
    else:
        session.approvals.blanket[verdict] = time.monotonic()
    return True


def blanket_answer(session: SessionState) -> str:
    """Return the wide answer that lets every call of this session run now, or nothing.

    `idle` is in the mapping only while it holds: `CallRunner.run` touches it before and after each call.
    """
    return next((verdict for verdict in _BLANKET_VERDICTS if verdict in session.approvals.blanket), "")


def touch_idle_answer(session: SessionState, idle: float) -> None:
    """Take note of a call that begins or ends; an answer `idle` ends when there was none for `idle` seconds."""
    since = session.approvals.blanket.get("idle")
    if since is None:
        return
    now = time.monotonic()
    if now - since > idle:
        del session.approvals.blanket["idle"]
    else:
        session.approvals.blanket["idle"] = now


def end_turn(session: SessionState) -> None:
    """Begin the next interaction: answers with `turn` expire."""
    session.approvals.blanket.pop("turn", None)


def forget_answers(session: SessionState) -> None:
    """Forget every answer that was remembered."""
    session.approvals.remembered.clear()
    session.approvals.blanket.clear()
