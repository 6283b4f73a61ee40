"""What every integration is put through, and what must come of it.

A case is a script for the model: in each turn it calls tools, after the last one it says that it is done. `reference`
plays the script without a model or a framework; an integration must come to exactly the same `Outcome`.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from frameworks.workbench import Workbench
from toolcrib import Answer, Question, Session, Toolcrib
from toolcrib.core.permission import Approver, Verdict
from toolcrib.crib.options import InteractionOptions

Say = tuple[str, Mapping[str, Any]]
"""One call that the model makes: a name that it was shown, and arguments."""
Turn = tuple[Say, ...]

_ARTIFACT = re.compile(r"\b[0-9a-f]{32}\b")
_BENCH = Workbench()
_PASSING = re.compile(r'\b[0-9a-f]{32}\b|call_\w{6,}|(?<="latency_ms":)[\d.]+')
"""What is another one in every run: the ids of artifacts and calls, and how long these took."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One conversation."""

    name: str
    turns: tuple[Turn, ...]
    then: tuple[Turn, ...] = ()
    """The turns of a second prompt in the same session; `{artifact}` in them is what the first one's results name."""
    profile: str = "adaptive"
    needs: InteractionOptions = field(default_factory=InteractionOptions)
    """What the application says of each prompt before it."""
    verdicts: tuple[Verdict, ...] = ()
    """What the user answers, in turn; without any there is nobody to ask."""
    says: tuple[str, ...]
    """What the model reads of each call, in order: a part of it."""
    ran: tuple[str, ...] = ()
    """Bodies that were entered, sorted."""
    asked: tuple[str, ...] = ()
    """Tools of which the user was asked, in order."""
    loaded: tuple[str, ...] = ()
    """Tools that the last request showed beyond the first one's, sorted: parallel calls end in any order."""

    def prompts(self, run: str) -> tuple[str, ...]:
        """Return what the user says; `run` tells apart who plays the case, for they all talk to one mock."""
        return (f"[{self.name} {run}] first", f"[{self.name} {run}] then")[: 2 if self.then else 1]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a case. Two integrations that do their job have equal ones."""

    answers: tuple[str, ...]
    results: tuple[str, ...]
    """What the model read of each call, in the order of the calls."""
    ran: tuple[str, ...]
    asked: tuple[str, ...]
    shown: tuple[str, ...]
    """The tools of the first request, in their order."""
    loaded: tuple[str, ...]

    @property
    def lasting(self) -> Outcome:
        """The same without what no two runs have in common, and without the object that some put around errors."""
        return Outcome(**{**vars(self), "results": tuple(_PASSING.sub("…", _bare(text)) for text in self.results)})


def _bare(text: str) -> str:
    """Return what an error says, where a framework or a profile says it as `{"error": …}`: not every API has a flag."""
    while text.startswith('{"error":'):
        text = str(json.loads(text)["error"])
    return text


@dataclass(kw_only=True)
class Counter:
    """The user: answers from a script and keeps what he was asked. Ask him in any way that a framework has."""

    verdicts: tuple[Verdict, ...]
    asked: list[str] = field(default_factory=list[str])

    def answer(self, tool: str) -> Answer:
        """Answer a question about a call of this tool, by its catalog name."""
        verdict = self.verdicts[min(len(self.asked), len(self.verdicts) - 1)]
        self.asked.append(tool)
        return Answer(verdict=verdict, by="Ada")

    async def approve(self, question: Question) -> Answer:
        """Answer as a session's approver."""
        return self.answer(question.tool.name)


@dataclass(kw_only=True)
class Stage:
    """Where a case is played: two hundred functions, a session over them, and the user."""

    case: Case
    bench: Workbench
    crib: Toolcrib
    session: Session
    user: Counter

    def outcome(
        self, answers: Iterable[str], results: Iterable[str], shown: Sequence[str], last: Iterable[str]
    ) -> Outcome:
        """Return what came of it; `shown` and `last` are the tools of the first and the last request."""
        return Outcome(
            answers=tuple(answers),
            results=tuple(results),
            ran=tuple(sorted(self.bench.ran)),
            asked=tuple(self.user.asked),
            shown=tuple(shown),
            loaded=tuple(sorted(name for name in last if name not in shown)),
        ).lasting


@asynccontextmanager
async def opened(case: Case, *, approver: Callable[[Counter], Approver] | None = None) -> AsyncGenerator[Stage]:
    """Open the stage of a case. `approver` replaces the session's own, for frameworks that ask in another way."""
    user = Counter(verdicts=case.verdicts)
    _BENCH.reset()
    asks = (approver(user) if approver else user.approve) if case.verdicts else None
    async with Toolcrib() as crib:
        crib.add(_BENCH.functions)
        session = crib.session(
            profile=case.profile,
            mode="cautious",
            rules={"deny": ["wipe_disk"]},
            approver=asks,
            key=case.name,
            **case.needs,
        )
        async with session:
            yield Stage(case=case, bench=_BENCH, crib=crib, session=session, user=user)


_REFERENCES = dict[str, Outcome]()


async def reference(case: Case) -> Outcome:
    """Play a case by hand, once a process: what the integrations are measured by."""
    if case.name not in _REFERENCES:
        _REFERENCES[case.name] = await _played_by_hand(case)
    return _REFERENCES[case.name]


async def _played_by_hand(case: Case) -> Outcome:
    async with opened(case) as stage:
        session = stage.session
        shown = [tool.name for tool in session.tools]
        results, last = list[str](), shown
        for turns in (case.turns, case.then):
            session.begin(**case.needs)
            for turn in filled(turns, results):
                answers = await session.call_many(turn)
                results += [answer.text for answer in answers]
                last = [tool.name for tool in session.tools]
        return stage.outcome([done(case)] * len(case.prompts("")), results, shown, last)


def filled(turns: tuple[Turn, ...], results: Sequence[str]) -> tuple[Turn, ...]:
    """Return the turns with the artifact that the results name, where there is one."""
    found = [id for text in results for id in _ARTIFACT.findall(text)]
    artifact = found[-1] if found else "{artifact}"
    return tuple(
        tuple((name, json.loads(json.dumps(given).replace("{artifact}", artifact))) for name, given in turn)
        for turn in turns
    )


def done(case: Case) -> str:
    """Return what the model says at the end of each prompt."""
    return f"done with {case.name}"


def call(name: str, /, **arguments: Any) -> Say:
    """Return a call of a tool that was found by `search_tools`, or is known by name."""
    return ("call_tool", {"name": name, "arguments": arguments})


CASES = (
    Case(
        name="find",
        turns=(
            (("search_tools", {"query": "send a letter by post", "limit": 3}),),
            (("search_tools", {"query": "how many days between", "limit": 1}),),
            (("days_between", {"first": 3, "last": 10}),),
        ),
        says=("send_letter(", "days_between(", "7"),
        ran=('days_between {"first": 3, "last": 10}',),
        loaded=("days_between", "send_letter"),
    ),
    Case(
        name="load",
        profile="tiered",
        turns=((("load_tools", {"category": "tickets"}),), (("count_tickets", {}),)),
        says=('"loaded":"tickets"', "0"),
        ran=("count_tickets {}",),
        loaded=tuple(
            "annotate_ticket archive_ticket copy_ticket count_tickets create_ticket delete_ticket find_tickets "
            "get_ticket list_tickets rename_ticket".split()
        ),
    ),
    Case(
        name="by_name",
        turns=((call("convert_money", amount=100, rate=1.5),),),
        says=("150.0",),
        ran=('convert_money {"amount": 100.0, "rate": 1.5}',),
        loaded=("convert_money",),
    ),
    Case(
        name="approved",
        verdicts=("yes",),
        turns=((call("send_letter", to="Ada", text="Hello"),),),
        says=("sent to Ada",),
        ran=('send_letter {"to": "Ada", "text": "Hello"}',),
        asked=("send_letter",),
        loaded=("send_letter",),
    ),
    Case(
        name="refused",
        verdicts=("no",),
        turns=((call("send_letter", to="Ada", text="Hello"),),),
        says=("denied: ",),
        asked=("send_letter",),
    ),
    Case(
        name="both",
        verdicts=("yes", "no"),
        turns=((call("create_ticket", title="one"), call("list_workers")), (call("delete_ticket", number=1),)),
        says=('"title":"one"', "worker-9", "denied: "),
        ran=('create_ticket {"title": "one", "note": ""}', "list_workers {}"),
        asked=("create_ticket", "delete_ticket"),
        loaded=("create_ticket", "list_workers"),
    ),
    Case(
        name="parallel",
        turns=(tuple(call("meet", place="bridge", party=3, name=name) for name in ("Ada", "Bob", "Cy")),),
        says=("Ada met 2 others", "Bob met 2 others", "Cy met 2 others"),
        ran=tuple(f'meet {{"place": "bridge", "party": 3, "name": "{name}"}}' for name in ("Ada", "Bob", "Cy")),
        loaded=("meet",),
    ),
    Case(
        name="mixed",
        turns=((call("wipe_disk", disk="a"), call("get_ticket", number=3), call("list_workers"), call("no_such")),),
        says=("denied: ", "tool_error: there is no ticket 3", "worker-9", "not_found: "),
        ran=('get_ticket {"number": 3}', "list_workers {}"),
        loaded=("get_ticket", "list_workers"),
    ),
    Case(
        name="big",
        turns=((call("read_log"),),),
        then=((("read_artifact", {"id": "{artifact}", "find": "needle"}),),),
        says=("worker-7 INFO job 0 finished", "disk of worker-7 is full"),
        ran=("read_log {}",),
        loaded=("read_log",),
    ),
    Case(
        name="again",
        turns=((call("upload_report", report="q3"),), (call("upload_report", report="q3"),)),
        says=("unavailable: the archive is waking up\ncall again", "q3 is in the archive"),
        ran=('upload_report {"report": "q3"}', 'upload_report {"report": "q3"}'),
        loaded=("upload_report",),
    ),
    Case(
        name="mistaken",
        turns=(
            (call("book_room", room="blue", seats="lots"),),
            (call("book_room", room="blue", seats=12),),
        ),
        says=("invalid_arguments: book_room did not run: seats: ", '"seats":12'),
        ran=('book_room {"room": "blue", "seats": 12}',),
        loaded=("book_room",),
    ),
    Case(
        name="broken",
        turns=((call("probe_sensor", sensor="s1"),),),
        says=("tool_error: probe_sensor failed",),
        ran=('probe_sensor {"sensor": "s1"}',),
        loaded=("probe_sensor",),
    ),
)
"""Every integration plays all of them, with each of the APIs that it speaks."""

OTHERS = (
    Case(
        name="gateway",
        profile="gateway",
        verdicts=("yes",),
        turns=(
            (("tool_help", {"path": "x.python.send_letter"}),),
            (("tool_exec", {"op": "x.python.send_letter", "args": {"to": "Ada", "text": "Hello"}}),),
            (
                (
                    "tool_batch",
                    {
                        "ops": [
                            {"type": "exec", "op": "x.python.list_workers", "args": {}},
                            {"type": "exec", "op": "onto.ticket.get", "args": {"number": 3}},
                        ]
                    },
                ),
                ("tool_exec", {"op": "onto.ticket.get", "args": {"number": 4}}),
            ),
        ),
        says=('"required_args":["to","text"]', '"result":"sent to Ada"', '"succeeded":1,"failed":1', "no ticket 4"),
        ran=(
            'get_ticket {"number": 3}',
            'get_ticket {"number": 4}',
            "list_workers {}",
            'send_letter {"to": "Ada", "text": "Hello"}',
        ),
        asked=("send_letter",),
    ),
    Case(
        name="introspection",
        profile="introspection",
        verdicts=("no",),
        turns=(
            (("list_tools", {"category": "tickets"}),),
            (("get_tool_schemas", {"names": ["send_letter", "count_tickets"]}),),
            (("send_letter", {"to": "Ada", "text": "Hello"}), ("count_tickets", {})),
        ),
        says=('"tool_count":10', '"activated":["send_letter","count_tickets"]', "denied", "0"),
        ran=("count_tickets {}",),
        asked=("send_letter",),
        loaded=("count_tickets", "send_letter"),
    ),
    Case(
        name="selection",
        profile="selection",
        needs={"intent": {"required_tools": ["send_letter", "list_workers"]}},
        verdicts=("yes",),
        turns=((("send_letter", {"to": "Ada", "text": "Hello"}), ("list_workers", {})),),
        then=((("list_workers", {}),),),
        says=("sent to Ada", "worker-9", "worker-9"),
        ran=("list_workers {}", "list_workers {}", 'send_letter {"to": "Ada", "text": "Hello"}'),
        asked=("send_letter",),
    ),
)
"""The profiles that the others do not play: every integration plays them, with one of its APIs."""
