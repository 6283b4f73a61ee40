"""Asking elsewhere than at the session's own approver, and using what was answered before."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from toolcrib.core.permission import HELD, Answer, Grant, Question
from toolcrib.core.session import SessionState
from toolcrib.core.tool import Tool
from toolcrib.policy.grant import covers
from toolcrib.policy.settings import ApprovalSettings
from toolcrib.testing import RecordingApprover
from unit.toolcrib.policy.asked import ASKED, TOOL, WAIT, asking, call, session

# The store and other channels


@pytest.mark.slow
async def test_where_the_store_answers_a_session_with_nobody_to_ask_waits_for_it() -> None:
    grants = list[Grant]()

    async with asking(settings=WAIT) as approvals, anyio.create_task_group() as tasks:

        async def ask() -> None:
            grants.append(await approvals.grant(call(session())))

        tasks.start_soon(ask)
        await approvals.answer(Answer(verdict="yes", by="Ada"))

    assert [grant.rule for grant in grants] == [f"approved by Ada ({ASKED.rule})"]


@pytest.mark.slow
async def test_an_answer_in_the_store_wins_over_an_approver_who_is_still_thinking() -> None:
    cancelled = anyio.Event()

    async def thinking(question: Question) -> Answer:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        raise AssertionError

    async with asking() as approvals, anyio.create_task_group() as tasks:
        tasks.start_soon(approvals.grant, call(session(thinking)))
        await approvals.answer(Answer(verdict="yes", by="Ada"))

    assert cancelled.is_set(), "the approver learns that it is settled"


@pytest.mark.slow
async def test_a_never_in_the_store_is_remembered_in_the_session_that_asked() -> None:
    state = session()
    async with asking(settings=WAIT) as approvals, anyio.create_task_group() as tasks:
        tasks.start_soon(approvals.refusal, call(state))
        await approvals.answer(Answer(verdict="never", by="Ada"))

    assert state.approvals.remembered == {"fs__write": "deny"}


async def test_a_call_that_waits_for_the_store_alone_is_held() -> None:
    async with asking(settings=WAIT, wait=0.01) as approvals:
        failure = await approvals.refusal(call(session()))

        assert (failure.code, await approvals.states()) == ("approval_pending", ["pending"])


async def test_a_job_waits_as_long_as_an_approver_has_for_no_caller_makes_it_again() -> None:
    async with asking(settings=WAIT, timeout=0.01) as approvals:
        failure = await approvals.refusal(call(session()).evolve(job_seconds=60.0))

        assert (failure.details["reason"], await approvals.states()) == ("unanswered", ["expired"])


@pytest.mark.slow
async def test_a_channel_answers_at_once_or_says_that_the_answer_comes_through_the_store() -> None:
    async def at_once(question: Question) -> Answer | None:
        return Answer(verdict="yes", by="hook")

    async def later(question: Question) -> Answer | None:
        return None

    async with asking(channels=(at_once,)) as approvals:
        assert (await approvals.grant(call(session()))).rule == f"approved by hook ({ASKED.rule})"
    async with asking(channels=(later,)) as approvals, anyio.create_task_group() as tasks:
        tasks.start_soon(approvals.grant, call(session()))
        await approvals.answer(Answer(verdict="yes", by="Ada"))


async def test_a_channel_that_breaks_is_a_refusal_unless_somebody_else_is_asked_too() -> None:
    async def broken(question: Question) -> Answer | None:
        raise RuntimeError("boom")

    async with asking(channels=(broken,)) as approvals:
        assert (await approvals.refusal(call(session()))).details["reason"] == "broken"
        assert await approvals.grant(call(session(RecordingApprover()), 2))


async def test_a_caller_who_leaves_takes_his_question_back_or_leaves_it_standing_as_configured() -> None:
    found = list[tuple[str, bool, str]]()
    for is_client in (False, True):
        for when_gone in ("drop", "run"):
            async with asking(settings=ApprovalSettings(wait=True, when_gone=when_gone)) as approvals:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(approvals.call, call(session(is_client=is_client)))
                    await approvals.pending()
                    tasks.cancel_scope.cancel()
                (row,) = await approvals.rows()
                found.append((row.state, row.gone, row.job))

    assert found == [("cancelled", False, ""), ("pending", True, ""), ("pending", False, HELD), ("pending", True, "")]


# Approvals that were given before


async def test_an_approval_that_the_call_brings_along_is_used_instead_of_asking() -> None:
    approver = RecordingApprover()
    state = session(approver)
    async with asking() as approvals:
        first = await approvals.call(call(state))
        again = await approvals.call(call(state).evolve(approval=first.approval))

    assert again.grant is not None
    assert covers(again.grant, TOOL, {"path": "a"}, "call-1"), "neither an intent nor a row: it never ran"
    assert len(approver.questions) == 1


@pytest.mark.parametrize("arguments", [{"path": "a"}, {"path": "b"}], ids=["as it was asked", "as it was changed"])
async def test_a_changed_call_that_is_made_again_runs_as_it_was_changed(arguments: dict[str, Any]) -> None:
    state = session(RecordingApprover(Answer(verdict="edit", arguments={"path": "b"})))
    async with asking() as approvals:
        first = await approvals.call(call(state))
        again = await approvals.call(call(state, arguments=arguments).evolve(approval=first.approval))
        failure = await approvals.refusal(call(state, arguments={"path": "c"}).evolve(approval=first.approval))

    assert (again.arguments, failure.code) == ({"path": "b"}, "denied")


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "call-2"},
        {"arguments": {"path": "b"}},
        {"session": SessionState(key="k", principal="eve")},
        {"tool": Tool(name="fs__write", source="fs", local_name="write", description="changed")},
        {"approval": "approval_of_nobody"},
    ],
    ids=["another call", "other arguments", "another principal", "another definition", "no such approval"],
)
async def test_an_approval_covers_nothing_but_its_own_call(changes: dict[str, Any]) -> None:
    state = session(RecordingApprover())
    async with asking() as approvals:
        first = await approvals.call(call(state))
        failure = await approvals.refusal(call(state).evolve(**{"approval": first.approval} | changes))

    assert failure.code == "denied"
