"""Permission as values: what was decided, what is asked, what was answered, and the right that comes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .tool import Tool

__all__ = ["Answer", "Approver", "Decision", "Effect", "Grant", "NobodyToAsk", "Question"]

Effect = Literal["allow", "ask", "deny"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the rules and the mode say of one call with exactly these arguments."""

    effect: Effect
    rule: str
    """Who decided, in words a person can look up: `deny git__push (config)`, `mode cautious: a write asks`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What an approver is shown: the real tool and the validated arguments that will run, nothing else."""

    call_id: str
    tool: Tool
    arguments: Mapping[str, Any]
    decision: Decision
    principal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the approver said. `always` and `never` also hold for later calls of the same tool in this session."""

    verdict: Literal["yes", "no", "always", "never"]
    by: str = ""
    comment: str = ""
    """Read by the model when the answer is no."""


class NobodyToAsk(Exception):
    """Raised by an approver that can reach nobody: the refusal is the same as where there is no approver at all."""


Approver = Callable[[Question], Awaitable[Answer]]
"""Asks whoever may decide. Returning late, raising, or being cancelled all mean no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The right to run one tool once, with the arguments it was minted for. Only `policy.grant` mints and checks it."""

    call_id: str
    tool: bytes
    """Digest of the tool's definition."""
    arguments: bytes
    """Hash of the canonical arguments."""
    rule: str
