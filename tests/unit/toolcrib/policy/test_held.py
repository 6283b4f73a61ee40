"""Held calls: a client whose user cannot be asked gets `approval_pending`, and its call runs once after a yes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from rig import PATIENCE
from toolcrib.core.call import Call, Client, Options
from toolcrib.core.permission import HELD, Answer, AnswersLater, Approval, NoApprover, Question
from toolcrib.core.sandbox import SHELL_FOLDER
from toolcrib.errors import ToolFailure
from toolcrib.policy.open_question import settlement_of
from toolcrib.policy.settings import ApprovalSettings
from toolcrib.results.redaction.redactor import Redactor
from unit.toolcrib.policy.asked import ASKED, TOOL, WAIT, Asking, asking, call, session

HOLDS: Mapping[str, Any] = {"is_shared": True, "wait": 0.0}


def asked(number: int = 1, **changes: Any) -> Call:
    return call(session(is_client=True), number).evolve(**changes)


async def held(approvals: Asking, made: Call | None = None) -> str:
    """Make a call that is held, and return the id of its question."""
    failure = await approvals.refusal(made or asked())
    assert failure.code == "approval_pending"
    return str(failure.details["approval"])


async def settle(approvals: Asking, id: str, verdict: Any = "yes", **answer: Any) -> None:
    """Answer through the store, as another process does."""
    given = settlement_of(Answer(verdict=verdict, by="Ada", **answer), Redactor().value)
    await approvals.store.approvals.settle(id, given)


async def test_a_call_that_nobody_answers_in_time_is_held_with_id_command_and_link() -> None:
    settings = ApprovalSettings(link="https://desk.example.org/{id}")
    async with asking(settings=settings, **HOLDS) as approvals:
        failure = await approvals.refusal(asked())
        (row,) = await approvals.rows()

    assert (failure.code, row.state, row.job, row.gone) == ("approval_pending", "pending", HELD, False)
    assert failure.details == {
        "rule": ASKED.rule,
        "reason": "held",
        "approval": row.id,
        "command": f"toolcrib approvals yes {row.id}",
        "link": f"https://desk.example.org/{row.id}",
    }


async def test_an_approver_that_leaves_the_answer_to_others_gives_them_its_own_time() -> None:
    async def later(question: Question) -> Answer:
        raise AnswersLater

    async with asking(timeout=0.05, **HOLDS) as approvals:
        failure = await approvals.refusal(call(session(later, is_client=True)))

    assert (failure.code, failure.details["reason"]) == ("denied", "unanswered")


async def test_after_the_yes_the_same_call_runs_once_and_the_next_one_is_asked_about_again() -> None:
    async with asking(**HOLDS) as approvals:
        first = await held(approvals)
        again = await held(approvals, asked(2))
        await settle(approvals, first)
        granted = await approvals.call(asked(3))
        another = await held(approvals, asked(4))

        assert (first == again, granted.approval == first, another != first) == (True, True, True)
        assert granted.grant is not None
        assert granted.grant.rule == f"approved by Ada ({ASKED.rule})"
        assert {row.id: row.state for row in await approvals.rows()} == {first: "used", another: "pending"}


async def test_after_a_no_the_same_call_is_denied_without_another_question() -> None:
    async with asking(**HOLDS) as approvals:
        await settle(approvals, await held(approvals), "comment", comment="not on Fridays")
        failures = [await approvals.refusal(asked(number)) for number in (2, 3)]

        assert [(one.code, one.details["reason"]) for one in failures] == [("denied", "refused")] * 2
        assert failures[0].details["comment"] == "not on Fridays"
        assert await approvals.states() == ["denied"]


@pytest.mark.parametrize("verdict", ["no", "comment"])
async def test_after_a_no_while_the_call_waits_the_same_call_is_denied_without_another_question(verdict: Any) -> None:
    failures = list[ToolFailure]()
    async with asking(is_shared=True, wait=3600.0) as approvals:
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                failures.append(await approvals.refusal(asked()))

            tasks.start_soon(ask)
            await approvals.pending()
            await approvals.answer(Answer(verdict=verdict, by="Ada"))
        with anyio.fail_after(PATIENCE):
            failures.append(await approvals.refusal(asked(2)))

        assert [(one.code, one.details["reason"]) for one in failures] == [("denied", "refused")] * 2
        assert await approvals.states() == ["denied"]


async def test_an_approver_of_the_session_is_asked_again_after_a_no() -> None:
    questions = list[Question]()

    async def refuse(question: Question) -> Answer:
        questions.append(question)
        return Answer(verdict="no", by="Ada")

    async with asking(**HOLDS) as approvals:
        for number in (1, 2):
            await approvals.refusal(call(session(refuse, is_client=True), number))

    assert len(questions) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"arguments": {"path": "b"}},
        {"session": session(is_client=True, principal="eve")},
        {"tool": replace(TOOL, description="changed")},
        {"session": session(is_client=True, cwd=Path("/elsewhere"))},
    ],
    ids=["other arguments", "another principal", "another definition", "another project"],
)
async def test_the_yes_is_for_the_same_call_alone(changes: dict[str, Any]) -> None:
    async with asking(**HOLDS) as approvals:
        first = await held(approvals)
        await settle(approvals, first)

        assert await held(approvals, asked(2, **changes)) != first
        assert await approvals.grant(asked(3))


async def test_the_yes_to_a_command_is_for_the_folder_that_the_shell_was_in() -> None:
    state = session(is_client=True)
    command = replace(TOOL, category="shell")

    def run(number: int) -> Call:
        return call(state, number, {"command": "rm -r build"}).evolve(tool=command)

    async with asking(**HOLDS) as approvals:
        first = await held(approvals, run(1))
        await settle(approvals, first)
        state.runtime[SHELL_FOLDER] = Path("/elsewhere")
        assert await held(approvals, run(2)) != first

        del state.runtime[SHELL_FOLDER]
        assert (await approvals.call(run(3))).approval == first


@pytest.mark.parametrize("verdict", ["always", "turn", "idle", "all", "never"])
async def test_a_wide_answer_reaches_the_conversation_that_asked_and_no_other_one(verdict: Any) -> None:
    asking_one, other = session(is_client=True), session(is_client=True, key="other")
    async with asking(**HOLDS) as approvals:
        await settle(approvals, await held(approvals, call(asking_one)), verdict)
        if verdict == "never":
            await approvals.refusal(call(other, 2))
        else:
            assert await approvals.grant(call(other, 2)), "the same call may run: a client that connects again makes it"

    assert (other.approvals.remembered, other.approvals.blanket) == ({}, {})


@pytest.mark.slow
async def test_an_answer_within_the_wait_lets_the_call_run_and_its_client_hears_that_it_waits() -> None:
    heard, has_heard = list[Mapping[str, Any]](), anyio.Event()

    class Peer:
        takes_requests = True
        capabilities: Mapping[str, Any] = {}

        async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
            raise AssertionError(method)

        async def notify(self, method: str, params: Mapping[str, Any]) -> None:
            heard.append({"method": method, **params})
            has_heard.set()

    granted, id = list[Call](), ""
    async with asking(is_shared=True) as approvals, anyio.create_task_group() as tasks:

        async def ask() -> None:
            granted.append(await approvals.call(asked(client=Client(peer=Peer(), progress_token="t"))))

        tasks.start_soon(ask)
        id = (await approvals.pending()).id
        await has_heard.wait()
        await approvals.answer(Answer(verdict="yes", by="Ada"))

    assert [one.approval for one in granted] == [id]
    assert heard[0] == {
        "method": "notifications/progress",
        "progressToken": "t",
        "progress": 0.001,
        "message": f"waits for approval: toolcrib approvals yes {id}",
    }


async def test_a_client_that_gives_its_call_less_time_has_its_answer_before() -> None:
    async with asking(is_shared=True, wait=3600.0) as approvals:
        with anyio.fail_after(PATIENCE):
            await held(approvals, asked(options=Options(timeout=0.01)))


async def test_a_client_that_turns_out_to_reach_nobody_is_held_as_well() -> None:
    async def nobody(question: Question) -> Answer:
        raise NoApprover

    async with asking(**HOLDS) as approvals:
        await held(approvals, call(session(nobody, is_client=True)))


async def test_where_no_other_process_can_answer_a_call_is_refused_at_once() -> None:
    async with asking() as approvals:
        assert (await approvals.refusal(asked())).details["reason"] == "no_approver"
    async with asking(settings=WAIT, wait=0.0) as approvals:
        assert (await approvals.refusal(asked())).code == "approval_pending"
    async with asking(**HOLDS) as approvals:
        assert (await approvals.refusal(call(session()))).details["reason"] == "no_approver", "no client"


async def test_channels_and_notifications_announce_a_held_call_once() -> None:
    posted, shown = list[str](), list[Approval]()

    async def later(question: Question) -> Answer | None:
        posted.append(question.approval)
        return None

    async with asking(channels=(later,), notify=shown.append, is_shared=True, wait=0.01) as approvals:
        id = await held(approvals)
        await held(approvals, asked(2))

    assert (posted, [one.id for one in shown]) == ([id], [id])


async def test_a_wide_answer_to_a_held_call_holds_from_the_next_call_on() -> None:
    state = session(is_client=True)
    async with asking(**HOLDS) as approvals:
        await settle(approvals, await held(approvals, call(state)), "never")
        await approvals.refusal(call(state, 2))

    assert state.approvals.remembered == {TOOL.name: "deny"}


async def test_an_edit_of_a_held_call_runs_with_the_other_arguments() -> None:
    async with asking(**HOLDS) as approvals:
        await settle(approvals, await held(approvals), "edit", arguments={"path": "b"})
        granted = await approvals.call(asked(2))

    assert granted.arguments == {"path": "b"}


async def test_a_client_that_gives_up_while_its_call_waits_may_make_it_again() -> None:
    id = ""
    async with asking(is_shared=True) as approvals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(approvals.call, asked())
            id = (await approvals.pending()).id
            tasks.cancel_scope.cancel()
        await settle(approvals, id)

        assert (await approvals.call(asked(2))).approval == id
