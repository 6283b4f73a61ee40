"""Approvals in the store: stored first, decided once, used once, by whichever process is there."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from rig import PATIENCE
from toolcrib.core.call import Call
from toolcrib.core.permission import Approval, Settlement
from toolcrib.core.result import ToolResult
from toolcrib.core.saved_call import SavedCall, SavedSession
from toolcrib.core.session import SessionState
from toolcrib.errors import ToolFailure
from toolcrib.store.jobs import JobRow
from toolcrib.store.store import Store

SAVED = SavedCall(
    id="call-1",
    name="fs__write",
    arguments={"path": "the real one"},
    session=SavedSession(key="k", principal="ada"),
    definition="d",
)
YES = Settlement(state="approved", verdict="yes", by="Ada")
NO = Settlement(state="denied", verdict="no", by="Bob")


class Clock:
    """Seconds since 1970, as a test wants them."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def question(number: int = 1, **changes: Any) -> Approval:
    asked = Approval(
        id=f"approval_{number}",
        call_id=f"call-{number}",
        principal="ada",
        session="k",
        tool="fs__write",
        kind="write",
        source="fs",
        definition="d",
        hash=f"hash-{number}",
        arguments='{"path": "…"}',
        rule="mode cautious: a write asks",
        created=1_000_000.0,
        expires=1_000_600.0,
    )
    return replace(asked, **changes)


@asynccontextmanager
async def opened(path: Path | None = None, clock: Clock | None = None) -> AsyncGenerator[Store]:
    async with Store.open(path, clock=clock or Clock()) as store:
        yield store


async def put(store: Store, number: int = 1, **changes: Any) -> Approval:
    asked = question(number, **changes)
    return await store.approvals.put(asked, replace(SAVED, id=asked.call_id), limit=100)


async def code(store: Store, id: str, settlement: Settlement) -> str:
    with pytest.raises(ToolFailure) as failure:
        await store.approvals.settle(id, settlement)
    return failure.value.code


async def state(store: Store, id: str = "approval_1") -> str:
    found = await store.approvals.get(id)
    assert found is not None
    return found.state


async def refused(store: Store, id: str = "approval_1", call: str = "call-1", hash: str = "hash-1") -> str:
    with pytest.raises(ToolFailure) as failure:
        await store.approvals.redeem(id, call, hash)
    assert failure.value.code == "denied"
    return failure.value.message


# One after the other


async def test_what_is_stored_can_be_looked_at_and_holds_no_real_argument(tmp_path: Path) -> None:
    async with opened(tmp_path / "toolcrib.db") as store:
        asked = await put(store)

        assert await store.approvals.get("approval_1") == asked == question()
        assert await store.approvals.list(states=("pending",)) == [asked]
        await store.flush()
        assert not [file.name for file in tmp_path.iterdir() if b"the real one" in file.read_bytes()]


async def test_the_first_answer_counts_and_a_later_one_is_a_conflict_that_tells_of_it() -> None:
    async with opened() as store:
        await put(store)

        settled = await store.approvals.settle("approval_1", YES)

        assert (settled.state, settled.by, settled.decided) == ("approved", "Ada", 1_000_000.0)
        with pytest.raises(ToolFailure) as failure:
            await store.approvals.settle("approval_1", NO)
        assert (failure.value.code, failure.value.details) == (
            "conflict",
            {"state": "approved", "verdict": "yes", "by": "Ada"},
        )
        assert await state(store) == "approved"


async def test_an_answer_to_something_else_than_what_was_shown_changes_nothing() -> None:
    async with opened() as store:
        await put(store)

        assert await code(store, "approval_1", replace(YES, hash="hash-of-another")) == "conflict"
        assert await code(store, "approval_1", replace(YES, principal="eve")) == "not_found"
        assert await code(store, "approval_2", YES) == "not_found"
        assert await state(store) == "pending"


async def test_an_approval_is_used_by_its_own_call_alone_and_once_it_ran_by_nobody() -> None:
    async with opened() as store:
        await put(store)
        assert "is pending" in await refused(store)
        await store.approvals.settle("approval_1", YES)

        assert "for another call" in await refused(store, call="call-2")
        assert "for another call" in await refused(store, call="call-12")
        assert "for another call" in await refused(store, hash="hash-2")
        await store.approvals.redeem("approval_1", "call-1", "hash-1")
        await store.approvals.redeem("approval_1", "call-1", "hash-1")  # it did not run yet
        assert await state(store) == "used"

        await _ran(store, "call-1")
        assert "is used" in await refused(store)


async def test_the_attempt_that_a_job_is_at_uses_the_approval_that_was_given_for_it_and_no_other_does() -> None:
    async with opened() as store:
        await put(store)
        await store.approvals.settle("approval_1", YES)
        await store.approvals.redeem("approval_1", "call-1", "hash-1")
        await _ran(store, "call-1")
        assert "for another call" in await refused(store, call="call-1.2")

        job = JobRow(
            id="task_1",
            principal="ada",
            session="k",
            call="call-1",
            tool="t",
            source="s",
            status="working",
            accepted=time.time(),
            saved="",
            repeatable=True,
            worker=store.jobs.worker,
            attempt=2,
        )
        await store.jobs.accept(job, most=10, approval="approval_1")
        assert "for another call" in await refused(store, call="call-1.3")
        await store.approvals.redeem("approval_1", "call-1.2", "hash-1")


@pytest.mark.parametrize("jump", [600.0, 86_400.0, -86_400.0, -31.0])
async def test_what_expired_is_neither_answered_nor_used_wherever_the_clock_jumps(jump: float) -> None:
    clock = Clock()
    async with opened(clock=clock) as store:
        await put(store, 1)
        await put(store, 2)
        await store.approvals.settle("approval_2", YES)
        clock.now += jump

        assert await code(store, "approval_1", YES) == "conflict"
        assert "is expired" in await refused(store, "approval_2", "call-2", "hash-2")
        assert await store.approvals.list(states=("pending",)) == []


async def test_real_arguments_are_wiped_when_the_call_cannot_run_any_more(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path / "toolcrib.db", clock) as store:
        for number in range(1, 6):
            await put(store, number)
        await store.approvals.settle("approval_1", NO)
        await store.approvals.leave("approval_2", keep=False)
        await store.approvals.settle("approval_3", replace(YES, verdict="edit", arguments={"path": "b"}))
        await store.approvals.redeem("approval_3", "call-3", "hash-3")
        await _ran(store, "call-3")
        await store.approvals.settle("approval_4", YES)
        await store.approvals.withdraw("approval_4", "the arguments changed")
        clock.now += 600.0
        await put(store, 6, created=clock.now, expires=clock.now + 1)

    with closing(sqlite3.connect(tmp_path / "toolcrib.db")) as file:
        sealed = file.execute("SELECT id FROM approvals WHERE sealed <> '' OR edited <> ''").fetchall()
    assert sealed == [("approval_6",)]


async def test_the_hundred_and_first_open_question_of_a_principal_is_refused_and_others_are_not() -> None:
    clock = Clock()
    async with opened(clock=clock) as store:
        for number in range(100):
            await put(store, number)
        with pytest.raises(ToolFailure, match="100 calls wait"):
            await put(store, 100)
        await put(store, 101, principal="bob")
        await store.approvals.settle("approval_7", NO)
        await put(store, 102)
        clock.now += 600.0
        await put(store, 103, created=clock.now, expires=clock.now + 600)

        assert [found.id for found in await store.approvals.list(states=("pending",))] == ["approval_103"]


async def test_a_settled_approval_can_be_looked_up_for_thirty_days() -> None:
    clock = Clock()
    async with opened(clock=clock) as store:
        await put(store)
        await store.approvals.settle("approval_1", NO)
        clock.now += 600.0 + 30 * 86_400
        await put(store, 2, created=clock.now, expires=clock.now + 1)
        assert await state(store) == "denied"
        clock.now += 1.0
        await put(store, 3, created=clock.now, expires=clock.now + 1)

        assert await store.approvals.get("approval_1") is None


async def test_a_caller_who_leaves_cancels_the_question_or_leaves_a_call_with_an_id_of_its_own() -> None:
    async with opened() as store:
        await put(store, 1)
        await put(store, 2)
        await store.approvals.leave("approval_1", keep=False)
        await store.approvals.leave("approval_2", keep=True)

        assert await code(store, "approval_1", YES) == "conflict"
        assert await store.approvals.claim("approval_2") is None, "nobody has said yes yet"
        await store.approvals.settle("approval_2", YES)
        assert await store.approvals.waiting() == ["approval_2"]
        assert await store.approvals.claim("approval_2") == replace(SAVED, id="call-2.late")


# Several processes


async def test_what_a_living_process_waits_for_is_nobody_elses(tmp_path: Path) -> None:
    async with opened(tmp_path / "toolcrib.db") as living, opened(tmp_path / "toolcrib.db") as other:
        await put(living)
        await other.approvals.settle("approval_1", YES)

        assert await other.approvals.claim("approval_1") is None
        again = await put(other, 2, hash="hash-1")
        assert again.id == "approval_2", "the same call, asked about anew: the first one has its own caller"


_ORPHAN = """
import sys, anyio
from pathlib import Path
sys.path.insert(0, {tests!r})
from unit.toolcrib.store.test_approvals import YES, opened, put
async def main():
    async with opened(Path({path!r})) as store:
        await put(store, 1)
        await put(store, 2)
        await store.approvals.settle("approval_2", YES)
        await put(store, 3)
        await store.approvals.settle("approval_3", YES)
        await store.approvals.redeem("approval_3", "call-3", "hash-3")
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
anyio.run(main)
"""


async def _orphans(path: Path) -> None:
    """Have a process ask, and die of kill -9: one question open, one approved, one approved and about to run."""
    code = _ORPHAN.format(tests=str(Path(__file__).parents[3]), path=str(path))
    killed = await anyio.run_process([sys.executable, "-c", code], check=False)
    assert killed.returncode == -9, killed.stderr.decode()


@pytest.mark.process
async def test_after_a_kill_all_that_was_pending_is_pending_and_what_was_approved_runs_once(tmp_path: Path) -> None:
    await _orphans(tmp_path / "toolcrib.db")
    async with opened(tmp_path / "toolcrib.db") as store, opened(tmp_path / "toolcrib.db") as other:
        assert [found.id for found in await store.approvals.list(states=("pending",))] == ["approval_1"]
        assert await store.approvals.waiting() == ["approval_2", "approval_3"]

        claims = [
            await owner.approvals.claim(id) for id in ("approval_2", "approval_3") for owner in (store, other, store)
        ]
        assert [claim.id if claim else None for claim in claims[::3]] == ["call-2", "call-3"]
        assert claims[1] is claims[4] is None, "the other store does not get what is taken"
        await store.approvals.redeem("approval_3", "call-3", "hash-3")
        await _ran(store, "call-3")
        assert await store.approvals.claim("approval_3") is None, "it ran"


@pytest.mark.process
async def test_the_same_call_made_again_after_a_kill_takes_over_the_question_and_the_answer(tmp_path: Path) -> None:
    await _orphans(tmp_path / "toolcrib.db")
    async with opened(tmp_path / "toolcrib.db") as store:
        pending = await put(store, 11, hash="hash-1")
        approved = await put(store, 12, hash="hash-2")
        stranger = await put(store, 13, hash="hash-2", principal="eve")

        assert [(one.id, one.state, one.call_id) for one in (pending, approved, stranger)] == [
            ("approval_1", "pending", "call-11"),
            ("approval_2", "approved", "call-12"),
            ("approval_13", "pending", "call-13"),
        ]
        await store.approvals.redeem("approval_2", "call-12", "hash-2")


_RACER = """
import sys, anyio
from pathlib import Path
sys.path.insert(0, {tests!r})
from unit.toolcrib.store.test_approvals import race
anyio.run(race, Path({path!r}), {deciders!r})
"""
_CALLS = 200


async def race(path: Path, deciders: list[str]) -> None:
    """Answer every approval as each of the deciders, all at the same time, and write who thinks that he won."""
    won = list[tuple[str, str]]()
    async with opened(path) as store:
        os.write(1, b"!")
        await anyio.to_thread.run_sync(os.read, 0, 1)

        async def decide(id: str, decider: str) -> None:
            try:
                await store.approvals.settle(id, replace(YES if int(decider) % 2 else NO, by=decider))
            except ToolFailure as failure:
                assert failure.code == "conflict", failure
            else:
                won.append((id, decider))

        async with anyio.create_task_group() as group:
            for number in range(_CALLS):
                for decider in deciders:
                    group.start_soon(decide, f"approval_{number}", decider)
    sys.stdout.write(json.dumps(won))


@pytest.mark.long
@pytest.mark.process
async def test_of_25_deciders_in_two_processes_exactly_one_wins_each_of_200_calls(tmp_path: Path) -> None:
    path = tmp_path / "toolcrib.db"
    deciders = [str(number) for number in range(25)]
    async with opened(path) as store:
        for number in range(_CALLS):
            await store.approvals.put(question(number), SAVED, limit=_CALLS)
        async with await _racer(path, deciders[:13]) as one, await _racer(path, deciders[13:]) as two:
            won = await _won(one, two)
        found = {row.id: row for row in await store.approvals.list(limit=1000)}

    assert Counter(id for id, _ in won) == Counter(dict.fromkeys(found, 1))
    assert {id: row.by for id, row in found.items()} == dict(won), "what is written is what the winner said"
    assert {row.state for row in found.values()} <= {"approved", "denied"}


async def _racer(path: Path, deciders: list[str]) -> anyio.abc.Process:
    """Start a process with these deciders, and wait until it is at the line."""
    code = _RACER.format(tests=str(Path(__file__).parents[3]), path=str(path), deciders=deciders)
    process = await anyio.open_process([sys.executable, "-c", code])
    assert process.stdout
    with anyio.fail_after(PATIENCE):
        assert await process.stdout.receive() == b"!"
    return process


async def _won(*racers: anyio.abc.Process) -> list[list[str]]:
    """Let them run, and return who won which approval."""
    won = list[list[str]]()
    for racer in racers:
        assert racer.stdin
        await racer.stdin.send(b"!")
    for racer in racers:
        assert racer.stdout
        won += json.loads(b"".join([chunk async for chunk in racer.stdout]))
    return won


async def _ran(store: Store, call: str) -> None:
    """Record a call of that id, as the pipeline does when one ended."""
    session = SessionState(key="k", principal="ada")
    store.calls.note(Call(id=call, name="fs__write", arguments={}, session=session), ToolResult.of_text("done"))
    await store.flush()


# Held calls


async def test_a_held_call_is_taken_over_once_of_all_processes_and_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "toolcrib.db"
    async with opened(path) as store:
        await put(store)
        assert await store.approvals.hold("approval_1")
    async with opened(path) as first, opened(path) as second:
        await first.approvals.settle("approval_1", YES)
        assert await first.approvals.waiting() == [], "only the same call runs it, no job does"
        taken = [await put(store, number, hash="hash-1") for number, store in ((2, second), (3, first))]
        await second.approvals.redeem("approval_1", "call-2", "hash-1")

        assert [(one.id, one.state, one.call_id) for one in taken] == [
            ("approval_1", "approved", "call-2"),
            ("approval_3", "pending", "call-3"),
        ]
        assert await refused(first, call="call-3")


@pytest.mark.parametrize(("answer", "state"), [(YES, "approved"), (NO, "denied")], ids=["yes", "no"])
async def test_an_answer_to_a_held_call_holds_for_ten_minutes_from_then(answer: Settlement, state: str) -> None:
    clock = Clock()
    async with opened(clock=clock) as store:
        await put(store)
        await store.approvals.hold("approval_1")
        clock.now += 500
        settled = await store.approvals.settle("approval_1", answer)
        clock.now += 599
        within = await put(store, 2, hash="hash-1", created=clock.now, expires=clock.now + 600)
        await store.approvals.hold("approval_1", ("approved",))
        clock.now += 2
        after = await put(store, 3, hash="hash-1", created=clock.now, expires=clock.now + 600)

    assert (settled.expires, within.id, within.state, after.id) == (1_001_100.0, "approval_1", state, "approval_3")


async def test_what_is_answered_before_it_is_held_is_not_held() -> None:
    async with opened() as store:
        await put(store)
        await store.approvals.settle("approval_1", YES)

        assert not await store.approvals.hold("approval_1")
