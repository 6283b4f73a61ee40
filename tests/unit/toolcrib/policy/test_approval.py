"""Asking: one question at a time, about exactly what will run; every way of not answering is a no."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import anyio
import pytest

from toolcrib.core.call import Call
from toolcrib.core.permission import Answer, Approval, NoApprover, Question
from toolcrib.core.session import SessionApprovals, SessionState
from toolcrib.errors import ToolFailure
from toolcrib.policy.approval import Approvals
from toolcrib.policy.decision import Policy
from toolcrib.policy.grant import covers
from toolcrib.policy.questions import binding
from toolcrib.results.redaction.redactor import Redactor
from toolcrib.store.store import Store
from toolcrib.testing import RecordingApprover
from unit.toolcrib.policy.asked import ASKED, TOOL, asking, call, session

# The session's approver


async def test_a_yes_grants_this_call_and_names_who_said_it() -> None:
    async with asking() as approvals:
        granted = await approvals.call(call(session(RecordingApprover("yes"))))

        assert granted.grant is not None
        assert covers(granted.grant, TOOL, {"path": "a"}, "call-1")
        assert granted.grant.rule == "approved by test (mode cautious: a destructive tool is asked for)"
        assert [(row.id, row.state, row.by) for row in await approvals.rows()] == [(granted.approval, "used", "test")]


async def test_the_approver_sees_the_tool_and_the_arguments_that_will_run() -> None:
    async def diff(asked: Call) -> str:
        return "+ a"

    approver = RecordingApprover()
    async with asking(diff=diff) as approvals:
        granted = await approvals.call(call(session(approver)))
        (row,) = await approvals.rows()

    assert approver.questions == [
        Question(
            call_id="call-1",
            tool=TOOL,
            arguments={"path": "a"},
            decision=ASKED,
            principal="local",
            diff="+ a",
            approval=granted.approval,
            expires=row.expires,
            shown='{\n "path": "a"\n}',
            hash=binding(TOOL.digest.hex(), {"path": "a"}, "local"),
        )
    ]


async def test_the_question_is_stored_before_the_approver_is_asked() -> None:
    found = list[str]()

    async with asking() as approvals:

        async def look(question: Question) -> Answer:
            row = await approvals.store.approvals.get(question.approval)
            found.append(row.state if row else "")
            return Answer(verdict="yes")

        await approvals.grant(call(session(look)))

    assert found == ["pending"]


async def test_secrets_are_masked_in_what_people_see_and_in_what_is_stored() -> None:
    approver = RecordingApprover()

    def masking(principal: str) -> Callable[[Any], Any]:
        return Redactor(["hunter2hunter2"]).of(principal).value

    async with asking(redact_for=masking) as approvals:
        await approvals.grant(call(session(approver), arguments={"note": "it is hunter2hunter2"}))
        (row,) = await approvals.rows()

    (question,) = approver.questions
    assert "hunter2" not in question.shown + row.arguments
    assert question.arguments == {"note": "it is hunter2hunter2"}, "code that approves sees what will run"


async def test_a_no_is_a_refusal_with_the_comment() -> None:
    async def no(question: Question) -> Answer:
        return Answer(verdict="comment", by="Ada", comment="not on Fridays")

    async with asking() as approvals:
        failure = await approvals.refusal(call(session(no)))

        assert (failure.code, failure.message) == ("denied", "Ada refused fs__write: not on Fridays")
        assert failure.details == {"rule": ASKED.rule, "reason": "refused", "comment": "not on Fridays"}
        assert await approvals.states() == ["denied"]


async def test_nobody_to_ask_is_a_refusal_that_says_how_to_allow_the_call_and_stores_nothing() -> None:
    async with asking() as approvals:
        failure = await approvals.refusal(call(session()))

        assert failure.code == "denied" and failure.details["reason"] == "no_approver"
        assert failure.details["rule"] == "mode cautious: a destructive tool is asked for"
        assert failure.hint is not None
        for way in ("allow: fs__write", "mode autonomous", "approvals: {wait: true}", "`toolcrib approvals`"):
            assert way in failure.hint
        assert await approvals.rows() == []


async def test_an_approver_that_finds_nobody_is_a_refusal() -> None:
    async def nobody(question: Question) -> Answer:
        raise NoApprover

    async with asking() as approvals:
        failure = await approvals.refusal(call(session(nobody)))

        assert (failure.code, failure.details["reason"]) == ("denied", "no_approver")
        assert await approvals.states() == ["cancelled"]


async def test_an_approver_that_reaches_nobody_now_is_not_asked() -> None:
    class Away(RecordingApprover):
        def reaches(self) -> bool:
            return False

    approver = Away()
    async with asking() as approvals:
        failure = await approvals.refusal(call(session(approver)))

        assert (failure.details["reason"], approver.questions) == ("no_approver", [])
        assert await approvals.rows() == []


async def test_an_approver_that_breaks_is_a_refusal() -> None:
    async def broken(question: Question) -> Answer:
        raise RuntimeError("boom")

    async with asking() as approvals:
        failure = await approvals.refusal(call(session(broken)))

        assert (failure.code, failure.message) == ("denied", "fs__write needs approval, and asking for it failed")
        assert await approvals.states() == ["cancelled"]


async def test_a_plain_function_can_approve() -> None:
    def agree(question: Question) -> Any:
        return Answer(verdict="yes", by="Ada")

    async with asking() as approvals:
        await approvals.grant(call(session(agree)))

        assert await approvals.states() == ["used"]


async def test_the_log_names_what_an_approver_returned_in_place_of_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    def agree(question: Question) -> Any:
        return True

    async with asking() as approvals:
        await approvals.refusal(call(session(agree)))

    assert "returned bool" in caplog.text


@pytest.mark.parametrize("answer", [Answer(verdict="edit"), Answer(verdict=cast("Any", "perhaps")), None])
async def test_an_answer_that_means_nothing_is_a_refusal(answer: Any) -> None:
    async def babble(question: Question) -> Answer:
        return answer

    async with asking() as approvals:
        assert (await approvals.refusal(call(session(babble)))).code in ("denied", "invalid_arguments")
        assert await approvals.states() == ["cancelled"]


async def test_an_answer_that_does_not_come_in_time_is_a_refusal() -> None:
    async def silent(question: Question) -> Answer:
        await anyio.sleep_forever()
        raise AssertionError

    async with asking(timeout=0.01) as approvals:
        failure = await approvals.refusal(call(session(silent)))

        assert (failure.code, failure.details["reason"]) == ("denied", "unanswered")
        assert await approvals.states() == ["expired"]


# Answers that say more than yes or no


async def test_changed_arguments_are_what_the_grant_is_for() -> None:
    async def edit(question: Question) -> Answer:
        return Answer(verdict="edit", by="Ada", arguments={"path": "b"})

    async with asking() as approvals:
        granted = await approvals.call(call(session(edit)))
        (row,) = await approvals.rows()

    assert granted.grant is not None
    assert granted.arguments == {"path": "b"}
    assert covers(granted.grant, TOOL, {"path": "b"}, "call-1")
    assert (row.state, row.verdict, row.arguments) == ("used", "edit", '{\n "path": "b"\n}')


async def test_changed_arguments_that_cannot_run_are_a_refusal_and_use_nothing() -> None:
    async def edit(question: Question) -> Answer:
        return Answer(verdict="edit", by="Ada", arguments={"path": 1})

    async def refuse(asked: Call) -> Call:
        raise ToolFailure("invalid_arguments", "path: must be a string", hint="see the schema")

    async with Store.open(None) as store:
        with pytest.raises(ToolFailure) as failure:
            await Approvals(Policy(), store.approvals).ask(call(session(edit)), refuse)
        (row,) = await store.approvals.list()

    assert failure.value.code == "denied"
    assert failure.value.message == (
        "Ada changed the arguments of fs__write, and it cannot run with them: path: must be a string"
    )
    assert (row.state, row.comment) == ("denied", "path: must be a string")


# Several calls


async def test_questions_of_one_session_are_asked_one_at_a_time() -> None:
    open_now, most, order = 0, 0, list[str]()

    async def approver(question: Question) -> Answer:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        order.append(question.call_id)
        await anyio.lowlevel.checkpoint()
        open_now -= 1
        return Answer(verdict="yes")

    state = session(approver)
    async with asking() as approvals, anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(approvals.call, call(state, number))

    assert (most, sorted(order)) == (1, [f"call-{number}" for number in range(5)])


async def test_an_always_also_answers_the_calls_that_wait() -> None:
    approver = RecordingApprover("always")
    state = session(approver)
    async with asking() as approvals, anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(approvals.call, call(state, number))

    assert len(approver.questions) == 1


async def test_a_never_also_refuses_the_calls_that_wait() -> None:
    approver = RecordingApprover("never")
    state, refused = session(approver), list[str]()

    async with asking() as approvals:

        async def ask(number: int) -> None:
            refused.append((await approvals.refusal(call(state, number))).details["reason"])

        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(ask, number)
        states = await approvals.states()

    assert (len(approver.questions), sorted(refused), states) == (1, ["denied", "denied", "refused"], ["denied"] * 3)


@pytest.mark.slow
async def test_more_than_a_hundred_open_questions_of_a_principal_are_refused_as_overload() -> None:
    asked = 0

    async def silent(question: Question) -> Answer:
        await anyio.sleep_forever()
        raise AssertionError

    def count(approval: Approval) -> None:
        nonlocal asked
        asked += 1
        if asked == 100:
            full.set()

    async with asking() as approvals, anyio.create_task_group() as tasks:
        full = anyio.Event()
        approvals.notices.watch(count)
        for number in range(100):
            state = SessionState(key=f"k{number}", approvals=SessionApprovals(approver=silent))
            tasks.start_soon(approvals.call, call(state, number))
        await full.wait()

        assert (await approvals.refusal(call(session(silent), 100))).code == "overloaded"
        other = SessionState(key="k", principal="ada", approvals=SessionApprovals(approver=RecordingApprover()))
        await approvals.grant(call(other, 101))
        tasks.cancel_scope.cancel()


async def test_a_cancelled_question_lets_the_next_one_be_asked() -> None:
    asked = anyio.Event()

    async def silent_once(question: Question) -> Answer:
        if question.call_id == "call-1":
            asked.set()
            await anyio.sleep_forever()
        return Answer(verdict="yes")

    state = session(silent_once)
    async with asking() as approvals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(approvals.call, call(state, 1))
            await asked.wait()
            tasks.cancel_scope.cancel()

        assert covers(await approvals.grant(call(state, 2)), TOOL, {"path": "a"}, "call-2")
        assert await approvals.states() == ["used", "cancelled"]


async def test_an_approver_cannot_change_what_will_run() -> None:
    async def sly(question: Question) -> Answer:
        question.arguments["paths"].append("/etc")
        return Answer(verdict="yes")

    asked = call(session(sly), arguments={"paths": ["a"]})
    async with asking() as approvals:
        await approvals.grant(asked)

    assert asked.arguments == {"paths": ["a"]}


async def test_arguments_that_change_while_the_question_is_made_are_refused() -> None:
    arguments = {"path": "a"}

    async def meanwhile(asked: Call) -> str:
        arguments["path"] = "/etc"
        return "+ a"

    approver = RecordingApprover()
    async with asking(diff=meanwhile) as approvals:
        failure = await approvals.refusal(call(session(approver), arguments=arguments))

        assert [question.arguments for question in approver.questions] == [{"path": "a"}]
        assert failure.message == "the arguments of fs__write changed while it waited for approval"
        assert await approvals.states() == ["denied"]


async def test_arguments_that_change_while_the_question_is_open_are_refused() -> None:
    arguments = {"path": "a"}

    async def meanwhile(question: Question) -> Answer:
        arguments["path"] = "/etc"
        return Answer(verdict="yes")

    async with asking() as approvals:
        failure = await approvals.refusal(call(session(meanwhile), arguments=arguments))

        assert failure.message == "the arguments of fs__write changed while it waited for approval"
        assert await approvals.states() == ["denied"]
