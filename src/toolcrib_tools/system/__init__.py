"""State of this machine and of Toolcrib, environment of the session, and its description."""

from .preferences import open_system_preferences
from .status import get_environment, get_recent_events, get_status, get_token_usage, session_describe, system_monitor

__all__ = [
    "get_environment",
    "get_recent_events",
    "get_status",
    "get_token_usage",
    "open_system_preferences",
    "session_describe",
    "system_monitor",
]
