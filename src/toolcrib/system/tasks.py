"""Task group of one source: tasks are started from anywhere, and ended together.

A source is opened in one task, called from many and closed in another, so no task group of a caller can own what runs
between. A task of our own does; it lives from `start` to `stop`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import anyio
import anyio.abc

__all__ = ["Background"]

_log = logging.getLogger(__name__)


class Background:
    """A task group with a host task. A task that fails is logged and leaves the others running."""

    def __init__(self) -> None:
        self._group: anyio.abc.TaskGroup | None = None
        self._stopping = anyio.Event()
        self._host: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin; must come first."""
        started = anyio.Event()
        self._host = asyncio.create_task(self._live(started), name="toolcrib source")
        await started.wait()

    def spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` beside everything else; does nothing before `start` and after `stop`."""
        if self._group is not None and not self._stopping.is_set():
            self._group.start_soon(_guarded, work)

    async def stop(self) -> None:
        """Cancel every task and wait for them. Safe to call twice."""
        self._stopping.set()
        if self._host is not None:
            with anyio.CancelScope(shield=True):
                await self._host
            self._host = None

    async def _live(self, started: anyio.Event) -> None:
        async with anyio.create_task_group() as group:
            self._group = group
            started.set()
            await self._stopping.wait()
            self._group = None
            group.cancel_scope.cancel()


async def _guarded(work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except Exception:  # noqa: BLE001 - it is logged, and the others live on
        _log.exception("a background task of a source failed")
