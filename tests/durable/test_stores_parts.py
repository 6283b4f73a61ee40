"""The parts of the store that have suites of their own, once through on every place: their SQL is the same on all.

Jobs meet every place in test_jobs.py.
"""

import hashlib

import anyio
import pytest
from msgspec.structs import replace

from durable.places import DONE, Place, everywhere, make_call, run_call, shared
from toolcrib.core.permission import Approval, Settlement
from toolcrib.core.saved_call import SavedCall, SavedSession
from toolcrib.core.workspace import PendingChange, PendingKey, PendingSet
from toolcrib.errors import ToolFailure
from toolcrib.store.definitions import RegistrationRow
from toolcrib.store.store import Store

NOW = 1_000_000.0
SAVED = SavedCall(
    id="call-1",
    name="git__commit",
    arguments={"message": "the real one"},
    session=SavedSession(key="s1", principal="ada"),
    definition="d",
)
QUESTION = Approval(
    id="approval_1",
    call_id="call-1",
    principal="ada",
    session="s1",
    tool="git__commit",
    kind="write",
    source="git",
    definition="d",
    hash="hash-1",
    arguments='{"message": "…"}',
    rule="mode cautious: a write asks",
    created=NOW,
    expires=NOW + 600,
)
YES = Settlement(state="approved", verdict="yes", by="Ada")


@everywhere
async def test_an_approval_is_stored_answered_and_used_by_its_call_until_that_began(place: Place) -> None:
    async with place.open(clock=lambda: NOW) as store:
        await store.approvals.put(QUESTION, SAVED, limit=2)
        await store.approvals.put(replace(QUESTION, id="approval_2", call_id="call-2", hash="hash-2"), SAVED, limit=2)
        with pytest.raises(ToolFailure) as full:
            await store.approvals.put(replace(QUESTION, id="approval_3", hash="hash-3"), SAVED, limit=2)
        pending = await store.approvals.list(principal="ada", states=("pending",))
        answered = await store.approvals.settle("approval_1", YES)
        with pytest.raises(ToolFailure) as late:
            await store.approvals.settle("approval_1", replace(YES, state="denied"))
        await store.approvals.redeem("approval_1", "call-1", "hash-1")
        await store.approvals.redeem("approval_1", "call-1", "hash-1")
        await store.calls.intend(make_call(1))
        with pytest.raises(ToolFailure) as used:
            await store.approvals.redeem("approval_1", "call-1", "hash-1")
        found = await store.approvals.get("approval_1")

    assert [one.id for one in pending] == ["approval_2", "approval_1"]
    assert (answered.state, found and found.state) == ("approved", "used")
    assert [failure.value.code for failure in (full, late, used)] == ["overloaded", "conflict", "denied"]


@shared
async def test_of_two_processes_that_answer_one_question_exactly_one_wins(place: Place) -> None:
    won: list[str] = []

    async def settle(store: Store, by: str) -> None:
        try:
            await store.approvals.settle("approval_1", replace(YES, by=by))
        except ToolFailure:
            return
        won.append(by)

    async with place.open(clock=lambda: NOW) as first, place.open(clock=lambda: NOW) as second:
        await first.approvals.put(QUESTION, SAVED, limit=100)
        async with anyio.create_task_group() as group:
            for number in range(10):
                group.start_soon(settle, first, f"first {number}")
                group.start_soon(settle, second, f"second {number}")
        found = await second.approvals.get("approval_1")

    assert found is not None
    assert won == [found.by]


@everywhere
async def test_pending_changes_are_kept_sealed_and_replaced_by_the_next_version_only(place: Place) -> None:
    key = PendingKey(principal="ada", workspace="/project", owner="session s1")
    content = "ünï\0code".encode() * 10_000
    digest = hashlib.sha256(content).hexdigest()
    change = PendingChange(path="/project/a", kind="file", content=digest, size=len(content), implied=True, changed=1.5)
    one = PendingSet(key=key, files="review", version=1, changes=(change,))
    async with place.open(clock=lambda: NOW) as store:
        written = [await store.pending.replace(one, {digest: content}) for _ in range(2)]
        kept, body = await store.pending.get(key), await store.pending.content(key, digest)
        listed = await store.pending.sets("ada"), await store.pending.sets("bob")
        emptied = await store.pending.replace(replace(one, version=2, changes=()), {})
        with pytest.raises(ToolFailure) as gone:
            await store.pending.content(key, digest)

        assert (await store.pending.version(key), await store.pending.sets("ada")) == (2, [])

    assert (written, emptied, body, gone.value.code) == ([True, False], True, content, "not_found")
    assert kept == replace(one, changed=NOW)
    assert listed == ([kept], [])


@everywhere
async def test_budgets_add_up_by_principal_and_day_beside_the_calls_of_the_same_commit(place: Place) -> None:
    async with place.open() as store:
        for number in range(70):
            store.calls.note(make_call(number), DONE)
            store.budgets.add("ada", 20_000, 1, 10 * number)
        store.budgets.add("bob", 20_000, 5, 0)
        used = [await store.budgets.used(*of) for of in (("ada", 20_000), ("bob", 20_000), ("ada", 19_999))]
        store.budgets.add("ada", 20_008, 1, 1)
        forgotten = await store.budgets.used("bob", 20_000)
        await run_call(store, make_call(100))
        found = await store.calls.verify()

    assert (used, forgotten) == ([(70, 24_150), (5, 0), (0, 0)], (0, 0))
    assert (found.rows, found.problem) == (71, "")


@everywhere
async def test_a_run_of_a_workflow_is_kept_for_its_principal_and_forgotten(place: Place) -> None:
    async with place.open(clock=lambda: NOW) as store:
        await store.workflows.save("run_1", "ada", {"step": 1, "text": "ä"})
        await store.workflows.save("run_1", "ada", {"step": 2})
        found = await store.workflows.load("run_1", "ada"), await store.workflows.load("run_1", "bob")
        await store.workflows.forget("run_1", "ada")

        assert await store.workflows.load("run_1", "ada") is None

    assert found == ({"step": 2}, None)


@everywhere
async def test_a_registration_is_kept_sealed_until_it_is_replaced_or_removed(place: Place) -> None:
    row = RegistrationRow(
        instance="shop",
        name="find",
        definition={"name": "find", "headers": {"x-key": "key-ä-0123456789"}},
        way="rest",
        principal="ada",
        accepted=False,
        registered=NOW,
    )
    accepted = replace(row, accepted=True)
    older = replace(row, name="other", registered=NOW - 1)
    async with place.open(clock=lambda: NOW) as store:
        for one in (row, older, accepted, replace(row, instance="third")):
            await store.registrations.put(one)
        await store.registrations.remove("third", "find")
        await store.registrations.remove("third", "nothing")
        found = await store.registrations.all()

    assert found == [older, accepted]
