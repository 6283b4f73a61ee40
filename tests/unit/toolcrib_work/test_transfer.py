"""Export and import: what comes back is what went out, and a wrong entry leaves nothing behind."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from toolcrib import Toolcrib
from toolcrib.core.permission import Answer, Question
from toolcrib_work.calendar.model import personal
from unit.toolcrib_work.people import Person, person

pytestmark = pytest.mark.anyio

ODD = "a\r\nb\u2028c\x7f\x85 \U0001f6f6 '\"` --- \n---\n\\ end \n"
"""Text that a careless writer of YAML or Markdown changes."""


async def filled(ada: Person) -> str:
    """A project with every kind, entities with two parents and with none, edges with props, states, a tree."""
    made = await ada.ok(
        "onto.project.create",
        project={
            "name": "Cookbook: soups",
            "type_key": "project.creative.book",
            "description": ODD,
            "props": {"facets": {"scale": "small"}, "n": 1.5},
            "start_at": "2026-12-01",
        },
        entities=[
            {"temp_id": "g", "kind": "goal", "name": "Sell 500", "description": ODD, "target_date": "2027-05-01"},
            {"temp_id": "m", "kind": "milestone", "title": "Manuscript", "due_at": "2027-02-01T09:00:00Z"},
            {"temp_id": "h", "kind": "goal", "name": "Dropped"},
            {"temp_id": "w", "kind": "milestone", "title": "Without a goal"},
            {"temp_id": "p", "kind": "plan", "name": "Write", "plan": "first\nsecond"},
            {"temp_id": "t", "kind": "task", "title": "Test: bread", "priority": 1, "state_key": "done"},
            {"temp_id": "u", "kind": "task", "title": "Photograph", "props": {"deep": {"x": [1, None, True]}}},
            {"temp_id": "r", "kind": "risk", "title": "Late", "impact": "high", "probability": 0.25, "content": "x"},
            {"temp_id": "q", "kind": "requirement", "text": "Two pages", "type_key": "requirement.constraint"},
            {"temp_id": "n", "kind": "metric", "name": "Tested", "points": [{"at": "2026-12-01", "value": 3}]},
            {"temp_id": "s", "kind": "source", "title": "Notes", "url": "https://example.org/a?b=c"},
        ],
        relationships=[
            ["g", "m"],
            ["h", "w"],
            ["m", "p"],
            ["p", "t"],
            {"from": "g", "to": "t", "rel": "has_task"},
            {"from": "r", "to": "t", "rel": "threatens"},
            {"from": "u", "to": "t", "rel": "depends_on"},
        ],
        context_document={"title": "About", "content": ODD},
    )
    id, ids = made["project_id"], made["entities"]
    await ada.ok("onto.goal.delete", goal_id=ids["h"])
    folder = await ada.made("document", id, "Chapters")
    inner = await ada.made("document", id, "Один", parent_id=folder, content="# One\n")
    await ada.made("document", id, "Two", parent_id=folder, position=0)
    await ada.ok("onto.task.docs.create_or_attach", task_id=ids["u"], document_id=inner, role="scratch_pad")
    await ada.ok("onto.project.update", project_id=id, state_key="active", next_step_short="Call")
    lost = await ada.made("document", id, "Lost")
    await ada.made("document", id, "Below lost", parent_id=lost)
    await ada.ok("onto.document.delete", document_id=lost)
    return str(id)


def alike(data: dict[str, Any]) -> Any:
    """Return an export with labels in the place of ids, in an order of its own."""
    names = {one["id"]: f"{one['kind']} {one.get('title') or one.get('name') or one.get('text')}"
             for one in [data["project"], *data["entities"]]}  # fmt: skip

    def tree(nodes: list[Any]) -> list[Any]:
        return [[names[node["id"]], tree(node["children"])] for node in nodes]

    entities = sorted(
        ({key: value for key, value in one.items() if key != "id"} for one in data["entities"]),
        key=lambda one: json.dumps(one, sort_keys=True),
    )
    edges = sorted(
        [names[edge["src_id"]], edge["rel"], names[edge["dst_id"]], json.dumps(edge.get("props"))]
        for edge in data["edges"]
    )
    project = {key: value for key, value in data["project"].items() if key != "id"}
    return project, entities, edges, tree(data["tree"])


async def exported(ada: Person, id: str) -> dict[str, Any]:
    return (await ada.ok("x.graph.export", project_id=id))["data"]


@pytest.mark.slow
async def test_a_project_comes_back_from_json_and_from_markdown_as_it_was(ada: Person) -> None:
    id = await filled(ada)
    data = await exported(ada, id)
    files = (await ada.ok("x.graph.export", project_id=id, format="markdown"))["files"]
    again = await ada.ok("x.graph.import", data=json.loads(json.dumps(data)))
    folder = await ada.ok("x.graph.import", files=list(reversed(files)))

    assert len({one["kind"] for one in data["entities"]}) == 9
    assert alike(await exported(ada, again["project_id"])) == alike(data)
    assert alike(await exported(ada, folder["project_id"])) == alike(data)
    assert again["counts"] == folder["counts"]
    assert (await ada.ok("onto.project.get", project_id=folder["project_id"]))["context_document"]["content"] == ODD
    assert {"project.md", "documents/02-chapters.md", "documents/02-chapters/02-один.md"} <= {f["path"] for f in files}


async def test_an_imported_project_belongs_to_who_imported_it(ada: Person, eve: Person) -> None:
    data = await exported(ada, await filled(ada))
    made = await eve.ok("x.graph.import", data=data, name="Mine", type_key="project.personal.copy")

    assert (await eve.ok("onto.project.list"))["projects"][0]["name"] == "Mine"
    assert (await ada.refused("onto.project.get", project_id=made["project_id"]))[0] == "NOT_FOUND"


def _titles(tree: list[dict[str, Any]]) -> dict[str, Any]:
    return {one["title"]: _titles(one["children"]) for one in tree}


async def test_a_folder_of_notes_becomes_documents_in_a_tree(ada: Person) -> None:
    made = await ada.ok(
        "x.graph.import",
        name="Notes",
        files=[
            {"path": "/whole/path.md", "content": ""},
            {"path": "plans.md", "content": "# Plans for May\ntext"},
            {"path": "plans/swim_far.md", "content": "no heading"},
            {"path": "plans/picture.png", "content": ""},
            {"path": "edited.md", "content": "---\nkind: task\nid: t1\ntitle: Written by hand\npriority: 2\n---\nbody"},
            {"path": "fenced.md", "content": "---\ntitle: Of the front matter\n---\n# Fenced"},
            {"path": "lines.md", "content": "---\nBegins: with: lines\n---\n# Lines"},
            {"path": "a_b/README.md", "content": "# Page of a folder"},
            {"path": "a_b/more.md", "content": ""},
            {"path": "c-d/e/deep.md", "content": ""},
            {"path": "c-d/e/f/index.md", "content": "no heading either"},
        ],
    )
    tree = (await ada.ok("onto.document.tree.get", project_id=made["project_id"]))["structure"]["root"]
    task = await ada.ok("onto.task.get", task_id=made["entities"]["t1"])

    assert _titles(tree) == {
        "whole": {"path": {}},
        "Of the front matter": {},
        "Lines": {},
        "Plans for May": {"swim far": {}},
        "Page of a folder": {"more": {}},
        "c d": {"e": {"deep": {}, "f": {}}},
    }
    assert (task["task"]["title"], task["task"]["priority"], task["task"]["description"]) == (
        "Written by hand",
        2,
        "body",
    )


GH = {
    "number": 7,
    "title": "Crash",
    "body": "It crashes.",
    "state": "CLOSED",
    "closedAt": "2026-10-01T10:00:00Z",
    "labels": [{"name": "bug"}],
    "assignees": [{"login": "eve"}],
    "milestone": {"title": "v1", "dueOn": "2026-12-24T00:00:00Z", "description": ""},
    "url": "https://github.example/o/r/issues/7",
}
REST = {
    "number": 8,
    "title": "Docs",
    "body": None,
    "state": "open",
    "labels": ["docs"],
    "assignees": [],
    "milestone": None,
    "html_url": "https://github.example/o/r/issues/8",
    "url": "https://api.github.example/repos/o/r/issues/8",
}


async def test_issues_of_github_become_tasks_in_both_of_their_shapes(ada: Person) -> None:
    pull = {**REST, "number": 9, "pull_request": {"url": "x"}}
    made = await ada.ok("x.graph.import", data=[GH, REST, pull])
    tasks = {one["title"]: one["id"] for one in (await ada.ok("onto.task.list"))["tasks"]}
    crash = await ada.ok("onto.task.get", task_id=tasks["Crash"])
    docs = (await ada.ok("onto.task.get", task_id=tasks["Docs"]))["task"]

    assert made["context_shift"]["entity_name"] == "Issues of o/r"
    assert made["counts"] == {"tasks": 2, "milestones": 1, "goals": 1, "edges": 4}
    assert [(link["kind"], link["label"]) for link in crash["links"]] == [("milestone", "v1")]
    assert (crash["task"]["state_key"], crash["task"]["completed_at"]) == ("done", GH["closedAt"])
    github = {"number": 7, "url": GH["url"], "labels": ["bug"], "assignees": ["eve"]}
    assert crash["task"]["props"] == {"github": github}
    assert docs["props"] == {"github": {"number": 8, "url": REST["html_url"], "labels": ["docs"]}}


def _set(*place: Any) -> Callable[[dict[str, Any]], None]:
    *path, name, value = place

    def change(data: dict[str, Any]) -> None:
        at: Any = data
        for part in path:
            at = at[part]
        at[name] = value

    return change


def _twice(data: dict[str, Any]) -> None:
    data["entities"].append({**data["entities"][0]})


def _done_some_day(data: dict[str, Any]) -> None:
    data["entities"][0] |= {"state_key": "done", "completed_at": "some day"}


def _cycle(data: dict[str, Any]) -> None:
    a, b, c = (one["id"] for one in data["entities"] if one["kind"] in ("task", "plan"))
    data["edges"] = [{"src_id": src, "rel": "depends_on", "dst_id": dst} for src, dst in ((a, b), (b, c), (c, a))]


WRONG = [
    (_set("version", 2), "data.version"),
    (_set("project", "type_key", "nonsense"), "data.project.type_key"),
    (_set("entities", 0, "kind", "fish"), "data.entities[0].kind"),
    (_set("entities", 0, "id", ""), "data.entities[0].id"),
    (_set("entities", 0, "title", "x" * 1_000_000), "data.entities[0].title"),
    (_set("entities", 0, "secret", 1), "data.entities[0].secret"),
    (_done_some_day, "data.entities[0].completed_at"),
    (_set("entities", 1, "priority", 9), "data.entities[1].priority"),
    (_set("entities", {}), "data.entities"),
    (_set("edges", 1, "dst_id", "elsewhere"), "data.edges[1].dst_id"),
    (_set("edges", 1, "rel", "loves"), "data.edges[1].rel"),
    (_set("edges", 1, "props", []), "data.edges[1].props"),
    (_set("tree", 0, "id", "elsewhere"), "data.tree[0].id"),
    (_set("tree", 0, "children", [{"id": "x"}]), "data.tree[0].children[0].id"),
    (_twice, "data.entities[15].id"),
    (_cycle, "data.edges[2].dst_id"),
]
"""Changes of an export, and the place that each makes wrong."""


@pytest.mark.slow
async def test_a_wrong_import_names_its_place_and_writes_nothing(crib: Toolcrib, ada: Person) -> None:
    data = await exported(ada, await filled(ada))
    eve = person(crib, "eve")
    refused: list[tuple[str, list[str]]] = []
    for change, _ in WRONG:
        wrong = copy.deepcopy(data)
        change(wrong)
        refused.append(await eve.refused("x.graph.import", data=wrong))

    assert refused == [("VALIDATION_ERROR", [path]) for _, path in WRONG]
    assert (await eve.ok("onto.project.list"))["total"] == 0


WRONG_ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({}, "data"),
    ({"data": [], "files": [{"path": "a.md", "content": ""}]}, "data"),
    ({"data": {"some": "json"}}, "data"),
    ({"data": [{"title": "x"}]}, "data[0].number"),
    ({"data": [{"number": 1}]}, "data[0].title"),
    ({"data": ["x"]}, "data[0]"),
    ({"path": "notes"}, "path"),
    ({"data": [GH, GH]}, "data[1].id"),
    ({"files": [{"path": "a.md", "content": "---\nkind: task\nid: [\n---\n"}]}, "files[0].content"),
    ({"files": [{"path": "a.md", "content": "---\nkind: fish\nid: a\n---\n"}]}, "files[0].kind"),
    (
        {"files": [{"path": "a.md", "content": "---\nkind: document\nid: a\ntitle: A\nparent: a\norder: 0\n---\n"}]},
        "files[0].parent",
    ),
]
"""Arguments of an import, and the place that is wrong in each."""


async def test_a_wrong_argument_of_an_import_is_named(ada: Person) -> None:
    refused = [await ada.refused("x.graph.import", **args) for args, _ in WRONG_ARGUMENTS]

    assert refused == [("VALIDATION_ERROR", [path]) for _, path in WRONG_ARGUMENTS]
    assert (await ada.ok("onto.project.list"))["total"] == 0


async def test_a_project_is_shared_by_its_owners_only_and_a_person_is_asked_first(
    crib: Toolcrib, ada: Person, eve: Person
) -> None:
    asked: list[str] = []

    async def yes(question: Question) -> Answer:
        asked.append(question.tool.name)
        return Answer(verdict="yes", by="test")

    id = await ada.project()
    owner, other = (
        Person(crib.session(principal=name, profile="gateway", mode="autonomous", approver=yes))
        for name in ("ada", "eve")
    )
    assert (await ada.refused("x.member.set", project_id=id, principal="eve", role="viewer"))[0] == (
        "PERMISSION_DENIED"
    )
    assert (await other.refused("x.member.list", project_id=id))[0] == "NOT_FOUND"
    await owner.ok("x.member.set", project_id=id, principal="eve", role="viewer")
    refused = await other.refused("x.member.set", project_id=id, principal="eve", role="owner")
    assert refused == ("PERMISSION_DENIED", [])
    assert (await eve.ok("x.member.list", project_id=id))["members"] == [
        {"principal": "ada", "role": "owner"},
        {"principal": "eve", "role": "viewer"},
    ]
    assert (await owner.refused("x.member.set", project_id=id, principal="ada", role=None))[0] == "CONFLICT"
    assert (await owner.refused("x.member.set", project_id=id, principal="eve", role="king"))[1] == ["role"]
    await owner.ok("cal.event.create", title="Dentist", start_at="2026-11-30")  # she has a calendar of her own since
    own = {"project_id": personal("ada"), "principal": "eve", "role": "viewer"}
    assert await owner.refused("x.member.set", **own) == ("NOT_FOUND", [])
    await owner.ok("x.member.set", project_id=id, principal="eve", role=None)
    assert (await eve.refused("onto.project.get", project_id=id))[0] == "NOT_FOUND"
    assert asked == ["set_onto_member"] * 2, "about what can be done only"


async def test_a_cycle_of_an_import_or_a_new_project_is_named_by_the_titles_that_the_caller_gave(ada: Person) -> None:
    tasks = [{"kind": "task", "title": title} for title in ("Glue ä", "Sand")]
    edges = [{"src_id": src, "rel": "depends_on", "dst_id": dst} for src, dst in (("a", "b"), ("b", "a"))]
    export = {"format": "toolcrib.project", "version": 1, "project": {"name": "P", "type_key": "project.personal.x"}}
    data = {**export, "entities": [{"id": id, **task} for id, task in zip("ab", tasks, strict=True)], "edges": edges}
    entities = [{"temp_id": id, **task} for id, task in zip("ab", tasks, strict=True)]
    relationships = [{"from": one["src_id"], "to": one["dst_id"], "rel": one["rel"]} for one in edges]
    refused = [
        (await ada.envelope("x.graph.import", data=data))["error"],
        (
            await ada.envelope(
                "onto.project.create", project=export["project"], entities=entities, relationships=relationships
            )
        )["error"],
    ]

    assert all("depends_on from task 'Sand' to task 'Glue ä' would close a cycle" in one["message"] for one in refused)


async def test_a_large_import_does_not_name_all_its_ids(ada: Person) -> None:
    issues = [{"number": number, "title": f"Issue {number}", "state": "open"} for number in range(101)]
    small = await ada.ok("x.graph.import", data=issues[:100], name="Small")
    large = await ada.ok("x.graph.import", data=issues, name="Large")

    assert (len(small["entities"]), large["entities"], large["counts"]["tasks"]) == (100, {}, 101)
