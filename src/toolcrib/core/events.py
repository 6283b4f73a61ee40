"""Events and their listeners: small frozen facts, and callbacks called in order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Generic, Literal, TypeVar

from msgspec import Struct

from ..errors import UsageError

_logger = logging.getLogger(__name__)

_Event = TypeVar("_Event")


class Problem(Struct, frozen=True, kw_only=True):
    """Something that could not be loaded, with its reason; everything else continues to work."""

    source: str
    code: str
    """`bad_tool`, `bad_schema`, `too_large`, `duplicate`, `collision`, `quarantined`, `unreviewed` …"""
    message: str
    tool: str = ""
    hint: str = ""
    outage: str = ""
    """Reason why the whole source is missing, as a model may read it; empty for other problems."""


class SourceState(Struct, frozen=True, kw_only=True):
    """State of one source."""

    source: str
    kind: str
    """`python`, `mcp` …"""
    state: Literal["cached", "connecting", "ready", "stale", "failed", "needs_login", "closed"]
    """`cached`: listed from disk, not connected yet. `stale`: listed before, unreachable now.

    `needs_login`: a person has to log in; `detail` has the command.
    """
    tools: int = 0
    detail: str = ""
    outage: str = ""
    """Reason why calls of its tools fail, as a model may read it ("github is down: …"); empty while they work."""
    hint: str = ""
    """The remedy for the outage, with its command."""


class CatalogChanged(Struct, frozen=True, kw_only=True):
    """The catalog has another version."""

    version: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


class CallFinished(Struct, frozen=True, kw_only=True):
    """End of one call, with any outcome. `entity` and `action` are those of the tool's op."""

    call_id: str
    session: str
    tool: str
    """Empty when there was no such tool."""
    requested: str
    """The name that was asked for."""
    op: str
    entity: str
    action: str
    kind: str
    """`read`, `write` or `destructive`."""
    outcome: str
    """`ok`, `input_required`, or the error's code."""
    latency_ms: float


Event = CallFinished | CatalogChanged | Problem | SourceState


class Listeners(Generic[_Event]):
    """The subscribers of one kind of event. Used from the crib's event loop."""

    def __init__(self) -> None:
        """Start with none."""
        self.callbacks: dict[object, Callable[[_Event], None]] = {}
        """By the token of each."""

    def __bool__(self) -> bool:
        """Whether anybody listens."""
        return bool(self.callbacks)

    def add(self, callback: Callable[[_Event], None]) -> Callable[[], None]:
        """Call `callback` with every event from now on; returns what ends it. Raises `UsageError` for an async one."""
        if iscoroutinefunction(callback):
            raise UsageError("a subscriber is called and not awaited; use `def`, and start a task in it")
        token = object()
        self.callbacks[token] = callback

        def end() -> None:
            self.callbacks.pop(token, None)

        return end

    def tell_of(self, made: Callable[[], _Event]) -> None:
        """Send the event that `made` returns, created only if there are listeners. Never raises."""
        if self.callbacks:
            self.tell(made())

    def tell(self, event: _Event) -> None:
        """Call every listener. Never raises.

        In the order of their registration, on the event loop: a slow one holds up the call whose event it is.
        """
        for callback in tuple(self.callbacks.values()):
            try:
                callback(event)
            except Exception:
                _logger.exception("a subscriber failed on %s", type(event).__name__)
