"""How this machine and this Toolcrib are doing."""

from .machine import system_monitor
from .telling import get_recent_events, get_status, get_token_usage

__all__ = ["get_recent_events", "get_status", "get_token_usage", "system_monitor"]
