"""The MCP sessions of HTTP clients of the handshake era, by the id that each was given."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from typing import Final

from .http_messages import Headers, Refusal
from .legacy import LegacySession
from .service import Service

__all__ = ["SESSION_HEADER", "SessionTable"]

SESSION_HEADER: Final = b"mcp-session-id"


class _Kept:
    __slots__ = ("session", "used")

    def __init__(self, session: LegacySession, used: float) -> None:
        self.session = session
        self.used = used

    @property
    def is_busy(self) -> bool:
        return bool(self.session.running) or self.session.outlet is not None


class SessionTable:
    """At most `limits.sessions` sessions, each forgotten after `limits.idle` seconds without a request.

    At the cap a new session takes the place of the one that has been idle for longest (security.md R16). An id is 192
    random bits and belongs to one principal; to others it does not exist.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def open(self, principal: str, profile: str, instance: str = "") -> tuple[str, LegacySession]:
        """Return a new session and its id.

        Raises `Refusal` when all that are kept are in use, and `UsageError` for an unknown profile.
        """
        session = LegacySession(
            self._service, principal=principal, profile=profile, mode=self._service.mode, instance=instance
        )
        if len(self._kept) >= self._service.limits.sessions:
            self._evict(session)
        session_id = secrets.token_urlsafe(24)
        self._kept[session_id] = _Kept(session, time.monotonic())
        return session_id, session

    def find(self, headers: Headers, principal: str, instance: str = "") -> LegacySession:
        """Return the session that the headers name, now the last used one.

        Raises `Refusal`: 400 when they name none, 404 when this principal has no such session as this instance.
        """
        given = headers.get(SESSION_HEADER)
        if given is None:
            raise Refusal(400, "Bad request: send initialize first, then its Mcp-Session-Id with every request")
        session_id = given.decode("latin-1")
        kept = self._kept.get(session_id)
        if kept is None or (kept.session.principal, kept.session.instance) != (principal, instance):
            raise Refusal(404, "Session not found: it was ended or forgotten, send initialize again")
        kept.used = time.monotonic()
        self._kept.move_to_end(session_id)
        return kept.session

    def close(self, session: LegacySession) -> None:
        """End one session."""
        for session_id, kept in self._kept.items():
            if kept.session is session:
                del self._kept[session_id]
                break
        session.close()

    def sweep(self) -> None:
        """End what has been idle for too long."""
        now = time.monotonic()
        for session_id, kept in tuple(self._kept.items()):
            if kept.is_busy:
                kept.used = now
            elif now - kept.used >= self._service.limits.idle:
                del self._kept[session_id]
                kept.session.close()

    def clear(self) -> None:
        """End all."""
        while self._kept:
            self._kept.popitem()[1].session.close()

    def _evict(self, newcomer: LegacySession) -> None:
        for session_id, kept in self._kept.items():
            if not kept.is_busy:
                del self._kept[session_id]
                kept.session.close()
                return
        newcomer.close()
        raise Refusal(503, "Too many sessions are in use; try again later", headers=[(b"retry-after", b"10")])
