"""Approval: the stored question whether one call may run, its answer, and the outcome.

    pending ──► approved ──► used          the call ran, or is about to
       │            └──────► expired       not used in time
       ├──► denied                         the approver refused
       ├──► expired                        no answer in time
       └──► cancelled                      the caller left first, or no approver was available

Every transition happens once, for the first of concurrent attempts. An approval is for one call: of this definition of
the tool, with these arguments, by this principal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from .permission import Verdict

__all__ = ["OPEN", "RESUMED", "Approval", "ApprovalState", "Settlement"]

ApprovalState = Literal["pending", "approved", "denied", "expired", "cancelled", "used"]

OPEN: Final[tuple[ApprovalState, ...]] = ("pending", "approved")
"""States that change with time alone."""
RESUMED: Final = "resumed"
"""Marker in place of a job's id: the call is made while its caller waits for it."""


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
    """Over definition, canonical arguments and principal: an answer holds for this hash only."""
    arguments: str
    """The validated arguments as JSON: whole, secrets masked, invisible characters escaped."""
    rule: str
    """The reason for asking."""
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
    """The id of that job; `RESUMED` where the caller that held the answer made the call itself."""
    ran: str = ""
    """Outcome of the call: `ok` or an error code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """An answer to a pending approval."""

    state: ApprovalState
    verdict: Verdict | Literal[""] = ""
    by: str = ""
    comment: str = ""
    arguments: Mapping[str, Any] | None = None
    """Arguments to run in place of the original ones."""
    shown: str = ""
    """Those arguments as they are shown from now on."""
    hash: str = ""
    """Hash of the question as shown to the decider; empty skips the check."""
    principal: str | None = None
    """Required principal of the approval; None accepts any."""
