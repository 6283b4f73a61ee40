"""What the operator says of approvals: the configuration key `approvals`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["LONGEST", "ApprovalSettings", "Webhook", "WhenGone"]

WhenGone = Literal["drop", "run"]
"""What becomes of a question whose caller left: it is cancelled, or stays open and runs as a job after a late yes."""

LONGEST: Final = 24 * 3600.0
"""Seconds that `expires` may say at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """Where questions are posted."""

    url: str
    secret: str = ""
    """Signs what is posted (HMAC-SHA256); empty signs nothing."""
    allow_private: bool = False
    """Whether the host may have an address that is not public, such as 127.0.0.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSettings:
    """How approvals are kept and asked for."""

    expires: float = 600.0
    """Seconds after which a question, and a yes that was not used, counts no more (security.md R8: 10 minutes)."""
    idle: float = 300.0
    """Seconds without a call after which the answer `idle` ends."""
    pending: int = 100
    """Questions of one principal that may be open at a time (security.md T32)."""
    wait: bool = False
    """A session that has nobody to ask waits for an answer in the store, instead of being refused at once."""
    when_gone: WhenGone = "drop"
    webhook: Webhook | None = None
