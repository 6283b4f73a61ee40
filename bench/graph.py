"""CPU and wall time of the work graph, through the one door and below it, on a seeded store.

    python bench/graph.py [--projects 42] [--nodes 2000] [--edges 6000]

Seeds a store in a temporary folder (SQLite), then measures: a write below the door without the disk's commits, a write
through the door beside one durable commit of the same disk, a three-hop read, the graph of one project, a list of 50.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio

from toolcrib.config import bare
from toolcrib.crib import Toolcrib
from toolcrib.plugin import Rows
from toolcrib.store.store import Store
from toolcrib_work.graph.edges import End, canonical, edges_of_many
from toolcrib_work.graph.model import KINDS, SCHEMA
from toolcrib_work.graph.nodes import insert_node

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
    rows.insert("edges", {"project_id": project, **ends, "props": {}})


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


def three_hops(rows: Rows, id: str) -> int:
    """Return how many entities are at most three edges away."""
    seen, edge = {id}, {id}
    for _ in range(3):
        edge = {one["dst_id"] for one in edges_of_many(rows, edge, "outgoing")} - seen
        seen |= edge
    return len(seen)


async def measured(name: str, times: int, run: Callable[[int], Awaitable[Any]]) -> float:
    """Print and return the median wall time in milliseconds; with it the 95th percentile and CPU time."""
    await run(-1)
    spent: list[float] = []
    cpu = time.process_time()
    for number in range(times):
        begun = time.perf_counter()
        await run(number)
        spent.append((time.perf_counter() - begun) * 1000)
    cpu = (time.process_time() - cpu) * 1000 / times
    spent.sort()
    p95 = spent[min(len(spent) - 1, round(len(spent) * 0.95))]
    print(f"{name:44} median {statistics.median(spent):8.2f} ms   p95 {p95:8.2f} ms   CPU {cpu:8.2f} ms")
    return statistics.median(spent)


async def main(projects: int, nodes: int, edges: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "store.db"
        begun, ids = time.perf_counter(), dict[str, list[str]]()
        async with Store.open(place) as store:
            await store.shared.prepare(SCHEMA)
            for number in range(projects):
                ids, _ = await store.shared.write(
                    SCHEMA, "local", same, lambda rows, n=number: fill(rows, f"p{n}", nodes, edges)
                )
            count = f"{projects} projects of {nodes} nodes, {projects * edges:,} edges"
            print(f"seeded {count} in {time.perf_counter() - begun:.0f} s, {place.stat().st_size >> 20} MiB")
            await below(store, ids, f"p{projects - 1}")
        await through(place, ids, f"p{projects - 1}")
        file = os.open(Path(folder) / "disk", os.O_CREAT | os.O_WRONLY)

        async def commit(number: int) -> None:
            os.write(file, b"x" * 4096)
            os.fdatasync(file)

        await measured("one durable commit of this disk", 100, commit)
        os.close(file)


async def below(store: Store, ids: dict[str, list[str]], project: str) -> None:
    async def insert(number: int) -> None:
        def work(rows: Rows) -> None:
            started = time.thread_time()
            row = insert_node(rows, KINDS["task"], project, {"title": f"new {number}", "description": "some words"})
            add_edge(rows, project, End("plan", ids["plan"][0]), "has_task", End("task", row["id"]))
            bodies.append((time.thread_time() - started) * 1000)

        await store.shared.write(SCHEMA, "local", same, work)

    bodies: list[float] = []
    await measured("a write, with its commit", 100, insert)
    print(f"{'a write, without its commit (CPU)':44} median {statistics.median(bodies):8.2f} ms")

    async def read(number: int) -> None:
        await store.shared.read(
            SCHEMA, "local", same, lambda rows: three_hops(rows, ids["goal"][number % len(ids["goal"])]), long=False
        )

    await measured("three hops from a goal", 100, read)


async def through(place: Path, ids: dict[str, list[str]], project: str) -> None:
    settings = bare().with_values(builtins=("onto",), mode="autonomous", store={"path": str(place)})
    async with Toolcrib(settings) as crib:
        session = crib.session(profile="gateway", mode="autonomous", principal="local")

        async def run(op: str, **args: Any) -> Any:
            result = await session.call("tool_exec", {"op": op, "args": args})
            assert not result.is_error, result.text
            return result

        await measured("onto.task.get", 100, lambda n: run("onto.task.get", task_id=ids["task"][n]))
        listed = await run("onto.task.list", project_id=project, limit=50)  # the newest are the seeded ones
        await measured("onto.task.list, 50", 50, lambda n: run("onto.task.list", project_id=project, limit=50))
        await measured(
            "onto.search in one project", 20, lambda n: run("onto.search", query="word7", project_id=project)
        )
        await measured("onto.project.graph.get", 20, lambda n: run("onto.project.graph.get", project_id=project))
        await measured("onto.task.create", 100, lambda n: run("onto.task.create", project_id=project, title=f"t{n}"))
        print(f"50 tasks are {len(listed.text) // 4:,} tokens (estimated, bytes / 4)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--projects", type=int, default=42)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--edges", type=int, default=6119)
    given = parser.parse_args()
    anyio.run(main, given.projects, given.nodes, given.edges)
