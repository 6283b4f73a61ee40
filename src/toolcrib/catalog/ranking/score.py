"""Ranking: candidates from the postings, strongest first within a budget, then each candidate by all that it has.

Gathering walks (term, group) runs in the order of what a posting in them is worth, and stops after so many postings
that an answer takes milliseconds in any catalog: what is left then is common words in unimportant places. Ranking is
exact for the candidates: BM25F over all terms, neighbouring words, the source's own score, how much of the name the
query covers, and the best single clause of a long request. Where vectors are at hand, the tools nearest in meaning are
candidates too, and each score is mixed with the nearness.

Last the best are put in order one by one: a tool with the name of one that is already there steps back a little, and
in a long request, which may want several tools, so does one that only repeats the words of those before it.

A tool whose name promises the opposite of what the query wants done (`query.py`) has half its score.

Sums are whole numbers, so that no order of adding shows in a score. Ties go to the name that sorts first, so that an
index answers alike however it was built; `Catalog.search` settles them by what the tools do.

    plan (query.py) ── _weigh ──► terms in the numbers of the corpus, with what a posting of each is worth
    _candidates     the strongest runs of postings, within the budget       at most ten for each result
    _score          each candidate by all its terms                          BM25F, neighbours, source, name, clauses
    _any_fits       is there an answer at all?                               else nothing is returned
    _with_meaning, boost, opposites ──► `_reorder`

The constants were fitted on labelled sets (`bench/retrieval.py`): a change of one needs the figures again.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nlargest, nsmallest
from itertools import takewhile
from math import fsum, log, log1p
from typing import NamedTuple, Protocol

from msgspec import Struct, field

from .postings import GROUP_LEVELS, NAME_FLAG, SCALE, Postings, SourceIndex, rarity
from .query import Actions, QueryTerms, actions_of_name, are_opposed
from .terms import LEVELS

_Allowed = Callable[[str], bool] | None
_NONE: Mapping[str, int] = {}

_MIN_CANDIDATES = 10
_MAX_CANDIDATES_PER_RESULT = 10
_MIN_CANDIDATE_SHARE = 0.65
"""Candidates are ranked if they gathered this share of the last retained one's score, ten for each result at most.

Without the share the figures on the labelled sets are the same to the third digit.
"""
_MIN_BUDGET = 3_000
_BUDGET_SHARE = 0.2
"""Postings walked at most: this share of the number of tools, but no fewer than the floor (whole runs only). On the
labelled sets, a budget without end and 1,000 candidates give the same figures to the third digit."""
_BUDGET_GROWTH = 8
_MAX_TERMS = 64
"""Terms of a query that count, those worth most first: a pasted page is a query, too."""

_NEIGHBOUR_BONUS = 0.35
"""Bonus for two words that stand side by side in query and tool, as a share of what the two are worth."""
_SIMILAR_WORD_WEIGHT = 0.5
"""Maximum weight of a word that no tool has, through a similar one."""
_SOURCE_SHARE = 0.25
"""Share of the score of a tool's source that the tool gets: the words of a source speak for all of its tools."""
_NAME_COVERAGE_BONUS = 0.5
"""The most that the part of its name which the query covers adds to a tool's score, as a share of that."""
_RELATED_COVERAGE = 0.5
"""How much of a name a word covers that is only related to one of the query."""
_CLAUSE_BONUS = 0.25
"""Bonus for the best clause of a long request, as a share of the best score: one clause often names one tool."""
_FIT_PER_TERM = 0.0049
_FIT_TOOLS = 5
_FIT_BOUNDS = (0.05, 0.95)
"""Minimum share of a query that the best tool must match: for each term that a tool has on average, times
ln(1 + tools/5).

Long descriptions contain some word of any query, and the more tools there are, the better one of them matches what is
none of their business. Divided by (words + 1)^.85, since a tool matches only a small part of a long request. A tool
that has every word of the query fits in any case, since models also search by one or two words.

Fitted on the development queries of five labelled sets, and of 400 catalogs of 1 to 30 of their sources, so that of the
labelled queries at most 2 % are refused in each set (`bench/retrieval`). The figures that some of the sets give hold
for the others, except that they refuse 2.4 % of `mcp_mid`.
"""
_FIT_POWER = 0.85
_MEANING_SHARES = (0.55, 0.35)
"""Share of meaning in the score, where vectors exist: between these, by the match of the best tool's words."""
_MEANING_FIT_BOUNDS = (0.05, 0.5)
_NEAREST_RANKED = 50
"""Tools nearest in meaning that are ranked even without a shared word."""
_MIN_COSINE = 0.345
"""With vectors, how near the nearest tool must be where the words fit just enough: `_COSINE_PER_FIT` less for each
factor e by which they fit better, and more where they fit worse, at most .52, from where meaning alone is enough.

Cosines of MiniLM; those of other models lie higher, and refuse less. Fitted like `_FIT_PER_TERM`: 1.7 % at most are
refused of a set's own queries. A classifier of sixteen such features that learns from one set refuses .14 to .41 of the
queries that are foreign to it at 2 %, this .01 to .48, words alone .01 to .36.
"""
_COSINE_PER_FIT = 0.25
_MIN_FIT_SHARE = 0.5
"""Share of the least fit; words that fit less count as this much."""
_WORDLESS_SCALE = 0.02
"""The scale of scores when no tool has a word of the query: this share of the query."""
_MAX_REORDERED = 30
"""Results that are put in order one by one, which takes time in their square; the others keep their order."""
_NAMESAKE_PENALTY = 0.1
"""Taken from a tool whose name one before it has, as a share of the best score."""
_LONG_REQUEST_TERMS = 16
"""Requests of more terms than this may want several tools."""
_COVERED_PENALTY = 0.2
"""How much less a word of a long request counts, at most, once a tool that has it was taken."""
_BOOST_BOUNDS = (0.5, 2.0)
"""Bounds of the factor that a caller gives by name: it changes the order of what fits, and makes nothing fit."""
_OPPOSED_FACTOR = 0.5
"""Factor on the score of a tool whose name promises the opposite of what is wanted."""
_MIN_SCORE_SHARE = 0.2
"""Neither is one that scores less than this share of the best: short lists where one tool stands out."""


class Corpus(Struct, kw_only=True):
    """Ranked documents: the postings, and by document number its name (empty: the number is free) and its source.

    `rarities` and `name_masses` are caches over the size of the corpus, which `count_changed` drops.
    """

    postings: Postings
    sources: SourceIndex
    names: list[str]
    source_of: array[int]
    number_of: dict[str, int] = field(default_factory=dict[str, int])
    size: int = 0
    terms: int = 0
    """Total number of terms of all documents."""
    rarities: dict[int, float] = field(default_factory=dict[int, float])
    name_masses: dict[int, float] = field(default_factory=dict[int, float])

    @property
    def min_fit(self) -> float:
        """Return the lowest fit of the best document that is an answer."""
        size = max(self.size, 1)
        low, high = _FIT_BOUNDS
        return min(max(_FIT_PER_TERM * self.terms / size * log1p(size / _FIT_TOOLS), low), high)

    def count_changed(self, by: int, terms: int) -> None:
        """Record that a document came or went: values derived from their number are recomputed."""
        self.size += by
        self.terms += by * terms
        self.rarities.clear()
        self.name_masses.clear()

    def rarity(self, term: int) -> float:
        """Return the rarity of a term."""
        known = self.rarities.get(term)
        if known is None:
            known = self.rarities[term] = rarity(sum(self.postings.sizes(term)), self.size)
        return known

    def name_mass(self, number: int) -> float:
        """Return the total rarity of the terms of a document's name; they come first among its pairs."""
        known = self.name_masses.get(number)
        if known is None:
            pairs = takewhile(NAME_FLAG.__and__, self.postings.pairs(number))
            known = self.name_masses[number] = fsum(self.rarity(pair >> 8) for pair in pairs)
        return known


class Ranked(NamedTuple):
    """A candidate after ranking."""

    score: float
    number: int


class _Term(NamedTuple):
    worth: int
    """Weight, rarity and SCALE multiplied: the score of one level of impact."""
    spelling: str
    number: int


class _WeighedQuery(Struct, kw_only=True):
    """A plan in the numbers of one corpus."""

    asked: float
    """Score of a document that contained every term of the query."""
    length: int
    """Number of terms in the query, plus one."""
    own: frozenset[int]
    """Terms of the query that some tool has, without related ones."""
    terms: list[_Term]
    worth: dict[int, int]
    covers: dict[int, float]
    """Rarity of a term: its part in covering a name. Terms that are only related to the query cover less."""
    neighbours: list[tuple[int, int, bytes, int]]
    clauses: list[dict[int, int]]
    source_worth: dict[str, int]
    source_scores: dict[int, int] = field(default_factory=dict[int, int])


class _Scored(NamedTuple):
    """A candidate with its scores: `fit` decides whether there is an answer, `total` the order."""

    number: int
    fit: float
    """Share of the query that the document matches; 1.0 is every term, in the best field."""
    total: float
    clauses: list[int]
    levels: dict[int, int]


class Similarities(Protocol):
    """Similarity of the documents to the query in meaning, by their names."""

    @property
    def most(self) -> float:
        """The highest cosine of all."""
        ...

    def best(self, count: int) -> list[str]:
        """Return the names of the nearest."""
        ...

    def of(self, name: str) -> float | None:
        """Return 1.0 for the nearest, 0.0 for an average one, None if unknown."""
        ...


class SearchOptions(Struct, frozen=True, kw_only=True):
    """Parameters of a search beside the query."""

    allowed: Callable[[str], bool] | None = None
    """Whether a name may be found at all."""
    boost: Callable[[str], float] | None = None
    """A factor by name, limited to a half and two: other knowledge of a tool than its words."""
    near: Similarities | None = None
    weak: bool = False
    """Also what fits too little to be an answer."""


_NO_OPTIONS = SearchOptions()


def rank(
    corpus: Corpus, plan: QueryTerms, k: int, *, also: Mapping[str, int] = _NONE, options: SearchOptions = _NO_OPTIONS
) -> list[Ranked]:
    """Return the tools that fit, best first: `k` or more, if so many do; those in `also` (names) in any case."""
    weighed, allowed = _weigh(corpus, plan), options.allowed
    wanted = {number for name, number in also.items() if allowed is None or allowed(name)}
    chosen = _candidates(corpus, weighed, max(k, _MIN_CANDIDATES), allowed) | wanted
    if options.near is not None:
        nearest = map(corpus.number_of.get, options.near.best(max(k, _NEAREST_RANKED)))
        chosen |= {n for n in nearest if n is not None and (allowed is None or allowed(corpus.names[n]))}
    scored = [_score(corpus, weighed, number) for number in chosen]
    if not options.weak and not _any_fits(corpus, scored, weighed, options.near):
        scored = [one for one in scored if one.number in wanted]
    ranked = _with_meaning(corpus, weighed, _with_clauses(scored, len(weighed.clauses)), options.near)
    if options.boost is not None:
        ranked = [
            Ranked(one.score * _bound_boost(options.boost(corpus.names[one.number])), one.number) for one in ranked
        ]
    ranked = [_lower_opposed(one, plan.actions, corpus.names[one.number]) for one in ranked]
    least = _MIN_SCORE_SHARE * max((one.score for one in ranked if one.number not in wanted), default=0.0)
    kept = [one for one in ranked if one.score >= least or one.number in wanted]
    kept.sort(key=lambda one: (-one.score, corpus.names[one.number]))
    return _reorder(corpus, weighed, kept, {one.number: one.levels for one in scored})


def _lower_opposed(one: Ranked, wanted: Actions, name: str) -> Ranked:
    """Lower the score of a tool whose name promises the opposite of what is wanted."""
    return Ranked(one.score * _OPPOSED_FACTOR, one.number) if are_opposed(wanted, actions_of_name(name)) else one


def _bound_boost(factor: float) -> float:
    low, high = _BOOST_BOUNDS
    return min(max(factor, low), high)


def _any_fits(corpus: Corpus, scored: list[_Scored], weighed: _WeighedQuery, near: Similarities | None) -> bool:
    """Whether there is an answer at all: all of the query's words, enough of them, or words and meaning together."""
    best = max(scored, key=lambda one: one.fit, default=None)
    share = (best.fit if best else 0.0) * weighed.length**_FIT_POWER / corpus.min_fit
    if (
        weighed.own
        and len(weighed.own) == weighed.length - 1
        and any(weighed.own <= one.levels.keys() for one in scored)
    ):
        return True
    if near is None or (best and near.of(corpus.names[best.number]) is None):  # its vector is not made yet
        return share >= 1.0
    return near.most + _COSINE_PER_FIT * log(max(share, _MIN_FIT_SHARE)) >= _MIN_COSINE


def _with_meaning(
    corpus: Corpus, weighed: _WeighedQuery, ranked: list[Ranked], near: Similarities | None
) -> list[Ranked]:
    """Mix each score, as a share of the highest, with nearness; the scale stays that of the words."""
    if near is None or not ranked:
        return ranked
    highest = max(one.score for one in ranked)
    scale = highest or _WORDLESS_SCALE * weighed.asked
    meaning = _meaning_share(highest / weighed.asked if weighed.asked else 0.0)
    mixed: list[Ranked] = []
    for one in ranked:
        share = one.score / scale
        nearness = near.of(corpus.names[one.number])
        mixed.append(
            Ranked(scale * (share + meaning * ((share if nearness is None else nearness) - share)), one.number)
        )
    return mixed


def _meaning_share(fit: float) -> float:
    """Return the weight of similarity, given the fit of the best tool by its words."""
    low, high = _MEANING_FIT_BOUNDS
    place = (min(max(fit, low), high) - low) / (high - low)
    return _MEANING_SHARES[0] + place * (_MEANING_SHARES[1] - _MEANING_SHARES[0])


def _reorder(
    corpus: Corpus, weighed: _WeighedQuery, ranked: list[Ranked], levels: Mapping[int, Mapping[int, int]]
) -> list[Ranked]:
    """Put the first ones in order one by one, each score lowered by what those before it already cover.

    Quadratic in the results that it orders: `_MAX_REORDERED` at most.
    """
    waiting, arranged = ranked[:_MAX_REORDERED], list[Ranked]()
    step = _NAMESAKE_PENALTY * (waiting[0].score if waiting else 0.0)
    names = {one.number: corpus.postings.name(one.number) for one in waiting}
    cover = (
        _TermCoverage(weighed.worth, [levels[one.number] for one in waiting])
        if weighed.length > _LONG_REQUEST_TERMS + 1
        else None
    )
    taken: set[bytes] = set()
    while waiting:
        lowered = [
            one.score * (cover.uncovered_share(levels[one.number]) if cover else 1.0)
            - step * (names[one.number] in taken)
            for one in waiting
        ]
        at = max(range(len(waiting)), key=lowered.__getitem__)
        one = waiting.pop(at)
        arranged.append(Ranked(lowered[at], one.number))
        taken.add(names[one.number])
        if cover:
            cover.add(levels[one.number])
    floor = arranged[-1].score if arranged else 0.0
    return arranged + [Ranked(min(one.score, floor), one.number) for one in ranked[_MAX_REORDERED:]]


class _TermCoverage:
    """Coverage of a request by the tools taken so far: each of its terms by the best of them."""

    def __init__(self, worth: Mapping[int, int], candidates: Iterable[Mapping[int, int]]) -> None:
        self._level_worth = worth
        self._left = dict.fromkeys(worth, 1.0)
        self._highest: dict[int, int] = {}
        for levels in candidates:
            for term, level in levels.items():
                self._highest[term] = max(level, self._highest.get(term, 0))

    def uncovered_share(self, levels: Mapping[int, int]) -> float:
        """Return which share of a tool's terms the others do not cover."""
        whole = sum([self._level_worth[term] * level for term, level in levels.items()])
        left = sum([self._level_worth[term] * level * self._left[term] for term, level in levels.items()])
        return left / whole if whole else 1.0

    def add(self, levels: Mapping[int, int]) -> None:
        """Count the terms of a tool as covered."""
        for term, level in levels.items():
            self._left[term] = min(self._left[term], 1.0 - _COVERED_PENALTY * level / self._highest[term])


def _weigh(corpus: Corpus, plan: QueryTerms) -> _WeighedQuery:
    known = corpus.postings.vocabulary
    asked = plan.related | _similar_terms(corpus, plan.weights) | plan.weights
    found = [
        _Term(_level_worth(corpus, number, weight), term, number)
        for term, weight in asked.items()
        if (number := known.get(term)) is not None
    ]
    terms = nlargest(_MAX_TERMS, found)
    return _WeighedQuery(
        asked=_full_score(corpus, plan.weights),
        length=len(plan.weights) + 1,
        own=frozenset(known[term] for term in plan.weights if term in known),
        terms=terms,
        worth={term.number: term.worth for term in terms},
        covers={
            term.number: corpus.rarity(term.number) * (1.0 if term.spelling in plan.weights else _RELATED_COVERAGE)
            for term in terms
        },
        neighbours=_neighbour_pairs(corpus, plan),
        clauses=[
            {known[term]: _level_worth(corpus, known[term], weight) for term, weight in clause.items() if term in known}
            for clause in plan.clauses
        ],
        source_worth=corpus.sources.worth(asked),
    )  # fmt: skip


def _similar_terms(corpus: Corpus, weights: Mapping[str, float]) -> dict[str, float]:
    """Return the terms that replace those that no tool has."""
    known, found = corpus.postings.vocabulary, dict[str, float]()
    for term, weight in weights.items():
        if term not in known:
            for other, share in corpus.postings.similar_terms(term).items():
                found[other] = max(found.get(other, 0.0), _SIMILAR_WORD_WEIGHT * share * weight)
    return found


def _full_score(corpus: Corpus, weights: dict[str, float]) -> float:
    """Return the score of a document that contained every term of the query, including those in no document."""
    known, unknown = corpus.postings.vocabulary, rarity(0, corpus.size)
    return sum(weight * (corpus.rarity(known[term]) if term in known else unknown) for term, weight in weights.items())


def _level_worth(corpus: Corpus, number: int, weight: float) -> int:
    return round(weight * corpus.rarity(number) * SCALE)


def _neighbour_pairs(corpus: Corpus, plan: QueryTerms) -> list[tuple[int, int, bytes, int]]:
    """Return the pairs of neighbouring terms of the query, with the bonus for finding them."""
    known, made = corpus.postings.vocabulary, list[tuple[int, int, bytes, int]]()
    for first, second in plan.neighbours:
        one, other = known.get(first), known.get(second)
        if one is not None and other is not None:
            weight = min(plan.weights.get(first, 0.0), plan.weights.get(second, 0.0), 1.0)
            worth = (_level_worth(corpus, one, weight) + _level_worth(corpus, other, weight)) / 2
            made.append((one, other, array("I", (one, other)).tobytes(), round(_NEIGHBOUR_BONUS * worth * LEVELS)))
    return made


def _candidates(corpus: Corpus, weighed: _WeighedQuery, kept: int, allowed: _Allowed) -> set[int]:
    """Return the documents to rank; where few of them are allowed, the budget grows until enough are found."""
    names = corpus.names
    budget = max(_MIN_BUDGET, int(_BUDGET_SHARE * corpus.size))
    while True:
        gathered, complete = _gather(corpus, weighed.terms, budget)
        chosen = _highest(gathered, names, kept)
        if allowed is None:
            return chosen
        permitted = {number for number in chosen if allowed(names[number])}
        if len(permitted) >= kept:
            return permitted
        if complete:
            gathered = {number: value for number, value in gathered.items() if allowed(names[number])}
            return _highest(gathered, names, kept)
        budget *= _BUDGET_GROWTH


def _gather(corpus: Corpus, terms: list[_Term], budget: int) -> tuple[dict[int, int], bool]:
    """Add up what documents are worth, strongest runs first, whole runs until the budget is spent; was that all?"""
    postings = corpus.postings
    runs = [
        (term.worth * GROUP_LEVELS[at], term.spelling, term.number, at, size)
        for term in terms
        for at, size in enumerate(postings.sizes(term.number))
        if size
    ]
    runs.sort(reverse=True)
    gathered: defaultdict[int, int] = defaultdict(int)
    for value, _, number, at, size in runs:
        if budget <= 0:
            return gathered, False
        budget -= size
        for document in postings.group(number, at):
            gathered[document] += value
    return gathered, True


def _highest(gathered: dict[int, int], names: Sequence[str], kept: int) -> set[int]:
    """Return the numbers of the highest values: `kept` of them, and more while they come near; ties by name.

    Ties at the end are settled by name, so that the same tools are candidates in any order of building.
    """
    most = _MAX_CANDIDATES_PER_RESULT * kept
    highest = nlargest(most, gathered.values())
    if len(highest) <= kept:
        return set(gathered)
    near = _MIN_CANDIDATE_SHARE * highest[kept - 1]
    if len(highest) < most or highest[-1] < near:
        return {number for number, value in gathered.items() if value >= near}
    least = highest[-1]
    chosen = {number for number, value in gathered.items() if value > least}
    ties = [number for number, value in gathered.items() if value == least]
    chosen.update(nsmallest(most - len(chosen), ties, key=names.__getitem__))
    return chosen


def _score(corpus: Corpus, weighed: _WeighedQuery, number: int) -> _Scored:
    worth, total = weighed.worth, 0
    covered: list[float] = []
    levels: dict[int, int] = {}
    for pair in [pair for pair in corpus.postings.pairs(number) if pair >> 8 in worth]:
        term = pair >> 8  # below it, the flag of the name and the level of impact
        level = levels[term] = pair & LEVELS
        total += worth[term] * level
        if pair & NAME_FLAG:
            covered.append(weighed.covers[term])
    source = int(_SOURCE_SHARE * _source_score(corpus, weighed, corpus.source_of[number]))
    fit = (total + source) / (SCALE * LEVELS * weighed.asked) if weighed.asked else 0.0
    if len(levels) > 1:  # not in `fit`: no tool fits by the order of its words
        total += _neighbour_bonus(corpus, weighed, number, levels)
    total += source
    factor = 1.0 + _NAME_COVERAGE_BONUS * fsum(covered) / corpus.name_mass(number) if covered else 1.0
    clauses = [sum([clause.get(term, 0) * level for term, level in levels.items()]) for clause in weighed.clauses]
    return _Scored(number, fit, total * factor / (SCALE * LEVELS), clauses, levels)


def _source_score(corpus: Corpus, weighed: _WeighedQuery, source: int) -> int:
    known = weighed.source_scores.get(source)
    if known is None:
        known = weighed.source_scores[source] = corpus.sources.score(source, weighed.source_worth)
    return known


def _neighbour_bonus(corpus: Corpus, weighed: _WeighedQuery, number: int, levels: dict[int, int]) -> int:
    """Return the bonus for neighbours that are adjacent in the document as well."""
    both = [pair for pair in weighed.neighbours if pair[0] in levels and pair[1] in levels]
    if not both:
        return 0
    order = corpus.postings.order(number)
    return sum([worth for _, _, needle, worth in both if _are_adjacent(needle, order)])


def _are_adjacent(pair: bytes, order: bytes) -> bool:
    """Whether two terms stand side by side: found on a border of four bytes, not across one."""
    at = order.find(pair)
    while at >= 0 and at & 3:
        at = order.find(pair, at + 1)
    return at >= 0


def _with_clauses(scored: list[_Scored], clauses: int) -> list[Ranked]:
    """Add to each score how well the best clause fits, as a share of what fits that clause best."""
    if not clauses or not scored:
        return [Ranked(one.total, one.number) for one in scored]
    best = [max(one.clauses[at] for one in scored) or 1 for at in range(clauses)]
    bonus = _CLAUSE_BONUS * max(one.total for one in scored)
    return [
        Ranked(one.total + bonus * max(value / top for value, top in zip(one.clauses, best, strict=True)), one.number)
        for one in scored
    ]
