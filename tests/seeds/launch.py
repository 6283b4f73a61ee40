"""A product launch as a model plans it: calls of the gateway's verbs, each made of the results before it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from toolcrib import Toolcrib
from toolcrib.config import bare

VERBS: Final = ("tool_help", "tool_exec", "tool_batch")
Results = Sequence[str]
"""What the model has read, one text a call."""
Step = tuple[str, Callable[[Results], dict[str, Any]]]
_CREATED: Final = 3
"""The call that creates the project."""


def config(place: Path) -> dict[str, Any]:
    """Return the configuration of the gateway, with its store at a place."""
    return {"builtins": ["onto"], "mode": "autonomous", "store": {"path": str(place)}}


def settings_at(place: Path) -> Any:
    """Return the same as settings."""
    return bare().with_values(builtins=("onto",), mode="autonomous", store={"path": str(place)})


def _ids(results: Results) -> dict[str, str]:
    made = json.loads(results[_CREATED])["result"]
    return {**made["entities"], "project": made["project_id"]}


def _exec(op: str, args: Callable[[dict[str, str]], dict[str, Any]]) -> Step:
    return "tool_exec", lambda results: {"op": op, "args": args(_ids(results))}


def _version(results: Results) -> str:
    return str(json.loads(results[-1])["result"]["metadata"]["version"])


def _under_campaign(results: Results) -> dict[str, Any]:
    """Move the task of the batch from the project to the campaign."""
    ids = _ids(results)
    (made, *_) = json.loads(results[4])["results"]
    node = {
        "id": made["result"]["task"]["id"],
        "kind": "task",
        "connections": [
            {"kind": "plan", "id": ids["campaign"]},
            {"kind": "task", "id": ids["page"], "rel": "depends_on"},
        ],
    }
    return {
        "op": "onto.project.graph.reorganize",
        "args": {"project_id": ids["project"], "nodes": [node], "options": {"version": _version(results)}},
    }


STEPS: Final[tuple[Step, ...]] = (
    ("tool_help", lambda results: {}),
    ("tool_help", lambda results: {"path": "onto.project.create"}),
    ("tool_exec", lambda results: {"op": "onto.project.list", "args": {}}),
    (
        "tool_exec",
        lambda results: {
            "op": "onto.project.create",
            "args": {
                "project": {"name": "Kettle 2 launch", "type_key": "project.business.product_launch"},
                "entities": [
                    {"temp_id": "goal", "kind": "goal", "name": "1,000 sold by May", "target_date": "2027-05-31"},
                    {"temp_id": "ready", "kind": "milestone", "title": "Shop is ready", "due_at": "2027-02-15"},
                    {"temp_id": "campaign", "kind": "plan", "name": "Campaign", "type_key": "plan.campaign"},
                    {"temp_id": "page", "kind": "task", "title": "Write the product page", "priority": 1},
                    {"temp_id": "photos", "kind": "task", "title": "Take photographs"},
                    {"temp_id": "late", "kind": "risk", "title": "Factory is late", "impact": "high"},
                    {"temp_id": "law", "kind": "requirement", "text": "The label names the voltage"},
                ],
                "relationships": [
                    ["goal", "ready"],
                    ["ready", "campaign"],
                    ["campaign", "page"],
                    ["campaign", "photos"],
                    {"from": "late", "to": "ready", "rel": "threatens"},
                ],
                "context_document": {"title": "Brief", "content": "# Kettle 2\nQuiet, and in three colours."},
            },
        },
    ),
    (
        "tool_batch",
        lambda results: {
            "ops": [
                {
                    "type": "exec",
                    "op": "onto.task.create",
                    "args": {"project_id": _ids(results)["project"], "title": "Invite the press"},
                },
                {
                    "type": "exec",
                    "op": "onto.document.create",
                    "args": {"project_id": _ids(results)["project"], "content": "# Press release\nQuiet at last."},
                },
            ]
        },
    ),
    _exec(  # a mistake: a task threatens nothing
        "onto.edge.link",
        lambda ids: {
            "src_kind": "task",
            "src_id": ids["page"],
            "dst_kind": "milestone",
            "dst_id": ids["ready"],
            "rel": "threatens",
        },
    ),
    _exec(
        "onto.edge.link",
        lambda ids: {
            "src_kind": "task",
            "src_id": ids["page"],
            "dst_kind": "milestone",
            "dst_id": ids["ready"],
            "rel": "targets_milestone",
        },
    ),
    _exec("onto.task.update", lambda ids: {"task_id": ids["page"], "due_at": "2027-02-01", "state_key": "in_progress"}),
    _exec("onto.project.graph.get", lambda ids: {"project_id": ids["project"]}),
    ("tool_exec", _under_campaign),
    _exec("onto.project.update", lambda ids: {"project_id": ids["project"], "state_key": "active"}),
)
"""What the model does, in order. One call is wrong; the model reads why and makes it right."""


async def check(place: Path, results: Results) -> None:
    """Assert, from outside, what the planning has left in the store, and what the model was told."""
    told = [json.loads(text) for text in results]
    assert len(told) == len(STEPS)
    assert [number for number, one in enumerate(told) if one.get("ok") is False] == [5]
    assert told[5]["error"]["code"] == "VALIDATION_ERROR"
    ids = _ids(results)
    async with Toolcrib(settings_at(place)) as crib:
        session = crib.session(profile="flat")
        given = {"project_id": ids["project"]}
        graph: Any = (await session.call("get_onto_project_graph", given)).structured_content
        documents: Any = (await session.call("get_document_tree", given)).structured_content
        projects: Any = (await session.call("list_onto_projects")).structured_content
    nodes: Mapping[str, Any] = graph["graph"]["nodes"]
    label = {
        one["id"]: one.get("title") or one.get("name") or one.get("text") for kind in nodes.values() for one in kind
    }
    label[ids["project"]] = "Kettle 2 launch"
    assert (projects["total"], graph["graph"]["project"]["state_key"]) == (1, "active")
    assert {(label[e["src_id"]], e["rel"], label[e["dst_id"]]) for e in graph["graph"]["edges"]} == {
        ("Kettle 2 launch", "has_goal", "1,000 sold by May"),
        ("1,000 sold by May", "has_milestone", "Shop is ready"),
        ("Shop is ready", "has_plan", "Campaign"),
        ("Campaign", "has_task", "Write the product page"),
        ("Campaign", "has_task", "Take photographs"),
        ("Campaign", "has_task", "Invite the press"),
        ("Invite the press", "depends_on", "Write the product page"),
        ("Write the product page", "targets_milestone", "Shop is ready"),
        ("Factory is late", "threatens", "Shop is ready"),
        ("Kettle 2 launch", "has_risk", "Factory is late"),
        ("Kettle 2 launch", "has_requirement", "The label names the voltage"),
        ("Kettle 2 launch", "has_document", "Brief"),
        ("Kettle 2 launch", "has_context_document", "Brief"),
        ("Kettle 2 launch", "has_document", "Press release"),
    }
    (page,) = [one for one in nodes["tasks"] if one["id"] == ids["page"]]
    assert (page["state_key"], page["due_at"], page["priority"]) == ("in_progress", "2027-02-01", 1)
    assert [one["title"] for one in documents["structure"]["root"]] == ["Brief", "Press release"]
