"""Registry: gathers the listings of all sources and publishes catalogs.

Mutable, one for the life of a crib, used from one event loop. A change costs as much as it changes: names are settled
one by one and the catalog's version moves by the digests that came and went. An entry that cannot be taken is a
`Problem` and hides nothing beside it.

Two sources that claim one name: the one declared first has it, whichever arrives first, so that a restart gives the
same catalog. What happens to the other is the collision policy: `drop` (with a report), `prefix` (it gets the name of
its source before its own) or `error` (`UsageError`, nothing changes).

An `Overlay` is a second layer for one instance: its tools exist beside the registry's for sessions of that
instance only.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct, field

from ..core.builds import build_in_thread
from ..core.events import CatalogChanged, Problem
from ..core.json import canonical
from ..core.tool import Tool
from ..errors import UsageError
from . import names as naming
from .catalog import About, Catalog, digest_sum, entry_of, version_of
from .embedding.embedder import Meanings
from .parts import CatalogPart, PartedTools
from .preflight import look_alikes

if TYPE_CHECKING:
    from .index import Hit, Index, IndexEntry

__all__ = ["Collisions", "Overlay", "Registry"]

Collisions = Literal["drop", "prefix", "error"]

_logger = logging.getLogger(__name__)
_WORTH_KEEPING: Final = 1_000
"""Tools. The index of fewer is built sooner than a file is opened and checked: 0.1 ms a tool."""
_BUILT_AT_ONCE: Final = 200
"""Tools whose index is built in 10 ms; that of more is built in a thread."""
_COPIED: Final = 2_000
"""Tools of which all are copied at each change, in 0.1 ms."""
_APART: Final = 64
"""Of more tools, this part of them may have changed before all are copied again."""
_SILENT: Final = About()
"""Description of a source that has none."""


class _Layer(Struct):
    """Listing of one source."""

    order: int
    prefix: bool
    yields: bool = False
    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])
    """By the name that the tool claims."""
    about: About = _SILENT
    reported: tuple[Problem, ...] = ()
    withheld: Mapping[str, Problem] = field(default_factory=dict[str, Problem])
    part: Sequence[CatalogPart] | None = None
    """Its tools as they stand in the catalog, none or one part; None since a change."""


class Registry:
    """The set of all tools, by source."""

    def __init__(
        self,
        *,
        collisions: Collisions = "drop",
        separator: str = naming.SEPARATOR,
        reserved: Iterable[str] = (),
        kept: Path | None = None,
        meanings: Meanings | None = None,
    ) -> None:
        """`reserved` names belong to Toolcrib itself: no source gets one.

        `kept` is the file where the index outlives a restart, `meanings` the vectors for ranking by meaning.
        """
        self._collisions: Collisions = collisions
        self._separator = separator
        self._reserved = frozenset(reserved)
        self._layers: dict[str, _Layer] = {}
        self._declared = itertools.count()
        self._claims: dict[str, tuple[str, ...]] = {}
        """By name the sources that want it, first the one that has it. Names of the same sources share one tuple."""
        self._claimants: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._placed: dict[str, Tool] = {}
        self._clashes: dict[str, list[Problem]] = {}
        self._total = 0
        self._kept = kept
        self._meanings = meanings
        self._index: Index | None = None
        self._building: asyncio.Future[None] | None = None
        self._touched: set[str] = set()
        """Names that changed since the index began to be built."""
        self._stamped = ""
        self.snapshot: Catalog | None = None
        """The catalog as it was last asked for; None since a change."""
        self._copied: Mapping[str, Tool] = {}
        """All tools at an earlier moment."""
        self._changed: dict[str, Tool | None] = {}
        """What came, went (None) or changed since."""
        self._alike: tuple[Catalog, tuple[Problem, ...]] | None = None
        self._before: dict[str, Tool | None] = {}
        """Earlier tools of the names that the last change touched."""

    def declare(self, source: str, *, prefix: bool = True, yields: bool = False) -> None:
        """Give `source` its place in the order before it has listed anything; again is harmless.

        A source that `yields` leaves its names to every other source that wants them, without a report.
        """
        if source not in self._layers:
            self._layers[source] = _Layer(order=next(self._declared), prefix=prefix, yields=yields)

    def put(
        self,
        source: str,
        tools: Iterable[Tool],
        *,
        problems: Iterable[Problem] = (),
        withheld: Mapping[str, Problem] | None = None,
        about: About | None = None,
    ) -> bool:
        """Replace the whole listing of `source`; return whether the catalog changed.

        Tools that it listed before keep their places in any order of the new listing; new ones follow.

        `withheld` maps local names of tools that may not be called to the reason. Raises `UsageError` for an occupied
        name when collisions are errors; the registry is then unchanged.
        """
        self.declare(source)
        self._before = {}
        layer = self._layers[source]
        claimed, reported = self._claimed(source, layer, tools)
        if self._collisions == "error":
            self._refuse_taken(source, claimed)
        named = {self._name(source, layer, local): problem for local, problem in (withheld or {}).items()}
        changed = {name for name, tool in claimed.items() if not self._same(layer.tools.get(name), tool)}
        changed |= layer.tools.keys() - claimed.keys()
        new_about = about or _SILENT
        moved = bool(changed) or named != layer.withheld or new_about != layer.about
        known = [name for name in layer.tools if name in claimed]
        is_about_new, layer.about = new_about != layer.about, new_about
        for name in changed:
            self._reclaim(source, name, claimed.get(name), layer)
        layer.tools = {name: claimed[name] for name in (*known, *claimed)}
        layer.reported = (*problems, *reported)
        layer.withheld = named
        if is_about_new:
            self._read_again(name for claim in known for name in self._homes(claim))
        if moved:
            self.snapshot = None
        return moved

    def amend(self, source: str, added: Iterable[Tool] = (), removed: Iterable[str] = ()) -> bool:
        """Change the listing of `source` by these tools alone; return whether the catalog changed.

        The cost depends on the size of the change, not of the catalog. `removed` holds names as the source has them; a
        tool in `added` replaces the source's earlier one of the same name. Raises `UsageError` as `put` does.
        """
        self.declare(source)
        self._before = {}
        layer = self._layers[source]
        claimed, reported = self._claimed(source, layer, added)
        if self._collisions == "error":
            self._refuse_taken(source, claimed)
        leaving = [self._name(source, layer, local) for local in removed]
        gone = [name for name in leaving if name in layer.tools and name not in claimed]
        changed = [name for name, tool in claimed.items() if not self._same(layer.tools.get(name), tool)]
        for name in (*gone, *changed):
            self._reclaim(source, name, claimed.get(name), layer)
        if reported:
            layer.reported = (*layer.reported, *reported)
        if gone or changed:
            self.snapshot = None
        return bool(gone or changed)

    def held(self, source: str, tools: Iterable[Tool]) -> tuple[Tool, ...]:
        """Return `tools`, which `source` has just put, as they are held here: for a caller that keeps them, once each.

        Their names are those in the catalog. One that was not taken is returned as it is.
        """
        layer, found = self._layers[source], list[Tool]()
        for tool in tools:
            held = layer.tools.get(self._name(source, layer, tool.local_name), tool)
            found.append(held if held.input_schema is tool.input_schema else tool)
        return tuple(found)

    @property
    def last_change(self) -> CatalogChanged:
        """The effect of the newest `put`, `amend` or `remove`, computed from the touched names only."""
        now, before = self._placed, self._before
        return CatalogChanged(
            version=version_of(self._total),
            added=tuple(name for name, old in before.items() if old is None and name in now),
            removed=tuple(name for name, old in before.items() if old is not None and name not in now),
            changed=tuple(
                name
                for name, old in before.items()
                if old is not None and name in now and old.digest != now[name].digest
            ),
        )

    def remove(self, source: str) -> bool:
        """Forget `source`; return whether the catalog changed."""
        if source not in self._layers:
            return False
        changed = self.put(source, ())
        del self._layers[source]
        return changed

    @property
    def catalog(self) -> Catalog:
        """The current snapshot; the same object until something changes."""
        if self.snapshot is None:
            layers = sorted(self._layers.values(), key=lambda layer: layer.order)
            withheld = {name: problem for layer in layers for name, problem in layer.withheld.items()}
            about = {name: layer.about for name, layer in self._layers.items() if layer.about != _SILENT}
            parts = tuple(part for layer in layers for part in self._part(layer))
            self.snapshot = Catalog(
                self._tools_of(parts), version=version_of(self._total), searcher=self,
                withheld=withheld, about=about, parts=parts,
            )  # fmt: skip
        return self.snapshot

    def _tools_of(self, parts: Sequence[CatalogPart]) -> Mapping[str, Tool]:
        """Return all tools in order, with look-ups in one dictionary unless little of a large one changed."""
        if len(self._placed) > _COPIED and len(self._changed) * _APART < len(self._placed):
            return PartedTools(parts, self._copied, dict(self._changed))
        tools: dict[str, Tool] = {}
        for part in parts:
            tools.update(part.tools)
        self._copied = tools
        self._changed.clear()
        return tools

    @property
    def total(self) -> int:
        """The sum of all digests: what `Catalog.version` is made of."""
        return self._total

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Everything that could not be taken, by source."""
        clashes = tuple(problem for found in self._clashes.values() for problem in found)
        reported = (problem for layer in self._layers.values() for problem in layer.reported)
        withheld = (problem for layer in self._layers.values() for problem in layer.withheld.values())
        return (*reported, *withheld, *clashes, *self._look_alikes())

    def _look_alikes(self) -> tuple[Problem, ...]:
        """Return what looks alike, looked for again when the tools have changed since."""
        catalog = self.catalog
        if self._alike is None or self._alike[0] is not catalog:
            self._alike = (catalog, tuple(look_alikes(catalog.tools.values(), self._reserved)))
        return self._alike[1]

    def search(
        self,
        query: str,
        k: int,
        *,
        allowed: Callable[[str], bool] | None = None,
        boost: Callable[[str], float] | None = None,
        weak: bool = False,
    ) -> list[Hit]:
        """Rank with the index, which is opened or built at the first search and kept up to date from then on."""
        if self._index is None:
            self._index = self._new_index()
        near = self._meanings.near(query) if self._meanings is not None else None
        hits = self._index.search(query, k, allowed=allowed, boost=boost, near=near, weak=weak)
        if self._meanings is not None:
            self._meanings.want(hit.name for hit in hits)
        return hits

    @property
    def is_prepared(self) -> bool:
        """Whether a search does not hold the event loop up: the index is there, or made in some milliseconds."""
        return self._index is not None or len(self._placed) < _BUILT_AT_ONCE

    def _touch(self, name: str) -> None:
        if self._building is not None:
            self._touched.add(name)

    async def prepare(self, query: str) -> None:
        """Build the index in a thread, unless it is there; what changes meanwhile is changed in it at the end.

        A search that comes first builds it at once: 5 s for 100,000 tools. Where tools are ranked by meaning, the
        vectors of `query` are made in a thread as well.
        """
        if not self.is_prepared:
            if self._building is None:
                self._building = asyncio.ensure_future(self._build())
            await asyncio.shield(self._building)
        if self._meanings is not None:
            await self._meanings.prepare(query)

    async def _build(self) -> None:
        self._touched.clear()
        index = self._new_index()
        try:
            await build_in_thread(index.prepare)
            if self._index is None:  # else a search did not wait
                gone = [name for name in self._touched if name not in self._placed and name in index]
                index.update((self._entry(self._placed[name]) for name in self._touched & self._placed.keys()), gone)
                self._index = index
        finally:
            self._building = None

    def _new_index(self) -> Index:
        from .index import Index  # it brings the stemmer and word lists: only to search

        self._stamped = self._stamp()
        about = {source: layer.about for source, layer in self._layers.items()}
        entries = (entry_of(tool, about.get(tool.source)) for tool in tuple(self._placed.values()))
        kept = self._kept if len(self._placed) >= _WORTH_KEEPING else None
        return Index(entries, path=kept, stamp=self._stamped)

    def keep(self) -> None:
        """Write the index to its file if it has changed since: for the end of a crib's life. Never raises."""
        if self._index is None or self._kept is None or len(self._placed) < _WORTH_KEEPING:
            return
        if self._stamped == (stamp := self._stamp()):
            return
        try:
            self._index.save(self._kept, stamp)
        except OSError as error:
            _logger.warning("the ranking index cannot be kept in %s: %s", self._kept, error)
        else:
            self._stamped = stamp

    def _stamp(self) -> str:
        """Return the stamp of the index: a hash of every definition, and each source's description of itself."""
        parts = sorted(
            (name, layer.about.title, layer.about.description, layer.about.instructions)
            for name, layer in self._layers.items()
            if layer.about != _SILENT
        )
        return f"{self._total:064x} {hashlib.sha256(canonical(parts)).hexdigest()}"

    def _entry(self, tool: Tool) -> IndexEntry:
        layer = self._layers.get(tool.source)
        return entry_of(tool, layer.about if layer else None)

    def _read_again(self, names: Iterable[str]) -> None:
        """Rank these anew: the description of their source changed."""
        for name in names:
            self._touch(name)
            entry = self._entry(self._placed[name])
            if self._index is not None:
                self._index.add(entry)
            if self._meanings is not None:
                self._meanings.put(entry)

    def _part(self, layer: _Layer) -> Sequence[CatalogPart]:
        """Return the tools of a source that have a name, in its order."""
        if layer.part is None:
            ordered: dict[str, Tool] = {}
            for claim, tool in layer.tools.items():
                for name in self._homes(claim):
                    if self._placed[name].source == tool.source:
                        ordered[name] = self._placed[name]
            layer.part = (CatalogPart(ordered),) if ordered else ()
            for part in layer.part:
                part.prepare()
        return layer.part

    def _name(self, source: str, layer: _Layer, local: str) -> str:
        return naming.qualify(source, local, separator=self._separator, prefix=layer.prefix)

    def _claimed(self, source: str, layer: _Layer, tools: Iterable[Tool]) -> tuple[dict[str, Tool], list[Problem]]:
        claimed: dict[str, Tool] = {}
        reported: list[Problem] = []
        for tool in tools:
            name = self._name(source, layer, tool.local_name)
            if name in self._reserved:
                reason = f"the name {name} belongs to Toolcrib"
                reported.append(_clash(source, tool, "reserved", reason))
            elif name in claimed:
                reason = f"{claimed[name].local_name} has the name {name} already"
                reported.append(_clash(source, tool, "collision", reason))
            else:
                claimed[name] = tool.renamed(name)
        return claimed, reported

    def _refuse_taken(self, source: str, claimed: Mapping[str, Tool]) -> None:
        for name in () if self._layers[source].yields else claimed:
            others = [
                other for other in self._claims.get(name, ()) if other != source and not self._layers[other].yields
            ]
            if others:
                raise UsageError(f"{source}: a tool named {name} exists already, from {others[0]}; rename one of them")

    def _reclaim(self, source: str, name: str, tool: Tool | None, layer: _Layer) -> None:
        """Let `source` claim `name` with `tool`, or release it, and determine its present owner."""
        for home in self._homes(name):
            self._unplace(home)
        others = [claimant for claimant in self._claims.pop(name, ()) if claimant != source]
        if tool is None:
            layer.tools.pop(name, None)
        else:
            layer.tools[name] = tool
            others.append(source)
            others.sort(key=lambda claimant: (self._layers[claimant].yields, self._layers[claimant].order))
        claims = tuple(others)
        if claims:
            self._claims[name] = self._claimants.setdefault(claims, claims)
        self._settle(name, claims)
        for changed in (source, *claims):
            self._layers[changed].part = None

    def _settle(self, name: str, claims: Sequence[str]) -> None:
        self._clashes.pop(name, None)
        for rank, source in enumerate(claims):
            tool = self._layers[source].tools[name]
            home = name if rank == 0 else self._second_name(source, tool)
            if home and home not in self._placed:
                self._place(home, tool)
            elif not self._layers[source].yields:
                reason = f"{claims[0]} has the name {name} already"
                self._clashes.setdefault(name, []).append(_clash(source, tool, "collision", reason))

    def _homes(self, name: str) -> list[str]:
        """Return the names in the catalog of the tools that claim `name`."""
        found = list[str]()
        for rank, source in enumerate(self._claims.get(name, ())):
            tool = self._layers[source].tools[name]
            home = name if rank == 0 else self._second_name(source, tool)
            placed = self._placed.get(home)
            if placed is not None and (placed.source, placed.local_name) == (tool.source, tool.local_name):
                found.append(home)
        return found

    def _second_name(self, source: str, tool: Tool) -> str:
        if self._collisions != "prefix":
            return ""
        return naming.qualify(source, tool.local_name, separator=self._separator)

    def _place(self, name: str, tool: Tool) -> None:
        placed = tool.renamed(name)
        self._before.setdefault(name, None)
        self._placed[name] = self._changed[name] = placed
        self._total = digest_sum(self._total, added=[placed])
        self._touch(name)
        if self._index is not None:
            self._index.add(self._entry(placed))
        if self._meanings is not None:
            self._meanings.put(self._entry(placed))

    def _unplace(self, name: str) -> None:
        tool = self._placed.pop(name)
        self._changed[name] = None
        self._before.setdefault(name, tool)
        self._total = digest_sum(self._total, removed=[tool])
        self._touch(name)
        if self._index is not None:
            self._index.remove(name)
        if self._meanings is not None:
            self._meanings.drop(name)

    @staticmethod
    def _same(old: Tool | None, new: Tool) -> bool:
        return old is new or (old is not None and old.digest == new.digest)


class Overlay:
    """The tools of one instance over the tools of all. Its own never take a name that the lower layer has."""

    def __init__(self, lower: Registry) -> None:
        """`lower` lives at least as long."""
        self._lower = lower
        self._own = Registry()
        self._catalog: Catalog | None = None
        self._seen: tuple[Catalog, Catalog] | None = None

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
            _clash(tool.source, tool, "collision", f"{below.tools[name].source} has the name {name} already")
            for name, tool in self._own.catalog.tools.items()
            if name in below.tools
        )
        return (*self._own.problems, *hidden)

    @property
    def catalog(self) -> Catalog:
        """Both layers as one snapshot; the same object until one of them changes."""
        below, own = self._lower.catalog, self._own.catalog
        if self._catalog is None or self._seen is None or self._seen[0] is not below or self._seen[1] is not own:
            extra = {name: tool for name, tool in own.tools.items() if name not in below.tools}
            total = digest_sum(self._lower.total, added=extra.values())
            self._catalog = Catalog(
                {**below.tools, **extra},
                version=version_of(total),
                searcher=self,
                withheld={**own.withheld, **below.withheld},
                about={**below.about, **own.about},
            )
            self._seen = (below, own)
        return self._catalog

    @property
    def is_prepared(self) -> bool:
        """Whether the lower layer is; that of one instance is small."""
        return self._lower.is_prepared

    async def prepare(self, query: str) -> None:
        """Prepare the search of the lower layer."""
        await self._lower.prepare(query)

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
        own = self._own.search(query, k, allowed=allowed, boost=boost, weak=weak)
        hits = [*own, *self._lower.search(query, k, allowed=allowed, boost=boost, weak=weak)]
        unique = {hit.name: hit for hit in sorted(hits, key=lambda hit: (not hit.exact, -hit.score))}
        return list(unique.values())[:k]


def _clash(source: str, tool: Tool, code: str, reason: str) -> Problem:
    return Problem(
        source=source,
        tool=tool.local_name,
        code=code,
        message=f"not offered: {reason}",
        hint="rename the tool, or give its source another name",
    )
