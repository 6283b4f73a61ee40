"""Clients as tools and sources reach them: output without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from weakref import WeakValueDictionary

from ..core.context import Cleaner, Peer

__all__ = ["RedactedPeers"]

_PROTOCOL: Final = frozenset(
    {
        "_meta",
        "elicitationId",
        "level",
        "logger",
        "mode",
        "progress",
        "progressToken",
        "requestedSchema",
        "total",
        "url",
    }
)
"""Members of MCP messages that belong to the protocol, not to the words of a tool: they stay as they are."""


class RedactedPeers:
    """Wraps each client in a redacting peer. One for a crib.

    A client has the same wrapper in all its calls: callers tell clients apart by its identity.
    """

    def __init__(self, cleaner: Cleaner) -> None:
        """`cleaner` takes the secrets out."""
        self.cleaner = cleaner
        self._peers: WeakValueDictionary[int, _CleanPeer] = WeakValueDictionary()

    def to(self, peer: Peer | None) -> Peer | None:
        """Return the redacting peer for `peer`; an already wrapped one comes back as it is."""
        if peer is None or isinstance(peer, _CleanPeer):
            return peer
        clean = self._peers.get(id(peer))  # which is its own as long as its clean peer holds it
        if clean is None:
            clean = self._peers[id(peer)] = _CleanPeer(peer, self.cleaner)
        return clean


class _CleanPeer:
    """A peer whose output is redacted. Lives as long as the calls that have it."""

    def __init__(self, peer: Peer, cleaner: Cleaner) -> None:
        self._peer = peer
        self._cleaner = cleaner

    def __eq__(self, other: object) -> bool:
        """Equal to the wrapped peer."""
        return self is other or other is self._peer or (isinstance(other, _CleanPeer) and other._peer is self._peer)

    def __hash__(self) -> int:
        return hash(id(self._peer))

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self._peer.capabilities

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self._peer.notify(method, self._clean(params))

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._peer.request(method, self._clean(params))

    def _clean(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value if key in _PROTOCOL else self._cleaner.value(value) for key, value in params.items()}
