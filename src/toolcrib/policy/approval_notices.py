"""Notices of approvals within one process: who waits for an answer is woken, and watchers learn of each change."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio

from ..core.permission import Approval

__all__ = ["ApprovalNotices"]

_logger = logging.getLogger(__name__)


class ApprovalNotices:
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
            except Exception:  # a failing watcher must not break the decision
                _logger.exception("a watcher of approvals broke")

    def wake_all(self) -> None:
        """Wake all waiters: an answer may cover more calls than its own."""
        for event in self._waiting.values():
            event.set()

    async def wait(self, id: str, seconds: float) -> None:
        """Return when `id` has changed, at the latest after `seconds`. One waiter for an id at a time."""
        event = self._waiting[id] = anyio.Event()
        try:
            with anyio.move_on_after(seconds):
                await event.wait()
        finally:
            if self._waiting.get(id) is event:
                del self._waiting[id]

    def watch(self, watcher: Callable[[Approval], None]) -> Callable[[], None]:
        """Call `watcher` with every approval that is requested or settled here; returns the function that ends it."""
        token = object()
        self._watchers[token] = watcher

        def stop() -> None:
            self._watchers.pop(token, None)

        return stop
