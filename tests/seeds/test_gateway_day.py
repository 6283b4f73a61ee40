"""A day of seed 001's user: the whole work graph through three verbs, over MCP over stdio, with a restart at noon."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from mcp import Client, StdioServerParameters, stdio_client

from contract.ways_in import TOOLCRIB, Home
from toolcrib_work.graph.model import KINDS

pytestmark = [pytest.mark.anyio, pytest.mark.process]

Run = Callable[..., Awaitable[Any]]


@asynccontextmanager
async def gateway(home: Path, used: set[str]) -> AsyncGenerator[Run]:
    """Start a gateway in its own process; `used` gathers the ops that it runs."""
    config = home / "toolcrib.yaml"
    config.write_text(
        json.dumps(
            {
                "builtins": ["onto", "cal"],
                "tools": {"calendar": {"timezone": "Europe/Berlin"}},
                "rules": {"deny": ["delete_onto_goal"]},
            }
        )
    )
    words = ["serve", "--config", str(config), "--profile", "gateway", "--mode", "autonomous", "--no-daemon"]
    server = StdioServerParameters(command=TOOLCRIB, args=words, env=Home(folder=home).environ, cwd=home)

    async def merge(context: Any, params: mcp_types.CreateMessageRequestParams) -> mcp_types.CreateMessageResult:
        text = mcp_types.TextContent(type="text", text="Both, merged.")
        return mcp_types.CreateMessageResult(role="assistant", content=text, model="scripted")

    async with Client(stdio_client(server), mode="legacy", sampling_callback=merge) as client:

        async def run(op: str, /, code: str = "", **args: Any) -> Any:
            told = (await client.call_tool("tool_exec", {"op": op, "args": args})).structured_content
            assert told is not None
            if code:
                assert (told["ok"], told["error"]["code"]) == (False, code), told
                assert told["error"]["help_path"] == op
                return told["error"]
            assert told["ok"], told
            used.add(told["meta"].get("executed_op", op))
            return told["result"]

        yield run


@pytest.mark.long
async def test_a_day_of_planning_survives_a_restart_at_noon(tmp_path: Path) -> None:
    used = set[str]()
    async with gateway(tmp_path, used) as run:
        kept = await morning(run)
    async with gateway(tmp_path, used) as run:
        await afternoon(run, kept)

    from seeds.test_gateway import ADDED, OPS

    assert {op for op in [*OPS, *ADDED] if not op.startswith("util.")} - used == {"onto.goal.delete"}


async def morning(run: Run) -> dict[str, Any]:
    """A new project is asked about, created, looked at, filled and searched."""
    project: dict[str, Any] = {"name": "Cookbook", "type_key": "project.creative.book"}
    asked = [{"key": "when", "question": "When must it be printed?", "required": True}]
    waiting = await run("onto.project.create", project=project, entities=[], relationships=[], clarifications=asked)
    assert (waiting["project_id"], waiting["clarifications"]) == (None, asked)
    broken = await run(
        "onto.project.create",
        code="VALIDATION_ERROR",
        project=project,
        entities=[{"temp_id": "g", "kind": "goal", "name": "Print it"}],
        relationships=[["g", "nothing"]],
    )
    assert broken["details"]["field_errors"][0]["path"] == "relationships[0][1]"
    assert (await run("onto.project.list"))["total"] == 0
    made = await run(
        "onto.project.create",
        project=project,
        entities=[
            {"temp_id": "goal", "kind": "goal", "name": "Print by spring", "description": "500 copies"},
            {"temp_id": "milestone", "kind": "milestone", "title": "Manuscript done", "due_at": "2027-02-01"},
            {"temp_id": "plan", "kind": "plan", "name": "Write and test"},
            {"temp_id": "task", "kind": "task", "title": "Test the bread recipes"},
            {"temp_id": "risk", "kind": "risk", "title": "Printer is late", "impact": "high"},
            {"temp_id": "requirement", "kind": "requirement", "text": "Every recipe fits on two pages"},
            {"temp_id": "metric", "kind": "metric", "name": "Recipes tested"},
            {"temp_id": "source", "kind": "source", "title": "Grandmother's notes"},
        ],
        relationships=[
            ["goal", "milestone"],
            ["milestone", "plan"],
            ["plan", "task"],
            {"from": "risk", "to": "task", "rel": "threatens"},
        ],
        context_document={"title": "About the book", "content": "# The book\nSourdough, from starter to loaf."},
    )
    ids: dict[str, Any] = {"project": made["project_id"], **made["entities"]}
    here = {"project_id": ids["project"]}

    whole = await run("onto.project.get", **here)
    assert whole["context_document"]["title"] == "About the book"
    assert {kind.plural for kind in KINDS.values() if kind.name not in ("project", "source", "event")} <= whole.keys()
    graph = await run("onto.project.graph.get", **here)
    ids["version"] = graph["metadata"]["version"]
    assert (await run("onto.project.get"))["project"]["id"] == ids[
        "project"
    ]  # the current project since it was created
    page = await run("onto.project.graph.get", limit=2)
    ids["cursor"] = page["metadata"]["next_cursor"]
    rest = await run("onto.project.graph.get", cursor=ids["cursor"])
    assert len(page["graph"]["edges"]) + len(rest["graph"]["edges"]) == graph["metadata"]["edge_count"]
    for kind in ("task", "goal", "plan", "milestone", "risk", "requirement"):
        listed = await run(f"onto.{kind}.list", **here)
        got = await run(f"onto.{kind}.get", **{f"{kind}_id": ids[kind]})
        assert [one["id"] for one in listed[f"{kind}s"]] == [got[kind]["id"]]

    second = await run(
        "onto.task.create",
        **here,
        title="Photograph the loaves",
        goal_id=ids["goal"],
        connections=[{"kind": "task", "id": ids["task"], "rel": "depends_on"}],
    )
    ids["second"] = second["task"]["id"]
    ids["other_goal"] = (await run("onto.goal.create", **here, name="Sell online"))["goal"]["id"]
    ids["other_plan"] = (await run("onto.plan.create", **here, name="Shop", goal_id=ids["other_goal"]))["plan"]["id"]
    folder = await run("onto.document.create", **here, title="Recipes", description="All of them", content="")
    ids["folder"] = folder["document"]["id"]
    bread = await run("onto.document.create", **here, markdown="# Rye bread\nFlour, water.", parent_id=ids["folder"])
    ids["bread"] = bread["document"]["id"]
    assert bread["document"]["title"] == "Rye bread"
    pad = await run("onto.task.docs.create_or_attach", task_id=ids["task"], title="Trials", role="scratch_pad")
    ids["pad"] = pad["document"]["id"]
    assert (await run("onto.task.docs.list", task_id=ids["task"]))["scratch_pad"]["id"] == ids["pad"]

    circle = {"src_kind": "task", "src_id": ids["task"], "dst_kind": "task", "dst_id": ids["second"]}
    refused = await run("onto.edge.link", code="VALIDATION_ERROR", **circle, rel="depends_on")
    assert refused["details"]["field_errors"][0]["path"] == "dst_id"
    await run("onto.task.get", code="NOT_FOUND", task_id="00000000-0000-4000-8000-000000000000")
    await run("onto.goal.delete", code="PERMISSION_DENIED", goal_id=ids["goal"])
    await run("onto.project.graph.reorganize", code="CONFLICT", **here, nodes=[_under(ids)], options=_since(ids))

    await run("cal.project.get", code="NOT_FOUND", project_id="00000000-0000-4000-8000-000000000000")
    calendar = await run("cal.project.set", **here, action="create", name="Baking days")
    assert (await run("cal.project.get", **here))["calendar"] == calendar["calendar"]
    late = {"title": "x", "start_at": "2026-12-02T10:00", "end_at": "2026-12-02T09:00"}
    refused = await run("cal.event.create", code="VALIDATION_ERROR", **late)
    assert refused["details"]["field_errors"][0]["path"] == "end_at"
    weekly = {"recurrence": "FREQ=WEEKLY;COUNT=4", "end_at": "2026-10-20T19:00"}
    baking = await run("cal.event.create", title="Bake", start_at="2026-10-20T17:00", task_id=ids["task"], **weekly)
    ids["baking"] = baking["event"]["id"]
    ids["dentist"] = (await run("cal.event.create", title="Dentist", start_at="2026-10-21"))["event"]["id"]

    found = await run("onto.search", query="sourdough starter")
    assert [one["type"] for one in found["results"]] == ["document"]
    found = await run("onto.search", query="bake dentist", types=["event"])
    assert {one["id"]: one["project_id"] for one in found["results"]} == {
        ids["baking"]: ids["project"],
        ids["dentist"]: None,
    }
    alone = {"src_kind": "event", "src_id": ids["dentist"], "dst_kind": "task", "dst_id": ids["task"]}
    await run("onto.edge.link", code="VALIDATION_ERROR", **alone, rel="relates_to")
    assert (await run("onto.task.search", search="photograph"))["total"] == 1
    assert (await run("onto.document.search", search="flour", **here))["total"] == 1
    assert (await run("onto.project.search", search="cookbook"))["total"] == 1
    assert (await run("util.schema.field_info", entity_type="ontology_plan"))["fields"]["state_key"]["enum"][
        0
    ] == "draft"
    return ids


async def afternoon(run: Run, ids: dict[str, Any]) -> None:
    """After the restart all is there; it is changed, moved, reorganized and tidied up."""
    here = {"project_id": ids["project"]}
    lost = await run("onto.task.create", code="VALIDATION_ERROR", title="In the current project")
    assert lost["details"]["field_errors"][0]["path"] == "project_id"
    await run("onto.project.graph.get", code="CONFLICT", **here, cursor=ids["cursor"])  # it was filled since
    tree = await run("onto.document.tree.get", **here, include_documents=True)
    assert {ids["folder"], ids["bread"], ids["pad"]} <= tree["documents"].keys()
    assert [step["id"] for step in (await run("onto.document.path.get", document_id=ids["bread"]))["path"]] == [
        ids["folder"],
        ids["bread"],
    ]
    assert (await run("onto.document.get", document_id=ids["bread"]))["document"]["content"].startswith("# Rye")
    assert (await run("onto.document.list", **here))["total"] == 4

    await every_state(run, ids)
    appended = await run("onto.document.update", document_id=ids["bread"], content="Salt.", update_strategy="append")
    assert appended["document"]["content"] == "# Rye bread\nFlour, water.\n\nSalt."
    merged = await run("onto.document.update", document_id=ids["bread"], content="Seeds.", update_strategy="merge_llm")
    assert (merged["document"]["content"], merged["document"]["version"]) == ("Both, merged.", 3)
    await run("onto.requirement.update", requirement_id=ids["requirement"], priority=1)
    await run("onto.project.update", **here, description="Bread for beginners", end_at="2027-04-01")
    late = await run("onto.task.update", code="VALIDATION_ERROR", task_id=ids["task"], due_at="soon")
    assert late["details"]["field_errors"][0]["path"] == "due_at"

    await run("cal.event.update", onto_event_id=ids["baking"], start_at="2026-10-20T18:00")
    await run("cal.event.delete", onto_event_id=ids["baking"], instance_start_at="2026-11-03T17:00:00Z")
    await run("cal.event.delete", onto_event_id=ids["dentist"])
    event = (await run("cal.event.get", onto_event_id=ids["baking"]))["event"]
    assert (event["project_id"], event["end_at"]) == (ids["project"], "2026-10-20T20:00:00+02:00")
    october = await run("cal.event.list", timeMin="2026-10-01", timeMax="2026-12-01")
    assert [one["start_at"] for one in october["events"]] == [
        "2026-10-20T18:00:00+02:00",
        "2026-10-27T18:00:00+01:00",
        "2026-11-10T18:00:00+01:00",
    ]

    moved = await run("onto.document.tree.move", **here, document_id=ids["pad"], new_parent_id=ids["folder"])
    (recipes,) = [node for node in moved["structure"]["root"] if node["id"] == ids["folder"]]
    assert [node["id"] for node in recipes["children"]] == [ids["pad"], ids["bread"]]

    linked = await run(
        "onto.edge.link",
        src_kind="task",
        src_id=ids["second"],
        dst_kind="risk",
        dst_id=ids["risk"],
        rel="mitigates",
    )
    related = await run("onto.entity.relationships.get", entity_id=ids["risk"], direction="incoming")
    assert "mitigates" in {edge["rel"] for edge in related["relationships"]}
    links = await run("onto.entity.links.get", entity_id=ids["second"], entity_kind="task")
    assert links["counts"] == {"task": 1, "goal": 1, "risk": 1}
    await run("onto.edge.unlink", edge_id=linked["edge"]["id"])
    owner = {"src_kind": "task", "src_id": ids["second"], "dst_kind": "event", "dst_id": ids["baking"]}
    shared = await run("onto.edge.link", **owner, rel="has_event")
    found = await run("onto.entity.links.get", entity_id=ids["second"], entity_kind="task", filter_kind="event")
    assert [(one["rel"], one["label"]) for one in found["entities"]] == [("has_event", "Bake")]
    await run("onto.edge.unlink", edge_id=shared["edge"]["id"])
    found = await run("onto.entity.links.get", entity_id=ids["baking"], entity_kind="event")
    assert [(one["rel"], one["id"]) for one in found["entities"]] == [("has_event", ids["task"])]
    assert [one["id"] for one in (await run("onto.project.graph.get", **here))["graph"]["nodes"]["events"]] == [
        ids["baking"]
    ]

    ids["version"] = (await run("onto.project.graph.get", **here))["metadata"]["version"]
    planned = await run(
        "onto.project.graph.reorganize", **here, nodes=[_under(ids)], options={**_since(ids), "dry_run": True}
    )
    done = await run("onto.project.graph.reorganize", **here, nodes=[_under(ids)], options=_since(ids))
    assert (planned["dry_run"], planned["counts"]) == (True, done["counts"]) == (True, _one_for_one())
    assert done["dry_run"] is False

    await run("onto.document.delete", document_id=ids["folder"])
    assert {one["id"] for one in (await run("onto.document.tree.get", **here))["unlinked"]} == {
        ids["pad"],
        ids["bread"],
    }
    await run("onto.plan.delete", plan_id=ids["other_plan"])
    await run("onto.task.delete", task_id=ids["second"])
    await run("onto.task.get", code="NOT_FOUND", task_id=ids["second"])
    assert (await run("onto.plan.list", **here))["total"] == 1
    assert (await run("onto.task.list", **here))["total"] == 1


async def every_state(run: Run, ids: dict[str, Any]) -> None:
    """Each entity goes through all the states of its kind."""
    entities = {**ids, "document": ids["bread"], "event": ids["baking"]}
    for kind in KINDS.values():
        for state in reversed(kind.states):  # a cancelled event takes place on no day
            op, key = (
                ("cal.event.update", "onto_event_id")
                if kind.name == "event"
                else (f"onto.{kind.name}.update", f"{kind.name}_id")
            )
            told = await run(op, **{key: entities[kind.name]}, state_key=state)
            assert told[kind.name]["state_key"] == state
            if "completed_at" in told[kind.name]:
                is_done = state in ("done", "achieved", "completed")
                assert (told[kind.name]["completed_at"] is not None) is is_done


def _under(ids: dict[str, Any]) -> dict[str, Any]:
    """The second task, below the first plan."""
    return {"id": ids["second"], "kind": "task", "connections": [{"kind": "plan", "id": ids["plan"]}]}


def _since(ids: dict[str, Any]) -> dict[str, Any]:
    return {"version": ids["version"], "semantic_mode": "merge"}


def _one_for_one() -> dict[str, int]:
    return {"create": 1, "delete": 1, "update": 0}
