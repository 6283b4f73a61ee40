"""Queries of a store in PostgreSQL: some at a time, in threads; equal ones of callers that wait together run once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator

import psycopg
import pytest

from rig import PATIENCE, eventually
from toolcrib.errors import ToolFailure
from toolcrib.store.database import Connection
from toolcrib.store.readers import Reader
from toolcrib.store.store import database_at
from toolcrib.store.threads import Writer


class Counted:
    """A query that counts its runs, and waits in each until it may go on."""

    def __init__(self) -> None:
        self.runs = 0
        self.go = threading.Event()

    def __call__(self, connection: Connection) -> int:
        self.runs += 1
        run = self.runs
        assert self.go.wait(PATIENCE)
        return connection.execute("SELECT ?", (run,)).fetchone()[0]


@pytest.fixture
async def reader(postgres_url: str) -> AsyncGenerator[Reader]:
    database = database_at(postgres_url)
    reader = Reader(database, Writer(database))
    yield reader
    reader.close()


async def test_equal_queries_of_callers_that_wait_together_run_once(reader: Reader) -> None:
    before, query = Counted(), Counted()
    query.go.set()
    busy = [asyncio.create_task(reader.read(before)) for _ in range(4)]
    await eventually(lambda: before.runs == 4)
    asked = [asyncio.create_task(reader.read(query, shared="one")) for _ in range(20)]
    other = asyncio.create_task(reader.read(query, shared="other"))
    await asyncio.sleep(0)
    before.go.set()

    assert len({*await asyncio.gather(*asked), await other}) == query.runs == 2
    assert sorted(await asyncio.gather(*busy)) == [1, 2, 3, 4]


async def test_a_query_that_has_begun_is_not_shared_by_who_asks_later(reader: Reader) -> None:
    query = Counted()
    first = asyncio.create_task(reader.read(query, shared="one"))
    await eventually(lambda: query.runs == 1)
    second = asyncio.create_task(reader.read(query, shared="one"))
    await eventually(lambda: query.runs == 2)
    query.go.set()

    assert (await first, await second) == (1, 2)


async def test_many_queries_that_wait_all_run_and_one_that_fails_fails_alone(reader: Reader) -> None:
    def fail(connection: Connection) -> None:
        raise OSError("the network is gone")

    tasks = [asyncio.create_task(reader.read(lambda _, number=number: number)) for number in range(200)]
    with pytest.raises(ToolFailure) as failed:
        await reader.read(fail)

    assert (failed.value.code, str(failed.value.__cause__)) == ("storage", "the network is gone")
    assert await asyncio.gather(*tasks) == list(range(200))


async def test_a_query_whose_caller_has_gone_leaves_no_connection_behind(reader: Reader) -> None:
    used: list[Connection] = []
    query = Counted()

    def keep(connection: Connection) -> int:
        used.append(connection)
        return query(connection)

    task = asyncio.create_task(reader.read(keep))
    await eventually(lambda: query.runs == 1)
    task.cancel()
    reader.close()
    query.go.set()

    def is_closed() -> bool:
        try:
            used[0].execute("SELECT 1")
        except psycopg.OperationalError:
            return True
        return False

    await eventually(is_closed)
