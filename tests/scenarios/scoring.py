"""What a run of a case is worth: which calls were right, and whether the world is as it should be afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self, cast

from scenarios.case import Case, Wanted, is_like, same


@dataclass(frozen=True, kw_only=True)
class Made:
    """One call that was made, as the record has it: verbs are not calls, what they unwrap to is."""

    tool: str
    """The name in the catalog; what was asked for where there is no such tool."""
    arguments: Mapping[str, Any]
    outcome: str


@dataclass(frozen=True, kw_only=True)
class Run:
    """What happened when a model was given a case."""

    made: tuple[tuple[Made, ...], ...]
    """The calls of each turn, in the order in which they began."""
    answers: tuple[str, ...]
    """The last words of each turn."""
    asked: tuple[str, ...]
    """What the user was asked for."""
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    """US dollars, as far as prices are known."""
    stopped: tuple[str, ...] = ()
    """Why each turn ended, where that was not an answer."""
    tools_at_first: int = 0
    """Estimated tokens of the definitions that the first request carries."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """How one run went. It passed when `wrong` is empty; a look around is no fault, precision tells of it."""

    case: str
    profile: str
    wanted: int
    """Calls that were right to make."""
    made: int
    """Calls that were made."""
    found: int
    """Right calls that were made, whatever their arguments."""
    right: int
    """Of these, with right arguments and the right outcome."""
    wrong: tuple[str, ...]
    """What is wrong, a line each."""
    requests: int
    input_tokens: int
    output_tokens: int
    cost: float
    tools_at_first: int

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong

    def to_json(self) -> dict[str, Any]:
        """Return it as a line of the results."""
        return {**asdict(self), "passed": self.passed}

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Self:
        """Read such a line. Raises `LookupError` or `TypeError` for one that misses something."""
        given: dict[str, Any] = {one.name: line[one.name] for one in fields(cls) if one.name in line}
        given["wrong"] = tuple(given["wrong"])
        return cls(**given)


@dataclass(frozen=True, kw_only=True)
class Total:
    """What several runs come to, as numbers that can be set side by side. Shares of nothing are 1."""

    cases: int
    passed: int
    precision: float
    """Of the calls that were made, the share that was right to make."""
    recall: float
    """Of the calls that were right to make, the share that was made."""
    arguments: float
    """Of the right calls that were made, the share with right arguments and outcome."""
    requests: float
    """Requests to the model for one case."""
    input_tokens: int
    output_tokens: int
    cost: float
    tools_at_first: int
    """Estimated tokens of the definitions in the first request, on average."""


def total(scores: Sequence[Score]) -> Total:
    """Sum up."""
    found, count = sum(one.found for one in scores), max(1, len(scores))
    return Total(
        cases=len(scores),
        passed=sum(one.passed for one in scores),
        precision=_share(found, sum(one.made for one in scores)),
        recall=_share(found, sum(one.wanted for one in scores)),
        arguments=_share(sum(one.right for one in scores), found),
        requests=round(sum(one.requests for one in scores) / count, 2),
        input_tokens=sum(one.input_tokens for one in scores),
        output_tokens=sum(one.output_tokens for one in scores),
        cost=round(sum(one.cost for one in scores), 6),
        tools_at_first=round(sum(one.tools_at_first for one in scores) / count),
    )


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 1.0


def score(case: Case, profile: str, run: Run) -> Score:
    """Judge a run by the calls that the record has, what is there afterwards, what was asked, and what was said."""
    wrong: list[str] = []
    found = right = 0
    for number, (turn, made) in enumerate(zip(case.turns, run.made, strict=True), start=1):
        where = f"turn {number}: " if len(case.turns) > 1 else ""
        places = _matched(turn.calls, made)
        found += sum(place is not None for place in places)
        right += sum(
            place is not None and _is_right(call, made[place]) for call, place in zip(turn.calls, places, strict=True)
        )
        wrong += [where + problem for problem in _of_calls(turn.calls, made, places, ordered=case.order != "any")]
        forbidden = {*case.forbidden, *turn.forbidden}
        wrong += [f"{where}{one.tool} must not be called" for one in made if one.tool in forbidden]
        answer = run.answers[number - 1].lower()
        wrong += [f"{where}the answer does not say {word!r}" for word in turn.says if word.lower() not in answer]
    if case.asked is not None and run.asked != case.asked:
        wrong.append(f"the user was asked for {list(run.asked)}, not for {list(case.asked)}")
    wrong += _differences(patched(run.before, case.leaves or {}), run.after)
    wrong += [f"it ended by: {reason}" for reason in run.stopped]
    return Score(
        case=case.id,
        profile=profile,
        wanted=len(case.wanted),
        made=sum(map(len, run.made)),
        found=found,
        right=right,
        wrong=tuple(wrong),
        requests=run.requests,
        input_tokens=run.input_tokens,
        output_tokens=run.output_tokens,
        cost=run.cost,
        tools_at_first=run.tools_at_first,
    )


def _matched(wanted: Sequence[Wanted], made: Sequence[Made]) -> list[int | None]:
    """Return where each right call was made: as it should be, else any one of such a tool; each counts once."""
    places: list[int | None] = [None] * len(wanted)
    free = dict.fromkeys(range(len(made)))
    for fits in (_is_right, _is_of_a_way):
        for number, call in enumerate(wanted):
            if places[number] is None:
                places[number] = next((place for place in free if fits(call, made[place])), None)
                free.pop(cast("int", places[number]), None)
    return places


def _is_of_a_way(wanted: Wanted, made: Made) -> bool:
    return any(made.tool == name for name, _ in wanted.ways)


def _is_right(wanted: Wanted, made: Made) -> bool:
    """Whether a call is one of the ways, with at least the arguments that the case speaks of."""
    return made.outcome == wanted.code and any(
        made.tool == name
        and all(key in made.arguments and same(value, made.arguments[key]) for key, value in said.items())
        for name, said in wanted.ways
    )


def _of_calls(
    wanted: Sequence[Wanted], made: Sequence[Made], places: Sequence[int | None], *, ordered: bool
) -> Iterable[str]:
    for call, place in zip(wanted, places, strict=True):
        if place is None:
            yield f"{call.tool} was not called"
        elif not _is_right(call, made[place]):
            yield f"{made[place].tool} was called with {dict(made[place].arguments)}: {made[place].outcome}"
    there = [place for place in places if place is not None]
    if ordered and there != sorted(there):
        yield f"the calls came in another order: {[one.tool for one in made]}"


def patched(before: Any, patch: Any) -> Any:
    """Return `before` with what `patch` says: mappings are merged, null takes away, everything else is put there."""
    changes = cast("dict[str, Any]", patch)
    if not isinstance(patch, dict) or is_like(changes):
        return patch if not isinstance(patch, dict) else changes
    merged: dict[str, Any] = dict(cast("dict[str, Any]", before)) if isinstance(before, dict) else {}
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = patched(merged.get(key), value)
    return merged


def _differences(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> Iterable[str]:
    """Yield what is not as it should be, record by record."""
    for kind in sorted({*wanted, *found}):
        should: Mapping[str, Any] = wanted.get(kind, {})
        there: Mapping[str, Any] = found.get(kind, {})
        for key in sorted({*should, *there}):
            if key not in there:
                yield f"{kind}: {key} is gone"
            elif key not in should:
                yield f"{kind}: {key} is there: {there[key]!r}"
            elif not same(should[key], there[key]):
                yield f"{kind}: {key} is {there[key]!r}, not {should[key]!r}"
