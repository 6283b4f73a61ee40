"""The tools by which models look after jobs, mounted with every crib and offered once some tool may become a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from ..catalog.catalog import Catalog
from ..core.events import CatalogChanged
from ..jobs.tools import JobHost, JobTools
from ..sources.base import Source

__all__ = ["Yard", "mount_jobs"]


class Yard(JobHost, Protocol):
    """What mounting them needs of a crib."""

    @property
    def catalog(self) -> Catalog:
        """What exists now."""
        ...

    async def mount_source(self, source: Source, *, prefix: bool, trusted: bool) -> None:
        """Mount a source."""
        ...

    def on_change(self, callback: Callable[[CatalogChanged], None]) -> Callable[[], None]:
        """Call `callback` with every change of the catalog."""
        ...


async def mount_jobs(crib: Yard) -> None:
    """Mount them behind every source that is there: what is shown already keeps its place."""
    tools = JobTools(crib)
    await crib.mount_source(tools, prefix=False, trusted=True)

    def look_at(names: Iterable[str]) -> None:
        catalog = crib.catalog
        if any(catalog.tools[name].background_after is not None for name in names):
            tools.offer()

    def follow(change: CatalogChanged) -> None:
        look_at((*change.added, *change.changed))

    crib.on_change(follow)
    look_at(crib.catalog.tools)
