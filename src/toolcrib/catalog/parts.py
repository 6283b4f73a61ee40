"""The tools of one source in a catalog, with what a catalog must know of them together.

A catalog is made anew at every change; its parts are kept until their own source changes, so that a change costs by the
size of the source and not by that of the catalog. `ToolTable` are the tools of all parts by name: a snapshot of them
costs as much as has changed.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Generator, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from functools import cached_property
from itertools import chain, groupby, islice
from typing import Final

from ..core.builds import build_at_once, build_in_slices, has_loop
from ..core.similar import fold, fold_all
from ..core.tool import EVERY_SESSION, Tool
from . import names as naming

_DEPRECATED: Final = 0.5
"""Factor on the score of a deprecated tool: it comes after equally good matches."""
_UNAVAILABLE: Final = 0.5
"""Factor on the score of a tool that cannot work as configured: it comes after what fits nearly as well and works."""

_STEP_TOOLS: Final = 200
"""Tools that are prepared in one step: about a millisecond."""
_MAX_RULE_SETS: Final = 64
"""Sets of rules whose denied tools are remembered: sessions with rules of their own have their own."""
_MAX_NEIGHBOURS: Final = 200
"""Names before a wrong one in the alphabet, and after it, that it is compared with."""
_MAX_COPIED_WHOLE: Final = 2_000
"""Tools of which all are copied at each change, in 0.1 ms."""
_MAX_CHANGED_SHARE: Final = 64
"""Of more tools, this part of them may have changed before all are copied again."""


class CatalogPart:
    """Tools that stand together in a catalog, of one source. Immutable.

    Everything derived is computed once and on demand (`cached_property`); `prepare` computes it ahead, in steps.
    """

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        """`tools` is not empty, and is not changed afterwards."""
        self.tools = tools
        self.source = next(iter(tools.values())).source
        self._denied: dict[Callable[[Tool], bool], frozenset[str]] = {}

    def denied_by(self, denies: Callable[[Tool], bool]) -> frozenset[str]:
        """Return the names of the tools that `denies` is true of; it is remembered, as to ask takes 4 µs a tool."""
        found = self._denied.get(denies)
        if found is None:
            if len(self._denied) >= _MAX_RULE_SETS:
                self._denied.clear()
            found = frozenset(name for name, tool in self.tools.items() if denies(tool))
            self._denied[denies] = found
        return found

    @cached_property
    def has_conditions(self) -> bool:
        """Whether some tool is made for certain kinds of session only, or needs what not every session has."""
        return any(
            tool.availability is not EVERY_SESSION and tool.availability != EVERY_SESSION
            for tool in self.tools.values()
        )

    @cached_property
    def has_skills(self) -> bool:
        """Whether some entry is a skill."""
        return any(tool.capability.type == "SKILL" for tool in self.tools.values())

    @cached_property
    def core(self) -> tuple[Tool, ...]:
        """Core tools, as their own definitions say."""
        return tuple(tool for tool in self.tools.values() if tool.core)

    @cached_property
    def categories(self) -> Mapping[str, int]:
        """Number of tools of each category."""
        return categories_of(self.tools.values())

    @cached_property
    def factors(self) -> Mapping[str, float]:
        """Factors on the scores of tools that come after others of equal fit, by name."""
        found: dict[str, float] = {}
        for name, tool in self.tools.items():
            factor = (_DEPRECATED if tool.deprecated else 1.0) * (_UNAVAILABLE if tool.availability.missing else 1.0)
            if factor != 1.0:
                found[name] = factor
        return found

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The place of each tool."""
        return {name: place for place, name in enumerate(self.tools)}

    @cached_property
    def spellings(self) -> Mapping[str, str | tuple[str, ...]]:
        """The tool that a folded name may mean, or the tools, by every form of their names; see `names_spelled`."""
        return build_at_once(self._build_spellings())

    def _build_spellings(self) -> Generator[None, None, dict[str, str | tuple[str, ...]]]:
        found: dict[str, str | tuple[str, ...]] = {}
        tools = iter(self.tools.values())
        while some := tuple(islice(tools, _STEP_TOOLS)):
            self._add_spellings(some, found)
            yield
        return found

    @staticmethod
    def _add_spellings(tools: Iterable[Tool], found: dict[str, str | tuple[str, ...]]) -> None:
        names, forms = list[str](), list[str]()
        for tool in tools:
            whole = f"{tool.source}{naming.SEPARATOR}{tool.local_name}"  # the full name, before it was shortened
            written = {tool.name, whole, tool.local_name, tool.op, *tool.aliases, *declared_names(tool)}
            names += [tool.name] * len(written)
            forms += written
        for form, name in zip(fold_all(forms), names, strict=True):
            if not form:
                continue  # of signs alone, or no op
            known = found.setdefault(form, name)
            if known is not name and name not in (several := (known,) if isinstance(known, str) else known):
                found[form] = (*several, name)

    def names_spelled(self, form: str) -> tuple[str, ...]:
        """Return the names of the tools that a folded name may mean.

        Two names for one form mean that it is ambiguous within this source.
        """
        found = self.spellings.get(form, ())
        return (found,) if isinstance(found, str) else found

    @cached_property
    def _folded_names(self) -> tuple[list[str], list[str]]:
        """The folded names in order, and the name of each."""
        same = {form: form for form in self.spellings}  # their strings, not others that are equal
        forms = (same.get(form, form) for form in fold_all(self.tools))
        pairs = sorted(zip(forms, self.tools, strict=True))
        return [folded for folded, _ in pairs], [name for _, name in pairs]

    @cached_property
    def _joined_names(self) -> str:
        return "\n".join(("", *self.tools, ""))

    def prepare(self) -> Generator[None, None, None]:
        """Compute what the first unknown name and the first search would wait for, in steps."""
        if "spellings" not in self.__dict__:
            self.spellings = yield from self._build_spellings()
        for name in ("_folded_names", "_joined_names", "core", "factors", "has_conditions", "has_skills"):
            getattr(self, name)
            yield

    def neighbours(self, form: str) -> Iterator[tuple[str, str]]:
        """Yield folded name and name of the tools that begin like a folded name, the nearest in the alphabet."""
        folded, names = self._folded_names
        place, start = bisect_left(folded, form), form[:2]
        for at in range(
            max(place - _MAX_NEIGHBOURS, bisect_left(folded, start)), min(place + _MAX_NEIGHBOURS, len(folded))
        ):
            if not folded[at].startswith(start):
                break
            yield folded[at], names[at]

    def names_containing(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield folded name and name of the tools whose names hold `name`."""
        text, at = self._joined_names, self._joined_names.find(name) if name else -1
        while at >= 0:
            end = text.find("\n", at)
            other = text[text.rfind("\n", 0, at) + 1 : end]
            yield fold(other), other
            at = text.find(name, end)


class ToolTable:
    """The tools of now, and the last whole copy with what has changed since. Used from one event loop.

        _base_tools      all tools at an earlier moment, one dictionary
        _changed_tools   what came, went or changed since: `_ToolSnapshot` looks here first
        _copying         a new copy, made in slices of the event loop once a 64th of the tools has changed

    Up to `_MAX_COPIED_WHOLE` tools are simply copied whole.
    """

    def __init__(self) -> None:
        self.tools: dict[str, Tool] = {}
        """The tools of now; changed by `put` and `pop` alone."""
        self._base_tools: Mapping[str, Tool] = {}
        """All tools at an earlier moment."""
        self._changed_tools: dict[str, Tool | None] = {}
        """Tools that were added, removed (None) or changed since."""
        self._copying: asyncio.Future[None] | None = None
        self._changed_meanwhile: dict[str, Tool | None] = {}
        """The same since all tools began to be copied anew."""

    def put(self, name: str, tool: Tool) -> None:
        """Add or replace the tool of that name."""
        self.tools[name] = tool
        self._note(name, tool)

    def pop(self, name: str) -> Tool:
        """Remove and return the tool of that name."""
        tool = self.tools.pop(name)
        self._note(name, None)
        return tool

    def snapshot(self, parts: Sequence[CatalogPart]) -> Mapping[str, Tool]:
        """Return all tools in the order of `parts`, with look-ups in one dictionary unless little of many changed."""
        if len(self.tools) > _MAX_COPIED_WHOLE:
            is_much = len(self._changed_tools) * _MAX_CHANGED_SHARE >= len(self.tools)
            if is_much and self._copying is None and len(self._base_tools) * 2 > len(self.tools) and has_loop():
                self._copying = asyncio.ensure_future(self._copy_in_slices(parts))
            if self._copying is not None or not is_much:
                return _ToolSnapshot(parts, self._base_tools, dict(self._changed_tools))
        self._base_tools = build_at_once(_copy_tools(parts))
        self._changed_tools.clear()
        return self._base_tools

    def _note(self, name: str, tool: Tool | None) -> None:
        self._changed_tools[name] = tool
        if self._copying is not None:
            self._changed_meanwhile[name] = tool

    async def _copy_in_slices(self, parts: Sequence[CatalogPart]) -> None:
        try:
            self._base_tools = await build_in_slices(_copy_tools(parts))
            self._changed_tools = self._changed_meanwhile
        finally:
            self._copying, self._changed_meanwhile = None, {}


def _copy_tools(parts: Iterable[CatalogPart]) -> Generator[None, None, dict[str, Tool]]:
    tools: dict[str, Tool] = {}
    for part in parts:
        items = iter(part.tools.items())
        while some := tuple(islice(items, _MAX_COPIED_WHOLE)):
            tools.update(some)
            yield
    return tools


class _ToolSnapshot(Mapping[str, Tool]):
    """The tools of some parts, in their order: what was there before, and what changed since. Immutable.

    One dictionary of 100,000 tools takes 15 ms to copy, most of it to reach the tools in memory, and this 0.1 ms.
    """

    def __init__(
        self, parts: Sequence[CatalogPart], before: Mapping[str, Tool], changed: Mapping[str, Tool | None]
    ) -> None:
        """`before` and `changed` (None: gone) are taken over and must not be changed afterwards."""
        self._parts = parts
        self._base_tools = before
        self._changed_tools = changed
        self._count = sum(len(part.tools) for part in parts)

    def __getitem__(self, name: str) -> Tool:
        """Return the tool of this name."""
        if name not in self._changed_tools:
            return self._base_tools[name]
        tool = self._changed_tools[name]
        if tool is None:
            raise KeyError(name)
        return tool

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return chain.from_iterable(part.tools for part in self._parts)

    def __len__(self) -> int:
        """Return the number of tools."""
        return self._count

    def values(self) -> ValuesView[Tool]:
        """Return the tools."""
        return _SnapshotValues(self, self._parts)

    def items(self) -> ItemsView[str, Tool]:
        """Return the names and tools."""
        return _SnapshotItems(self, self._parts)


class _SnapshotValues(ValuesView[Tool]):
    """Tools of all parts, without a look-up for each."""

    def __init__(self, mapping: Mapping[str, Tool], parts: Sequence[CatalogPart]) -> None:
        super().__init__(mapping)
        self._parts = parts

    def __iter__(self) -> Iterator[Tool]:
        return chain.from_iterable(part.tools.values() for part in self._parts)


class _SnapshotItems(ItemsView[str, Tool]):
    """Names and tools of all parts, without a look-up for each."""

    def __init__(self, mapping: Mapping[str, Tool], parts: Sequence[CatalogPart]) -> None:
        super().__init__(mapping)
        self._parts = parts

    def __iter__(self) -> Iterator[tuple[str, Tool]]:
        return chain.from_iterable(part.tools.items() for part in self._parts)


def parts_of(tools: Mapping[str, Tool]) -> tuple[CatalogPart, ...]:
    """Return the parts of a whole catalog: runs of tools of one source."""
    runs = groupby(tools.items(), key=lambda item: item[1].source)
    return tuple(CatalogPart(dict(run)) for _, run in runs)


def categories_of(tools: Iterable[Tool]) -> dict[str, int]:
    """Return the number of `tools` of each category; a tool without one counts for its source."""
    counts: dict[str, int] = {}
    for tool in tools:
        key = category_of(tool)
        counts[key] = counts.get(key, 0) + 1
    return counts


def category_of(tool: Tool) -> str:
    """Return the category of a tool; one without is of its source."""
    return tool.category or tool.source


def declared_names(tool: Tool) -> tuple[str, ...]:
    """Return the shorter names under which clients and APIs declare the tool."""
    if len(tool.name) <= naming.MAX_NAME:
        return ()
    return naming.declared(tool.name, tool.source, tool.local_name), naming.declared(tool.name, "", tool.name)
