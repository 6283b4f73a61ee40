"""Elicitation: a question that a running tool asks the user. Its answer grants no permission.

    tool ──► Context.clarify, Context.fill ──► the session's elicitor (a program), question by question
                                          └──► the client's user (MCP elicitation), as one form

Both wait as long as the call may run. Answers are checked here, by the type and the options of each question.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from .json import as_list, as_mapping

DISMISSED: Final = (
    "The user closed the question without an answer. Continue with what you know, or state what is missing."
)
"""The answer that a tool gets when the user closes the question."""
_YES_NO: Final = ("yes", "no")
_TYPES: Final = {"text": "string", "number": "number", "yes_no": "boolean", "choices": "array"}
_AGAIN: Final = {"number": "A number is needed, such as 12.5.", "choices": "Only the options, with commas between."}
"""Kinds of answers that are asked for again when they are invalid."""
_TRIES: Final = 3
"""Attempts at a question for a number or choices before it counts as dismissed."""


class Clarification(Struct, frozen=True, kw_only=True):
    """One question to the user."""

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
        """Return the answer of an MCP client's user; None when the question was declined or dismissed."""
        answer = (_accepted(result) or {}).get("answer")
        return str(answer) if self.takes(answer) else None


def _accepted(result: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the content of the answer of an MCP client's user; None when the question was declined or dismissed."""
    content = result.get("content")
    return (
        cast("Mapping[str, Any]", content)
        if result.get("action") == "accept" and isinstance(content, Mapping)
        else None
    )


Elicitor = Callable[[Clarification], Awaitable[str | None]]
"""Asks the user, and returns the answer; None when the question was dismissed."""


class Blank(Struct, frozen=True, kw_only=True):
    """One thing to fill in."""

    key: str
    """Key of the answer."""
    question: str
    kind: Literal["text", "number", "yes_no", "choices"] = "text"
    options: tuple[str, ...] = ()
    """Of a text: one of them is the answer. Of choices: one or several."""
    required: bool = True
    default: str = ""
    """Suggested answer; the answer of a question that need not be answered, and was not."""

    @property
    def choices(self) -> tuple[str, ...]:
        """The options to choose from; empty for a free-text answer."""
        return _YES_NO if self.kind == "yes_no" else self.options

    def schema(self) -> dict[str, Any]:
        """Return its part of the form that an MCP client shows: plain types only, as the specification wants."""
        schema: dict[str, Any] = {"type": _TYPES[self.kind], "title": self.question}
        suggested = self.value(self.default) if self.default else None
        if suggested is not None:
            schema["default"] = suggested
        if self.kind == "choices":
            return {**schema, "minItems": 1, "items": {"type": "string", "enum": list(self.options)}}
        return {**schema, "enum": list(self.options)} if self.options else schema

    def value(self, answer: object) -> str | float | bool | list[str] | None:
        """Return the value of an answer; None for an invalid one. Choices in a text have commas between them."""
        if self.kind == "choices":
            return self._chosen(answer)
        if self.kind == "yes_no":
            return answer if isinstance(answer, bool) else {"yes": True, "no": False}.get(str(answer))
        if self.kind == "number":
            return _number(answer)
        is_answer = isinstance(answer, str) and answer.strip() and (not self.options or answer in self.options)
        return str(answer) if is_answer else None

    def _chosen(self, answer: object) -> list[str] | None:
        if isinstance(answer, str):
            items = [answer.strip()] if answer.strip() in self.options else [item.strip() for item in answer.split(",")]
        else:
            items = [str(item) for item in cast("list[Any]", answer)] if isinstance(answer, list) else []
        chosen = list(dict.fromkeys(items))
        return chosen if chosen and all(item in self.options for item in chosen) else None


class Form(Struct, frozen=True, kw_only=True):
    """Several questions that belong together."""

    call_id: str
    message: str
    """Introduction of the form."""
    blanks: tuple[Blank, ...]

    @classmethod
    def of_request(cls, call_id: str, params: Mapping[str, Any]) -> Form:
        """Return the form that an MCP server asks a client to show."""
        schema = as_mapping(params.get("requestedSchema"))
        required = as_list(schema.get("required"))
        fields = as_mapping(schema.get("properties")).items()
        blanks = tuple(_blank(name, as_mapping(field), name in required) for name, field in fields)
        return cls(call_id=call_id, message=str(params.get("message", "")), blanks=blanks)

    def schema(self) -> dict[str, Any]:
        """Return the form that an MCP client shows."""
        required = [blank.key for blank in self.blanks if blank.required]
        return {
            "type": "object",
            "properties": {blank.key: blank.schema() for blank in self.blanks},
            "required": required,
        }

    def answers_of(self, result: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the answers of an MCP client's user, by key; None when the form was dismissed or is incomplete."""
        given = _accepted(result)
        if given is None:
            return None
        answers = {blank.key: blank.value(given.get(blank.key)) for blank in self.blanks}
        if any(blank.required and answers[blank.key] is None for blank in self.blanks):
            return None
        return {key: value for key, value in (answers | self._left(answers)).items() if value is not None}

    def _left(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        """Return the defaults of what was not answered."""
        left = (blank for blank in self.blanks if blank.default and answers.get(blank.key) is None)
        return {blank.key: blank.value(blank.default) for blank in left}

    async def put_to(self, elicitor: Elicitor) -> dict[str, Any] | None:
        """Ask one question after the other; None when one that needs an answer was dismissed."""
        answers: dict[str, Any] = {}
        for number, blank in enumerate(self.blanks, 1):
            value = await self._put(elicitor, blank, number)
            if value is not None:
                answers[blank.key] = value
            elif blank.required:
                return None
        return {key: value for key, value in (answers | self._left(answers)).items() if value is not None}

    async def _put(self, elicitor: Elicitor, blank: Blank, number: int) -> str | float | bool | list[str] | None:
        place = f" ({number} of {len(self.blanks)})" if len(self.blanks) > 1 else ""
        about = f"{self.message}\n\n" if number == 1 and self.message else ""
        optional = "" if blank.required else " (need not be answered)"
        several = " (one or several, with commas between)" if blank.kind == "choices" else ""
        default = f" (default: {blank.default})" if blank.default else ""
        question = f"{about}{blank.question}{place}{optional}{several}{default}"
        is_open = blank.kind == "choices" or not blank.choices
        asked = Clarification(call_id=self.call_id, question=question, options=blank.choices, allow_custom=is_open)
        for _ in range(_TRIES):
            answer = await elicitor(asked)
            value = blank.value(answer)
            if answer is None or value is not None or blank.kind not in _AGAIN:
                return value
            asked = replace(asked, question=f"{blank.question}{place} {_AGAIN[blank.kind]}")
        return None


def _blank(key: str, field: Mapping[str, Any], required: bool) -> Blank:
    """Return the question for one property of a form's schema."""
    kinds = {"boolean": "yes_no", "number": "number", "integer": "number", "array": "choices"}
    listed = as_mapping(field["items"]) if "items" in field else field
    named = as_list(listed.get("oneOf")) or as_list(listed.get("anyOf"))
    options = as_list(listed.get("enum")) or [as_mapping(one).get("const") for one in named]
    default = field.get("default", "")
    return Blank(
        key=key,
        question=str(field.get("description") or field.get("title") or key),
        kind=cast("Any", kinds.get(str(field.get("type")), "text")),
        options=tuple(map(str, options)),
        required=required,
        default={True: "yes", False: "no"}[default] if isinstance(default, bool) else str(default),
    )


def _number(answer: object) -> float | None:
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        return None
    try:
        value = float(answer)
    except (ValueError, OverflowError):
        return None
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() else value
