"""One store, whatever keeps it: opened again, by several processes, by a newer Toolcrib, and after a kill."""

import json
import random
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import anyio
import psycopg
import pytest

from durable.places import DONE, Place, empty, everywhere, has_table, make_call, run_call, shared
from rig import eventually
from toolcrib.errors import UsageError
from toolcrib.store.database import packaged_migrations
from toolcrib.store.definitions import Pin
from toolcrib.store.postgres import PostgresDatabase
from toolcrib.store.sqlite import SqliteDatabase


@shared
async def test_what_was_remembered_is_there_after_opening_again(place: Place) -> None:
    pin = Pin(source="git", tool="log", digest=b"\x01" * 32, definition={"name": "log"}, accepted=1.5, by="ada")
    async with place.open() as store:
        store.calls.note(make_call(1), DONE)
        await store.pins.put([pin])

    async with place.open() as store:
        assert [row.id for row in await store.calls.list()] == ["call-1"]
        assert await store.pins.all() == [pin]


@shared
async def test_closing_writes_what_was_noted(place: Place) -> None:
    async with place.open() as store:
        for number in range(500):
            store.calls.note(make_call(number), DONE)

    assert place.tamper("SELECT count(*) FROM calls") == [(500,)]


@shared
async def test_notes_reach_the_store_by_themselves_within_a_moment(place: Place) -> None:
    async with place.open() as store:
        store.calls.note(make_call(), DONE)

        await eventually(lambda: place.tamper("SELECT count(*) FROM calls") == [(1,)])


@everywhere
async def test_a_closed_store_says_so(place: Place) -> None:
    store = place.open()
    await store.close()
    await store.close()

    with pytest.raises(UsageError, match="closed"):
        await store.calls.intend(make_call(1))


@shared
async def test_a_store_of_a_newer_toolcrib_is_refused_and_left_as_it_is(place: Place) -> None:
    async with place.open():
        pass
    place.tamper("INSERT INTO schema_version VALUES (99, 0)")

    with pytest.raises(UsageError, match=r"has schema 99, this Toolcrib knows schemas up to \d+: upgrade"):
        place.open()


SCHEMAS = {1: 1795271617.0}
"""The newest schema of every release that was, each with a store in `schemas`, and when that was written."""


@empty
@pytest.mark.parametrize("version", SCHEMAS)
async def test_a_store_of_every_past_schema_is_brought_up_to_date_with_all_that_is_in_it(
    place: Place, version: int
) -> None:
    """T38. Every file is what a release wrote; its last call was running when it was killed."""
    assert place.where is not None
    written = {version: Path(__file__).with_name("schemas").joinpath(f"v{version}.sql").read_text("utf-8")}
    is_url = isinstance(place.where, str)
    database = PostgresDatabase(str(place.where), written) if is_url else SqliteDatabase(Path(place.where), written)
    connection = database.connect()
    database.migrate(connection)
    connection.close()

    an_hour_later = SCHEMAS[version] + 3600  # receipts are kept for a day
    async with place.open(clock=lambda: an_hour_later) as store:
        rows = await store.calls.list()
        found = await store.calls.verify()
        schema = await store.schema()
        (pin,) = await store.pins.all()
        receipts = [await store.receipts.reserve("ada", key, b"h", "again") for key in ("k1", "k2", "k3")]

    assert [(row.id, row.outcome) for row in reversed(rows)] == [
        ("call-1", "ok"),
        ("call-2", "timeout"),
        ("call-3", "ok"),
        ("call-4", "outcome_unknown"),
    ]
    assert json.loads(rows[0].arguments) == {"message": "it's done; ünï", "n": 4}
    assert (found.rows, found.problem, schema) == (4, "", max(packaged_migrations()))
    assert (pin.source, pin.tool, pin.digest) == ("git", "log", b"\x01" * 32)
    assert [type(receipt).__name__ for receipt in receipts] == ["Replay", "Replay", "Fresh"]


NAMED_RECORDS = """
INSERT INTO records VALUES ('ada', 'notes', '1', 'inbox', '{"text": "milk"}', 3, 1.0, 2.0, 1, '');
INSERT INTO records VALUES ('eve', 'notes', '1', '', '{"text": "gold"}', 1, 1.0, 1.0, 1, 'web');
INSERT INTO record_words VALUES ('ada', 'notes', 'milk', '1', 2), ('eve', 'notes', 'gold', '1', 1);
INSERT INTO record_vectors VALUES ('ada', 'notes', '1', 'inbox', 'm', X'01');
INSERT INTO record_numbers VALUES ('ada', 'notes', 7);
"""


@empty
async def test_records_that_went_by_names_are_found_and_changed_as_before(place: Place) -> None:
    assert place.where is not None
    older = {number: sql for number, sql in packaged_migrations().items() if number < 30}
    is_url = isinstance(place.where, str)
    database = PostgresDatabase(str(place.where), older) if is_url else SqliteDatabase(Path(place.where), older)
    with closing(database.connect()) as connection:
        database.migrate(connection)
        for line in NAMED_RECORDS.strip().splitlines():
            connection.execute(line.replace("X'01'", "'\\x01'::bytea") if is_url else line)
    ada, eve = ("ada", "notes"), ("eve", "notes")
    async with place.open() as store:
        (found,) = await store.records.search(ada, "milk", group=None, limit=9)
        vectors = await store.records.vectors(ada, group="inbox", model="m")
        foreign = await store.records.get(eve, "1")
        changed = await store.records.put(ada, "1", {}, group="inbox", text="bread", revision=3)
        gone = await store.records.search(ada, "milk", group=None, limit=9)
        added = await store.records.add(ada, {}, group="", text="")

    assert (found.id, found.value, found.revision, found.created, vectors) == (
        "1",
        {"text": "milk"},
        3,
        1.0,
        [("1", b"\x01")],
    )
    assert foreign is not None and (foreign.value, foreign.tainted) == ({"text": "gold"}, "web")
    assert (changed.revision, gone, added.id) == (4, [], "8")


@empty
async def test_a_migration_that_fails_leaves_the_store_as_it_was(place: Place) -> None:
    first = (
        "CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied REAL NOT NULL);\nCREATE TABLE a (n TEXT);\n"
    )
    broken = {1: first, 3: "CREATE TABLE b (n BLOB) WITHOUT ROWID;\nINSERT INTO missing VALUES (1);\n"}
    late = {
        1: first,
        2: "CREATE TABLE c (n TEXT PRIMARY KEY, m INTEGER) WITHOUT ROWID;\n",
        3: "CREATE TABLE b (n BLOB);\n",
    }

    def migrate(migrations: dict[int, str]) -> set[str]:
        assert place.where is not None
        is_url = isinstance(place.where, str)
        database = (
            PostgresDatabase(str(place.where), migrations) if is_url else SqliteDatabase(Path(place.where), migrations)
        )
        connection = database.connect()
        try:
            database.migrate(connection)
        finally:
            connection.close()
        return {table for table in "abc" if has_table(place, table)}

    assert migrate({1: first}) == {"a"}
    with pytest.raises((sqlite3.OperationalError, psycopg.ProgrammingError)):
        migrate(broken)
    assert migrate({1: first}) == {"a"}
    assert migrate({1: first, 3: "CREATE TABLE b (n BLOB);\n"}) == {"a", "b"}
    assert migrate(late) == {"a", "b", "c"}


@shared
async def test_two_open_stores_extend_one_chain(place: Place) -> None:
    async with place.open() as first, place.open() as second, anyio.create_task_group() as group:
        for number in range(40):
            group.start_soon(run_call, first if number % 2 else second, make_call(number))

    async with place.open() as store:
        found = await store.calls.verify()

    assert (found.rows, found.problem) == (40, "")


@shared
async def test_opening_leaves_the_running_calls_of_another_store_alone(place: Place) -> None:
    async with place.open() as first:
        await first.calls.intend(make_call())
        async with place.open() as second:
            assert await second.settle() == set()
            assert await second.calls.list() == []
        await first.calls.finish(make_call(), DONE)

        assert [row.outcome for row in await first.calls.list()] == ["ok"]


_PROCESS = """
import anyio, os, pathlib, sys
sys.path[:0] = {path!r}
from toolcrib.core.call import Call
from toolcrib.core.result import ToolResult
from toolcrib.core.session import SessionState
from toolcrib.store.store import Store

place = {place!r}
session = SessionState(key="s", principal="ada")

def make(name):
    return Call(id=name, name="write", arguments={{}}, session=session)

async def main():
    store = Store.open(pathlib.Path(place) if "://" not in place else place)
{body}

anyio.run(main)
"""

_CRASH = """
    await store.receipts.reserve("ada", "key-cut", b"h", "cut")
    await store.receipts.reserve("ada", "key-unstarted", b"h", "unstarted")
    await store.calls.intend(make("done"))
    await store.calls.intend(make("cut"))
    await store.calls.finish(make("done"), ToolResult.of_text("ok"))
    os.kill(os.getpid(), 9)
"""

_CRASH_IN_A_CHANGE = """
    def change(transaction):
        transaction.execute("INSERT INTO meta VALUES ('changed by', 'call')")
    store.calls.later_intent(make("unchanged"))
    await store.calls.later_intent(make("cut")).run(change)
    os.kill(os.getpid(), 9)
"""

_APPEND = """
    async with anyio.create_task_group() as group:
        async def one(name):
            await store.calls.intend(make(name))
            await store.calls.finish(make(name), ToolResult.of_text("ok"))
        for number in range(100):
            group.start_soon(one, f"{{os.getpid()}}-{{number}}")
    await store.close()
"""


def process(place: Place, body: str) -> list[str]:
    code = _PROCESS.format(path=sys.path, place=str(place.where), body=body.format())
    return [sys.executable, "-c", code]


@shared
async def test_after_kill_9_no_acknowledged_call_is_lost_and_a_started_one_is_unknown(place: Place) -> None:
    killed = await anyio.run_process(process(place, _CRASH), check=False)

    async with place.open() as store:
        rows = {row.id: row.outcome for row in await store.calls.list()}
        found = await store.calls.verify()
        repeated = await store.receipts.reserve("ada", "key-cut", b"h", "again")
        unstarted = await store.receipts.reserve("ada", "key-unstarted", b"h", "again")

    assert killed.returncode == -9, killed.stderr.decode()
    assert rows == {"done": "ok", "cut": "outcome_unknown"}
    assert found.problem == ""
    assert (type(repeated).__name__, type(unstarted).__name__) == ("Replay", "Fresh")


@shared
async def test_after_kill_9_a_change_of_the_store_is_there_with_the_call_that_made_it(place: Place) -> None:
    killed = await anyio.run_process(process(place, _CRASH_IN_A_CHANGE), check=False)

    async with place.open() as store:
        rows = {row.id: row.outcome for row in await store.calls.list()}

    assert killed.returncode == -9, killed.stderr.decode()
    assert rows == {"cut": "outcome_unknown"}
    assert place.tamper("SELECT value FROM meta WHERE key = 'changed by'") == [("call",)]


@shared
async def test_a_store_that_stays_open_settles_what_another_leaves_when_it_is_killed(place: Place) -> None:
    async with place.open() as store:
        await anyio.run_process(process(place, _CRASH), check=False)

        assert await store.settle() == {"cut"}
        assert await store.settle() == set()
        assert {row.id: row.outcome for row in await store.calls.list()} == {"done": "ok", "cut": "outcome_unknown"}


@shared
async def test_several_processes_extend_one_chain_at_the_same_time(place: Place) -> None:
    async with place.open() as store:
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(anyio.run_process, process(place, _APPEND))
            for number in range(50):
                group.start_soon(run_call, store, make_call(number))
        found = await store.calls.verify()

    assert (found.rows, found.problem) == (250, "")


_ENDLESS = """
    acks = os.open({acks!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    async def caller(first):
        for number in range(first, 10**9, 8):
            name = f"{{os.getpid()}}-{{number}}"
            await store.calls.intend(make(name))
            os.write(acks, f"{{name}} outcome_unknown\\n".encode())
            await store.calls.finish(make(name), ToolResult.of_text("ok"))
            os.write(acks, f"{{name}} ok\\n".encode())
            store.calls.note(make(f"read-{{name}}"), ToolResult.of_text("ok"))
    async with anyio.create_task_group() as group:
        for first in range(8):
            group.start_soon(caller, first)
"""


@shared
async def test_kill_9_at_any_moment_loses_nothing_that_was_acknowledged(
    place: Place, tmp_path: Path, full_size: bool
) -> None:
    """R7: whatever stood on the disk when a caller was told so is there, and every chain is whole."""
    acks = tmp_path / "acks"
    random_ = random.Random(7)
    for _ in range(500 if full_size else 5):
        before = acks.stat().st_size if acks.exists() else 0
        enough = before + random_.randrange(1, 4000)
        command = process(place, _ENDLESS.replace("{acks!r}", repr(str(acks))))
        async with await anyio.open_process(command) as writer:
            await eventually(lambda enough=enough: acks.exists() and acks.stat().st_size >= enough)
            writer.kill()
            await writer.wait()
        async with place.open() as store:
            found = await store.calls.verify()
            rows = {row.id: row.outcome for row in await store.calls.list(limit=10**6)}
        promised = dict(line.split() for line in acks.read_text().splitlines() if line)
        lost = {id for id, least in promised.items() if id not in rows or (least == "ok" and rows[id] != "ok")}
        assert (found.problem, lost) == ("", set())
