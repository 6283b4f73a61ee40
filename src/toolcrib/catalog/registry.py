"""Registry: gathers the listings of all sources and publishes catalogs.

Mutable, one for the life of a crib, used from one event loop. A change costs as much as it changes: names are settled
one by one and the catalog's version moves by the digests that came and went. An entry that cannot be taken is a
`Problem` and hides nothing beside it.

Two sources that claim one name: the one declared first has it, whichever arrives first, so that a restart gives the
same catalog. The tool of the other is left out and reported, and has the name once the first source is gone.

    a source lists ── ingest (crib/catalog_ingest.py: pins, preflight) ──► claim ──► take
    take     _reclaim for each name that changed ──► ToolTable, SearchIndex.note
    catalog  the parts of all sources in the order of their declaration ──► an immutable `Catalog`, kept until a change

`claim` names and hashes the tools, which takes long for many and may be done in slices of the event loop; `take` is
short and is done in one go.
"""

from __future__ import annotations

import hashlib
import itertools
import operator
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from ..core.builds import build_at_once, build_in_slices
from ..core.events import CatalogChanged, Problem
from ..core.json import canonical
from ..core.tool import Tool
from . import names as naming
from .catalog import About, Catalog, digest_sum, entry_of, version_of
from .parts import CatalogPart, ToolTable
from .preflight import compared
from .search_index import SearchIndex

if TYPE_CHECKING:
    from .embedding.vectors import Vectors
    from .index import IndexEntry

_NO_ABOUT: Final = About()
"""Description of a source that has none."""


class _SourceEntry(Struct):
    """Listing of one source.

    `order` is the place among the sources; it decides who has a name that two claim.
    """

    order: int
    prefix: bool
    """Whether the catalog's names of its tools begin with the source's name."""
    yields: bool = False
    """Whether it leaves its names to every other source that wants them."""
    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])
    """By the name that the tool claims."""
    about: About = _NO_ABOUT
    reported: tuple[Problem, ...] = ()
    """What could not be taken of its listing."""
    withheld: Mapping[str, Problem] = field(default_factory=dict[str, Problem])
    """Reasons of the tools that may not be called, by the catalog's name."""
    part: Sequence[CatalogPart] | None = None
    """Its tools as they stand in the catalog, none or one part; None since a change."""


class Claim(Struct, frozen=True, kw_only=True):
    """A listing of one source that is ready for `Registry.take`: named, hashed, and as a part of the catalog."""

    tools: Mapping[str, Tool]
    """By the name that the tool claims."""
    reported: tuple[Problem, ...]
    """The tools that get no name."""
    part: CatalogPart | None
    """The tools as they stand in the catalog if no other source has a name of theirs."""

    def held(self, tools: Iterable[Tool]) -> tuple[Tool, ...]:
        """Return `tools`, of the same listing, as they are claimed: for a caller that keeps them, once each.

        One that was not taken is returned as it is.
        """
        claimed = {tool.local_name: tool for tool in self.tools.values()}
        pairs = ((tool, claimed.get(tool.local_name, tool)) for tool in tools)
        return tuple(held if held.input_schema is tool.input_schema else tool for tool, held in pairs)


class Registry:
    """The set of all tools, by source.

    `snapshot` is None from a change until `catalog` is asked for: several changes in a row make one catalog.
    """

    def __init__(
        self,
        *,
        reserved: Iterable[str] = (),
        kept: Path | None = None,
        meanings: Vectors | None = None,
    ) -> None:
        """`reserved` names belong to Toolcrib itself: no source gets one.

        `kept` is the file where the index outlives a restart, `meanings` the vectors for ranking by meaning.
        """
        self._reserved = frozenset(reserved)
        self._layers: dict[str, _SourceEntry] = {}
        self._next_order = itertools.count()
        self._claims: dict[str, tuple[str, ...]] = {}
        """By name the sources that want it, first the one that has it. Names of the same sources share one tuple."""
        self._claimants: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._tools = ToolTable()
        self._clashes: dict[str, list[Problem]] = {}
        self._digest_sum = 0
        self.snapshot: Catalog | None = None
        """The catalog as it was last asked for; None since a change."""
        self._look_alike_cache: tuple[Catalog, tuple[Problem, ...]] | None = None
        self._earlier_tools: dict[str, Tool | None] = {}
        """Earlier tools of the names that the last change touched."""
        self.index = SearchIndex(self._tools.tools, self._entry, self._stamp, kept=kept, meanings=meanings)

    def declare(self, source: str, *, prefix: bool = True, yields: bool = False) -> None:
        """Give `source` its place in the order before it has listed anything; again is harmless.

        A source that `yields` leaves its names to every other source that wants them, without a report.
        """
        if source not in self._layers:
            self._layers[source] = _SourceEntry(order=next(self._next_order), prefix=prefix, yields=yields)

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

        `withheld` maps local names of tools that may not be called to the reason.
        """
        claim = build_at_once(self.claim(source, tools))
        return self.take(source, claim, problems=problems, withheld=withheld, about=about)

    def claim(self, source: str, tools: Iterable[Tool]) -> Generator[None, None, Claim]:
        """Make a listing of `source` ready for `take`, in steps between which the registry may change.

        Nothing changes here; changes before it is taken do not matter.

        A generator, to be driven by `core.builds`: at once, in slices, or in steps of the caller's own.
        """
        self.declare(source)
        layer = self._layers[source]
        claimed, reported = dict[str, Tool](), list[Problem]()
        for tool in tools:
            problem = self._add_named(source, layer, tool, claimed)
            reported += [problem] if problem else []
            yield
        part = self._expected_part(layer, claimed)
        if part is not None:
            yield from part.prepare()
        return Claim(tools=claimed, reported=tuple(reported), part=part)

    def _expected_part(self, layer: _SourceEntry, claimed: Mapping[str, Tool]) -> CatalogPart | None:
        """Return the tools as they stand in the catalog when they are taken, if no other source has their names."""
        tools = dict[str, Tool]()
        for name in (*(name for name in layer.tools if name in claimed), *claimed):
            tool, placed = claimed[name], self._tools.tools.get(name)
            tools[name] = placed if placed is not None and self._is_same_tool(placed, tool) else tool
        for part in layer.part or ():
            if len(part.tools) == len(tools) and all(map(operator.is_, part.tools.values(), tools.values())):
                return part
        return CatalogPart(tools) if tools else None

    def take(
        self,
        source: str,
        claim: Claim,
        *,
        problems: Iterable[Problem] = (),
        withheld: Mapping[str, Problem] | None = None,
        about: About | None = None,
    ) -> bool:
        """Replace the whole listing of `source` as `put` does, by one that `claim` made ready.

        A tool that is the same as before (equal digest) keeps its place and its entry in the index.
        """
        self.declare(source)
        self._earlier_tools = {}
        layer, claimed = self._layers[source], claim.tools
        named = {self._name(source, layer, local): problem for local, problem in (withheld or {}).items()}
        changed = [name for name, tool in claimed.items() if not self._is_same_tool(layer.tools.get(name), tool)]
        changed += [name for name in layer.tools if name not in claimed]
        new_about = about or _NO_ABOUT
        moved = bool(changed) or named != layer.withheld or new_about != layer.about
        known = [name for name in layer.tools if name in claimed]
        is_about_new, layer.about = new_about != layer.about, new_about
        for name in changed:
            self._reclaim(source, name, claimed.get(name), layer)
        layer.tools = {name: claimed[name] for name in (*known, *claimed)}
        layer.reported = (*problems, *claim.reported)
        layer.withheld = named
        if layer.part is None and claim.part is not None and self._is_placed(claim.part, layer):
            layer.part = (claim.part,)
        if is_about_new:
            for name in known:
                self.index.note(name)
        if moved:
            self.snapshot = None
        self.index.update()
        return moved

    def _is_placed(self, part: CatalogPart, layer: _SourceEntry) -> bool:
        """Whether the catalog has these tools of the source, in this order, and no others."""
        placed = map(self._tools.tools.get, part.tools)
        return list(part.tools) == list(layer.tools) and all(map(operator.is_, placed, part.tools.values()))

    def amend(self, source: str, added: Iterable[Tool] = (), removed: Iterable[str] = ()) -> bool:
        """Change the listing of `source` by these tools alone; return whether the catalog changed.

        The cost depends on the size of the change, not of the catalog. `removed` holds names as the source has them; a
        tool in `added` replaces the source's earlier one of the same name.
        """
        self.declare(source)
        self._earlier_tools = {}
        layer = self._layers[source]
        claimed = dict[str, Tool]()
        reported = [problem for tool in added if (problem := self._add_named(source, layer, tool, claimed))]
        leaving = [self._name(source, layer, local) for local in removed]
        gone = [name for name in leaving if name in layer.tools and name not in claimed]
        changed = [name for name, tool in claimed.items() if not self._is_same_tool(layer.tools.get(name), tool)]
        for name in (*gone, *changed):
            self._reclaim(source, name, claimed.get(name), layer)
        if reported:
            layer.reported = (*layer.reported, *reported)
        if gone or changed:
            self.snapshot = None
        self.index.update()
        return bool(gone or changed)

    @property
    def last_change(self) -> CatalogChanged:
        """The effect of the newest `put`, `amend` or `remove`, computed from the touched names only."""
        now, before = self._tools.tools, self._earlier_tools
        return CatalogChanged(
            version=version_of(self._digest_sum),
            added=tuple(name for name, old in before.items() if old is None and name in now),
            removed=tuple(name for name, old in before.items() if old is not None and name not in now),
            changed=tuple(
                name
                for name, old in before.items()
                if old is not None and name in now and old.digest != now[name].digest
            ),
        )

    def remove(self, source: str) -> bool:
        """Forget `source`; return whether the catalog changed.

        The names that it had go to the next source that wants them.
        """
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
            about = {name: layer.about for name, layer in self._layers.items() if layer.about != _NO_ABOUT}
            parts = tuple(part for layer in layers for part in self._part(layer))
            self.snapshot = Catalog(
                self._tools.snapshot(parts), version=version_of(self._digest_sum), searcher=self.index,
                withheld=withheld, about=about, parts=parts,
            )  # fmt: skip
        return self.snapshot

    @property
    def total(self) -> int:
        """The sum of all digests: what `Catalog.version` is made of."""
        return self._digest_sum

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Everything that could not be taken, by source, and names that look alike."""
        return (*self.failures, *self._look_alikes())

    @property
    def failures(self) -> tuple[Problem, ...]:
        """Everything that could not be taken, by source."""
        clashes = tuple(problem for found in self._clashes.values() for problem in found)
        reported = (problem for layer in self._layers.values() for problem in layer.reported)
        withheld = (problem for layer in self._layers.values() for problem in layer.withheld.values())
        return (*reported, *withheld, *clashes)

    def _look_alikes(self) -> tuple[Problem, ...]:
        """Return tools that look alike; they are searched again when the tools have changed since."""
        known = self._look_alike_cache
        if known is None or known[0] is not self.catalog:
            known = self._look_alike_cache = (self.catalog, build_at_once(self._compare_names(self.catalog)))
        return known[1]

    async def find_look_alikes(self) -> tuple[Problem, ...]:
        """Return tools that look alike, found in slices of the event loop; `problems` has them at once then."""
        while self._look_alike_cache is None or self._look_alike_cache[0] is not self.catalog:
            catalog = self.catalog
            self._look_alike_cache = (catalog, await build_in_slices(self._compare_names(catalog)))
        return self._look_alike_cache[1]

    def _compare_names(self, catalog: Catalog) -> Generator[None, None, tuple[Problem, ...]]:
        found: list[Problem] = []
        for problem in compared(catalog.tools.values(), self._reserved):
            yield
            if problem is not None:
                found.append(problem)
        return tuple(found)

    def _stamp(self) -> str:
        """Return the stamp of the index: a hash of every definition, and each source's description of itself.

        Equal for equal catalogs of two processes, so that a stored index is used again.
        """
        parts = sorted(
            (name, layer.about.title, layer.about.description, layer.about.instructions)
            for name, layer in self._layers.items()
            if layer.about != _NO_ABOUT
        )
        return f"{self._digest_sum:064x} {hashlib.sha256(canonical(parts)).hexdigest()}"

    def _entry(self, tool: Tool) -> IndexEntry:
        layer = self._layers.get(tool.source)
        return entry_of(tool, layer.about if layer else None)

    def _part(self, layer: _SourceEntry) -> Sequence[CatalogPart]:
        """Return the tools of a source that have a name, in its order.

        Made at once here, where no claim made it before: after a change of another source that took or gave a name.
        """
        if layer.part is None:
            placed = ((name, self._tools.tools[name], tool) for name, tool in layer.tools.items())
            owned = {name: owner for name, owner, tool in placed if owner.source == tool.source}
            layer.part = (CatalogPart(owned),) if owned else ()
            for part in layer.part:
                build_at_once(part.prepare())
        return layer.part

    def _name(self, source: str, layer: _SourceEntry, local: str) -> str:
        return naming.qualify(source, local, prefix=layer.prefix)

    def _add_named(self, source: str, layer: _SourceEntry, tool: Tool, claimed: dict[str, Tool]) -> Problem | None:
        """Add `tool` by its name in the catalog, with its digest computed; return why it gets none."""
        name = self._name(source, layer, tool.local_name)
        if name in self._reserved:
            return clash(source, tool, "reserved", f"the name {name} belongs to Toolcrib")
        if name in claimed:
            reason = f"{claimed[name].local_name} has the name {name} already"
            return clash(source, tool, "collision", reason)
        claimed[name] = named = tool.renamed(name)
        _ = named.digest
        return None

    def _reclaim(self, source: str, name: str, tool: Tool | None, layer: _SourceEntry) -> None:
        """Let `source` claim `name` with `tool`, or release it, and determine its present owner."""
        if tool is not None and name not in self._claims:
            layer.tools[name] = tool
            layer.part = None
            self._claims[name] = self._claimants.setdefault((source,), (source,))
            self._place(name, tool)
            return
        if name in self._claims:
            self._unplace(name)
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
        self._settle_owner(name, claims)
        for changed in (source, *claims):
            self._layers[changed].part = None

    def _settle_owner(self, name: str, claims: Sequence[str]) -> None:
        """Place the tool of the first claimant, and report those of the others."""
        self._clashes.pop(name, None)
        if not claims:
            return
        first, *others = claims
        self._place(name, self._layers[first].tools[name])
        reason = f"{first} has the name {name} already"
        found = [
            clash(source, self._layers[source].tools[name], "collision", reason)
            for source in others
            if not self._layers[source].yields
        ]
        if found:
            self._clashes[name] = found

    def _place(self, name: str, tool: Tool) -> None:
        placed = tool.renamed(name)
        self._earlier_tools.setdefault(name, None)
        self._tools.put(name, placed)
        self._digest_sum = digest_sum(self._digest_sum, added=[placed])
        self.index.note(name)

    def _unplace(self, name: str) -> None:
        tool = self._tools.pop(name)
        self._earlier_tools.setdefault(name, tool)
        self._digest_sum = digest_sum(self._digest_sum, removed=[tool])
        self.index.note(name)

    @staticmethod
    def _is_same_tool(old: Tool | None, new: Tool) -> bool:
        return old is new or (old is not None and old.digest == new.digest)


def clash(source: str, tool: Tool, code: str, reason: str) -> Problem:
    """Return the problem of a tool that gets no name."""
    return Problem(
        source=source,
        tool=tool.local_name,
        code=code,
        message=f"not offered: {reason}",
        hint="rename the tool, or give its source another name",
    )
