"""Where accepted jobs wait for a process that carries them out, and the plainest queue: this process, in turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import anyio

from ..sources.background import Background

__all__ = ["Carry", "Gone", "LocalQueue", "Offer", "Queue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A job to be had, under this claim."""

    id: str
    claim: int
    principal: str


Carry = Callable[[str, int], Awaitable[None]]
"""Carries out the job with this id, if it can be had under this claim. Never raises but when it is cancelled."""

Gone = Callable[[Collection[str]], Awaitable[Collection[str]]]
"""Says which of these workers are gone."""


class Queue(Protocol):
    """Brings every job that is offered to one process that carries it; an offer that is made twice counts once.

    A process that dies with a job may leave it in the queue, or may not: its claim is void then, and whoever sees that
    offers the job anew.
    """

    async def open(self, carry: Carry, worker: str) -> None:
        """Begin to take jobs; `worker` names this process. Raises `UsageError` when that is impossible here."""
        ...

    async def offer(self, offers: Sequence[Offer]) -> None:
        """Let jobs be had."""
        ...

    async def tidy(self, gone: Gone) -> None:
        """Free what workers that are gone hold, and forget what has ended. Called now and then."""
        ...

    async def close(self) -> None:
        """Take no further job; return when every carrying has returned."""
        ...


class LocalQueue:
    """Carries everything in this process, `working` jobs of one principal at a time."""

    def __init__(self, working: int) -> None:
        self._limits = defaultdict[str, anyio.Semaphore](lambda: anyio.Semaphore(working))
        self._tasks = Background()
        self._carry: Carry | None = None
        self._offered: set[tuple[str, int]] = set()

    async def open(self, carry: Carry, worker: str) -> None:
        """Begin; there is nobody to share with."""
        self._carry = carry
        await self._tasks.start()

    async def offer(self, offers: Sequence[Offer]) -> None:
        """Begin each as soon as its principal has room."""
        for offer in offers:
            key = (offer.id, offer.claim)
            if key not in self._offered:
                self._offered.add(key)
                self._tasks.spawn(lambda offer=offer: self._take(offer))

    async def tidy(self, gone: Gone) -> None:
        """Nobody else takes from this queue, so nobody leaves anything in it."""

    async def close(self) -> None:
        """Cancel what waits for its turn."""
        self._carry = None
        await self._tasks.stop()

    async def _take(self, offer: Offer) -> None:
        try:
            async with self._limits[offer.principal]:
                if self._carry is not None:
                    await self._carry(offer.id, offer.claim)
        finally:
            self._offered.discard((offer.id, offer.claim))
