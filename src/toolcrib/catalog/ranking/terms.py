"""Terms of texts, the same way for tools and for queries, and the weighted terms of a tool.

BM25F with fixed reference lengths.

    text ── words ── pieces (camelCase, snake_case) ── case folded, stop words dropped ── stem (Snowball) ──► terms

Queries and tools go through the same functions, or nothing would match. Japanese, Chinese and Korean text becomes pairs
of characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from itertools import chain, islice
from typing import Any, NamedTuple, cast

import Stemmer
from msgspec import Struct, field

from ...core.patterns import regex

MAX_WORDS = 400
"""Words read of one text: more than any real description has, and a bound on the cost of a hostile one."""

_MAX_CHARACTERS = 8 * 1024
_MAX_WORD = 64
_MAX_STEMMED_LENGTH = 12
"""Joined forms longer than this take the stem of their last part for their own, which is known already."""
_MAX_CACHED_WORDS = 1 << 13
"""Words of which the terms are kept, in each of three caches of some 400 bytes a word."""
_WORD = re.compile(r"[\w-]+")
_ASCII_WORD = re.compile(r"[\w-]+", re.ASCII)
_CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_HAS_CJK = regex(f"[{_CJK}]")  # 3 ms each, and few texts are not ASCII: as below
_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_RUN = regex(rf"[{_CJK}]+|\d+|[^\W\d_{_CJK}]+")
_SQUASH = re.compile(r"[\W_]+")

LEVELS = 127
"""Impacts are whole numbers from 1 to `LEVELS`, so that sums do not depend on the order of adding."""

_SATURATION = 1.2
_MAX_REPEATS = 3
"""Repeating a word more often than this in one field changes nothing: stuffing must not pay."""
_WEIGHT_UNIT = 128
"""Weights are counted in parts of this."""
_MAX_WEIGHT = 32
"""More than all fields together can weigh, by far."""
_MAX_FIELD_TERMS = 512
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
_EMPTY_SCHEMA: Mapping[str, Any] = {}

_LEVEL_OF = tuple(
    max(1, int(LEVELS * weight / (_SATURATION * _WEIGHT_UNIT + weight)))
    for weight in range(_MAX_WEIGHT * _WEIGHT_UNIT + 1)
)


def read_lines(file: str) -> list[str]:
    """Return the lines of a word list beside this module, without its comments."""
    lines = files("toolcrib.catalog.ranking").joinpath(file).read_text("utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


_STOP_WORDS = frozenset(" ".join(read_lines("stop_words.txt")).split())
_ASKING_WORDS = frozenset(" ".join(read_lines("asking_words.txt")).split())
# Without types. A cache of its own would not be safe between threads; `_terms_of_piece` has one.
_stem_word: Callable[[str], str] = cast("Any", Stemmer).Stemmer("english", 0).stemWord


def stem(word: str) -> str:
    """Return the stem of `word` (lower case); one that is not ASCII or ends in a digit is its own."""
    return _stem_word(word) if word.isascii() and word[-1:].isalpha() else word


def terms(text: str, limit: int = MAX_WORDS, *, joined: bool = True) -> list[str]:
    """Return the terms of at most `limit` words of `text`, in order, without function words.

    Without `joined`, a word of several parts gives its parts only.
    """
    if not text:
        return []
    found = _ASCII_WORD.findall(text[:_MAX_CHARACTERS]) if text.isascii() else _WORD.findall(normal(text))
    return list(chain.from_iterable(map(_terms_of_tool_word if joined else _parts_of_word, found[:limit])))


def normal(text: str) -> str:
    """Return the beginning of `text`, in the form in which it is read (NFKC)."""
    return unicodedata.normalize("NFKC", text[:_MAX_CHARACTERS])


def words(text: str, limit: int) -> Iterator[re.Match[str]]:
    """Yield at most `limit` words of normal text, in order."""
    return islice(_WORD.finditer(text), limit)


def is_asking(word: str) -> bool:
    """Whether the word only expresses a request: `please`, `help`, `need`."""
    return word.lower() in _ASKING_WORDS


def squash(text: str) -> str:
    """Return `text` as names are compared: without case, separators and signs (`Create-Issue` is `create_issue`)."""
    return _SQUASH.sub("", text.lower() if text.isascii() else normal(text).casefold())


def terms_of_word(word: str) -> tuple[str, ...]:
    """Return the terms of one word: those of its parts, then the joined form when there are several.

    Nothing is remembered: callers make up words without end, and memory would grow with each.
    """
    return _read_word(word, _read_piece)


@lru_cache(maxsize=_MAX_CACHED_WORDS)
def _terms_of_tool_word(word: str) -> tuple[str, ...]:
    return _read_word(word, _terms_of_piece)


def _read_word(word: str, read: Callable[[str], tuple[str, ...]]) -> tuple[str, ...]:
    pieces = _split_word(word[:_MAX_WORD])
    found = chain.from_iterable(map(read, pieces))
    return (*found, *_joined_terms(pieces, read)) if len(pieces) > 1 else tuple(found)


@lru_cache(maxsize=_MAX_CACHED_WORDS)
def _parts_of_word(word: str) -> tuple[str, ...]:
    return tuple(chain.from_iterable(map(_terms_of_piece, _split_word(word[:_MAX_WORD]))))


def _split_word(word: str) -> list[str]:
    if word.isascii():
        return _PIECE.findall(word)
    runs = _RUN.findall(word)
    return [piece for run in runs for piece in (_PIECE.findall(run) if run.isascii() else (run,))]


def _joined_terms(pieces: list[str], read: Callable[[str], tuple[str, ...]]) -> tuple[str, ...]:
    """Return the term of all pieces written as one word; scripts without spaces have no such form."""
    joined = "".join(pieces)
    if not joined.isascii() and _HAS_CJK.search(joined):
        return ()
    if len(joined) > _MAX_STEMMED_LENGTH and (last := read(pieces[-1])):
        return ("".join(pieces[:-1]).casefold() + last[-1],)
    return read(joined)


@lru_cache(maxsize=_MAX_CACHED_WORDS)
def _terms_of_piece(piece: str) -> tuple[str, ...]:
    return _read_piece(piece)


def _read_piece(piece: str) -> tuple[str, ...]:
    if not piece.isascii() and _HAS_CJK.search(piece):
        return _bigrams(piece)
    folded = piece.casefold()
    return () if folded in _STOP_WORDS else (stem(folded),)


def _bigrams(run: str) -> tuple[str, ...]:
    return tuple(run[at : at + 2] for at in range(len(run) - 1)) or (run,)


class IndexEntry(Struct, frozen=True, kw_only=True):
    """The text of one tool, as far as the ranking reads it. Read once, when it is added; not kept."""

    name: str
    """The unique name that a search returns."""
    leaf: str
    """The tool's name inside its source; may equal `name`."""
    source: str
    source_title: str = ""
    source_description: str = ""
    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    category: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """JSON Schema of the arguments: names, descriptions and enum values of properties are read, nothing is resolved."""


class Hit(Struct, frozen=True, kw_only=True):
    """One tool that fits a query; hits come best first."""

    name: str
    score: float
    """Comparable within one answer only: inverse document frequencies, weighted."""
    exact: bool
    """The query is this tool's full or leaf name, in any case and with any separators."""


def _units_by_length(weight: float, length: float, slope: float) -> tuple[int, ...]:
    """Return the weight of one term by the number of terms in a field, in parts of `_WEIGHT_UNIT`.

    `length` is the reference: a field of this length has a factor of one. `slope` is the strength of the correction for
    other lengths (BM25's b): 0 none, 1 full.

    Computed in advance for every length, in whole numbers: adding a tool is a look-up for each field.
    """
    return tuple(
        max(1, round(_WEIGHT_UNIT * weight / (1.0 - slope + slope * count / length)))
        for count in range(_MAX_FIELD_TERMS + 1)
    )


_NAME = _units_by_length(3.0, 3.5, 0.3)
_TITLE = _units_by_length(1.5, 4.0, 0.3)
_SOURCE = _units_by_length(1.0, 4.0, 0.3)
_TAGS = _units_by_length(1.2, 4.0, 0.5)
_CATEGORY = _units_by_length(0.8, 2.0, 0.3)
_DESCRIPTION = _units_by_length(0.8, 32.0, 0.4)
_BLOCKS = _units_by_length(0.3, 25.0, 0.6)
_PARAMETER_NAMES = _units_by_length(1.5, 5.0, 0.7)
_PARAMETER_TEXTS = _units_by_length(0.4, 25.0, 0.7)
_SOURCE_NAME = _units_by_length(2.0, 4.0, 0.4)
_SOURCE_DESCRIPTION = _units_by_length(1.0, 25.0, 0.4)


class Document(NamedTuple):
    """One tool as the index keeps it."""

    levels: dict[str, int]
    """Every term of the tool with its impact, 1 to `LEVELS`; those of the name first."""
    name: list[str]
    """The terms of the name, in order."""
    head: list[str]
    """The terms of the description before any block of arguments, in order."""


def document(entry: IndexEntry) -> Document:
    """Return the weighted terms of one tool.

    Each field has its own weight and its own correction for length; the sum of a term is saturated once, at the end.
    """
    before, blocks = _split_description(entry.description)
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
    return Document(_saturate(weights), name, head)


def source_levels(key: str, title: str, description: str) -> dict[str, int]:
    """Return the weighted terms of a source itself."""
    weights: dict[str, int] = {}
    _weigh(weights, _SOURCE_NAME, terms(f"{key} {title}"))
    _weigh(weights, _SOURCE_DESCRIPTION, terms(description, _DESCRIPTION_WORDS))
    return _saturate(weights)


@lru_cache(maxsize=256)
def _source_terms(key: str, title: str) -> list[str]:
    """Return the terms of a source's names, which all its tools share. Not to be changed."""
    return terms(f"{key} {title}")


def _weigh(weights: dict[str, int], units: tuple[int, ...], found: list[str]) -> None:
    count = len(found)
    if not count:
        return
    unit, known = units[count] if count < _MAX_FIELD_TERMS else units[_MAX_FIELD_TERMS], weights.get
    once = set(found)
    if len(once) == count:
        for term in found:
            weights[term] = known(term, 0) + unit
        return
    left = dict.fromkeys(once, _MAX_REPEATS)
    for term in found:
        if left[term]:
            left[term] -= 1
            weights[term] = known(term, 0) + unit


def _saturate(weights: dict[str, int]) -> dict[str, int]:
    level_of, heaviest = _LEVEL_OF, len(_LEVEL_OF) - 1
    return {term: level_of[weight] if weight < heaviest else LEVELS for term, weight in weights.items()}


def _split_description(description: str) -> tuple[str, str]:
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
    return cast("Mapping[str, Any]", value) if isinstance(value, (dict, Mapping)) else _EMPTY_SCHEMA
