"""Give a model one case in one profile, through the real agent, and note what happened."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from typing import Any, Final, cast

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model

from scenarios.case import Case, Turn
from scenarios.player import Play, Player, done_well
from scenarios.scoring import Made, Run
from scenarios.world import TODAY, World
from toolcrib.core.call import NESTED
from toolcrib.core.elicitation import Clarification, Elicitor
from toolcrib.core.permission import Answer, Effect, Verdict
from toolcrib.crib import Session
from toolcrib.crib.options import InteractionOptions
from toolcrib.disclosure.base import estimate_tokens
from toolcrib.disclosure.profiles import strategy_name
from toolcrib.store.calls import CallRow
from toolcrib.testing import RecordingApprover
from toolcrib_agent import Agent, AgentLimits
from toolcrib_agent.events import AgentEvent, Requesting, UsageReport
from toolcrib_agent.prompts import PromptFacts

PROFILES: Final = ("adaptive", "flat", "gateway", "introspection", "selection", "tiered")

LIMITS: Final = AgentLimits(requests=30, calls=60, seconds=600)
"""Of one turn. Fewer than an agent has: a model that needs more has lost its way, and costs money."""

_WHOLE: Final = 15
"""Tools that a request is given for all its words, and"""
_CLAUSE: Final = 8
"""for those of each clause."""
_CLAUSES: Final = re.compile(r"[.,;:?!]\s|\b(?:and|then|but|if)\b")

ModelOf = Callable[[Case, Session], Model]
"""Makes the model that a case is given to."""


def scripted(play: Callable[[Player, Turn, Any], Play] = done_well) -> ModelOf:
    """Return what makes a model that does as `play` says."""
    return lambda case, session: Player(case=case, session=session, play=play).model


async def run_case(world: World, case: Case, profile: str, model_of: ModelOf) -> Run:
    """Run a case in a world that nobody else uses meanwhile."""
    world.prepare(case)
    before = world.state()
    approver = RecordingApprover(*map(_answer, case.answers))
    made: list[tuple[Made, ...]] = []
    answers, stopped = list[str](), list[str]()
    rules = cast("Mapping[Effect, tuple[str, ...]]", case.rules)
    async with world.crib.session(
        profile=profile,
        mode=case.mode,
        principal=f"{profile} {case.id}",
        approver=approver,
        elicitor=_elicitor(case),
        rules=rules,
        workspace=world.folder,
    ) as session:
        facts = PromptFacts(mode=world.crib.policy.mode(case.mode), today=date.fromisoformat(TODAY))
        model = model_of(case, session)
        noted = _Noted(session, estimates=model.system == "function")
        agent = Agent(model, session, instructions=facts, limits=LIMITS)
        history: tuple[ModelMessage, ...] = ()
        host, known = _Host(session, case.needs), 0
        for turn in case.turns:
            outcome = await agent.run(turn.ask, history=history, on_event=noted.hear, **host.options(turn.ask))
            history = outcome.history
            answers.append(outcome.text)
            if not outcome.is_complete:
                stopped.append(f"{outcome.stopped}: {outcome.reason}")
            rows = await _rows(world, session)
            made.append(tuple(_made(row) for row in rows[known:] if not _is_inner(row, session)))
            known = len(rows)
    return Run(
        made=tuple(made),
        answers=tuple(answers),
        asked=tuple(question.tool.name for question in approver.questions),
        before=before,
        after=world.state(),
        stopped=tuple(stopped),
        **noted.figures,
    )


def _answer(given: str | Mapping[str, Any]) -> Verdict | Answer:
    if isinstance(given, str):
        return cast("Verdict", given)
    if "edit" in given:
        return Answer(verdict="edit", by="test", arguments=given["edit"])
    return Answer(verdict="comment", by="test", comment=given["comment"])


def _elicitor(case: Case) -> Elicitor | None:
    answers = list(case.clarifies)

    async def answer(asked: Clarification) -> str | None:
        return answers.pop(0) if answers else None

    return answer if answers else None


class _Host:
    """Does for the profile `selection` what its host has to do: it says what each request needs.

    It goes by what the case says of the task, and by the user's words as the ranking understands them: the whole
    request and each of its clauses. What was selected for one turn is there in the next.
    """

    def __init__(self, session: Session, needs: Iterable[str]) -> None:
        self._session = session
        self._needed: dict[str, None] = dict.fromkeys(needs)

    def options(self, ask: str) -> InteractionOptions:
        """Return the options of the interaction that `ask` begins."""
        visible = self._session.visible
        if strategy_name(visible.profile) != "selection":
            return {}
        for words, count in ((ask, _WHOLE), *((clause, _CLAUSE) for clause in _CLAUSES.split(ask) if clause.strip())):
            hits = visible.catalog.search(words, count, allowed=visible.admitted)
            self._needed |= dict.fromkeys(hit.name for hit in hits)
        return {"intent": {"required_tools": list(self._needed)}}


async def _rows(world: World, session: Session) -> list[CallRow]:
    rows = await world.crib.store.calls.list(session=session.state.key, limit=1000)
    return sorted(rows, key=lambda row: (row.started, row.seq))


def _is_inner(row: CallRow, session: Session) -> bool:
    """Whether the model only looked around, or a tool made it; to read on in a long result is a call of its own."""
    verbs = session.visible.profile.verbs
    return row.origin == NESTED or (row.tool in verbs.values() and row.tool != verbs.get("read"))


def _made(row: CallRow) -> Made:
    given: Any = json.loads(row.arguments or "{}")
    arguments = cast("dict[str, Any]", given) if isinstance(given, dict) else {"": given}
    return Made(tool=row.tool or row.requested, arguments=arguments, outcome=row.outcome)


class _Noted:
    """What the run tells of its requests."""

    def __init__(self, session: Session, *, estimates: bool) -> None:
        """`estimates`: what the model says that it used is no measure, a double's for instance."""
        self._session = session
        self._estimates = estimates
        self.figures: dict[str, Any] = {"requests": 0, "input_tokens": 0, "output_tokens": 0, "cost": 0.0}
        self._context = 0

    def hear(self, event: AgentEvent) -> None:
        """Count; where the model's API does not, the input is what was estimated before the request."""
        if isinstance(event, Requesting):
            self._context = event.context
            self.figures.setdefault("tools_at_first", sum(map(estimate_tokens, self._session.tools)))
        elif isinstance(event, UsageReport):
            used = event.request
            self.figures["requests"] += used.requests
            self.figures["input_tokens"] += self._context if self._estimates or used.is_estimated else used.input_tokens
            self.figures["output_tokens"] += used.output_tokens
            self.figures["cost"] += used.cost
