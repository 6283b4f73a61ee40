"""The parts of the store that have suites of their own, once through on every place: their SQL is the same on all.

Jobs meet every place in test_jobs.py, approvals in test_approvals_stored.py.
"""

import hashlib

import pytest
from msgspec.structs import replace

from durable.places import DONE, Place, everywhere, make_call, run_call
from toolcrib.core.workspace import PendingChange, PendingKey, PendingSet
from toolcrib.errors import ToolFailure
from toolcrib.store.definitions import RegistrationRow

NOW = 1_000_000.0


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
