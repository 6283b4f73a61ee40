"""One store, whatever keeps it: the same bodies on a SQLite file, in memory and on a real PostgreSQL.

This file: what is written and read. Its neighbours: sharing, proof, and what happens when the place goes away.
"""

import asyncio
import hashlib
import sqlite3
import time
from typing import Any, cast

import anyio
import psycopg
import pytest

from durable.places import DONE, SESSION, TOOL, Place, everywhere, make_call, run_call, shared
from toolcrib.core.call import Call
from toolcrib.core.result import ToolResult
from toolcrib.core.session import SessionState
from toolcrib.errors import ToolFailure
from toolcrib.store.calls import CallRow
from toolcrib.store.chain import COLUMNS, Transaction, Verification
from toolcrib.store.definitions import Pin
from toolcrib.store.idempotency import Conflict, Fresh, Replay
from toolcrib.store.jobs import JobEnd, JobRow, pack_result
from toolcrib.store.store import Store

# The record of calls


async def test_a_noted_call_is_listed_with_everything_that_was_known_of_it(store: Store) -> None:
    before = time.time()

    store.calls.note(make_call().evolve(requested="call_tool"), ToolResult.of_text("done"))
    (row,) = await store.calls.list()

    assert before - 1 <= row.started <= row.finished <= time.time()
    assert row == CallRow(
        seq=1,
        id="call-1",
        session="s1",
        principal="ada",
        origin="mcp",
        client="",
        tool="git__commit",
        requested="call_tool",
        decision="allow",
        rule="mode autonomous",
        arguments='{"message":"hello","n":1}',
        arguments_hash=sha256(b'{"message":"hello","n":1}'),
        definition=TOOL.digest.hex(),
        outcome="ok",
        started=row.started,
        finished=row.finished,
        latency_ms=row.latency_ms,
        result_bytes=len('[[{"type":"text","text":"done"}],null,null]'),
        result_hash=sha256(b'[[{"type":"text","text":"done"}],null,null]'),
    )
    assert await store.calls.get("call-1") == row
    assert await store.calls.get("call-2") is None


@pytest.mark.parametrize("count", [1, 31, 32, 33, 100])
async def test_many_calls_in_one_commit_are_chained_in_their_order(store: Store, count: int) -> None:
    for number in range(count):
        store.calls.note(make_call(number), DONE)

    rows = await store.calls.list(limit=count + 1)

    assert [(row.seq, row.id) for row in reversed(rows)] == [(n + 1, f"call-{n}") for n in range(count)]
    assert await store.calls.verify() == Verification(rows=count, head=await store.calls.head())


async def test_a_call_that_is_recorded_already_is_left_out_whoever_stands_beside_it(store: Store) -> None:
    for number in range(40):
        store.calls.note(make_call(number), DONE)
    await store.flush()
    for number in (*range(39, 80), 60, *range(80, 120)):
        store.calls.note(make_call(number), DONE)

    rows = await store.calls.list(limit=200)

    assert [(row.seq, row.id) for row in reversed(rows)] == [(n + 1, f"call-{n}") for n in range(120)]
    assert await store.calls.verify() == Verification(rows=120, head=await store.calls.head())


async def test_calls_are_listed_by_the_key_of_their_session_or_its_last_part(store: Store) -> None:
    for number, key in enumerate(("work", "(catalog)/cautious/work", "homework", "k"), 1):
        store.calls.note(make_call(number).evolve(session=SessionState(key=key, principal="ada")), DONE)
    found = {
        asked: [row.seq for row in await store.calls.list(session=asked)]
        for asked in ("work", "(catalog)/cautious/work", "Work", "(catalog)", "orc/work")
    }

    assert found == {"work": [2, 1], "(catalog)/cautious/work": [2], "Work": [], "(catalog)": [], "orc/work": []}


async def test_a_refused_call_of_an_unknown_tool_is_recorded_by_the_name_it_asked_for(store: Store) -> None:
    call = Call(id="c", name="git__comit", arguments="not even an object", session=SESSION)

    store.calls.note(call, ToolResult.failed("not_found", "no such tool"))
    (row,) = await store.calls.list()

    assert (row.tool, row.decision, row.outcome, row.definition) == ("git__comit", "", "not_found", "")
    assert row.arguments == '"not even an object"'


async def test_names_that_no_database_likes_are_recorded_and_still_verify(store: Store) -> None:
    names = ["nul\0inside", "half \ud800 pair", "ünï-çode 🛠", 'quo\'te "and" ?', "100%_", "new\nline", ""]
    for number, name in enumerate(names):
        session = SessionState(key=name, principal=name)
        store.calls.note(Call(id=f"c{number}", name=name, arguments={name: name}, session=session), DONE)

    rows = await store.calls.list()

    assert [row.tool for row in reversed(rows)] == [
        "nul\ufffdinside",
        "half ? pair",
        "ünï-çode 🛠",
        'quo\'te "and" ?',
        "100%_",
        "new\nline",
        "",
    ]
    assert (await store.calls.verify()).problem == ""


async def test_finish_replaces_the_intent_by_one_row(store: Store) -> None:
    call = make_call()

    await store.calls.intend(call)
    started = await store.calls.began("call-1"), await store.calls.get("call-1")
    await store.calls.finish(call, DONE)
    await store.calls.finish(call, DONE)

    assert started == ("outcome_unknown", None)
    assert [(row.id, row.outcome) for row in await store.calls.list()] == [("call-1", "ok")]
    assert await store.calls.began("call-1") == "ok"


async def test_a_call_that_was_recorded_is_not_begun_again_and_its_neighbours_are(store: Store) -> None:
    store.calls.note(make_call(1), DONE)
    await store.flush()
    codes: list[str] = []

    async def intend(number: int) -> None:
        try:
            await store.calls.intend(make_call(number))
        except ToolFailure as failure:
            codes.append(f"{number} {failure.code}")

    async with anyio.create_task_group() as group:
        for number in range(40):
            group.start_soon(intend, number)

    assert codes == ["1 conflict"]
    began = [await store.calls.began(f"call-{number}") for number in (0, 1, 2, 39)]
    assert began == ["outcome_unknown", "ok", "outcome_unknown", "outcome_unknown"]


async def test_calls_that_are_recorded_already_are_left_out_of_a_group_and_the_chain_holds(store: Store) -> None:
    for number in (3, 17):
        store.calls.note(make_call(number), DONE)
    await store.flush()

    for number in (*range(40), 20):
        store.calls.note(make_call(number), DONE)
    verified = await store.calls.verify()

    others = [number for number in range(40) if number not in (3, 17)]
    assert [row.id for row in reversed(await store.calls.list())] == [f"call-{n}" for n in (3, 17, *others)]
    assert (verified.rows, verified.problem) == (40, "")


@shared
async def test_a_call_that_another_process_has_begun_is_not_begun_here(place: Place) -> None:
    async with place.open() as first, place.open() as second:
        await first.calls.intend(make_call(1))
        with pytest.raises(ToolFailure) as refused:
            await second.calls.intend(make_call(1))
        await first.calls.intend(make_call(1))

    assert refused.value.code == "conflict"


async def test_what_a_commit_gathers_is_seen_by_whoever_asks_in_the_same_commit(store: Store) -> None:
    """Whether a call began decides whether an approval may be used again: a twin must not look past the queue."""
    seen: list[tuple[str, int]] = []

    def look(transaction: Transaction, when: str) -> None:
        sql = "SELECT (SELECT count(*) FROM intents) * 10 + (SELECT count(*) FROM calls)"
        seen.append((when, transaction.execute(sql).fetchone()[0]))

    def work(transaction: Transaction) -> None:
        transaction.intend("c", "writer", "{}")
        look(transaction, "begun")
        transaction.append(tuple("c" if column == "id" else 0 for column in COLUMNS))
        transaction.forget("c")
        look(transaction, "ended")

    await store._writer.run(work)  # pyright: ignore[reportPrivateUsage] - what a sub-store does
    assert seen == [("begun", 10), ("ended", 1)]


async def test_the_list_is_newest_first_and_takes_filters(store: Store) -> None:
    other = SessionState(key="s2")
    store.calls.note(make_call(1), DONE)
    store.calls.note(make_call(2, tool="git__log"), ToolResult.failed("timeout", "too slow"))
    store.calls.note(make_call(3, session=other), DONE)

    async def ids(**filters: Any) -> list[str]:
        return [row.id for row in await store.calls.list(**filters)]

    assert await ids() == ["call-3", "call-2", "call-1"]
    assert await ids(limit=1) == ["call-3"]
    assert await ids(tool="git__l*") == ["call-2"]
    assert await ids(tool="git__log") == ["call-2"]
    assert await ids(tool="GIT__LOG") == []
    assert await ids(tool="git_%") == []
    assert await ids(tool="git!*") == []
    assert await ids(session="s2") == ["call-3"]
    assert await ids(outcome="error") == ["call-2"]
    assert await ids(outcome="ok", session="s1") == ["call-1"]
    assert await ids(since=time.time() + 60) == []


async def test_arguments_that_are_no_json_are_recorded_as_unreadable(store: Store) -> None:
    store.calls.note(make_call().evolve(arguments={"file": object()}), DONE)

    (row,) = await store.calls.list()

    assert (row.arguments, row.arguments_hash) == ('{"unreadable": "dict: TypeError"}', "")


async def test_outcomes_come_oldest_first_and_without_dry_runs(store: Store) -> None:
    store.calls.note(make_call(1), DONE)
    store.calls.note(make_call(2).evolve(dry_run=True), DONE)
    store.calls.note(make_call(3, tool="git__log"), ToolResult.failed("timeout", "too slow"))
    await store.flush()

    found = await store.calls.outcomes(since=0)

    assert [entry[:3] for entry in found] == [("ada", "git__commit", "ok"), ("ada", "git__log", "timeout")]


async def test_concurrent_calls_share_commits_and_none_is_lost(store: Store) -> None:
    async with anyio.create_task_group() as group:
        for number in range(300):
            group.start_soon(run_call, store, make_call(number))

    assert (await store.calls.verify()).rows == 300
    assert store.lost == 0


async def test_one_bad_work_does_not_undo_its_neighbours(store: Store) -> None:
    """A work of a sub-store that breaks, in a commit with others: only its caller is told."""
    pin = Pin(source="git", tool="log", digest=b"\x01" * 32, definition={"name": "log"}, accepted=1.5, by="ada")
    bad = Pin(source="git", tool=cast("str", None), digest=b"", definition={}, accepted=0.0, by="ada")
    failures: list[str] = []

    async def put_bad() -> None:
        try:
            await store.pins.put([bad])
        except (sqlite3.IntegrityError, psycopg.IntegrityError) as error:
            failures.append(type(error).__name__)

    async with anyio.create_task_group() as group:
        group.start_soon(store.calls.intend, make_call(1))
        group.start_soon(put_bad)
        group.start_soon(store.pins.put, [pin])
        store.calls.note(make_call(2), DONE)

    assert failures == ["IntegrityError"] or failures == ["NotNullViolation"]
    assert await store.pins.all() == [pin]
    assert await store.calls.began("call-1") == "outcome_unknown"
    assert [row.id for row in await store.calls.list()] == ["call-2"]


# Pins and receipts


async def test_pins_are_replaced_listed_by_source_and_removed(store: Store) -> None:
    first = Pin(source="git", tool="log", digest=b"a" * 32, definition={"name": "log"}, accepted=1.0, by="ada")
    second = Pin(source="git", tool="log", digest=b"b" * 32, definition={"name": "lög"}, accepted=2.0, by="bob")
    others = [
        Pin(source=source, tool=tool, digest=b"c" * 32, definition={}, accepted=3.0, by="ada")
        for source, tool in (("Fs", "b"), ("fs", "B"), ("fs", "a"), ("fs", "ä"))
    ]
    await store.pins.put([first, *others])
    await store.pins.put([second])

    assert await store.pins.all() == [*others, second]
    assert await store.pins.all("git") == [second]
    assert await store.pins.get("git", "log") == second
    await store.pins.remove("git", ["log"])
    assert await store.pins.get("git", "log") is None


async def settle(store: Store, key: str, result: ToolResult) -> None:
    await store.calls.finish(make_call(), result, store.receipts.settling("ada", key, result))


async def test_a_settled_request_is_replayed_as_it_was(store: Store) -> None:
    failed = ToolResult.failed("conflict", "no", hint="wait", details={"a": [1]})
    assert await store.receipts.reserve("ada", "k", b"hash", "c1") == Fresh()
    await settle(store, "k", DONE)
    await store.receipts.reserve("ada", "k2", b"hash", "c2")
    await settle(store, "k2", failed)

    assert await store.receipts.reserve("ada", "k", b"hash", "c3") == Replay(DONE)
    assert await store.receipts.reserve("ada", "k2", b"hash", "c4") == Replay(failed)


async def test_a_twin_of_a_running_call_is_told_to_wait(store: Store) -> None:
    await store.receipts.reserve("ada", "k", b"hash", "c1")

    twin = await store.receipts.reserve("ada", "k", b"hash", "c2")

    assert twin == Conflict("call c1 with this idempotency key is still running: wait for its result")


async def test_of_calls_that_want_their_keys_at_once_each_gets_a_free_one_and_one_of_two_the_same(store: Store) -> None:
    await store.receipts.reserve("ada", "k3", b"hash", "before")
    await settle(store, "k3", DONE)
    reserve = store.receipts.reserve
    found = await asyncio.gather(
        *(reserve("ada", f"k{number}", b"hash", f"c{number}") for number in range(40)),
        reserve("ada", "k7", b"hash", "twin"),
        reserve("ada", "k8", b"other", "other"),
    )

    assert found == [
        *(Replay(DONE) if number == 3 else Fresh() for number in range(40)),
        Conflict("call c7 with this idempotency key is still running: wait for its result"),
        Conflict("this idempotency key was used for another tool or other arguments: use a new key"),
    ]


def job_row(number: int, **fields: Any) -> JobRow:
    return JobRow(
        id=f"job-{number}",
        principal="ada",
        session="s",
        call=f"call-{number}",
        tool="t",
        source="s",
        status="working",
        accepted=float(number),
        saved="",
        repeatable=False,
        **fields,
    )


async def test_jobs_are_taken_in_their_order_each_with_its_own_key_which_is_free_again_where_nothing_ran(
    store: Store,
) -> None:
    for number in range(5):
        await store.jobs.accept(job_row(number, request=b"hash".hex() if number else ""), most=100)
    taken = await store.jobs.take(3, working=64, without=["job-1"])
    rows = [job.row for job in taken.jobs]
    held = [await store.receipts.reserve("ada", row.key, b"hash", "another") for row in rows]
    again = await store.receipts.reserve("ada", rows[1].key, b"hash", "call-2")
    end = JobEnd(status="failed", result=ToolResult.failed("denied", "no"), ended=9.0, progress="", output="")
    await store.jobs.settle(rows[1], end, kept=100, age=1e12, key=rows[1].key)

    assert [(row.id, row.worker, row.attempt) for row in rows] == [
        (f"job-{number}", store.jobs.worker, 1) for number in (0, 2, 3)
    ]
    assert [job.is_reserved for job in taken.jobs] == [False, True, True]
    assert held == [
        Fresh(),
        *(
            Conflict(f"call call-{number} with this idempotency key is still running: wait for its result")
            for number in (2, 3)
        ),
    ]
    assert again == await store.receipts.reserve("ada", rows[1].key, b"hash", "another") == Fresh()


async def test_of_jobs_that_end_at_once_each_is_written_but_one_that_another_process_holds(store: Store) -> None:
    jobs = [job_row(number, worker=store.jobs.worker) for number in range(40)]
    for job in jobs:
        await store.jobs.accept(job, most=100)
    await store.jobs.release(jobs[5], begun=False)
    ends = [
        JobEnd(status="completed", result=ToolResult.of_text(str(number)), ended=number + 0.5, progress="", output="")
        for number in range(40)
    ]
    written = await asyncio.gather(
        *(store.jobs.settle(job, end, kept=100, age=1e12) for job, end in zip(jobs, ends, strict=True))
    )
    found = await store.jobs.list("ada")

    assert written == [number != 5 for number in range(40)]
    assert [row.id for row in found if row.ended is None] == ["job-5"]
    assert {row.id: (row.ended, row.result, row.worker) for row in found if row.ended is not None} == {
        f"job-{number}": (number + 0.5, pack_result(ToolResult.of_text(str(number))), "")
        for number in range(40)
        if number != 5
    }


async def test_a_key_with_another_request_under_it_is_refused(store: Store) -> None:
    await store.receipts.reserve("ada", "k", b"hash", "c1")
    await settle(store, "k", DONE)

    changed = await store.receipts.reserve("ada", "k", b"other", "c2")

    assert changed == Conflict("this idempotency key was used for another tool or other arguments: use a new key")


async def test_keys_of_different_principals_are_different_keys(store: Store) -> None:
    await store.receipts.reserve("ada", "k", b"hash", "c1")

    assert await store.receipts.reserve("bob", "k", b"hash", "c2") == Fresh()


async def test_a_released_key_can_be_used_again_and_a_settled_one_cannot_be_released(store: Store) -> None:
    await store.receipts.reserve("ada", "k", b"hash", "c1")
    await store.receipts.release("ada", "k")
    assert await store.receipts.reserve("ada", "k", b"hash", "c2") == Fresh()

    await settle(store, "k", DONE)
    await store.receipts.release("ada", "k")
    assert await store.receipts.reserve("ada", "k", b"hash", "c3") == Replay(DONE)


@everywhere
async def test_a_receipt_expires_after_24_hours(place: Place) -> None:
    now = 1_000_000.0
    async with place.open(clock=lambda: now) as store:
        await store.receipts.reserve("ada", "k", b"hash", "c1")
        await settle(store, "k", DONE)
        now += 24 * 3600 - 1
        assert await store.receipts.reserve("ada", "k", b"hash", "c2") == Replay(DONE)
        now += 2
        assert await store.receipts.reserve("ada", "k", b"hash", "c3") == Fresh()


@shared
async def test_of_two_processes_that_reserve_one_key_exactly_one_mayrun_call(place: Place) -> None:
    won: list[str] = []

    async def reserve(store: Store, call: str) -> None:
        if await store.receipts.reserve("ada", "k", b"hash", call) == Fresh():
            won.append(call)

    async with place.open() as first, place.open() as second, anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(reserve, first, f"first-{number}")
            group.start_soon(reserve, second, f"second-{number}")

    assert len(won) == 1


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
