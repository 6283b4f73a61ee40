"""Events of hooks: each is handled once, though it is published twice and its handler is interrupted."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from toolcrib import Toolcrib
from toolcrib.plugin import Rows
from toolcrib_queue.model import SCHEMA
from toolcrib_queue.state import publish
from unit.toolcrib_queue.conftest import Person

SMALL, FULL = 40, 5000
"""Events; two hooks handle each."""
_EVERY = 7
"""One of so many looks at the queue is interrupted."""


def same(value: Any) -> Any:
    return value


def crash(rows: Rows) -> None:
    """Leave what processes leave that end in the middle: begun runs, which are made again after 900 s."""
    for row in rows.select("SELECT id FROM {hook_runs} AS r WHERE status = 'due' ORDER BY id LIMIT 1"):
        rows.update("hook_runs", row["id"], {"status": "running", "generation": 1})
    for row in rows.select("SELECT id FROM {hook_runs} AS r WHERE status = 'running'"):
        rows.update("hook_runs", row["id"], {"started_at": 0.0})


@pytest.mark.timeout(1800)
async def test_each_event_is_handled_once_though_it_comes_twice_and_handlers_are_interrupted(
    ada: Person, crib: Toolcrib, full_size: bool
) -> None:
    number = FULL if full_size else SMALL
    project = (await ada.ok("create_project", name="Shop"))["created"]
    trigger = {"type": "event", "event_type": "order.placed"}
    given = {"project_id": project, "trigger": trigger, "cooldown_seconds": 0}
    steps = [{"type": "db_query", "query": "recent_events"}]
    for name in ("Pack", "Bill"):
        await ada.ok("create_hook", name=name, prompt_template="{{event.order}}", context_steps=steps, **given)
    task = await ada.task("Orders", project_id=project)

    def place(rows: Rows) -> None:
        for order in range(number):
            for _ in range(2):
                publish(rows, "order.placed", {**rows.get("tasks", task), "revision": order}, order=order)

    await crib.store.shared.write(SCHEMA, "ada", same, place)
    looks = 0
    while True:
        looks += 1
        with anyio.move_on_after(0.02 if looks % _EVERY == 1 else 60):
            runs = (await ada.ok("run_queue"))["runs"]
            if not runs:
                break
        await crib.store.shared.write(SCHEMA, "ada", same, crash)

    def handled(rows: Rows) -> list[str]:
        sql = "SELECT title, description FROM {tasks} AS t WHERE project_id = ? AND id <> ?"
        return sorted(f"{row['title']} {row['description']}" for row in rows.select(sql, (project, task)))

    found = await crib.store.shared.read(SCHEMA, "ada", same, handled, long=False)
    assert found == sorted(f"Hook: {name} {order}" for name in ("Pack", "Bill") for order in range(number))
