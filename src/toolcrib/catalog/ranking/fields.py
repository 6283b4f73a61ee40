"""Weighted terms of one tool: BM25F with fixed reference lengths.

Every field of an entry has a weight, a reference length and a strength of length normalisation; the weighted counts of
a term are summed over the fields and saturated once, `x / (k1 + x)`. The reference lengths are constants, not averages
of the catalog: the weights of a tool depend on that tool alone, so that adding one never changes another, and an index
updated in place equals one built anew.

Weights start from the reference recipe of the labelled sets and were moved in coarse steps where all the sets agreed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, cast

from .entry import Entry
from .text import terms

__all__ = ["LEVELS", "Document", "document", "source_levels"]

LEVELS = 127
"""Impacts are whole numbers from 1 to `LEVELS`, so that sums do not depend on the order of adding."""

_SATURATION = 1.2
_MOST_REPEATS = 3
"""Repeating a word more often than this in one field changes nothing: stuffing must not pay."""
_UNIT = 128
"""Weights are counted in parts of this."""
_HEAVIEST = 32
"""More than all fields together can weigh, by far."""
_MOST_TERMS = 512
_DESCRIPTION_WORDS = 200
_PARAMETER_WORDS = 200
_SCHEMA_NODES = 400
_SCHEMA_DEPTH = 6
_BLOCK = re.compile(
    r"^[ \t]*(?:args|arguments|parameters|params|inputs?|returns?|outputs?|raises|examples?|usage|notes?)\b[^\n]{0,40}$"
    r"|^[ \t]*(?:args|arguments|parameters|params|returns?|raises|examples?):"
    r"|(?<=[.\n])[ \t]*(?:Args|Arguments|Parameters|Returns|Raises|Examples?):",
    re.IGNORECASE | re.MULTILINE,
)


_BRANCHES = frozenset(("items", "anyOf", "oneOf", "allOf"))
_NOTHING: Mapping[str, Any] = {}


def _units(weight: float, length: float, slope: float) -> tuple[int, ...]:
    """Return the weight of one term by the number of terms in a field, in parts of `_UNIT`.

    `length` is the reference: a field of this length has a factor of one. `slope` is the strength of the correction for
    other lengths (BM25's b): 0 none, 1 full.
    """
    return tuple(
        max(1, round(_UNIT * weight / (1.0 - slope + slope * count / length))) for count in range(_MOST_TERMS + 1)
    )


_NAME = _units(3.0, 3.5, 0.3)
_TITLE = _units(1.5, 4.0, 0.3)
_SOURCE = _units(1.0, 4.0, 0.3)
_TAGS = _units(1.2, 4.0, 0.5)
_CATEGORY = _units(0.8, 2.0, 0.3)
_DESCRIPTION = _units(0.8, 32.0, 0.4)
_BLOCKS = _units(0.3, 25.0, 0.6)
_PARAMETER_NAMES = _units(1.5, 5.0, 0.7)
_PARAMETER_TEXTS = _units(0.4, 25.0, 0.7)
_SOURCE_NAME = _units(2.0, 4.0, 0.4)
_SOURCE_DESCRIPTION = _units(1.0, 25.0, 0.4)
_LEVEL_OF = tuple(
    max(1, int(LEVELS * weight / (_SATURATION * _UNIT + weight))) for weight in range(_HEAVIEST * _UNIT + 1)
)


class Document(NamedTuple):
    """One tool as the index keeps it."""

    levels: dict[str, int]
    """Every term of the tool with its impact, 1 to `LEVELS`; those of the name first."""
    name: list[str]
    """The terms of the name, in order."""
    head: list[str]
    """The terms of the description before any block of arguments, in order."""


def document(entry: Entry) -> Document:
    """Return the weighted terms of one tool."""
    before, blocks = _split(entry.description)
    names, texts = _schema_words(entry.schema)
    name, head = terms(entry.leaf), terms(before, _DESCRIPTION_WORDS)
    weights: dict[str, int] = {}
    _weigh(weights, _NAME, name)
    _weigh(weights, _DESCRIPTION, head)
    _weigh(weights, _SOURCE, _source_terms(entry.source, entry.source_title))
    if entry.title or entry.tags or entry.category:
        _weigh(weights, _TITLE, terms(entry.title))
        _weigh(weights, _TAGS, terms(" ".join(entry.tags)))
        _weigh(weights, _CATEGORY, terms(entry.category))
    if blocks:
        _weigh(weights, _BLOCKS, terms(blocks, _DESCRIPTION_WORDS))
    _weigh(weights, _PARAMETER_NAMES, terms(names, _PARAMETER_WORDS, joined=False))
    _weigh(weights, _PARAMETER_TEXTS, terms(texts, _PARAMETER_WORDS))
    return Document(_saturated(weights), name, head)


def source_levels(key: str, title: str, description: str) -> dict[str, int]:
    """Return the weighted terms of a source itself."""
    weights: dict[str, int] = {}
    _weigh(weights, _SOURCE_NAME, terms(f"{key} {title}"))
    _weigh(weights, _SOURCE_DESCRIPTION, terms(description, _DESCRIPTION_WORDS))
    return _saturated(weights)


@lru_cache(maxsize=256)
def _source_terms(key: str, title: str) -> list[str]:
    """Return the terms of a source's names, which all its tools share. Not to be changed."""
    return terms(f"{key} {title}")


def _weigh(weights: dict[str, int], units: tuple[int, ...], found: list[str]) -> None:
    count = len(found)
    if not count:
        return
    unit, known = units[count] if count < _MOST_TERMS else units[_MOST_TERMS], weights.get
    once = set(found)
    if len(once) == count:
        for term in found:
            weights[term] = known(term, 0) + unit
        return
    left = dict.fromkeys(once, _MOST_REPEATS)
    for term in found:
        if left[term]:
            left[term] -= 1
            weights[term] = known(term, 0) + unit


def _saturated(weights: dict[str, int]) -> dict[str, int]:
    level_of, heaviest = _LEVEL_OF, len(_LEVEL_OF) - 1
    return {term: level_of[weight] if weight < heaviest else LEVELS for term, weight in weights.items()}


def _split(description: str) -> tuple[str, str]:
    """Separate the description from the blocks about arguments, results and examples that docstrings carry."""
    found = _BLOCK.search(description) if ":" in description or "\n" in description else None
    if found is None or not description[: found.start()].strip():
        return description, ""
    return description[: found.start()], description[found.start() :]


def _schema_words(schema: Mapping[str, Any]) -> tuple[str, str]:
    """Return the names of the properties, and their descriptions and enum values, as two texts.

    Outer ones come first, `_SCHEMA_NODES` at most; malformed parts are skipped.
    """
    names: list[str] = []
    texts: list[str] = []
    level: list[Mapping[str, Any]] = [schema]
    for _ in range(_SCHEMA_DEPTH):
        deeper: list[Mapping[str, Any]] = []
        for node in level:
            if "properties" in node:
                properties = _mapping(node["properties"])
                names.extend(map(str, properties))
                deeper.extend(map(_mapping, properties.values()))
            if not _BRANCHES.isdisjoint(node):
                deeper.extend(_alternatives(node))
        level = deeper[: max(0, _SCHEMA_NODES - len(names))]
        for node in level:
            _add_texts(texts, node)
    return " ".join(names[:_SCHEMA_NODES]), " ".join(texts)


def _add_texts(texts: list[str], node: Mapping[str, Any]) -> None:
    text = node.get("description")
    if isinstance(text, str):
        texts.append(text)
    if "enum" in node and isinstance(node["enum"], list):
        texts.extend(value for value in cast("list[object]", node["enum"]) if isinstance(value, str))


def _alternatives(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "items" in node:
        yield _mapping(node["items"])
    for keyword in ("anyOf", "oneOf", "allOf"):
        if isinstance(node.get(keyword), list):
            yield from map(_mapping, cast("list[object]", node[keyword]))


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, (dict, Mapping)) else _NOTHING
