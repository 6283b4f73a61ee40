"""The composition root: puts the floors together, and is what the library's user holds.

Names are loaded when they are used: commands need `storage` and the like alone, which takes a tenth of the time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
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

_HOMES: Final = {
    "CallOptions": "options",
    "PendingApproval": "approvals",
    "Session": "session",
    "SessionOptions": "options",
    "defer_approval": "approvals",
    "pending_approval": "approvals",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES.get(name, 'toolcrib')}", __name__), name)
