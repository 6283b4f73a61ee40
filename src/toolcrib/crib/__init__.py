"""The composition root: puts the floors together, and is what the library's user holds."""

from .approvals import PendingApproval, defer_approval, pending_approval
from .options import CallOptions, SessionOptions
from .session import Session
from .toolcrib import Toolcrib, run

__all__ = [
    "CallOptions",
    "PendingApproval",
    "Session",
    "SessionOptions",
    "Toolcrib",
    "defer_approval",
    "pending_approval",
    "run",
]
