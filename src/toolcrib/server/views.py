"""What the server needs of a crib: the part of `toolcrib.crib.Toolcrib` that it uses, and no more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, Unpack

from ..core.events import CatalogChanged, SourceState
from ..core.result import ToolResult
from ..core.server_features import Offer
from ..core.tool import Tool
from ..crib import CallOptions, SessionOptions
from ..jobs.job import Jobs

__all__ = ["Caller", "CribView", "Lookup", "ResourcesView", "SessionView"]


class Lookup(Protocol):
    """The catalog, as far as a header check reads it."""

    def get(self, name: str, /) -> Tool | None:
        """Return the tool of that name."""
        ...


class Caller(Protocol):
    """What runs a call."""

    async def call(self, name: str, arguments: Mapping[str, Any], **options: Unpack[CallOptions]) -> ToolResult:
        """Run one call through the pipeline; every outcome is a result."""
        ...


class ResourcesView(Protocol):
    """What servers offer beside tools, as one conversation may know of it (`toolcrib.crib.resources.OpenShelf`)."""

    @property
    def version(self) -> int:
        """Another number whenever `offer` may be another."""
        ...

    @property
    def offer(self) -> Offer:
        """What there is, by the names to ask for."""
        ...

    @property
    def skills(self) -> tuple[Mapping[str, Any], ...]:
        """What `skills/list` answers with."""
        ...

    async def read(self, uri: str, **options: Unpack[CallOptions]) -> ToolResult:
        """Read a resource."""
        ...

    async def get(self, name: str, arguments: Mapping[str, str], **options: Unpack[CallOptions]) -> ToolResult:
        """Get a prompt."""
        ...

    async def complete(self, kind: str, named: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what a server proposes; raises `ToolFailure`."""
        ...

    async def watch(self, uri: str, changed: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Call `changed` whenever the resource did; raises `ToolFailure`."""
        ...


class SessionView(Caller, Protocol):
    """One conversation."""

    @property
    def shelf(self) -> ResourcesView:
        """What servers offer beside tools."""
        ...

    @property
    def listing(self) -> bytes:
        """JSON array of the MCP definitions shown now."""
        ...

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools shown now."""
        ...

    @property
    def instructions(self) -> str:
        """The profile's advice to the model."""
        ...

    @property
    def servers(self) -> Mapping[str, Mapping[str, Any]]:
        """How the MCP servers introduce themselves whose tools are in scope, by source."""
        ...


class CribView(Protocol):
    """A crib that is open."""

    @property
    def catalog(self) -> Lookup:
        """The current catalog."""
        ...

    @property
    def jobs(self) -> Jobs:
        """What runs in the background."""
        ...

    @property
    def sources(self) -> tuple[SourceState, ...]:
        """How the sources are doing."""
        ...

    def session(self, **options: Unpack[SessionOptions]) -> SessionView:
        """Open a conversation; raises `UsageError` for a profile or mode that does not exist."""
        ...

    def on_change(self, callback: Callable[[CatalogChanged], None], /) -> Callable[[], None]:
        """Hear of every new catalog; returns how to stop."""
        ...

    async def failing(self) -> Mapping[str, str]:
        """Return the parts that cannot work now, by name, each with its reason for the operator; takes 2 s at most."""
        ...

    async def settled(self, seconds: float, /) -> None:
        """Return when every source has published or failed once, at the latest after `seconds`."""
        ...
