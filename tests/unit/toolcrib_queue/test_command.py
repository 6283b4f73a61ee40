"""`toolcrib queue`: a person sees the queue, answers, approves, decides and stops."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from typer.testing import CliRunner

from toolcrib import Toolcrib
from toolcrib.cli.main import app
from toolcrib.core.session import LOCAL
from unit.toolcrib_queue.conftest import Person, person

Typed = Callable[..., Any]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Return a command line in a home of its own."""
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(app, ["queue", *words])


async def seeded(folder: Path) -> dict[str, str]:
    """Put three tasks into the store of this home: one asks, one waits for approval, one is at work."""
    store = folder / "XDG_DATA_HOME" / "toolcrib" / "toolcrib.db"
    async with Toolcrib(store=store, builtins=("agent", "playbooks", "project", "queue", "tasks")) as crib:
        ada = person(crib, LOCAL, folder)
        asking = await _claimed(ada, "Paint", 1)
        await ada.ok("ask_question", **asking, question="Red or blue?")
        waiting = await _claimed(ada, "Print", 2, requires_approval=True)
        await ada.ok("complete_task", **waiting, summary="x")
        source = (
            "{name: Sale, nodes: {ask: {prompt: Sell it?, wait_for_human: true, goto: end}, end: {terminal: true}}}"
        )
        project = await _inbox(ada)
        playbook = (await ada.ok("save_playbook", project_id=project, source=source))["saved"]
        return {
            "run": (await ada.ok("run_playbook", playbook_id=playbook))["id"],
            "asking": asking["task_id"],
            "waiting": waiting["task_id"],
            "busy": (await _claimed(ada, "Post", 3))["task_id"],
        }


async def _claimed(ada: Person, title: str, priority: int, **more: Any) -> Any:
    await ada.ok("edit_project", project_id=await _inbox(ada), max_concurrent_agents=9)
    await ada.task(title, priority=priority, **more)
    return await ada.claimed(await ada.agent(title))


async def _inbox(ada: Person) -> str:
    return str((await ada.ok("get_task", task_id=await ada.task("later", priority=900)))["project_id"])


@pytest.mark.long
def test_a_person_sees_answers_approves_and_stops(typed: Typed, tmp_path: Path) -> None:
    ids = anyio.run(seeded, tmp_path)
    table = typed().stdout
    refused = typed("answer", ids["asking"], "Blue")
    unknown, doubtful, early = typed("approve", "nope"), typed("stop", ""), typed("approve", ids["busy"])
    answered = typed("answer", ids["asking"][:14], "Blue,", "please", "--yes")
    decided = typed("decide", ids["run"][:8], "-", "--yes")
    approved, stopped = (typed(word, ids[key], "--yes") for word, key in (("approve", "waiting"), ("stop", "busy")))
    shown = json.loads(typed("--all", "--json").stdout)
    followed = typed("follow", "--seconds", "0.01").stdout

    assert [line.split()[0] for line in table.splitlines()[:3]] == ["STATUS", "WAITING_INPUT", "AWAITING_APPROVAL"]
    assert f"{ids['asking']} asks: Red or blue?" in table
    assert refused.exit_code == 5, "a change is asked for, and nobody is there"
    outcomes = (unknown.exit_code, doubtful.exit_code, early.exit_code)
    assert outcomes == (3, 2, 6), "nobody is asked about what is not there, or must fail"
    assert ids["asking"] in doubtful.stderr
    assert f"toolcrib queue decide {ids['run']}" in table
    assert [one.exit_code for one in (answered, approved, decided, stopped)] == [0, 0, 0, 0]
    states = {task["id"]: task["status"] for task in shown["tasks"]}
    assert [states[ids[key]] for key in ("asking", "waiting", "busy")] == ["IN_PROGRESS", "COMPLETED", "BLOCKED"]
    assert "task.stopped" in followed.splitlines()[-1]


@pytest.mark.slow
def test_work_ends_with_an_error_where_no_agent_has_a_program(typed: Typed, tmp_path: Path) -> None:
    async def seed() -> None:
        store = tmp_path / "XDG_DATA_HOME" / "toolcrib" / "toolcrib.db"
        async with Toolcrib(store=store, builtins=("agent", "tasks")) as crib:
            await person(crib, LOCAL, tmp_path).ok("create_agent", name="Ann", agent_type="cursor")

    anyio.run(seed)
    ended = typed("work", "--once", "--yes")

    assert (ended.exit_code, ended.stdout.partition(":")[0]) == (7, "Ann")
