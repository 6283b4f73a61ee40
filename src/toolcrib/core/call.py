"""The value that travels through the pipeline. Steps do not change it, they return a new one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from .context import Peer
from .permission import Decision, Grant
from .session import SessionState
from .tool import Kind, Tool

__all__ = ["Call"]


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request to run a tool. Lives from the way in to the record."""

    id: str
    name: str
    """As the caller wrote it; after `resolve`, the name of the real tool."""
    arguments: Any
    """As the caller sent them; after `validate`, a dict that the schema accepts, defaults included."""
    session: SessionState
    origin: str = "library"
    """The way in: library, mcp, cli."""
    started: float = 0.0
    """On the clock of `time.monotonic`; `deadline` too."""
    deadline: float = float("inf")
    """Set when the tool starts."""
    timeout: float | None = None
    """Seconds the caller allows; None takes the tool's or the session's."""
    requested: str = ""
    """The name at the way in, when a verb or an alias stood for the real tool."""
    verb: str = ""
    """The verb through which it came (`call`, `exec` …); empty for a call by the tool's own name."""
    parent: str = ""
    """The id of the call that made this one: a batch, a pipeline, a sub-agent."""
    only: Kind | None = None
    """`read`: the caller vouched for a call without side effects, anything else is refused."""
    tool: Tool | None = None
    decision: Decision | None = None
    grant: Grant | None = None
    dry_run: bool = False
    idempotency_key: str = ""
    reserved: bool = False
    """True once this call holds the receipt of its idempotency key."""
    repairs: tuple[str, ...] = ()
    """What `repair` changed, for the caller and the record."""
    peer: Peer | None = None
    progress_token: str | int | None = None
    meta: Mapping[str, Any] | None = None
    resume: Mapping[str, Any] | None = None

    @property
    def target(self) -> Tool:
        """The real tool. Only valid after `resolve`; raises `RuntimeError` before."""
        if self.tool is None:
            raise RuntimeError("the call was not resolved yet")
        return self.tool

    @property
    def remaining(self) -> float:
        """Seconds until the deadline, never negative."""
        return max(0.0, self.deadline - time.monotonic())

    def evolve(self, **changes: Any) -> Self:
        """Return a copy with `changes`. Twenty times as fast as `dataclasses.replace`, which the hot path feels."""
        new = object.__new__(type(self))
        object.__setattr__(new, "__dict__", self.__dict__ | changes)
        return new
