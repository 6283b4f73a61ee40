"""The record of calls: what is durable when, what a crash leaves, and how tampering shows."""

import hashlib
import json
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from rig import PATIENCE
from toolcrib.core.call import Call
from toolcrib.core.permission import Decision
from toolcrib.core.result import ToolResult
from toolcrib.core.session import SessionState
from toolcrib.core.tool import Tool
from toolcrib.store.calls import CallRow
from toolcrib.store.chain import Head, Verification
from toolcrib.store.store import Store

TOOL = Tool(name="git__commit", source="git", local_name="commit")
SESSION = SessionState(key="s1", principal="ada")
DONE = ToolResult.of_text("done")


def make_call(number: int = 1, *, tool: str = "git__commit", session: SessionState = SESSION) -> Call:
    return Call(
        id=f"call-{number}",
        name=tool,
        arguments={"message": "hello", "n": number},
        session=session,
        origin="mcp",
        tool=TOOL if tool == TOOL.name else Tool(name=tool, source="x", local_name=tool),
        decision=Decision(effect="allow", rule="mode autonomous"),
        started=time.monotonic(),
    )


@pytest.fixture(params=["file", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    path = tmp_path / "data" / "store.db" if request.param == "file" else None
    async with Store.open(path) as opened:
        yield opened


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


async def test_a_noted_call_is_listed_with_everything_that_was_known_of_it(store: Store) -> None:
    before = time.time()

    store.calls.note(make_call().evolve(requested="call_tool"), DONE)
    (row,) = await store.calls.list()

    assert before - 1 <= row.started <= row.finished <= time.time()
    assert row == CallRow(
        seq=1,
        id="call-1",
        session="s1",
        principal="ada",
        origin="mcp",
        tool="git__commit",
        requested="call_tool",
        decision="allow",
        rule="mode autonomous",
        arguments='{"message":"hello","n":1}',
        arguments_hash=_sha256(b'{"message":"hello","n":1}'),
        definition=TOOL.digest.hex(),
        outcome="ok",
        started=row.started,
        finished=row.finished,
        latency_ms=row.latency_ms,
        result_bytes=len('[[{"type":"text","text":"done"}],null,null]'),
        result_hash=_sha256(b'[[{"type":"text","text":"done"}],null,null]'),
    )


async def test_a_refused_call_of_an_unknown_tool_is_recorded_by_the_name_it_asked_for(store: Store) -> None:
    call = Call(id="c", name="git__comit", arguments="not even an object", session=SESSION)

    store.calls.note(call, ToolResult.failed("not_found", "no such tool"))
    (row,) = await store.calls.list()

    assert (row.tool, row.decision, row.outcome, row.definition) == ("git__comit", "", "not_found", "")
    assert row.arguments == '"not even an object"'


async def test_finish_replaces_the_intent_by_one_row(store: Store) -> None:
    call = make_call()

    await store.calls.intend(call)
    await store.calls.finish(call, DONE)
    await store.calls.finish(call, DONE)

    assert [(row.id, row.outcome) for row in await store.calls.list()] == [("call-1", "ok")]


async def test_the_list_is_newest_first_and_takes_filters(store: Store) -> None:
    other = SessionState(key="s2")
    store.calls.note(make_call(1), DONE)
    store.calls.note(make_call(2, tool="git__log"), ToolResult.failed("timeout", "too slow"))
    store.calls.note(make_call(3, session=other), DONE)

    assert [row.id for row in await store.calls.list()] == ["call-3", "call-2", "call-1"]
    assert [row.id for row in await store.calls.list(limit=1)] == ["call-3"]
    assert [row.id for row in await store.calls.list(tool="git__l*")] == ["call-2"]
    assert [row.id for row in await store.calls.list(session="s2")] == ["call-3"]
    assert [row.id for row in await store.calls.list(outcome="error")] == ["call-2"]
    assert [row.id for row in await store.calls.list(outcome="ok", session="s1")] == ["call-1"]
    assert await store.calls.list(since=time.time() + 60) == []


async def test_notes_reach_the_file_by_themselves_within_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with Store.open(path) as store:
        store.calls.note(make_call(), DONE)

        with anyio.fail_after(PATIENCE):
            while not _count(path):
                await anyio.lowlevel.checkpoint()


async def test_closing_writes_what_was_noted(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with Store.open(path) as store:
        for number in range(500):
            store.calls.note(make_call(number), DONE)

    assert _count(path) == 500


async def test_arguments_are_stored_as_the_redactor_shows_them_and_cut_when_long() -> None:
    async with Store.open(None, redact=lambda value: {**value, "password": "[redacted]"}) as store:
        store.calls.note(make_call(1).evolve(arguments={"password": "hunter2"}), DONE)
        store.calls.note(make_call(2).evolve(arguments={"text": "ä" * 10_000}), DONE)
        long, short = await store.calls.list()

    assert short.arguments == '{"password":"[redacted]"}'
    assert json.loads(long.arguments).keys() == {"truncated", "bytes", "head"}
    assert len(long.arguments.encode()) <= 8192


async def test_arguments_that_are_no_json_are_recorded_as_unreadable(store: Store) -> None:
    store.calls.note(make_call().evolve(arguments={"file": object()}), DONE)

    (row,) = await store.calls.list()

    assert (row.arguments, row.arguments_hash) == ('{"unreadable": "dict: TypeError"}', "")


async def test_an_untouched_chain_verifies_and_names_its_head(store: Store) -> None:
    for number in range(3):
        store.calls.note(make_call(number), DONE)

    found = await store.calls.verify()

    assert found == Verification(rows=3, head=Head(seq=3, hash=found.head.hash))
    assert await store.calls.head() == found.head


@pytest.mark.parametrize(
    ("tamper", "where"),
    [
        ("UPDATE calls SET outcome = 'denied' WHERE seq = 2", 2),
        ("UPDATE calls SET finished = finished + 1 WHERE seq = 1", 1),
        ("DELETE FROM calls WHERE seq = 2", 2),
        ("DELETE FROM calls WHERE seq = 4", 4),
        ("DELETE FROM calls", 1),
        ("UPDATE calls SET seq = 9 WHERE seq = 4", 4),
        ("UPDATE calls SET seq = CASE seq WHEN 1 THEN -2 WHEN 2 THEN -1 END WHERE seq < 3", 1),
        ("DELETE FROM meta", 5),
    ],
)
async def test_verify_finds_where_a_row_was_changed_cut_or_moved(tmp_path: Path, tamper: str, where: int) -> None:
    path = tmp_path / "store.db"
    async with Store.open(path) as store:
        for number in range(4):
            store.calls.note(make_call(number), DONE)
        await store.flush()
        _execute(path, tamper)

        found = await store.calls.verify()

    assert (found.seq, bool(found.problem)) == (where, True)


async def test_every_changed_byte_of_a_recorded_row_is_found(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with Store.open(path) as store:
        for number in range(3):
            store.calls.note(make_call(number), DONE)
    clean = path.read_bytes()
    start = clean.index(b"call-1s1")
    missed: list[int] = []
    for offset in range(start, start + 120):
        damaged = tmp_path / "damaged.db"
        damaged.write_bytes(clean[:offset] + bytes([clean[offset] ^ 1]) + clean[offset + 1 :])
        async with Store.open(damaged) as store:
            if not (await store.calls.verify()).problem:
                missed.append(offset)

    assert missed == []


async def test_two_open_stores_extend_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with Store.open(path) as first, Store.open(path) as second, anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(_run, first if number % 2 else second, make_call(number))

    async with Store.open(path) as store:
        found = await store.calls.verify()

    assert (found.rows, found.problem) == (20, "")


_CRASH = """
import anyio, os, sys
sys.path[:0] = {path!r}
from toolcrib.core.call import Call
from toolcrib.core.result import ToolResult
from toolcrib.core.session import SessionState
from toolcrib.store.store import Store

async def main():
    store = Store.open(__import__("pathlib").Path({file!r}))
    session = SessionState(key="s", principal="ada")
    done, cut = (Call(id=name, name="write", arguments={{}}, session=session) for name in ("done", "cut"))
    await store.receipts.reserve("ada", "key-cut", b"h", "cut")
    await store.receipts.reserve("ada", "key-unstarted", b"h", "unstarted")
    await store.calls.intend(done)
    await store.calls.intend(cut)
    await store.calls.finish(done, ToolResult.of_text("ok"))
    os.kill(os.getpid(), 9)

anyio.run(main)
"""


async def test_after_kill_9_no_acknowledged_call_is_lost_and_a_started_one_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    code = _CRASH.format(path=sys.path, file=str(path))
    killed = await anyio.run_process([sys.executable, "-c", code], check=False)

    async with Store.open(path) as store:
        rows = {row.id: row.outcome for row in await store.calls.list()}
        found = await store.calls.verify()
        repeated = await store.receipts.reserve("ada", "key-cut", b"h", "again")
        unstarted = await store.receipts.reserve("ada", "key-unstarted", b"h", "again")

    assert killed.returncode == -9
    assert rows == {"done": "ok", "cut": "outcome_unknown"}
    assert found.problem == ""
    assert (type(repeated).__name__, type(unstarted).__name__) == ("Replay", "Fresh")
    assert _names(tmp_path) == ["store.db"]


async def test_opening_leaves_the_running_calls_of_another_store_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with Store.open(path) as first:
        await first.calls.intend(make_call())
        async with Store.open(path) as second:
            assert await second.calls.list() == []
        await first.calls.finish(make_call(), DONE)

        assert [row.outcome for row in await first.calls.list()] == ["ok"]


async def _run(store: Store, call: Call) -> None:
    await store.calls.intend(call)
    await store.calls.finish(call, DONE)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def _count(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("SELECT count(*) FROM calls").fetchone()[0])
    finally:
        connection.close()


def _execute(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(sql)
    finally:
        connection.close()
