"""Event listeners: callbacks called in order; a failing one is logged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Generic, TypeVar

__all__ = ["Listeners"]

_logger: Final = logging.getLogger(__name__)

T = TypeVar("T")


class Listeners(Generic[T]):
    """The subscribers of one kind of event. Used from the crib's event loop."""

    def __init__(self) -> None:
        """Start with none."""
        self._callbacks: dict[object, Callable[[T], None]] = {}

    def __bool__(self) -> bool:
        """Whether anybody listens."""
        return bool(self._callbacks)

    def add(self, callback: Callable[[T], None]) -> Callable[[], None]:
        """Call `callback` with every event from now on; returns what ends it."""
        token = object()
        self._callbacks[token] = callback

        def end() -> None:
            self._callbacks.pop(token, None)

        return end

    def tell_of(self, made: Callable[[], T]) -> None:
        """Send the event that `made` returns, created only if there are listeners. Never raises."""
        if self._callbacks:
            self.tell(made())

    def tell(self, event: T) -> None:
        """Tell everybody. Never raises."""
        for callback in tuple(self._callbacks.values()):
            try:
                callback(event)
            except Exception:
                _logger.exception("a subscriber failed on %s", type(event).__name__)
