"""The composition root: puts the floors together, and is what the library's user holds."""

from .approvals import PendingApproval, defer_approval, pending_approval
from .options import CallOptions, SessionOptions
from .session import Session
from .sync import run
from .toolcrib import Toolcrib

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
