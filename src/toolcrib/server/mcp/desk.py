"""What the server needs of a crib: the part of `toolcrib.crib.Toolcrib` that it uses, and no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, Unpack

from ...core.events import CatalogChanged, SourceState
from ...core.result import ToolResult
from ...core.tool import Tool
from ...crib import CallOptions, SessionOptions

__all__ = ["Desk", "DeskSession", "Lookup"]


class Lookup(Protocol):
    """The catalog, as far as a header check reads it."""

    def get(self, name: str, /) -> Tool | None:
        """Return the tool of that name."""
        ...


class DeskSession(Protocol):
    """One conversation at the desk."""

    @property
    def listing(self) -> bytes:
        """JSON array of the MCP definitions shown now."""
        ...

    @property
    def instructions(self) -> str:
        """The profile's advice to the model."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any], **options: Unpack[CallOptions]) -> ToolResult:
        """Run one call through the pipeline; every outcome is a result."""
        ...


class Desk(Protocol):
    """A crib that is open."""

    @property
    def catalog(self) -> Lookup:
        """The current catalog."""
        ...

    @property
    def sources(self) -> tuple[SourceState, ...]:
        """How the sources are doing."""
        ...

    def session(self, **options: Unpack[SessionOptions]) -> DeskSession:
        """Open a conversation; raises `UsageError` for a profile or mode that does not exist."""
        ...

    def on_change(self, callback: Callable[[CatalogChanged], None], /) -> Callable[[], None]:
        """Hear of every new catalog; returns how to stop."""
        ...

    async def settled(self, seconds: float, /) -> None:
        """Return when every source has published or failed once, at the latest after `seconds`."""
        ...
