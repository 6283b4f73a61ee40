"""Events of the calendar are entities of the graph: found, linked and deleted there, and seen by who may see them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.core.taint import StoredTaint, Taint
from toolcrib.plugin import Rows, Schema, Table
from toolcrib.store.store import Store
from toolcrib_work.calendar.model import personal
from toolcrib_work.graph.model import SCHEMA
from unit.toolcrib_work.people import Person, person
from unit.toolcrib_work.test_attacks import everything, set_role

_TEXTS = (
    *("title", "description", "location", "start_at", "end_at", "timezone", "recurrence", "type_key", "state_key"),
    *("external_link", "task_id", "calendar_id", "href", "etag", "ical", "sync_error", "origin", "uid", "sync_status"),
)
FORMER_GRAPH = replace(
    SCHEMA,
    tables=tuple(table for table in SCHEMA.tables if table.name not in ("events", "calendars")),
    migrations={number: SCHEMA.migrations[number] for number in (2, 3)},
    absorbs={},
)
FORMER_CALENDAR = Schema(
    name="calendar",
    tables=(
        Table(
            name="events",
            noun="event",
            columns={
                **dict.fromkeys(_TEXTS, "TEXT"),
                **dict.fromkeys(("starts", "ends", "synced_at"), "REAL"),
                **dict.fromkeys(("exceptions", "synced", "conflict"), "JSON"),
                "all_day": "INTEGER NOT NULL",
            },
            indexes=(("starts",), ("calendar_id", "href"), ("uid",)),
            title="title",
            text=("description", "location"),
        ),
        next(table for table in SCHEMA.tables if table.name == "calendars"),
    ),
)
"""The schemas of an earlier version: an event named its task in a column, and was no entity of the graph."""


async def created(who: Person, title: str, **more: Any) -> dict[str, Any]:
    return (await who.ok("cal.event.create", title=title, start_at="2026-11-30", **more))["event"]


async def found(who: Person, query: str, **more: Any) -> list[tuple[str, str, str | None]]:
    """Return type, title and project of what a search finds."""
    results = (await who.ok("onto.search", query=query, **more))["results"]
    return [(one["type"], one["title"], one["project_id"]) for one in results]


async def test_an_event_is_found_and_linked_like_any_other_entity_and_its_owner_contains_it(ada: Person) -> None:
    project = await ada.project()
    task = await ada.made("task", project, "Print")
    risk = (await ada.ok("onto.goal.create", project_id=project, name="Copies"))["goal"]["id"]
    of_task = await created(ada, "Press day", task_id=task, description="Copper plates", location="Hall")
    of_project = await created(ada, "Fair", project_id=project)
    ends = {"src_kind": "event", "src_id": of_project["id"], "dst_kind": "goal", "dst_id": risk, "rel": "references"}
    general = await ada.ok("onto.edge.link", **ends)
    graph = await ada.ok("onto.project.graph.get", project_id=project)
    listed = await ada.ok("cal.event.list", timeMin="2026-11-30", timeMax="2026-12-01")

    assert await found(ada, "copper") == await found(ada, "hall", types=["event"]) == [("event", "Press day", project)]
    assert of_task["owner_entity"] == {"kind": "task", "id": task}
    assert of_project["owner_entity"] == {"kind": "project", "id": project}
    assert [one["event"].get("task_id") for one in listed["events"]] == [None, task]
    assert await ada.edges(of_task["id"]) == {(task, "has_event", of_task["id"])}
    assert await ada.edges(of_project["id"]) == {
        (project, "has_event", of_project["id"]),
        (of_project["id"], "references", risk),
    }
    nodes = graph["graph"]["nodes"]["events"]
    assert [(one["title"], one["start_at"], one["end_at"]) for one in nodes] == [
        ("Press day", "2026-11-30", "2026-12-01"),
        ("Fair", "2026-11-30", "2026-12-01"),
    ]
    assert {edge["rel"] for edge in graph["graph"]["edges"]} == {"has_task", "has_goal", "has_event", "references"}

    await ada.ok("cal.event.update", onto_event_id=of_task["id"], title="Proof day")
    links = await ada.ok("onto.entity.links.get", entity_id=task, entity_kind="task", filter_kind="event")
    assert [(one["rel"], one["label"]) for one in links["entities"]] == [("has_event", "Proof day")]
    assert await found(ada, "proof") == [("event", "Proof day", project)]
    await ada.ok("onto.edge.unlink", edge_id=general["edge"]["id"])
    await ada.ok("onto.task.delete", task_id=task)
    left = (await ada.ok("cal.event.get", onto_event_id=of_task["id"]))["event"]["owner_entity"]
    assert left == {"kind": "project", "id": project}
    for one in (of_task, of_project):
        await ada.ok("cal.event.delete", onto_event_id=one["id"])
        assert (await ada.refused("onto.entity.relationships.get", entity_id=one["id"]))[0] == "NOT_FOUND"
    assert (await ada.ok("onto.project.graph.get", project_id=project))["metadata"]["counts"]["events"] == 0
    assert await ada.edges(project) == {(project, "has_goal", risk)}
    assert await found(ada, "proof fair copper hall") == []


async def test_an_event_is_made_in_a_calendar_alone_and_an_export_leaves_it_out(ada: Person) -> None:
    project = await ada.project()
    await created(ada, "Fair", project_id=project)
    exported = await ada.ok("x.graph.export", project_id=project)
    one = {"id": "e", "kind": "event", "title": "x", "start_at": "2026-11-30"}
    data = {**exported["data"], "entities": [one]}

    assert (exported["data"]["entities"], exported["data"]["edges"]) == ([], [])
    assert await ada.refused("x.graph.import", data=data) == ("VALIDATION_ERROR", ["data.entities[0].kind"])


async def test_members_of_a_project_see_its_events_and_no_event_of_a_member_alone(
    crib: Toolcrib, ada: Person, eve: Person
) -> None:
    project = await ada.project()
    task = await ada.made("task", project, "Print")
    await set_role(crib, project, "eve", "editor")
    shared = await created(ada, "Copper fair", task_id=task)
    mine = await created(ada, "Copper dentist")
    second = await created(ada, "Copper doctor")
    before = await everything(crib)
    ends = {"dst_kind": "task", "dst_id": task, "rel": "relates_to"}
    alone = {"src_kind": "event", "src_id": mine["id"], **ends}

    assert await ada.refused("onto.edge.link", **alone) == ("VALIDATION_ERROR", ["dst_id"])
    assert await found(eve, "copper") == [("event", "Copper fair", project)]
    assert await found(ada, "copper", project_id=project) == [("event", "Copper fair", project)]
    assert sorted(await found(ada, "copper")) == [
        ("event", "Copper dentist", None),
        ("event", "Copper doctor", None),
        ("event", "Copper fair", project),
    ]
    attempts: list[tuple[str, dict[str, Any]]] = [
        ("onto.entity.relationships.get", {"entity_id": mine["id"]}),
        ("onto.entity.links.get", {"entity_id": mine["id"], "entity_kind": "event"}),
        ("onto.edge.link", alone),
        (
            "onto.edge.link",
            {"src_kind": "task", "src_id": task, "dst_kind": "event", "dst_id": mine["id"], "rel": "has_event"},
        ),
        ("onto.project.graph.reorganize", {"project_id": project, "nodes": [{"id": mine["id"], "kind": "event"}]}),
        (
            "onto.task.create",
            {"project_id": project, "title": "x", "connections": [{"kind": "event", "id": mine["id"]}]},
        ),
        ("onto.search", {"query": "copper", "project_id": personal("ada")}),
        ("onto.project.graph.get", {"project_id": personal("ada")}),
    ]
    for op, args in attempts:
        assert (await eve.refused(op, **args))[0] == "NOT_FOUND", op
    assert await everything(crib) == before
    for op, args in {
        "onto.project.graph.get": {"project_id": project},
        "onto.project.get": {"project_id": project},
        "x.graph.export": {"project_id": project},
        "onto.entity.links.get": {"entity_id": project, "entity_kind": "project"},
    }.items():
        shown = json.dumps(await eve.ok(op, **args))
        assert not any(one["id"] in shown or one["title"] in shown for one in (mine, second)), op

    pair = {"src_kind": "event", "src_id": mine["id"], "dst_kind": "event", "dst_id": second["id"]}
    linked = await ada.ok("onto.edge.link", **pair, rel="relates_to")
    assert linked["edge"]["project_id"] is None
    assert (await eve.refused("onto.edge.unlink", edge_id=linked["edge"]["id"]))[0] == "NOT_FOUND"
    assert await ada.edges(mine["id"]) == {(mine["id"], "relates_to", second["id"])}
    assert await eve.edges(shared["id"]) == {(task, "has_event", shared["id"])}


@pytest.mark.parametrize(
    ("kind", "has_graph"),
    [
        ("file", True),
        ("file", False),
        pytest.param("postgres", True, marks=[pytest.mark.long, pytest.mark.process]),
    ],
)
async def test_the_events_of_an_earlier_store_are_entities_with_their_owners_after_an_update(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, has_graph: bool
) -> None:
    where = str(tmp_path / "store.db") if kind == "file" else request.getfixturevalue("postgres_url")
    strange = StoredTaint(session=Taint(source="calendar"), is_approved=False)

    def plan(rows: Rows) -> None:
        rows.create_project("p1")
        rows.insert("projects", {"project_id": "p1", "name": "Launch", "props": {}, "doc_structure": {}}, id="p1")
        rows.insert("tasks", {"project_id": "p1", "title": "Print", "props": {}}, id="t1")

    def fill(rows: Rows) -> None:
        for project in {"p1", personal("ada")} - ({"p1"} if has_graph else set()):
            rows.create_project(project)
        day = {"start_at": "2026-11-30", "end_at": "2026-12-01", "all_day": 1, "starts": 1.7e9, "ends": 1.9e9}
        fixed: dict[str, Any] = {
            **day,
            "exceptions": {},
            "type_key": "event.work",
            "state_key": "confirmed",
            "origin": "ontology",
        }
        for id, project, more in (
            ("e1", "p1", {"task_id": "t1"}),
            ("e2", "p1", {"task_id": "gone"}),
            ("e3", personal("ada"), {"location": "Copper hall"}),
            ("e4", "p1", {"sync_status": "deleting"}),
            ("e5", "p1", {}),
        ):
            about = {"project_id": project, "uid": id, "title": f"Copper {id}", "sync_status": "local"}
            rows.insert("events", {**fixed, **about, **more}, id=id)
        rows.delete("events", "e5")
        name = {"kind": "project", "principal": "ada", "name": "Launch", "account": "", "href": ""}
        rows.insert("calendars", {"project_id": "p1", **name, "sync_enabled": 1, "is_shared": 0}, id="c1")

    async with Store.open(where if kind == "postgres" else Path(where)) as store:
        if has_graph:
            await store.shared.prepare(FORMER_GRAPH)
            await store.shared.write(FORMER_GRAPH, "ada", lambda value: value, plan)
        await store.shared.prepare(FORMER_CALENDAR)
        await store.shared.write(FORMER_CALENDAR, "ada", lambda value: value, fill, taint=strange)

    for _ in range(2):
        settings = bare().with_values(builtins=("onto", "cal"), store={"url" if kind == "postgres" else "path": where})
        async with Toolcrib(settings) as crib:
            ada = person(crib, "ada")
            listed = await ada.ok("cal.event.list", timeMin="2026-11-30", timeMax="2026-12-01")
            hits = await ada.ok("onto.search", query="copper")
            session = crib.session(principal="ada", mode="autonomous")
            trust = (await session.call("search_ontology", {"query": "hall"})).meta["trust"]
            edges = await ada.edges("e1") | await ada.edges("e2") | await ada.edges("e3")
            rows = await everything(crib)

        assert {one["onto_event_id"] for one in listed["events"]} == {"e1", "e2", "e3"}
        assert {one["id"]: one["project_id"] for one in hits["results"]} == {"e1": "p1", "e2": "p1", "e3": None}
        assert edges == ({("t1", "has_event", "e1"), ("p1", "has_event", "e2")} if has_graph else set())
        assert (trust, [row["id"] for row in rows["calendars"]]) == ("untrusted", ["c1"])
