"""Conversations of the stateless era: what the desk remembers of a principal and the key its client named.

Kept for as long as they are used, at most `idle` seconds after that; when there are too many, the one that was used
longest ago is forgotten.
"""

from __future__ import annotations

import time
from collections import OrderedDict

from .approving import ClientApprover
from .desk import Desk, DeskSession

__all__ = ["Talks"]


class Talks:
    """A bounded table of desk sessions, least recently used first."""

    def __init__(self, desk: Desk, *, limit: int, idle: float) -> None:
        self._desk = desk
        self._limit = limit
        self._idle = idle
        self._known: OrderedDict[tuple[str, ...], tuple[DeskSession, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, principal: str, profile: str, mode: str, instance: str, key: str) -> DeskSession:
        """Return the conversation, opening it at need. Raises `UsageError` for an unknown profile or mode."""
        now, place = time.monotonic(), (principal, profile, mode, instance, key)
        known = self._known.get(place)
        session = known[0] if known is not None and now - known[1] < self._idle else None
        if session is None:
            # The desk knows a conversation by principal and key alone; without a key it makes a new one.
            # An instance is part of the key, where no key can imitate it: what is seen never hangs on who came last.
            name = f"{f'{instance}@' if instance else ''}{profile}/{mode}/{key}" if key else ""
            session = self._desk.session(
                key=name,
                principal=principal,
                profile=profile,
                mode=mode,
                approver=ClientApprover(is_shared=not key),
                grows=False,
                for_client=True,
                instance=instance,
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
