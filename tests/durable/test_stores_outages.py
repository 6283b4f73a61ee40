"""A store whose PostgreSQL goes away, or takes no writes: refuse, keep, recover (a full disk: `tests/unit`)."""

from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from durable.places import DONE, Place, make_call, run_call
from rig import PATIENCE
from rig.postgres import outage
from toolcrib.errors import ToolFailure, UsageError
from toolcrib.store.chain import Transaction
from toolcrib.store.store import Store


async def test_a_lost_server_refuses_side_effects_keeps_notes_and_recovers(postgres_url: str) -> None:
    async with Store.open(postgres_url) as store:
        await store.calls.intend(make_call(1))
        await store.pins.all()
        with outage(postgres_url):
            with pytest.raises(ToolFailure) as refused:
                await store.calls.intend(make_call(2))
            with pytest.raises(ToolFailure):
                await store.calls.finish(make_call(1), DONE)
            with pytest.raises(ToolFailure) as unread:
                await store.pins.all()
            store.calls.note(make_call(3), DONE)
        rows = await _recovered(store)
        await run_call(store, make_call(4))
        found = await store.calls.verify()

    assert (refused.value.code, unread.value.code) == ("storage", "storage")
    assert rows == {"call-1": "ok", "call-3": "ok"}
    assert (found.rows, found.problem, store.lost) == (3, "", 0)


async def test_a_database_that_takes_no_writes_refuses_side_effects_serves_reads_and_recovers(
    postgres_url: str,
) -> None:
    """As a standby does, or a server whose disk is full and that was made read-only."""
    name = postgres_url.partition("?")[0].rpartition("/")[2]
    place = Place(where=postgres_url)
    async with Store.open(postgres_url) as store:
        await run_call(store, make_call(1))
        place.tamper(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        with outage(postgres_url):
            pass
        with pytest.raises(ToolFailure) as refused:
            await store.calls.intend(make_call(2))
        store.calls.note(make_call(3), DONE)
        assert [row.id for row in await store.calls.list()] == ["call-1"]
        with psycopg.connect(postgres_url, autocommit=True) as session:
            session.execute("SET default_transaction_read_only = off")
            session.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only".encode())
        rows = await _recovered(store)
        await run_call(store, make_call(4))

    assert (refused.value.code, rows) == ("storage", {"call-1": "ok", "call-3": "ok"})


async def test_what_cannot_be_written_before_the_end_is_counted(postgres_url: str) -> None:
    store = Store.open(postgres_url)
    with outage(postgres_url):
        store.calls.note(make_call(1), DONE)
        store.calls.note(make_call(2), DONE)
        await store.close()

    assert store.lost == 2


async def test_only_what_must_survive_waits_for_the_disk(tmp_path: Path) -> None:
    """What a commit asks of the disk, from inside it: an intent does not start a call on a promise."""

    def work(transaction: Transaction) -> Any:
        return transaction.execute("PRAGMA synchronous").fetchone()[0]

    async with Store.open(tmp_path / "store.db") as store:
        writer = store._writer  # pyright: ignore[reportPrivateUsage] - what every sub-store has
        found = [await writer.run(work, durable=durable) for durable in (True, False, True, False)]

    assert found == [2, 1, 2, 1]


async def test_a_durable_commit_is_on_the_servers_disk_when_it_returns(postgres_url: str) -> None:
    def work(transaction: Transaction) -> Any:
        transaction.execute(
            "INSERT INTO meta VALUES ('a', '1') ON CONFLICT (key) DO UPDATE SET value = meta.value || '1'"
        )
        return transaction.execute("SELECT pg_current_wal_insert_lsn()").fetchone()[0]

    async with Store.open(postgres_url) as store:
        writer = store._writer  # pyright: ignore[reportPrivateUsage] - what every sub-store has
        with psycopg.connect(postgres_url, autocommit=True) as beside:
            for _ in range(50):
                written = await writer.run(work, durable=True)
                row = beside.execute("SELECT pg_current_wal_flush_lsn() > %s::pg_lsn", (written,)).fetchone()
                assert row == (True,)


async def test_an_idle_connection_that_died_is_noticed_by_nobody(postgres_url: str) -> None:
    async with Store.open(postgres_url) as store:
        await store.pins.all()
        with outage(postgres_url):
            pass

        assert await store.pins.all() == []
        with outage(postgres_url):
            pass

        assert (await store.calls.verify()).problem == ""  # long, and on an idle connection too


async def test_a_store_that_cannot_be_reached_at_first_is_used_as_soon_as_it_can(postgres_url: str) -> None:
    with outage(postgres_url):
        store = Store.open(postgres_url)
        with pytest.raises(ToolFailure) as refused:
            await store.calls.intend(make_call(1))
    async with store:
        store.calls.note(make_call(3), DONE)
        assert await _recovered(store) == {"call-3": "ok"}
        await run_call(store, make_call(2))

        assert {row.id for row in await store.calls.list()} == {"call-2", "call-3"}

    assert refused.value.code == "storage"


async def test_the_calls_of_a_store_that_lost_its_server_are_its_own_again_when_it_is_back(postgres_url: str) -> None:
    async with Store.open(postgres_url) as store, Store.open(postgres_url) as other:
        await store.calls.intend(make_call(1))
        with outage(postgres_url):
            store.calls.note(make_call(9), DONE)
        await _recovered(store)
        await _recovered(other)

        assert await other.settle() == set()
        await store.calls.finish(make_call(1), DONE)
        assert {row.id: row.outcome for row in await store.calls.list()} == {"call-1": "ok", "call-9": "ok"}


async def test_a_url_that_names_no_database_is_told_without_its_password() -> None:
    store = Store.open("postgresql://ada:hunter22@127.0.0.1:1/none")
    with pytest.raises(ToolFailure) as refused:
        await store.calls.intend(make_call(1))
    await store.close()

    assert store.place == "postgresql://ada@127.0.0.1:1/none"
    assert "hunter22" not in str(refused.value)


async def test_no_failure_that_a_caller_sees_names_where_the_store_is_and_the_log_does(
    postgres_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of PostgreSQL host or socket, user and database, of a file the folder. Doctor reads `check`."""
    unreachable = "postgresql://ada@127.0.0.1:1/crib-db"
    missing = postgres_url.replace("/test_", "/crib-db_")
    nowhere = tmp_path / "crib-db"
    nowhere.write_text("a file where the folder should be")
    refused = [await _refusals(place) for place in (unreachable, missing, nowhere / "store.db")]
    async with Store.open(postgres_url) as store:
        await store.pins.all()
        with outage(postgres_url):
            refused.append(await _refusals_of(store))
    name = postgres_url.partition("?")[0].rpartition("/")[2]
    places = ["crib-db", "ada", "127.0.0.1", "postgres_", ".s.PGSQL", str(tmp_path), name, "connection to"]

    assert [(text, word) for texts in refused for text in texts for word in places if word in text] == []
    assert [word for word in ("127.0.0.1", "crib-db", name) if word not in caplog.text] == []


async def _refusals(place: Path | str) -> list[str]:
    async with Store.open(place) as store:
        return await _refusals_of(store)


async def _refusals_of(store: Store) -> list[str]:
    """What callers are told that write, read and read apart; each says that the store has failed."""
    texts: list[str] = []
    for attempt in (store.calls.intend(make_call(1)), store.pins.all(), store.calls.verify()):
        with pytest.raises(ToolFailure) as refused:
            await attempt
        assert (refused.value.code, bool(refused.value.hint)) == ("storage", True)
        texts.append(f"{refused.value} {refused.value.hint} {refused.value.details}")
    return texts


@pytest.mark.parametrize("password", ["hunter 22", "hunter%zz", "p@hunter22", "hunter22/x", "p/hunter22"])
def test_a_password_that_is_not_encoded_is_refused_without_it_and_with_what_to_write(password: str) -> None:
    with pytest.raises(UsageError, match=r"not a PostgreSQL URL: .*@ is written %40") as refused:
        Store.open(f"postgresql://ada:{password}@host/db")
    assert "hunter" not in str(refused.value)


async def test_places_that_are_no_store_are_refused_with_what_to_write() -> None:
    with pytest.raises(UsageError, match=r"mysql:… is not a store; give postgresql://"):
        Store.open("mysql://host/db")
    with pytest.raises(UsageError, match="not a PostgreSQL URL"):
        Store.open("postgresql://host/db?no_such_option=1")


async def _recovered(store: Store) -> dict[str, str]:
    """What is recorded once the store can be written again and nothing waits."""
    with anyio.fail_after(PATIENCE):
        while True:
            try:
                await store.flush()
                return {row.id: row.outcome for row in await store.calls.list()}
            except ToolFailure:
                await anyio.sleep(0.05)
