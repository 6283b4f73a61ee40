"""Projects in the console: the list, one as a tree, its documents, and the calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from toolcrib import Toolcrib
from toolcrib.crib.services.contributions import SessionCaller
from toolcrib.errors import ToolFailure
from toolcrib.plugin import ViewFields, ViewLink, ViewTable, ViewText
from toolcrib_work.graph.view import VIEW
from unit.toolcrib_work.people import Person


def tools(crib: Toolcrib, name: str) -> SessionCaller:
    return SessionCaller(crib.session(principal=name, profile="flat", mode="autonomous"), "console")


async def test_projects_are_listed_with_what_is_due(crib: Toolcrib, ada: Person) -> None:
    project = await ada.project("Launch")
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    end = start + timedelta(hours=1)
    await ada.ok("cal.event.create", title="Kick-off", start_at=start.isoformat(), end_at=end.isoformat())

    page = await VIEW.show(tools(crib, "ada"), "")

    time = f"{start.astimezone():%Y-%m-%d %H:%M}"
    assert page.blocks == (
        ViewTable(
            columns=("Project", "State", "Type"),
            rows=[(ViewLink("Launch", project), "planning", "business.launch")],
            empty="There are no projects yet.",
        ),
        ViewTable(
            heading="Calendar, the next 14 days",
            columns=("Time", "Event"),
            rows=[(time, "Kick-off")],
            empty="Nothing is due.",
        ),
    )


async def test_a_project_is_a_tree_with_its_documents(crib: Toolcrib, ada: Person) -> None:
    project = await ada.project("Launch")
    await ada.made("goal", project, "Sell")
    document = await ada.made("document", project, "Brief")
    await ada.ok("onto.document.update", document_id=document, content="# Brief\nall of it")

    page = await VIEW.show(tools(crib, "ada"), project)
    shown = await VIEW.show(tools(crib, "ada"), f"document-{document}")

    assert page.title == "Launch"
    assert ViewText(heading="Work", text="  goal: Sell (draft)") in page.blocks
    assert [block.rows for block in page.blocks if isinstance(block, ViewTable) and block.heading == "Documents"] == [
        [(ViewLink("Brief", f"document-{document}"),)]
    ]
    fields, text = shown.blocks
    assert isinstance(fields, ViewFields)
    assert (shown.title, text) == ("Brief", ViewText(text="# Brief\nall of it"))
    assert fields.fields["Project"] == ViewLink("Back to the project", project)


async def test_many_documents_and_what_lost_its_parent_are_shown(crib: Toolcrib, ada: Person) -> None:
    documents = [{"temp_id": f"d{n}", "kind": "document", "title": f"d{n}", "content": ""} for n in range(100)]
    goal = {"temp_id": "g", "kind": "goal", "name": "Sell"}
    milestone = {"temp_id": "m", "kind": "milestone", "title": "Open"}
    given = {"project": {"name": "Large", "type_key": "project.business.launch"}, "relationships": [["g", "m"]]}
    made = await ada.ok("onto.project.create", **given, entities=[goal, milestone, *documents])
    await ada.ok("onto.goal.delete", goal_id=made["entities"]["g"])

    page = await VIEW.show(tools(crib, "ada"), made["project_id"])

    assert ViewText(heading="Work", text="  milestone: Open (pending)") in page.blocks
    assert [
        len(block.rows) for block in page.blocks if isinstance(block, ViewTable) and block.heading == "Documents"
    ] == [100]


async def test_projects_beyond_the_first_page_of_the_list_are_found(crib: Toolcrib, ada: Person) -> None:
    ids = [await ada.project(f"P{number}") for number in range(51)]

    listed = (await VIEW.show(tools(crib, "ada"), "")).blocks[0]

    assert isinstance(listed, ViewTable)
    assert (len(listed.rows), listed.rows[-1][0]) == (51, ViewLink("P0", ids[0]))


async def test_a_stranger_sees_neither_the_project_nor_its_document(crib: Toolcrib, ada: Person) -> None:
    project = await ada.project("Launch")
    document = await ada.made("document", project, "Brief")

    listed = (await VIEW.show(tools(crib, "eve"), "")).blocks[0]
    codes: list[str] = []
    for path in (project, f"document-{document}"):
        with pytest.raises(ToolFailure) as refused:
            await VIEW.show(tools(crib, "eve"), path)
        codes.append(refused.value.code)

    assert isinstance(listed, ViewTable)
    assert (list(listed.rows), codes) == ([], ["not_found", "not_found"])
