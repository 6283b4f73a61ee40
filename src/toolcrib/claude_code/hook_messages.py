"""Messages between a hook process of Claude Code and the gate, and the output that Claude Code reads.

Standard library only: a hook process is started at every use of a tool.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, Self, cast

EVENTS: Final = ("PreToolUse", "PermissionRequest")
"""Events that are answered."""

Unanswered = Literal["deny", "ask"]
"""Meaning of a missing answer: a refusal, or Claude Code's own dialog."""


class HookRequest(NamedTuple):
    """Request of a hook process to the gate."""

    event: Mapping[str, Any]
    """Claude Code's event, from standard input."""
    project: str
    """The folder of the project."""
    mode: str = ""
    unanswered: Unanswered = "deny"

    def encode(self) -> bytes:
        """Return one line of JSON."""
        return json.dumps(self._asdict(), separators=(",", ":")).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Self:
        """Read what `encode` wrote; raises `ValueError` or `TypeError` for anything else."""
        try:
            value = json.loads(line)
        except RecursionError:
            raise ValueError("the request of a hook is nested too deeply") from None
        if not isinstance(value, dict):
            raise ValueError("no request of a hook")
        return cls(**cast("dict[str, Any]", value))


def hook_answer(event: str, decision: str, reason: str, changed: Mapping[str, Any] | None = None) -> str:
    """Return the output of a hook as Claude Code 2.1 reads it; `decision` is allow, deny or (`PreToolUse`) ask.

    `changed` is the input of the tool that runs instead.
    """
    updated = {"updatedInput": changed} if changed is not None else {}
    if event == "PermissionRequest":
        message = {"message": reason} if decision == "deny" else {}
        output: dict[str, Any] = {"decision": {"behavior": decision, **message, **updated}}
    else:
        output = {"permissionDecision": decision, "permissionDecisionReason": reason, **updated}
    return json.dumps({"hookSpecificOutput": {"hookEventName": event, **output}}, separators=(",", ":"))
