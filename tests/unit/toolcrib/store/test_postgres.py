"""What is PostgreSQL's own: who counts as gone, what a URL tells, and how statements are translated."""

import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from peers.pooler import pooled
from toolcrib.errors import ToolFailure, UsageError
from toolcrib.store.database import Connection, Lease, OwnConnection
from toolcrib.store.definitions import Pin
from toolcrib.store.postgres import PostgresDatabase
from toolcrib.store.store import Store, database_at

ELSEWHERE = json.dumps(["another machine", 1])


class Clock:
    """Seconds that pass when the test says so."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(postgres_url: str, clock: Clock) -> PostgresDatabase:
    return PostgresDatabase(postgres_url, monotonic=clock)


@pytest.fixture
def connection(database: PostgresDatabase) -> Iterator[OwnConnection]:
    opened = database.connect()
    database.migrate(opened)
    yield opened
    opened.close()


@pytest.fixture
def lease(database: PostgresDatabase, connection: OwnConnection) -> Lease:
    taken = database.lease()
    taken.take(connection)
    return taken


def owner(connection: Connection, id: str, *said: str) -> None:
    """Write down, or forget, which process has the lease `id`."""
    connection.execute("DELETE FROM meta WHERE key = ?", (f"lease:{id}",))
    for text in said:
        connection.execute("INSERT INTO meta VALUES (?, ?)", (f"lease:{id}", text))


def is_free(connection: OwnConnection, lease: Lease, other: str) -> bool:
    connection.begin(durable=False)
    try:
        return lease.is_free(connection, other)
    finally:
        connection.rollback()


@pytest.mark.process
def test_a_store_on_another_machine_is_gone_when_it_has_not_come_back_for_twenty_seconds(
    database: PostgresDatabase, connection: OwnConnection, lease: Lease, clock: Clock
) -> None:
    other = database.lease()
    owner(connection, other.id, ELSEWHERE)

    found = [is_free(connection, lease, other.id)]
    clock.now += 19
    found.append(is_free(connection, lease, other.id))
    back = database.connect()
    other.take(back)
    owner(connection, other.id, ELSEWHERE)
    clock.now += 19
    found.append(is_free(connection, lease, other.id))
    (session,) = back.execute("SELECT pg_backend_pid()").fetchone()
    back.close()
    while connection.execute("SELECT 1 FROM pg_stat_activity WHERE pid = ?", (session,)).fetchone():
        pass  # the server frees the lock when the session has ended, which is after the client has closed it
    found.append(is_free(connection, lease, other.id))
    clock.now += 20
    found.append(is_free(connection, lease, other.id))

    assert found == [False, False, False, False, True]


@pytest.mark.process
def test_a_process_of_this_machine_that_ended_is_gone_at_once_and_one_that_runs_has_time(
    connection: OwnConnection, lease: Lease, clock: Clock
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (value,) = connection.execute("SELECT value FROM meta WHERE key = ?", (f"lease:{lease.id}",)).fetchone()
    machine = json.loads(value)[0]
    owner(connection, "0" * 16, json.dumps([machine, ended.pid]))
    owner(connection, "1" * 16, json.dumps([machine, os.getpid()]))

    found = [is_free(connection, lease, digit * 16) for digit in "012"]
    clock.now += 20
    found.append(is_free(connection, lease, "1" * 16))

    assert machine.startswith(socket.gethostname())
    assert found == [True, False, True, True]


@pytest.mark.process
def test_who_lost_the_server_gives_the_others_their_time_anew(
    database: PostgresDatabase, connection: OwnConnection, lease: Lease, clock: Clock
) -> None:
    owner(connection, "1" * 16, ELSEWHERE)
    before = is_free(connection, lease, "1" * 16)
    clock.now += 60
    again = database.connect()
    connection.close()
    lease.take(again)

    assert (before, is_free(again, lease, "1" * 16)) == (False, False)
    again.close()


def test_a_lease_is_taken_back_from_our_own_session_that_the_server_still_takes_for_alive(
    database: PostgresDatabase, connection: OwnConnection, lease: Lease
) -> None:
    new = database.connect()
    new.execute("SET lock_timeout = '100ms'")

    lease.take(new)

    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    assert not is_free(new, database.lease(), lease.id)
    new.close()


def test_what_stores_that_are_gone_left_is_swept_away(connection: OwnConnection, lease: Lease) -> None:
    owner(connection, "1" * 16, ELSEWHERE)
    machine = json.loads(connection.execute("SELECT value FROM meta WHERE key LIKE 'lease:%'").fetchall()[0][0])
    owner(connection, "2" * 16, json.dumps([machine[0], 2**22 + 1]))

    connection.begin(durable=False)
    lease.sweep(connection)
    connection.commit()

    keys = [key for (key,) in connection.execute("SELECT key FROM meta ORDER BY key").fetchall()]
    assert keys == sorted([f"lease:{lease.id}", f"lease:{'1' * 16}"])


@pytest.mark.parametrize(
    ("sql", "parameters", "value"),
    [
        ("SELECT '?' || ? || '--?' -- what?\n", ("x",), "?x--?"),
        ("SELECT ? + 1", (2**40,), 2**40 + 1),
        ("SELECT sum(n) FROM (SELECT 1 AS n UNION ALL SELECT 2) AS t", (), 3),
        ("SELECT avg(n) FROM (SELECT 1 AS n UNION ALL SELECT 2) AS t", (), 1.5),
        ("SELECT ? = 1", (True,), True),
        ("SELECT 'a%' || ?", ("%s",), "a%%s"),
        ("SELECT coalesce(?, 'none')", (None,), "none"),
        ("SELECT ?", ("a\0b",), "a\ufffdb"),
        ("SELECT ?", (1795271617.2534535,), 1795271617.2534535),
        ("SELECT 'Ab' LIKE 'aB'", (), False),
    ],
)
def test_a_statement_means_what_it_means_on_sqlite(
    connection: OwnConnection, sql: str, parameters: tuple[Any, ...], value: Any
) -> None:
    (found,) = connection.execute(sql, parameters).fetchone()

    assert (found, type(found)) == (value, type(value))


def test_columns_hold_64_bits_doubles_and_bytes_and_text_sorts_by_its_bytes(connection: OwnConnection) -> None:
    connection.define("CREATE TABLE t (name TEXT PRIMARY KEY, n INTEGER, x REAL, b BLOB) WITHOUT ROWID;")
    rows = [("Zoë", 2**62, 0.1, b"\0\xff"), ("apple", -1, 1e300, b""), ("ä", 0, -0.0, b"x")]
    for row in rows:
        connection.execute("INSERT INTO t VALUES (?, ?, ?, ?)", row)

    assert connection.execute("SELECT * FROM t ORDER BY name").fetchall() == rows


def test_an_error_in_a_url_is_told_without_the_password() -> None:
    with pytest.raises(UsageError, match=r"^store: ") as refused:
        database_at("postgresql://ada:hunter22@[::1/crib")

    assert "hunter22" not in str(refused.value)


@pytest.mark.process
def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from toolcrib.store.store import Store\n"
        "try: Store.open('postgresql://localhost/crib')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.startswith("UsageError ")
    assert f"{sys.executable} -m pip install 'toolcrib[postgres]'" in done.stdout


def test_a_schema_that_is_not_there_is_named(postgres_url: str) -> None:
    with pytest.raises(UsageError, match="has no schema: make the first one of its search_path"):
        PostgresDatabase(f"{postgres_url}&options=-csearch_path%3Dnowhere").connect()


def test_a_pooler_that_gives_our_session_to_others_is_refused(postgres_url: str, tmp_path: Path) -> None:
    with pooled(postgres_url, tmp_path) as url, pytest.raises(UsageError, match="a pooler in transaction mode"):
        PostgresDatabase(url).connect()


def test_a_server_that_promises_too_early_is_asked_to_wait_for_its_disk(postgres_url: str) -> None:
    connection = PostgresDatabase(f"{postgres_url}&options=-csynchronous_commit%3Doff").connect()
    found = connection.execute("SHOW synchronous_commit").fetchone()
    connection.close()

    assert found == ("on",)


async def test_a_check_names_a_server_that_cannot_be_reached() -> None:
    async with Store.open("postgresql://ada@127.0.0.1:1/nowhere") as store:
        found = await store.check()

    assert "connection" in found


def test_a_connection_whose_server_does_not_answer_in_time_is_given_up(postgres_url: str) -> None:
    database = PostgresDatabase(postgres_url, answer_seconds=0.3)
    connection = database.connect()
    connection.begin(durable=False)
    with pytest.raises(psycopg.OperationalError) as refused:
        connection.execute("SELECT pg_sleep(60)")

    assert (database.is_failure(refused.value), database.is_passing(refused.value)) == (True, False)
    assert not connection.is_current()


@pytest.mark.parametrize(
    "statement",
    ["CREATE TABLE schema_version (version TEXT)", "CREATE TABLE calls (id TEXT)"],
    ids=["the table of versions", "another table"],
)
async def test_a_schema_with_a_table_of_another_program_is_refused_and_left_as_it_was(
    empty_postgres_url: str, statement: str
) -> None:
    _as_operator(empty_postgres_url, statement)
    async with Store.open(empty_postgres_url) as store:
        found = await store.check()
        with pytest.raises(ToolFailure) as refused:
            await store.pins.all()

    assert "search_path" in found
    assert refused.value.code == "storage"
    assert _as_operator(empty_postgres_url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(1,)]


async def test_a_schema_that_comes_before_that_of_the_store_is_not_a_new_store(postgres_url: str) -> None:
    pin = Pin(source="git", tool="log", digest=b"\x01" * 32, definition={"name": "log"}, accepted=1.5, by="ada")
    async with Store.open(postgres_url) as store:
        await store.pins.put([pin])
    _as_operator(postgres_url, "CREATE SCHEMA first")
    async with Store.open(f"{postgres_url}&options=-csearch_path%3Dfirst,public") as store:
        found, pins = await store.check(), await store.pins.all()

    assert "the store is in the schema public, and first is before it" in found
    assert pins == [pin]


async def test_rows_that_a_policy_hides_are_not_taken_for_none(postgres_url: str) -> None:
    async with Store.open(postgres_url):
        pass
    role = f"role_{secrets.token_hex(4)}"
    _as_operator(
        postgres_url,
        f"CREATE ROLE {role} LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO {role};"
        " ALTER TABLE calls ENABLE ROW LEVEL SECURITY",
    )
    try:
        async with Store.open(f"{postgres_url}&user={role}") as store:
            with pytest.raises(ToolFailure) as refused:
                await store.calls.verify()
    finally:
        _as_operator(postgres_url, f"DROP OWNED BY {role}; DROP ROLE {role}")

    assert (refused.value.code, "denies the permission" in str(refused.value)) == ("storage", True)


def _as_operator(url: str, statements: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as session:
        cursor = session.execute(statements.encode())
        return cursor.fetchall() if cursor.description else []
