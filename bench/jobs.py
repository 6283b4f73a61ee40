"""Background jobs: how many a second, and what each costs beside plain DBOS.

A job is a call of a trivial tool that goes through every step, with a row on disk before its id is told, an intent, a
record and a result that waits; where another process carries it, it goes through every step twice. The peer is a bare
workflow of a DBOS queue: an enqueue and an empty function, polled for every 50 ms, on SQLite in WAL mode. Both run in
one process each on the same machine, in turn.

Claims (issue 16, item 5): a job costs at most 1.5 times the CPU of plain DBOS; two workers make at least 1.6 times the
jobs of one, where each waits 50 ms and there are four principals; a worker that has had no job for 15 s uses at most
0.5 % of a core. The database server's CPU is not counted.

    python bench/jobs.py [--jobs 200] [--postgres URL]

Without a URL a PostgreSQL is started for the run. Workers are processes of their own; with 1, it also accepts the jobs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import sqlalchemy as sa
from databases import postgres
from dbos import DBOS, DBOSConfig, Serializer
from sqlalchemy import event

from toolcrib import Toolcrib, tool
from toolcrib.config import Directories, Settings
from toolcrib.config.settings import StoreSpec
from toolcrib.jobs.settings import JobLimits

WORKERS = (1, 4)
READY, PATIENCE = "ready", 300.0
MOST_OF_DBOS, LEAST_SPEEDUP, MOST_IDLE = 1.5, 1.6, 0.5
PRINCIPALS, WAIT_SECONDS, POLL_SECONDS = 4, 0.05, 0.05
ROUNDS = 7
"""Of one worker and of two, in turn; the medians count. A round takes a second or two, and single ones say anything: .9
to 4.7 times the jobs were measured of the same code on a busy machine."""
REST_SECONDS, IDLE_SECONDS = 15.0, 10.0
"""A worker rests after 10 s without a job; then its CPU is counted for so long."""


@tool(kind="write")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(kind="write")
async def pause(a: int) -> int:
    """Wait as a tool does that asks another machine."""
    await anyio.sleep(WAIT_SECONDS)
    return a


def settings(folder: Path, url: str, *, work: bool) -> Settings:
    limits = JobLimits(engine="durable", work=work, working=64, waiting=1_000_000, kept=1_000_000)
    places = Directories.of({"HOME": str(folder), "XDG_DATA_HOME": str(folder)})
    return Settings.of(
        places,
        builtins=False,
        mode="autonomous",
        jobs=limits,
        store=StoreSpec(url=url, key=b"0" * 32) if url else StoreSpec(key=b"0" * 32),
    )


async def ours(folder: Path, url: str, jobs: int, *, work: bool) -> dict[str, float]:
    """Accept jobs one after another, and wait until all have ended. Milliseconds and jobs a second."""
    async with Toolcrib(settings(folder, url, work=work)) as crib:
        crib.add(add)
        session = crib.session(profile="flat", key="bench")
        if work:
            warm = await session.call("add", {"a": 1, "b": 1}, background=True)
            await crib.jobs.result(warm.structured_content["task_id"], "local", PATIENCE)
        start, before = time.perf_counter(), time.process_time()
        ids: list[str] = []
        accepted: list[float] = []
        for number in range(jobs):
            begun = time.perf_counter()
            told = await session.call("add", {"a": number, "b": 1}, background=True)
            accepted.append(time.perf_counter() - begun)
            ids.append(told.structured_content["task_id"])
        for id in ids:
            result = await crib.jobs.result(id, "local", PATIENCE)
            assert result.error is None, result
        took, cpu = time.perf_counter() - start, time.process_time() - before
        alone = await latency(crib) if work else 0.0
    figures = {"jobs_s": jobs / took, "accept_ms": statistics.median(accepted) * 1000, "alone_ms": alone}
    return {**figures, "cpu_ms": cpu / jobs * 1000} if work else figures


async def latency(crib: Toolcrib) -> float:
    """Milliseconds from the call to the result of a single job, nothing else running."""
    session = crib.session(profile="flat")
    took: list[float] = []
    for _ in range(15):
        begun = time.perf_counter()
        told = await session.call("add", {"a": 1, "b": 1}, background=True)
        await crib.jobs.result(told.structured_content["task_id"], "local", PATIENCE)
        took.append(time.perf_counter() - begun)
    return statistics.median(took) * 1000


async def plain(folder: Path, url: str, jobs: int, worker: str) -> dict[str, float]:
    """Enqueue as many empty workflows on a queue of DBOS, and wait until all have run."""
    loop, done, ran = asyncio.get_running_loop(), anyio.Event(), 0

    @DBOS.workflow(name="nothing")
    def nothing(id: str) -> None:
        nonlocal ran
        ran += 1
        if ran == jobs:
            loop.call_soon_threadsafe(done.set)

    def enqueue(id: str) -> None:
        DBOS.enqueue_workflow_with_options(
            {"workflow_name": "nothing", "queue_name": "bench", "workflow_id": id, "queue_partition_key": "local"}, id
        )

    await anyio.to_thread.run_sync(launch, folder / "plain.db", url, worker)
    start, before = time.perf_counter(), time.process_time()
    enqueued: list[float] = []
    for number in range(jobs):
        begun = time.perf_counter()
        await anyio.to_thread.run_sync(enqueue, f"{worker}{number}")
        enqueued.append(time.perf_counter() - begun)
    with anyio.fail_after(PATIENCE):
        await done.wait()
    took, cpu = time.perf_counter() - start, time.process_time() - before
    await anyio.to_thread.run_sync(DBOS.destroy)
    return {
        "jobs_s": jobs / took,
        "accept_ms": statistics.median(enqueued) * 1000,
        "cpu_ms": cpu / jobs * 1000,
    }


def launch(file: Path, url: str, worker: str) -> None:
    """Start DBOS with one queue, whose settings are those that make it fastest."""
    logging.getLogger("dbos").setLevel(logging.ERROR)
    config: DBOSConfig = {
        "name": "bench",
        "executor_id": worker,
        "log_level": "ERROR",
        "serializer": _Json(),
        "use_listen_notify": False,
        "max_executor_threads": 72,
        "notification_listener_polling_interval_sec": 0.2,
        "scheduler_polling_interval_sec": 3600.0,
    }
    if url:
        config["system_database_url"] = url.replace("postgresql://", "postgresql+psycopg://", 1)
        config["sys_db_pool_size"] = 5
    else:
        config["system_database_url"] = f"sqlite:///{file}"
        config["system_database_engine"] = sqlite_engine(file)
    DBOS(config=config)
    DBOS.listen_queues(["bench"])
    DBOS.launch()
    DBOS.register_queue(
        "bench",
        worker_concurrency=64,
        partition_concurrency=64,
        polling_interval_sec=POLL_SECONDS,
        on_conflict="always_update",
    )


class _Json(Serializer):
    """Less than the serializer of DBOS, which pickles."""

    def serialize(self, data: Any) -> str:
        return json.dumps(data)

    def deserialize(self, serialized_data: str) -> Any:
        return json.loads(serialized_data)

    def name(self) -> str:
        return "bench_json"


def sqlite_engine(file: Path) -> sa.Engine:
    """Return an engine in WAL mode, which makes DBOS five times as fast."""
    engine = sa.create_engine(f"sqlite:///{file}")

    def configure(connection: Any, record: object) -> None:
        connection.isolation_level = "IMMEDIATE"
        for pragma in ("busy_timeout=30000", "foreign_keys=ON", "journal_mode=WAL", "synchronous=NORMAL"):
            connection.execute(f"PRAGMA {pragma}")

    event.listen(engine, "connect", configure)
    return engine


async def waiting(folder: Path, url: str, jobs: int, count: int) -> float:
    """Accept jobs that wait, of several principals, then start workers; return jobs a second from then on."""
    async with Toolcrib(settings(folder, url, work=False)) as crib:
        crib.add(pause)
        ids: list[tuple[str, str]] = []
        for principal in (f"principal-{number}" for number in range(PRINCIPALS)):
            session = crib.session(profile="flat", key=f"{count}-{principal}", principal=principal)
            calls = (session.call("pause", {"a": number}, background=True) for number in range(jobs // PRINCIPALS))
            ids += [(told.structured_content["task_id"], principal) for told in await asyncio.gather(*calls)]
        with workers(count, folder, url):
            start = time.perf_counter()
            for id, principal in ids:
                result = await crib.jobs.result(id, principal, PATIENCE)
                assert result.error is None, result
            return len(ids) / (time.perf_counter() - start)


def idle(folder: Path, url: str) -> float:
    """Return the percentage of a core that a worker without a job uses."""
    with workers(1, folder, url) as pids:
        time.sleep(REST_SECONDS)
        before = cpu(pids[0])
        time.sleep(IDLE_SECONDS)
        return (cpu(pids[0]) - before) / IDLE_SECONDS * 100


def cpu(pid: int) -> float:
    """Return the seconds of CPU of a process, of all its threads."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


async def serve(folder: Path, url: str) -> None:
    """Carry jobs until standard input ends: what `toolcrib worker` does."""
    async with Toolcrib(settings(folder, url, work=True)) as crib:
        crib.add(add, pause)
        print(READY, flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)


@contextmanager
def workers(count: int, folder: Path, url: str) -> Generator[list[int]]:
    """Run processes that carry jobs, until the block ends; yields their ids."""
    command = [sys.executable, __file__, "--serve", str(folder), "--postgres", url]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]
    try:
        for process in started:
            assert process.stdout is not None and process.stdout.readline().strip() == READY
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.communicate("", timeout=60)


def measured(store: str, url: str, jobs: int) -> list[dict[str, Any]]:
    """Measure one kind of store with every number of workers, and plain DBOS on it."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        bare = anyio.run(plain, folder, url, jobs, "bench")
        found.append({"store": store, "what": "plain DBOS", "workers": 1, **bare})
        for count in WORKERS:
            if count == 1:
                one = anyio.run(lambda: ours(folder, url, jobs, work=True))
            else:
                with workers(count, folder, url):
                    one = anyio.run(lambda: ours(folder, url, jobs, work=False))
            ratio = one["jobs_s"] / bare["jobs_s"]
            found.append({"store": store, "what": "toolcrib", "workers": count, **one, "of_dbos": ratio})
    return found


def goals(store: str, url: str, jobs: int, rows: list[dict[str, Any]]) -> list[tuple[str, float, float, str]]:
    """Return name, figure, goal and kind (`most`, `least`) of each claim on one kind of store."""
    bare, one = (
        next(row for row in rows if row["store"] == store and row["what"] == what)
        for what in ("plain DBOS", "toolcrib")
    )
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(ROUNDS):
        for count, found in rates.items():
            with tempfile.TemporaryDirectory() as place:
                found.append(anyio.run(waiting, Path(place), url, 2 * jobs, count))
    speedup = statistics.median(rates[2]) / statistics.median(rates[1])
    with tempfile.TemporaryDirectory() as place:
        unused = idle(Path(place), url)
    return [
        (f"{store}: CPU of a job, times plain DBOS", one["cpu_ms"] / bare["cpu_ms"], MOST_OF_DBOS, "most"),
        (f"{store}: jobs of two workers, times one", speedup, LEAST_SPEEDUP, "least"),
        (f"{store}: an idle worker, % of a core", unused, MOST_IDLE, "most"),
    ]


def main() -> None:
    """Print one JSON line and a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--postgres", default="")
    parser.add_argument("--serve", default="")
    options = parser.parse_args()
    if options.serve:
        anyio.run(serve, Path(options.serve), options.postgres)
        return
    rows = measured("sqlite", "", options.jobs)
    claims = goals("sqlite", "", options.jobs, rows)
    with postgres(options.postgres) as url:
        rows += measured("postgres", url, options.jobs)
        claims += goals("postgres", url, options.jobs, rows)
    print(json.dumps({"bench": "jobs", "jobs": options.jobs, "rows": rows, "goals": claims}))
    for row in rows:
        alone = f"{row['alone_ms']:8.1f}" if row.get("alone_ms") else "       –"
        ratio = f"{row['of_dbos']:6.2f}" if "of_dbos" in row else "     –"
        speed = f"{row['jobs_s']:7.1f} jobs/s {ratio} of DBOS  accept {row['accept_ms']:6.2f} ms"
        cost = f"  CPU {row['cpu_ms']:5.2f} ms" if "cpu_ms" in row else ""
        print(f"{row['store']:9} {row['what']:11} {row['workers']} worker(s)  {speed}  one alone {alone} ms{cost}")
    for name, figure, goal, kind in claims:
        held = figure <= goal if kind == "most" else figure >= goal
        print(f"{name:44} {figure:8.2f}   goal at {kind} {goal:g}: {'held' if held else 'missed'}")


if __name__ == "__main__":
    main()
