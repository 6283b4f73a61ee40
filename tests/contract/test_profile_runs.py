"""How calls run is the same in every profile: batches, breakdowns, turns, approvals, bad neighbours (F4 4 and 7–12)."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

from contract.seats import PROFILES, Reply, Seat, at, of_library
from contract.workshop import BIG, NOTES, opened
from rig import PATIENCE
from toolcrib.core.events import CallFinished
from toolcrib.core.permission import Answer, Question
from toolcrib.crib import Session
from toolcrib.testing import RecordingApprover

pytestmark = pytest.mark.parametrize("profile", PROFILES)

Verdict = Literal["yes", "no", "always", "never"]
RAW = [
    ('{"path": "a"}', "ok"),
    ("not JSON", "invalid_arguments"),
    ('{"path": "a"', "invalid_arguments"),
    (["a"], "invalid_arguments"),
    (7, "invalid_arguments"),
    ("", "invalid_arguments"),
]
PASSWORD = "Tr0ub4dor-and-3-staples"


async def together(seat: Seat, calls: Sequence[tuple[str, Any]]) -> list[Reply]:
    """Make calls at once as the host of a library session does."""
    session = of(seat)
    await seat.reach(*(tool for tool, _ in calls))
    made = [await seat.way(tool, arguments) for tool, arguments in calls]
    return [of_library(seat.profile, result) for result in await session.call_many(made)]


def of(seat: Seat) -> Session:
    assert seat.session is not None
    return seat.session


# 4: malformed arguments


async def test_arguments_that_are_no_object_run_only_where_they_are_the_text_of_one(profile: str) -> None:
    async with opened() as (crib, world), at(crib, profile) as seat:
        assert [(given, (await seat.use("write_note", given)).code) for given, _ in RAW] == RAW
        assert world.reached == ["write_note"]


async def test_a_near_miss_is_told_the_name_that_was_meant_and_a_wrong_call_every_field(profile: str) -> None:
    async with opened() as (crib, world), at(crib, profile) as seat:
        missed = await seat.use("write_nott", {"path": "a"})
        wrong = await seat.use("write_note", {"text": 7, "colour": "red"})
        meant = seat.op("write_note") if profile == "gateway" else "write_note"
        assert (missed.code, meant in missed.text) == ("not_found", True)
        assert (wrong.code, [name for name in ("path", "text", "colour") if name not in wrong.text]) == (
            "invalid_arguments",
            [],
        )
        assert world.reached == []


# 7: batches

MIXED: list[tuple[str, Any]] = [
    ("read_note", {"path": "plan"}),
    ("stumble", {}),
    ("dawdle", {}),
    ("erase_note", {"path": "plan"}),
    ("zzqx", {}),
    ("greet", {"name": "Bo"}),
]
CODES = ["ok", "tool_error", "timeout", "denied", "not_found", "ok"]


async def test_a_batch_gives_one_result_a_call_in_order_whatever_becomes_of_the_others(profile: str) -> None:
    async with opened(rules={"deny": ("erase_note",)}) as (crib, world), at(crib, profile) as seat:
        replies = await together(seat, MIXED)
        assert [reply.code for reply in replies] == CODES
        assert (replies[0].value["text"], replies[-1].value) == ("one", "Hello, Bo")
        assert sorted(world.reached) == ["dawdle", "greet", "read_note", "stumble"]
        assert dict(world.notes) == dict(NOTES)


async def test_calls_of_one_batch_run_beside_each_other(profile: str) -> None:
    async with opened() as (crib, _), at(crib, profile) as seat:
        replies = await together(seat, [("meet", {"others": 2})] * 3)
        assert [(reply.code, reply.value) for reply in replies] == [("ok", "3 met")] * 3


# 8: what a tool may do to its caller


async def test_a_tool_that_never_ends_is_ended_and_one_that_breaks_says_why(profile: str) -> None:
    async with opened() as (crib, world), at(crib, profile) as seat:
        broken, late = await seat.use("stumble", {"over": "a cable"}), await seat.use("dawdle")
        assert (broken.code, "stumbled over a cable" in broken.text) == ("tool_error", True)
        assert late.code == "timeout"
        assert world.reached == ["stumble", "dawdle"]
        assert "Traceback" not in broken.text


async def test_what_no_json_can_say_comes_as_words(profile: str) -> None:
    async with opened() as (crib, _), at(crib, profile) as seat:
        assert (await seat.use("odd")).value == {"door": "<a door>", "loop": [1]}


async def test_ten_megabytes_are_cut_to_the_budget_and_nothing_is_lost(profile: str) -> None:
    async with opened() as (crib, _), at(crib, profile) as seat:
        await seat.reach("flood")
        result = await of(seat).call(*await seat.way("flood"))
        budget = of(seat).state.result_tokens * 4
        assert result.error is None
        assert len(result.text.encode()) <= budget + 1000
        assert await of(seat).recover(result.meta["artifact"]) == "word " * (BIG // 5)
        page = await seat.use("read_artifact", {"id": result.meta["artifact"], "offset": BIG - 10, "limit": 10})
        assert "word word " in page.text


# 9: turns, and what a caller that leaves behind


async def test_writes_to_one_path_take_turns_whatever_way_they_come(profile: str) -> None:
    async with opened() as (crib, world), at(crib, profile) as seat:
        replies = await together(seat, [("write_note", {"path": "a", "text": str(number)}) for number in range(4)])
        assert [reply.code for reply in replies] == ["ok"] * 4
        assert world.crowd == {"a": 1}


async def test_a_caller_that_leaves_in_the_middle_of_a_batch_leaves_no_call_without_an_end(profile: str) -> None:
    async with opened() as (crib, world), at(crib, profile) as seat:
        finished: list[CallFinished] = []
        await seat.reach("hang", "greet", "read_note")
        calls: list[tuple[str, Any]] = [("greet", {"name": "Bo"}), ("hang", {}), ("read_note", {"path": "plan"})]
        made = [await seat.way(tool, arguments) for tool, arguments in calls]
        crib.calls.on_finished(finished.append)
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as leaving:
                leaving.start_soon(of(seat).call_many, made)
                await world.hanging.wait()
                leaving.cancel_scope.cancel()
        rows = await crib.store.calls.list(session=of(seat).state.key, tool="hang")
        assert world.ended == ["hang"]
        assert [(row.outcome, row.tool) for row in rows] == [("cancelled", "hang")]
        assert len({event.call_id for event in finished}) == len(finished) == 3
        assert (await seat.use("greet", {"name": "Cy"})).value == "Hello, Cy"


# 10: approval


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Settings, a call, what the approver says, and what comes of it."""

    tool: str
    code: str
    questions: int
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    says: Verdict = "yes"
    settings: dict[str, Any] = field(default_factory=dict[str, Any])


NOTE = {"path": "n"}
LOST = {"command": "rm -rf /"}
PRECEDENCE = {
    "a deny comes before everything": Asked(
        tool="erase_everything",
        code="denied",
        questions=0,
        settings={"rules": {"deny": ("erase_everything",), "allow": ("erase_everything",)}, "mode": "autonomous"},
    ),
    "a tool that always asks asks in spite of an allow": Asked(
        tool="erase_everything",
        code="ok",
        questions=1,
        settings={"rules": {"allow": ("erase_everything",)}, "mode": "autonomous"},
    ),
    "what cannot be taken back asks in spite of an allow": Asked(
        tool="shell", arguments=LOST, code="denied", questions=1, says="no", settings={"rules": {"allow": ("shell",)}}
    ),
    "a deny comes before what cannot be taken back": Asked(
        tool="shell", arguments=LOST, code="denied", questions=0, settings={"rules": {"deny": ("shell",)}}
    ),
    "an ask comes before an allow": Asked(
        tool="write_note",
        arguments=NOTE,
        code="denied",
        questions=1,
        says="no",
        settings={"rules": {"ask": ("write_note(path=n)",), "allow": ("write_note",)}, "mode": "autonomous"},
    ),
    "an allow comes before the mode": Asked(
        tool="write_note", arguments=NOTE, code="ok", questions=0, settings={"rules": {"allow": ("write_note",)}}
    ),
    "a cautious mode asks before a write": Asked(tool="write_note", arguments=NOTE, code="ok", questions=1),
    "a cautious mode asks nobody before a read": Asked(
        tool="read_note", arguments={"path": "plan"}, code="ok", questions=0, says="no"
    ),
    "an autonomous mode asks nobody": Asked(
        tool="write_note", arguments=NOTE, code="ok", questions=0, says="no", settings={"mode": "autonomous"}
    ),
}


@pytest.mark.parametrize("case", PRECEDENCE.values(), ids=PRECEDENCE)
async def test_who_decides_is_settled_in_one_order(profile: str, case: Asked) -> None:
    approver = RecordingApprover(case.says)
    mode = str(case.settings.get("mode", "cautious"))
    async with opened(**case.settings) as (crib, world), at(crib, profile, mode=mode) as seat:
        of(seat).state.approvals.approver = approver
        assert (await seat.use(case.tool, case.arguments)).code == case.code
        asked = [(question.tool.name, question.arguments) for question in approver.questions]
        assert asked == [(case.tool, {**DEFAULTS.get(case.tool, {}), **case.arguments})] * case.questions
        assert world.reached == ([case.tool] if case.code == "ok" else [])
        if asked and world.ledger:
            assert world.ledger == asked


DEFAULTS: dict[str, dict[str, Any]] = {"write_note": {"text": "", "owner": "nobody"}}
"""Arguments that the schema fills in: the approver is shown them too."""


@pytest.mark.parametrize(
    ("says", "codes", "questions"),
    [
        ("yes", ["ok", "ok"], 2),
        ("no", ["denied", "denied"], 2),
        ("always", ["ok", "ok"], 1),
        ("never", ["denied", "denied"], 1),
    ],
)
async def test_an_answer_holds_for_as_long_as_it_says(
    profile: str, says: Verdict, codes: list[str], questions: int
) -> None:
    approver = RecordingApprover(says)
    async with opened() as (crib, world), at(crib, profile, mode="cautious") as seat:
        of(seat).state.approvals.approver = approver
        assert [(await seat.use("write_note", NOTE)).code for _ in range(2)] == codes
        assert (len(approver.questions), len(world.ledger)) == (questions, codes.count("ok"))


async def test_a_gate_that_breaks_stays_silent_or_is_left_lets_nothing_through(profile: str) -> None:
    async def breaks(question: Question) -> Answer:
        raise RuntimeError("no screen")

    async def silent(question: Question) -> Answer:
        await anyio.sleep_forever()
        return Answer(verdict="yes")

    async with opened(approvals={"timeout": 0.05}) as (crib, world), at(crib, profile, mode="cautious") as seat:
        of(seat).state.approvals.approver = breaks
        assert (await seat.use("write_note", NOTE)).code == "denied"
        of(seat).state.approvals.approver = silent
        assert (await seat.use("write_note", NOTE)).code == "denied"
        of(seat).state.approvals.approver = None
        assert (await seat.use("write_note", NOTE)).code == "denied"
        assert world.reached == []


async def test_a_question_whose_caller_left_runs_nothing_and_holds_up_nobody(profile: str) -> None:
    asked = anyio.Event()

    async def silent(question: Question) -> Answer:
        asked.set()
        await anyio.sleep_forever()
        return Answer(verdict="yes")

    async with opened() as (crib, world), at(crib, profile, mode="cautious") as seat:
        await seat.reach("write_note")
        of(seat).state.approvals.approver = silent
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as leaving:
                leaving.start_soon(of(seat).call, *await seat.way("write_note", NOTE))
                await asked.wait()
                leaving.cancel_scope.cancel()
        assert world.reached == []
        of(seat).state.approvals.approver = RecordingApprover("yes")
        assert (await seat.use("write_note", NOTE)).code == "ok"


# 11: bad neighbours


@pytest.mark.process
async def test_a_bad_entry_a_dead_server_and_a_taken_name_are_listed_and_harm_nobody(
    profile: str, tmp_path: Path
) -> None:
    catalog = tmp_path / "tools.yaml"
    catalog.write_text(json.dumps({"capabilities": [BAD, GOOD, {**GOOD, "name": "read_note"}, {**GOOD, "type": "X"}]}))
    async with opened() as (crib, _):
        await crib.load(catalog)
        await crib.mount({"mcpServers": {"dead": {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]}}})
        await crib.tools.wait_ready(PATIENCE)
        listed = [(problem.tool, problem.source) for problem in crib.problems]
        async with at(crib, profile) as seat:
            assert (await seat.use("read_note", {"path": "plan"})).value["text"] == "one"
            assert (await seat.use("say_more", {"words": "hi"})).value == "more: hi"
        assert {tool for tool, _ in listed} >= {"no_way", "read_note"}
        assert [state.state for state in crib.tools.sources if state.source == "dead"] == ["failed"]


GOOD = {
    "name": "say_more",
    "type": "TOOL",
    "description": "Say more of something.",
    "kind": "read",
    "capabilities": ["talk"],
    "input_schema": {"type": "object", "properties": {"words": {"type": "string"}}, "required": ["words"]},
    "implementation": {"module": "contract.workshop", "function": "say_more"},
}
BAD = {**GOOD, "name": "no_way", "implementation": {"module": "contract.nowhere", "function": "say_more"}}


# 12: secrets


async def test_a_secret_in_the_arguments_reaches_the_tool_and_no_log_event_or_record(
    profile: str, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[CallFinished] = []
    caplog.set_level(logging.DEBUG)
    async with opened() as (crib, world), at(crib, profile) as seat:
        crib.calls.on_finished(events.append)
        assert (await seat.use("unlock", {"password": PASSWORD})).code == "ok"
        refused = await seat.use("unlock", {"password": PASSWORD, "again": True})
        rows = await crib.store.calls.list()
        assert world.ledger == [("unlock", {"password": PASSWORD})]
        assert (refused.code, PASSWORD in refused.text) == ("invalid_arguments", False)
        assert [kept for kept in (caplog.text, str(events), str(rows)) if PASSWORD in kept] == []
