"""The agent queue: claims among many ready tasks, ticks over many projects, pages of a long list.

    python bench/agent_queue.py            # 10,000 ready tasks in 100 projects, 100,000 tasks in one list
    python bench/agent_queue.py --small

Claims, of a transaction's body in CPU time, which leaves out the disk's commits: p95 of a claim at most 5 ms, of a tick
over all projects at most 20 ms, of a page of 200 tasks at most 5 ms. `bench/agent_queue_workers.py` kills the workers.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from toolcrib.plugin import Row, Rows
from toolcrib.store.store import Store
from toolcrib_queue.model import SCHEMA
from toolcrib_queue.scheduler import assign, schedule, snapshot_of, tick
from toolcrib_queue.state import fire
from toolcrib_queue.tools.tasks import page_of

ORDER = ("READY", "COMPLETED")
_PART = 2000


def same(value: Any) -> Any:
    return value


def fill(rows: Rows, project: str, tasks: int, statuses: tuple[str, ...] = ("READY",), first: int = 0) -> None:
    if not first:
        rows.create_project(project)
        plain = {"name": project, "status": "ACTIVE", "credit_weight": 1.0, "max_concurrent_agents": 100}
        more = {"total_tokens_used": 0, "repo_url": "", "repo_default_branch": "main"}
        rows.insert("projects", {"project_id": project, **plain, **more}, id=project)
    for number in range(first, first + tasks):
        empty: dict[str, Any] = {name: [] for name in ("attachments", "acceptance", "plan")}
        zero = dict.fromkeys(("requires_approval", "retry_count", "generation", "is_plan_subtask"), 0)
        texts = {
            "title": f"Task {number}",
            "description": "",
            "error_message": "",
            "status": statuses[number % len(statuses)],
        }
        rest = {"priority": number % 7, "max_retries": 3, "baseline": dict[str, Any](), "llm_config": dict[str, Any]()}
        rows.insert("tasks", {"project_id": project, **empty, **zero, **texts, **rest}, id=f"{project}-{number}")


async def body(
    store: Store, name: str, times: int, work: Callable[[Rows, int], object], *, most: float | None = None
) -> None:
    """Print the CPU time of the body of a transaction in milliseconds, and whether the p95 is at `most` the goal."""
    spent: list[float] = []

    def timed(rows: Rows, number: int) -> None:
        begun = time.thread_time()
        work(rows, number)
        spent.append((time.thread_time() - begun) * 1000)

    for number in range(times):
        await store.shared.write(SCHEMA, "local", same, lambda rows, number=number: timed(rows, number))
    spent.sort()
    p95 = spent[min(len(spent) - 1, round(len(spent) * 0.95))]
    goal = f"   goal {most:g}: {'held' if p95 <= most else 'missed'}" if most is not None else ""
    print(f"{name:52} median {statistics.median(spent):7.2f} ms   p95 {p95:7.2f} ms (CPU){goal}")


async def main(projects: int, ready: int, listed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Store.open(Path(folder) / "claims.db") as store:
            await store.shared.prepare(SCHEMA)
            for number in range(projects):
                await store.shared.write(
                    SCHEMA, "local", same, lambda rows, n=number: fill(rows, f"p{n}", ready // projects)
                )

            def claim(rows: Rows, number: int) -> list[Row]:
                made = assign(rows, [f"agent-{number}"], project_id=f"p{number % projects}")
                assert len(made) == 1, number
                return made

            def claim_any(rows: Rows, number: int) -> None:
                (made,) = assign(rows, [f"any-{number}"])
                fire(rows, made, "EXECUTION_ERROR")

            await body(store, f"claim of one project, {ready:,} tasks ready", 200, claim, most=5)
            await body(store, f"claim and return, any of {projects} projects", 100, claim_any, most=5)
            await body(store, f"tick over {projects} projects, nothing due", 100, lambda rows, _: tick(rows), most=20)
            agents = tuple(f"a{number}" for number in range(20))
            await body(
                store,
                f"plan for 20 agents over {projects} projects",
                50,
                lambda rows, _: schedule(snapshot_of(rows, agents)),
            )
        async with Store.open(Path(folder) / "list.db") as store:
            await store.shared.prepare(SCHEMA)
            for number in range(0, listed, _PART):
                await store.shared.write(SCHEMA, "local", same, lambda rows, n=number: fill(rows, "p", _PART, ORDER, n))

            def page(rows: Rows, cursor: str = "") -> object:
                return page_of(rows, "p", ORDER, 200, cursor=cursor)

            await body(store, f"first page of {listed:,} tasks", 50, lambda rows, _: page(rows), most=5)
            ((task, *_), *_) = await store.shared.read(
                SCHEMA, "local", same, lambda rows: page_of(rows, "p", ORDER, 1, offset=listed // 2 + 100), long=False
            )
            cursor = f"{task['status']}:{task['priority']}:{task['id']}"
            await body(store, "a page in the middle", 50, lambda rows, _: page(rows, cursor), most=5)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    sizes = (10, 500, 2000) if parser.parse_args().small else (100, 10_000, 100_000)
    anyio.run(main, *sizes)
