"""A user's tool keeps its name and its op beside the built-in tools, and a session's context fills its arguments."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Toolcrib, UsageError, tool
from toolcrib.config import bare
from toolcrib.core.events import Problem
from toolcrib.crib import Session


@tool(kind="read")
def list_onto_tasks(project_id: str = "none", limit: int = 20) -> dict[str, Any]:
    """List tasks."""
    return {"mine": project_id, "limit": limit}


@tool(kind="read", op="util.web.visit")
def visit(url: str) -> str:
    """Visit a page."""
    return f"visited {url}"


@tool(kind="read", op="util.web.search")
def web_search(query: str) -> str:
    """Search."""
    return f"searched {query}"


@tool(kind="read", op="x.report.list", explicit=["project_id"])
def reports(project_id: str | None = None, owner: str = "anybody") -> dict[str, Any]:
    """List reports; of all projects without one."""
    return {"project_id": project_id, "owner": owner}


@tool(kind="read", op="x.report.list")
def other_reports() -> str:
    """List other reports."""
    return "other"


@tool(kind="read")
def get_onto_task(task_id: str) -> str:
    """Get a task."""
    return task_id


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    async with Toolcrib(bare().with_values(builtins=True), memory=True) as opened:
        opened.add(list_onto_tasks, visit, web_search, reports, other_reports, get_onto_task)
        yield opened


async def ran(session: Session, op: str, **arguments: Any) -> Any:
    told = (await session.call("tool_exec", {"op": op, "args": arguments})).structured_content
    return told["result"] if told["ok"] else told["error"]["code"]


async def test_with_built_in_tools_on_a_users_tools_keep_their_names_and_ops(crib: Toolcrib) -> None:
    session = crib.session(profile="gateway", mode="autonomous")

    assert await ran(session, "onto.task.list") == {"mine": "none", "limit": 20}
    assert await ran(session, "util.web.visit", url="u") == "visited u"
    assert await ran(session, "util.web.search", query="q") == "searched q"
    assert crib.catalog.tools["web_search"].source == "python"
    helped = (await session.call("tool_help", {"path": "util.web.visit"})).structured_content
    assert (helped["tool_name"], helped["required_args"]) == ("visit", ["url"])
    listed = (await session.call("tool_help", {"path": "onto.task"})).structured_content
    assert {"onto.task.list"} <= {item["name"] for item in listed["items"]}


async def test_built_in_tools_in_a_group_of_entities_are_those_of_the_graph(crib: Toolcrib, tmp_path: Path) -> None:
    session = crib.session(profile="gateway", workspace=tmp_path)
    ops = session.visible.aliases.ops
    ours = {tool.name: ops.of(tool) for tool in session.visible.tools() if tool.source not in ("python", "toolcrib")}

    graph = {tool.name for tool in session.visible.tools() if tool.category in ("onto", "cal")}
    assert {name for name, op in ours.items() if op.startswith(("onto.", "cal."))} <= graph
    lost = {"get_field_info", "get_onto_task_details"}  # to a tool of the graph, and to one of the user
    assert {name for name, op in ours.items() if op.startswith("x.builtin.")} == lost


async def test_an_op_that_a_tool_lost_is_a_problem(crib: Toolcrib) -> None:
    declared = [problem for problem in crib.problems if problem.code == "op_taken"]
    crib.session(profile="gateway")
    shown = [problem for problem in crib.problems if problem.code == "op_taken"]

    assert declared == [
        Problem(
            source="python",
            tool="other_reports",
            code="op_taken",
            message="the op x.report.list belongs to reports of python; "
            "other_reports has the op x.python.other_reports",
            hint="declare another `op` for one of them, or set option `ops` of the profile",
        )
    ]
    assert [(problem.tool, problem.message.split(";")[0]) for problem in shown] == [
        ("other_reports", "the op x.report.list belongs to reports of python"),
        ("web_fetch", "the op util.web.visit belongs to visit of python"),
        ("get_onto_task_details", "the op onto.task.get belongs to get_onto_task of python"),
    ]


async def test_context_values_fill_what_the_caller_left_out_before_schema_defaults(crib: Toolcrib) -> None:
    session = crib.session(profile="gateway", mode="autonomous", context={"project_id": "p1", "limit": 5})

    assert await ran(session, "onto.task.list") == {"mine": "p1", "limit": 5}
    assert await ran(session, "onto.task.list", project_id="p2", limit=1) == {"mine": "p2", "limit": 1}


async def test_context_values_never_fill_an_argument_that_a_tool_declares_explicit(crib: Toolcrib) -> None:
    session = crib.session(profile="gateway", mode="autonomous", context={"project_id": "p1", "owner": "ada"})

    assert await ran(session, "x.report.list") == {"project_id": None, "owner": "ada"}
    assert await ran(session, "x.report.list", project_id="p1") == {"project_id": "p1", "owner": "ada"}


async def test_a_yaml_catalog_declares_explicit_arguments_too(tmp_path: Path) -> None:
    entry = """
      - name: report
        description: Report.
        kind: read
        op: x.report.get
        explicit: [EXPLICIT]
        input_schema: {type: object, properties: {project_id: {type: string, default: all}, owner: {type: string}}}
        implementation: {type: command, command: [echo, "{project_id}", "{owner}"]}
    """
    file = tmp_path / "catalog.yaml"
    file.write_text(f"capabilities:{entry.replace('EXPLICIT', 'project_id')}")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(f"capabilities:{entry.replace('EXPLICIT', 'colour')}")
    async with Toolcrib() as crib:
        await crib.load(file)
        explicit = [one.explicit for one in crib.catalog.tools.values() if one.local_name == "report"]
        with pytest.raises(UsageError):
            crib.add(tool(explicit=["colour"])(visit_again))
        await crib.load(wrong)
        problems = [problem.message for problem in crib.problems if "colour" in problem.message]

    assert (explicit, len(problems)) == ([("project_id",)], 1)


def visit_again(url: str) -> str:
    """Visit a page again."""
    return url


async def test_a_context_value_does_not_move_a_task_or_narrow_what_all_projects_have(crib: Toolcrib) -> None:
    session = crib.session(profile="gateway", mode="autonomous", context={"project_id": "p1"})
    for name in ("P1", "P2"):
        await ran(session, "x.project.create", name=name)
    elsewhere = await ran(session, "x.task.create", title="Elsewhere", project_id="p2")
    await ran(session, "x.task.create", title="Here")
    await ran(session, "x.task.edit", task_id=elsewhere["created"], title="Still elsewhere")

    async def titles(**arguments: Any) -> list[str]:
        return sorted(task["title"] for task in (await ran(session, "x.task.list", **arguments))["tasks"])

    assert await titles() == ["Here"]
    assert await titles(project_id="p2") == ["Still elsewhere"]
    assert await titles(show_all=True) == ["Here", "Still elsewhere"]


async def test_an_id_of_another_kind_in_the_context_is_not_taken(crib: Toolcrib) -> None:
    session = crib.session(profile="gateway", mode="autonomous", context={"task_id": "7"})

    assert await ran(session, "onto.task.get") == "7"
    assert await ran(session, "x.job.cancel") == "VALIDATION_ERROR"
