"""The graph: what is created is read, links are canonical, what is not valid changes nothing."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from toolcrib import Toolcrib
from toolcrib.plugin import PAGE_BYTES, Rows
from toolcrib.store.store import Store
from toolcrib.telemetry.tokens import tokenizer
from toolcrib.testing import RecordingPeer
from toolcrib_work.graph.model import DEPRECATED, KINDS, MAX_CHILDREN, RELATIONS, SCHEMA
from toolcrib_work.graph.project_reads import page_of
from unit.toolcrib_work.people import Person, person

NOBODY = "00000000-0000-4000-8000-000000000000"

WHOLE: dict[str, Any] = {
    "project": {"name": "Launch", "type_key": "project.business.launch", "props": {"facets": {"scale": "small"}}},
    "entities": [
        {"temp_id": "g", "kind": "goal", "name": "Customers", "target_date": "2026-12-31"},
        {"temp_id": "m", "kind": "milestone", "title": "Beta"},
        {"temp_id": "p", "kind": "plan", "name": "Campaign"},
        {"temp_id": "t", "kind": "task", "title": "Write the page", "priority": 1},
        {"temp_id": "d", "kind": "document", "title": "Brief", "content": "Copper pipes"},
        {"temp_id": "r", "kind": "risk", "title": "Late printer", "impact": "high", "probability": 0.2},
        {"temp_id": "q", "kind": "requirement", "text": "Loads in a second"},
        {"temp_id": "n", "kind": "metric", "name": "Visits", "points": [{"at": "2026-11-01", "value": 3}]},
        {"temp_id": "s", "kind": "source", "title": "Survey", "url": "https://example.org"},
    ],
    "relationships": [
        ["g", "m"],
        [{"temp_id": "m", "kind": "milestone"}, {"temp_id": "p", "kind": "plan"}],
        {"from": "t", "to": {"temp_id": "p"}, "rel": "belongs_to_plan"},
        {"from": "r", "to": "t", "rel": "threatens"},
        {"from": "t", "to": "r", "intent": "semantic"},
    ],
    "context_document": {"title": "Context", "content": "# Why"},
}


async def whole(ada: Person) -> tuple[str, dict[str, str]]:
    made = await ada.ok("onto.project.create", **WHOLE)
    return made["project_id"], made["entities"]


async def test_a_project_goes_by_its_name_and_a_name_of_two_is_refused(ada: Person, eve: Person) -> None:
    project = await ada.project("Launch")
    task = await ada.made("task", "launch", "Write the page")
    found = await ada.ok("onto.task.list", project_id="Launch")
    foreign = await eve.refused("onto.project.get", project_id="Launch")
    calendars = await ada.ok("cal.project.get", project_id="Launch")
    await ada.project("LAUNCH")

    assert [one["id"] for one in found["tasks"]] == [task]
    assert (foreign[0], calendars) == ("NOT_FOUND", await ada.ok("cal.project.get", project_id=project))
    assert (await ada.refused("onto.project.get", project_id="Launch"))[0] == "CONFLICT"
    assert (await ada.ok("onto.project.get", project_id=project))["project"]["id"] == project


async def test_a_misspelt_project_is_answered_with_the_id_and_the_name_of_the_one_that_is_meant(ada: Person) -> None:
    project = await ada.project("Acme Launch")
    told = await ada.envelope("onto.project.get", project_id="Acme Lanch")

    assert f"did you mean '{project}' ('Acme Launch')? list_onto_projects has the ids" in told["error"]["message"]


async def test_a_project_is_created_whole_with_every_kind_its_edges_and_its_documents(ada: Person) -> None:
    made = await ada.ok("onto.project.create", **WHOLE)
    project_id, ids = made["project_id"], made["entities"]
    found = await ada.ok("onto.project.get", project_id=project_id)
    graph = await ada.ok("onto.project.graph.get", project_id=project_id)

    assert made["context_shift"] == {"new_context": "project", "entity_id": project_id, "entity_name": "Launch"}
    assert {key: n for key, n in made["counts"].items() if key != "edges"} == {
        **dict.fromkeys(["goals", "milestones", "plans", "tasks", "risks", "requirements", "metrics", "sources"], 1),
        "documents": 2,
    }
    assert (found["project"]["state_key"], found["project"]["props"]) == ("planning", {"facets": {"scale": "small"}})
    assert found["context_document"]["content"] == "# Why"
    assert [task["title"] for task in found["tasks"]] == ["Write the page"]
    edges = {(edge["src_id"], edge["rel"], edge["dst_id"]) for edge in graph["graph"]["edges"]}
    assert edges == {
        (project_id, "has_goal", ids["g"]),
        (ids["g"], "has_milestone", ids["m"]),
        (ids["m"], "has_plan", ids["p"]),
        (ids["p"], "has_task", ids["t"]),
        (ids["r"], "threatens", ids["t"]),
        (ids["t"], "relates_to", ids["r"]),
        (project_id, "has_risk", ids["r"]),
        (project_id, "has_requirement", ids["q"]),
        (project_id, "has_metric", ids["n"]),
        (project_id, "has_source", ids["s"]),
        (project_id, "has_document", ids["d"]),
        (project_id, "has_document", found["context_document"]["id"]),
        (project_id, "has_context_document", found["context_document"]["id"]),
    }
    assert graph["metadata"]["node_count"] == 10
    assert made["counts"]["edges"] == graph["metadata"]["edge_count"] == len(edges)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"project": {"name": "x", "type_key": "project.nonsense.x"}}, "project.type_key"),
    ({"project": {"name": " ", "type_key": "project.business.x"}}, "project.name"),
    ({"entities": [{"temp_id": "t", "kind": "task", "title": "x" * 501}]}, "entities[0].title"),
    ({"entities": [{"temp_id": "t", "kind": "task", "title": "x", "colour": "red"}]}, "entities[0].colour"),
    ({"entities": [{"temp_id": "d", "kind": "document", "title": "x", "colour": "red"}]}, "entities[0].colour"),
    ({"entities": [{"temp_id": "d", "kind": "document", "title": "x", "position": "y"}]}, "entities[0].position"),
    ({"entities": [{"temp_id": "t", "kind": "task"}]}, "entities[0].title"),
    ({"entities": [{"temp_id": "t", "kind": "task", "title": "x", "state_key": "open"}]}, "entities[0].state_key"),
    ({"entities": [{"temp_id": "m", "kind": "milestone", "title": "alone"}]}, "entities[0]"),
    ({"entities": [{"temp_id": "t", "kind": "task", "title": "x", "due_at": "soon"}]}, "entities[0].due_at"),
    ({"entities": [{"temp_id": "t", "kind": "task", "title": "x"}] * 2}, "entities[1].temp_id"),
    ({"relationships": [["a", "b"]]}, "relationships[0][0]"),
    ({"relationships": [{"from": "a", "to": "b"}]}, "relationships[0].from"),
    (
        {"entities": [{"temp_id": "t", "kind": "task", "title": "x"}], "relationships": [["t", "t"]]},
        "relationships[0][1]",
    ),
]
"""Changes of a project, and the place that each makes wrong."""


async def test_a_project_with_one_wrong_part_is_not_created(ada: Person) -> None:
    plain: dict[str, Any] = {"project": WHOLE["project"], "entities": [], "relationships": []}
    refused = [await ada.refused("onto.project.create", **{**plain, **change}) for change, _ in WRONG]

    assert [(code, paths[0]) for code, paths in refused] == [("VALIDATION_ERROR", path) for _, path in WRONG]
    assert (await ada.ok("onto.project.list"))["total"] == 0


async def test_with_clarifications_nothing_is_created_and_they_come_back(ada: Person) -> None:
    asked = [{"key": "when", "question": "When is it?", "required": True, "choices": ["May", "June"]}]
    told = await ada.ok("onto.project.create", **WHOLE, clarifications=asked)

    assert (told["project_id"], told["counts"], told["clarifications"]) == (None, {}, asked)
    assert (await ada.ok("onto.project.list"))["total"] == 0


@pytest.mark.parametrize("kind", ["goal", "plan", "task", "document"])
async def test_an_entity_is_created_listed_read_changed_and_deleted(ada: Person, kind: str) -> None:
    project_id = await ada.project()
    label = KINDS[kind].label
    id = await ada.made(kind, project_id, "First")
    listed = await ada.ok(f"onto.{kind}.list", project_id=project_id)
    changed = await ada.ok(f"onto.{kind}.update", **{f"{kind}_id": id, label: "Second", "description": "now"})
    got = await ada.ok(f"onto.{kind}.get", **{f"{kind}_id": id})
    cleared = await ada.ok(f"onto.{kind}.update", **{f"{kind}_id": id, "description": None})
    deleted = await ada.ok(f"onto.{kind}.delete", **{f"{kind}_id": id})

    assert ([one[label] for one in listed[f"{kind}s"]], listed["total"]) == (["First"], 1)
    assert (changed[kind][label], changed[kind]["description"], changed[kind]["props"]) == ("Second", "now", {})
    assert got[kind] == changed[kind]
    assert [(link["rel"], link["id"]) for link in got["links"]] == [(f"has_{kind}", project_id)]
    assert cleared[kind]["description"] is None
    assert deleted["deleted"] == id
    assert await ada.refused(f"onto.{kind}.get", **{f"{kind}_id": id}) == ("NOT_FOUND", [])
    assert await ada.refused(f"onto.{kind}.update", **{f"{kind}_id": id, label: "x"}) == ("NOT_FOUND", [])
    assert (await ada.ok(f"onto.{kind}.list", project_id=project_id))["total"] == 0
    assert await ada.edges(project_id) == set()


async def test_milestones_risks_requirements_and_projects_are_read_and_changed(ada: Person) -> None:
    project_id, ids = await whole(ada)
    for kind, id, change in (
        ("milestone", ids["m"], {"state_key": "completed"}),
        ("risk", ids["r"], {"owner": "Ann", "mitigation_strategy": "Two printers"}),
        ("requirement", ids["q"], {"text": "Loads at once", "priority": 1}),
        ("project", project_id, {"next_step_short": "Ship", "is_public": True}),
    ):
        changed = (await ada.ok(f"onto.{kind}.update", **{f"{kind}_id": id}, **change))[kind]
        got = (await ada.ok(f"onto.{kind}.get", **{f"{kind}_id": id}))[kind]
        assert {name: got[name] for name in change} == change
        assert got == {**got, **changed}
        listed = await ada.ok(f"onto.{kind}.list")
        assert [one["id"] for one in listed[f"{kind}s"]] == [id]
    assert (await ada.ok("onto.milestone.get", milestone_id=ids["m"]))["milestone"]["completed_at"]


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS.values() if kind.states and kind.name != "event"], ids=lambda kind: kind.name
)
async def test_an_entity_may_be_in_each_state_of_its_kind_and_in_no_other(ada: Person, kind: Any) -> None:
    project_id, ids = await whole(ada)
    id = {"project": project_id, **{one["kind"]: ids[one["temp_id"]] for one in WHOLE["entities"]}}[kind.name]
    before = (await ada.ok(f"onto.{kind.name}.get", **{f"{kind.name}_id": id}))[kind.name]["state_key"]
    states: list[str] = []
    for state in kind.states:
        told = await ada.ok(f"onto.{kind.name}.update", **{f"{kind.name}_id": id, "state_key": state})
        states.append(told[kind.name]["state_key"])

    assert before == kind.states[0]
    assert states == list(kind.states)
    code = await ada.refused(f"onto.{kind.name}.update", **{f"{kind.name}_id": id, "state_key": "unheard_of"})
    assert code == ("VALIDATION_ERROR", ["state_key"])


async def test_done_sets_the_time_of_completion_and_leaving_it_clears_it(ada: Person) -> None:
    project_id = await ada.project()
    id = await ada.made("task", project_id, "x")
    done = (await ada.ok("onto.task.update", task_id=id, state_key="done"))["task"]["completed_at"]
    still = (await ada.ok("onto.task.update", task_id=id, title="y"))["task"]["completed_at"]
    again = (await ada.ok("onto.task.update", task_id=id, state_key="todo"))["task"]["completed_at"]

    assert done is not None
    assert (still, again) == (done, None)


async def test_a_task_belongs_to_its_nearest_parent_and_to_the_project_without_one(ada: Person) -> None:
    project_id, ids = await whole(ada)
    in_plan = await ada.made("task", project_id, "a", plan_id=ids["p"], goal_id=ids["g"])
    in_goal = await ada.made("task", project_id, "b", goal_id=ids["g"], supporting_milestone_id=ids["m"])
    alone = await ada.made("task", project_id, "c")
    twice = await ada.made(
        "task",
        project_id,
        "d",
        parent={"kind": "plan", "id": ids["p"], "is_primary": True},
        parents=[{"kind": "milestone", "id": ids["m"]}],
        connections=[
            {"kind": "task", "id": alone, "rel": "depends_on"},
            {"kind": "document", "id": ids["d"]},
            {"kind": "risk", "id": ids["r"]},
        ],
    )

    assert await ada.edges(in_plan) == {(ids["p"], "has_task", in_plan), (in_plan, "supports_goal", ids["g"])}
    assert await ada.edges(in_goal) == {(ids["g"], "has_task", in_goal), (in_goal, "targets_milestone", ids["m"])}
    assert await ada.edges(alone) == {(project_id, "has_task", alone), (twice, "depends_on", alone)}
    assert await ada.edges(twice) == {
        (ids["p"], "has_task", twice),
        (ids["m"], "has_task", twice),
        (twice, "depends_on", alone),
        (twice, "relates_to", ids["d"]),
        (twice, "has_risk", ids["r"]),
    }
    related = await ada.ok("onto.entity.relationships.get", entity_id=twice)
    primary = [edge["src_id"] for edge in related["relationships"] if "is_primary" in (edge.get("props") or {})]
    assert primary == [ids["p"]]


# Edges


@pytest.mark.parametrize("old", DEPRECATED)
async def test_a_deprecated_relation_is_turned_round(ada: Person, old: str) -> None:
    _, ids = await whole(ada)
    pairs = {
        "belongs_to_plan": ("t", "p"),
        "part_of": ("t", "p"),
        "referenced_by": ("d", "t"),
        "mitigated_by": ("r", "t"),
        "achieved_by": ("g", "t"),
        "supports": ("t", "g"),
    }
    kinds = {one["temp_id"]: one["kind"] for one in WHOLE["entities"]}
    src, dst = pairs[old]
    ends = {"src_kind": kinds[src], "src_id": ids[src], "dst_kind": kinds[dst], "dst_id": ids[dst]}
    edge = (await ada.ok("onto.edge.link", **ends, rel=old))["edge"]

    rel, is_turned = DEPRECATED[old]
    assert edge["rel"] == ("has_task" if rel == "contains" else rel)
    assert (edge["src_id"], edge["dst_id"]) == ((ids[dst], ids[src]) if is_turned else (ids[src], ids[dst]))


@pytest.mark.slow
async def test_every_relation_links_the_kinds_that_it_names_once_and_refuses_others(ada: Person) -> None:
    project_id, ids = await whole(ada)
    by_kind = {"project": project_id, **{one["kind"]: ids[one["temp_id"]] for one in WHOLE["entities"]}}
    print_it = await ada.ok("cal.event.create", title="Print", start_at="2026-11-30", project_id=project_id)
    by_kind["event"] = print_it["event"]["id"]
    other = {
        "task": await ada.made("task", project_id, "other"),
        "document": await ada.made("document", project_id, "other"),
    }
    for rel, (sources, targets) in RELATIONS.items():
        src, dst = next((s, d) for s in sources for d in targets if s != d or s in other)
        dst_id = other[dst] if src == dst else by_kind[dst]
        ends = {"src_kind": src, "src_id": by_kind[src], "dst_kind": dst, "dst_id": dst_id, "rel": rel}
        if rel == "blocks":  # what it depends on is what blocks it
            ends |= {"src_id": dst_id, "dst_id": by_kind[src]}
        await ada.ok("onto.edge.link", **ends)
        again = await ada.ok("onto.edge.link", **ends)
        assert again["created"] is False, rel
    wrong = {"src_kind": "goal", "src_id": ids["g"], "dst_kind": "risk", "dst_id": ids["r"]}
    assert await ada.refused("onto.edge.link", **wrong, rel="mitigates") == ("VALIDATION_ERROR", ["rel"])
    assert await ada.refused("onto.edge.link", **wrong, rel="unheard_of") == ("VALIDATION_ERROR", ["rel"])
    refusal = await ada.envelope("onto.edge.link", **wrong, rel="unheard_of")
    assert [rel for rel in RELATIONS if rel not in refusal["error"]["message"]] == []


async def test_a_nearer_parent_removes_the_projects_link_and_losing_it_brings_that_back(ada: Person) -> None:
    project_id, ids = await whole(ada)
    task = await ada.made("task", project_id, "x")
    ends = {"src_kind": "plan", "src_id": ids["p"], "dst_kind": "task", "dst_id": task}
    linked = await ada.ok("onto.edge.link", **ends, rel="has_task")
    inside = await ada.edges(task)
    back = await ada.ok(
        "onto.edge.link", src_kind="project", src_id=project_id, dst_kind="task", dst_id=task, rel="has_task"
    )
    still = await ada.edges(task)
    unlinked = await ada.ok("onto.edge.unlink", edge_id=linked["edge"]["id"])

    assert (linked["created"], len(linked["removed"])) == (True, 1)
    assert inside == still == {(ids["p"], "has_task", task)}
    assert back["created"] is False
    assert unlinked["project_link"]["src_id"] == project_id
    assert await ada.edges(task) == {(project_id, "has_task", task)}
    assert await ada.refused("onto.edge.unlink", edge_id=linked["edge"]["id"]) == ("NOT_FOUND", [])


@pytest.mark.parametrize("last", ["depends_on", "blocks"])
async def test_a_cycle_of_three_is_refused(ada: Person, last: str) -> None:
    project_id = await ada.project()
    a, b, c = [await ada.made("task", project_id, name) for name in "abc"]

    def ends(src: str, dst: str) -> dict[str, str]:
        return {"src_kind": "task", "src_id": src, "dst_kind": "task", "dst_id": dst}

    await ada.ok("onto.edge.link", **ends(a, b), rel="depends_on")
    await ada.ok("onto.edge.link", **ends(c, b), rel="blocks")
    closing = ends(c, a) if last == "depends_on" else ends(a, c)
    before = await ada.edges(a)

    assert await ada.refused("onto.edge.link", **closing, rel=last) == ("VALIDATION_ERROR", ["dst_id"])
    assert await ada.refused("onto.edge.link", **ends(a, a), rel="relates_to") == ("VALIDATION_ERROR", ["dst_id"])
    assert await ada.edges(a) == before


async def test_a_parent_of_another_project_is_refused_and_an_unknown_one_is_not_found(ada: Person) -> None:
    _, ids = await whole(ada)
    other = await ada.project("Other")
    plain = {"project_id": other, "title": "x"}

    assert await ada.refused("onto.task.create", **plain, plan_id=ids["p"]) == ("VALIDATION_ERROR", ["plan_id"])
    parent = {"kind": "goal", "id": ids["g"]}
    assert await ada.refused("onto.task.create", **plain, parent=parent) == ("VALIDATION_ERROR", ["parent.id"])
    assert await ada.refused("onto.task.create", **plain, parents=[parent]) == ("VALIDATION_ERROR", ["parents[0].id"])
    assert await ada.refused("onto.task.create", **plain, plan_id=NOBODY) == ("NOT_FOUND", [])
    wrong = {"kind": "document", "id": ids["d"]}
    assert await ada.refused("onto.task.create", **plain, parent=wrong) == ("VALIDATION_ERROR", ["parent.kind"])
    far = [{"kind": "task", "id": ids["t"], "rel": "depends_on"}]
    assert await ada.refused("onto.task.create", **plain, connections=far) == (
        "VALIDATION_ERROR",
        ["connections[0].id"],
    )
    assert (await ada.ok("onto.task.list", project_id=other))["total"] == 0


async def test_an_unknown_id_is_answered_with_the_nearest_of_ones_own_rows_and_of_no_others(
    ada: Person, eve: Person
) -> None:
    mine, hers = await ada.project("Launch"), await eve.project("Secret plan")

    async def message(id: str) -> str:
        told = await ada.envelope("onto.project.get", project_id=id)
        return str(told["error"]["message"]).removeprefix(f"there is no project {id!r}")

    for id in (mine[:8], "Lanch"):
        assert mine in await message(id)
    for id in (hers, hers[:8], "Secret plan"):
        assert hers not in await message(id)


async def test_the_id_of_another_kind_is_named_to_those_who_may_see_it(ada: Person, eve: Person) -> None:
    id = await ada.made("task", await ada.project(), "Write the plan")
    messages = [(await one.envelope("onto.goal.get", goal_id=id))["error"]["message"] for one in (ada, eve)]
    assert ["task 'Write the plan'" in message for message in messages] == [True, False]


async def test_the_failure_of_an_unknown_id_names_a_tool_that_has_the_ids(crib: Toolcrib) -> None:
    session = crib.session(principal="ada", profile="flat", mode="autonomous")
    named: dict[str, str] = {}
    for tool in crib.catalog.tools.values():
        needs = tool.input_schema["required"]
        if tool.category in ("onto", "work", "cal") and tool.kind != "write" and [one[-3:] for one in needs] == ["_id"]:
            failure = (await session.call(tool.name, {needs[0]: NOBODY})).error
            named[tool.name] = failure.hint.partition(" ")[0] if failure else ""

    assert named["get_onto_task_details"] == "search_ontology"
    assert {name: hint for name, hint in named.items() if hint not in crib.catalog.tools} == {}


async def test_deleting_a_plan_leaves_its_tasks_to_the_project(ada: Person) -> None:
    project_id, ids = await whole(ada)
    await ada.ok("onto.plan.delete", plan_id=ids["p"])

    assert (project_id, "has_task", ids["t"]) in await ada.edges(ids["t"])
    linked = await ada.ok("onto.entity.links.get", entity_id=ids["m"], entity_kind="milestone")
    assert linked["counts"] == {"goal": 1}


async def test_links_are_counted_by_kind_and_filtered(ada: Person) -> None:
    _, ids = await whole(ada)
    linked = await ada.ok("onto.entity.links.get", entity_id=ids["t"], entity_kind="task", filter_kind="plan")
    outgoing = await ada.ok("onto.entity.relationships.get", entity_id=ids["t"], direction="outgoing")
    incoming = await ada.ok("onto.entity.relationships.get", entity_id=ids["t"], direction="incoming")

    assert linked["counts"] == {"plan": 1, "risk": 2}
    assert [(one["rel"], one["direction"], one["label"]) for one in linked["entities"]] == [
        ("has_task", "incoming", "Campaign")
    ]
    assert [edge["rel"] for edge in outgoing["relationships"]] == ["relates_to"]
    assert {edge["rel"] for edge in incoming["relationships"]} == {"has_task", "threatens"}
    assert await ada.refused("onto.entity.relationships.get", entity_id=NOBODY) == ("NOT_FOUND", [])


# Documents


async def test_documents_have_a_tree_paths_and_places(ada: Person) -> None:
    project_id = await ada.project()
    folder = await ada.made("document", project_id, "Folder")
    inner = await ada.made("document", project_id, "Inner", parent_id=folder)
    first = await ada.made("document", project_id, "First", position=0)
    path = await ada.ok("onto.document.path.get", document_id=inner)
    moved = await ada.ok(
        "onto.document.tree.move", project_id=project_id, document_id=first, new_parent_id=inner, new_position=5
    )
    under_itself = {"project_id": project_id, "document_id": folder, "new_parent_id": first}
    await ada.ok("onto.document.update", document_id=inner, title="Renamed")
    tree = await ada.ok("onto.document.tree.get", project_id=project_id, include_content=True)

    assert path["path"] == [{"id": folder, "title": "Folder"}, {"id": inner, "title": "Inner"}]
    assert moved["structure"]["version"] == 4
    assert tree["structure"]["root"] == [
        {
            "id": folder,
            "title": "Folder",
            "order": 0,
            "children": [
                {
                    "id": inner,
                    "title": "Renamed",
                    "order": 0,
                    "children": [{"id": first, "title": "First", "order": 0, "children": []}],
                }
            ],
        }
    ]
    assert set(tree["documents"]) == {folder, inner, first}
    assert await ada.refused("onto.document.tree.move", **under_itself) == ("VALIDATION_ERROR", ["new_parent_id"])


async def test_a_large_tree_and_the_many_documents_of_a_task_come_in_pages_that_fit(ada: Person) -> None:
    titles = [f"Seite {number} — {'ü' * 40}" for number in range(150)]
    notes = [{"path": f"a/b/{number:03}.md", "content": f"# {title}"} for number, title in enumerate(titles)]
    project_id = (await ada.ok("x.graph.import", files=notes))["project_id"]
    task = await ada.made("task", project_id, "Read")
    ids: list[str] = []
    pages: list[Any] = []
    while not pages or "go on with" in pages[-1]["message"]:
        given = {"include_documents": True, "offset": len(ids)}
        pages.append(await ada.ok("onto.document.tree.get", project_id=project_id, **given))
        ids += pages[-1]["documents"]
    plain = await ada.ok("onto.document.tree.get", project_id=project_id)
    moved = await ada.ok("onto.document.tree.move", project_id=project_id, document_id=ids[-1], new_parent_id=ids[1])
    older = {"project_id": project_id, "version": plain["structure"]["version"]}
    restored = await ada.ok("x.document.tree.version.restore", **older)
    for id in ids[2:]:
        await ada.ok("onto.task.docs.create_or_attach", task_id=task, document_id=id)
    first = await ada.ok("onto.task.docs.list", task_id=task)
    rest = await ada.ok("onto.task.docs.list", task_id=task, offset=len(first["documents"]))

    assert all(
        len(json.dumps(page, ensure_ascii=False).encode()) <= PAGE_BYTES * 1.1
        for page in (*pages, plain, moved, restored)
    )
    siblings = moved["structure"]["root"][0]["children"][0]["children"]
    assert [node["title"] for node in siblings] == [titles[-1], *titles[: len(siblings) - 1]]
    assert f" {len(siblings) + 2} of 152 documents of the tree; get_document_tree" in moved["message"]
    inner = [page["structure"]["root"][0]["children"][0]["children"] for page in pages]
    assert [node["title"] for page in inner for node in page] == titles
    assert [node["order"] for page in inner for node in page] == [*range(150)]
    assert len(json.dumps(first, ensure_ascii=False).encode()) <= PAGE_BYTES * 1.1
    assert f"go on with offset {len(first['documents'])}" in first["message"]
    found = [one["document"]["id"] for one in (*first["documents"], *rest["documents"])]
    assert found == ids[2 : 2 + len(found)]
    assert len(rest["documents"]) > 1


async def test_a_deleted_folder_unlinks_what_is_below_it_and_a_move_brings_it_back(ada: Person) -> None:
    project_id = await ada.project()
    folder = await ada.made("document", project_id, "Folder")
    inner = await ada.made("document", project_id, "Inner", parent_id=folder)
    await ada.ok("onto.document.delete", document_id=folder)
    tree = await ada.ok("onto.document.tree.get", project_id=project_id)
    path = await ada.ok("onto.document.path.get", document_id=inner)
    back = await ada.ok("onto.document.tree.move", project_id=project_id, document_id=inner, new_parent_id=None)

    assert (tree["structure"]["root"], tree["unlinked"]) == ([], [{"id": inner, "title": "Inner"}])
    assert path["path"] == []
    assert [node["id"] for node in back["structure"]["root"]] == [inner]


async def test_a_document_without_a_title_and_a_heading_is_refused(ada: Person) -> None:
    project_id = await ada.project()
    missing = await ada.refused("onto.document.create", project_id=project_id, content="no heading")

    assert missing == ("VALIDATION_ERROR", ["title"])


@pytest.mark.slow
async def test_documents_of_a_task_are_made_or_attached(ada: Person) -> None:
    _, ids = await whole(ada)
    made = await ada.ok("onto.task.docs.create_or_attach", task_id=ids["t"], title="Pad", role="scratch_pad")
    attached = await ada.ok("onto.task.docs.create_or_attach", task_id=ids["t"], document_id=ids["d"])
    again = await ada.ok("onto.task.docs.create_or_attach", task_id=ids["t"], document_id=ids["d"], role="brief")
    listed = await ada.ok("onto.task.docs.list", task_id=ids["t"])

    assert (made["edge"]["rel"], made["edge"]["props"]) == ("task_has_document", {"role": "scratch_pad"})
    assert again["edge"]["id"] == attached["edge"]["id"]
    assert [(one["document"]["title"], one["edge"]["props"]) for one in listed["documents"]] == [
        ("Pad", {"role": "scratch_pad"}),
        ("Brief", {"role": "brief"}),
    ]
    assert listed["scratch_pad"]["id"] == made["document"]["id"]
    nothing = await ada.refused("onto.task.docs.create_or_attach", task_id=ids["t"])
    assert nothing == ("VALIDATION_ERROR", ["title"])
    both = {"task_id": ids["t"], "document_id": ids["d"], "content": "lost"}
    assert await ada.refused("onto.task.docs.create_or_attach", **both) == ("VALIDATION_ERROR", ["content"])


async def test_milestones_risks_and_requirements_are_added_to_a_project_that_exists_and_deleted(ada: Person) -> None:
    project_id, ids = await whole(ada)
    milestone = (await ada.ok("x.milestone.create", project_id=project_id, title="Beta", goal_id=ids["g"]))["milestone"]
    plan = await ada.made("plan", project_id, "Test it", milestone_id=milestone["id"])
    threatens = {"kind": "task", "id": ids["t"], "rel": "threatens"}
    risk = await ada.ok(
        "x.risk.create",
        project_id=project_id,
        title="Late",
        parent={"kind": "plan", "id": plan},
        connections=[threatens],
    )
    text = await ada.ok("x.requirement.create", project_id=project_id, text="Loads at once")
    alone = await ada.refused("x.milestone.create", project_id=project_id, title="Without a goal")
    risk_id = risk["risk"]["id"]

    assert (milestone["state_key"], risk["risk"]["impact"], text["requirement"]["priority"]) == ("pending", "medium", 3)
    assert await ada.edges(risk_id) == {(plan, "has_risk", risk_id), (risk_id, "threatens", ids["t"])}
    assert alone == ("VALIDATION_ERROR", ["goal_id"])
    await ada.ok("x.milestone.delete", milestone_id=milestone["id"])
    await ada.ok("x.risk.delete", risk_id=risk_id)
    await ada.ok("x.requirement.delete", requirement_id=text["requirement"]["id"])
    assert await ada.edges(plan) == {(project_id, "has_plan", plan)}
    assert (await ada.refused("onto.risk.get", risk_id=risk_id))[0] == "NOT_FOUND"


# Updates


async def test_append_adds_to_texts_and_replace_replaces_them_and_both_add_props(ada: Person) -> None:
    project_id = await ada.project()
    id = await ada.made("task", project_id, "x", description="one", props={"a": 1, "b": 2})
    appended = await ada.ok(
        "onto.task.update", task_id=id, description="two", props={"b": 3}, title="y", update_strategy="append"
    )
    replaced = await ada.ok("onto.task.update", task_id=id, description="three", props={"c": 1})

    task = appended["task"]
    assert (task["title"], task["description"], task["props"]) == ("y", "one\n\ntwo", {"a": 1, "b": 3})
    assert (replaced["task"]["description"], replaced["task"]["props"]) == ("three", {"a": 1, "b": 3, "c": 1})
    removed = await ada.ok("onto.task.update", task_id=id, props={"a": None, "c": None})
    assert removed["task"]["props"] == {"b": 3}


async def test_a_long_text_is_stored_whole_and_not_read_back_by_who_wrote_it(ada: Person) -> None:
    text = "a long story " * 500
    id = await ada.made("document", await ada.project(), "x", content=text)
    changed = await ada.ok("onto.document.update", document_id=id, content="The end.", update_strategy="append")
    got = await ada.ok("onto.document.get", document_id=id)

    assert got["document"]["content"] == f"{text.rstrip()}\n\nThe end."
    assert len(changed["document"]["content"]) < 300


async def test_a_merge_without_a_model_and_an_update_without_fields_are_refused(ada: Person) -> None:
    project_id = await ada.project()
    id = await ada.made("task", project_id, "x", description="one")

    merge = await ada.refused("onto.task.update", task_id=id, description="two", update_strategy="merge_llm")
    assert merge == ("VALIDATION_ERROR", ["update_strategy"])
    assert (await ada.refused("onto.task.update", task_id=id))[0] == "VALIDATION_ERROR"
    assert await ada.refused("onto.task.update", task_id=id, title=None) == ("VALIDATION_ERROR", ["title"])
    dates = {"start_at": "2026-12-02", "due_at": "2026-12-01T10:00:00+02:00"}
    assert await ada.refused("onto.task.update", task_id=id, **dates) == ("VALIDATION_ERROR", ["due_at"])
    late = {"start_at": "2026-12-02T09:00:00Z", "due_at": "2026-12-01"}
    assert await ada.refused("onto.task.update", task_id=id, **late) == ("VALIDATION_ERROR", ["due_at"])
    props = await ada.refused("onto.task.update", task_id=id, props={"facets": {"colour": "red"}})
    assert props[0] == "VALIDATION_ERROR"
    assert (await ada.ok("onto.task.get", task_id=id))["task"]["description"] == "one"


async def test_a_merge_does_not_overwrite_what_was_changed_while_the_model_thought(ada: Person) -> None:
    id = await ada.made("task", await ada.project(), "x", description="one")
    merge = {"task_id": id, "description": "two", "update_strategy": "merge_llm"}

    class Slow(RecordingPeer):
        async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
            if "one" in str(params) and not self.requests:
                await ada.ok("onto.task.update", task_id=id, description="changed meanwhile")
            return await super().request(method, params)

    peer = Slow({"sampling/createMessage": {"content": {"type": "text", "text": "Both."}}})

    async def merged() -> Any:
        asked = {"op": "onto.task.update", "args": merge}
        return (await ada.session.call("tool_exec", asked, peer=peer)).structured_content

    late, again = await merged(), await merged()

    assert (late["ok"], late["error"]["code"]) == (False, "CONFLICT")
    assert (again["result"]["task"]["description"], len(peer.requests)) == ("Both.", 2)
    assert "changed meanwhile" in str(peer.requests[1])


async def test_a_task_that_starts_at_an_hour_may_be_due_on_the_same_day(ada: Person) -> None:
    project_id = await ada.project()
    id = await ada.made("task", project_id, "x", start_at="2026-12-02T09:00:00Z", due_at="2026-12-02")

    assert (await ada.ok("onto.task.get", task_id=id))["task"]["due_at"] == "2026-12-02"


# The graph in pages


async def many(ada: Person, count: int) -> str:
    entities = [{"temp_id": "p", "kind": "plan", "name": "All"}]
    entities += [{"temp_id": f"t{n}", "kind": "task", "title": f"Ask supplier {n} «now»"} for n in range(count)]
    return await ada.project(entities=entities, relationships=[["p", f"t{n}"] for n in range(count)])


def flat(graphs: list[Any]) -> tuple[list[str], list[str]]:
    """Return the ids of nodes and edges on the pages of a graph."""
    nodes = [node["id"] for one in graphs for kind in one["graph"]["nodes"].values() for node in kind]
    return nodes, [edge["id"] for one in graphs for edge in one["graph"]["edges"]]


@pytest.mark.slow
async def test_pages_of_a_graph_fit_the_result_of_a_model_and_are_the_whole_together(ada: Person) -> None:
    project_id = await many(ada, 150)
    pages = [await ada.ok("onto.project.graph.get", project_id=project_id)]
    while cursor := pages[-1]["metadata"].get("next_cursor"):
        pages.append(await ada.ok("onto.project.graph.get", project_id=project_id, cursor=cursor))

    assert 2 <= len(pages) <= 6
    nodes, edges = flat(pages)
    metadata = pages[0]["metadata"]
    assert (len(nodes), len(edges)) == (151, 151) == (metadata["node_count"], metadata["edge_count"])
    assert (len(set(nodes)), len(set(edges))) == (151, 151)
    seen = {project_id}
    for page in pages:
        seen |= set(flat([page])[0])
        assert {edge[end] for edge in page["graph"]["edges"] for end in ("src_id", "dst_id")} <= seen
    assert {page["metadata"]["version"] for page in pages} == {metadata["version"]}


async def test_a_page_has_as_many_entities_as_asked_for_with_their_edges(ada: Person) -> None:
    project_id = await many(ada, 5)
    first = await ada.ok("onto.project.graph.get", project_id=project_id, limit=4)
    cursor = first["metadata"]["next_cursor"]
    second = await ada.ok("onto.project.graph.get", project_id=project_id, limit=4, cursor=cursor)

    assert [tuple(map(len, flat([page]))) for page in (first, second)] == [(4, 4), (2, 2)]
    assert "next_cursor" not in second["metadata"]


def test_pages_have_every_edge_once_in_whatever_order_the_store_returns_the_edges() -> None:
    nodes: dict[str, list[dict[str, Any]]] = {kind.plural: [] for kind in KINDS.values() if kind.name != "project"}
    nodes["plans"], nodes["tasks"] = [{"id": "p"}], [{"id": f"t{n}"} for n in range(5)]
    edges = [{"id": f"e{n}", "src_id": "p", "rel": "has_task", "dst_id": f"t{n % 5}"} for n in range(60)]
    found, cursor = list[str](), ""
    for number in range(100):
        turned = edges[number % 7 :] + edges[: number % 7]
        page = page_of(nodes, turned, version="v", limit=None, cursor=cursor, room=500)
        found += [edge["id"] for edge in page.edges]
        cursor = page.next_cursor or ""
        if not cursor:
            break

    assert sorted(found) == sorted(edge["id"] for edge in edges)


@pytest.mark.slow
async def test_a_cursor_of_a_changed_graph_and_one_that_is_none_are_refused(ada: Person) -> None:
    project_id = await many(ada, 5)
    page = await ada.ok("onto.project.graph.get", project_id=project_id, limit=4)
    given = {"project_id": project_id, "cursor": page["metadata"]["next_cursor"]}
    await ada.made("document", project_id, "Unlinked")

    assert await ada.refused("onto.project.graph.get", **given) == ("CONFLICT", [])
    wrong = await ada.refused("onto.project.graph.get", project_id=project_id, cursor="next")
    assert wrong == ("VALIDATION_ERROR", ["cursor"])


@pytest.mark.slow
async def test_an_entity_with_many_links_and_a_large_project_come_as_structure(ada: Person) -> None:
    risks = [{"temp_id": f"r{n}", "kind": "risk", "title": f"Risk {n}", "content": "Late. " * 30} for n in range(60)]
    tasks = [{"temp_id": f"t{n}", "kind": "task", "title": f"Ask {n}", "description": "Why. " * 40} for n in range(60)]
    plan = {"temp_id": "p", "kind": "plan", "name": "All"}
    pairs = [["p", f"t{n}"] for n in range(60)] + [["p", f"r{n}"] for n in range(60)]
    project_id = await ada.project(entities=[plan, *risks, *tasks], relationships=pairs)
    project = await ada.ok("onto.project.get", project_id=project_id)
    plan_id = project["plans"][0]["id"]
    one = await ada.ok("onto.plan.get", plan_id=plan_id)
    given = {"entity_id": plan_id, "entity_kind": "plan", "filter_kind": "task"}
    linked = [await ada.ok("onto.entity.links.get", **given, offset=offset) for offset in (0, 50)]
    edges = [
        await ada.ok("onto.entity.relationships.get", entity_id=plan_id, offset=offset) for offset in range(0, 160, 40)
    ]

    assert (project["counts"]["tasks"], 10 <= len(project["tasks"]) <= 50) == (60, True)
    assert len(one["links"]) == 50
    assert [(len(part["entities"]), part["total"]) for part in linked] == [(50, 60), (10, 60)]
    assert linked[0]["counts"] == {"project": 1, "risk": 60, "task": 60}
    assert len({link["id"] for part in linked for link in part["entities"]}) == 60
    assert [len(part["relationships"]) for part in edges] == [40, 40, 40, 1]
    assert len({edge["id"] for part in edges for edge in part["relationships"]}) == edges[0]["total"] == 121


# Reorganization


async def test_a_dry_run_shows_the_changes_that_the_run_makes(ada: Person) -> None:
    project_id, ids = await whole(ada)
    nodes: list[dict[str, Any]] = [
        {"id": ids["t"], "kind": "task", "connections": [{"kind": "goal", "id": ids["g"]}]},
        {"id": ids["p"], "kind": "plan", "connections": []},
    ]
    before = await ada.ok("onto.project.graph.get", project_id=project_id)
    dry = await ada.ok("onto.project.graph.reorganize", project_id=project_id, nodes=nodes, options={"dry_run": True})
    between = await ada.ok("onto.project.graph.get", project_id=project_id)
    done = await ada.ok("onto.project.graph.reorganize", project_id=project_id, nodes=nodes)

    def shape(told: dict[str, Any]) -> dict[str, list[tuple[str, str, str]]]:
        return {
            name: sorted((edge["src_id"], edge["rel"], edge["dst_id"]) for edge in edges)
            for name, edges in told["changes"].items()
        }

    assert (dry["dry_run"], done["dry_run"], dry["node_count"]) == (True, False, 2)
    assert between["graph"]["edges"] == before["graph"]["edges"]
    assert (
        shape(dry)
        == shape(done)
        == {
            "edges_to_create": sorted([(ids["g"], "has_task", ids["t"]), (project_id, "has_plan", ids["p"])]),
            "edges_to_delete": sorted([(ids["p"], "has_task", ids["t"]), (ids["m"], "has_plan", ids["p"])]),
            "edges_to_update": [],
        }
    )
    assert done["counts"] == {"create": 2, "delete": 2, "update": 0}
    assert [edge["id"] for edge in dry["changes"]["edges_to_create"] if "id" in edge] == []


async def test_who_was_slower_gets_a_conflict_and_changes_nothing(ada: Person) -> None:
    project_id, ids = await whole(ada)
    seen = (await ada.ok("onto.project.graph.get", project_id=project_id))["metadata"]["version"]
    await ada.made("task", project_id, "faster")
    nodes: list[dict[str, Any]] = [{"id": ids["t"], "kind": "task", "connections": []}]
    before = await ada.edges(ids["t"])
    code, _ = await ada.refused(
        "onto.project.graph.reorganize", project_id=project_id, nodes=nodes, options={"version": seen}
    )

    assert code == "CONFLICT"
    assert await ada.edges(ids["t"]) == before


async def test_a_change_of_an_edges_props_is_a_change_of_the_graph(ada: Person) -> None:
    project_id, ids = await whole(ada)
    risk = {"kind": "risk", "id": ids["r"], "intent": "semantic", "props": {"why": "late"}}
    node = {"id": ids["t"], "kind": "task", "connections": [risk], "mode": "merge", "semantic_mode": "merge"}
    given = {"project_id": project_id, "nodes": [node]}
    seen = (await ada.ok("onto.project.graph.get", project_id=project_id))["metadata"]["version"]
    done = await ada.ok("onto.project.graph.reorganize", **given)
    code, _ = await ada.refused("onto.project.graph.reorganize", **given, options={"version": seen})

    assert (done["counts"], code) == ({"create": 0, "delete": 0, "update": 1}, "CONFLICT")


@pytest.mark.slow
async def test_a_reorganization_keeps_to_the_rules_of_parents(ada: Person) -> None:
    project_id, ids = await whole(ada)
    goal = {"kind": "goal", "id": ids["g"]}
    op = "onto.project.graph.reorganize"

    def nodes(kind: str, id: str, *connections: Any, **more: Any) -> dict[str, Any]:
        return {"project_id": project_id, "nodes": [{"id": id, "kind": kind, "connections": list(connections), **more}]}

    at = ("VALIDATION_ERROR", ["nodes[0].connections"])
    assert await ada.refused(op, **nodes("task", ids["t"], goal, mode="merge")) == at
    assert await ada.refused(op, **nodes("milestone", ids["m"])) == at
    twice = [{"id": ids["t"], "kind": "task", "connections": [goal]}, {"id": ids["t"], "kind": "task"}]
    given_twice = await ada.refused(op, project_id=project_id, nodes=twice)
    assert given_twice == ("VALIDATION_ERROR", ["nodes[1].id"])
    assert await ada.refused(op, **nodes("task", ids["t"], allow_project_fallback=False)) == at
    both = await ada.ok(op, **nodes("task", ids["t"], goal, mode="merge", allow_multi_parent=True))
    assert both["counts"] == {"create": 1, "delete": 0, "update": 0}
    props = {"kind": "risk", "id": ids["r"], "intent": "semantic", "props": {"why": "late"}}
    kept = await ada.ok(op, **nodes("task", ids["t"], props, semantic_mode="preserve"))
    assert kept["counts"] == {"create": 1, "delete": 2, "update": 0}
    noted = await ada.ok(op, **nodes("task", ids["t"], props, mode="merge", semantic_mode="merge"))
    assert noted["counts"] == {"create": 0, "delete": 0, "update": 1}


async def test_a_reorganization_refuses_dependencies_in_a_cycle_and_reads_its_own_edges(ada: Person) -> None:
    project_id = await ada.project()
    one, two, three = [await ada.made("task", project_id, title) for title in ("one", "two", "three")]
    op = "onto.project.graph.reorganize"

    def waits(id: str, *others: str, rel: str = "depends_on", **more: Any) -> dict[str, Any]:
        connections = [{"kind": "task", "id": other, "intent": "semantic", "rel": rel, **more} for other in others]
        return {"id": id, "kind": "task", "connections": connections}

    await ada.ok(op, project_id=project_id, nodes=[waits(one, two)])
    closed = await ada.refused(op, project_id=project_id, nodes=[waits(three, one), waits(two, three)])
    blocked = await ada.refused(op, project_id=project_id, nodes=[waits(one, two, rel="blocks")])
    merged = {"project_id": project_id, "options": {"mode": "merge"}}
    chained = await ada.ok(op, nodes=[waits(one, two, three)], **merged)

    assert closed == ("VALIDATION_ERROR", ["nodes[0].connections[0].id"])
    assert blocked == ("VALIDATION_ERROR", ["nodes[0].connections[0].id"])
    assert chained["counts"] == {"create": 1, "delete": 0, "update": 0}
    twice = [waits(one, two, rel="relates_to"), waits(two, one, rel="relates_to", props={"why": "shared"})]
    related = await ada.ok(op, nodes=twice, **merged)
    assert related["counts"] == {"create": 1, "delete": 0, "update": 0}
    assert related["changes"]["edges_to_create"][0]["props"] == {"why": "shared"}


async def test_a_reorganization_without_a_parent_keeps_the_edge_to_the_project(ada: Person) -> None:
    project_id = await ada.project()
    task = await ada.made("task", project_id, "one")
    before = await ada.ok("onto.project.graph.get", project_id=project_id)
    done = await ada.ok("onto.project.graph.reorganize", project_id=project_id, nodes=[{"id": task, "kind": "task"}])

    assert done["counts"] == {"create": 0, "delete": 0, "update": 0}
    assert await ada.ok("onto.project.graph.get", project_id=project_id) == before


async def test_a_reorganization_goes_on_beside_a_stored_cycle_and_closes_no_other(crib: Toolcrib, ada: Person) -> None:
    project_id = await ada.project()
    one, two, three, four = [await ada.made("task", project_id, title) for title in ("one", "two", "three", "four")]

    def close(rows: Rows) -> None:
        for src, dst in ((one, two), (two, one)):
            ends = {"src_kind": "task", "src_id": src, "dst_kind": "task", "dst_id": dst}
            rows.insert("edges", {"project_id": project_id, "rel": "depends_on", "props": {}, **ends})

    async def waits(id: str, other: str) -> tuple[str, Any]:
        node = {"id": id, "kind": "task", "connections": [{"kind": "task", "id": other, "rel": "depends_on"}]}
        told = await ada.envelope("onto.project.graph.reorganize", project_id=project_id, nodes=[node])
        return ("", told["result"]["counts"]) if told["ok"] else (told["error"]["code"], told["error"]["details"])

    await crib.store.shared.write(SCHEMA, "ada", lambda value: value, close)
    created = {"create": 1, "delete": 0, "update": 0}

    assert await waits(two, three) == await waits(three, four) == ("", created)
    assert await waits(one, two) == ("", {**created, "create": 0})
    code, details = await waits(four, one)
    assert (code, [error["path"] for error in details["field_errors"]]) == (
        "VALIDATION_ERROR",
        ["nodes[0].connections[0].id"],
    )


async def test_inferred_edges_go_with_replace_auto_alone(ada: Person) -> None:
    project_id, ids = await whole(ada)
    task = await ada.made("task", project_id, "x", plan_id=ids["p"], goal_id=ids["g"])
    node = {"id": task, "kind": "task", "connections": [{"kind": "plan", "id": ids["p"]}]}

    async def changed(mode: str) -> Any:
        given = {"project_id": project_id, "nodes": [node], "options": {"semantic_mode": mode}}
        return (await ada.ok("onto.project.graph.reorganize", **given))["counts"]

    assert await changed("merge") == {"create": 0, "delete": 0, "update": 0}
    assert await changed("replace_auto") == {"create": 0, "delete": 1, "update": 0}


# Search and lists


async def test_a_search_goes_over_all_kinds_with_a_snippet_and_finds_nothing_that_was_deleted(ada: Person) -> None:
    project_id, ids = await whole(ada)
    found = await ada.ok("onto.search", query="copper")
    typed = await ada.ok("onto.search", query="printer copper", types=["risk", "requirement"])
    tasks = await ada.ok("onto.task.search", search="page", project_id=project_id)
    done = await ada.ok("onto.task.search", search="page", state_key="done")
    await ada.ok("onto.document.delete", document_id=ids["d"])
    gone = await ada.ok("onto.search", query="copper")

    (hit,) = found["results"]
    assert {name: hit[name] for name in ("type", "id", "project_id", "title", "snippet")} == {
        "type": "document",
        "id": ids["d"],
        "project_id": project_id,
        "title": "Brief",
        "snippet": "Copper pipes",
    }
    assert [one["type"] for one in typed["results"]] == ["risk"]
    assert ([one["title"] for one in tasks["tasks"]], tasks["project_name"]) == (["Write the page"], "Launch")
    assert (done["tasks"], gone["results"]) == ([], [])


async def test_a_page_of_a_search_is_as_long_as_a_result_and_the_next_one_goes_on_behind_it(ada: Person) -> None:
    titles = {f"{number} {'copper pipe ' * 20}" for number in range(60)}
    tasks = [{"temp_id": title[:2], "kind": "task", "title": title, "description": title * 3} for title in titles]
    await ada.project(entities=tasks)
    found: list[str] = []
    messages: list[tuple[str, int]] = []
    while len(found) < 60:
        page = await ada.ok("onto.search", query="copper", limit=50, offset=len(found))
        messages.append((page["message"].split(" of ")[0], len(page["results"])))
        found += [hit["title"] for hit in page["results"]]

    assert {*found} == {title.strip() for title in titles}
    assert [said for said, _ in messages] == [str(shown) for _, shown in messages]
    assert messages[0][1] < 50


async def test_lists_are_newest_first_filtered_and_limited(ada: Person) -> None:
    tasks = [
        {"temp_id": f"{n}", "kind": "task", "title": f"t{n}", "state_key": "done" if n % 2 else "todo"}
        for n in range(25)
    ]
    project_id = await ada.project(entities=tasks)
    all_tasks = await ada.ok("onto.task.list", project_id=project_id)
    done = await ada.ok("onto.task.list", project_id=project_id, state_key="done", limit=3)

    assert ([one["title"] for one in all_tasks["tasks"]][:2], len(all_tasks["tasks"])) == (["t24", "t23"], 20)
    assert all_tasks["total"] == 25
    assert ([one["title"] for one in done["tasks"]], done["total"]) == (["t23", "t21", "t19"], 12)
    assert len((await ada.ok("onto.task.list", limit=5000, state_key=None))["tasks"]) == 25
    rest = await ada.ok("onto.task.list", project_id=project_id, offset=20)
    beyond = await ada.ok("onto.task.list", project_id=project_id, offset=30)
    searched = await ada.ok("onto.task.search", search="t1 t2 t3", limit=2, offset=1)
    assert ([one["title"] for one in rest["tasks"]], rest["total"]) == ([f"t{n}" for n in (4, 3, 2, 1, 0)], 25)
    assert (beyond["tasks"], beyond["total"]) == ([], 25)
    assert (len(searched["tasks"]), searched["total"]) == (2, 18)
    pages = [await ada.ok("onto.search", query="t1 t2 t3", limit=10, offset=offset) for offset in (0, 10)]
    found = [one["title"] for page in pages for one in page["results"]]
    assert (len(found), len(set(found)), pages[0]["total"]) == (18, 18, 18)


async def test_a_line_of_a_list_does_not_repeat_the_project_of_the_call_nor_what_is_usual(ada: Person) -> None:
    project_id = await ada.project()
    ids = [await ada.made("task", project_id, "a"), await ada.made("task", project_id, "b", type_key="task.plan")]
    here = await ada.ok("onto.task.list", project_id=project_id)
    everywhere = (await ada.ok("onto.task.list"))["tasks"]

    first = {"id": ids[0], "title": "a", "state_key": "todo"}
    second = {"id": ids[1], "title": "b", "state_key": "todo", "type_key": "task.plan"}
    assert (here["tasks"], here["project_name"]) == ([second, first], "Launch")
    more = {"project_id": project_id, "project_name": "Launch"}
    assert everywhere == [{**second, **more}, {**first, **more}]


async def test_fifty_tasks_with_descriptions_cost_a_model_no_more_than_1500_tokens(ada: Person) -> None:
    words = "Ask the printer for an offer, compare it with the last one and tell the team. " * 3
    tasks = [
        {"temp_id": str(number), "kind": "task", "title": f"Compare offer number {number}", "description": words}
        for number in range(50)
    ]
    project_id = await ada.project(entities=tasks)
    listed = await ada.session.call(
        "tool_exec", {"op": "onto.task.list", "args": {"project_id": project_id, "limit": 50}}
    )
    short = await ada.ok("onto.task.list", project_id=project_id, limit=10)

    assert listed.structured_content["result"]["total"] == 50
    assert (tokenizer().name, tokenizer().count(listed.text) <= 1500) == ("o200k", True)
    assert [len(one["description"]) for one in short["tasks"]] == [200] * 10


async def test_fields_are_described_from_the_model(ada: Person) -> None:
    told = await ada.ok("util.schema.field_info", entity_type="ontology_task", field_name="state_key")
    every = await ada.ok("util.schema.field_info", entity_type="ontology_goal")

    assert told["fields"] == {
        "state_key": {
            "type": "string",
            "enum": ["todo", "in_progress", "blocked", "done"],
            "required": False,
            "default": "todo",
        }
    }
    assert set(every["fields"]) == set(KINDS["goal"].schema["properties"])
    assert await ada.refused("util.schema.field_info", entity_type="ontology_whale") == ("NOT_FOUND", [])
    assert await ada.refused("util.schema.field_info", entity_type="ontology_task", field_name="x") == ("NOT_FOUND", [])


async def test_the_context_of_a_session_names_the_project(crib: Toolcrib, ada: Person) -> None:
    project_id = await ada.project()
    inside = person(crib, "ada", {"project_id": project_id})
    inside.session.state.defaults = {"project_id": project_id}
    made = await inside.ok("onto.task.create", title="x")

    assert made["task"]["project_id"] == project_id


async def test_a_new_project_becomes_the_current_one_for_operations_that_require_a_project(ada: Person) -> None:
    first = await ada.project("First")
    second = await ada.project("Second")
    made = await ada.ok("onto.task.create", title="x")
    named = await ada.ok("onto.task.create", title="y", project_id=first)
    graph = await ada.ok("onto.project.graph.get")
    exported = await ada.ok("x.graph.export")

    assert (made["task"]["project_id"], named["task"]["project_id"]) == (second, first)
    assert graph["graph"]["project"]["id"] == exported["data"]["project"]["id"] == second
    imported = await ada.ok("x.graph.import", data=exported["data"], name="Third")
    assert imported["context_shift"] == {
        "new_context": "project",
        "entity_id": imported["project_id"],
        "entity_name": "Third",
    }
    assert (await ada.ok("onto.project.get"))["project"]["name"] == "Third"


async def test_a_current_project_changes_no_call_that_means_all_projects_or_the_user(
    crib: Toolcrib, ada: Person
) -> None:
    for name in ("First", "Second"):
        await ada.made("task", await ada.project(name), f"task of {name}")
    event = await ada.ok("cal.event.create", title="Dentist", start_at="2026-11-30T09:00:00Z")

    assert (await ada.ok("onto.task.list"))["total"] == 2
    assert (await ada.ok("onto.task.search", search="task"))["total"] == 2
    assert (await ada.ok("onto.search", query="task", types=["task"]))["total"] == 2
    assert event["event"]["project_id"] is None
    assert await ada.refused("x.member.set", principal="eve", role="viewer") == ("VALIDATION_ERROR", ["project_id"])
    assert dict(ada.session.state.defaults).get("project_id") is None  # memories and queue keep their own project
    other = person(crib, "ada2")
    assert await other.refused("onto.task.create", title="x") == ("VALIDATION_ERROR", ["project_id"])


async def test_a_new_project_replaces_the_project_of_a_sessions_context(crib: Toolcrib, ada: Person) -> None:
    first = await ada.project("First")
    inside = Person(
        crib.session(key="in", principal="ada", profile="gateway", mode="autonomous", context={"project_id": first})
    )
    await inside.made("task", first, "one")
    assert (await inside.ok("onto.task.list"))["total"] == 1
    second = await inside.project("Second")

    assert (await inside.ok("onto.task.list"))["total"] == 0
    assert (await inside.ok("onto.task.create", title="two"))["task"]["project_id"] == second


async def test_every_operation_has_an_event_with_its_entity_and_action(crib: Toolcrib, ada: Person) -> None:
    project_id = await ada.project()
    id = await ada.made("task", project_id, "x")
    await ada.ok("onto.task.list", project_id=project_id)
    await ada.refused("onto.task.update", task_id=id, title="")
    await crib.store.flush()
    events = await crib.store.shared.events("ada", project_id=project_id, types=(), limit=10)

    assert [(one.type, one.payload["entity"], one.payload["action"]) for one in events] == [
        ("onto.task.list", "task", "list"),
        ("onto.task.create", "task", "create"),
        ("onto.project.create", "project", "create"),
    ]
    assert (events[1].payload["id"], events[1].payload["title"]) == (id, "x")
    assert await crib.store.shared.events("eve", project_id="", types=(), limit=10) == []


async def test_entities_of_a_new_project_may_be_named_by_title_or_name(ada: Person) -> None:
    entities = [{"temp_id": "t", "kind": "task", "name": "A"}, {"temp_id": "g", "kind": "goal", "title": "B"}]
    project_id = await ada.project(entities=entities)
    found = await ada.ok("onto.project.get", project_id=project_id)

    assert ([one["title"] for one in found["tasks"]], [one["name"] for one in found["goals"]]) == (["A"], ["B"])


@pytest.mark.slow
async def test_the_last_child_that_fits_is_taken_and_the_next_one_is_refused(crib: Toolcrib, ada: Person) -> None:
    project_id = await ada.project()
    goal = await ada.made("goal", project_id, "full")

    def fill(rows: Rows) -> None:
        ends: dict[str, Any] = {"src_kind": "goal", "src_id": goal, "rel": "has_task", "dst_kind": "task", "props": {}}
        for number in range(MAX_CHILDREN - 1):
            rows.insert("edges", {"project_id": project_id, **ends, "dst_id": f"t{number}"})

    await crib.store.shared.write(SCHEMA, "ada", lambda value: value, fill)
    await ada.made("task", project_id, "the last", goal_id=goal)
    refused = await ada.refused("onto.task.create", project_id=project_id, title="one more", goal_id=goal)

    assert refused == ("VALIDATION_ERROR", ["goal_id"])
    assert [one["title"] for one in (await ada.ok("onto.task.list", project_id=project_id))["tasks"]] == ["the last"]


_PLURALS = {kind.plural for kind in KINDS.values()}


async def test_children_are_counted_in_an_index_alone_also_in_a_store_of_an_older_version(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    narrow = {"edges": (("src_id", "rel"), ("dst_id", "rel"))}
    tables = [replace(table, indexes=narrow.get(table.name, table.indexes)) for table in SCHEMA.tables]
    for schema in (replace(SCHEMA, tables=tuple(tables), migrations={}), SCHEMA):
        async with Store.open(path) as store:
            await store.shared.prepare(schema)

    count = "SELECT count(*) FROM graph_edges WHERE src_id = '' AND rel IN ('') AND deleted_at IS NULL"
    with closing(sqlite3.connect(path)) as raw:
        plan = raw.execute(f"EXPLAIN QUERY PLAN {count} AND project_id IN ('', ' ')").fetchall()
    assert "USING COVERING INDEX graph_edges_by_2" in plan[0][-1]


async def test_a_list_is_read_in_its_order_and_counted_in_an_index_also_in_a_store_of_an_older_version(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.db"
    old = (("project_id", "state_key"), ("project_id", "updated_at"))
    tables = [replace(table, indexes=old) if table.name in _PLURALS else table for table in SCHEMA.tables]
    for schema in (replace(SCHEMA, tables=tuple(tables), migrations={}), SCHEMA):
        async with Store.open(path) as store:
            await store.shared.prepare(schema)

    mine = "WITH my_projects AS (SELECT project_id FROM members WHERE principal = '')"
    tasks = "FROM graph_tasks WHERE deleted_at IS NULL AND project_id IN (SELECT project_id FROM my_projects)"
    of = f"{tasks} AND project_id = ''"
    with closing(sqlite3.connect(path)) as raw:
        listed = raw.execute(f"EXPLAIN QUERY PLAN {mine} SELECT title {of} ORDER BY updated_at DESC, id LIMIT 50")
        steps = [step[-1] for step in listed.fetchall()]
        counted = raw.execute(f"EXPLAIN QUERY PLAN {mine} SELECT count(*) {of}").fetchall()[0][-1]
    assert (steps[0], "USE TEMP B-TREE FOR ORDER BY" in steps) == (
        "SEARCH graph_tasks USING INDEX graph_tasks_by_3 (project_id=?)",
        False,
    )
    assert "USING COVERING INDEX graph_tasks_by_2" in counted


async def test_a_title_of_a_megabyte_is_refused_with_its_path_and_nothing_is_written(ada: Person) -> None:
    project_id = await ada.project()
    refused = await ada.refused("onto.task.create", project_id=project_id, title="x" * 1_000_000)

    assert refused == ("VALIDATION_ERROR", ["title"])
    assert (await ada.ok("onto.task.list", project_id=project_id))["total"] == 0


async def test_a_document_has_no_path_in_another_project(ada: Person) -> None:
    project_id, _ = await whole(ada)
    other = await ada.project("Other")
    document = (await ada.ok("onto.document.list", project_id=project_id))["documents"][0]["id"]

    found = await ada.ok("onto.document.path.get", document_id=document, project_id=project_id)
    refused = await ada.refused("onto.document.path.get", document_id=document, project_id=other)

    assert (found["document_id"], refused) == (document, ("NOT_FOUND", []))
