"""Approvals in every kind of store: the same answers from a SQLite file, memory and a real PostgreSQL."""

from __future__ import annotations

import secrets
import time
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from durable.places import Place, make_call, run_call, shared
from toolcrib.core.permission import Approval, Settlement
from toolcrib.core.result import ToolResult
from toolcrib.core.saved_call import SavedCall, SavedSession
from toolcrib.errors import ToolFailure
from toolcrib.store.jobs import JobEnd, JobRow
from toolcrib.store.store import Store
from toolcrib.store.vault import Vault

YES = Settlement(state="approved", verdict="yes", by="Ada")


def question(**changes: Any) -> Approval:
    now = time.time()
    asked = Approval(
        id=f"approval_{secrets.token_hex(16)}",
        call_id=f"call_{secrets.token_hex(4)}",
        principal="ada",
        session="k",
        tool="fs__write",
        kind="write",
        source="fs",
        definition="d",
        hash=secrets.token_hex(32),
        arguments='{"path": "ä\u2026"}',
        rule="mode cautious: a write asks",
        created=now,
        expires=now + 600,
    )
    return replace(asked, **changes)


async def put(store: Store, asked: Approval) -> Approval:
    session = SavedSession(key="k", principal=asked.principal)
    saved = SavedCall(id=asked.call_id, name="fs__write", arguments={"path": "a"}, session=session, definition="d")
    return await store.approvals.put(asked, saved, limit=3)


async def code(work: Any) -> str:
    with pytest.raises(ToolFailure) as failure:
        await work
    return failure.value.code


async def test_an_approval_is_stored_answered_used_and_refused_alike(store: Store) -> None:
    call = make_call(7)
    rows, asked = store.approvals, question(call_id=call.id)

    assert await put(store, asked) == await rows.get(asked.id) == asked
    assert await code(rows.settle(asked.id, replace(YES, hash="0"))) == "conflict"
    assert await code(rows.settle(asked.id, replace(YES, principal="eve"))) == "not_found"
    edit = replace(YES, verdict="edit", arguments={"path": "b"}, shown="{}")
    settled = await rows.settle(asked.id, edit)
    assert (settled.state, settled.arguments, await rows.edited(asked.id)) == ("approved", "{}", {"path": "b"})
    assert await code(rows.settle(asked.id, YES)) == "conflict"
    assert await code(rows.redeem(asked.id, "call_of_another", asked.hash)) == "denied"
    for _ in range(2):
        await rows.redeem(asked.id, asked.call_id, asked.hash)
    await run_call(store, call)
    assert await code(rows.redeem(asked.id, asked.call_id, asked.hash)) == "denied"
    assert await rows.waiting() == []


async def test_no_principal_has_more_open_questions_than_it_may(store: Store) -> None:
    asked = [question() for _ in range(3)]
    for one in asked:
        await put(store, one)

    assert await code(put(store, question())) == "overloaded"
    await put(store, question(principal="bob"))
    await store.approvals.leave(asked[0].id, keep=False)
    await put(store, question())
    assert len(await store.approvals.list(principal="ada", states=("pending",))) == 3
    assert [one.state for one in await store.approvals.list(principal="bob")] == ["pending"]


async def test_what_ran_for_a_caller_who_left_waits_under_its_approval(store: Store) -> None:
    rows, asked = store.approvals, question()
    await put(store, asked)
    await rows.leave(asked.id, keep=True)
    await rows.settle(asked.id, YES)

    assert await rows.waiting() == [asked.id]
    claimed = await rows.claim(asked.id)
    assert claimed is not None
    assert (claimed.id, claimed.arguments) == (f"{asked.call_id}.late", {"path": "a"})
    await rows.started(asked.id, "task_1")
    assert await rows.waiting() == []
    await rows.finished(asked.id, ToolResult.of_text("done"))
    assert await rows.result(asked.id) == ToolResult.of_text("done")


async def test_what_was_accepted_as_a_job_is_its_jobs_to_make_and_its_result_is_found(store: Store) -> None:
    rows, asked = store.approvals, question()
    await put(store, asked)
    await rows.settle(asked.id, YES)
    await rows.redeem(asked.id, asked.call_id, asked.hash)
    given: dict[str, Any] = {"id": "task_1", "call": asked.call_id, "principal": "ada", "session": "k"}
    job = JobRow(
        **given,
        tool="t",
        source="s",
        status="completed",
        accepted=time.time(),
        saved="",
        repeatable=False,
        worker=store.jobs.worker,
        attempt=1,
    )
    await store.jobs.accept(job, most=10, approval=asked.id)

    assert (await rows.waiting(), await rows.claim(asked.id), await rows.result(asked.id)) == ([], None, None)
    end = JobEnd(status="completed", result=ToolResult.of_text("done"), ended=time.time(), progress="", output="")
    assert await store.jobs.settle(job, end, kept=10, age=1000)
    assert await rows.result(asked.id) == ToolResult.of_text("done")


@shared
async def test_of_many_who_answer_through_several_stores_one_wins(place: Place) -> None:
    async with place.open() as one, place.open() as two:
        asked = [question(principal=f"p{number}") for number in range(20)]
        for question_of_one in asked:
            await put(one, question_of_one)
        won = list[tuple[str, str]]()

        async def decide(store: Store, id: str, by: str) -> None:
            try:
                await store.approvals.settle(id, replace(YES, by=by))
            except ToolFailure as failure:
                assert failure.code == "conflict"
            else:
                won.append((id, by))

        async with anyio.create_task_group() as group:
            for number in range(8):
                for each in asked:
                    group.start_soon(decide, (one, two)[number % 2], each.id, str(number))
        found = {each.id: each.by for each in await one.approvals.list()}

    assert sorted(won) == sorted(found.items())


@shared
async def test_what_a_store_that_is_gone_left_open_is_taken_over_once(place: Place) -> None:
    pending, approved = question(), question()
    key = Vault(secrets.token_bytes(32))
    async with place.open(vault=key) as gone:
        await put(gone, pending)
        await put(gone, approved)
        await gone.approvals.settle(approved.id, YES)
    async with place.open(vault=key) as one, place.open(vault=key) as two, place.open(vault=Vault()) as stranger:
        assert await code(stranger.approvals.claim(approved.id)) == "storage", "with another key it takes nothing"
        again = await put(one, question(hash=pending.hash))
        claims = [await store.approvals.claim(approved.id) for store in (two, one)]

        assert (again.id, again.state) == (pending.id, "pending")
        assert [claim is None for claim in claims] == [False, True]


@shared
async def test_whoever_has_the_answer_makes_the_call_and_of_many_one_does(place: Place) -> None:
    asked = question()
    key = Vault(secrets.token_bytes(32))
    async with place.open(vault=key) as asking, place.open(vault=key) as one, place.open(vault=key) as two:
        await put(asking, asked)
        await asking.approvals.leave(asked.id, keep=True)
        assert await one.approvals.claim(asked.id, here=True) is None, "nobody has answered"
        await asking.approvals.settle(asked.id, YES)
        assert await one.approvals.claim(asked.id) is None, "left to the one that asked, which lives"

        claims = [await store.approvals.claim(asked.id, here=True) for store in (one, two, asking)]

        assert [claim and claim.id for claim in claims] == [f"{asked.call_id}.late", None, None]
        assert [await store.approvals.waiting() for store in (one, two, asking)] == [[], [], []]


@shared
async def test_a_call_whose_maker_died_before_it_began_is_made_by_another(place: Place) -> None:
    asked = question()
    key = Vault(secrets.token_bytes(32))
    async with place.open(vault=key) as asking:
        await put(asking, asked)
        await asking.approvals.leave(asked.id, keep=True)
        await asking.approvals.settle(asked.id, YES)
        async with place.open(vault=key) as gone:
            claimed = await gone.approvals.claim(asked.id, here=True)
            assert claimed is not None
            await gone.approvals.redeem(asked.id, claimed.id, asked.hash)

        again = await asking.approvals.claim(asked.id, here=True)

        assert again is not None and again.id == claimed.id
