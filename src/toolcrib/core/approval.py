"""An approval: the stored question whether one call may run, what was answered, and what became of it.

    pending ──► approved ──► used          the call ran, or is about to
              │            └──────► expired       not used in time
              ├──► denied                         the approver refused
              ├──► expired                        no answer in time
              └──► cancelled                      the caller left first, or no approver was available

Every arrow is taken once, by one of those who try. An approval is for one call: of this definition of the tool, with
these arguments, by this principal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from .permission import Verdict

__all__ = ["HELD", "OPEN", "RESUMED", "Approval", "ApprovalState", "Settlement"]

ApprovalState = Literal["pending", "approved", "denied", "expired", "cancelled", "used"]

OPEN: Final[tuple[ApprovalState, ...]] = ("pending", "approved")
"""States that a later moment may change by itself."""
HELD: Final = "held"
"""Stands in place of a job's id: the call ended as `approval_pending`; the same call, made again, uses the answer."""
RESUMED: Final = "resumed"
"""Stands in place of a job's id: the call is made while its caller waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
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
    """Over definition, canonical arguments and principal: what an answer is bound to."""
    arguments: str
    """The validated arguments as JSON: whole, secrets masked, what cannot be seen written as escapes."""
    rule: str
    """The reason for asking."""
    created: float
    expires: float
    state: ApprovalState = "pending"
    diff: str = ""
    """For a call that edits a file: a unified diff of what would change, escaped and masked like the arguments."""
    verdict: Verdict | Literal[""] = ""
    by: str = ""
    comment: str = ""
    decided: float | None = None
    gone: bool = False
    """The caller left: once it is approved it runs in the background or for who resumes it; its result waits here."""
    job: str = ""
    """The id of that job; `RESUMED` where the caller that held the answer made the call itself; `HELD` where the same
    call, made again, uses the answer."""
    ran: str = ""
    """What came of it there: `ok` or an error code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """An answer to a pending approval."""

    state: ApprovalState
    verdict: Verdict | Literal[""] = ""
    by: str = ""
    comment: str = ""
    arguments: Mapping[str, Any] | None = None
    """Runs instead of what was asked about."""
    shown: str = ""
    """Those arguments as they are shown from now on."""
    hash: str = ""
    """What the decider was shown; empty checks nothing."""
    principal: str | None = None
    """Whose approval it must be; None is anybody's."""
