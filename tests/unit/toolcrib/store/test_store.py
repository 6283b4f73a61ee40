"""The file: private, shared, and honest when it cannot be written."""

import logging
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import anyio
import pytest

from rig import eventually, full_disk
from toolcrib.core.call import Call
from toolcrib.core.result import ToolResult
from toolcrib.core.session import SessionState
from toolcrib.errors import ToolFailure
from toolcrib.store.settings import Retention
from toolcrib.store.sqlite import SqliteDatabase
from toolcrib.store.store import Store

SESSION = SessionState(key="s")
DONE = ToolResult.of_text("done")


def make_call(number: int, size: int = 10) -> Call:
    return Call(id=f"call-{number}", name="write", arguments={"text": "x" * size}, session=SESSION)


async def test_file_and_folder_are_private(tmp_path: Path) -> None:
    path = tmp_path / "data" / "store.db"
    async with Store.open(path) as store:
        await store.calls.intend(make_call(1))

        assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_an_existing_file_that_others_may_read_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch(mode=0o644)

    async with Store.open(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_full_disk_refuses_side_effects_serves_reads_and_recovers(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with Store.open(path) as store:
        await store.calls.intend(make_call(1))
        with full_disk():
            with pytest.raises(ToolFailure) as refused:
                await store.calls.intend(make_call(2, size=5000))
            with pytest.raises(ToolFailure):
                await store.calls.finish(make_call(1, size=5000), DONE)
            store.calls.note(make_call(3), DONE)
            pins = await store.pins.all()
            assert await store.calls.list() == []
        await store.calls.intend(make_call(4))
        await store.calls.finish(make_call(4), DONE)
        rows = {row.id: row.outcome for row in await store.calls.list()}
        found = await store.calls.verify()

    assert (refused.value.code, pins, found.problem) == ("storage", [], "")
    assert rows == {"call-1": "ok", "call-3": "ok", "call-4": "ok"}


async def test_calls_that_need_no_record_run_on_a_full_disk_and_are_recorded_once_there_is_room(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db", must_record=False)
    store.start()
    async with store:
        await store.calls.intend(make_call(1))
        with full_disk():
            await store.calls.intend(make_call(2, size=5000))
            with pytest.raises(ToolFailure):
                await store.calls.finish(make_call(2, size=5000), DONE)
            began = await store.calls.began("call-2")
        rows = [(row.id, row.outcome) for row in await store.calls.list() if row.id == "call-2"]

    assert (began, rows) == ("", [("call-2", "ok")])


@pytest.mark.slow
async def test_a_check_names_a_full_disk_and_notices_by_itself_that_there_is_room_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "toolcrib.store.threads")
    async with Store.open(tmp_path / "store.db") as store:
        whole = await store.check()
        said = [record.levelname for record in caplog.records]
        with full_disk():
            with pytest.raises(ToolFailure):
                await store.calls.intend(make_call(1, size=5000))
            full = [await store.check()]
            await eventually(lambda: len(caplog.records) >= 2)  # the refused call, and the first attempt after it
            full.append(await store.check())
        await eventually(partial(_works, store))
        lost = store.lost
        said += [record.levelname for record in caplog.records if record.levelno > logging.DEBUG]

    assert (whole, lost) == ("", 0)
    assert all(full)
    assert said == ["WARNING", "INFO"], "that it fails, and that it works again"


@pytest.mark.slow
async def test_a_check_names_a_place_that_cannot_be_had_and_one_that_does_not_answer(tmp_path: Path) -> None:
    blocked = tmp_path / "data"
    blocked.write_text("a file where the folder should be")
    async with Store.open(blocked / "store.db") as store:
        refused = await store.check()
        blocked.unlink()
        await eventually(partial(_works, store))
        other = sqlite3.connect(blocked / "store.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        held = await store.check(0.2)
        other.rollback()
        other.close()
        await store.flush()
        freed = await store.check()
    closed = await store.check()

    assert "Not a directory" in refused
    assert (held, freed, closed) == ("the store has not answered within 0.2 s", "", "the store is closed")


async def test_a_file_that_was_taken_away_is_not_replaced_by_an_empty_one_and_counts_again_once_it_is_back(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.db"
    async with Store.open(path) as store:
        await store.calls.intend(make_call(1))
        away = path.rename(tmp_path / "away.db")
        gone = await store.check()
        with pytest.raises(ToolFailure) as refused:
            await store.calls.intend(make_call(2))
        with pytest.raises(ToolFailure) as unread:
            await store.calls.list()
        made = path.exists()
        away.rename(path)
        await store.calls.intend(make_call(3))
        await store.calls.finish(make_call(1), DONE)
        rows = {row.id: row.outcome for row in await store.calls.list()}
        back = await store.check()

    assert "removed while it was open" in gone
    assert (refused.value.code, unread.value.code, made) == ("storage", "storage", False)
    assert (rows, back) == ({"call-1": "ok"}, "")


async def test_a_store_that_was_put_back_from_a_copy_is_read_and_written_from_then_on(tmp_path: Path) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    async with Store.open(copy) as store:
        await store.calls.intend(make_call(1))
        await store.calls.finish(make_call(1), DONE)
    async with Store.open(path) as store:
        before = await store.calls.list()
        for file in tmp_path.glob("store.db-*"):
            file.unlink()
        copy.replace(path)
        after = [row.id for row in await store.calls.list()]
        await store.calls.intend(make_call(2))
        await store.calls.finish(make_call(2), DONE)
        rows = {row.id: row.outcome for row in await store.calls.list()}
        checked = await store.calls.verify()

    assert (before, after, checked.problem) == ([], ["call-1"], "")
    assert rows == {"call-1": "ok", "call-2": "ok"}


async def test_a_store_that_a_newer_version_puts_in_place_takes_no_more_records_and_says_why(tmp_path: Path) -> None:
    path, newer = tmp_path / "store.db", tmp_path / "newer.db"
    async with Store.open(newer):
        pass
    with closing(sqlite3.connect(newer)) as connection:
        connection.execute("INSERT INTO schema_version VALUES (9999, 0)")
        connection.commit()
    async with Store.open(path) as store:
        for file in tmp_path.glob("store.db-*"):
            file.unlink()
        newer.replace(path)
        with pytest.raises(ToolFailure) as refused:
            await store.calls.intend(make_call(1))
        problem = await store.check()

    assert (refused.value.code, "newer" in refused.value.message, "9999" in problem) == ("storage", True, True)


async def test_a_place_that_cannot_be_written_refuses_side_effects_until_it_can(tmp_path: Path) -> None:
    blocked = tmp_path / "data"
    blocked.write_text("a file where the folder should be")
    async with Store.open(blocked / "store.db") as store:
        with pytest.raises(ToolFailure) as refused:
            await store.calls.intend(make_call(1))
        with pytest.raises(ToolFailure) as unread:
            await store.pins.all()
        blocked.unlink()
        await store.calls.intend(make_call(2))
        await store.calls.finish(make_call(2), DONE)

        assert [row.id for row in await store.calls.list()] == ["call-2"]

    assert (refused.value.code, unread.value.code) == ("storage", "storage")


async def test_a_place_that_cannot_be_written_is_reported_once_and_loses_nothing_where_nothing_was_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "data"
    blocked.write_text("a file where the folder should be")
    async with Store.open(blocked / "store.db", retention=Retention(max_rows=1000)) as store:
        for number in range(3):
            with pytest.raises(ToolFailure):
                await store.calls.intend(make_call(number))

    assert (len(caplog.records), store.lost) == (1, 0)


async def test_a_writer_waits_for_another_process_that_writes(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with Store.open(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        async with anyio.create_task_group() as group:
            group.start_soon(_run, store, make_call(1))
            with anyio.move_on_after(0.05):
                await anyio.sleep_forever()
            other.execute("COMMIT")
        other.close()

        assert [row.id for row in await store.calls.list()] == ["call-1"]


async def _run(store: Store, call: Call) -> None:
    await store.calls.intend(call)
    await store.calls.finish(call, DONE)


async def _works(store: Store) -> bool:
    return await store.check() == ""


_TAKE_LOCK = """
import fcntl, sys
try:
    fcntl.lockf(open(sys.argv[1], "r+b"), fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)
except OSError:
    print("held")
"""
"""Takes the bytes that every connection of SQLite to a file holds shared."""


@pytest.mark.process
def test_another_connection_of_the_process_keeps_the_locks_of_the_first(tmp_path: Path) -> None:
    """Without them another process that closes takes itself for the last, and removes the log that this one uses."""
    path = tmp_path / "store.db"
    database = SqliteDatabase(path)
    first = database.connect()
    database.migrate(first)
    second = database.connect()

    other = subprocess.run([sys.executable, "-c", _TAKE_LOCK, str(path)], capture_output=True, text=True, check=True)

    assert other.stdout == "held\n"
    second.close()
    first.close()
