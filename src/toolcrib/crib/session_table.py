"""The sessions of a crib that live, and what their tools keep until they end."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Final
from weakref import WeakValueDictionary

from ..core.context import Context
from ..core.session import Runtime, SessionState

__all__ = ["Runtimes", "SessionTable"]


class Runtimes:
    """The runtimes of all sessions of a crib. A session that is closed by its user has closed its own before."""

    def __init__(self) -> None:
        """Start with no session."""
        self._kept: Final[dict[int, tuple[weakref.ref[SessionState], Runtime]]] = {}
        self.left: Final[list[Runtime]] = []
        """Values that ended sessions have left behind, to be closed before the next call."""

    def watch(self, state: SessionState) -> None:
        """Close the runtime of `state` some time after the last reference to it is gone."""
        key = id(state)
        self._kept[key] = (weakref.ref(state, lambda _: self._leave(key)), state.runtime)

    async def close_left(self) -> None:
        """Close what sessions have left behind."""
        while self.left:
            await self.left.pop().aclose()

    async def close(self) -> None:
        """Close everything."""
        await self.close_left()
        for _, runtime in tuple(self._kept.values()):
            await runtime.aclose()

    def _leave(self, key: int) -> None:
        _, runtime = self._kept.pop(key)
        if runtime:
            self.left.append(runtime)


class SessionTable:
    """The sessions of a crib by principal and key, as long as a reference exists."""

    def __init__(self) -> None:
        """Start with no session."""
        self._states: WeakValueDictionary[tuple[str, str], SessionState] = WeakValueDictionary()
        self.runtimes = Runtimes()
        """They close what the tools of a session keep once the session is gone."""

    def find(self, principal: str, key: str) -> SessionState | None:
        """Return the session of that principal and key if this process still has it."""
        return self._states.get((principal, key))

    def get(self, context: Context) -> SessionState:
        """Return the session of a call that runs."""
        return self._states[context.principal, context.session_key]

    def put(self, state: SessionState) -> None:
        """Register a new session."""
        self._states[state.principal, state.key] = state
        self.runtimes.watch(state)

    def all(self) -> Iterable[SessionState]:
        """Return the sessions that live now."""
        return tuple(self._states.values())
