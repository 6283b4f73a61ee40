"""One request of a client while it is being answered, however the bytes travel."""

from __future__ import annotations

from abc import ABC, abstractmethod

import anyio

from ..jsonrpc import Id

__all__ = ["Exchange"]


class Exchange(ABC):
    """Where the messages of one request go. Lives from the request to its answer.

    `scope` is the cancel scope around the work; withdrawing the request cancels it.
    """

    __slots__ = ("ended", "is_overloaded", "request_id", "scope", "withdrawn")

    def __init__(self, scope: anyio.CancelScope) -> None:
        self.scope = scope
        self.request_id: Id = ""
        self.ended = False
        """True once the answer is on its way; what is still done then is done for a later request."""
        self.is_overloaded = False
        """True when the request was refused because too much is going on; the client may send it again."""
        self.withdrawn = False
        """True once the client has withdrawn the request."""

    def withdraw(self) -> None:
        """End the work because the client took the request back; does nothing once it was answered."""
        if not self.ended:
            self.withdrawn = True
            self.scope.cancel()

    @abstractmethod
    async def tell(self, message: bytes) -> None:
        """Send a notification that belongs to the request; it may be dropped when the client does not keep up."""

    @abstractmethod
    async def ask(self, message: bytes) -> None:
        """Send a request of ours that belongs to the request; raises `ToolFailure` when it cannot get there."""

    @abstractmethod
    async def answer(self, message: bytes) -> None:
        """Send the final answer and end the exchange before its work has ended."""
