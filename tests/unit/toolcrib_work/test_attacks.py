"""Principals cross: of a project of others 0 rows are seen and 0 are changed, by any operation."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from toolcrib import Toolcrib
from toolcrib.plugin import Role, Row, Rows
from toolcrib_work.graph.model import SCHEMA
from unit.toolcrib_work.people import Person, person, without_ids
from unit.toolcrib_work.test_graph import WHOLE

SECRET = "Copper"
"""A word of the project's texts."""

_PROJECT = {"name": "x", "type_key": "project.business.x"}


def reads(ids: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Every operation that reads, with the ids of a project's entities."""
    project = {"project_id": ids["project"]}
    get = {f"onto.{kind}.get": {f"{kind}_id": ids[kind]} for kind in ids if kind not in ("metric", "source", "edge")}
    listed = ("task", "goal", "plan", "document", "milestone", "risk", "requirement")
    return {
        **get,
        **{f"onto.{kind}.list": project for kind in listed},
        **{f"onto.{kind}.search": {"search": SECRET, **project} for kind in ("task", "document")},
        "onto.search": {"query": SECRET, **project},
        "onto.project.graph.get": project,
        "onto.document.tree.get": {**project, "include_content": True},
        "onto.document.path.get": {"document_id": ids["document"]},
        "onto.entity.relationships.get": {"entity_id": ids["task"]},
        "onto.entity.links.get": {"entity_id": ids["task"], "entity_kind": "task"},
        "onto.task.docs.list": {"task_id": ids["task"]},
        "x.document.tree.version.list": project,
        "x.document.tree.version.get": {**project, "version": 1},
        "x.document.version.list": {"document_id": ids["document"]},
        "x.document.version.get": {"document_id": ids["document"], "version": 1},
        "x.graph.export": project,
        "x.member.list": project,
    }


def open_reads() -> dict[str, dict[str, Any]]:
    """Operations that read over all projects."""
    kinds = ("task", "goal", "plan", "document", "milestone", "risk", "requirement", "project")
    return {
        **{f"onto.{kind}.list": {} for kind in kinds},
        **{f"onto.{kind}.search": {"search": SECRET} for kind in ("task", "document", "project")},
        "onto.search": {"query": SECRET},
    }


def writes(ids: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Every operation that writes, with the ids of a project's entities."""
    project = {"project_id": ids["project"]}
    label = {"task": "title", "document": "title", "milestone": "title", "risk": "title", "requirement": "text"}
    kinds = ("task", "project", "goal", "plan", "document", "milestone", "risk", "requirement")
    return {
        "onto.task.create": {**project, "title": "mine", "plan_id": ids["plan"]},
        "onto.goal.create": {**project, "name": "mine"},
        "onto.plan.create": {**project, "name": "mine"},
        "onto.document.create": {**project, "title": "mine", "content": "x", "parent_id": ids["document"]},
        "onto.task.docs.create_or_attach": {"task_id": ids["task"], "document_id": ids["document"]},
        **{f"onto.{kind}.update": {f"{kind}_id": ids[kind], label.get(kind, "name"): "mine"} for kind in kinds},
        "x.milestone.create": {**project, "title": "mine", "goal_id": ids["goal"]},
        "x.risk.create": {**project, "title": "mine", "parent": {"kind": "task", "id": ids["task"]}},
        "x.requirement.create": {**project, "text": "mine"},
        **{f"onto.{kind}.delete": {f"{kind}_id": ids[kind]} for kind in ("task", "goal", "plan", "document")},
        **{f"x.{kind}.delete": {f"{kind}_id": ids[kind]} for kind in ("milestone", "risk", "requirement")},
        "onto.edge.link": {
            "src_kind": "task",
            "src_id": ids["task"],
            "dst_kind": "goal",
            "dst_id": ids["goal"],
            "rel": "supports_goal",
        },
        "onto.edge.unlink": {"edge_id": ids["edge"]},
        "onto.project.graph.reorganize": {**project, "nodes": [{"id": ids["task"], "kind": "task"}]},
        "onto.document.tree.move": {**project, "document_id": ids["document"]},
        "x.document.tree.version.restore": {**project, "version": 1},
        "x.document.version.restore": {"document_id": ids["document"], "version": 1},
    }


@pytest.fixture
async def ids(ada: Person) -> dict[str, str]:
    made = await ada.ok("onto.project.create", **WHOLE)
    edges = await ada.ok("onto.entity.relationships.get", entity_id=made["entities"]["t"])
    await ada.ok("onto.document.update", document_id=made["entities"]["d"], description="Has an earlier version")
    return {
        "project": made["project_id"],
        **{one["kind"]: made["entities"][one["temp_id"]] for one in WHOLE["entities"]},
        "edge": edges["relationships"][0]["id"],
    }


async def everything(crib: Toolcrib) -> dict[str, list[Row]]:
    """All rows of ada's projects."""

    def work(rows: Rows) -> dict[str, list[Row]]:
        return {table.name: rows.select(f"SELECT * FROM {{{table.name}}} AS t ORDER BY id") for table in SCHEMA.tables}

    return await crib.store.shared.read(SCHEMA, "ada", lambda value: value, work, long=False)


async def set_role(crib: Toolcrib, project_id: str, principal: str, role: Role, *, by: str = "ada") -> None:
    await crib.store.shared.write(
        SCHEMA, by, lambda value: value, lambda rows: rows.set_member(project_id, principal, role)
    )


async def test_every_operation_of_the_graph_is_attacked(crib: Toolcrib) -> None:
    ids = dict.fromkeys(
        ["project", "task", "goal", "plan", "document", "milestone", "risk", "requirement", "edge"], "x"
    )
    ops = {tool.op for tool in crib.catalog.tools.values() if tool.category in ("onto", "work")}

    known = {*reads(ids), *open_reads(), *writes(ids), "onto.project.create", "x.graph.import"}
    assert ops - {"util.schema.field_info", "x.member.set"} == known, "test_transfer attacks x.member.set"


@pytest.mark.slow
async def test_to_a_stranger_a_project_looks_like_one_that_is_not_there(
    crib: Toolcrib, ada: Person, eve: Person, ids: dict[str, str]
) -> None:
    before = await everything(crib)
    unknown = {kind: str(uuid.uuid4()) for kind in ids}
    for own, foreign in (((reads(ids)), reads(unknown)), (writes(ids), writes(unknown))):
        for op, args in own.items():
            told, empty = await eve.envelope(op, **args), await eve.envelope(op, **foreign[op])
            assert (told["ok"], told["error"]["code"]) == (False, "NOT_FOUND"), op
            assert without_ids(told, ids) == without_ids(empty, unknown), op
    for op, args in open_reads().items():
        told = await eve.ok(op, **args)
        assert told["total"] == 0, op
        assert not any(id in json.dumps(told) for id in ids.values()), op

    assert await everything(crib) == before
    assert await crib.store.shared.events("eve", project_id=ids["project"], types=(), limit=100) == []


async def test_a_stranger_cannot_reach_a_project_through_one_of_his_own(
    crib: Toolcrib, eve: Person, ids: dict[str, str]
) -> None:
    own = await eve.project("Mine")
    task = await eve.made("task", own, "mine")
    folder = await eve.made("document", own, "mine")
    before = await everything(crib)
    link = {"src_kind": "task", "src_id": task, "dst_kind": "task", "dst_id": ids["task"], "rel": "depends_on"}
    turned = {"src_kind": "plan", "src_id": ids["plan"], "dst_kind": "task", "dst_id": task, "rel": "has_task"}
    node = {"id": task, "kind": "task", "connections": [{"kind": "plan", "id": ids["plan"]}]}
    attempts: list[tuple[str, dict[str, Any]]] = [
        ("onto.edge.link", link),
        ("onto.edge.link", turned),
        ("onto.task.create", {"project_id": own, "title": "x", "plan_id": ids["plan"]}),
        ("onto.task.create", {"project_id": own, "title": "x", "goal_id": ids["goal"]}),
        ("onto.task.create", {"project_id": own, "title": "x", "parents": [{"kind": "goal", "id": ids["goal"]}]}),
        ("onto.task.create", {"project_id": own, "title": "x", "connections": [{"kind": "task", "id": ids["task"]}]}),
        ("onto.plan.create", {"project_id": own, "name": "x", "milestone_id": ids["milestone"]}),
        ("onto.document.create", {"project_id": own, "title": "x", "content": "", "parent_id": ids["document"]}),
        ("onto.task.docs.create_or_attach", {"task_id": task, "document_id": ids["document"]}),
        ("onto.project.graph.reorganize", {"project_id": own, "nodes": [node]}),
        ("onto.document.tree.move", {"project_id": own, "document_id": ids["document"]}),
        ("onto.document.tree.move", {"project_id": own, "document_id": folder, "new_parent_id": ids["document"]}),
        ("onto.entity.links.get", {"entity_id": ids["task"], "entity_kind": "task"}),
        ("onto.document.path.get", {"document_id": ids["document"], "project_id": own}),
    ]
    for op, args in attempts:
        assert (await eve.refused(op, **args))[0] == "NOT_FOUND", (op, args)

    assert await everything(crib) == before
    assert [one["id"] for one in (await eve.ok("onto.task.list"))["tasks"]] == [task]


@pytest.mark.slow
async def test_a_viewer_reads_everything_and_changes_nothing(
    crib: Toolcrib, ada: Person, eve: Person, ids: dict[str, str]
) -> None:
    await set_role(crib, ids["project"], "eve", "viewer")
    before = await everything(crib)
    for op, args in {**open_reads(), **reads(ids)}.items():
        assert await eve.ok(op, **args) == await ada.ok(op, **args), op
    for op, args in writes(ids).items():
        assert await eve.refused(op, **args) == ("PERMISSION_DENIED", []), op

    assert await everything(crib) == before


async def test_an_editor_changes_what_is_there_but_not_who_may(
    crib: Toolcrib, ada: Person, eve: Person, ids: dict[str, str]
) -> None:
    await set_role(crib, ids["project"], "eve", "editor")
    made = await eve.ok("onto.task.create", project_id=ids["project"], title="of eve")
    seen = await ada.ok("onto.task.get", task_id=made["task"]["id"])
    assert seen["task"]["created_by"] == "eve"
    with pytest.raises(Exception, match="needs owner"):
        await crib.store.shared.write(
            SCHEMA, "eve", lambda value: value, lambda rows: rows.set_member(ids["project"], "eve", "owner")
        )


async def test_the_principal_of_a_session_counts_and_nothing_that_a_call_says(
    crib: Toolcrib, ada: Person, ids: dict[str, str]
) -> None:
    mallory = person(crib, "mallory", {"project_id": ids["project"], "principal": "ada", "created_by": "ada"})

    assert (await mallory.refused("onto.task.list"))[0] == "NOT_FOUND"
    assert (await mallory.refused("onto.task.create", title="x"))[0] == "NOT_FOUND"
    assert (await mallory.ok("onto.project.list"))["total"] == 0


async def test_a_text_that_looks_like_a_statement_is_a_text(
    crib: Toolcrib, ada: Person, eve: Person, ids: dict[str, str]
) -> None:
    before = await everything(crib)
    assert (await eve.ok("onto.task.list", state_key="done"))["total"] == 0
    for text in (
        "' OR 1=1 --",
        "%",
        "{projects}",
        "x'); DROP TABLE graph_tasks; --",
        "\\",
        "NULL",
        "*",
        "\u202e",
        "a\0b",
    ):
        assert (await eve.ok("onto.search", query=text))["total"] == 0, text
        assert (await eve.ok("onto.task.search", search=text))["total"] == 0, text
        assert (await eve.refused("onto.task.get", task_id=text))[0] in ("NOT_FOUND", "VALIDATION_ERROR"), text
        assert (await eve.refused("onto.task.list", project_id=text))[0] in ("NOT_FOUND", "VALIDATION_ERROR"), text
        assert await everything(crib) == before, text
