"""Questions to the user: one, several, or a form. Not for permission: tools ask for approval themselves.

The session's elicitor answers, else the user of the client if it supports questions (`Context.clarify`).
"""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

import anyio
from pydantic import Field

from toolcrib.plugin import DISMISSED, Blank, Context, ToolFailure, tool

__all__ = ["FormQuestion", "ask_user", "hitl", "request_clarification"]

_SHOWN: Final = 5
"""Suggested answers that are shown (seed 002)."""
_LONGEST: Final = 600
"""Seconds that a user may take (seed 002)."""
_FORM_SECONDS: Final = 120
"""Default seconds for a form (seed 004)."""
_QUESTIONS: Final = 20
_OPTIONS: Final = 50
_MARGIN: Final = 2.0
"""Seconds of the call's own time reserved for the timeout answer."""

_question_tool = partial(
    tool,
    category="human",
    kind="read",
    open_world=False,
    idempotent=False,
    approval="never",
    needs=["user"],
    traits=["asks_user"],
    timeout=_LONGEST,
)

_Text = Annotated[str, Field(min_length=1, max_length=4_000)]
_Option = Annotated[str, Field(min_length=1, max_length=200)]


class FormQuestion(TypedDict):
    """One question of a form."""

    question: Annotated[str, Field(min_length=1, max_length=1_000)]
    name: NotRequired[
        Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,63}$", description="What its answer is called.")]
    ]
    kind: NotRequired[
        Annotated[Literal["text", "number", "yes_no", "choices"], Field(description="What is answered; text.")]
    ]
    options: NotRequired[Annotated[list[_Option], Field(max_length=_OPTIONS, description="Answers to choose from.")]]
    required: NotRequired[Annotated[bool, Field(description="Whether the form needs it; it does.")]]
    default: NotRequired[Annotated[str, Field(max_length=1_000, description="Suggested answer.")]]


@_question_tool(
    op="x.user.ask",
    core=True,
    tags=["question", "clarify", "choose", "human"],
    examples=[
        {"question": "Which database?", "options": ["SQLite", "Postgres"]},
        {"question": "Merge or rebase?", "options": ["merge", "rebase"], "allow_custom": False},
    ],
    policy={
        "do": ["Ask once, with everything that the user needs for the answer."],
        "dont": ["Do not ask for permission, and not what a tool can find out."],
        "edge_cases": ["Of more than five options the first five are shown.", "A dismissed question is not an error."],
    },
)
async def ask_user(
    question: _Text, ctx: Context, options: list[_Option] | None = None, allow_custom: bool = True
) -> str:
    """Ask the user when the task cannot go on without an answer, with up to five suggested answers.

    Args:
        question: What to ask.
        options: Suggested answers, best first.
        allow_custom: Whether another answer than the options is taken.
    """
    if not question.strip():
        raise ToolFailure("invalid_arguments", "question: it is blank")
    return await ctx.clarify(question, tuple(options or ())[:_SHOWN], allow_custom=allow_custom)


@_question_tool(
    op="x.user.clarify",
    tags=["question", "ask", "unclear", "ambiguous", "human"],
    examples=[
        {
            "context": "You want the old reports gone.",
            "questions": ["Which folder holds them?", "Shall I keep those of this year?"],
        }
    ],
    policy={
        "do": ["Ask everything that is unclear in one call, before the work begins."],
        "dont": ["Do not ask what the conversation or the files already say."],
    },
)
async def request_clarification(
    context: Annotated[str, Field(max_length=4_000)],
    questions: Annotated[list[_Text], Field(min_length=1, max_length=_QUESTIONS)],
    ctx: Context,
) -> str:
    """Ask the user several questions about an unclear task at once. Returns every question with its answer.

    Args:
        context: What was understood so far, and why it is not enough.
        questions: What to ask; the user may leave some unanswered.
    """
    blanks = tuple(
        Blank(key=f"answer_{number}", question=question, required=False) for number, question in enumerate(questions, 1)
    )
    answers = await ctx.fill(context.strip(), blanks)
    if not answers:
        return DISMISSED
    return "\n\n".join(f"{blank.question}\n{answers.get(blank.key, '(not answered)')}" for blank in blanks)


@_question_tool(
    op="x.user.form",
    serial=True,
    tags=["form", "human in the loop", "input", "ask", "choose", "confirm"],
    examples=[
        {
            "title": "The new order",
            "questions": [
                {"question": "How many?", "name": "count", "kind": "number"},
                {"question": "Which colour?", "name": "colour", "options": ["red", "blue"]},
                {"question": "Anything else?", "name": "note", "required": False},
            ],
        },
        {"title": "Before I begin", "type": "confirm", "questions": ["Is the shop closed?"]},
    ],
    policy={
        "do": ["Use it for several answers of known kinds; for a single question ask_user is shorter."],
        "dont": ["Do not ask for passwords: answers are kept in the conversation."],
        "edge_cases": ["The state says whether it was answered, dismissed, or not answered in time."],
    },
)
async def hitl(
    title: Annotated[str, Field(min_length=1, max_length=200)],
    questions: Annotated[list[FormQuestion | _Text], Field(min_length=1, max_length=_QUESTIONS)],
    ctx: Context,
    type: Literal["form", "confirm"] = "form",
    description: Annotated[str, Field(max_length=4_000)] = "",
    timeout: Annotated[float, Field(gt=0, le=_LONGEST)] = _FORM_SECONDS,
) -> dict[str, Any]:
    """Have the user fill in a form: texts, numbers, choices, yes or no.

    Args:
        title: What the form is about.
        questions: What to ask: texts, or objects. Of `choices` several options may be the answer.
        type: form asks as the questions say; confirm takes yes or no for each.
        description: What the user has to know to answer.
        timeout: Seconds to wait for the user.
    """
    blanks = _blanks(questions, type)
    about = "\n\n".join(filter(None, (title.strip(), description.strip())))
    answers: dict[str, Any] | None = None
    with anyio.move_on_after(min(timeout, max(ctx.remaining - _MARGIN, 0))) as waiting:
        answers = await ctx.fill(about, blanks)
    if waiting.cancelled_caught:
        return {"state": "timeout", "answers": {}, "note": f"no answer within {timeout:g} s"}
    if answers is None:
        return {"state": "dismissed", "answers": {}, "note": DISMISSED}
    return {"state": "answered", "answers": answers}


def _blanks(questions: list[FormQuestion | str], type: str) -> tuple[Blank, ...]:
    """Return the blanks of a form. Raises `ToolFailure` for two of one name, and for options where none apply."""
    blanks: dict[str, Blank] = {}
    for number, question in enumerate(questions):
        entry: FormQuestion = {"question": question} if isinstance(question, str) else question
        kind = "yes_no" if type == "confirm" else entry.get("kind", "text")
        options = tuple(dict.fromkeys(entry.get("options", ())))
        if options and kind not in ("text", "choices"):
            raise ToolFailure(
                "invalid_arguments", f"questions[{number}].options: a question of the kind {kind} has no options"
            )
        if kind == "choices" and not options:
            raise ToolFailure("invalid_arguments", f"questions[{number}].options: choices need some")
        key = entry.get("name") or _name_of(entry["question"], number)
        if key in blanks:
            raise ToolFailure("invalid_arguments", f"questions[{number}].name: there are two questions named {key}")
        blank = Blank(
            key=key,
            question=entry["question"],
            kind=kind,
            options=options,
            required=entry.get("required", True),
            default=entry.get("default", ""),
        )
        if blank.default and blank.value(blank.default) is None:
            raise ToolFailure(
                "invalid_arguments", f"questions[{number}].default: {blank.default!r} is not an answer to it"
            )
        blanks[key] = blank
    return tuple(blanks.values())


def _name_of(question: str, number: int) -> str:
    """Return a name for the answer to a question that has none."""
    words = re.findall(r"[a-z0-9]+", question.lower())[:5]
    return f"{number + 1}_{'_'.join(words)}" if words else f"answer_{number + 1}"
