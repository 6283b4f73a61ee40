"""The store on a SQLite file and on PostgreSQL: durable commits, calls at 64 at once, appended rows, point reads.

Goals (security.md R7): at least 300 durable commits a second, one after the other, and at least 3,000 calls a second
when 64 run at once; a call is two durable commits, its intent and its outcome. Beside each stands the bare driver doing
the least that could be called the same, in the same run on the same disk: one row, one commit, or one row read.

Of several rounds the fastest counts, since whatever else runs on the machine only ever adds. At durable
commits the store may beat the bare driver: it folds SQLite's log into the file more rarely.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from statistics import median

import anyio
import psycopg
from databases import postgres

from toolcrib.core.call import Call
from toolcrib.core.permission import Decision
from toolcrib.core.result import ToolResult
from toolcrib.core.session import SessionState
from toolcrib.core.tool import Tool
from toolcrib.store.definitions import Pin
from toolcrib.store.store import Store

ROUNDS, COMMITS, CALLS, AT_ONCE, READS = 5, 200, 3000, 64, 500
GOALS = {"durable": 300.0, "group": 3000.0}
SESSION = SessionState(key="bench", principal="ada")
TOOL = Tool(name="git__commit", source="git", local_name="commit")
DONE = ToolResult.of_text("done")
PIN = Pin(source="git", tool="commit", digest=b"\1" * 32, definition={"name": "commit"}, accepted=1.0, by="ada")
ROW = ("x" * 64, "y" * 200)


def make_call(number: int) -> Call:
    """A call as the pipeline would hand it over."""
    return Call(
        id=f"call-{number}-{time.monotonic_ns()}",
        name=TOOL.name,
        arguments={"message": "Fix it", "n": number},
        session=SESSION,
        tool=TOOL,
        decision=Decision(effect="allow", rule="mode autonomous"),
        started=time.monotonic(),
    )


async def durable(store: Store) -> None:
    """Put the intents of calls on the disk, one after the other."""
    for number in range(COMMITS):
        await store.calls.intend(make_call(number))


async def group(store: Store) -> None:
    """Run calls with 64 at once: intent and outcome of each on the disk before it goes on."""
    numbers = iter(range(CALLS))

    async def caller() -> None:
        for number in numbers:
            call = make_call(number)
            await store.calls.intend(call)
            await store.calls.finish(call, DONE)

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(caller)


async def append(store: Store) -> None:
    """Record reads, which wait for nobody, and let all of them reach the store."""
    for number in range(CALLS):
        store.calls.note(make_call(number), DONE)
    await store.flush()


async def read(store: Store) -> None:
    """Read one row, again and again."""
    for _ in range(READS):
        await store.pins.get("git", "commit")


WORKLOADS: dict[str, tuple[Callable[[Store], Awaitable[None]], int]] = {
    "durable": (durable, COMMITS),
    "group": (group, CALLS),
    "append": (append, CALLS),
    "read": (read, READS),
}


def bare_sqlite(path: Path) -> dict[str, Callable[[], object]]:
    """The least that sqlite3 can do, on a file that is as durable as ours."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE bare (a TEXT, b TEXT)")
    return {
        "durable": lambda: connection.execute("INSERT INTO bare VALUES (?, ?)", ROW),
        "read": lambda: connection.execute("SELECT * FROM bare LIMIT 1").fetchone(),
    }


def bare_psycopg(url: str) -> dict[str, Callable[[], object]]:
    """The least that psycopg can do."""
    connection = psycopg.connect(url, autocommit=True)
    connection.execute("CREATE TABLE bare (a TEXT, b TEXT)")
    return {
        "durable": lambda: connection.execute("INSERT INTO bare VALUES (%s, %s)", ROW),
        "read": lambda: connection.execute("SELECT * FROM bare LIMIT 1", ()).fetchone(),
    }


def timed(work: Callable[[], object], times: int) -> float:
    """How often a second `work` can be done."""
    start = time.perf_counter()
    for _ in range(times):
        work()
    return times / (time.perf_counter() - start)


async def measure(place: Path | str, bare: Mapping[str, Callable[[], object]]) -> dict[str, dict[str, float]]:
    """Return what was reached in a second: the store's best, the driver's best, and how the two compare.

    A round of the driver follows each of ours, and the median of their ratios counts: the disk of a shared machine is
    not the same from one second to the next.
    """
    ours, theirs = dict.fromkeys(WORKLOADS, 0.0), dict.fromkeys(bare, 0.0)
    ratios: dict[str, list[float]] = {name: [] for name in bare}
    async with Store.open(place) as store:
        await store.pins.put([PIN])
        for _ in range(ROUNDS):
            for name, (workload, count) in WORKLOADS.items():
                start = time.perf_counter()
                await workload(store)
                rate = count / (time.perf_counter() - start)
                ours[name] = max(ours[name], rate)
                if name in bare:
                    driver = timed(bare[name], count)
                    theirs[name] = max(theirs[name], driver)
                    ratios[name].append(rate / driver)
    return {"store": ours, "driver": theirs, "ratio": {name: median(found) for name, found in ratios.items()}}


async def main() -> None:
    """Print one JSON line and a table."""
    with tempfile.TemporaryDirectory(prefix="toolcrib-bench-") as folder:
        found = {"sqlite": await measure(Path(folder) / "store.db", bare_sqlite(Path(folder) / "bare.db"))}
        with postgres() as url:
            found["postgres"] = await measure(url, bare_psycopg(url))
    report(found)


def report(found: dict[str, dict[str, dict[str, float]]]) -> None:
    """Print what was measured, the ratio to the bare driver and whether the goals are met."""
    met = {kind: all(rates["store"][name] >= goal for name, goal in GOALS.items()) for kind, rates in found.items()}
    print(json.dumps({"bench": "store", "per_second": found, "goals": GOALS, "met": met}))
    for kind, rates in found.items():
        for name, rate in rates["store"].items():
            beside = ""
            if name in rates["driver"]:
                beside = f"{rates['ratio'][name]:6.2f} of the bare driver (best {rates['driver'][name]:,.0f} /s)"
            goal = f"   goal {GOALS[name]:,.0f}" if name in GOALS else ""
            print(f"{kind:9} {name:8} {rate:12,.0f} /s   {beside}{goal}")


if __name__ == "__main__":
    anyio.run(main)
