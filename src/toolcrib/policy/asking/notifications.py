"""Approval notifications: wake the caller that waits for one approval, and observers of all of them.

For this process only; decisions of other processes are found by polling the store.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import anyio

from ...core.approval import Approval

__all__ = ["Board"]

_LOG: Final = logging.getLogger(__name__)


class Board:
    """One for a crib, on its event loop."""

    def __init__(self) -> None:
        """Start without listeners."""
        self._waiting: dict[str, anyio.Event] = {}
        self._watchers: dict[object, Callable[[Approval], None]] = {}

    def notify(self, approval: Approval) -> None:
        """Wake the waiter for this approval, and notify all watchers. Never raises."""
        if (event := self._waiting.get(approval.id)) is not None:
            event.set()
        for watcher in tuple(self._watchers.values()):
            try:
                watcher(approval)
            except Exception:  # noqa: BLE001 - who listens must not break who decides
                _LOG.exception("a watcher of approvals broke")

    def stir(self) -> None:
        """Wake all waiters: an answer may cover more calls than its own."""
        for event in self._waiting.values():
            event.set()

    async def wait(self, id: str, seconds: float) -> None:
        """Return when there are news of `id`, at the latest after `seconds`. One waiter for an id at a time."""
        event = self._waiting[id] = anyio.Event()
        try:
            with anyio.move_on_after(seconds):
                await event.wait()
        finally:
            if self._waiting.get(id) is event:
                del self._waiting[id]

    def watch(self, watcher: Callable[[Approval], None]) -> Callable[[], None]:
        """Call `watcher` with every approval that is asked for or settled here; returns what ends it."""
        token = object()
        self._watchers[token] = watcher

        def stop() -> None:
            self._watchers.pop(token, None)

        return stop
