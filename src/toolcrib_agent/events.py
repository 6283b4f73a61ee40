"""Events of an agent at work: small frozen values, in the order in which they happen.

Nothing here loads Pydantic AI, so that a screen can be drawn before it is there. The last event of a run is always
`Finished`, however it ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from toolcrib.core.context import Output, Progress
from toolcrib.core.elicitation import Clarification
from toolcrib.core.permission import Answer, Question
from toolcrib.core.result import ToolResult

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
    "Finished",
    "Message",
    "OfAgent",
    "Outcome",
    "Requesting",
    "Retrying",
    "Selected",
    "Stopped",
    "TextDelta",
    "ThinkingDelta",
    "Used",
]

Analyser = Literal["model", "ranking"]
"""model: the agent's, by structured output. ranking: the catalog's search, without a request."""

Message = Any
"""A `pydantic_ai.messages.ModelMessage`."""

Stopped = Literal["answered", "limit", "fruitless", "blank", "cut", "filtered", "failed", "cancelled"]
"""answered: the model gave its answer. limit: a limit of the run was reached. fruitless: no call could run for several
rounds. blank: the model gave several empty answers. cut: its output limit ended the answer. filtered: the API withheld
the answer. failed: the model could not be reached, or its API refused. cancelled: the run was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """Tools were selected for the task before the first request."""

    tools: tuple[str, ...]
    """The tools that the model has, in their order."""
    reason: str
    intent: Mapping[str, Any]
    """What the task was taken for: `complexity`, `required_tools` …"""
    by: Analyser = "ranking"
    """Who analysed the task."""
    problem: str = ""
    """Why a model's analysis was not used: the task counts as of medium complexity, and nothing is narrowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requesting:
    """A request goes to the model."""

    number: int
    """From 1 on, in this run."""
    tools: tuple[str, ...]
    """The tools that it has now, in their order."""
    context: int
    """Estimated tokens of instructions, tools and messages."""
    window: int
    """Tokens that the model takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of what the model says."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta:
    """A piece of what the model thinks, where its API shows that."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """The request failed and is repeated after a while."""

    attempt: int
    """1 for the first repetition."""
    wait: float
    """Seconds."""
    reason: str
    discards: bool
    """True if pieces of this request were already streamed: discard them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """A request ended, and what it used."""

    request: Usage
    total: Usage
    """Usage of the run so far, sub-agents included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBegun:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CallProgress:
    """Progress or output of a running call."""

    id: str
    name: str
    update: Progress | Output


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The session's approver is asked whether a call may run; the rule that asks is `question.decision.rule`."""

    question: Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The approver has answered; None if it gave no answer itself (it broke, or leaves that to others)."""

    question: Question
    answer: Answer | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clarifying:
    """A tool has a question for the user."""

    clarification: Clarification


@dataclass(frozen=True, slots=True, kw_only=True)
class Clarified:
    """The user has answered; None when the question was dismissed."""

    clarification: Clarification
    answer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnded:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """Older messages were replaced by a summary."""

    before: int
    """Estimated tokens of the messages."""
    after: int
    by: Literal["model", "outline"]
    """outline: made without a model, which failed or had no budget left for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Concluding:
    """The model is asked for a last answer, without tools."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfAgent:
    """Something that a sub-agent tells."""

    id: str
    """The id of the call (`result.meta["call_id"]`) that runs the sub-agent."""
    tool: str
    """`spawn_agent` or `delegate_task`."""
    depth: int
    """1 for an agent that this one has spawned."""
    task: str
    event: AgentEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The run is over."""

    outcome: Outcome = field(repr=False)


AgentEvent = (
    Selected
    | Requesting
    | TextDelta
    | ThinkingDelta
    | Retrying
    | Used
    | CallBegun
    | CallProgress
    | Asked
    | Answered
    | Clarifying
    | Clarified
    | CallEnded
    | Compacted
    | Concluding
    | OfAgent
    | Finished
)
