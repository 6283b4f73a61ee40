"""Inverted index: the tools that contain a term, and the terms that a tool contains, in flat arrays.

    groups     term -> four runs of document numbers, strongest impact first (what a search walks)
    pairs      document -> its terms with their impacts (what it ranks by)
    order      document -> the terms of its name, then of its description, as they stand (which words are neighbours)

A frozen part, whose arrays may be a mapped file, lies under an overlay of everything changed since. A changed list is
copied whole into the overlay, so reading never merges two parts, and the contents are always what a rebuild would give.
Numbers of removed documents and terms are used again: an index that changes for ever does not grow for ever.

Lifetime: as long as the index. Not thread-safe: one writer, no reader meanwhile.

An index on disk: one file, mapped when it is opened, so that opening costs no reading of the tools.

    magic · length of the head · head (JSON: stamp, recipe, sources, where each section lies) · sections, 8-aligned

The stamp says of which catalog the file is, the recipe by which way of reading tools it was made: with another of
either the file counts as absent. So does one that is damaged, foreign or cut short: it is a copy of what can be built
again. Files are replaced whole (written beside, synced, renamed) and belong to their owner alone.

Beside it a small index over the sources has the fit of each to a query, a score that every tool of a source shares. The
text of a source is its key, title and description together; sources leave with their last tool. Scores are whole
numbers, so that the order of adding has no effect.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import tempfile
from array import array
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from math import log
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import orjson
from msgspec import Struct, field

from ...core.files import make_private_folder
from .query import SimilarWords
from .terms import LEVELS, Document, IndexEntry, source_levels

SCALE = 1 << 20
"""Term weights are whole numbers: weight, rarity and `SCALE` multiplied and rounded."""

GROUPS = 4
GROUP_LEVELS = (96, 66, 44, 20)
"""The typical impact in each group: the value of a posting while candidates are gathered."""
NAME_FLAG = 1 << 7
"""Set in a pair when the term is part of the tool's name; the impact is in the seven bits below, the term above.

The pairs of the name come first."""
BREAK = 0xFFFFFFFF
_BREAK_BYTES = BREAK.to_bytes(4, "little")
"""Stands between the terms of the name and those of the description, so that no pair of words reaches across."""

_BOUNDS = (80, 54, 34)
"""The lowest impact of each group but the last: a word in a name, in parameters, in a description, in small print."""
_GROUP_OF = tuple(sum(level < bound for bound in _BOUNDS) for level in range(LEVELS + 1))

_MAGIC = b"toolcrib index 1"
_ALIGN = 8
_FROZEN_ARRAYS = ("groups", "groups_at", "pairs", "pairs_at", "order", "order_at")


def rarity(count: int, total: int) -> float:
    """Return the inverse document frequency of a term that `count` of `total` documents have (never negative)."""
    return log(1.0 + (total - count + 0.5) / (count + 0.5))


_Key: TypeAlias = tuple[str, str, str]


class _Source(Struct):
    key: _Key
    levels: dict[str, int]
    tools: int = 0


class SourceIndex:
    """The sources of an index, by number.

    A source is its name with its description of itself: when the description changes, it counts as another source.
    """

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
            self._add_source(number, _Source(key, source_levels(*key)))
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
    def load(cls, rows: list[tuple[int, list[str], dict[str, int], int]]) -> SourceIndex:
        """Read the index that `dump` wrote."""
        made = cls()
        for number, (key, title, description), levels, tools in rows:
            made._numbers[key, title, description] = number
            made._add_source(number, _Source((key, title, description), levels, tools))
            made._next = max(made._next, number + 1)
        return made

    def _add_source(self, number: int, source: _Source) -> None:
        self._sources[number] = source
        self._counts.update(source.levels.keys())


Numbers: TypeAlias = "array[int] | memoryview"
"""Unsigned 32-bit numbers: an array, or a view of a mapped file."""


def _no_numbers() -> Numbers:
    return array("I")


def _first_offset() -> Numbers:
    return array("I", [0])


class Frozen(Struct, kw_only=True):
    """The arrays of all documents at one moment; an `*_at` array holds where each list begins, and the last end.

    Lists of all documents in one array, one after another; `X_at[n]` to `X_at[n + 1]` is the list of `n`. Arrays of a
    file are mapped, and pages of it are read as searches touch them.
    """

    groups: Numbers = field(default_factory=_no_numbers)
    groups_at: Numbers = field(default_factory=_first_offset)
    pairs: Numbers = field(default_factory=_no_numbers)
    pairs_at: Numbers = field(default_factory=_first_offset)
    order: Numbers = field(default_factory=_no_numbers)
    order_at: Numbers = field(default_factory=_first_offset)

    @classmethod
    def of(cls, rows: Iterable[tuple[array[int], array[int]]], terms: list[str]) -> Frozen:
        """Freeze rows of (pairs, order), one a document, that use numbers of `terms`, which may grow meanwhile."""
        runs: list[array[int] | None] = []  # no dictionary: the growth of one holds other threads up for 50 ms
        pairs, pairs_at, order, order_at = array("I"), array("I", [0]), array("I"), array("I", [0])
        group_of = _GROUP_OF
        for number, (row, sequence) in enumerate(rows):
            pairs.extend(row)
            pairs_at.append(len(pairs))
            order.extend(sequence)
            order_at.append(len(order))
            runs.extend([None] * (len(terms) * GROUPS - len(runs)))
            for pair in row:
                run = (pair >> 8) * GROUPS + group_of[pair & LEVELS]
                known = runs[run]
                if known is None:
                    runs[run] = array("I", (number,))
                else:
                    known.append(number)
        groups, groups_at = array("I"), array("I", [0])
        for at, run in enumerate(runs):
            if run is not None:
                groups.extend(run)
                runs[at] = None
            groups_at.append(len(groups))
        return cls(groups=groups, groups_at=groups_at, pairs=pairs, pairs_at=pairs_at, order=order, order_at=order_at)

    def fits(self, terms: int, documents: int) -> bool:
        """Whether the arrays are as long as that many terms and documents, and each other, want them."""
        bounds = ((self.groups_at, self.groups), (self.pairs_at, self.pairs), (self.order_at, self.order))
        counts = (terms * GROUPS, documents, documents)
        return all(
            len(begins) == count + 1 and begins[0] == 0 and begins[count] == len(numbers)
            for (begins, numbers), count in zip(bounds, counts, strict=True)
        )


class Postings:
    """Terms and documents by number; the numbers mean nothing outside one index.

    Terms and documents that come and go reuse numbers (`_free_terms`), so that the arrays do not grow for ever.
    """

    def __init__(self, terms: list[str], frozen: Frozen) -> None:
        self.terms = terms
        """The spelling of each term number; a number out of use keeps its last."""
        self.vocabulary = dict(zip(terms, range(len(terms)), strict=True))
        self._frozen = frozen
        self._groups: dict[int, list[array[int]]] = {}
        self._pairs: dict[int, array[int]] = {}
        self._order: dict[int, bytes] = {}
        self._free_terms: list[int] = []
        self._similar_words: SimilarWords | None = None

    def similar_terms(self, word: str) -> dict[str, float]:
        """Return the known terms that resemble an unknown word, with their similarity."""
        if self._similar_words is None:
            self._similar_words = SimilarWords(self.vocabulary)
        return self._similar_words.of(word)

    @property
    def changed(self) -> bool:
        """Whether anything differs from the frozen part."""
        return bool(self._groups)

    @property
    def frozen(self) -> Frozen:
        """The frozen part, without what changed since."""
        return self._frozen

    def fill(self, documents: Iterable[Document]) -> None:
        """Fill an empty index; the documents get the numbers from 0 on."""
        self._frozen = Frozen.of(map(self._encode, documents), self.terms)

    def compacted(self, numbers: Iterable[int]) -> Postings:
        """Return the index of these documents alone, frozen, numbered anew in this order."""
        fresh = Postings([], Frozen())
        fresh._frozen = Frozen.of((fresh._encode_from(self, number) for number in numbers), fresh.terms)
        return fresh

    def group(self, term: int, at: int) -> array[int]:
        """Return the documents that contain `term` with an impact of group `at`, ascending. Not to be changed."""
        changed = self._groups.get(term)
        if changed is not None:
            return changed[at]
        bounds, run = self._frozen.groups_at, term * GROUPS + at
        return _slice(self._frozen.groups, bounds[run], bounds[run + 1])

    def sizes(self, term: int) -> tuple[int, int, int, int]:
        """Return the number of documents in each group of a term."""
        changed = self._groups.get(term)
        if changed is not None:
            return len(changed[0]), len(changed[1]), len(changed[2]), len(changed[3])
        a, b, c, d, e = self._frozen.groups_at[term * GROUPS : term * GROUPS + GROUPS + 1]
        return b - a, c - b, d - c, e - d

    def pairs(self, number: int) -> array[int]:
        """Return the (term, impact) pairs of a document. Not to be changed."""
        changed = self._pairs.get(number)
        if changed is not None:
            return changed
        bounds = self._frozen.pairs_at
        return _slice(self._frozen.pairs, bounds[number], bounds[number + 1])

    def order(self, number: int) -> bytes:
        """Return the terms of a document's name and description as they stand, four bytes each."""
        changed = self._order.get(number)
        if changed is not None:
            return changed
        bounds = self._frozen.order_at
        return self._frozen.order[bounds[number] : bounds[number + 1]].tobytes()

    def name(self, number: int) -> bytes:
        """Return the terms of a document's name in order: equal for tools whose names have the same terms."""
        order = self.order(number)
        at = order.find(_BREAK_BYTES)
        while at & 3:
            at = order.find(_BREAK_BYTES, at + 1)
        return order[:at]

    def add(self, number: int, document: Document) -> None:
        """Add a document under a number that is not in use.

        The number must be free: the index hands numbers out.
        """
        pairs, order = self._encode(document)
        for pair in pairs:
            insort(self._writable(pair >> 8)[_GROUP_OF[pair & LEVELS]], number)
        self._pairs[number], self._order[number] = pairs, order.tobytes()

    def remove(self, number: int) -> None:
        """Remove a document, and the terms that no other one has."""
        for pair in self.pairs(number):
            term = pair >> 8
            groups = self._writable(term)
            run = groups[_GROUP_OF[pair & LEVELS]]
            del run[bisect_left(run, number)]
            if not any(groups):
                del self.vocabulary[self.terms[term]]
                if self._similar_words is not None:
                    self._similar_words.remove(self.terms[term])
                self._free_terms.append(term)
        self._pairs.pop(number, None)
        self._order.pop(number, None)

    def _encode(self, document: Document) -> tuple[array[int], array[int]]:
        """Return a document in numbers, naming its new terms; the terms of its name come first in both."""
        numbers = self.vocabulary
        for term in [term for term in document.levels if term not in numbers]:
            self._term_number(term)
        pairs = array("I", [numbers[term] << 8 | level for term, level in document.levels.items()])
        for at in range(len(set(document.name))):
            pairs[at] |= NAME_FLAG
        order = array("I", [numbers[term] for term in document.name])
        order.append(BREAK)
        order.extend([numbers[term] for term in document.head])
        return pairs, order

    def _encode_from(self, other: Postings, number: int) -> tuple[array[int], array[int]]:
        """Return a document of another index in the numbers of this one."""
        spelled, ours = other.terms, self._term_number
        pairs = array("I", (ours(spelled[pair >> 8]) << 8 | pair & 0xFF for pair in other.pairs(number)))
        order = array("I")
        order.frombytes(other.order(number))
        return pairs, array("I", (BREAK if term == BREAK else ours(spelled[term]) for term in order))

    def _term_number(self, term: str) -> int:
        """Return the number of a term, giving it one if it is new."""
        number = self.vocabulary.get(term)
        if number is not None:
            return number
        if self._free_terms:
            number = self._free_terms.pop()
            self.terms[number] = term
        else:
            number = len(self.terms)
            self.terms.append(term)
        self.vocabulary[term] = number
        if self._similar_words is not None:
            self._similar_words.add(term)
        return number

    def _writable(self, term: int) -> list[array[int]]:
        """Return the groups of a term, copied into the overlay when they were not there."""
        groups = self._groups.get(term)
        if groups is None:
            known = (term + 1) * GROUPS < len(self._frozen.groups_at)
            groups = [self.group(term, at) if known else array("I") for at in range(GROUPS)]
            self._groups[term] = groups
        return groups


def _slice(numbers: Numbers, start: int, stop: int) -> array[int]:
    if isinstance(numbers, array):
        return numbers[start:stop]
    part: array[int] = array("I")
    part.frombytes(numbers[start:stop].tobytes())
    return part


class Stored(NamedTuple):
    """All that an index consists of, with documents numbered 0, 1, 2 … without gaps."""

    postings: Postings
    sources: SourceIndex
    names: list[str]
    source_of: array[int]
    keys: array[int]
    keys_of: array[int]


def save(path: Path, stamp: str, stored: Stored) -> None:
    """Write the index; raises `OSError` when that cannot be done."""
    frozen = stored.postings.frozen
    sections = {
        "terms": orjson.dumps(stored.postings.terms),
        "names": orjson.dumps(stored.names),
        "source_of": stored.source_of.tobytes(),
        "keys": stored.keys.tobytes(),
        "keys_of": stored.keys_of.tobytes(),
    } | {name: getattr(frozen, name).tobytes() for name in _FROZEN_ARRAYS}
    places: dict[str, tuple[int, int]] = {}
    end = 0
    for name, content in sections.items():
        places[name] = end, len(content)
        end += _padded(len(content))
    head = orjson.dumps({"stamp": stamp, "recipe": _recipe(), "sources": stored.sources.dump(), "places": places})
    head = head.ljust(_padded(len(head)))
    make_private_folder(path.parent)
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(_MAGIC + len(head).to_bytes(_ALIGN, "little") + head)
            out.writelines(content.ljust(_padded(len(content)), b"\0") for content in sections.values())
            out.flush()
            os.fsync(out.fileno())
        Path(beside).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(beside).unlink()
        raise


def load(path: Path, stamp: str) -> Stored | None:
    """Return the index of the catalog `stamp` in `path`, or None if the file has another or none."""
    try:
        with path.open("rb") as opened:
            content = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
        start = len(_MAGIC) + _ALIGN
        length = int.from_bytes(content[len(_MAGIC) : start], "little")
        if content[: len(_MAGIC)].tobytes() != _MAGIC or length > len(content) - start:
            return None
        head = orjson.loads(content[start : start + length])
        if head["stamp"] != stamp or head["recipe"] != _recipe():
            return None
        return _read_sections(head, content[start + length :])
    except (OSError, ValueError, TypeError, KeyError, IndexError):
        return None


def _read_sections(head: Mapping[str, Any], body: memoryview) -> Stored:
    """Return the content of the sections; raises `ValueError` when they do not fit one another."""
    parts = {name: _section(body, *place) for name, place in head["places"].items()}
    terms, names = orjson.loads(parts["terms"]), orjson.loads(parts["names"])
    frozen = Frozen(**{name: parts[name].cast("I") for name in _FROZEN_ARRAYS})
    source_of, keys, keys_of = array("I"), array("Q"), array("Q")
    source_of.frombytes(parts["source_of"])
    keys.frombytes(parts["keys"])
    keys_of.frombytes(parts["keys_of"])
    if not (frozen.fits(len(terms), len(names)) and len(source_of) == len(names) and len(keys_of) == 2 * len(names)):
        raise ValueError("the sections do not fit one another")
    return Stored(Postings(terms, frozen), SourceIndex.load(head["sources"]), names, source_of, keys, keys_of)


def _section(body: memoryview, at: int, length: int) -> memoryview:
    if at + length > len(body):
        raise ValueError("cut short")
    return body[at : at + length]


def _padded(length: int) -> int:
    return -(-length // _ALIGN) * _ALIGN


@cache
def _recipe() -> str:
    """Return a mark of how tools are read: this package's own text, and how this machine writes numbers."""
    mark = blake2b(f"{sys.byteorder} {array('I').itemsize} {array('Q').itemsize}".encode(), digest_size=8)
    for part in sorted(files(__package__ or "").iterdir(), key=lambda part: part.name):
        if part.name.endswith(".py"):
            mark.update(part.read_bytes())
    return mark.hexdigest()
