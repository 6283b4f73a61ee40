"""Principals cross: of a calendar of others 0 rows are seen and 0 are changed, by any operation."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from toolcrib import Toolcrib
from toolcrib_work.calendar.model import personal
from unit.toolcrib_work.people import Person, without_ids
from unit.toolcrib_work.test_attacks import everything, set_role

SECRET = "Copper"
YEAR = {"timeMin": "2026-01-01", "timeMax": "2027-01-01"}


def reads(ids: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Every operation that reads, with the ids of a project's calendar."""
    return {
        "cal.event.get": {"onto_event_id": ids["event"]},
        "cal.event.list": {**YEAR, "calendar_scope": "project", "project_id": ids["project"]},
        "cal.project.get": {"project_id": ids["project"]},
    }


def writes(ids: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Every operation that writes, with the ids of a project's calendar."""
    return {
        "cal.event.create": {"title": "mine", "start_at": "2026-11-30", "project_id": ids["project"]},
        "cal.event.update": {"onto_event_id": ids["event"], "title": "mine"},
        "cal.event.delete": {"onto_event_id": ids["event"]},
        "cal.project.set": {"project_id": ids["project"], "action": "update", "name": "mine"},
    }


def other_ways(ids: Mapping[str, str], own: str) -> list[tuple[str, dict[str, Any]]]:
    """Attempts by other arguments, and through a project of the stranger's own."""
    new = {"title": "mine", "start_at": "2026-11-30"}
    return [
        ("cal.event.get", {"event_id": ids["uid"]}),
        ("cal.event.update", {"event_id": ids["uid"], "title": "mine"}),
        ("cal.event.delete", {"event_id": ids["uid"], "project_id": own, "calendar_scope": "project"}),
        ("cal.event.delete", {"onto_event_id": ids["event"], "instance_start_at": "2026-11-30T09:00:00Z"}),
        ("cal.event.list", {**YEAR, "calendar_scope": "calendar_id", "calendar_id": ids["calendar"]}),
        ("cal.event.create", {**new, "calendar_scope": "calendar_id", "calendar_id": ids["calendar"]}),
        ("cal.event.create", {**new, "task_id": ids["task"]}),
        ("cal.event.create", {**new, "project_id": own, "task_id": ids["task"]}),
        ("cal.event.create", {**new, "project_id": personal("ada")}),
        ("cal.event.list", {**YEAR, "calendar_scope": "project", "project_id": personal("ada")}),
        ("cal.project.set", {"project_id": personal("ada"), "action": "create"}),
        ("cal.project.get", {"project_id": personal("eve")}),
    ]


@pytest.fixture
async def ids(crib: Toolcrib, ada: Person) -> dict[str, str]:
    project = await ada.project("Launch")
    task = await ada.made("task", project, "Print")
    weekly = {"recurrence": "FREQ=WEEKLY", "timezone": "UTC", "description": SECRET}
    event = await ada.ok("cal.event.create", title=SECRET, start_at="2026-11-30T09:00:00Z", task_id=task, **weekly)
    await ada.ok("cal.event.create", title=SECRET, start_at="2026-11-30")
    calendar = await ada.ok("cal.project.set", project_id=project, action="create")
    (row,) = [row for row in (await everything(crib))["events"] if row["id"] == event["event"]["id"]]
    return {
        "project": project,
        "task": task,
        "event": event["event"]["id"],
        "uid": row["uid"],
        "calendar": calendar["calendar"]["id"],
    }


async def test_every_operation_of_the_calendar_is_attacked(crib: Toolcrib) -> None:
    ids = dict.fromkeys(["project", "event", "calendar", "task", "uid"], "x")
    ops = {tool.op for tool in crib.catalog.tools.values() if tool.category == "cal"}

    assert ops == {*reads(ids), *writes(ids)}


async def test_to_a_stranger_a_calendar_looks_like_one_that_is_not_there(
    crib: Toolcrib, eve: Person, ids: dict[str, str]
) -> None:
    before = await everything(crib)
    unknown = {kind: str(uuid.uuid4()) for kind in ids}
    for op, args in {**reads(ids), **writes(ids)}.items():
        told = await eve.envelope(op, **args)
        empty = await eve.envelope(op, **{**reads(unknown), **writes(unknown)}[op])
        assert (told["ok"], told["error"]["code"]) == (False, "NOT_FOUND"), op
        assert without_ids(told, ids) == without_ids(empty, unknown), op
    own = await eve.project("Mine")
    for op, args in other_ways(ids, own):
        assert (await eve.refused(op, **args))[0] == "NOT_FOUND", (op, args)
    listed = await eve.ok("cal.event.list", **YEAR)

    assert (listed["total"], listed["warnings"], "calendars" in listed) == (0, [], False)
    assert await everything(crib) == before
    assert await crib.store.shared.events("eve", project_id=ids["project"], types=(), limit=100) == []


async def test_a_viewer_reads_the_calendar_and_changes_nothing(
    crib: Toolcrib, ada: Person, eve: Person, ids: dict[str, str]
) -> None:
    await set_role(crib, ids["project"], "eve", "viewer")
    before = await everything(crib)
    for op, args in reads(ids).items():
        assert await eve.ok(op, **args) == await ada.ok(op, **args), op
    for op, args in writes(ids).items():
        assert await eve.refused(op, **args) == ("PERMISSION_DENIED", []), op

    assert await everything(crib) == before


async def test_events_of_a_user_alone_are_nowhere_in_the_graph(ada: Person, ids: dict[str, str]) -> None:
    mine = {"project_id": personal("ada")}

    assert (await ada.ok("onto.project.list"))["total"] == 1
    for op, args in {
        "onto.project.get": mine,
        "onto.task.create": {**mine, "title": "x"},
        "onto.document.create": {**mine, "title": "x", "content": "x"},
        "cal.project.set": {**mine, "action": "create"},
    }.items():
        assert (await ada.refused(op, **args))[0] == "NOT_FOUND", op


@pytest.mark.parametrize("text", ["' OR 1=1 --", "{events}", "x'); DROP TABLE calendar_events; --", "\u202e", "a\0b"])
async def test_a_text_that_looks_like_a_statement_is_a_text(
    crib: Toolcrib, eve: Person, ids: dict[str, str], text: str
) -> None:
    before = await everything(crib)
    for args in ({"onto_event_id": text}, {"event_id": text}):
        assert (await eve.refused("cal.event.get", **args))[0] in ("NOT_FOUND", "VALIDATION_ERROR")
    scope = {"calendar_scope": "project", "project_id": text}
    assert (await eve.refused("cal.event.list", **scope))[0] in ("NOT_FOUND", "VALIDATION_ERROR")

    assert await everything(crib) == before
