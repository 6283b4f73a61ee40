"""Asking: one question at a time, about exactly what will run; every way of not answering is a no."""

from __future__ import annotations

from typing import Any, Literal

import anyio
import pytest

from toolcrib.core.call import Call
from toolcrib.core.permission import Answer, Approver, Decision, Grant, Question
from toolcrib.core.session import SessionState
from toolcrib.core.tool import Tool
from toolcrib.errors import ToolFailure
from toolcrib.policy.approval import Approvals
from toolcrib.policy.decide import Policy, approved_as
from toolcrib.policy.grant import covers, mint, spend
from toolcrib.testing import RecordingApprover

TOOL = Tool(name="fs__write", source="fs", local_name="write")
ASKED = Decision(effect="ask", rule="mode cautious: a destructive tool is asked for")


def session(approver: Approver | None = None) -> SessionState:
    return SessionState(key="k", approver=approver)


def call(state: SessionState, number: int = 1, arguments: dict[str, Any] | None = None) -> Call:
    given = {"path": "a"} if arguments is None else arguments
    return Call(id=f"call-{number}", name=TOOL.name, arguments=given, session=state, tool=TOOL, decision=ASKED)


async def refusal(approvals: Approvals, asked: Call) -> ToolFailure:
    with pytest.raises(ToolFailure) as failure:
        await approvals.ask(asked)
    return failure.value


async def test_a_yes_grants_this_call_and_names_who_said_it() -> None:
    asked = call(session(RecordingApprover("yes")))

    grant = await Approvals(Policy()).ask(asked)

    assert covers(grant, TOOL, {"path": "a"}, "call-1")
    assert grant.rule == "approved by test (mode cautious: a destructive tool is asked for)"


async def test_the_approver_sees_the_tool_and_the_arguments_that_will_run() -> None:
    approver = RecordingApprover()
    await Approvals(Policy()).ask(call(session(approver)))

    assert approver.questions == [
        Question(call_id="call-1", tool=TOOL, arguments={"path": "a"}, decision=ASKED, principal="local")
    ]


async def test_a_no_is_a_refusal_with_the_comment() -> None:
    async def no(question: Question) -> Answer:
        return Answer(verdict="no", by="Ada", comment="not on Fridays")

    failure = await refusal(Approvals(Policy()), call(session(no)))

    assert (failure.code, failure.message) == ("denied", "Ada refused fs__write: not on Fridays")


async def test_nobody_to_ask_is_a_refusal_that_says_how_to_allow_the_call() -> None:
    failure = await refusal(Approvals(Policy()), call(session()))

    assert failure.message == (
        "fs__write needs approval (mode cautious: a destructive tool is asked for), and there is nobody to ask"
    )
    assert "add the rule allow: fs__write, or use --mode autonomous" in failure.hint


async def test_an_approver_that_breaks_is_a_refusal() -> None:
    async def broken(question: Question) -> Answer:
        raise RuntimeError("boom")

    failure = await refusal(Approvals(Policy()), call(session(broken)))

    assert (failure.code, failure.message) == ("denied", "fs__write needs approval, and asking for it failed")


async def test_an_answer_that_does_not_come_in_time_is_a_refusal() -> None:
    async def silent(question: Question) -> Answer:
        await anyio.sleep_forever()
        raise AssertionError

    failure = await refusal(Approvals(Policy(), timeout=0.01), call(session(silent)))

    assert (failure.code, failure.message) == ("denied", "nobody answered within 0.01 s whether fs__write may run")


@pytest.mark.parametrize(("verdict", "effect"), [("always", "allow"), ("never", "deny")])
async def test_always_and_never_are_remembered_in_the_session(verdict: Literal["always", "never"], effect: str) -> None:
    state = session(RecordingApprover(verdict))
    try:
        await Approvals(Policy()).ask(call(state))
    except ToolFailure as failure:
        assert failure.code == "denied"

    key = approved_as(call(state).target) if verdict == "always" else "fs__write"
    assert state.remembered == {key: effect}


async def test_yes_and_no_are_not_remembered() -> None:
    state = session(RecordingApprover("yes"))
    await Approvals(Policy()).ask(call(state))

    assert state.remembered == {}


async def test_questions_of_one_session_are_asked_one_at_a_time_in_order() -> None:
    open_now, most, order = 0, 0, list[str]()

    async def approver(question: Question) -> Answer:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        order.append(question.call_id)
        await anyio.lowlevel.checkpoint()
        open_now -= 1
        return Answer(verdict="yes")

    state, approvals = session(approver), Approvals(Policy())
    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(approvals.ask, call(state, number))

    assert (most, order) == (1, [f"call-{number}" for number in range(5)])


async def test_an_always_also_answers_the_calls_that_wait() -> None:
    approver = RecordingApprover("always")
    state, approvals = session(approver), Approvals(Policy())
    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(approvals.ask, call(state, number))

    assert len(approver.questions) == 1


async def test_a_never_also_refuses_the_calls_that_wait() -> None:
    approver = RecordingApprover("never")
    state, approvals = session(approver), Approvals(Policy())
    refused = list[str]()

    async def ask(number: int) -> None:
        refused.append((await refusal(approvals, call(state, number))).code)

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(ask, number)

    assert (len(approver.questions), refused) == (1, ["denied"] * 3)


async def test_more_than_a_hundred_waiting_questions_are_refused_as_overload() -> None:
    async def silent(question: Question) -> Answer:
        await anyio.sleep_forever()
        raise AssertionError

    state, approvals = session(silent), Approvals(Policy())
    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(approvals.ask, call(state, number))
        await anyio.wait_all_tasks_blocked()

        assert (await refusal(approvals, call(state, 100))).code == "overloaded"
        tasks.cancel_scope.cancel()


async def test_a_cancelled_question_lets_the_next_one_be_asked() -> None:
    asked = anyio.Event()

    async def silent_once(question: Question) -> Answer:
        if question.call_id == "call-1":
            asked.set()
            await anyio.sleep_forever()
        return Answer(verdict="yes")

    state, approvals = session(silent_once), Approvals(Policy())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(approvals.ask, call(state, 1))
        await asked.wait()
        tasks.cancel_scope.cancel()

    assert covers(await approvals.ask(call(state, 2)), TOOL, {"path": "a"}, "call-2")


async def test_an_approver_cannot_change_what_will_run() -> None:
    async def sly(question: Question) -> Answer:
        question.arguments["paths"].append("/etc")
        return Answer(verdict="yes")

    asked = call(session(sly), arguments={"paths": ["a"]})
    await Approvals(Policy()).ask(asked)

    assert asked.arguments == {"paths": ["a"]}


async def test_arguments_that_change_while_the_question_is_open_are_refused() -> None:
    arguments = {"path": "a"}

    async def meanwhile(question: Question) -> Answer:
        arguments["path"] = "/etc"
        return Answer(verdict="yes")

    failure = await refusal(Approvals(Policy()), call(session(meanwhile), arguments=arguments))

    assert failure.message == "the arguments of fs__write changed while it waited for approval"


# Grants


def test_a_grant_covers_its_own_call_alone() -> None:
    grant = mint("call-1", TOOL, {"path": "a"}, "rule")
    other = Tool(name="fs__write", source="fs", local_name="write", description="changed")

    assert covers(grant, TOOL, {"path": "a"}, "call-1")
    assert not covers(grant, TOOL, {"path": "b"}, "call-1")
    assert not covers(grant, TOOL, {"path": "a"}, "call-2")
    assert not covers(grant, other, {"path": "a"}, "call-1")


def test_a_grant_is_spent_once() -> None:
    grant = mint("call-1", TOOL, {}, "rule")

    assert [spend(grant, TOOL, {}, "call-1") for _ in range(2)] == [True, False]


def test_a_grant_that_was_not_minted_covers_nothing() -> None:
    real = mint("call-1", TOOL, {}, "rule")
    forged = Grant(call_id=real.call_id, tool=real.tool, arguments=real.arguments, rule=real.rule)

    assert forged == real
    assert not covers(forged, TOOL, {}, "call-1")


def test_equal_arguments_in_another_order_are_the_same_call() -> None:
    assert covers(mint("call-1", TOOL, {"a": 1, "b": 2}, "rule"), TOOL, {"b": 2, "a": 1}, "call-1")
