"""Limits of one MCP server: sizes in bytes, times in seconds (security.md R2-R5, R13, T23)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["McpLimits"]

_KIB = 1024
_MIB = 1024 * _KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class McpLimits:
    """The limits of one server. Every one can be set; the defaults are those of security.md."""

    start_timeout: float = 30.0
    """From the first byte of a start to the first fresh list of tools."""
    probe_timeout: float = 2.0
    """How long `server/discover` goes alone before `initialize` is sent beside it."""
    stop_grace: float = 0.8
    """After its stdin was closed, and again after SIGTERM: two graces and the kill stay below 3 s (R10)."""

    noise_bytes: int = 64 * _KIB
    """Longest line outside of JSON-RPC before the connection is closed."""
    memory_bytes: int = 1 * _MIB
    """What of one unfinished message is held in memory; the rest waits on disk."""
    inline_bytes: int = 16 * _MIB
    """The largest message that is parsed; a larger result is answered as a `Spill`."""
    spill_bytes: int = 256 * _MIB
    """The largest message that is taken at all; beyond it the connection closes."""
    bad_messages: int = 100
    """Invalid lines and unrequested answers, beyond the good ones, before a restart."""
    queue_bytes: int = 64 * _MIB
    """Requests that a server does not read; beyond it calls are refused as `overloaded`."""
    stderr_bytes: int = 256 * _KIB
    """The end of the server's stderr that is kept for the operator."""
    relays: int = 8
    """Requests of the server to the client that may be open at once."""

    pages: int = 100
    tools: int = 2000
    description_bytes: int = 4 * _KIB
    schema_bytes: int = 64 * _KIB
    icon_bytes: int = 64 * _KIB
    """Of one icon: mostly a `data:` URI."""
    icons_bytes: int = 1 * _MIB
    """Of all icons of one server."""
    refresh: float = 300.0
    """A connected server is listed again this often, so that a silent change does not go unseen; 0 never."""

    backoff: float = 0.1
    """After a failed start; doubles with each one, with jitter."""
    breaker_failures: int = 5
    breaker_window: float = 30.0
    breaker_open: float = 10.0
    """How long calls fail at once after `breaker_failures` failed starts within `breaker_window`; doubles each time."""
    breaker_open_max: float = 300.0
