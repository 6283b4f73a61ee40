"""What a place that tools come from must do: list, call, tell of changes, close.

The contract that every kind passes (`tests/contract/`):

* `open` returns at once; it never waits for something slow or broken. Listings are published when they are known,
  the cached one first, and again whenever they change.
* `call` runs one tool and returns its result, or raises `ToolFailure`; it ends by the context's deadline, and when it
  is cancelled it tells the far end. It never runs a tool twice, unless the tool says that this is harmless. While it
  waits for its own start, `context.signal.is_starting` is true: a deadline that passes then says that nothing ran.
* One bad entry is a `Problem` in the listing; it never hides the good ones.
* `close` leaves no task and no process.

A source may also have `describe(tool, arguments) -> str | None`: what a call would send, for a dry run, without
secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..core.context import Context
from ..core.events import Problem, SourceState
from ..core.result import ToolResult
from ..core.server_features import NO_FEATURES, ServerFeatures
from ..core.tool import Tool

__all__ = ["Amendment", "Listing", "Publish", "Source"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Whole listing of one source. A later listing of the same source replaces it."""

    tools: tuple[Tool, ...]
    """With `name` equal to `local_name`: the registry gives them their names in the catalog."""
    problems: tuple[Problem, ...] = ()
    instructions: str = ""
    """The source's own advice to the model; untrusted text."""
    title: str = ""
    description: str = ""
    server: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """How an MCP server introduces itself (`Implementation`: name, title, version, websiteUrl, icons): for clients."""
    features: ServerFeatures = NO_FEATURES
    """Resources and prompts; a source with any has a property `features` (`core.server_features.WithFeatures`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amendment:
    """What came and went since the last listing, of a source that is trusted: for one that changes tool by tool."""

    added: tuple[Tool, ...] = ()
    """New tools, and those that are defined otherwise now."""
    removed: tuple[str, ...] = ()
    """Names as the source has them."""


Publish = Callable[[Listing], None]
"""Hands a listing to the registry; called on the event loop, never blocks."""


class Source(Protocol):
    """One place that tools come from. Opened once, closed once, used from one event loop."""

    @property
    def name(self) -> str:
        """The configured name: unique in a crib, and the namespace of its tools."""
        ...

    @property
    def state(self) -> SourceState:
        """How it is doing now."""
        ...

    async def open(self, publish: Publish) -> None:
        """Start; `publish` is called for the first listing and for every change until `close` returns."""
        ...

    async def ready(self) -> None:
        """Return when the first fresh listing was published or failed for good. The caller sets its own time limit."""
        ...

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run `tool` with validated `arguments`."""
        ...

    async def close(self) -> None:
        """Stop, wait for what must be waited for, and end every process that was started."""
        ...
