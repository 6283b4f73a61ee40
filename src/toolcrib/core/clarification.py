"""A question that a running tool has for the user. Not a permission: nothing is allowed by its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

__all__ = ["DISMISSED", "Clarification", "Clarifier"]

DISMISSED: Final = "The user closed the question without an answer. Go on with what you know, or say what is missing."
"""What a tool is told when there is somebody to ask who does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clarification:
    """What the user is asked."""

    call_id: str
    question: str
    options: tuple[str, ...] = ()
    """Suggested answers, best first."""
    allow_custom: bool = True
    """Whether another answer than the options is taken."""

    @property
    def is_open(self) -> bool:
        """Whether any text is an answer."""
        return self.allow_custom or not self.options

    def takes(self, answer: object) -> bool:
        """Whether `answer` is one."""
        return isinstance(answer, str) and bool(answer.strip()) and (self.is_open or answer in self.options)

    def schema(self) -> dict[str, Any]:
        """Return the form that an MCP client shows: one field, `answer`."""
        answer: dict[str, Any] = {"type": "string", "title": "Answer", "minLength": 1}
        if self.options and not self.is_open:
            answer["enum"] = list(self.options)
        elif self.options:
            answer["description"] = f"For example: {'; '.join(self.options)}"
        return {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}

    def answer_of(self, result: Mapping[str, Any]) -> str | None:
        """Return what an MCP client's user answered; None when the question was declined or dismissed."""
        content = result.get("content")
        if result.get("action") != "accept" or not isinstance(content, Mapping):
            return None
        answer = cast("Mapping[str, Any]", content).get("answer")
        return str(answer) if self.takes(answer) else None


Clarifier = Callable[[Clarification], Awaitable[str | None]]
"""Asks the user, and returns the answer; None when the question was dismissed."""
