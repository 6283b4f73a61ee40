"""Tasks: kept, listed, and never in a state that the others forbid."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Toolcrib
from toolcrib.core.elicitation import Clarification
from toolcrib.core.result import ToolResult
from toolcrib.crib.session import Session
from toolcrib_tools import tasks
from unit.toolcrib_tools.telling import told


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    async with Toolcrib(memory=True) as opened:
        opened.add(tasks)
        yield opened


@pytest.fixture
def session(crib: Toolcrib) -> Session:
    return crib.session(profile="flat", mode="autonomous")


async def refused(session: Session, name: str, /, **arguments: Any) -> ToolResult:
    result = await session.call(name, arguments)
    assert result.error is not None, result.text
    return result


async def made(session: Session, title: str, **arguments: Any) -> str:
    return str((await told(session, "create_task", title=title, **arguments))["created"])


async def edited(session: Session, task_id: str, **arguments: Any) -> Any:
    return await told(session, "edit_task", task_id=task_id, **arguments)


async def status(session: Session, task_id: str) -> str:
    return str((await told(session, "get_task", task_id=task_id))["status"])


async def titles(session: Session, **arguments: Any) -> list[str]:
    return [task["title"] for task in (await told(session, "list_tasks", **arguments))["tasks"]]


async def test_a_task_is_kept_with_everything_that_was_said_of_it(crib: Toolcrib, session: Session) -> None:
    first = await made(session, "First")
    created = await told(
        session,
        "create_task",
        title=" Fix login ",
        description="The redirect is wrong.",
        project_id="shop",
        priority=5,
        task_type="bugfix",
        depends_on=[first, f"#{first}"],
        parent_id=first,
        profile_id="coder",
        preferred_workspace_id="w1",
        attachments=["log.txt"],
    )

    task = await told(session, "get_task", task_id="2")
    assert created == {"created": "2", "title": "Fix login", "status": "BLOCKED", "waits_for": ["1"]}
    assert (task.pop("created")[:2], task.pop("changed")[:2]) == ("20", "20")
    assert task == {
        "id": "2",
        "title": "Fix login",
        "description": "The redirect is wrong.",
        "project_id": "shop",
        "status": "BLOCKED",
        "priority": 5,
        "task_type": "bugfix",
        "requires_approval": False,
        "verification_type": None,
        "profile_id": "coder",
        "preferred_workspace_id": "w1",
        "attachments": ["log.txt"],
        "depends_on": ["1"],
        "waits_for": ["1"],
        "needed_by": [],
        "parent_id": "1",
        "subtasks": [],
        "retries": 0,
        "max_retries": 0,
        "result": "",
        "history": [],
    }
    before = await told(session, "get_task", task_id="1")
    assert (before["needed_by"], before["subtasks"]) == (["2"], ["2"])
    record = await crib.store.records.get((session.state.principal, "tasks"), "2")
    assert record is not None
    assert (record.group, record.value["title"]) == ("shop", "Fix login")


async def test_what_waits_becomes_ready_once_all_that_it_waits_for_is_completed_and_blocked_again_when_it_is_reopened(
    session: Session,
) -> None:
    one, two = await made(session, "one"), await made(session, "two")
    last = await made(session, "last", depends_on=[one, two])

    assert (await edited(session, one, status="COMPLETED"))["now_ready"] == []
    done = await edited(session, two, status="COMPLETED", result="fine")
    assert done == {
        "updated": two,
        "fields": ["result", "status"],
        "status": "COMPLETED",
        "now_ready": [last],
        "now_blocked": [],
        "note": "",
    }
    assert await status(session, last) == "READY"
    assert (await edited(session, one, status="READY"))["now_blocked"] == [last]
    assert await status(session, last) == "BLOCKED"


@pytest.mark.parametrize("wanted", ["IN_PROGRESS", "COMPLETED"])
async def test_a_task_that_waits_neither_begins_nor_ends(session: Session, wanted: str) -> None:
    one = await made(session, "one")
    two = await made(session, "two", depends_on=[one])

    failure = await refused(session, "edit_task", task_id=two, status=wanted)
    assert failure.text.startswith(f"task 2 waits for 1, so it cannot be {wanted}")
    assert (await edited(session, two, status="READY"))["status"] == "BLOCKED"
    freed = await edited(session, two, depends_on=[])
    assert (freed["status"], freed["note"]) == ("READY", "it waits for nothing any more")
    assert (await edited(session, two, status=wanted))["status"] == wanted


async def test_nobody_waits_for_himself_however_long_the_way(session: Session) -> None:
    one = await made(session, "one")
    two = await made(session, "two", depends_on=[one])
    three = await made(session, "three", depends_on=[two], parent_id=two)

    circle = await refused(session, "edit_task", task_id=one, depends_on=[three])
    itself = await refused(session, "edit_task", task_id=one, depends_on=[one])
    parents = await refused(session, "edit_task", task_id=two, parent_id=three)
    missing = await refused(session, "edit_task", task_id=one, depends_on=["9"])
    assert circle.text == "depends_on: task 1 would wait for itself: 1 → 3 → 2 → 1"
    assert itself.text == "depends_on: task 1 would wait for itself: 1 → 1"
    assert parents.text == "parent_id: task 2 would wait for itself: 2 → 3 → 2"
    assert missing.text == "there is no task '9'\nthere are 1, 2, 3"
    assert (await told(session, "get_task", task_id=one))["depends_on"] == []


async def test_a_task_that_fails_is_ready_again_while_it_has_retries(session: Session) -> None:
    task = await made(session, "flaky")
    await edited(session, task, max_retries=1)

    first = await edited(session, task, status="FAILED", result="timeout")
    second = await edited(session, task, status="FAILED", result="timeout again")
    assert (first["status"], first["note"]) == ("READY", "it failed, and is ready for retry 1 of 1")
    assert (second["status"], second["note"]) == ("FAILED", "")
    shown = await told(session, "get_task", task_id=task)
    assert [entry["changed"] for entry in shown["history"]] == [
        {"max_retries": 1},
        {"status": "READY", "result": "timeout", "retries": 1},
        {"status": "FAILED", "result": "timeout again"},
    ]


async def test_what_tests_or_agents_verify_is_completed_with_a_result_only(session: Session) -> None:
    task = await made(session, "verified")
    await edited(session, task, verification_type="auto_test")

    failure = await refused(session, "edit_task", task_id=task, status="COMPLETED")
    assert "it cannot be completed without a result" in failure.text
    assert (await edited(session, task, status="COMPLETED", result="42 passed"))["status"] == "COMPLETED"


async def test_where_the_user_decides_he_is_asked_and_what_he_refuses_is_not_changed(crib: Toolcrib) -> None:
    asked: list[str] = []
    answers = ["no", "yes", "not yet", "yes"]

    async def elicitor(question: Clarification) -> str:
        asked.append(question.question)
        return answers.pop(0)

    session = crib.session(profile="flat", mode="autonomous", elicitor=elicitor)
    task = await made(session, "Ship it", requires_approval=True)
    await edited(session, task, verification_type="human")

    not_begun = await refused(session, "edit_task", task_id=task, status="IN_PROGRESS")
    assert not_begun.text == "the user did not agree that task 1 is IN_PROGRESS: no\nthe task is unchanged"
    assert await status(session, task) == "READY"
    await edited(session, task, status="IN_PROGRESS")
    failure = await refused(session, "edit_task", task_id=task, status="COMPLETED", result="shipped")
    assert failure.text.startswith("the user did not agree that task 1 is COMPLETED: not yet")
    await edited(session, task, status="COMPLETED", result="shipped")
    assert await status(session, task) == "COMPLETED"
    assert asked == [
        "May work on task 1 begin: Ship it?",
        "May work on task 1 begin: Ship it?",
        "Is task 1 completed: Ship it? What came of it: shipped",
        "Is task 1 completed: Ship it? What came of it: shipped",
    ]


async def test_where_the_user_decides_and_nobody_can_be_asked_nothing_is_changed(session: Session) -> None:
    task = await made(session, "Ship it", requires_approval=True)

    failure = await refused(session, "edit_task", task_id=task, status="IN_PROGRESS")
    assert failure.error is not None and failure.error.code == "unavailable"
    assert await status(session, task) == "READY"


async def test_null_takes_a_value_away_and_what_is_not_given_stays(session: Session) -> None:
    parent = await made(session, "parent")
    task = await made(session, "task", task_type="docs", profile_id="coder", parent_id=parent, priority=7)

    assert (await edited(session, task, title="Task"))["fields"] == ["title"]
    changed = await edited(session, task, task_type=None, profile_id=None, parent_id=None, project_id="shop")
    assert changed["fields"] == ["parent_id", "profile_id", "project_id", "task_type"]
    shown = await told(session, "get_task", task_id=task)
    assert (shown["task_type"], shown["profile_id"], shown["parent_id"], shown["priority"]) == (None, None, "", 7)
    assert await titles(session, project_id="shop") == ["Task"]
    assert (await edited(session, task, title="Task"))["note"] == "nothing is another than before"


async def test_tasks_are_listed_by_state_and_priority_those_that_are_done_only_when_asked_for(
    session: Session,
) -> None:
    for title, priority, state in (("a", 100, None), ("b", 5, None), ("c", 100, "IN_PROGRESS"), ("d", 1, "COMPLETED")):
        task = await made(session, title, priority=priority)
        if state:
            await edited(session, task, status=state)
    await made(session, "e", depends_on=["1"])
    await made(session, "elsewhere", project_id="shop")

    assert await titles(session) == ["c", "b", "a", "e"]
    assert await titles(session, include_completed=True) == ["c", "b", "a", "e", "d"]
    assert await titles(session, completed_only=True) == ["d"]
    assert await titles(session, status="COMPLETED") == ["d"]
    assert await titles(session, status="BLOCKED") == ["e"]
    assert await titles(session, project_id="shop") == ["elsewhere"]
    assert await titles(session, show_all=True) == ["c", "b", "a", "elsewhere", "e", "d"]
    assert "leave nothing to list" in (await refused(session, "list_tasks", completed_only=True, status="READY")).text
    listed = await told(session, "list_tasks", display_mode="compact", show_dependencies=True, status="BLOCKED")
    assert listed == {
        "tasks": [{"id": "5", "title": "e", "status": "BLOCKED", "depends_on": ["1"], "waits_for": ["1"]}],
        "total": 1,
        "by_status": {"BLOCKED": 1},
    }


async def test_a_tree_has_parts_below_what_they_are_a_part_of(session: Session) -> None:
    top = await made(session, "top")
    part = await made(session, "part", parent_id=top)
    await made(session, "deep", parent_id=part)
    await made(session, "second", parent_id=top)

    def shape(task: dict[str, Any]) -> Any:
        return {task["title"]: [shape(below) for below in task.get("subtasks", [])]}

    tree = await told(session, "list_tasks", display_mode="tree")
    assert [shape(task) for task in tree["tasks"]] == [{"top": [{"part": [{"deep": []}]}, {"second": []}]}]
    assert tree["total"] == 4
    assert (await edited(session, top, status="COMPLETED"))["note"] == "a part of it is still open: 2, 4"
    assert [shape(task) for task in (await told(session, "list_tasks", display_mode="tree"))["tasks"]] == [
        {"part": [{"deep": []}]},
        {"second": []},
    ]


async def test_a_folder_has_its_own_tasks_and_nobody_sees_those_of_another_principal(
    crib: Toolcrib, folder: Path
) -> None:
    here = crib.session(profile="flat", mode="autonomous", principal="ada", workspace=folder)
    nowhere = crib.session(profile="flat", mode="autonomous", principal="ada")
    bob = crib.session(profile="flat", mode="autonomous", principal="bob")
    await made(here, "of the folder")

    assert (await titles(here), await titles(nowhere), await titles(bob, show_all=True)) == (["of the folder"], [], [])
    assert (await refused(bob, "get_task", task_id="1")).text == "there is no task '1'\nthere are none yet"


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({"title": " "}, "title"),
        ({"title": "x", "task_type": "party"}, "task_type"),
        ({"title": "x", "priority": -1}, "priority"),
        ({"title": "x", "depends_on": "1"}, "1"),
        ({"title": "x", "parent_id": "7"}, "there is no task '7'"),
    ],
)
async def test_a_task_that_cannot_be_is_not_made(session: Session, arguments: dict[str, Any], where: str) -> None:
    failure = await refused(session, "create_task", **arguments)

    assert where in failure.text
    assert await titles(session, show_all=True) == []
