"""The queue in the console: what a person sees of it and does about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolcrib import Toolcrib
from toolcrib.crib.services.contributions import SessionCaller
from toolcrib.errors import ToolFailure
from toolcrib.plugin import ViewFields, ViewForm, ViewLink, ViewPage, ViewTable, ViewText
from toolcrib_queue.view import VIEW
from unit.toolcrib_queue.conftest import Person


def tools(of: Person) -> SessionCaller:
    return SessionCaller(of.session, "console")


async def press(of: Person, task: str, **form: str) -> str:
    assert VIEW.act is not None
    return await VIEW.act(tools(of), task, form)


def forms(page: ViewPage) -> list[str]:
    return [button for block in page.blocks if isinstance(block, ViewForm) for button in block.buttons]


async def claimed(ada: Person, **more: Any) -> Any:
    await ada.task("Paint", **more)
    return await ada.claimed(await ada.agent())


async def test_tasks_that_wait_for_a_person_come_first(ada: Person) -> None:
    claim = await claimed(ada, priority=900)
    other = await ada.task("Print", priority=1)
    await ada.ok("ask_question", **claim, question="Red or blue?")

    page = await VIEW.show(tools(ada), "")

    table = page.blocks[0]
    assert isinstance(table, ViewTable)
    assert [(row[0], row[2]) for row in table.rows] == [
        ("WAITING_INPUT", ViewLink("Paint", claim["task_id"])),
        ("READY", ViewLink("Print", other)),
    ]


async def test_what_happened_are_events_of_the_queue_and_no_look_at_projects(ada: Person) -> None:
    await ada.task("Paint")
    await ada.session.call("onto.project.list", {})

    page = await VIEW.show(tools(ada), "")

    happened = page.blocks[1]
    assert isinstance(happened, ViewTable)
    assert {row[1] for row in happened.rows} >= {"task.created"}
    assert [row[1] for row in happened.rows if str(row[1]).startswith("onto.")] == []


async def test_enter_in_what_is_to_be_planned_otherwise_rejects_the_plan(ada: Person, tmp_path: Path) -> None:
    (tmp_path / "plan.md").write_text("## Step 1: Choose a colour\n")
    claim = await claimed(ada, verification_type="qa_agent")
    await ada.ok("complete_task", **claim, summary="Planned")
    await ada.ok("process_task_completion", task_id=claim["task_id"], workspace_path=".")

    page = await VIEW.show(tools(ada), claim["task_id"])

    asked = [block for block in page.blocks if isinstance(block, ViewForm)]
    assert [(list(form.inputs), next(iter(form.buttons))) for form in asked] == [
        ([], "approve_plan"),
        (["feedback"], "reject_plan"),
    ]


async def test_a_question_is_shown_and_answered(ada: Person) -> None:
    claim = await claimed(ada)
    await ada.ok("ask_question", **claim, question="Red or blue?")

    page = await VIEW.show(tools(ada), claim["task_id"])
    went_on = await press(ada, claim["task_id"], button="answer", answer="Blue")

    fields, question, *_ = page.blocks
    assert isinstance(fields, ViewFields)
    assert (page.title, fields.fields["Agent"], question) == (
        "Paint",
        "Ann",
        ViewText(heading="Question", text="Red or blue?"),
    )
    assert (forms(page), went_on) == (["answer"], claim["task_id"])
    assert await ada.status(claim["task_id"]) != "WAITING_INPUT"


@pytest.mark.parametrize(("button", "status"), [("approve", "COMPLETED"), ("", "AWAITING_APPROVAL")])
async def test_a_result_is_approved_by_its_button_alone(ada: Person, button: str, status: str) -> None:
    claim = await claimed(ada, requires_approval=True)
    await ada.ok("complete_task", **claim, summary="It is blue.")
    page = await VIEW.show(tools(ada), claim["task_id"])

    if button:
        await press(ada, claim["task_id"], button=button)
    else:
        with pytest.raises(ToolFailure) as refused:
            await press(ada, claim["task_id"], button="pay")
        assert refused.value.code == "invalid_arguments"

    assert forms(page) == ["approve"]
    assert ViewText(heading="Result", text="It is blue.") in page.blocks
    assert await ada.status(claim["task_id"]) == status


async def test_what_is_at_work_can_be_stopped_and_started_again(ada: Person) -> None:
    task = (await claimed(ada))["task_id"]

    seen: list[tuple[list[str], str]] = []
    for button in ("stop", "restart"):
        buttons = forms(await VIEW.show(tools(ada), task))
        await press(ada, task, button=button)
        seen.append((buttons, await ada.status(task)))

    assert seen == [(["stop"], "BLOCKED"), (["restart"], "READY")]


async def test_nobody_sees_the_tasks_of_others(crib: Toolcrib, ada: Person, eve: Person, tmp_path: Path) -> None:
    task = await ada.task("Paint")

    page = await VIEW.show(tools(eve), "")

    table = page.blocks[0]
    assert isinstance(table, ViewTable)
    assert list(table.rows) == []
    with pytest.raises(ToolFailure) as refused:
        await VIEW.show(tools(eve), task)
    assert refused.value.code == "not_found"
