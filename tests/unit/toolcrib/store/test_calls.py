"""The record of calls in a file: what is shown in it, what a crash leaves beside it, how a changed byte shows.

What every store does, whatever keeps it, is in tests/durable/test_stores.py.
"""

import hashlib
import io
import json
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from toolcrib.cli.commands.log import new_calls
from toolcrib.core.call import Call
from toolcrib.core.json import canonical
from toolcrib.core.permission import Decision
from toolcrib.core.result import ToolResult
from toolcrib.core.session import SessionState
from toolcrib.core.tool import Tool
from toolcrib.errors import ToolFailure
from toolcrib.policy.grant import mint
from toolcrib.store.calls import CallFilter, verify_lines
from toolcrib.store.chain import Transaction
from toolcrib.store.store import Store
from toolcrib.store.threads import Work, Writer

TOOL = Tool(name="git__commit", source="git", local_name="commit")
SESSION = SessionState(key="s1", principal="ada")
DONE = ToolResult.of_text("done")


def make_call(number: int = 1) -> Call:
    return Call(
        id=f"call-{number}",
        name="git__commit",
        arguments={"message": "hello", "n": number},
        session=SESSION,
        origin="mcp",
        tool=TOOL,
        decision=Decision(effect="allow", rule="mode autonomous"),
        started=time.monotonic(),
    )


def put_meta(transaction: Transaction) -> None:
    transaction.execute("INSERT INTO meta VALUES ('changed by', 'call')")


def read_meta(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "store.db")) as file:
        return [value for (value,) in file.execute("SELECT value FROM meta WHERE key = 'changed by'")]


async def test_arguments_are_stored_as_the_redactor_shows_them_and_cut_when_long() -> None:
    def redact(values: Sequence[dict[str, str]]) -> list[dict[str, str]]:
        return [{**value, "password": "[redacted]"} for value in values]

    async with Store.open(None, redact=redact) as store:
        store.calls.note(make_call(1).evolve(arguments={"password": "hunter2"}), DONE)
        store.calls.note(make_call(2).evolve(arguments={"text": "ä" * 10_000}), DONE)
        long, short = await store.calls.list()

    assert short.arguments == '{"password":"[redacted]"}'
    assert json.loads(long.arguments).keys() == {"truncated", "bytes", "head"}
    assert len(long.arguments.encode()) <= 8192


async def test_a_secret_that_is_learnt_while_a_call_runs_is_masked_in_its_row() -> None:
    known = set[str]()

    def redact(values: Sequence[dict[str, str]]) -> list[dict[str, str]]:
        return [{name: "[redacted]" if text in known else text for name, text in value.items()} for value in values]

    async with Store.open(None, redact=redact) as store:
        call = make_call(1).evolve(arguments={"token": "hunter2"})
        await store.calls.intend(call)
        known.add("hunter2")
        await store.calls.finish(call, DONE)
        (row,) = await store.calls.list()

    assert row.arguments == '{"token":"[redacted]"}'


async def test_the_hash_of_a_granted_call_is_that_of_the_arguments_that_were_granted() -> None:
    granted = {"message": "hello", "n": 1}
    hashes = [hashlib.sha256(canonical(arguments)).hexdigest() for arguments in (granted, {"message": "changed"})]
    async with Store.open(None) as store:
        call = make_call(1).evolve(arguments={"message": "changed"})
        store.calls.note(call.evolve(grant=mint(call.id, TOOL, granted, "mode autonomous")), DONE)
        store.calls.note(call.evolve(id="call-2"), DONE)
        ungranted, first = await store.calls.list()

    assert [first.arguments_hash, ungranted.arguments_hash] == hashes


async def test_a_call_that_changes_the_store_alone_waits_for_the_disk_once_and_not_for_its_intent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[bool] = []
    run = Writer.run

    async def noted(writer: Writer, work: Work, *args: Any, durable: bool = False, keep: bool = False) -> Any:
        commits.append(durable)
        return await run(writer, work, *args, durable=durable, keep=keep)

    async with Store.open(tmp_path / "store.db") as store:
        monkeypatch.setattr(Writer, "run", noted)
        await store.calls.intend(make_call(1))
        await store.calls.later_intent(make_call(2)).run(put_meta)
        await store.calls.finish(make_call(2), DONE)
        monkeypatch.undo()

    assert commits == [True, False, True]


async def test_an_intent_that_comes_with_a_change_is_recorded_with_the_first_one_and_not_without_it(
    tmp_path: Path,
) -> None:
    def refuse(transaction: Transaction) -> None:
        put_meta(transaction)
        raise ToolFailure("not_found", "there is no such row")

    async with Store.open(tmp_path / "store.db") as store:
        intent = store.calls.later_intent(make_call(1))
        with pytest.raises(ToolFailure):
            await intent.run(refuse)
        refused = (await store.calls.began("call-1"), read_meta(tmp_path))
        await intent.run(put_meta)
        changed = (await store.calls.began("call-1"), read_meta(tmp_path))
        await store.calls.finish(make_call(1), DONE)
        rows = [(row.id, row.outcome) for row in await store.calls.list()]

    assert (refused, changed, rows) == (("", []), ("outcome_unknown", ["call"]), [("call-1", "ok")])


async def test_a_change_of_a_call_that_another_process_has_begun_is_not_stored(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "store.db") as first, Store.open(tmp_path / "store.db") as second:
        await first.calls.intend(make_call(1))
        with pytest.raises(ToolFailure) as caught:
            await second.calls.later_intent(make_call(1)).run(put_meta)
        await second.calls.finish(make_call(1), ToolResult.failed("conflict", "it was begun before"))
        await first.calls.finish(make_call(1), DONE)
        rows = [(row.id, row.outcome) for row in await second.calls.list()]

    assert (caught.value.code, read_meta(tmp_path), rows) == ("conflict", [], [("call-1", "ok")])


async def test_a_call_that_another_process_has_begun_stays_that_processs_own_in_the_record(tmp_path: Path) -> None:
    refused = ToolResult.failed("conflict", "it was begun before")
    async with Store.open(tmp_path / "store.db") as first, Store.open(tmp_path / "store.db") as second:
        await first.calls.intend(make_call(1))
        with pytest.raises(ToolFailure) as caught:
            await second.calls.intend(make_call(1))
        await second.calls.finish(make_call(1), refused)
        await first.calls.finish(make_call(1), DONE)
        rows = [(row.id, row.outcome) for row in await second.calls.list()]

    assert (caught.value.code, rows) == ("conflict", [("call-1", "ok")])


async def test_a_chain_that_an_earlier_version_wrote_goes_on(tmp_path: Path) -> None:
    """It wrote into each row the hash of the row before, and all hashes as text."""
    path = tmp_path / "store.db"
    now, earlier, both = io.BytesIO(), io.BytesIO(), io.BytesIO()
    async with Store.open(path) as store:
        for number in range(3):
            store.calls.note(make_call(number), DONE)
        await store.flush()
        await store.calls.export(now)
    with closing(sqlite3.connect(path)) as connection, connection:
        before = "SELECT hash FROM calls AS other WHERE other.seq = calls.seq - 1"
        hashes = ("arguments_hash", "definition", "result_hash", "hash")
        texts = ", ".join(f"{column} = lower(hex({column}))" for column in hashes)
        connection.execute(f"UPDATE calls SET {texts}")
        connection.execute(f"UPDATE calls SET prev = COALESCE(({before}), ?)", ("0" * 64,))
    async with Store.open(path) as store:
        await store.calls.export(earlier)
        store.calls.note(make_call(3), DONE)
        good = await store.calls.verify()
        listed = [(row.arguments_hash, row.definition, row.result_hash) for row in await store.calls.list()]
        await store.calls.export(both)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE calls SET prev = ? WHERE seq = 3", ("0" * 64,))
    async with Store.open(path) as store:
        bad = await store.calls.verify()

    exported = [json.loads(line) for line in both.getvalue().splitlines()]
    assert now.getvalue() == earlier.getvalue()
    assert (good.rows, good.problem) == (4, "")
    assert verify_lines(io.BytesIO(both.getvalue()), good.head).problem == ""
    assert listed[::-1] == [(row["arguments_hash"], row["definition"], row["result_hash"]) for row in exported]
    assert bad.problem == "row 3 does not follow row 2"


@pytest.mark.long
@pytest.mark.slow
async def test_200_flipped_bits_in_the_rows_of_the_file_are_all_found(tmp_path: Path) -> None:
    """T26 below the SQL: whoever edits the file."""
    path = tmp_path / "store.db"
    async with Store.open(path) as store:
        for number in range(3):
            store.calls.note(make_call(number), DONE)
        lines = io.BytesIO()
        await store.flush()
        await store.calls.export(lines)
    first = json.loads(lines.getvalue().splitlines()[0])["hash"]
    clean = path.read_bytes()
    start, end = clean.index(b"call-2s1"), clean.index(bytes.fromhex(first)) + len(first) // 2
    random_ = random.Random(26)
    missed: list[int] = []
    for offset in random_.sample(range(start, end), 200):
        damaged = tmp_path / "damaged.db"
        damaged.write_bytes(clean[:offset] + bytes([clean[offset] ^ 1 << random_.randrange(8)]) + clean[offset + 1 :])
        async with Store.open(damaged) as store:
            if not (await store.calls.verify()).problem:
                missed.append(offset)

    assert missed == []


_KILLED = """
import os, pathlib, sys
sys.path[:0] = {path!r}
from toolcrib.store.calls import CallFilter, verify_lines
from toolcrib.store.chain import Transaction
from toolcrib.store.store import Store
Store.open(pathlib.Path({file!r}))
os.kill(os.getpid(), 9)
"""


@pytest.mark.process
async def test_what_a_killed_store_leaves_beside_the_file_is_cleared_away_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    code = _KILLED.format(path=sys.path, file=str(path))
    killed = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    left = sorted(file.suffix for file in tmp_path.iterdir())

    async with Store.open(path), Store.open(path):
        leases = [file for file in tmp_path.iterdir() if file.suffix == ".live"]

    assert (killed.returncode, len(leases)) == (-9, 2)
    assert ".live" in left
    assert [file.name for file in tmp_path.iterdir()] == ["store.db"]


async def test_calls_are_listed_by_client_with_or_without_its_version_and_after_a_number() -> None:
    names = ("", "claude-code/2.1", "claude-code/2.2", "claude", "Zed/1")
    async with Store.open(None) as store:
        for number, name in enumerate(names):
            store.calls.note(make_call(number).evolve(client_name=name), DONE)

        async def numbers(**wanted: Any) -> list[int]:
            return [row.seq for row in await store.calls.list(**wanted)]

        rows = await store.calls.list()
        found = [await numbers(client=name) for name in ("claude-code", "claude-code/2.1", "claude*", "nobody")]
        later = await numbers(after=3)

    assert [(row.origin, row.client) for row in reversed(rows)] == [("mcp", name) for name in names]
    assert found == [[3, 2], [2], [4, 3, 2], []]
    assert later == [5, 4]


async def test_followed_calls_come_once_each_oldest_first() -> None:
    async with Store.open(None) as store:
        for number in range(3):
            store.calls.note(make_call(number), DONE)
        more = iter((range(3, 5), range(0), range(5, 6)))

        async def wait() -> None:
            for number in next(more):
                store.calls.note(make_call(number), DONE)

        wanted: CallFilter = {
            "tool": "git__*",
            "outcome": "",
            "principal": "ada",
            "client": "",
            "session": "s1",
            "since": 0.0,
        }
        followed = new_calls(store.calls, wanted, 2, wait)
        ids = [(await anext(followed)).id for _ in range(5)]
        await followed.aclose()

    assert ids == ["call-1", "call-2", "call-3", "call-4", "call-5"]
