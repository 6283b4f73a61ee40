"""The agent queue under workers that are killed: each task is done once, and none stays with a dead worker.

    python bench/agent_queue_workers.py postgresql://… # 10,000 tasks, 100 workers in 8 processes, 4 killed every 2 s
    python bench/agent_queue_workers.py queue.db --tasks 500 --workers 20 --processes 4

A worker claims a task, begins it, and completes it: three transactions. It writes one result a task, in the transaction
that completes it. The lease is 3 s here, so that the run ends soon. `make bench` leaves this one out: it takes minutes,
and fails rather than prints where a task was done twice.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from agent_queue import fill, same

from toolcrib.plugin import Row, Rows, ToolFailure
from toolcrib.store.store import Store
from toolcrib_queue.model import SCHEMA
from toolcrib_queue.scheduler import assign, tick
from toolcrib_queue.state import fire, get_claimed

LEASE = 3.0
KILL_SECONDS = 2.0
PROJECTS = 10


def store_at(place: str) -> AbstractAsyncContextManager[Store]:
    return Store.open(place if "://" in place else Path(place))


async def work(store: Store, agent: str) -> None:
    """Do tasks until none is left to be done."""

    def take(rows: Rows) -> list[Row]:
        tick(rows)  # as `claim_task` does
        return assign(rows, [agent], lease=LEASE)

    def begin(task: Row, rows: Rows) -> None:
        fire(rows, get_claimed(rows, task["id"], task["generation"]), "AGENT_STARTED")

    def end(task: Row, rows: Rows) -> None:
        held = get_claimed(rows, task["id"], task["generation"], ("IN_PROGRESS",))
        values: dict[str, Any] = {"task_id": task["id"], "agent_id": agent, "result": "completed", "summary": ""}
        rest: dict[str, Any] = {"files_changed": [], "error_message": "", "tokens_used": 0, "evidence": []}
        rows.insert("results", {"project_id": task["project_id"], **values, **rest})
        fire(rows, fire(rows, held, "AGENT_COMPLETED"), "VERIFY_PASSED")

    async def write(change: Any) -> Any:
        return (await store.shared.write(SCHEMA, "local", same, change))[0]

    while True:
        made = await write(take)
        if not made:
            if not await write(left):
                return
            await anyio.sleep(0.2)
            continue
        task = made[0]
        try:
            await write(partial(begin, task))
            await anyio.sleep(random.uniform(0, 0.02))
            await write(partial(end, task))
        except ToolFailure as failure:
            if failure.code != "conflict":
                raise  # else it was late: the task is that of another worker by now


def left(rows: Rows) -> int:
    tick(rows)
    return int(rows.select("SELECT count(*) AS n FROM {tasks} AS t WHERE status <> 'COMPLETED'")[0]["n"])


async def be_process(place: str, number: int, workers: int) -> None:
    async with store_at(place) as store:
        await store.shared.prepare(SCHEMA)
        async with anyio.create_task_group() as group:
            for worker in range(workers):
                group.start_soon(work, store, f"agent-{number}-{worker}")


def fill_project(number: int, tasks: int, rows: Rows) -> None:
    fill(rows, f"p{number}", tasks)


def late(rows: Rows) -> tuple[float, int]:
    """Return how long the oldest claim is over its lease, and how many tasks are not done."""
    sql = "SELECT min(lease_until) AS oldest FROM {tasks} AS t WHERE status IN ('ASSIGNED', 'IN_PROGRESS')"
    oldest = rows.select(sql)[0]["oldest"]
    return (max(0.0, rows.now - oldest) if oldest else 0.0), left(rows)


async def main(place: str, tasks: int, workers: int, processes: int) -> None:
    async with store_at(place) as store:
        await store.shared.prepare(SCHEMA)
        for number in range(PROJECTS):
            await store.shared.write(SCHEMA, "local", same, partial(fill_project, number, tasks // PROJECTS))
        begun, killed, longest, many = time.monotonic(), 0, 0.0, 1

        def start(number: int) -> subprocess.Popen[bytes]:
            words = [sys.executable, __file__, place, "--be", str(number), "--workers", str(workers // processes)]
            return subprocess.Popen(words)

        running = [start(number) for number in range(processes)]
        while many:
            await anyio.sleep(KILL_SECONDS)
            over, many = (await store.shared.write(SCHEMA, "local", same, late))[0]
            longest = max(longest, over)
            for index in random.sample(range(processes), processes // 2) if many else ():
                running[index].kill()
                running[index].wait()
                killed += 1
                running[index] = start(processes + killed)
        for process in running:
            process.wait()

        def count(rows: Rows) -> Counter[int]:
            sql = "SELECT task_id, count(*) AS n FROM {results} AS r GROUP BY task_id"
            return Counter(int(row["n"]) for row in rows.select(sql))

        times = await store.shared.read(SCHEMA, "local", same, count, long=True)
        assert times == Counter({1: tasks // PROJECTS * PROJECTS}), times
    spent = time.monotonic() - begun
    print(
        f"{tasks:,} tasks, {workers} workers in {processes} processes, {killed} killed: each once, {spent:.0f} s,"
        f" {tasks / spent:.0f} tasks/s, a claim at most {longest:.1f} s over its lease of {LEASE:g} s"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", help="postgresql://… or a file")
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--be", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.be is not None:
        anyio.run(be_process, given.store, given.be, given.workers)
    else:
        anyio.run(main, given.store, given.tasks, given.workers, given.processes)
