"""What a running tool may know and do besides its arguments.

A `Context` lives as long as one call. Function tools receive it by annotating a parameter with `Context`; sources
receive it with every call.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Context", "Peer"]


class Peer(Protocol):
    """The client at the far end of a call, as far as a tool may use it. Messages are MCP's, params plain JSON."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client declared: `sampling`, `elicitation`, `roots` …"""
        ...

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification that belongs to this call; dropped silently once the client is gone."""
        ...

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask the client something; raises `ToolFailure` when it cannot, will not, or is gone."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The surroundings of one call."""

    call_id: str
    session_key: str
    principal: str
    instance: str = ""
    deadline: float = float("inf")
    """On the clock of `time.monotonic`."""
    peer: Peer | None = None
    progress_token: str | int | None = None
    """The client's token; None when it asked for no progress."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Trace context (`traceparent`, `tracestate`, `baggage`) that a source hands on; never a credential."""
    resume: Mapping[str, Any] | None = None
    """MCP 2026-07-28: `inputResponses` and `requestState` of a call that was answered `input_required` before."""

    @property
    def remaining(self) -> float:
        """Seconds until the deadline, never negative."""
        return max(0.0, self.deadline - time.monotonic())

    async def report(self, progress: float, total: float | None = None, message: str = "") -> None:
        """Tell the client how far the call is; does nothing when it did not ask for progress."""
        if self.peer is None or self.progress_token is None:
            return
        params: dict[str, Any] = {"progressToken": self.progress_token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message:
            params["message"] = message
        await self.peer.notify("notifications/progress", params)

    async def log(self, level: str, data: Any, logger: str = "") -> None:
        """Send a log message to the client; `level` is one of MCP's (debug, info, notice, warning, error …)."""
        if self.peer is None:
            return
        params: dict[str, Any] = {"level": level, "data": data}
        if logger:
            params["logger"] = logger
        await self.peer.notify("notifications/message", params)
