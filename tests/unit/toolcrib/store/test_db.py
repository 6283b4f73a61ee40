"""Migrations: all or nothing, and a copy of what was there."""

import shutil
import sqlite3
from collections import UserDict
from collections.abc import KeysView, Mapping
from contextlib import closing
from importlib import resources
from pathlib import Path

import pytest

from toolcrib import store
from toolcrib.store.database import packaged_migrations
from toolcrib.store.sqlite import SqliteDatabase

FIRST = "CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied REAL NOT NULL);\nCREATE TABLE a (n);\n"


def columns(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        return [row[1] for row in connection.execute("PRAGMA table_info(a)")]
    finally:
        connection.close()


def migrate(path: Path, migrations: Mapping[int, str]) -> None:
    database = SqliteDatabase(path, migrations)
    connection = database.connect()
    try:
        database.migrate(connection)
    finally:
        connection.close()


def test_an_older_store_is_copied_and_brought_up_to_date(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    path = tmp_path / "store.db"
    migrate(path, {1: FIRST})

    for _ in range(2):
        migrate(path, {1: FIRST, 2: "ALTER TABLE a ADD COLUMN m;\n"})

    assert [record.args for record in caplog.records] == [(str(path), 1, 2)]

    assert (columns(path), columns(tmp_path / "store.db.v1.bak")) == (["n", "m"], ["n"])
    assert (tmp_path / "store.db.v1.bak").stat().st_mode & 0o777 == 0o600


def test_the_copy_of_an_older_store_stays_when_two_processes_migrate_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    migrate(path, {1: FIRST})
    migrations = {1: FIRST, 2: "ALTER TABLE a ADD COLUMN m;\n"}

    class Overtaken(UserDict[int, str]):
        def keys(self) -> KeysView[int]:  # read between the look at the store and its copy
            migrate(path, migrations)
            return super().keys()

    migrate(path, Overtaken(migrations))

    assert (columns(path), columns(tmp_path / "store.db.v1.bak")) == (["n", "m"], ["n"])
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["store.db", "store.db.v1.bak"]


def test_a_folder_in_the_place_of_the_file_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    place = tmp_path / "folder"
    place.mkdir()
    place.chmod(0o755)

    for connect in (SqliteDatabase(place).connect, SqliteDatabase(place).connect_reader):
        with pytest.raises(IsADirectoryError, match="name a file in it"):
            connect()

    assert place.stat().st_mode & 0o777 == 0o755


def test_a_file_of_another_program_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    notes, music = tmp_path / "notes.txt", tmp_path / "music.db"
    notes.write_text("to do: nothing\n")
    with closing(sqlite3.connect(music)) as connection:
        connection.execute("CREATE TABLE songs (name)")
    before = {place: place.read_bytes() for place in (notes, music)}
    for place in before:
        place.chmod(0o644)
        with pytest.raises((OSError, sqlite3.DatabaseError), match=r"another program|not a database"):
            SqliteDatabase(place).connect()

    assert {place: place.read_bytes() for place in tmp_path.iterdir()} == before
    assert {place.stat().st_mode & 0o777 for place in before} == {0o644}


def test_a_store_that_others_could_read_becomes_private_with_its_log(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    migrate(path, {1: FIRST})
    path.chmod(0o644)
    with closing(SqliteDatabase(path, {1: FIRST}).connect()) as connection:
        connection.execute("INSERT INTO a VALUES (1)")
        assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}


def test_each_migration_of_the_package_has_a_number_of_its_own() -> None:
    files = [entry for entry in resources.files(store).joinpath("migrations").iterdir() if entry.name.endswith(".sql")]

    assert len(packaged_migrations()) == len(files)


def test_stores_in_memory_share_no_row_with_the_schema_they_are_copied_from() -> None:
    insert, count = "INSERT INTO meta VALUES ('mine', '1')", "SELECT count(*) FROM meta WHERE key = 'mine'"
    tables = "SELECT sql FROM sqlite_master ORDER BY name"
    database, migrated = SqliteDatabase(None), SqliteDatabase(None, dict(packaged_migrations()))
    with closing(database.connect()) as first, closing(database.connect()) as second, closing(migrated.connect()) as m:
        for connection in (first, second):
            database.migrate(connection)
        migrated.migrate(m)
        first.execute(insert)

        assert [one.execute(count).fetchone() for one in (first, second)] == [(1,), (0,)]
        assert second.execute(tables).fetchall() == m.execute(tables).fetchall() != []


def test_a_tidied_store_is_whole_in_its_file_and_begins_its_log_anew(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    log = path.with_name("store.db-wal")
    with closing(SqliteDatabase(path, {1: FIRST}).connect()) as connection:
        connection.execute("CREATE TABLE b (n)")
        connection.execute("INSERT INTO b VALUES (1), (2)")
        before = log.stat().st_size

        connection.tidy()
        copied = Path(shutil.copyfile(path, tmp_path / "copy.db"))
        connection.execute("INSERT INTO b VALUES (3)")

        assert log.stat().st_size == before
    with closing(sqlite3.connect(copied)) as copy:
        assert copy.execute("SELECT n FROM b").fetchall() == [(1,), (2,)]
