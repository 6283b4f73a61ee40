"""Intent of a call that changes nothing but the store: recorded with what the call changes there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Intent(Protocol):
    """The note that a call is about to change the store. Belongs to one call.

    Raises `ToolFailure`, and then nothing was stored: `storage` if that is impossible now, `conflict` where another
    process has begun the call.
    """

    async def run(self, change: Callable[[Any], T]) -> T:
        """Return `change(transaction)`, in one transaction with the intent if it is the first change of the call.

        The disk has both with the record of the call at the latest, for which its caller waits.
        """
        ...

    async def record(self) -> None:
        """Record the intent by itself, before a change that is a transaction of its own."""
        ...
