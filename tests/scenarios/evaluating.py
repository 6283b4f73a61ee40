"""All cases, in all profiles, with any model: what it will cost, what came of it, and where it goes on tomorrow.

Every run is one line of a file, written when it has ended. A line counts as long as nothing has changed that it depends
on: our version, the case, the definitions of the tools, the profile, and the prompt that is made of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from genai_prices import Usage, calc_price
from pydantic_ai.models import Model

from scenarios.case import Case
from scenarios.running import ModelOf, run_case, scripted
from scenarios.scoring import Score, Total, score, total
from scenarios.world import TODAY, World, open_world
from toolcrib_agent.prompts import PromptFacts, compose, text_of

_FAILURES: Final = 3
"""Runs in a row that the model's API ended, after which the others wait for another day."""

Worlds = Mapping[bool, World]
Key = tuple[str, str]
"""Profile and case."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What is to be evaluated."""

    name: str
    """What the model is called in reports."""
    model_of: ModelOf
    cases: Sequence[Case]
    profiles: Sequence[str]
    results: Path
    """The file with one line a run."""
    priced: Model | None = None
    """Whose prices count; None is a model that costs nothing, and of which nothing has to be said before."""
    limit: float | None = None
    """US dollars that this time may cost: no run begins that would go beyond, by what the last ones cost."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What is still to be run, and what a model needs for it that makes no mistake."""

    requests: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    """US dollars without caching; None where no price is known."""

    def told(self) -> str:
        """Return it in a sentence."""
        price = "no price is known" if self.cost is None else f"about ${self.cost:,.2f} without caching"
        return (
            f"A model that makes no mistake needs {self.requests:,} requests, {self.input_tokens:,} tokens in and"
            f" {self.output_tokens:,} out for them: {price}. One that thinks, or looks around, needs more."
        )


@dataclass(frozen=True, kw_only=True)
class Report:
    """What came of it so far."""

    name: str
    scores: Sequence[Score]
    left: int = 0
    """Runs that are still to be done."""
    reason: str = ""
    """Why they are."""

    @property
    def profiles(self) -> Mapping[str, Total]:
        """The sums of each profile."""
        return _by(self.scores, lambda one: one.profile)

    @property
    def groups(self) -> Mapping[str, Total]:
        """The sums of each group of cases."""
        return _by(self.scores, lambda one: one.case.partition("/")[0])

    def to_json(self) -> dict[str, Any]:
        """Return it as one JSON object."""
        return {
            "bench": "eval",
            "model": self.name,
            "left": self.left,
            "reason": self.reason,
            "profiles": {name: asdict(one) for name, one in self.profiles.items()},
            "groups": {name: asdict(one) for name, one in self.groups.items()},
        }

    @property
    def table(self) -> str:
        """Return it for people: a line a profile."""
        head = f"{'profile':14}{'cases':>6}{'passed':>8}{'precision':>11}{'recall':>8}{'arguments':>11}{'requests':>10}"
        lines = [f"{head}{'tokens in':>12}{'out':>9}{'USD':>8}{'tools':>8}"]
        for name, one in self.profiles.items():
            lines.append(
                f"{name:14}{one.cases:>6}{one.passed / max(1, one.cases):>8.1%}{one.precision:>11.1%}"
                f"{one.recall:>8.1%}{one.arguments:>11.1%}{one.requests:>10.2f}{one.input_tokens:>12,}"
                f"{one.output_tokens:>9,}{one.cost:>8.2f}{one.tools_at_first:>8,}"
            )
        return "\n".join(lines)


def _by(scores: Iterable[Score], key: Callable[[Score], str]) -> dict[str, Total]:
    groups: dict[str, list[Score]] = {}
    for one in scores:
        groups.setdefault(key(one), []).append(one)
    return {name: total(ones) for name, ones in groups.items()}


class _Results:
    """The file: read once, appended to after every run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[tuple[str, str, str], Score] = {}
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        for line in lines:
            try:
                said: dict[str, Any] = json.loads(line)
                one = Score.from_json(said)
            except (ValueError, LookupError, TypeError):  # half a line, of a run that was broken off
                continue
            self._known[one.profile, one.case, said["stamp"]] = one

    def get(self, key: Key, stamp: str) -> Score | None:
        return self._known.get((*key, stamp))

    def put(self, one: Score, stamp: str) -> None:
        self._known[one.profile, one.case, stamp] = one
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"stamp": stamp, **one.to_json()}) + "\n")


@dataclass(kw_only=True)
class _Course:
    """One evaluation on its way."""

    plan: Evaluation
    worlds: Worlds
    results: _Results
    scores: dict[Key, Score] = field(default_factory=dict[Key, Score])
    stamps: dict[Key, str] = field(default_factory=dict[Key, str])

    def pairs(self) -> list[tuple[Key, Case]]:
        return [((profile, case.id), case) for profile in self.plan.profiles for case in self.plan.cases]

    def look_up(self) -> list[tuple[Key, Case]]:
        """Take what is known; return what is not."""
        for (profile, name), case in self.pairs():
            stamp = _stamp(self.worlds[case.large], case, profile, self.plan.name)
            self.stamps[profile, name] = stamp
            known = self.results.get((profile, name), stamp)
            if known is not None:
                self.scores[profile, name] = known
        return [(key, case) for key, case in self.pairs() if key not in self.scores]

    async def forecast(self, todo: Sequence[tuple[Key, Case]]) -> Forecast:
        """Run with a scripted model, and price that."""
        requests = given = taken = 0
        cost: float | None = 0.0
        for (profile, _), case in todo:
            run = await run_case(self.worlds[case.large], case, profile, scripted())
            requests, given, taken = requests + run.requests, given + run.input_tokens, taken + run.output_tokens
            price = _price(self.plan.priced, run.requests, run.input_tokens, run.output_tokens)
            cost = None if price is None or cost is None else cost + price
        return Forecast(requests=requests, input_tokens=given, output_tokens=taken, cost=cost)

    async def work(self, todo: Sequence[tuple[Key, Case]], tell: Callable[[str], None]) -> str:
        """Run what is left; returns why it ended early, nothing where it did not."""
        spent, failures = 0.0, 0
        for number, (key, case) in enumerate(todo, start=1):
            average = spent / (number - 1) if number > 1 else 0.0
            if self.plan.limit is not None and spent + average > self.plan.limit:
                return f"${spent:.2f} are spent of ${self.plan.limit:.2f}"
            run = await run_case(self.worlds[case.large], case, key[0], self.plan.model_of)
            spent += run.cost
            one = score(case, key[0], run)
            broken = next((why for why in run.stopped if why.startswith("failed")), "")
            if broken:
                failures += 1
                tell(f"{number}/{len(todo)} {key[0]} {case.id}: {broken}")
                if failures >= _FAILURES:
                    return f"the model {broken}"
                continue
            failures = 0
            self.results.put(one, self.stamps[key])
            self.scores[key] = one
            tell(f"{number}/{len(todo)} {key[0]} {case.id}: {'; '.join(one.wrong) or 'ok'}")
        return "" if len(self.scores) == len(self.pairs()) else "the model failed in some runs"


async def evaluate(
    plan: Evaluation, folder: Path, *, tell: Callable[[str], None], only_forecast: bool = False
) -> Report:
    """Run what was not run before, and return the report of all. `folder` is an empty one for the worlds.

    What is told first is the forecast. What was done counts, should it be broken off.
    """
    async with _worlds(folder, plan.cases) as worlds:
        here = [case for case in plan.cases if worlds[case.large].has(case)]
        if len(here) < len(plan.cases):
            tell(f"{len(plan.cases) - len(here)} cases are left out: this machine has no sandbox for their tools")
        plan = replace(plan, cases=here)
        course = _Course(plan=plan, worlds=worlds, results=_Results(plan.results))
        todo = course.look_up()
        tell(f"{plan.name}: {len(todo):,} runs to go, {len(course.scores):,} are there already")
        if plan.priced is not None and todo:
            tell((await course.forecast(todo)).told())
        reason = "it was only forecast" if only_forecast else await course.work(todo, tell)
        scores = [course.scores[key] for key, _ in course.pairs() if key in course.scores]
        return Report(name=plan.name, scores=scores, left=len(course.pairs()) - len(scores), reason=reason)


@asynccontextmanager
async def _worlds(folder: Path, cases: Iterable[Case]) -> AsyncGenerator[Worlds]:
    async with AsyncExitStack() as stack:
        yield {
            large: await stack.enter_async_context(open_world(folder / ("large" if large else "small"), large=large))
            for large in sorted({case.large for case in cases})
        }


def _stamp(world: World, case: Case, profile: str, model: str) -> str:
    """Return a hash of everything that a result depends on."""
    with_files = world.crib.session(profile=profile, mode=case.mode, workspace=world.folder)
    facts = PromptFacts(mode=world.crib.policy.mode(case.mode), today=date.fromisoformat(TODAY))
    prompt = text_of(compose(with_files, facts)).replace(str(world.folder), "")
    told = [
        version("toolcrib"),
        model,
        repr(case),
        world.crib.catalog.version,
        repr(with_files.visible.profile),
        prompt,
    ]
    return hashlib.sha256("\0".join(told).encode()).hexdigest()[:16]


def _price(model: Model | None, requests: int, given: int, taken: int) -> float | None:
    """Return US dollars, by requests of average size: many an API charges more for long ones."""
    if model is None:
        return 0.0
    one = Usage(input_tokens=given // max(1, requests), output_tokens=taken // max(1, requests))
    try:
        return float(calc_price(one, model.model_name, provider_id=model.system).total_price) * requests
    except LookupError:
        return None
