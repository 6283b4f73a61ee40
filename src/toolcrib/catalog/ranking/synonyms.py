"""Synonyms (`synonyms.txt`: get, fetch, show) and words of one topic (`topics.txt`), related by their stems."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from .text import read_lines, stem

__all__ = ["relatives"]

_WEIGHTS = {"synonyms.txt": 1.0, "topics.txt": 0.5}
"""A word of the same topic counts half as much as a word of the same meaning."""


@cache
def relatives() -> Mapping[str, tuple[tuple[str, float], ...]]:
    """Return, for a stem, those that stand beside it in a group, with their weights in (0, 1]; built at first use."""
    found: dict[str, dict[str, float]] = {}
    for file, weight in _WEIGHTS.items():
        for line in read_lines(file):
            members = list(dict.fromkeys(map(stem, line.split())))
            for one in members:
                row = found.setdefault(one, {})
                for other in members:
                    if other != one and row.get(other, 0.0) < weight:
                        row[other] = weight
    return MappingProxyType({one: tuple(row.items()) for one, row in found.items()})
