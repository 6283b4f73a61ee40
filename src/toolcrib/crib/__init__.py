"""The composition root: puts the floors together, and is what the library's user holds."""

from .approvals import Standing, ask_later, standing
from .options import CallOptions, SessionOptions
from .session import Session
from .sync import run
from .toolcrib import Toolcrib

__all__ = ["CallOptions", "Session", "SessionOptions", "Standing", "Toolcrib", "ask_later", "run", "standing"]
