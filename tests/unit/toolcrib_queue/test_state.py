"""Tasks change by the table of transitions, by claims that fence late workers, and by dependencies without cycles."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, get_args

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.errors import ToolFailure
from toolcrib.plugin import Row, Rows
from toolcrib.store.store import Store
from toolcrib_queue import scheduler
from toolcrib_queue.model import SCHEMA, TOOLS, TRANSITIONS, Event, Status, legal_events
from toolcrib_queue.scheduler import ProjectState, ReadyTask, Snapshot, assign, schedule, tick
from toolcrib_queue.state import LEASE_SECONDS, add_dependency, claim, fire, get_claimed, needs_of, release, renew

T = TypeVar("T")

PROJECT: dict[str, Any] = {
    "name": "Shop",
    "status": "ACTIVE",
    "credit_weight": 1.0,
    "max_concurrent_agents": 2,
    "total_tokens_used": 0,
    "repo_url": "",
    "repo_default_branch": "main",
}
TASK: dict[str, Any] = {
    "title": "One",
    "description": "",
    "status": "READY",
    "priority": 100,
    "requires_approval": 0,
    "attachments": [],
    "acceptance": [],
    "llm_config": {},
    "retry_count": 0,
    "max_retries": 3,
    "generation": 0,
    "baseline": {},
    "plan": [],
    "is_plan_subtask": 0,
    "error_message": "",
}


@dataclass
class Queue:
    """The tables of the queue for one person, at a time that the test sets."""

    store: Store
    now: list[float]

    async def run(self, work: Callable[[Rows], T]) -> T:
        return (await self.store.shared.write(SCHEMA, "ada", lambda value: value, work))[0]

    async def task(self, id: str, **values: Any) -> Row:
        return await self.run(lambda rows: rows.insert("tasks", {**TASK, "project_id": "shop", **values}, id=id))

    async def get(self, id: str) -> Row:
        return await self.run(lambda rows: rows.get("tasks", id))

    async def fire(self, id: str, *events: Event) -> Row:
        def work(rows: Rows) -> Row:
            task = rows.get("tasks", id)
            for event in events:
                task = fire(rows, task, event)
            return task

        return await self.run(work)

    async def claim(self, id: str, agent: str = "a") -> Row:
        return await self.run(lambda rows: claim(rows, rows.get("tasks", id), agent, None))

    async def need(self, id: str, other: str, type: str = "blocks") -> Row:
        return await self.run(lambda rows: add_dependency(rows, rows.get("tasks", id), rows.get("tasks", other), type))

    async def refused(self, work: Callable[[Rows], Any]) -> ToolFailure:
        with pytest.raises(ToolFailure) as caught:
            await self.run(work)
        return caught.value


@asynccontextmanager
async def open_queue() -> AsyncGenerator[Queue]:
    now = [1000.0]
    async with Store.open(None, clock=lambda: now[0]) as store:
        await store.shared.prepare(SCHEMA)
        made = Queue(store, now)

        def work(rows: Rows) -> None:
            rows.create_project("shop")
            rows.insert("projects", {**PROJECT, "project_id": "shop"}, id="shop")

        await made.run(work)
        yield made


@pytest.fixture
async def queue() -> AsyncGenerator[Queue]:
    async with open_queue() as made:
        yield made


def test_every_status_and_event_is_in_the_table_and_leads_somewhere() -> None:
    assert set(TRANSITIONS) == set(get_args(Status))
    assert {event for steps in TRANSITIONS.values() for event in steps} == set(get_args(Event))
    assert {status for steps in TRANSITIONS.values() for status in steps.values()} == set(get_args(Status))
    assert [status for status, steps in TRANSITIONS.items() if "ADMIN_RESTART" not in steps] == ["IN_PROGRESS"]


@pytest.mark.slow
async def test_each_event_leads_to_its_status_and_any_other_is_refused_with_the_legal_ones(queue: Queue) -> None:
    for number, (status, steps) in enumerate(TRANSITIONS.items()):
        for event in get_args(Event):
            id = f"{number}-{event}"
            await queue.task(id, status=status, assigned_agent_id="a", resume_after=2.0)
            if event in steps:
                changed = await queue.fire(id, event)
                # A READY task without unmet dependencies that is held back is promoted by the next tick only.
                assert (changed["status"], event) == (steps[event], event)
            else:
                failure = await queue.refused(lambda rows, id=id, event=event: fire(rows, rows.get("tasks", id), event))
                assert failure.code == "conflict"
                assert failure.details["legal_events"] == list(legal_events(status))
                assert {TOOLS[one] for one in steps if one in TOOLS} <= set(re.findall(r"\w+", failure.hint))
                assert (await queue.get(id))["status"] == status


async def test_a_late_worker_changes_nothing(queue: Queue) -> None:
    await queue.task("t")
    first = await queue.claim("t", "slow")
    queue.now[0] += LEASE_SECONDS + 1
    counts = await queue.run(tick)
    second = await queue.claim("t", "quick")
    late = await queue.refused(lambda rows: get_claimed(rows, "t", first["generation"]))
    held = await queue.run(lambda rows: renew(rows, get_claimed(rows, "t", second["generation"])))

    assert counts["recovered"] == 1
    assert (late.code, late.details) == ("conflict", {"status": "ASSIGNED", "generation": second["generation"]})
    assert (held["assigned_agent_id"], held["lease_until"]) == ("quick", queue.now[0] + LEASE_SECONDS)
    assert second["generation"] > first["generation"] + 1


async def test_a_claim_of_a_time_before_the_clock_was_set_back_ends_at_the_next_tick(queue: Queue) -> None:
    await queue.task("t")
    await queue.claim("t", "gone")
    queue.now[0] -= LEASE_SECONDS  # within a lease, its holder may be there
    early = await queue.run(tick)
    queue.now[0] -= 24 * 3600
    late = await queue.run(tick)

    assert (early["recovered"], late["recovered"]) == (0, 1)
    assert (await queue.claim("t", "quick"))["assigned_agent_id"] == "quick"


Step = tuple[str, str, float]
"""Worker, what it tries, and the seconds that pass before."""


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("ann", "bob")),
            st.sampled_from(("take", "renew", "end")),
            st.sampled_from((0.0, 1.0, LEASE_SECONDS, LEASE_SECONDS + 1)),
        ),
        max_size=20,
    )
)
def test_a_worker_renews_and_ends_its_claim_within_its_lease_only_and_after_it_the_task_is_claimed_at_once(
    steps: list[Step],
) -> None:
    anyio.run(follow, steps)


async def follow(steps: list[Step]) -> None:
    """Let workers do these steps, and compare each with a model: one holder, and the time until which it holds."""
    claims: dict[str, int] = {}
    holder, until, is_done = "", 0.0, False
    async with open_queue() as queue:
        await queue.task("t")
        for worker, action, seconds in steps:
            queue.now[0] += seconds
            is_held = bool(holder) and queue.now[0] <= until
            if action == "take":
                made = await queue.run(partial(take, worker))
                assert bool(made) == (not is_done and not is_held)
                if made:
                    holder, until, claims[worker] = worker, queue.now[0] + LEASE_SECONDS, made[0]["generation"]
                continue
            if worker not in claims:
                continue
            work = partial({"renew": extend, "end": end}[action], claims[worker])
            if not (is_held and worker == holder):
                assert (await queue.refused(work)).code == "conflict"
                continue
            await queue.run(work)
            until = queue.now[0] + LEASE_SECONDS
            is_done, holder = is_done or action == "end", "" if action == "end" else holder
        assert (await queue.get("t"))["status"] == "COMPLETED" or not is_done


def take(worker: str, rows: Rows) -> list[Row]:
    tick(rows)
    return [fire(rows, one, "AGENT_STARTED") for one in assign(rows, [worker])]


def extend(generation: int, rows: Rows) -> None:
    renew(rows, get_claimed(rows, "t", generation))


def end(generation: int, rows: Rows) -> None:
    fire(rows, fire(rows, get_claimed(rows, "t", generation), "AGENT_COMPLETED"), "VERIFY_PASSED")


async def test_a_claim_that_is_renewed_is_not_taken_away(queue: Queue) -> None:
    await queue.task("t")
    mine = await queue.claim("t")
    for _ in range(3):
        queue.now[0] += LEASE_SECONDS - 1
        await queue.run(lambda rows: renew(rows, get_claimed(rows, "t", mine["generation"])))
        assert (await queue.run(tick))["recovered"] == 0
    assert (await queue.get("t"))["status"] == "ASSIGNED"


async def test_only_a_ready_task_is_claimed(queue: Queue) -> None:
    await queue.task("t")
    await queue.claim("t")
    failure = await queue.refused(lambda rows: claim(rows, rows.get("tasks", "t"), "b", None))
    assert (failure.code, failure.details["status"]) == ("conflict", "ASSIGNED")


async def test_a_workspace_has_one_task_and_is_free_when_it_ends(queue: Queue) -> None:
    place = {"project_id": "shop", "workspace_path": "/w", "source_type": "link", "name": "w"}
    await queue.run(lambda rows: rows.insert("workspaces", place, id="w"))
    await queue.task("one")
    await queue.task("two")
    await queue.run(lambda rows: claim(rows, rows.get("tasks", "one"), "a", "w"))
    locked = await queue.refused(lambda rows: claim(rows, rows.get("tasks", "two"), "b", "w"))
    await queue.fire("one", "AGENT_STARTED", "AGENT_FAILED")
    free = await queue.run(lambda rows: rows.get("workspaces", "w"))
    await queue.run(lambda rows: claim(rows, rows.get("tasks", "two"), "b", "w"))
    taken_back = await queue.run(lambda rows: release(rows, rows.get("workspaces", "w")))

    assert locked.code == "conflict"
    assert (free["locked_by_task_id"], taken_back["locked_by_task_id"]) == (None, None)
    assert (await queue.get("two"))["status"] == "READY"


@pytest.mark.parametrize(("type", "is_held"), [("blocks", True), ("parent", True), ("related", False)])
async def test_only_blocks_and_parent_hold_a_task_back(queue: Queue, type: str, is_held: bool) -> None:
    await queue.task("one")
    await queue.task("two")
    held = await queue.need("two", "one", type)
    await queue.fire("one", "ASSIGNED", "AGENT_STARTED", "AGENT_COMPLETED", "VERIFY_PASSED")
    done = await queue.get("two")
    await queue.fire("one", "ADMIN_RESTART")

    assert (held["status"], done["status"]) == ("DEFINED" if is_held else "READY", "READY")
    assert (await queue.get("two"))["status"] == held["status"]
    assert [(one["id"], one["type"]) for one in await queue.run(lambda rows: needs_of(rows, "two"))] == [("one", type)]


async def test_dependencies_close_no_cycle_however_long(queue: Queue) -> None:
    for id in "abcd":
        await queue.task(id)
    await queue.need("b", "a")
    await queue.need("c", "b", "parent")
    await queue.need("d", "c")
    await queue.need("a", "d", "related")
    for id, other in (("a", "d"), ("a", "a")):
        failure = await queue.refused(
            lambda rows, id=id, other=other: add_dependency(rows, rows.get("tasks", id), rows.get("tasks", other))
        )
        assert failure.details["field_errors"][0]["path"] == "depends_on"


async def test_a_tick_moves_what_is_due_and_nothing_else(queue: Queue) -> None:
    await queue.task("paused", status="PAUSED", resume_after=1500.0)
    await queue.task("asked", status="WAITING_INPUT", assigned_agent_id="a", lease_until=1500.0)
    await queue.task("failed", status="FAILED", max_retries=1)
    await queue.task("waits", status="DEFINED")
    await queue.run(lambda rows: rows.update("tasks", "waits", {"title": "still"}))
    first = await queue.run(tick)
    again = await queue.run(tick)
    queue.now[0] = 1501.0
    later = await queue.run(tick)

    nothing = {"recovered": 0, "unanswered": 0, "resumed": 0, "retried": 0, "promoted": 0}
    assert first == {**nothing, "retried": 1, "promoted": 1}
    assert again == nothing
    assert later == {**nothing, "unanswered": 1, "resumed": 1}
    assert (await queue.get("failed"))["retry_count"] == 1
    await queue.fire("failed", "ASSIGNED", "AGENT_STARTED", "AGENT_FAILED")
    await queue.run(tick)
    assert (await queue.get("failed"))["status"] == "BLOCKED"


async def test_the_scheduler_assigns_by_priority_in_the_preferred_workspace_up_to_the_limit(queue: Queue) -> None:
    for id in ("w1", "w2", "w3"):
        place = {"project_id": "shop", "workspace_path": f"/{id}", "source_type": "link", "name": id}
        await queue.run(lambda rows, id=id, place=place: rows.insert("workspaces", place, id=id))
    await queue.task("late", priority=200)
    await queue.task("soon", priority=1, preferred_workspace_id="w2")
    await queue.task("next", priority=50)
    made = await queue.run(lambda rows: assign(rows, ["a", "b", "c"]))

    assert [(task["id"], task["assigned_agent_id"], task["workspace_id"]) for task in made] == [
        ("soon", "a", "w2"),
        ("next", "b", "w1"),
    ]
    assert await queue.run(lambda rows: assign(rows, ["c"])) == []


ready = st.builds(
    ReadyTask,
    id=st.sampled_from("abcdefgh"),
    priority=st.integers(0, 5),
    preferred_workspace_id=st.sampled_from([None, "w1", "w2"]),
)
project = st.builds(
    ProjectState,
    id=st.sampled_from(["p", "q", "r"]),
    status=st.sampled_from(["ACTIVE", "PAUSED"]),
    credit_weight=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    max_concurrent_agents=st.integers(0, 3),
    running=st.integers(0, 3),
    completed=st.integers(0, 2),
    used=st.integers(0, 1000),
    total_used=st.integers(0, 1000),
    budget_limit=st.sampled_from([None, 0, 500]),
    ready=st.lists(ready, unique_by=lambda task: task.id, max_size=6).map(tuple),
    workspaces=st.lists(st.sampled_from(["w1", "w2", "w3"]), unique=True).map(tuple),
    has_workspaces=st.booleans(),
)
snapshots = st.builds(
    Snapshot,
    agents=st.lists(st.sampled_from("uvwxyz"), max_size=6).map(tuple),
    projects=st.lists(project, unique_by=lambda one: one.id, max_size=3).map(tuple),
    is_paused=st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(snapshots)
@pytest.mark.slow
def test_whatever_the_snapshot_assignments_keep_every_bound(snapshot: Snapshot) -> None:
    made = schedule(snapshot)
    projects = {one.id: one for one in snapshot.projects}

    assert made == schedule(snapshot)
    assert len({one.agent_id for one in made}) == len(made)
    assert len({(one.project_id, one.task_id) for one in made}) == len(made)
    assert not (made and snapshot.is_paused)
    for id, one in projects.items():
        own = [each for each in made if each.project_id == id]
        places = [each.workspace_id for each in own if each.workspace_id]
        tasks = {task.id: task for task in one.ready}
        assert {each.task_id for each in own} <= tasks.keys()
        assert one.status == "ACTIVE" or not own
        assert len(own) <= max(0, one.max_concurrent_agents - one.running)
        assert one.budget_limit is None or one.total_used < one.budget_limit or not own
        assert len(set(places)) == len(places)
        assert set(places) <= set(one.workspaces)
        assert bool(places) == bool(one.has_workspaces and own)
        first = sorted(one.ready, key=lambda task: (task.priority, task.id))[: len(own)]
        assert [each.task_id for each in own] == [task.id for task in first]
    idle = set(snapshot.agents) - {one.agent_id for one in made}
    if idle and not snapshot.is_paused:
        left = [
            one
            for one in snapshot.projects
            if one.status == "ACTIVE"
            and len(one.ready) > sum(each.project_id == one.id for each in made)
            and one.running + sum(each.project_id == one.id for each in made) < one.max_concurrent_agents
            and (one.budget_limit is None or one.total_used < one.budget_limit)
            and (not one.has_workspaces or len(one.workspaces) > sum(each.project_id == one.id for each in made))
        ]
        assert left == []


def test_a_project_that_completed_nothing_comes_first_then_the_one_below_its_share() -> None:
    work = (ReadyTask(id="t", priority=1),)
    fresh = ProjectState(id="fresh", used=900, ready=work)
    poor = ProjectState(id="poor", used=10, completed=1, ready=work)
    heavy = ProjectState(id="heavy", used=60, completed=1, credit_weight=8.0, ready=work)
    made = schedule(Snapshot(agents=("a", "b", "c"), projects=(poor, fresh, heavy)))

    assert [one.project_id for one in made] == ["fresh", "heavy", "poor"]
    assert scheduler.schedule(Snapshot(agents=(), projects=(fresh,))) == ()
