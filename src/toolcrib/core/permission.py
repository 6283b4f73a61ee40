"""Permission as values: the decision, the question, the answer, and the grant that results.

Approval: the stored question whether one call may run, its answer, and the outcome.

    pending ──► approved ──► used          the call ran, or is about to
       │            └──────► expired       not used in time
       ├──► denied                         the approver refused
       ├──► expired                        no answer in time
       └──► cancelled                      the caller left first, or no approver was available

Every transition happens once, for the first of concurrent attempts. An approval is for one call: of this definition of
the tool, with these arguments, in this folder, by this principal.

The values of one call, in order:

    Decision   `policy.decision`: allow, ask or deny, by rules and mode
    Question   `policy.approval`, of a call that asks; `Approver` returns the `Answer`
    Approval   the question as it is stored, for answers from elsewhere; `Settlement` is such an answer
    Grant      `policy.grant.mint`; `Execute` spends it right before the source is called, once
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from msgspec import Struct

from .tool import Tool

Effect = Literal["allow", "ask", "deny"]
EFFECTS: Final[tuple[Effect, ...]] = ("deny", "ask", "allow")
"""Effects in the order in which rules are applied."""

Verdict = Literal["yes", "once", "always", "turn", "idle", "all", "no", "comment", "never", "edit"]
"""yes and once: this call. always: this definition of the tool, in this session. turn: every call until the next
interaction. idle: every call until the session rests. all: every call of this session. no; comment: no, with a word to
the model. never: the tool is denied in this session. edit: this call, with other arguments."""

ApprovalState = Literal["pending", "approved", "denied", "expired", "cancelled", "used"]

OPEN: Final[tuple[ApprovalState, ...]] = ("pending", "approved")
"""States that change with time alone."""
HELD: Final = "held"
"""Marker in place of a job's id: the call ended as `approval_pending`; the same call, made again, uses the answer."""
RESUMED: Final = "resumed"
"""Marker in place of a job's id: the call is made while its caller waits for it."""


class Decision(Struct, frozen=True, kw_only=True):
    """Decision of the rules and the mode on one call with exactly these arguments."""

    effect: Effect
    rule: str
    """The deciding rule or mode, for display: `deny git__push (config)`, `mode cautious: a write asks`."""
    named: bool = False
    """Whether an allow names this very tool, and no pattern or kind: it holds where untrusted content was read, too."""


class Question(Struct, frozen=True, kw_only=True):
    """Question for an approver: the real tool and the validated arguments that will run."""

    call_id: str
    tool: Tool
    arguments: Mapping[str, Any]
    decision: Decision
    principal: str
    diff: str = ""
    """For a call that edits a file: a unified diff of the change."""
    approval: str = ""
    """The id of the stored question, for answers from elsewhere."""
    folder: str = ""
    """Working directory of the call's paths and commands; empty for a session without a folder."""
    shown: str = ""
    """The arguments for a person: JSON, whole, secrets masked, invisible characters escaped."""
    hash: str = ""
    """Hash that binds the answer: tool, definition, arguments, folder and principal."""
    expires: float | None = None
    """Seconds since 1970 after which an answer counts no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The approver's answer to one question.

    Blanket answers (`always`, `turn`, `idle`, `all`) cover later calls too, but never a tool that always asks or a
    command that cannot be undone.
    """

    verdict: Verdict
    by: str = ""
    comment: str = ""
    """Read by the model when the answer is a no."""
    arguments: Mapping[str, Any] | None = None
    """With `edit`: the arguments to run instead. They are validated and decided on anew."""


class NoApprover(Exception):
    """Raised by an approver that can reach no one: the refusal is the same as without an approver."""


class AnswersLater(Exception):
    """Raised by an approver that leaves the answer to others: it comes through the store in time, or it is a no."""


class ApprovalPending(Exception):
    """Raised by an approver whose user answers after the call: the call ends as refused, and its question stays open.

    `Session.resume` makes the call with the answer, in this process or another one with the same store.
    """


Approver = Callable[[Question], Awaitable[Answer]]
"""Asks the responsible approver. A late answer, an exception and a cancellation all count as a refusal."""


async def unreachable_approver(question: Question) -> Answer:
    """Approver that reaches no one, for a session in which nothing is called: a tool that asks is reported as such."""
    raise NoApprover(question.tool.name)


class Grant(Struct, frozen=True):
    """The right to run one tool once, with the arguments it was minted for. Only `policy.grant` mints and checks it."""

    call_id: str
    tool: bytes
    """Digest of the tool's definition."""
    arguments: bytes
    """Hash of the canonical arguments."""
    rule: str


class Approval(Struct, frozen=True, kw_only=True):
    """One approval as it is shown to possible approvers. Times are seconds since 1970, hashes hexadecimal."""

    id: str
    """128 random bits: to others than its principal and the operator it does not exist."""
    call_id: str
    """The call that may use it."""
    principal: str
    session: str
    tool: str
    kind: str
    source: str
    definition: str
    """Digest of the tool's definition."""
    hash: str
    """Over definition, canonical arguments, folder and principal: an answer holds for this hash only."""
    arguments: str
    """The validated arguments as JSON: whole, secrets masked, invisible characters escaped."""
    rule: str
    """The reason for asking."""
    folder: str = ""
    """Working directory of its paths and commands; empty for a session without a folder."""
    created: float
    expires: float
    state: ApprovalState = "pending"
    diff: str = ""
    """For a call that edits a file: a unified diff of the change, escaped and masked like the arguments."""
    verdict: Verdict | Literal[""] = ""
    by: str = ""
    comment: str = ""
    decided: float | None = None
    gone: bool = False
    """Whether the caller left: once approved, the call runs in the background or by `Session.resume`."""
    job: str = ""
    """The id of that job; `RESUMED` where the caller that held the answer made the call itself; `HELD` where the same
    call, made again, uses the answer."""
    ran: str = ""
    """Outcome of the call: `ok` or an error code."""


class Settlement(Struct, frozen=True, kw_only=True):
    """An answer to a pending approval."""

    state: ApprovalState
    verdict: Verdict | Literal[""] = ""
    by: str = ""
    comment: str = ""
    arguments: Mapping[str, Any] | None = None
    """Arguments to run in place of the original ones."""
    shown: str = ""
    """Arguments as they are shown from now on."""
    hash: str = ""
    """Hash of the question as shown to the decider; empty skips the check."""
    principal: str | None = None
    """Required principal of the approval; None accepts any."""
