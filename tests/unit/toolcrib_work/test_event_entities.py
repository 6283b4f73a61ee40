"""Events of the calendar are entities of the graph: found, linked and deleted there, and seen by who may see them."""

from __future__ import annotations

import json
from typing import Any

from toolcrib import Toolcrib
from toolcrib_work.calendar.model import personal
from unit.toolcrib_work.people import Person
from unit.toolcrib_work.test_attacks import everything, set_role


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
