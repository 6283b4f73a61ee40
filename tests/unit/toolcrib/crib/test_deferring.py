"""Questions that outlive their call: asked when it is over, answered from anywhere, and the call is made once."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolcrib import Answer, Context, Session, Toolcrib, ToolFailure, ToolResult, tool
from toolcrib.config import Settings, bare
from toolcrib.core.permission import Approval, Settlement, Verdict
from toolcrib.crib import PendingApproval, defer_approval, pending_approval
from toolcrib.policy.settings import ApprovalSettings
from toolcrib.testing import RecordingApprover

YES = Answer(verdict="yes", by="Ada")
NO = Answer(verdict="no", by="Ada")


class Post:
    """A post office with one tool, and the letters that it sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.begun = anyio.Event()

    @tool(kind="write")
    async def send(self, to: str) -> str:
        """Send a letter."""
        if to == "nobody":
            raise ToolFailure("tool_error", "there is nobody")
        if to == "far":
            self.begun.set()
            await anyio.sleep_forever()
        self.sent.append(to)
        return f"sent to {to}"


@asynccontextmanager
async def opened(
    post: Post, settings: Settings | None = None, *, memory: bool = True, mode: str = "cautious"
) -> AsyncGenerator[tuple[Toolcrib, Session]]:
    async with Toolcrib(settings or bare(), memory=memory) as crib:
        crib.add(post)
        yield crib, crib.session(key="k", mode=mode, approver=defer_approval)


def on_disk(home: Path) -> Settings:
    return bare().with_values(directories=bare().directories._replace(data=home / "data", cache=home / "cache"))


async def left(session: Session, to: str = "Bob") -> PendingApproval:
    """Make a call that leaves a question."""
    question = pending_approval(await session.call("send", {"to": to}))
    assert question is not None
    return question


async def states(crib: Toolcrib) -> list[str]:
    return [approval.state for approval in await crib.approvals.list()]


async def test_a_call_that_must_be_asked_about_ends_and_says_what_the_user_is_to_be_shown() -> None:
    post = Post()
    async with opened(post) as (crib, session):
        result = await session.call("send", {"to": "Bob"})

        question = pending_approval(result)
        assert question is not None and result.error is not None
        assert (result.error.code, post.sent, await states(crib)) == ("denied", [], ["pending"])
        shown = (question.tool, " ".join(question.arguments.split()), question.rule, question.diff)
        assert shown == ("send", '{ "to": "Bob" }', "mode cautious: a write tool is asked for", "")
        assert PendingApproval(**question.to_json()) == question
        assert pending_approval(ToolResult.of_text("fine")) is None


async def test_a_yes_makes_the_call_once_however_often_it_is_resumed() -> None:
    post = Post()
    async with opened(post) as (crib, session):
        question = await left(session)

        first = await session.resume(question.approval, YES)
        again = [await session.resume(question.approval, answer) for answer in (YES, NO, None)]

        assert [one.text for one in (first, *again)] == ["sent to Bob"] * 4
        assert (post.sent, await states(crib)) == (["Bob"], ["used"])
        assert [row.outcome for row in await crib.store.calls.list()] == ["ok", "denied"]
        assert session.state.usage.calls["send"] == 1


async def test_the_record_names_the_client_of_a_call_that_is_made_later() -> None:
    async with opened(Post()) as (crib, session):
        question = pending_approval(await session.call("send", {"to": "Bob"}, client_name="codex/1.2"))
        assert question is not None

        await session.resume(question.approval, YES)

        assert [(row.outcome, row.client) for row in await crib.store.calls.list()] == [
            ("ok", "codex/1.2"),
            ("denied", "codex/1.2"),
        ]


@pytest.mark.slow
async def test_many_who_resume_at_once_have_the_result_of_one_call() -> None:
    post = Post()
    async with opened(post) as (_, session):
        question, texts = await left(session), list[str]()

        async def resume() -> None:
            texts.append((await session.resume(question.approval, YES)).text)

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(resume)

        assert (texts, post.sent) == (["sent to Bob"] * 8, ["Bob"])


@pytest.mark.parametrize("verdict", ["no", "comment", "never"])
async def test_a_no_is_a_refusal_and_nothing_runs(verdict: Verdict) -> None:
    post = Post()
    async with opened(post) as (crib, session):
        question = await left(session)

        result = await session.resume(question.approval, Answer(verdict=verdict, by="Ada", comment="not today"))
        later = await session.call("send", {"to": "Bob"})

        assert result.text.startswith("denied: Ada refused send: not today\n")
        assert (post.sent, (await crib.approvals.get(question.approval)).state) == ([], "denied")
        assert (pending_approval(later) is None) == (verdict == "never")
        assert session.state.usage.calls["send"] == 0


async def test_a_wide_yes_covers_later_calls_of_the_session() -> None:
    post = Post()
    async with opened(post) as (_, session):
        question = await left(session)

        await session.resume(question.approval, Answer(verdict="always", by="Ada"))

        assert (await session.call("send", {"to": "Cy"})).text == "sent to Cy"


async def test_an_edit_runs_with_the_other_arguments_and_the_model_is_told() -> None:
    post = Post()
    async with opened(post) as (_, session):
        question = await left(session)
        wrong = await session.resume(question.approval, Answer(verdict="edit", arguments={"too": "Cy"}))

        result = await session.resume(question.approval, Answer(verdict="edit", by="Ada", arguments={"to": "Cy"}))

        assert (wrong.error and wrong.error.code, post.sent) == ("invalid_arguments", ["Cy"])
        assert result.text == 'sent to Cy\n[Ada approved this call with other arguments: { "to": "Cy" }]'


async def test_an_answer_from_elsewhere_counts_and_a_no_counts_as_long_as_nothing_ran() -> None:
    post = Post()
    async with opened(post) as (crib, session):
        waiting, taken, refused = [await left(session, to) for to in ("Ann", "Bob", "Cy")]
        for question, verdict in ((taken, YES), (refused, YES)):
            await crib.approvals.decide(question.approval, verdict)

        unanswered = await session.resume(waiting.approval)
        results = [await session.resume(taken.approval), await session.resume(refused.approval, NO)]

        assert unanswered.text == f"denied: send did not run: approval {waiting.approval} is pending"
        assert [result.is_error for result in results] == [False, True]
        assert (post.sent, sorted(await states(crib))) == (["Bob"], ["denied", "pending", "used"])


async def test_a_deny_that_was_written_meanwhile_holds() -> None:
    post = Post()
    async with opened(post) as (crib, session):
        question = await left(session)
        crib.session(key="k", rules={"deny": ["send"]})

        result = await session.resume(question.approval, YES)

        assert (result.error and result.error.code, post.sent) == ("denied", [])


async def test_the_questions_of_others_do_not_exist() -> None:
    post = Post()
    async with opened(post) as (crib, session):
        question = await left(session)

        result = await crib.session(principal="eve").resume(question.approval, YES)

        assert (result.error and result.error.code, post.sent, await states(crib)) == ("not_found", [], ["pending"])


async def test_a_call_that_waits_by_itself_is_not_made_for_whoever_resumes_it() -> None:
    post, texts = Post(), list[str]()
    settings = bare().with_values(approvals=ApprovalSettings(wait=True))
    async with opened(post, settings) as (crib, _):
        session = crib.session(mode="cautious")

        async def wait() -> None:
            texts.append((await session.call("send", {"to": "Bob"})).text)

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            async for asked in crib.approvals.watch():
                result = await session.resume(asked.id, YES)
                assert result.error is not None and result.error.code == "conflict"
                break

    assert (texts, post.sent) == (["sent to Bob"], ["Bob"])


async def test_what_is_answered_too_late_does_not_run() -> None:
    post = Post()
    async with opened(post) as (crib, session):
        question = await left(session)
        await crib.store.approvals.settle(question.approval, Settlement(state="expired"))

        result = await session.resume(question.approval, YES)

        assert (result.error and result.error.message, post.sent) == (
            f"send did not run: approval {question.approval} is expired",
            [],
        )


async def test_a_failure_of_the_tool_is_the_result_and_stays_it() -> None:
    async with opened(Post()) as (_, session):
        question = await left(session, "nobody")

        results = [await session.resume(question.approval, YES) for _ in range(2)]

        assert [result.text for result in results] == ["tool_error: there is nobody"] * 2


async def test_a_call_that_is_cancelled_while_it_runs_is_not_made_again() -> None:
    post = Post()
    async with opened(post) as (_, session):
        question = await left(session, "far")

        async with anyio.create_task_group() as group:
            group.start_soon(session.resume, question.approval, YES)
            await post.begun.wait()
            group.cancel_scope.cancel()

        result = await session.resume(question.approval, YES)
        assert (result.error and result.error.code, post.sent) == ("cancelled", [])


async def test_another_process_with_the_same_store_makes_the_call_while_the_first_one_lives(tmp_path: Path) -> None:
    ours, theirs = Post(), Post()
    async with (
        opened(ours, on_disk(tmp_path), memory=False) as (_, session),
        opened(theirs, on_disk(tmp_path), memory=False) as (_, other),
    ):
        question = await left(session)

        result = await other.resume(question.approval, YES)
        again = await session.resume(question.approval, YES)

        assert (result.text, again.text) == ("sent to Bob", "sent to Bob")
        assert (ours.sent, theirs.sent) == ([], ["Bob"])


async def test_a_question_outlives_its_process(tmp_path: Path) -> None:
    async with opened(Post(), on_disk(tmp_path), memory=False) as (_, session):
        question = await left(session)

    post = Post()
    async with opened(post, on_disk(tmp_path), memory=False) as (crib, _):
        result = await crib.deferred_calls.resume(question.approval, YES)

        assert (result.text, post.sent) == ("sent to Bob", ["Bob"])


@pytest.mark.slow
async def test_where_the_crib_makes_late_calls_by_itself_it_is_made_once_and_its_result_is_had() -> None:
    post = Post()
    settings = bare().with_values(approvals=ApprovalSettings(when_gone="run"))
    async with opened(post, settings) as (_, session):
        question = await left(session)

        results = [await session.resume(question.approval, YES) for _ in range(2)]

        assert [result.text for result in results] == ["sent to Bob"] * 2
        assert post.sent == ["Bob"]


async def test_one_batch_leaves_a_question_for_each_call_and_the_others_run() -> None:
    post = Post()

    @tool(kind="read")
    async def look(context: Context) -> str:
        return "seen"

    async with opened(post) as (crib, session):
        crib.add(look)

        results = await session.call_many([("send", {"to": "Ann"}), ("look", {}), ("send", {"to": "Bob"})])
        first, _, last = map(pending_approval, results)
        assert first is not None and last is not None
        assert results[1].text == "seen"
        assert [(await session.resume(one.approval, YES)).text for one in (last, first)] == [
            "sent to Bob",
            "sent to Ann",
        ]


async def test_whoever_watches_sees_the_question_and_its_end() -> None:
    seen: list[Approval] = []
    async with opened(Post()) as (crib, session):
        question = await left(session)
        async for approval in crib.approvals.watch():
            seen.append(approval)
            if approval.state == "pending":
                await crib.approvals.decide(approval.id, NO)
            else:
                break

    assert [(one.id, one.state) for one in seen] == [(question.approval, "pending"), (question.approval, "denied")]


@pytest.mark.parametrize(
    ("keywords", "times"),
    [({}, 1), ({"mode": "cautious"}, 1), ({"memory": True}, 0), ({"store": "calls.db"}, 0)],
)
async def test_a_crib_without_a_store_says_once_that_questions_end_with_the_process(
    keywords: dict[str, Any],
    times: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    if "store" in keywords:
        keywords = {"store": tmp_path / "calls.db"}
    async with Toolcrib(**keywords) as crib:
        crib.add(Post())
        session = crib.session(approver=defer_approval)
        assert pending_approval(await session.call("send", {"to": "Bob"})) is not None
        assert pending_approval(await session.call("send", {"to": "Eve"})) is not None

    told = [record.getMessage() for record in caplog.records if "Toolcrib(store=" in record.getMessage()]
    assert len(told) == times


async def test_a_crib_without_a_store_says_nothing_of_questions_that_are_answered_within_their_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Toolcrib() as crib:
        crib.add(post := Post())
        await crib.session(approver=RecordingApprover("yes")).call("send", {"to": "Bob"})

    assert (post.sent, caplog.records) == (["Bob"], [])
