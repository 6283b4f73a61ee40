"""The sessions of a crib: the table of those that live, and what sets one up and begins its interactions."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakValueDictionary

from ..core.context import Context
from ..core.session import SessionState
from .runtimes import Runtimes

__all__ = ["SessionTable"]


class SessionTable:
    """The sessions of a crib by principal and key, as long as somebody holds them."""

    def __init__(self, runtimes: Runtimes) -> None:
        """`runtimes` close what the tools of a session keep once the session is gone."""
        self._states: WeakValueDictionary[tuple[str, str], SessionState] = WeakValueDictionary()
        self._runtimes = runtimes

    def find(self, principal: str, key: str) -> SessionState | None:
        """Return the session of that principal and key if this process still has it."""
        return self._states.get((principal, key))

    def get(self, context: Context) -> SessionState:
        """Return the session of a call that runs."""
        return self._states[context.principal, context.session_key]

    def put(self, state: SessionState) -> None:
        """Register a new session."""
        self._states[state.principal, state.key] = state
        self._runtimes.watch(state)

    def all(self) -> Iterable[SessionState]:
        """Return the sessions that live now."""
        return tuple(self._states.values())
