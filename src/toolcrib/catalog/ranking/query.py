"""Weighted terms of a query, and matches for words that no tool has (inflected forms in any language).

    Rechnungen  ->  rechnung          отмена  ->  отменить          creer  ->  créer

Stems are English ones. A word of another language that stands in a query in another form than in the tools would find
nothing: such a word, and only such a one, is taken for the words that begin alike, accents aside. Lifetime: until a
term comes or goes; made at the first word that no tool has.

A query to weighted terms: what the asker wants done counts, the values that it should be done to count little.

    "Save 'hello' to ./notes/a.md, then mail it to Ann Lee"
     save 1 · hello .2 · note .2 · … · mail 1 · ann .7 · lee .7 · file .5       two clauses: save …, then mail …

Quoted text, URLs, mail addresses, paths and numbers are values; their kind (a URL, a file) says more than their words.
Names in the middle of a sentence count somewhat less. Long requests are also kept clause by clause, since each may
need another tool; one that ends in saving to a path needs one that writes files, whether it says "file" or not. Pure
functions of the text; what the terms are worth in a catalog is decided in `score`.

Synonyms (`synonyms.txt`: get, fetch, show) and words of one topic (`topics.txt`), related by their stems.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from heapq import nlargest
from itertools import pairwise
from types import MappingProxyType

from .terms import MAX_WORDS, is_asking, normal, read_lines, squash, stem, terms_of_word, words

__all__ = ["Alikes", "Plan", "plan", "relatives", "saves_file"]

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


_BEGINNING = 4
"""Letters that must be the same."""
_LEAST_SHARE = 0.6
"""Minimum share of the common beginning in the longer word."""
_MOST = 4


class Alikes:
    """The words of one vocabulary, by how they begin; made in one pass over it."""

    def __init__(self, vocabulary: Iterable[str]) -> None:
        self._words: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for word in vocabulary:
            folded = _folded(word)
            if len(folded) >= _BEGINNING and folded.isalpha():
                self._words[folded[:_BEGINNING]].append((folded, word))

    def of(self, word: str) -> dict[str, float]:
        """Return the words that begin as `word` does, a few at most, and how much of the longer one that is."""
        folded = _folded(word)
        if len(folded) < _BEGINNING:
            return {}
        found = [(_share(folded, other), known) for other, known in self._words.get(folded[:_BEGINNING], ())]
        return {known: share for share, known in nlargest(_MOST, found) if share >= _LEAST_SHARE}


def _folded(word: str) -> str:
    """Return `word` without accents."""
    if word.isascii():
        return word
    return "".join(char for char in unicodedata.normalize("NFD", word) if unicodedata.category(char) != "Mn")


def _share(one: str, other: str) -> float:
    same = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        same += 1
    return same / max(len(one), len(other))


_VALUE_WEIGHT = 0.2
_NUMBER_WEIGHT = 0.1
_NAME_WEIGHT = 0.7
_KIND_WEIGHT = 0.5
_RELATIVE_WEIGHT = 0.25
_MOST_TERMS = 64
_MOST_CLAUSES = 8
_MOSTLY = 0.7
"""A value that is more than this share of the query is the query itself."""

_URL = re.compile(r"https?://\S+|www\.\S+", re.IGNORECASE)
_MAIL = re.compile(r"[^\s@]{1,64}@[\w-]{1,63}\.[\w.-]{1,63}")
_PATH = re.compile(
    r"(?<![\w/])(?:\.{0,2}/|~/|[A-Za-z]:\\)[\w.\-/\\]+|(?<![\w/.-])[\w-]+(?:/[\w.-]+)+|(?<![\w.-])[\w-]+\.[a-z]{2,4}\b"
)
_QUOTED = re.compile(
    r"(?<!\w)'[^'\n]{2,300}'(?!\w)|\"[^\"\n]{2,300}\"|`[^`\n]{2,300}`"
    r"|\u201c[^\u201d\n]{2,300}\u201d|\u2018[^\u2019\n]{2,300}\u2019"
)
_CLAUSE_END = re.compile(r"[.!?;:](?:\s|$)|[\u3002\uff01\uff1f\uff1b\n]")
_KINDS = ((_URL, "url"), (_MAIL, "email"), (_PATH, "file"))
_SAVING = re.compile(
    r"\b(?:sav(?:e[sd]?|ing)|(?:over)?writ(?:e|es|ing|ten)|stor(?:e[sd]?|ing)|export(?:s|ed|ing)?|draft)\b",
    re.IGNORECASE,
)
_WRITE_FILE: tuple[str, str] = ("write", "file")
_IDENTIFIER = re.compile(r"(?<![\w.-])(?:(?:[A-Za-z]\w*[.-]){0,4}[A-Za-z]\w*_\w+(?:-\w+){0,4}|[a-z]+[A-Z]\w*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Weighted terms of a query, before any catalog is considered."""

    whole: str
    """The query as names are compared."""
    mentioned: tuple[str, ...]
    """Words that look like identifiers, as names are compared."""
    weights: dict[str, float]
    """The terms of the query; repeats count by their square root."""
    related: dict[str, float]
    """Synonyms and related terms that do not occur in the query itself."""
    neighbours: tuple[tuple[str, str], ...]
    """Terms that stand side by side."""
    clauses: tuple[dict[str, float], ...]
    """The terms of each clause with their related terms, when there are several clauses."""


def plan(query: str) -> Plan:
    """Return what `query` asks for."""
    text = normal(query)
    clauses = [clause for clause in _clauses(text) if clause]
    sequence = [pair for clause in clauses for pair in clause]
    weights = _totals(sequence)
    for pattern, kind in _KINDS:
        if weights and kind not in weights and pattern.search(text):
            weights[kind] = _KIND_WEIGHT
    neighbours = list(pairwise([term for term, _ in sequence]))
    several = [_totals(clause) for clause in clauses if len(clause) > 1][:_MOST_CLAUSES]
    if saves_file(text):
        several = [*(several or [weights.copy()]), dict.fromkeys(_WRITE_FILE, 1.0)]
        weights |= dict.fromkeys(_WRITE_FILE, 1.0)
        neighbours.append(_WRITE_FILE)
    return Plan(
        whole=squash(text),
        mentioned=tuple(dict.fromkeys(squash(word) for word in _IDENTIFIER.findall(text)))[:_MOST_CLAUSES],
        weights=weights,
        related=_related(weights),
        neighbours=tuple(dict.fromkeys(neighbours)),
        clauses=tuple(_related(clause) | clause for clause in several) if len(several) > 1 else (),
    )


def saves_file(text: str) -> bool:
    """Whether something is to be saved, in one clause, to a path: `save the summary to ./notes/a.md`."""
    for clause in _CLAUSE_END.split(_MAIL.sub(" ", _URL.sub(" ", text))):
        verb = _SAVING.search(clause)
        if verb is not None and _PATH.search(clause, verb.end()):
            return True
    return False


def _clauses(text: str) -> list[list[tuple[str, float]]]:
    """Return the weighted terms of each clause; words of asking are left out unless the clause has no others."""
    ends = [match.end() for match in _CLAUSE_END.finditer(text)]
    values = _values(text)
    found: list[list[tuple[str, float]]] = [[] for _ in range(len(ends) + 1)]
    asking: list[tuple[str, float]] = []
    for match in words(text, MAX_WORDS):
        word, at = match.group(), match.start()
        made = [(term, _weight(term, text, at, values)) for term in terms_of_word(word)]
        if is_asking(word):
            asking.extend(made)
        else:
            found[bisect_right(ends, at)].extend(made)
    return found if any(found) else [asking]


def _values(text: str) -> bytearray:
    """Return for each character whether it is part of a value."""
    inside = bytearray(len(text))
    most = _MOSTLY * len(text.strip())
    for pattern in (_URL, _MAIL, _PATH, _QUOTED):
        for match in pattern.finditer(text):
            start, end = match.span()
            if end - start <= most:
                inside[start:end] = b"\1" * (end - start)
    return inside


def _weight(term: str, text: str, at: int, values: bytearray) -> float:
    if values[at]:
        weight = _VALUE_WEIGHT
    elif _inner_name(text, at):
        weight = _NAME_WEIGHT
    else:
        weight = 1.0
    return weight * _NUMBER_WEIGHT if term.isdecimal() else weight


def _inner_name(text: str, at: int) -> bool:
    """Whether a word is written like a name (`Paris`) and does not begin a sentence."""
    if not text[at].isupper() or text[at : at + 2].isupper():
        return False
    before = text[:at].rstrip()
    return bool(before) and before[-1] not in ".!?:;"


def _totals(sequence: list[tuple[str, float]]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for term, weight in sequence:
        totals[term] = totals.get(term, 0.0) + weight
        if len(totals) == _MOST_TERMS:
            break
    return {term: total**0.5 if total > 1.0 else total for term, total in totals.items()}


def _related(weights: dict[str, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    known = relatives()
    for term, own in weights.items():
        for other, strength in known.get(term, ()):
            weight = _RELATIVE_WEIGHT * strength * min(own, 1.0)
            if other not in weights and found.get(other, 0.0) < weight:
                found[other] = weight
    return found
