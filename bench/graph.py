"""CPU and wall time of the work graph, through the one door and below it, on a seeded SQLite file and on PostgreSQL.

    python bench/graph.py [--projects 42] [--nodes 2000] [--edges 6119] [--postgres URL] [--postgres-projects 6]

Seeds each store (PostgreSQL, where that takes ten times as long, with 6 projects), lets the database do its upkeep of
that, then measures: a write below the door without the disk's commits, a write through the door in turn with two
durable commits of one row on the same disk, a three-hop read, the graph of one project, a list of 50. Without a URL a
PostgreSQL is started for the run. Prints each goal of issue "Work graph" with "held" or "missed"; where it compares two
medians, the quotient of the minima as well: they have less of the machine's other load in them.
"""

from __future__ import annotations

import argparse
import os
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import psycopg
from databases import postgres

from toolcrib.config import bare
from toolcrib.crib import Toolcrib
from toolcrib.plugin import Rows
from toolcrib.store.store import Store
from toolcrib.system.memory import collect_seldom, keep_freed_memory
from toolcrib.telemetry.tokens import tokenizer
from toolcrib_work.graph.edges import End, canonical
from toolcrib_work.graph.model import KINDS, SCHEMA
from toolcrib_work.graph.nodes import insert_node, new_id

SHARES = {
    "goal": 0.03,
    "milestone": 0.05,
    "plan": 0.07,
    "task": 0.6,
    "document": 0.1,
    "risk": 0.08,
    "requirement": 0.07,
}
"""Kinds of the nodes of a project."""
RANDOM = random.Random(18)
WORDS = [f"word{number}" for number in range(2000)]


def same(value: Any) -> Any:
    return value


def add_edge(rows: Rows, project: str, src: End, rel: str, dst: End) -> None:
    src, rel, dst = canonical(src, rel, dst)
    ends = {"src_kind": src.kind, "src_id": src.id, "rel": rel, "dst_kind": dst.kind, "dst_id": dst.id}
    rows.insert("edges", {"project_id": project, **ends, "props": {}}, id=new_id())


def fill(rows: Rows, project: str, nodes: int, edges: int) -> dict[str, list[str]]:
    """Add one project: parents as kinds allow, 5 % of tasks with two, and dependencies without cycles."""
    rows.create_project(project)
    given = {"name": project, "type_key": "project.technical.bench"}
    insert_node(rows, KINDS["project"], project, given, id=project)
    ids: dict[str, list[str]] = {"project": [project]}
    parents = {"goal": "project", "milestone": "goal", "plan": "milestone", "task": "plan", "risk": "task"}
    made = 0
    for name, share in SHARES.items():
        kind = KINDS[name]
        ids[name] = []
        for number in range(round(nodes * share)):
            text = " ".join(RANDOM.choices(WORDS, k=20))
            row = insert_node(
                rows,
                kind,
                project,
                {kind.label: f"{name} {number}", **({"description": text} if "description" in kind.fields else {})},
            )
            ids[name].append(row["id"])
            parent = parents.get(name, "project")
            count = 2 if name == "task" and RANDOM.random() < 0.05 else 1
            for above in RANDOM.sample(ids[parent], count):
                add_edge(rows, project, End(parent, above), "contains", End(name, row["id"]))
                made += 1
    tasks, seen = ids["task"], set[tuple[int, int]]()
    while made + len(seen) < edges:
        later, earlier = RANDOM.randrange(1, len(tasks)), 0
        earlier = RANDOM.randrange(later)
        seen.add((later, earlier))
    for later, earlier in seen:
        add_edge(rows, project, End("task", tasks[later]), "depends_on", End("task", tasks[earlier]))
    return ids


GRAPH = "onto.project.graph.get"
COMMITS = "two durable commits of the disk"
SLOW_COMMIT = 4.0
"""Milliseconds of a commit of the disk for which the goal of a write was set; a fast one shows the write's CPU."""
HOPS = """
WITH RECURSIVE reached(id, hops) AS (
    SELECT one.dst_id, 1 FROM {edges} AS one WHERE one.src_id = ?
    UNION
    SELECT e.dst_id, reached.hops + 1 FROM reached JOIN {edges} AS e ON e.src_id = reached.id WHERE reached.hops < 3
)
SELECT count(DISTINCT id) AS n FROM reached
"""


def three_hops(rows: Rows, id: str) -> int:
    """Return how many entities are at most three edges away."""
    return rows.select(HOPS, (id,))[0]["n"]


Run = Callable[[int], Awaitable[Any]]
"""Runs an operation once, given the number of the run."""


class Figures:
    """Prints the time of each operation, and keeps its median for the goals."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.median: dict[str, float] = {}
        self.least: dict[str, float] = {}
        self.p95: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self.tokens = 0
        """Of a list of 50 tasks."""

    async def measure(self, times: int, **runs: Run) -> None:
        """Print the wall times and the CPU time of operations that run in turn, in milliseconds."""
        spent: dict[str, list[float]] = {name: [] for name in runs}
        cpu: dict[str, list[float]] = {name: [] for name in runs}
        for number in range(-1, times):
            for name, run in runs.items():
                used, begun = time.process_time(), time.perf_counter()
                await run(number)
                if number >= 0:  # the first one warms up
                    spent[name].append((time.perf_counter() - begun) * 1000)
                    cpu[name].append((time.process_time() - used) * 1000)
        for name in runs:
            self.cpu[name] = statistics.median(cpu[name])
            self.add(name, spent[name], f"   CPU min {min(cpu[name]):8.2f} ms   median {self.cpu[name]:8.2f} ms")

    def add(self, name: str, spent: list[float], more: str = "") -> None:
        """Keep and print the times of an operation in milliseconds."""
        spent.sort()
        self.least[name], self.median[name] = spent[0], statistics.median(spent)
        self.p95[name] = spent[min(len(spent) - 1, round(len(spent) * 0.95))]
        middle = f"min {spent[0]:8.2f} ms   median {self.median[name]:8.2f} ms   p95 {self.p95[name]:8.2f} ms"
        print(f"{self.store:10} {name:30} {middle}{more}", flush=True)


async def main(store: str, place: Path | str, folder: Path, given: argparse.Namespace) -> Figures:
    """Seed the store at `place`, a path or a URL, and measure it."""
    begun, ids, figures = time.perf_counter(), dict[str, list[str]](), Figures(store)
    project = f"p{given.projects - 1}"
    async with Store.open(place) as opened:
        await opened.shared.prepare(SCHEMA)
        for number in range(given.projects):
            ids, _ = await opened.shared.write(
                SCHEMA, "local", same, lambda rows, n=number: fill(rows, f"p{n}", given.nodes, given.edges)
            )
        count = f"{given.projects} projects of {given.nodes} nodes, {given.projects * given.edges:,} edges"
        print(f"{store}: seeded {count} in {time.perf_counter() - begun:.0f} s")
    if isinstance(place, str):
        with psycopg.connect(place, autocommit=True) as server:
            server.execute("VACUUM ANALYZE")  # what the server does anyway within minutes of so many inserts
            server.execute("CHECKPOINT")
    async with Store.open(place) as opened:
        await opened.shared.prepare(SCHEMA)
        await below(figures, opened, ids, project)
    with closing(sqlite3.connect(folder / f"{store}-commits.db", isolation_level=None)) as plain:
        plain.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE rows (value TEXT)")

        async def commits(number: int) -> None:
            for _ in range(2):
                plain.execute("INSERT INTO rows VALUES (?)", ("x" * 1000,))

        await through(figures, place, ids, project, commits)
    return figures


async def below(figures: Figures, store: Store, ids: dict[str, list[str]], project: str) -> None:
    bodies: list[float] = []

    async def insert(number: int) -> None:
        def work(rows: Rows) -> None:
            started = time.thread_time()
            row = insert_node(rows, KINDS["task"], project, {"title": f"new {number}", "description": "some words"})
            add_edge(rows, project, End("plan", ids["plan"][0]), "has_task", End("task", row["id"]))
            bodies.append((time.thread_time() - started) * 1000)

        await store.shared.write(SCHEMA, "local", same, work)

    async def read(number: int) -> None:
        await store.shared.read(
            SCHEMA, "local", same, lambda rows: three_hops(rows, ids["goal"][number % len(ids["goal"])]), long=False
        )

    await figures.measure(100, **{"a write below the door": insert})
    figures.add("of it CPU without the commit", bodies)

    async def trip(number: int) -> None:
        await store.shared.read(SCHEMA, "local", same, lambda rows: rows.role(project), long=False)

    await figures.measure(100, **{"three hops from a goal": read, "of it a read of one row": trip})


async def through(figures: Figures, place: Path | str, ids: dict[str, list[str]], project: str, commits: Run) -> None:
    """Measure operations through the door; `commits` runs two durable commits of the disk."""
    where = {"path": str(place)} if isinstance(place, Path) else {"url": place}
    settings = bare().with_values(builtins=("onto",), mode="autonomous", store=where)
    async with Toolcrib(settings) as crib:
        session = crib.session(profile="gateway", mode="autonomous", principal="local")
        collect_seldom()

        async def run(op: str, **args: Any) -> Any:
            result = await session.call("tool_exec", {"op": op, "args": args})
            assert not result.is_error, result.text
            return result

        async def measure(op: str, times: int, args_of: Callable[[int], dict[str, Any]]) -> None:
            async def work(number: int) -> None:
                await run(op, **args_of(number))

            await figures.measure(times, **{op: work})

        await measure("onto.task.get", 100, lambda n: {"task_id": ids["task"][n]})
        listed = await run("onto.task.list", project_id=project, limit=50)  # the newest are the seeded ones
        await measure("onto.task.list", 50, lambda n: {"project_id": project, "limit": 50})
        await measure("onto.search", 20, lambda n: {"query": "word7", "project_id": project})
        await measure(GRAPH, 20, lambda n: {"project_id": project})

        async def whole(number: int) -> None:
            await run(GRAPH, project_id=project, limit=100_000)

        await figures.measure(20, **{"the same, whole": whole})

        async def create(number: int) -> None:
            await run("onto.task.create", project_id=project, title=f"t{number}")

        await figures.measure(100, **{"onto.task.create": create, COMMITS: commits})
        figures.tokens = tokenizer().count(listed.text)
        print(f"50 tasks are {figures.tokens:,} tokens ({tokenizer().name})")


def slower(times: dict[str, float]) -> float:
    """Return the time of a write of two commits of a disk that takes `SLOW_COMMIT`: it has one commit of the disk."""
    own = times["onto.task.create"] - times[COMMITS] / 2
    return (own + SLOW_COMMIT) / (2 * SLOW_COMMIT)


def verdicts(sqlite: Figures, other: Figures) -> None:
    """Print each goal with its figure."""

    def goal(name: str, figure: float, most: float, unit: str, least: float | None = None) -> None:
        minima = "" if least is None else f" (minima: {least:.2f}{unit})"
        print(f"{name:58} {figure:8.2f}{unit:3} goal {most:g}: {'held' if figure <= most else 'missed'}{minima}")

    goal("a write, CPU without the commit", sqlite.median["of it CPU without the commit"], 2, " ms")
    goal("a write through the door, CPU", sqlite.cpu["onto.task.create"], 2, " ms")
    median, least = (times["onto.task.create"] / times[COMMITS] for times in (sqlite.median, sqlite.least))
    goal("a write through the door, of two commits of the disk", median, 1.3, " ×", least)
    median, least = (slower(times) for times in (sqlite.median, sqlite.least))
    goal(f"the same, computed for commits of {SLOW_COMMIT:g} ms", median, 1.3, " ×", least)
    goal("three hops, p95", sqlite.p95["three hops from a goal"], 2, " ms")
    goal(f"a list of 50 tasks, {tokenizer().name}", sqlite.tokens, 1500, "")
    goal("graph of a project through the door, a page, CPU", sqlite.cpu[GRAPH], 30, " ms")
    goal("graph of a project through the door, whole, CPU", sqlite.cpu["the same, whole"], 30, " ms")
    for name, figure in other.median.items():
        if not name.startswith(("of it", "two ")):
            least = other.least[name] / sqlite.least[name]
            goal(f"PostgreSQL of SQLite: {name}", figure / sqlite.median[name], 3, " ×", least)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--projects", type=int, default=42)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--edges", type=int, default=6119)
    parser.add_argument("--postgres", default="")
    parser.add_argument("--postgres-projects", type=int, default=6)
    given = parser.parse_args()
    keep_freed_memory()  # this and `collect_seldom` as `toolcrib serve` does
    with tempfile.TemporaryDirectory() as name, postgres(given.postgres) as url:
        folder = Path(name)
        os.environ["XDG_DATA_HOME"] = name  # whole graphs are artifacts: else they fill the quota of the user's own
        first = anyio.run(main, "SQLite", folder / "store.db", folder, given)
        given.projects = min(given.projects, given.postgres_projects)
        verdicts(first, anyio.run(main, "PostgreSQL", url, folder, given))
