"""Events of hooks: each is handled once, though it is published twice and its handler is interrupted."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from toolcrib import Toolcrib
from toolcrib.plugin import Role, Rows
from toolcrib_queue.events import publish
from toolcrib_queue.model import SCHEMA
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
    trigger = {"type": "event", "event_type": "note.created"}
    given = {"project_id": project, "trigger": trigger, "cooldown_seconds": 0}
    steps = [{"type": "db_query", "query": "recent_events"}]
    for name in ("Pack", "Bill"):
        await ada.ok("create_hook", name=name, prompt_template="{{event.order}}", context_steps=steps, **given)
    task = await ada.task("Orders", project_id=project)

    def place(rows: Rows) -> None:
        for order in range(number):
            for _ in range(2):
                publish(rows, "note.created", {**rows.get("tasks", task), "revision": order}, order=order)

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


async def test_hooks_and_playbooks_that_start_each_other_end(ada: Person) -> None:
    project = (await ada.ok("create_project", name="Shop"))["created"]
    trigger = {"type": "event", "event_type": "task.created"}
    given = {"project_id": project, "trigger": trigger, "prompt_template": "x", "cooldown_seconds": 0}
    hooks = [(await ada.ok("create_hook", name=name, **given))["created"] for name in ("Ping", "Pong")]
    await ada.task("One", project_id=project)

    while (await ada.ok("run_queue"))["runs"]:
        pass
    runs = [run for id in hooks for run in (await ada.ok("list_hook_runs", hook_id=id, limit=100))["runs"]]
    made, skipped = ([run for run in runs if run["status"] == status] for status in ("completed", "skipped"))

    assert (len(made), len(skipped), len(runs)) == (20, 2, 22), "each answers the task and nine of the other's"
    assert {run["skipped_reason"].split()[0] for run in skipped} == {"10"}


async def test_a_hook_whose_run_goes_on_does_not_hold_up_the_others(ada: Person, crib: Toolcrib) -> None:
    project = (await ada.ok("create_project", name="Shop"))["created"]
    given = {"project_id": project, "prompt_template": "x", "cooldown_seconds": 0}
    slow, quick = [
        (await ada.ok("create_hook", **given, name=type, trigger={"type": "event", "event_type": type}))["created"]
        for type in ("task.created", "project.paused")
    ]
    await ada.task("One", project_id=project)

    def begin(rows: Rows) -> None:
        (run,) = rows.select("SELECT id FROM {hook_runs} AS r WHERE status = 'due'")
        rows.update("hook_runs", run["id"], {"status": "running", "generation": 1, "started_at": rows.now})

    await crib.store.shared.write(SCHEMA, "ada", same, begin)
    for number in range(30):
        await ada.task(str(number), project_id=project)
    await ada.ok("pause_project", project_id=project)
    await ada.ok("run_queue")

    states = [(await ada.ok("list_hook_runs", hook_id=one))["runs"][0]["status"] for one in (slow, quick)]
    assert states == ["due", "completed"]


@pytest.mark.process
async def test_the_steps_of_a_hook_run_with_the_rights_of_its_author_alone(
    ada: Person, eve: Person, crib: Toolcrib, tmp_path: Path
) -> None:
    eve.session.state.rules = (("deny", ("run_command",)),)
    project = (await ada.ok("create_project", name="Shop"))["created"]
    await crib.store.shared.write(SCHEMA, "ada", same, lambda rows: rows.set_member(project, "eve", "editor"))
    steps = [{"type": "shell", "command": "touch denied"}]
    hook = {"trigger": {"type": "webhook"}, "prompt_template": "Look", "project_id": project}
    hers = (await eve.ok("create_hook", name="Hers", context_steps=steps, **hook))["created"]
    other = (await ada.ok("create_hook", name="Other", **hook))["created"]
    await eve.ok("receive_webhook", hook_id=hers)

    by_ada = (await ada.ok("run_queue"))["runs"]
    changed = await eve.refused("edit_hook", hook_id=other, context_steps=steps)
    (by_eve,) = (await eve.ok("run_queue"))["runs"]

    assert (by_ada, changed.code, by_eve["status"]) == ([], "denied", "failed")
    assert "denied by deny run_command" in by_eve["skipped_reason"]
    assert not (tmp_path / "denied").exists()


@pytest.mark.parametrize("role", [None, "viewer"])
async def test_a_hook_whose_author_may_not_change_the_project_any_more_is_skipped_with_the_reason(
    ada: Person, eve: Person, crib: Toolcrib, role: Role | None
) -> None:
    project = (await ada.ok("create_project", name="Shop"))["created"]

    async def share(role: Role | None) -> None:
        await crib.store.shared.write(SCHEMA, "ada", same, lambda rows: rows.set_member(project, "eve", role))

    await share("editor")
    steps = [{"type": "db_query", "query": "hook_runs"}]
    hook = {"trigger": {"type": "webhook"}, "prompt_template": "Look", "project_id": project}
    hers = (await eve.ok("create_hook", name="Hers", context_steps=steps, **hook))["created"]
    fired = await ada.ok("fire_hook", hook_id=hers)
    waits = (await ada.ok("run_queue"))["runs"]
    await share(role)

    by_eve = (await eve.ok("run_queue"))["runs"]
    (by_ada,) = (await ada.ok("run_queue"))["runs"]

    assert (fired["status"], waits, by_eve, by_ada["id"], by_ada["status"]) == (
        "due",
        [],
        [],
        fired["run_id"],
        "skipped",
    )
    assert "'eve', who may not change the project any more" in by_ada["skipped_reason"]


async def test_a_hook_does_not_hear_of_the_end_of_the_tasks_that_it_created(ada: Person) -> None:
    agent = await ada.agent("Ann")
    project = (await ada.ok("create_project", name="Shop"))["created"]
    given = {"project_id": project, "prompt_template": "Look at it.", "cooldown_seconds": 0}
    await ada.ok("create_hook", **given, name="H", trigger={"type": "event", "event_type": "task.completed"})
    await ada.task("One", project_id=project)

    made: list[int] = []
    for _ in range(2):
        await ada.ok("complete_task", **await ada.claimed(agent), summary="done")
        made.append(len((await ada.ok("run_queue"))["runs"]))

    assert made == [1, 0]


async def test_the_start_of_another_attempt_has_no_error_of_the_one_before(ada: Person) -> None:
    agent = await ada.agent()
    await ada.task()
    await ada.ok("fail_task", **await ada.claimed(agent), error_message="no pigment")
    await ada.claimed(agent)

    events = (await ada.ok("queue_events", limit=2))["events"]
    assert [(one["type"], one.get("error_message")) for one in events] == [
        ("task.started", None),
        ("task.failed", "no pigment"),
    ]


async def heard(ada: Person, project: str) -> list[tuple[str, str]]:
    """Return the events of a project, the oldest first, with their subjects."""
    found = (await ada.ok("queue_events", project_id=project, limit=200))["events"]
    return [(one["type"], one["title"]) for one in reversed(found)]


async def test_hooks_hear_of_projects_agents_notes_and_chains_that_are_stuck(ada: Person) -> None:
    agent = await ada.agent("Ann")
    home = (await ada.ok("queue_events", limit=1))["events"][0]["project_id"]
    project = (await ada.ok("create_project", name="Shop"))["created"]
    for place, type in ((home, "agent.paused"), (project, "chain.stuck"), (project, "project.paused")):
        trigger = {"type": "event", "event_type": type}
        await ada.ok("create_hook", project_id=place, name=type, trigger=trigger, prompt_template="{{event.title}}")
    first = await ada.task("Mix paint", project_id=project, max_retries=0)
    await ada.task("Paint", project_id=project, depends_on=[first])

    await ada.ok("fail_task", **await ada.claimed(agent), error_message="no pigment")
    runs = (await ada.ok("run_queue"))["runs"]
    await ada.ok("reopen_with_feedback", task_id=first, feedback="Take the red one.")
    for tool, named in (("pause_agent", {"agent_id": agent}), ("pause_project", {"project_id": project})):
        for _ in range(2):
            await ada.ok(tool, **named)
    runs += (await ada.ok("run_queue"))["runs"]
    made = [(await ada.ok("get_task", task_id=one["task_id"]))["description"] for one in runs]
    await ada.ok("resume_agent", agent_id=agent)
    await ada.ok("delete_agent", agent_id=agent)

    assert [(type, title) for type, title in await heard(ada, project) if not title.startswith("Hook: ")] == [
        ("project.created", "Shop"),
        ("task.created", "Mix paint"),
        ("task.created", "Paint"),
        ("task.started", "Mix paint"),
        ("task.failed", "Mix paint"),
        ("task.blocked", "Mix paint"),
        ("chain.stuck", "Mix paint"),
        ("note.created", "Mix paint"),
        ("project.paused", "Shop"),
    ]
    assert [type for type, title in await heard(ada, home) if title == "Ann"] == [
        "agent.created",
        "agent.paused",
        "agent.resumed",
        "agent.deleted",
    ]
    assert sorted(text.splitlines()[2] for text in made) == ["Ann", "Mix paint", "Shop"]


async def file_clock(folder: Path) -> None:
    """Wait until the clock of the file system, which is a few milliseconds behind, has passed this moment."""
    moment, probe = time.time(), folder / "probe"
    while True:
        probe.write_text("")
        if probe.stat().st_ctime > moment:
            return
        await anyio.lowlevel.checkpoint()


async def changes_heard(ada: Person, project: str) -> list[tuple[str, str]]:
    await ada.ok("run_queue")
    return sorted((type, title) for type, title in await heard(ada, project) if type.endswith(".changed"))


async def test_changes_of_files_are_events_while_something_waits_for_them(ada: Person, tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    (shop / "docs").mkdir(parents=True)
    (shop / "docs" / "plan.md").write_text("before")
    project = (await ada.ok("create_project", name="Shop"))["created"]
    await ada.ok("add_workspace", project_id=project, source="link", path="shop")
    await file_clock(tmp_path)
    (shop / "unseen.md").write_text("nobody waits")
    nobody_waits = await changes_heard(ada, project)
    hook = {"name": "Look", "trigger": {"type": "event", "event_type": "file.changed"}, "cooldown_seconds": 0}
    id = (await ada.ok("create_hook", project_id=project, prompt_template="{{event.path}}", **hook))["created"]
    await file_clock(tmp_path)
    (shop / "docs" / "plan.md").write_text("after")
    (shop / "docs" / "new.md").write_text("new")
    (shop / "docs" / os.fsdecode(b"\xff.md")).write_text("not UTF-8")
    (shop / "docs" / "link").symlink_to(tmp_path)
    (shop / "docs" / "__pycache__").mkdir()
    (shop / "docs" / "__pycache__" / "x.pyc").write_text("")
    first, second = [await changes_heard(ada, project) for _ in range(2)]
    for _ in range(2):
        await ada.ok("run_queue")
    runs = (await ada.ok("list_hook_runs", hook_id=id))["runs"]
    made = {(await ada.ok("get_task", task_id=run["task_id"]))["description"].splitlines()[2] for run in runs}

    assert nobody_waits == []
    assert (
        first
        == second
        == [
            ("file.changed", "docs/new.md"),
            ("file.changed", "docs/plan.md"),
            ("file.changed", "docs/\ufffd.md"),
            ("folder.changed", "docs"),
        ]
    )
    assert made == {"docs/new.md", "docs/plan.md", "docs/\ufffd.md"}


async def test_what_an_agent_changes_during_its_task_and_what_others_added_is_no_event(
    ada: Person, eve: Person, crib: Toolcrib, tmp_path: Path
) -> None:
    project, made = (await ada.ok("create_project", name="Shop"))["created"], list[str]()
    for who, name in ((ada, "hers"), (eve, "his")):
        (tmp_path / name).mkdir()
        await crib.store.shared.write(SCHEMA, "ada", same, lambda rows: rows.set_member(project, "eve", "editor"))
        made.append((await who.ok("add_workspace", project_id=project, source="link", path=name))["created"])
    same_folder = (await ada.ok("create_project", name="Yard"))["created"]

    def share(rows: Rows) -> None:
        """Add a folder of another project, as a run in the folder of its session does."""
        kept = rows.get("workspaces", made[0])
        rows.insert(
            "workspaces",
            {name: kept[name] for name in SCHEMA.table("workspaces").columns} | {"project_id": same_folder},
        )

    await crib.store.shared.write(SCHEMA, "ada", same, share)
    hook = {"name": "Look", "trigger": {"type": "event", "event_type": "file.changed"}}
    await ada.ok("create_hook", project_id=same_folder, prompt_template="{{event.path}}", **hook)
    source = "name: P\ntriggers: [folder.changed]\nnodes: {a: {prompt: Read it., goto: b}, b: {terminal: true}}\n"
    await ada.ok("save_playbook", source=source, project_id=project)
    agent, _ = await ada.agent(), await ada.task("Paint", project_id=project, preferred_workspace_id=made[0])
    await file_clock(tmp_path)
    claim = await ada.claimed(agent)
    (tmp_path / "hers" / "made.md").write_text("by the agent")
    (tmp_path / "his" / "his.md").write_text("of another member")
    during = await changes_heard(ada, project)
    await ada.ok("complete_task", **claim, summary="Done.")
    after = await changes_heard(ada, project)
    after += await changes_heard(ada, same_folder)
    by_eve = await changes_heard(eve, project)

    assert (during, after) == ([], [])
    assert by_eve == [("file.changed", "his.md"), ("folder.changed", ".")]


def calls_of_hours(crib: Toolcrib) -> Callable[[], Awaitable[int]]:
    """Return a function that returns how many calls the times of the next hour make."""
    scheduler = crib.schedules.scheduler
    now = scheduler.clock()
    scheduler.clock = lambda: now

    async def calls() -> int:
        nonlocal now
        before = len([row for row in await crib.store.calls.list() if row.origin == "schedule"])
        for _ in range(3):
            now += 1200
            await scheduler.fire_due()
        await crib.store.flush()
        return len([row for row in await crib.store.calls.list() if row.origin == "schedule"]) - before

    return calls


async def test_a_changed_file_is_something_to_do(ada: Person, crib: Toolcrib, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    project = (await ada.ok("create_project", name="Shop"))["created"]
    await ada.ok("add_workspace", project_id=project, source="link", path="shop")
    hook = {"name": "Look", "trigger": {"type": "event", "event_type": "folder.changed"}}
    await ada.ok("create_hook", project_id=project, prompt_template="{{event.path}}", **hook)
    calls = calls_of_hours(crib)
    before = await calls()
    await file_clock(tmp_path)
    (tmp_path / "shop" / "new.md").write_text("new")

    assert (before, await calls(), await calls()) == (0, 1, 0)
    assert [type for type, _ in await heard(ada, project) if type.endswith(".changed")] == [
        "file.changed",
        "folder.changed",
    ]


async def test_the_queue_is_called_at_its_times_only_when_there_is_something_to_do(ada: Person, crib: Toolcrib) -> None:
    project = (await ada.ok("create_project", name="Shop"))["created"]
    trigger = {"type": "event", "event_type": "task.failed"}
    await ada.ok("create_hook", project_id=project, name="Look", trigger=trigger, prompt_template="{{event.title}}")
    source = "name: P\ntriggers: [task.blocked]\nnodes: {a: {prompt: Read it., goto: b}, b: {terminal: true}}\n"
    await ada.ok("save_playbook", source=source, project_id=project)
    agent, scheduler, calls = await ada.agent("Ann"), crib.schedules.scheduler, calls_of_hours(crib)
    made = list[int]()

    made.append(await calls())
    await ada.task("Mix paint", project_id=project, max_retries=0)
    made.append(await calls())
    await ada.ok("fail_task", **await ada.claimed(agent), error_message="no pigment")
    made.append(await calls())
    made.append(await calls())
    tasks = {one["title"] for one in (await ada.ok("list_tasks", project_id=project))["tasks"]}
    claim = await ada.claimed(agent)
    made.append(await calls())
    await ada.ok("complete_task", **claim, summary="Done.")
    titles = sorted(one.title for one in await scheduler.list("ada"))

    assert made == [0, 0, 1, 0, 0], "an event is due once; a task that waits or is at work is nothing to do"
    assert {"Hook: Look", "P: a"} <= tasks, "the playbook's first node was entered too"
    assert titles == ["queue: events"]


PLAYBOOK = "name: P\ntriggers: [task.finished]\nnodes: {a: {prompt: x, goto: b}, b: {terminal: true}}\n"


@pytest.mark.parametrize(
    ("tool", "arguments", "path"),
    [
        (
            "create_hook",
            {"name": "H", "prompt_template": "x", "trigger": {"type": "event", "event_type": "task.faild"}},
            "trigger.event_type",
        ),
        ("save_playbook", {"source": PLAYBOOK}, "source.triggers.0"),
    ],
)
async def test_an_event_that_never_comes_is_not_waited_for(
    ada: Person, tool: str, arguments: dict[str, Any], path: str
) -> None:
    project = (await ada.ok("create_project", name="Shop"))["created"]
    error = await ada.refused(tool, project_id=project, **arguments)
    assert (error.code, error.details["field_errors"][0]["path"]) == ("invalid_arguments", path)
