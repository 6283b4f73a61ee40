"""The server's view of an open crib: the members of `server.views.CribView` out of the crib's parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Unpack

from ..catalog.catalog import Catalog
from ..core.events import CatalogChanged, SourceState
from ..crib import Session, SessionOptions, Toolcrib
from ..jobs.job import Jobs

__all__ = ["Gateway"]


class Gateway:
    """Serves one crib, which is open and stays so."""

    def __init__(self, crib: Toolcrib) -> None:
        self.crib = crib
        """The crib itself."""

    @property
    def catalog(self) -> Catalog:
        """The current catalog."""
        return self.crib.catalog

    @property
    def jobs(self) -> Jobs:
        """Calls that run in the background."""
        return self.crib.jobs

    @property
    def sources(self) -> tuple[SourceState, ...]:
        """The state of every source."""
        return self.crib.tools.sources

    def session(self, **options: Unpack[SessionOptions]) -> Session:
        """Open a conversation; raises `UsageError` for a profile or mode that does not exist."""
        return self.crib.session(**options)

    def on_change(self, callback: Callable[[CatalogChanged], None], /) -> Callable[[], None]:
        """Call `callback` with every change of the catalog; return what ends the subscription."""
        return self.crib.tools.on_change(callback)

    async def failing(self) -> Mapping[str, str]:
        """Return the parts that cannot work now, by name, each with its reason. Takes at most 2 s."""
        reason = await self.crib.store.check()
        return {"store": reason} if reason else {}

    async def settled(self, seconds: float, /) -> None:
        """Return when every source has listed or failed once, at the latest after `seconds`."""
        await self.crib.tools.wait_ready(seconds)
