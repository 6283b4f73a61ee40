"""Fit of each source to a query: a small index over the sources, whose score every tool of a source shares.

The text of a source is its key, title and description together. Lifetime: as long as the index; sources leave with
their last tool. Scores are whole numbers, so that the order of adding has no effect.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import log
from typing import TypeAlias

from .terms import IndexEntry, source_levels

__all__ = ["SCALE", "Sources", "rarity"]

SCALE = 1 << 20
"""Term weights are whole numbers: weight, rarity and `SCALE` multiplied and rounded."""


def rarity(count: int, total: int) -> float:
    """Return the inverse document frequency of a term that `count` of `total` documents have (never negative)."""
    return log(1.0 + (total - count + 0.5) / (count + 0.5))


_Key: TypeAlias = tuple[str, str, str]


@dataclass(slots=True)
class _Source:
    key: _Key
    levels: dict[str, int]
    tools: int = 0


class Sources:
    """The sources of an index, by number."""

    def __init__(self) -> None:
        self._numbers: dict[_Key, int] = {}
        self._sources: dict[int, _Source] = {}
        self._counts: Counter[str] = Counter()
        self._next = 0

    def join(self, entry: IndexEntry) -> int:
        """Count one tool more of its source; return the source's number."""
        key = (entry.source, entry.source_title, entry.source_description)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._next
            self._next += 1
            self._enter(number, _Source(key, source_levels(*key)))
        self._sources[number].tools += 1
        return number

    def leave(self, number: int) -> None:
        """Count one tool less; the source goes with its last one."""
        source = self._sources[number]
        source.tools -= 1
        if source.tools:
            return
        del self._sources[number]
        del self._numbers[source.key]
        for term in source.levels:
            self._counts[term] -= 1
            if not self._counts[term]:
                del self._counts[term]

    def worth(self, weights: dict[str, float]) -> dict[str, int]:
        """Return the score of one level of impact of each term; empty with a single source."""
        total, counts = len(self._sources), self._counts
        if total < 2:
            return {}
        return {
            term: round(weight * rarity(counts[term], total) * SCALE)
            for term, weight in weights.items()
            if term in counts
        }

    def score(self, number: int, worth: dict[str, int]) -> int:
        """Return the score of one source."""
        levels = self._sources[number].levels
        return sum([worth[term] * levels[term] for term in levels.keys() & worth.keys()])

    def dump(self) -> list[list[object]]:
        """Return everything, as JSON has it."""
        return [[number, one.key, one.levels, one.tools] for number, one in self._sources.items()]

    @classmethod
    def load(cls, rows: list[tuple[int, list[str], dict[str, int], int]]) -> Sources:
        """Return what `dump` wrote."""
        made = cls()
        for number, (key, title, description), levels, tools in rows:
            made._numbers[key, title, description] = number
            made._enter(number, _Source((key, title, description), levels, tools))
            made._next = max(made._next, number + 1)
        return made

    def _enter(self, number: int, source: _Source) -> None:
        self._sources[number] = source
        self._counts.update(source.levels.keys())
