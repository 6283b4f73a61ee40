"""Events of an agent at work: small frozen values, in the order in which they happen.

Nothing here loads Pydantic AI, so that a screen can be drawn before it is there. The last event of a run is always
`Finished`, however it ended.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

from toolcrib import Answer, Clarification, Output, Progress, Question, ToolResult
from toolcrib.errors import ToolFailure

from .limits import Usage

__all__ = [
    "AgentEvent",
    "Analyser",
    "Answered",
    "Asked",
    "CallBegun",
    "CallEnded",
    "CallProgress",
    "Clarified",
    "Clarifying",
    "Compacted",
    "Concluding",
    "EventListener",
    "Finished",
    "Message",
    "Outcome",
    "Requesting",
    "Retrying",
    "Selected",
    "Stopped",
    "SubAgentEvent",
    "TextDelta",
    "ThinkingDelta",
    "UsageReport",
    "discard",
]

Analyser = Literal["model", "ranking"]
"""model: the agent's, by structured output. ranking: the catalog's search, without a request."""

Message = Any
"""A `pydantic_ai.messages.ModelMessage`."""

Stopped = Literal["answered", "limit", "fruitless", "blank", "cut", "filtered", "failed", "cancelled"]
"""answered: the model gave its answer. limit: a limit of the run was reached. fruitless: no call could run for several
rounds. blank: the model gave several empty answers. cut: its output limit ended the answer. filtered: the API withheld
the answer. failed: the model could not be reached, or its API refused. cancelled: the run was stopped."""


class Outcome(Struct, frozen=True, kw_only=True):
    """Result of a run."""

    text: str
    """The answer. Never empty: where the model gave none, it says why and what is known."""
    stopped: Stopped
    history: tuple[Message, ...]
    """All messages of the conversation, to go on with. Always valid: it ends in an answer of the model or before one is
    due, and every tool call in it has its return."""
    usage: Usage
    """Usage of this run."""
    reason: str = ""
    """Cause of the end, unless it was `answered`: the limit, or the error of the model's API."""

    @property
    def is_complete(self) -> bool:
        """True if the model ended the run by itself."""
        return self.stopped == "answered"

    def result(self, hint: str = "") -> ToolResult:
        """Return the answer as the result of a tool. Raises `ToolFailure("unavailable")` for a run that failed."""
        if self.stopped == "failed":
            raise ToolFailure("unavailable", self.text, hint=hint)
        note = "" if self.is_complete else f"\n[The agent did not come to an end by itself: {self.reason}.]"
        return ToolResult.of_text(f"{self.text}{note}")


class Selected(Struct, frozen=True, kw_only=True):
    """Tools were selected for the task before the first request."""

    tools: tuple[str, ...]
    """The tools that the model has, in their order."""
    reason: str
    intent: Mapping[str, Any]
    """Analysis of the task: `complexity`, `required_tools` …"""
    by: Analyser = "ranking"
    """Analyser of the task."""
    problem: str = ""
    """Reason why a model's analysis was not used: the task counts as of medium complexity, and nothing is narrowed."""


class Requesting(Struct, frozen=True, kw_only=True):
    """A request goes to the model."""

    number: int
    """From 1 on, in this run."""
    tools: tuple[str, ...]
    """The tools that it has now, in their order."""
    context: int
    """Estimated tokens of instructions, tools and messages."""
    window: int
    """Tokens that the model takes."""


class TextDelta(Struct, frozen=True, kw_only=True):
    """A piece of what the model says."""

    text: str


class ThinkingDelta(Struct, frozen=True, kw_only=True):
    """A piece of what the model thinks, where its API shows that."""

    text: str


class Retrying(Struct, frozen=True, kw_only=True):
    """The request failed and is repeated after a while."""

    attempt: int
    """1 for the first repetition."""
    wait: float
    """Seconds."""
    reason: str
    discards: bool
    """True if pieces of this request were already streamed: discard them."""


class UsageReport(Struct, frozen=True, kw_only=True):
    """A request ended, and what it used."""

    request: Usage
    total: Usage
    """Usage of the run so far, sub-agents included."""


class CallBegun(Struct, frozen=True, kw_only=True):
    """A tool call begins. What decided on it is in its `CallEnded`, and in the `Asked` between them.

    A call that is interrupted has no `CallEnded`.
    """

    id: str
    """The model's own, unique in the conversation."""
    name: str
    """Name as the model wrote it."""
    arguments: Mapping[str, Any] | str
    """Arguments as the model wrote them; text if they are not a JSON object."""
    together: int = 1
    """Number of calls that the model made at once."""


class CallProgress(Struct, frozen=True, kw_only=True):
    """Progress or output of a running call."""

    id: str
    name: str
    update: Progress | Output


class Asked(Struct, frozen=True, kw_only=True):
    """The session's approver is asked whether a call may run; the rule that asks is `question.decision.rule`."""

    question: Question


class Answered(Struct, frozen=True, kw_only=True):
    """The approver has answered; None if it gave no answer itself (it broke, or leaves that to others)."""

    question: Question
    answer: Answer | None


class Clarifying(Struct, frozen=True, kw_only=True):
    """A tool has a question for the user."""

    clarification: Clarification


class Clarified(Struct, frozen=True, kw_only=True):
    """The user has answered; None when the question was dismissed."""

    clarification: Clarification
    answer: str | None


class CallEnded(Struct, frozen=True, kw_only=True):
    """A tool call has ended, with any result."""

    id: str
    name: str
    result: ToolResult
    """`result.meta["call_id"]` is its id in the record, `crib.explainer.why` explains it."""
    seconds: float

    @property
    def rule(self) -> str:
        """Origin of the decision: a rule, the mode, an answer; empty if the call failed before it was decided."""
        return str(self.result.meta.get("rule", ""))


class Compacted(Struct, frozen=True, kw_only=True):
    """Older messages were replaced by a summary."""

    before: int
    """Estimated tokens of the messages."""
    after: int
    by: Literal["model", "outline"]
    """outline: made without a model, which failed or had no budget left for it."""


class Concluding(Struct, frozen=True, kw_only=True):
    """The model is asked for a last answer, without tools."""

    reason: str


class SubAgentEvent(Struct, frozen=True, kw_only=True):
    """Event of a sub-agent."""

    id: str
    """The id of the call (`result.meta["call_id"]`) that runs the sub-agent."""
    tool: str
    """`spawn_agent` or `delegate_task`."""
    depth: int
    """1 for an agent that this one has spawned."""
    task: str
    event: AgentEvent


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The run is over."""

    outcome: Outcome = dataclasses.field(repr=False)


AgentEvent = (
    Selected
    | Requesting
    | TextDelta
    | ThinkingDelta
    | Retrying
    | UsageReport
    | CallBegun
    | CallProgress
    | Asked
    | Answered
    | Clarifying
    | Clarified
    | CallEnded
    | Compacted
    | Concluding
    | SubAgentEvent
    | Finished
)

EventListener = Callable[[AgentEvent], None]
"""Receiver of events, as they happen. Called on the event loop; it must not block."""


def discard(event: AgentEvent) -> None:
    """Discard an event: the listener of a run without one."""
