"""Sessions of the stateless era, by principal and the key that the client names.

A session lives for `idle` seconds after its last use; above `limit`, the least recently used one goes first.
"""

from __future__ import annotations

import time
from collections import OrderedDict

from .backend import Backend, Session

__all__ = ["SessionCache"]


class SessionCache:
    """A bounded table of sessions, least recently used first."""

    def __init__(self, backend: Backend, *, limit: int, idle: float) -> None:
        self._backend = backend
        self._limit = limit
        self._idle = idle
        self._known: OrderedDict[tuple[str, ...], tuple[Session, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, principal: str, profile: str, mode: str, instance: str, key: str) -> Session:
        """Return the conversation, opening it at need. Raises `UsageError` for an unknown profile or mode."""
        now, place = time.monotonic(), (principal, profile, mode, instance, key)
        known = self._known.get(place)
        session = known[0] if known is not None and now - known[1] < self._idle else None
        if session is None:
            # The backend knows a conversation by principal and key alone; without a key it opens a new one. The
            # instance is part of the key in a form that no key can imitate: instances never share a conversation.
            name = f"{f'{instance}@' if instance else ''}{profile}/{mode}/{key}" if key else ""
            session = self._backend.open_session(
                key=name,
                principal=principal,
                profile=profile,
                mode=mode,
                instance=instance,
                is_stateless=True,
                is_shared=not key,
            )
        self._known[place] = (session, now)
        self._known.move_to_end(place)
        while len(self._known) > self._limit:
            self._known.popitem(last=False)
        return session

    def sweep(self) -> None:
        """Forget what has been idle for too long."""
        now = time.monotonic()
        while self._known:
            place, (_, used) = next(iter(self._known.items()))
            if now - used < self._idle:
                return
            del self._known[place]
