"""The line to the client of a job: cut when the client was answered, for a request that has its answer is over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.context import Peer
from ..errors import ToolFailure

__all__ = ["Line"]


class Line:
    """A peer that goes silent. Lives as long as the job's call."""

    def __init__(self, peer: Peer) -> None:
        """Pass everything on to `peer`, until `cut`."""
        self._peer: Peer | None = peer

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client declared; nothing once the line is cut."""
        return self._peer.capabilities if self._peer is not None else {}

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Pass a notification on; drop it once the line is cut."""
        if self._peer is not None:
            await self._peer.notify(method, params)

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask the client; raises `ToolFailure("unavailable")` once the line is cut."""
        if self._peer is None:
            raise ToolFailure("unavailable", f"the client cannot be asked for {method}: the call goes on without it")
        return await self._peer.request(method, params)

    def cut(self) -> None:
        """Pass nothing on any more."""
        self._peer = None
