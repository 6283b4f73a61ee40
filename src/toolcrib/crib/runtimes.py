"""What sessions keep for their tools: closed when nobody has the session any more, at the latest with the crib."""

from __future__ import annotations

import weakref
from typing import Final

from ..core.session import Runtime, SessionState

__all__ = ["Runtimes"]


class Runtimes:
    """The runtimes of all sessions of a crib. A session that is closed by its user has closed its own before."""

    def __init__(self) -> None:
        """Start with no session."""
        self._kept: Final[dict[int, tuple[weakref.ref[SessionState], Runtime]]] = {}
        self._left: Final[list[Runtime]] = []

    def watch(self, state: SessionState) -> None:
        """Close the runtime of `state` some time after the last reference to it is gone."""
        key = id(state)
        self._kept[key] = (weakref.ref(state, lambda _: self._leave(key)), state.runtime)

    @property
    def has_left(self) -> bool:
        """Whether a session has left something behind."""
        return bool(self._left)

    async def close_left(self) -> None:
        """Close what sessions have left behind."""
        while self._left:
            await self._left.pop().aclose()

    async def close(self) -> None:
        """Close everything."""
        await self.close_left()
        for _, runtime in tuple(self._kept.values()):
            await runtime.aclose()

    def _leave(self, key: int) -> None:
        _, runtime = self._kept.pop(key)
        if runtime:
            self._left.append(runtime)
