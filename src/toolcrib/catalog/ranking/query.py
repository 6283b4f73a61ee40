"""Query: its weighted terms, the actions that it wants, and matches for words that no tool has, in any language.

    Rechnungen  ->  rechnung          отмена  ->  отменить          creer  ->  créer

Stems are English ones. A word of another language that stands in a query in another form than in the tools would find
nothing: such a word, and only such a one, is taken for the words that begin alike, accents aside. Lifetime: that of the
index; made at the first word that no tool has.

A query to weighted terms: what the asker wants done counts, the values that it should be done to count little.

    "Save 'hello' to ./notes/a.md, then mail it to Ann Lee"
     save 1 · hello .2 · note .2 · … · mail 1 · ann .7 · lee .7 · file .5       two clauses: save …, then mail …

Quoted text, URLs, mail addresses, paths and numbers are values; their kind (a URL, a file) says more than their words.
Names in the middle of a sentence count somewhat less. Long requests are also kept clause by clause, since each may
need another tool; one that ends in saving to a path needs one that writes files, whether it says "file" or not. Pure
functions of the text; what the terms are worth in a catalog is decided in `score`.

Synonyms (`synonyms.txt`: get, fetch, show) and words of one topic (`topics.txt`), related by their stems.

Actions that a query wants are compared with those that a tool's name promises.

    "undo the deletion"       wants the opposite of deleting         `delete_file` is opposed, `restore_file` agrees
    "use the archived x"      archived is its state, not the wish    `archive_x` is opposed

A word has a sign on each of its axes: the pairs of `opposites.txt`, and one axis of its own, on which the word with
un-, de- or dis- before it has the other sign. A word that reverses (undo, "do not", remove, "stop …ing") turns the sign
of the action after it; so does an article before a participle, which tells a state. Pure functions of the text.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from heapq import nlargest
from itertools import pairwise, permutations
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from .terms import MAX_WORDS, is_asking, normal, read_lines, squash, stem, terms_of_word, words

Actions = Mapping[str, int]
"""Sign by axis: 1 and -1 are opposites."""

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_CLAUSE: Final = re.compile(r"[.!?;:,](?:\s|$)|\n|\b(?:and|then)\b", re.IGNORECASE)
_NEGATION: Final = re.compile(r"^\W*(?:please\s+)?(?:do\s+not|don['\u2019]?t|never)\b|\bno\s+longer\b", re.IGNORECASE)
_PREFIXES: Final = ("un", "dis", "de")
_MIN_BASE_LENGTH: Final = 3
"""Letters of a word that has an opposite with a prefix."""
_NOT_PREFIXED: Final = frozenset(
    map(
        stem,
        "cover deliver depart depend describe description design despatch detail determine discount discover discuss"
        " dispatch display dispute distance distribute understand unify union unique unit unite universe until".split(),
    )
)
_UNDO_VERBS: Final = frozenset(map(stem, "revert rollback undo".split()))
"""They reverse any word that follows."""
_STOP_VERB: Final = "stop"
"""It reverses what goes on: `stop following`."""
_MAX_REVERSED_DISTANCE: Final = 5
"""Words after one that reverses, itself included, among which the reversed one stands."""
_REVERSING_VERBS: Final = frozenset(
    map(stem, "cancel clear delete disable drop end leave lift release remove revoke stop take withdraw".split())
)
"""They reverse the next word if it has a pair: `remove the lock`."""
_ARTICLES: Final = frozenset("a all an any each every its my our that the their this those your".split())
_BEFORE_STATES: Final = _ARTICLES | frozenset("already been had has have just was were".split())
"""Words after which a participle tells the present state: `the archived project`, `was deleted`."""
_PARTICIPLES: Final = frozenset({"frozen", "hidden", "shut"})
_RESTORING_ADVERBS: Final = frozenset({"again", "back"})
_MAX_PARTICLE_DISTANCE: Final = 4
"""Words after a verb among which its particle stands."""
_MAX_CLAUSE_WORDS: Final = 60
_MAX_CACHED_NAMES: Final = 1 << 15

_RELATION_WEIGHTS = {"synonyms.txt": 1.0, "topics.txt": 0.5}
"""A word of the same topic counts half as much as a word of the same meaning."""

_MIN_COMMON_PREFIX = 4
"""Letters that must be the same."""
_MIN_PREFIX_SHARE = 0.6
"""Minimum share of the common beginning in the longer word."""
_MAX_SIMILAR = 4

_VALUE_WEIGHT = 0.2
_NUMBER_WEIGHT = 0.1
_NAME_WEIGHT = 0.7
_KIND_WEIGHT = 0.5
_RELATIVE_WEIGHT = 0.25
_REVERSED_FACTOR = 0.5
"""Factor on the weight of an action that the query wants reversed."""
_OPPOSITE_WEIGHT = 0.4
"""Weight of a word for the opposite of an action that the query wants reversed."""
_MAX_TERMS = 64
_MAX_CLAUSES = 8
_MAX_VALUE_SHARE = 0.7
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
_VALUE_KINDS = ((_URL, "url"), (_MAIL, "email"), (_PATH, "file"))
_SAVE_VERB = re.compile(
    r"\b(?:sav(?:e[sd]?|ing)|(?:over)?writ(?:e|es|ing|ten)|stor(?:e[sd]?|ing)|export(?:s|ed|ing)?|draft)\b",
    re.IGNORECASE,
)
_WRITE_FILE: tuple[str, str] = ("write", "file")
_IDENTIFIER = re.compile(r"(?<![\w.-])(?:(?:[A-Za-z]\w*[.-]){0,4}[A-Za-z]\w*_\w+(?:-\w+){0,4}|[a-z]+[A-Z]\w*)")


@cache
def _axes() -> Mapping[str, tuple[tuple[str, int], ...]]:
    """Return axes with signs by stem, also by stem and particle (`turn-off`); read at first use."""
    found: dict[str, list[tuple[str, int]]] = {}
    for number, line in enumerate(read_lines("opposites.txt")):
        for sign, side in zip((1, -1), line.split("|"), strict=True):
            for word in side.split():
                verb, dash, particle = word.partition("-")
                found.setdefault(stem(verb) + dash + particle, []).append((str(number), sign))
    return MappingProxyType({word: tuple(axes) for word, axes in found.items()})


@cache
def _sides() -> Mapping[tuple[str, int], tuple[str, ...]]:
    """Return the stems of each side of each pair, without those that need a particle."""
    found: dict[tuple[str, int], tuple[str, ...]] = {}
    for word, axes in _axes().items():
        for side in axes if "-" not in word else ():
            found[side] = (*found.get(side, ()), word)
    return MappingProxyType(found)


class WantedActions(Struct, frozen=True, kw_only=True):
    """Actions that a query asks for."""

    actions: Actions
    """An axis on which its clauses differ is left out."""
    reversed: frozenset[str]
    """Terms of actions that it wants reversed."""
    instead: frozenset[str]
    """Terms for the opposites of those, and verbs joined with their particle (`logout`)."""


@lru_cache(maxsize=_MAX_CACHED_NAMES)
def actions_of_name(name: str) -> tuple[Actions, ...]:
    """Return the actions in the last part of a tool's name, word by word, without an axis that has both signs."""
    words = [word.lower() for word in _WORD.findall(name.rpartition("__")[2].rpartition("/")[2])[:_MAX_CLAUSE_WORDS]]
    stems = [*map(stem, words)]
    signs: dict[str, set[int]] = {}
    found: list[dict[str, int]] = []
    for at, (axes, _) in enumerate(_axes_of_words(words, stems)):
        own, around = stems[at], {*stems[max(0, at - 1) : at], *stems[at + 1 : at + 2]}
        is_reversed = not around.isdisjoint(_UNDO_VERBS) or (not around.isdisjoint(_REVERSING_VERBS) and own in _axes())
        is_reversed = is_reversed and own not in _REVERSING_VERBS | _UNDO_VERBS
        base = _unprefixed_stem(words[at])
        itself = [(f"={base}", -1)] if base else [(f"={own}", 1)] if at == 0 or is_reversed else []
        found.append({axis: -sign if is_reversed else sign for axis, sign in (*axes, *itself)})
        for axis, sign in found[-1].items():
            signs.setdefault(axis, set()).add(sign)
    clear = ({axis: sign for axis, sign in actions.items() if len(signs[axis]) == 1} for actions in found)
    return tuple(MappingProxyType(actions) for actions in clear if actions)


def wanted_actions(query: str) -> WantedActions:
    """Return the action that `query` asks for.

    `turn off the alarm` wants the opposite of `turn_on_alarm`: such tools get half their score
    (`score._OPPOSED_FACTOR`).
    """
    signs: dict[str, set[int]] = {}
    undone, instead = set[str](), set[str]()
    for clause in _CLAUSE.split(normal(query)):
        for axis, sign in _read_clause(_NEGATION.sub(" undo ", clause), undone, instead).items():
            signs.setdefault(axis, set()).add(sign)
    actions = {axis: next(iter(found)) for axis, found in signs.items() if len(found) == 1}
    return WantedActions(
        actions=MappingProxyType(actions), reversed=frozenset(undone), instead=frozenset(instead - undone)
    )


def are_opposed(wanted: Actions, promised: Sequence[Actions]) -> bool:
    """Whether the first word of a name that has to do with what is wanted promises its opposite.

    The first word of the name that has an axis in common decides.
    """
    for actions in promised:
        shared = [(sign * wanted[axis], axis[0] != "=" or sign < 0) for axis, sign in actions.items() if axis in wanted]
        if any(sign > 0 and is_certain for sign, is_certain in shared):
            return False
        if any(sign < 0 for sign, _ in shared):
            return True
    return False


def _read_clause(clause: str, undone: set[str], instead: set[str]) -> dict[str, int]:
    """Return the actions of one clause, where the first sign on an axis counts; add to the terms of `WantedActions`."""
    words = [word.lower() for word in _WORD.findall(clause)[:_MAX_CLAUSE_WORDS]]
    stems = [*map(stem, words)]
    turned = _reversed_positions(words, stems)
    found: dict[str, int] = {}
    for at, (axes, particle) in enumerate(_axes_of_words(words, stems)):
        word, own = words[at], stems[at]
        is_turned = at in turned
        is_participle = at > 0 and bool(axes) and (word.endswith("ed") or word in _PARTICIPLES)
        is_state = is_participle and words[at - 1] in _BEFORE_STATES
        if is_turned or (is_state and not _RESTORING_ADVERBS.isdisjoint(words)):
            undone.add(own)
            instead.update(f"{prefix}{own}" for prefix in _PREFIXES)
            instead.update(term for axis, sign in axes for term in _sides()[axis, -sign])
        if particle and own + particle in _axes():
            instead.add(own + particle)
        base = _unprefixed_stem(words[at])
        for axis, sign in (*axes, (f"={base or own}", -1 if base else 1)):
            found.setdefault(axis, -sign if is_turned or is_state else sign)
    return found


def _reversed_positions(words: Sequence[str], stems: Sequence[str]) -> set[int]:
    """Return the places of the words that the one before reverses."""
    known, found = _axes(), set[int]()
    for at, own in enumerate(stems):
        after = [
            place
            for place in range(at + 1, min(at + _MAX_REVERSED_DISTANCE, len(words)))
            if words[place] not in _ARTICLES
        ]
        if own in _UNDO_VERBS and after:
            found.add(next((place for place in after if stems[place] in known), after[0]))
        elif (own in _REVERSING_VERBS and after and stems[after[0]] in known) or (
            own == _STOP_VERB and after and after[0] == at + 1 and words[after[0]].endswith("ing")
        ):
            found.add(after[0])
    return found


def _axes_of_words(words: Sequence[str], stems: Sequence[str]) -> list[tuple[tuple[tuple[str, int], ...], str]]:
    """Return the axes of each word, and its particle: those of both, if it follows soon, else those of the word."""
    axes = _axes()
    found: list[tuple[tuple[tuple[str, int], ...], str]] = []
    for at, own in enumerate(stems):
        beside = words[at + 1 : at + 1 + _MAX_PARTICLE_DISTANCE]
        particle = next((other for other in beside if f"{own}-{other}" in axes), "")
        found.append((axes[f"{own}-{particle}"] if particle else axes.get(own, ()), particle))
    return found


def _unprefixed_stem(word: str) -> str:
    """Return the stem of what a negating prefix stands before; empty without one."""
    if stem(word) in _NOT_PREFIXED:
        return ""
    found = next((prefix for prefix in _PREFIXES if word.startswith(prefix)), "")
    return stem(word[len(found) :]) if found and len(word) - len(found) >= _MIN_BASE_LENGTH else ""


@cache
def relatives() -> Mapping[str, tuple[tuple[str, float], ...]]:
    """Return, for a stem, those that stand beside it in a group, with their weights in (0, 1]; built at first use."""
    found: dict[str, dict[str, float]] = {}
    for file, weight in _RELATION_WEIGHTS.items():
        for line in read_lines(file):
            members = list(dict.fromkeys(map(stem, line.split())))
            for one, other in permutations(members, 2):
                row = found.setdefault(one, {})
                row[other] = max(row.get(other, 0.0), weight)
    return MappingProxyType({one: tuple(row.items()) for one, row in found.items()})


class SimilarWords:
    """The words of one vocabulary, by how they begin; made in one pass over it, then changed word by word.

    For words that no tool has: words with the same beginning, by the share of it.
    """

    def __init__(self, vocabulary: Iterable[str]) -> None:
        self._words: defaultdict[str, list[str]] = defaultdict(list)
        for word in vocabulary:
            self.add(word)

    def add(self, word: str) -> None:
        """Take a word that is new in the vocabulary."""
        folded = _without_accents(word)
        if len(folded) >= _MIN_COMMON_PREFIX and folded.isalpha():
            self._words[folded[:_MIN_COMMON_PREFIX]].append(word)

    def remove(self, word: str) -> None:
        """Drop a word that has left the vocabulary."""
        found = self._words.get(_without_accents(word)[:_MIN_COMMON_PREFIX], [])
        if word in found:
            found.remove(word)

    def of(self, word: str) -> dict[str, float]:
        """Return the words that begin as `word` does, a few at most, and how much of the longer one that is."""
        folded = _without_accents(word)
        if len(folded) < _MIN_COMMON_PREFIX:
            return {}
        known = self._words.get(folded[:_MIN_COMMON_PREFIX], ())
        found = [(_prefix_share(folded, _without_accents(other)), other) for other in known]
        return {other: share for share, other in nlargest(_MAX_SIMILAR, found) if share >= _MIN_PREFIX_SHARE}


def _without_accents(word: str) -> str:
    """Return `word` without accents."""
    if word.isascii():
        return word
    return "".join(char for char in unicodedata.normalize("NFD", word) if unicodedata.category(char) != "Mn")


def _prefix_share(one: str, other: str) -> float:
    same = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        same += 1
    return same / max(len(one), len(other))


class QueryTerms(Struct, frozen=True, kw_only=True):
    """Weighted terms of a query, before any catalog is considered."""

    whole: str
    """The query as names are compared."""
    mentioned: tuple[str, ...]
    """Words that look like identifiers, as names are compared."""
    weights: dict[str, float]
    """The terms of the query; repeats count by their square root."""
    related: dict[str, float]
    """Synonyms and related terms that do not occur in the query itself; opposites of what it wants reversed."""
    neighbours: tuple[tuple[str, str], ...]
    """Terms that stand side by side."""
    clauses: tuple[dict[str, float], ...]
    """The terms of each clause with their related terms, when there are several clauses."""
    actions: Actions
    """The actions that the query wants."""


def plan(query: str) -> QueryTerms:
    """Return the terms of `query`.

    Values in the query (URLs, paths, quoted texts) weigh less than its other words: tools are not named after them.
    """
    text = normal(query)
    clauses = [clause for clause in _clauses(text) if clause]
    sequence = [pair for clause in clauses for pair in clause]
    wanted = wanted_actions(text)
    weights = _sum_weights(
        [(term, weight * (_REVERSED_FACTOR if term in wanted.reversed else 1.0)) for term, weight in sequence]
    )
    for pattern, kind in _VALUE_KINDS:
        if weights and kind not in weights and pattern.search(text):
            weights[kind] = _KIND_WEIGHT
    neighbours = list(pairwise([term for term, _ in sequence]))
    several = [_sum_weights(clause) for clause in clauses if len(clause) > 1][:_MAX_CLAUSES]
    if saves_file(text):
        several = [*(several or [weights.copy()]), dict.fromkeys(_WRITE_FILE, 1.0)]
        weights |= dict.fromkeys(_WRITE_FILE, 1.0)
        neighbours.append(_WRITE_FILE)
    return QueryTerms(
        whole=squash(text),
        mentioned=tuple(dict.fromkeys(squash(word) for word in _IDENTIFIER.findall(text)))[:_MAX_CLAUSES],
        weights=weights,
        related=_related(weights) | {term: _OPPOSITE_WEIGHT for term in wanted.instead if term not in weights},
        neighbours=tuple(dict.fromkeys(neighbours)),
        clauses=tuple(_related(clause) | clause for clause in several) if len(several) > 1 else (),
        actions=wanted.actions,
    )


def saves_file(text: str) -> bool:
    """Whether something is to be saved, in one clause, to a path: `save the summary to ./notes/a.md`."""
    for clause in _CLAUSE_END.split(_MAIL.sub(" ", _URL.sub(" ", text))):
        verb = _SAVE_VERB.search(clause)
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
    """Return for each character whether it is part of a value.

    A value that is nearly the whole query (`_MAX_VALUE_SHARE`) is not a value.
    """
    inside = bytearray(len(text))
    most = _MAX_VALUE_SHARE * len(text.strip())
    for pattern in (_URL, _MAIL, _PATH, _QUOTED):
        for match in pattern.finditer(text):
            start, end = match.span()
            if end - start <= most:
                inside[start:end] = b"\1" * (end - start)
    return inside


def _weight(term: str, text: str, at: int, values: bytearray) -> float:
    if values[at]:
        weight = _VALUE_WEIGHT
    elif _is_inner_name(text, at):
        weight = _NAME_WEIGHT
    else:
        weight = 1.0
    return weight * _NUMBER_WEIGHT if term.isdecimal() else weight


def _is_inner_name(text: str, at: int) -> bool:
    """Whether a word is written like a name (`Paris`) and does not begin a sentence."""
    if not text[at].isupper() or text[at : at + 2].isupper():
        return False
    before = text[:at].rstrip()
    return bool(before) and before[-1] not in ".!?:;"


def _sum_weights(sequence: list[tuple[str, float]]) -> dict[str, float]:
    """Return the weight of each term, `_MAX_TERMS` at most; repeats count by their square root."""
    totals: dict[str, float] = {}
    for term, weight in sequence:
        totals[term] = totals.get(term, 0.0) + weight
        if len(totals) == _MAX_TERMS:
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
