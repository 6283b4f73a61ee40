"""Routing: the one capability for a request, by a score from the catalog's own record, and the next best.

  score = priority + 5 x type + 5 x subtype + quality + context - cost

The weights are those of the original (checklist 004): an explicit name outweighs everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ...catalog.names import fold
from ...core.tool import Tool
from ..base import VisibleCatalog
from .requirements import SelectableTools, selectable_tools
from .selector import priority, unavailable

__all__ = ["ALTERNATIVES", "EXPLICIT", "Candidate", "Route", "route", "score"]

EXPLICIT: Final = 10_000
ALTERNATIVES: Final = 3

_TYPES: Final[Mapping[str, int]] = MappingProxyType({"SKILL": 10, "TOOL": 8, "CODE": 4})
_SUBTYPES: Final[Mapping[str, int]] = MappingProxyType(
    {"CUSTOM": 15, "PREBUILT": 10, "NATIVE": 8, "EXTERNAL": 5, "DYNAMIC": 3}
)
_TIME: Final[Mapping[str, int]] = MappingProxyType({"fast": 0, "medium": 5, "slow": 15, "variable": 10})
_MONEY: Final[Mapping[str, int]] = MappingProxyType({"free": 0, "low": 5, "medium": 15, "high": 30})
_QUALITIES: Final = ("low", "medium", "high")
"""Values of `metadata.quality`, and of the requested quality."""
_SEARCHED: Final = 10
"""Tools that a search in words brings in."""
_QUOTED: Final = re.compile(r"[`'\"“”‘’]([^`'\"“”‘’]+)[`'\"“”‘’]")
_BETWEEN: Final = re.compile(r"[-_\s]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One capability and the parts of its score."""

    tool: Tool
    score: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The answer: the best one, and up to three others, best first."""

    best: Candidate | None = None
    alternatives: tuple[Candidate, ...] = ()

    @property
    def tool(self) -> Tool | None:
        """The capability to use; None when nothing fits."""
        return self.best.tool if self.best else None


def route(scene: VisibleCatalog, query: str = "", *, capability: str = "", quality: str = "") -> Route:
    """Return the capability for `query`, in words, or for a `capability` tag; `quality` is low, medium or high.

    Tools that cannot work here (API, network, sign-in) are not candidates.
    """
    selectable = selectable_tools(scene)
    named = _named(selectable, query) if query else ()
    names = dict.fromkeys((*named, *_fitting(selectable, query, capability)))
    found = [
        Candidate(tool=tool, score=EXPLICIT if name in named else score(scene, tool, quality=quality))
        for name in names
        if not unavailable(scene, tool := selectable.tools[name])
    ]
    found.sort(key=lambda candidate: -candidate.score)
    return Route(best=found[0], alternatives=tuple(found[1 : 1 + ALTERNATIVES])) if found else Route()


def score(scene: VisibleCatalog, tool: Tool, *, quality: str = "") -> int:
    """Return the score of `tool` for a query that does not name it."""
    record = tool.capability
    weights = 5 * _TYPES[record.type] + 5 * _SUBTYPES.get(record.subtype.upper(), 0)
    cost = _TIME.get(record.cost.get("time", ""), 0) + _MONEY.get(record.cost.get("money", ""), 0)
    return priority(scene, tool) + weights + _quality(tool, quality) + _context(scene, tool) - cost


def _quality(tool: Tool, wanted: str) -> int:
    """20 for the quality that is wanted, 10 for one step beside it."""
    given = str(tool.capability.metadata.get("quality", ""))
    if wanted not in _QUALITIES or given not in _QUALITIES:
        return 0
    return {0: 20, 1: 10}.get(abs(_QUALITIES.index(given) - _QUALITIES.index(wanted)), 0)


def _context(scene: VisibleCatalog, tool: Tool) -> int:
    """15 for a tool that this conversation has used, 10 for one that shares a capability with such a tool."""
    used = scene.session.history.activated
    if tool.name in used:
        return 15
    tags = {tag for name in used if (other := scene.catalog.get(name)) for tag in other.tags}
    return 0 if tags.isdisjoint(tool.tags) else 10


def _named(selectable: SelectableTools, query: str) -> tuple[str, ...]:
    """The tools whose names occur in the query: alone, in quotes, or a name of several words anywhere.

    A name of one word (`plan`) is a word of the language too, and names the tool only by itself or in quotes.
    """
    quoted = {fold(query), *map(fold, _QUOTED.findall(query))}
    text = f" {_spaced(query)} "
    found: list[str] = []
    for tool in selectable.tools.values():
        names = {tool.name, tool.local_name, selectable.scene.labels.name(tool)}
        several = [spaced for name in names if " " in (spaced := _spaced(name))]
        if not quoted.isdisjoint(map(fold, names)) or any(f" {name} " in text for name in several):
            found.append(tool.name)
    return tuple(found)


def _fitting(selectable: SelectableTools, query: str, capability: str) -> Iterable[str]:
    if capability:
        yield from selectable.tagged(capability)
    if query:
        text = f" {_spaced(query)} "
        for tool in selectable.tools.values():
            if any(f" {_spaced(tag)} " in text for tag in tool.tags):
                yield tool.name
        catalog, boost = selectable.scene.catalog, selectable.scene.boost
        for hit in catalog.search(query, _SEARCHED, allowed=lambda name: name in selectable.tools, boost=boost):
            yield hit.name


def _spaced(text: str) -> str:
    return _BETWEEN.sub(" ", "".join(sign if sign.isalnum() or sign in "-_" else " " for sign in text.lower())).strip()
