"""Overlay: the tools of one instance over those of all, for sessions of that instance only.

A session without an instance has the catalog of the `Registry` itself; one of an instance, that of its overlay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ..core.events import Problem
from ..core.tool import Tool
from .catalog import Catalog, digest_sum, version_of
from .registry import Registry, clash

if TYPE_CHECKING:
    from .index import Hit


class Overlay:
    """The tools of one instance over the tools of all. Its own never take a name that the lower layer has."""

    def __init__(self, lower: Registry) -> None:
        """`lower` lives at least as long."""
        self._lower = lower
        self._own = Registry()
        self._catalog: Catalog | None = None
        self._merged_from: tuple[Catalog, Catalog] | None = None

    def put(self, source: str, tools: Iterable[Tool], withheld: Mapping[str, Problem] | None = None) -> None:
        """Replace the listing of `source` for this instance alone; names are taken as they are.

        `withheld` maps names of tools that may not be called to the reason.
        """
        self._own.declare(source, prefix=False)
        self._own.put(source, tools, withheld=withheld)

    def remove(self, source: str) -> bool:
        """Forget `source` in this layer."""
        return self._own.remove(source)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is offered or withheld for this instance alone."""
        own = self._own.catalog
        return not own.tools and not own.withheld

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Tools that this layer could not add, names of the lower layer included."""
        below = self._lower.catalog
        hidden = tuple(
            clash(tool.source, tool, "collision", f"{below.tools[name].source} has the name {name} already")
            for name, tool in self._own.catalog.tools.items()
            if name in below.tools
        )
        return (*self._own.problems, *hidden)

    @property
    def catalog(self) -> Catalog:
        """Both layers as one snapshot; the same object until one of them changes."""
        below, own = self._lower.catalog, self._own.catalog
        if (
            self._catalog is None
            or self._merged_from is None
            or self._merged_from[0] is not below
            or self._merged_from[1] is not own
        ):
            extra = {name: tool for name, tool in own.tools.items() if name not in below.tools}
            total = digest_sum(self._lower.total, added=extra.values())
            self._catalog = Catalog(
                {**below.tools, **extra},
                version=version_of(total),
                searcher=self,
                withheld={**own.withheld, **below.withheld},
                about={**below.about, **own.about},
            )
            self._merged_from = (below, own)
        return self._catalog

    @property
    def is_prepared(self) -> bool:
        """Whether the lower layer is; that of one instance is small."""
        return self._lower.index.is_prepared

    async def prepare(self, query: str) -> None:
        """Prepare the search of the lower layer."""
        await self._lower.index.prepare(query)

    def search(
        self,
        query: str,
        k: int,
        *,
        allowed: Callable[[str], bool] | None = None,
        boost: Callable[[str], float] | None = None,
        weak: bool = False,
    ) -> list[Hit]:
        """Rank both layers as one list: exact names first, then by score."""
        own = self._own.index.search(query, k, allowed=allowed, boost=boost, weak=weak)
        hits = [*own, *self._lower.index.search(query, k, allowed=allowed, boost=boost, weak=weak)]
        unique = {hit.name: hit for hit in sorted(hits, key=lambda hit: (not hit.exact, -hit.score))}
        return list(unique.values())[:k]
