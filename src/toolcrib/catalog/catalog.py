"""Catalog: immutable snapshot of all tools, identified by its version; and a session's, with pinned tool versions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, groupby, islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, overload

from msgspec import Struct, field

from ..core.bounded_mapping import BoundedMapping
from ..core.events import Problem
from ..core.json import canonical
from ..core.similar import fold, nearest, nearest_of
from ..core.tool import Kind, Tool
from ..core.versions import pin_of_session
from . import names as naming
from .parts import CatalogPart, categories_of, category_of, declared_names, parts_of

if TYPE_CHECKING:
    from .ranking.terms import Hit, IndexEntry

T = TypeVar("T")

BUILTIN_SOURCES = frozenset({"agent@toolcrib", "builtin", "jobs", "plan", "resources", "subagents", "toolcrib"})
"""The sources of the tools that come with Toolcrib or arrive by entry point."""

_MODULUS = 1 << 256
_CATEGORY_HITS = 20
"""Tools that come nearest, from which the categories of a query that nothing fits are taken."""
_BUILTIN_FACTOR = 0.9
"""Factor on the score of a tool that comes with Toolcrib, where the user has some: it comes after equally good ones."""
_TIE_MARGIN = 5
"""Tools beyond those that are asked for, among which a tie at the end may be settled."""
_KINDS_BY_HARM: tuple[Kind, ...] = ("read", "write", "destructive")
_MAX_COMPARED = 400
"""Names of a large catalog that a wrong one is compared with."""
_MAX_COMPARED_WHOLE: Final = 2000
"""Of more names than this only some that begin alike, or hold the wrong one, are looked at."""
_MAX_SPELLING_LENGTH = 512
"""Characters of the longest spelling of a tool that is known by more than its name."""

_MAX_DERIVED_CATALOGS: Final = 32
"""Derived catalogs that are kept: one for each set of pins, a catalog."""


class Searcher(Protocol):
    """Search engine of a catalog: the ranking index, or several of them."""

    def search(
        self,
        query: str,
        k: int,
        *,
        allowed: Callable[[str], bool] | None = None,
        boost: Callable[[str], float] | None = None,
        weak: bool = False,
    ) -> list[Hit]:
        """Return the best tools, best first; empty without a match, unless `weak` matches are wanted."""
        ...

    async def prepare(self, query: str) -> None:
        """Return when a search for `query` does not hold the event loop up any more."""
        ...

    @property
    def is_prepared(self) -> bool:
        """Whether the index is there, or made in some milliseconds."""
        ...


class About(Struct, frozen=True, kw_only=True):
    """A source's description of itself: untrusted text, for ranking and for the model once its tools are in use."""

    title: str = ""
    description: str = ""
    instructions: str = ""
    server: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Server information of MCP, for clients only."""


def digest_sum(total: int, *, added: Iterable[Tool] = (), removed: Iterable[Tool] = ()) -> int:
    """Return `total` changed by the digests of the tools that came and went.

    A sum modulo 2^256 is the same in any order, and changes by what came and went alone.
    """
    for tool in added:
        total += int.from_bytes(tool.digest)
    for tool in removed:
        total -= int.from_bytes(tool.digest)
    return total % _MODULUS


def version_of(total: int) -> str:
    """Return the version for a sum of digests: 16 hex digits."""
    return f"{total:064x}"[:16]


def entry_of(tool: Tool, about: About | None = None) -> IndexEntry:
    """Return the ranked text of a tool, and of its source."""
    from .ranking.terms import IndexEntry  # it brings the stemmer and word lists: only to search

    return IndexEntry(
        name=tool.name,
        leaf=tool.local_name,
        source=tool.source,
        source_title=about.title if about else "",
        source_description=(about.description or about.instructions) if about else "",
        title=tool.title,
        description=tool.description,
        tags=tool.tags,
        category=tool.category,
        schema=tool.input_schema,
    )


class Catalog(Mapping[str, Tool]):
    """All tools of one moment by name, in a stable order: sources as configured, tools as listed.

    A mapping: `len`, `in`, `[]` and iteration go by exact names; `find` takes other spellings too. Cheap to hold and to
    pass around; immutable. `withheld` holds the names of tools that may not be called, each with the reason; `about`
    the sources' descriptions of themselves.

    Sessions hold a catalog as long as they like; it never changes under them. `version` depends on the definitions
    alone: the same tools have the same version after a restart and in any order.
    """

    def __init__(
        self,
        tools: Mapping[str, Tool],
        *,
        version: str,
        searcher: Searcher,
        withheld: Mapping[str, Problem] | None = None,
        about: Mapping[str, About] | None = None,
        parts: Sequence[CatalogPart] | None = None,
    ) -> None:
        """`tools` is taken over and must not be changed afterwards; `parts` are the same, if they are there already."""
        self.tools: Mapping[str, Tool] = MappingProxyType(tools)
        self.version = version
        self.about: Mapping[str, About] = about or {}
        self.withheld: Mapping[str, Problem] = withheld or {}
        self._searcher = searcher
        if parts is not None:
            self.parts = parts

    @cached_property
    def parts(self) -> Sequence[CatalogPart]:
        """The tools by source, in their order."""
        return parts_of(self.tools)

    def __repr__(self) -> str:
        """Return version and size, for the screen."""
        return f"<Catalog {self.version}: {len(self)} tools>"

    def __len__(self) -> int:
        """Return the number of tools."""
        return len(self.tools)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self.tools)

    def __contains__(self, name: object) -> bool:
        """Whether a tool has exactly this name."""
        return name in self.tools

    def __getitem__(self, name: str) -> Tool:
        """Return the tool of exactly this name. Raises `KeyError` with the nearest names."""
        try:
            return self.tools[name]
        except KeyError:
            close = self.nearest(name)
            meant = f"; did you mean {', '.join(map(repr, close))}?" if close else ""
            raise KeyError(f"there is no tool {name!r}{meant}") from None

    def __eq__(self, other: object) -> bool:
        """Whether it is the same object: contents are compared with `version` and `diff`."""
        return self is other

    def __hash__(self) -> int:
        """Return the hash of the object: catalogs are keys of caches."""
        return id(self)

    @overload
    def get(self, name: str, default: None = None, /) -> Tool | None: ...
    @overload
    def get(self, name: str, default: Tool | T, /) -> Tool | T: ...
    def get(self, name: str, default: Any = None, /) -> Any:
        """Return the tool of exactly this name, else `default`."""
        return self.tools.get(name, default)

    def find(self, name: str) -> Tool | None:
        """Return the tool that `name` can only mean: its name, alias or op, or a spelling that no other tool has.

        A name that is withheld means nothing else, and one that names a source means no other source's tool.

        `git__push`, `git/push`, `Git-Push` and an alias lead to the same tool; a spelling of two tools leads to none.
        """
        tool = self.tools.get(name)
        if tool is not None or name in self.withheld:
            return tool
        meant = self._names_meant(name)
        return self.tools[meant[0]] if len(meant) == 1 else None

    @property
    def is_prepared(self) -> bool:
        """Whether `search` does not hold the event loop up; see `prepare`."""
        return self._searcher.is_prepared

    async def prepare(self, query: str) -> None:
        """Return when a search for `query` does not hold the event loop up any more: its needs are made in threads."""
        await self._searcher.prepare(query)

    def nearest(self, name: str, n: int = 3, *, allowed: Callable[[str], bool] | None = None) -> list[str]:
        """Return names that `name` may have meant, best first; only such as are `allowed`.

        Where none is alike, those that a search finds, unless its index has to be built first.

        Above `_MAX_COMPARED_WHOLE` names, only those are compared that begin alike or contain `name`, at most
        `_MAX_COMPARED`.
        """
        meant = [other for other in self._names_meant(name) if allowed is None or allowed(other)]
        name = name[:_MAX_SPELLING_LENGTH]
        if len(self.tools) <= _MAX_COMPARED_WHOLE:
            close = nearest(name, self.tools if allowed is None else filter(allowed, self.tools), n)
        else:
            form = fold(name)
            parts = sorted(self.parts, key=lambda part: name.startswith(part.source) and -len(part.source))
            for alike in ((part.neighbours(form) for part in parts), (part.names_containing(name) for part in parts)):
                pairs = (pair for pair in chain.from_iterable(alike) if allowed is None or allowed(pair[1]))
                if close := nearest_of(name, dict(islice(pairs, _MAX_COMPARED)), n):
                    break
        if not close and self.is_prepared:
            close = [hit.name for hit in self.search(name.replace("_", " "), n, allowed=allowed)]
        return list(dict.fromkeys([*meant, *close]))[:n]

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        allowed: Callable[[str], bool] | None = None,
        boost: Callable[[str], float] | None = None,
        weak: bool = False,
    ) -> list[Hit]:
        """Return the tools that match `query`, best first; empty without a match.

        `allowed` selects the names that may be listed; `boost` gives a factor by name, limited to a half and two;
        `weak` also returns matches that are too weak for an answer. Of tools that fit alike, those that can work come
        before those that cannot, the user's before ours, and of those with one score, the one that does least harm and
        then the one listed first.
        """

        def visible(name: str) -> bool:
            return name in self.tools and (allowed is None or allowed(name))

        factors = self._factors

        def moved(name: str) -> float:
            return (boost(name) if boost is not None else 1.0) * factors.get(name, 1.0)

        found = self._searcher.search(
            query, k + _TIE_MARGIN, allowed=visible, boost=moved if factors else boost, weak=weak
        )
        runs = ([*run] for _, run in groupby(found, key=lambda hit: (hit.exact, hit.score)))
        return [hit for run in runs for hit in (run if len(run) == 1 else sorted(run, key=self._tie_break_key))][
            : max(k, 0)
        ]

    def _tie_break_key(self, hit: Hit) -> tuple[int, int, int]:
        tool = self.tools[hit.name]
        number, part = self._parts_by_source[tool.source]
        return _KINDS_BY_HARM.index(tool.kind), number, part.places.get(hit.name, 0)

    @cached_property
    def _parts_by_source(self) -> Mapping[str, tuple[int, CatalogPart]]:
        return {part.source: (number, part) for number, part in enumerate(self.parts)}

    def nearest_categories(
        self, query: str, n: int = 5, *, allowed: Callable[[str], bool] | None = None
    ) -> dict[str, int]:
        """Return the categories where the answer to a `query` that nothing fits might be, likeliest first.

        With how many tools each has of those that are `allowed`. Fewer than `n` when the tools that come nearest are of
        fewer; when none comes near at all, the user's own and then the largest ones.
        """
        hits = self.search(query, _CATEGORY_HITS, allowed=allowed, weak=True)
        found = dict.fromkeys(category_of(self.tools[hit.name]) for hit in hits)
        counts = self.categories
        if allowed is not None:
            parts = [part for part in self.parts if not found or not found.keys().isdisjoint(part.categories)]
            counts = categories_of(t for part in parts for name, t in part.tools.items() if allowed(name))
        users = {name for part in self.parts if part.source not in BUILTIN_SOURCES for name in part.categories}
        names = list(found) or sorted(counts, key=lambda name: (name not in users, -counts[name], name))
        return {name: counts[name] for name in names[:n]}

    @cached_property
    def categories(self) -> Mapping[str, int]:
        """Return the number of tools of each category; a tool without one counts for its source."""
        counts: dict[str, int] = {}
        for part in self.parts:
            for name, count in part.categories.items():
                counts[name] = counts.get(name, 0) + count
        return counts

    @cached_property
    def _factors(self) -> Mapping[str, float]:
        """Factors on the scores of tools that come after others of equal fit.

        Names without a factor are not in it, so that most searches have none to apply.
        """
        has_users = any(part.source not in BUILTIN_SOURCES for part in self.parts)
        found: dict[str, float] = {}
        for part in self.parts:
            if has_users and part.source in BUILTIN_SOURCES:
                found.update((name, _BUILTIN_FACTOR * part.factors.get(name, 1.0)) for name in part.tools)
            else:
                found.update(part.factors)
        return found

    @cached_property
    def words(self) -> tuple[tuple[str, str], ...]:
        """The instructions of the sources that have some: they may change while the version stays."""
        return tuple((source, about.instructions) for source, about in self.about.items() if about.instructions)

    @cached_property
    def has_conditions(self) -> bool:
        """Whether some tool is made for certain kinds of session only, or needs what not every session has."""
        return any(part.has_conditions for part in self.parts)

    @cached_property
    def has_skills(self) -> bool:
        """Whether some entry is a skill."""
        return any(part.has_skills for part in self.parts)

    def _names_meant(self, name: str) -> Sequence[str]:
        """Return the names of the tools that `name` may mean.

        A tool's own name is untrusted: `evil` may call a tool `fs_write`, and that is not `fs__write`. Beside a source
        `a__b`, `a__b/c` is not a tool `b__c` of `a`.
        """
        folded = fold(name[:_MAX_SPELLING_LENGTH])
        if len(name) > _MAX_SPELLING_LENGTH:
            return ()
        meant = tuple(other for part in self.parts for other in part.names_spelled(folded))
        if naming.SEPARATOR not in name:
            return meant
        sources = [part.source for part in self.parts if name.startswith(part.source)]
        named = max((one for one in sources if not name[len(one) :][:1].isalnum()), key=len, default="")
        return [other for other in meant if _is_full_name(self.tools[other], name, folded, named)]


def _is_full_name(tool: Tool, name: str, folded: str, source: str) -> bool:
    """Whether `name`, which begins with that of `source` unless this is empty, is the whole name of `tool`."""
    whole = fold(tool.source + tool.local_name)
    is_whole = source in ("", tool.source) and folded in (fold(tool.name), whole)
    return is_whole or name in (tool.op, *tool.aliases, *declared_names(tool))


class PinnedCatalogs:
    """Derives catalogs, and keeps the newest. One for a crib.

    Kept by the identity of the catalog and the pins, for all sessions with the same ones.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._derived_catalogs = BoundedMapping[tuple[int, bytes], tuple[Catalog, Catalog]](_MAX_DERIVED_CATALOGS)

    def at(self, catalog: Catalog, versions: Mapping[str, str], name: str, version: str) -> Catalog:
        """Return `catalog` as one call has it that pins the tool `name` by itself, in a session with these pins."""
        tool = catalog.find(name) if version else None
        if tool is None:
            return self.of(catalog, versions)
        others = {pinned: wanted for pinned, wanted in versions.items() if catalog.find(pinned) is not tool}
        return self.of(catalog, {**others, tool.name: version})

    def of(self, catalog: Catalog, versions: Mapping[str, str]) -> Catalog:
        """Return `catalog` as a session with these pins has it; the same object for the same two."""
        if not versions:
            return catalog
        key = (id(catalog), canonical(versions))
        # The first of the two keeps its id from being reused.
        made = self._derived_catalogs[key] = self._derived_catalogs.get(key) or (
            catalog,
            _derive_catalog(catalog, versions),
        )
        return made[1]


def _derive_catalog(catalog: Catalog, versions: Mapping[str, str]) -> Catalog:
    """Return the catalog with older versions in the place of the pinned tools.

    A pin takes the definition of its version. Where only a migration of arguments from that version exists, the newest
    definition stays, and the pipeline migrates; any other pin withholds the tool.
    """
    tools, withheld = dict(catalog.tools), dict(catalog.withheld)
    meant = {tool.name: tool for name in versions if (tool := catalog.find(name)) is not None}
    changed: list[str] = []
    for name, tool in meant.items():
        wanted = pin_of_session(versions, tool)
        if wanted in ("", tool.version):
            continue
        changed.append(f"{name} {wanted}")
        older = next((other for other in tool.older if other.version == wanted), None)
        if older is not None:
            tools[name] = older.renamed(name)
        elif wanted not in tool.migrations:
            del tools[name]
            withheld[name] = _missing_version(tool, wanted)
    if not changed:
        return catalog
    digest = hashlib.sha256(canonical([catalog.version, sorted(changed)])).hexdigest()
    return Catalog(tools, version=digest[:16], searcher=catalog, withheld=withheld, about=catalog.about)


def _missing_version(tool: Tool, wanted: str) -> Problem:
    known = [other.version for other in (tool, *tool.older)]
    there = f"there is {', '.join(one or 'none' for one in known)}" if any(known) else "the tool has no versions"
    return Problem(
        source=tool.source,
        tool=tool.local_name,
        code="not_found",
        message=f"version {wanted} of {tool.name} is pinned and not there: {there}",
        hint="the pin is in the call, or in `versions` of the session or of the configuration",
    )
