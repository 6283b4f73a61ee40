"""Clients as running tools reach them: secrets are taken out of all that is sent to one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from ..core.context import Cleaner, Peer

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

_LABELS: Final = frozenset({"description", "title"})
"""Texts for people in the form of a question; names and values of a form are those of its answer."""
_FORM_DEPTH: Final = 8
"""Levels of a form in which labels are redacted; MCP's forms are flat."""


class RedactedPeers:
    """Wraps each client in a redacting peer. One for a crib."""

    def __init__(self, cleaner: Cleaner) -> None:
        """`cleaner` takes the secrets out."""
        self.cleaner = cleaner

    def to(self, peer: Peer | None, principal: str) -> Peer | None:
        """Return a redacting peer for `peer`, of `principal`; an already wrapped one comes back as it is.

        Callers distinguish clients by comparing them: the wrappers of one client are equal.
        """
        return peer if peer is None or isinstance(peer, _CleanPeer) else _CleanPeer(peer, self.cleaner, principal)


class _CleanPeer:
    """A peer whose output is redacted. Lives as long as its call."""

    def __init__(self, peer: Peer, cleaner: Cleaner, principal: str) -> None:
        self._peer = peer
        self._cleaner = cleaner
        self._principal = principal

    def __eq__(self, other: object) -> bool:
        """Equal to the wrapped peer."""
        return self is other or other is self._peer or (isinstance(other, _CleanPeer) and other._peer is self._peer)

    def __hash__(self) -> int:
        return hash(self._peer)

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self._peer.capabilities

    @property
    def takes_requests(self) -> bool:
        return self._peer.takes_requests

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self._peer.notify(method, self._clean(params))

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._peer.request(method, self._clean(params))

    def _clean(self, params: Mapping[str, Any]) -> dict[str, Any]:
        clean = self._cleaner.of(self._principal).value
        cleaned = {key: value if key in _PROTOCOL else clean(value) for key, value in params.items()}
        if "requestedSchema" in params:
            cleaned["requestedSchema"] = _with_clean_labels(params["requestedSchema"], clean)
        return cleaned


def _with_clean_labels(form: Any, clean: Callable[[Any], Any], depth: int = 0) -> Any:
    """Return the form with redacted labels; property names and enum values must come back unchanged in the answer."""
    if depth > _FORM_DEPTH:
        return form
    if isinstance(form, list):
        return [_with_clean_labels(part, clean, depth + 1) for part in cast("list[Any]", form)]
    if not isinstance(form, Mapping):
        return form
    return {
        key: clean(part) if key in _LABELS and isinstance(part, str) else _with_clean_labels(part, clean, depth + 1)
        for key, part in cast("Mapping[str, Any]", form).items()
    }
