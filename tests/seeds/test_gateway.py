"""Seed 001, the gateway: checklist 001.1 line by line, over the ops of the document."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from seeds.rigging import answer_of, in_project, names, seeded
from toolcrib.config import bare
from toolcrib.core.events import CallFinished
from toolcrib.crib import Session, Toolcrib
from toolcrib.disclosure.base import estimate_tokens
from toolcrib.disclosure.settings import seed_tools
from toolcrib.plugin import tool

pytestmark = pytest.mark.anyio

SURFACE = 900
"""Estimated tokens of the three verbs and the prompt part together: they may only get fewer."""

OPS = """
onto.task.list onto.task.search onto.task.get onto.project.list onto.project.search onto.project.get
onto.document.list onto.document.search onto.document.get onto.goal.list onto.goal.get onto.plan.list onto.plan.get
onto.milestone.list onto.milestone.get onto.risk.list onto.risk.get onto.requirement.list onto.requirement.get
onto.search onto.project.graph.get onto.document.tree.get onto.document.path.get onto.entity.relationships.get
onto.entity.links.get onto.task.docs.list
onto.task.create onto.task.update onto.task.delete onto.project.create onto.project.update onto.goal.create
onto.goal.update onto.goal.delete onto.plan.create onto.plan.update onto.plan.delete onto.document.create
onto.document.update onto.document.delete onto.task.docs.create_or_attach onto.edge.link onto.edge.unlink
onto.project.graph.reorganize onto.document.tree.move
util.schema.field_info util.web.search util.web.visit util.buildos.overview util.buildos.usage_guide
cal.event.list cal.event.get cal.event.create cal.event.update cal.event.delete cal.project.get cal.project.set
""".split()
"""Section 6 of the document."""

ADDED = ["onto.milestone.update", "onto.risk.update", "onto.requirement.update"]
"""What the code of its time had besides."""

DEFAULTS: dict[str, dict[str, Any]] = {
    "onto.task.list": {"limit": 20},
    "onto.goal.list": {"limit": 10},
    "onto.document.list": {"limit": 20},
    "onto.plan.list": {"limit": 10},
    "onto.project.list": {"limit": 10},
    "onto.project.search": {"limit": 10},
    "onto.search": {"limit": 20},
    "onto.document.tree.get": {"include_documents": False, "include_content": False},
    "onto.entity.links.get": {"filter_kind": "all"},
    "onto.task.create": {"type_key": "task.execute", "state_key": "todo", "priority": 3},
    "onto.plan.create": {"state_key": "draft"},
    "onto.document.tree.move": {"new_position": 0},
    "util.web.search": {"max_results": 5, "search_depth": "advanced", "include_answer": True},
    "util.web.visit": {"max_chars": 6000, "mode": "auto"},
}


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    async with seeded("gateway") as opened:
        yield opened


@pytest.fixture
async def session(shared: Toolcrib) -> Session:
    return await in_project(shared)


async def helped(session: Session, path: str, **options: Any) -> Any:
    return answer_of(await session.call("tool_help", {"path": path, **options}))


async def ran(session: Session, op: str, args: Any = None, **options: Any) -> Any:
    return answer_of(await session.call("tool_exec", {"op": op, "args": args or {}, **options}))


async def titles(session: Session) -> list[str]:
    return [task["title"] for task in (await ran(session, "onto.task.list"))["result"]["tasks"]]


# --- the surface and the flag


async def test_help_is_told_to_clients_as_a_read_and_the_other_two_as_able_to_do_anything(session: Session) -> None:
    hints = {tool.name: (tool.kind, tool.annotations.open_world) for tool in session.tools}

    assert hints == {
        "tool_help": ("read", False),
        "tool_exec": ("destructive", True),
        "tool_batch": ("destructive", True),
    }


async def test_help_takes_the_arguments_of_the_document_with_its_defaults(session: Session) -> None:
    schema = session.tools[0].input_schema

    assert schema["required"] == []
    assert {name: part.get("default") for name, part in schema["properties"].items()} == {
        "path": "root",
        "format": "short",
        "include_examples": True,
        "include_schemas": False,
    }
    assert schema["properties"]["format"]["enum"] == ["short", "full"]


async def test_exec_and_batch_take_the_arguments_of_the_document(session: Session) -> None:
    _, runs, batch = session.tools

    assert list(runs.input_schema["properties"]) == ["op", "args", "idempotency_key", "dry_run"]
    assert runs.input_schema["required"] == ["op", "args"]
    assert (list(batch.input_schema["properties"]), batch.input_schema["required"]) == (["ops", "mode"], ["ops"])
    assert batch.input_schema["properties"]["mode"]["enum"] == ["sequential", "parallel"]


async def test_the_prompt_teaches_root_group_op_exec_and_the_retry(session: Session) -> None:
    told = session.instructions
    steps = [
        'tool_help("root")',
        'tool_help("onto.task")',
        'tool_help("onto.task.update")',
        "tool_exec({op:",
        "help_path",
    ]

    assert [told.index(step) for step in steps] == sorted(told.index(step) for step in steps)
    assert "never guess an id" in told


async def test_the_prompt_names_no_op_that_does_not_exist(shared: Toolcrib) -> None:
    session = shared.session(profile="gateway", allowed_tools=["web_search", "list_onto_goals"])

    assert "onto.task" not in session.instructions
    assert session.instructions.splitlines()[-1] == "2 ops: onto (goal); util (web)."


async def test_the_surface_stays_below_its_ceiling(session: Session) -> None:
    assert sum(map(estimate_tokens, session.tools)) + len(session.instructions.encode()) // 4 <= SURFACE


# --- the registry


async def test_every_op_of_the_document_has_help_and_no_other_op_exists(shared: Toolcrib, session: Session) -> None:
    for op in OPS:
        assert (await helped(session, op))["op"] == op

    ops = [session.op_of(tool) for tool in shared.catalog.tools.values()]
    assert sorted(ops) == sorted([*OPS, *ADDED])


@pytest.mark.parametrize(("op", "defaults"), DEFAULTS.items())
async def test_an_op_has_the_defaults_of_the_seed(session: Session, op: str, defaults: dict[str, Any]) -> None:
    args = {arg["name"]: arg.get("default") for arg in (await helped(session, op))["args"]}

    assert {name: args[name] for name in defaults} == defaults


async def test_events_name_op_entity_and_action_of_what_was_run(crib: Toolcrib) -> None:
    session = await in_project(crib)
    told: list[CallFinished] = []
    crib.calls.on_finished(told.append)
    crib.add(say_word)
    await ran(session, "onto.document.tree.get")
    await ran(session, "x.python.say_word")
    await ran(session, "onto.task.nothing")

    shown = [(event.tool, event.op, event.entity, event.action, event.requested, event.outcome) for event in told]
    assert shown == [
        ("get_document_tree", "onto.document.tree.get", "document.tree", "get", "tool_exec", "ok"),
        ("say_word", "x.python.say_word", "python", "say_word", "tool_exec", "ok"),
        ("", "", "", "", "tool_exec", "not_found"),
    ]


def say_word() -> str:
    """Return a word."""
    return "word"


async def test_adding_a_tool_changes_version_counts_help_and_exec_together(crib: Toolcrib) -> None:
    session = await in_project(crib)
    before = await helped(session, "root")
    crib.add(say_word)
    after = await helped(session, "root")

    assert (before["groups"], after["groups"]) == (["onto", "util", "cal"], ["onto", "util", "cal", "x"])
    assert before["version"] != after["version"] == crib.catalog.version
    assert session.instructions.splitlines()[-1].startswith(f"{len(crib.catalog.tools)} ops: ")
    assert (await ran(session, "x.python.say_word"))["result"] == "word"


# --- scope


async def test_an_op_made_for_other_contexts_is_neither_helped_with_nor_run(crib: Toolcrib) -> None:
    op = "cal.project.close"
    crib.add(tool(op=op, contexts=["project"])(say_word))
    session = await in_project(crib, contexts=())
    sent: dict[str, Any] = {"op": op, "args": {}}
    batch = answer_of(
        await session.call("tool_batch", {"ops": [{"type": "exec", **sent}, {"type": "help", "path": op}]})
    )
    alone, asked = batch["results"]

    assert answer_of(await session.call("tool_exec", sent))["error"]["code"] == "PERMISSION_DENIED"
    assert (await helped(session, op))["type"] == "not_found"
    assert (alone["error"]["code"], asked["result"]["type"]) == ("PERMISSION_DENIED", "not_found")
    assert op not in str(await helped(session, "cal.project"))
    inside = await in_project(crib)
    assert (await ran(inside, op))["result"] == "word"


async def test_a_refusal_says_no_more_of_a_tool_than_was_asked(shared: Toolcrib) -> None:
    session = shared.session(profile="gateway", allowed_tools=["list_onto_tasks"])

    assert "create_onto_task" not in str(await ran(session, "task.create"))


async def test_what_one_session_was_told_is_not_told_to_one_that_may_see_less(
    shared: Toolcrib, session: Session
) -> None:
    narrow = shared.session(profile="gateway", allowed_tools=["list_onto_tasks"])

    wide = await helped(session, "onto.task")
    assert (wide["ops"], (await helped(narrow, "onto.task"))["ops"]) == (8, 1)


# --- the flag


async def test_switched_off_the_gateway_is_the_plain_list_and_results_are_the_tools_own(crib: Toolcrib) -> None:
    crib.profiles.add({"name": "off", "extends": "gateway", "progressive": False})
    session = await in_project(crib, profile="off")

    assert names(session) == [*crib.catalog.tools, "read_artifact"]
    assert answer_of(await session.call("list_onto_tasks"))["total"] == 0
    assert (await session.call("tool_help", {"path": "root"})).error is not None


async def test_switched_off_the_gateway_has_the_tools_by_names_that_every_api_takes() -> None:
    async with Toolcrib(bare().with_values(builtins=seed_tools("gateway")), memory=True) as crib:
        crib.profiles.add({"name": "off", "extends": "gateway", "progressive": False})
        session = crib.session(profile="off")
        listed = names(session)

        assert [name for name in listed if not re.fullmatch(r"\w{1,64}", name)] == []
        assert {"web_visit", "get_buildos_overview", "get_buildos_usage_guide"} <= {*listed}
        assert "product" in answer_of(await session.call("get_buildos_overview"))


# --- scenarios of a whole turn


async def test_a_write_is_there_afterwards_and_gone_after_the_delete(session: Session) -> None:
    made = await ran(session, "onto.task.create", {"title": "Paint the rail"})
    task = made["result"]["task"]["id"]
    await ran(session, "onto.task.update", {"task_id": task, "description": "red"})
    cleared = await ran(session, "onto.task.update", {"task_id": task, "description": None})
    found = await ran(session, "onto.search", {"query": "rail"})
    await ran(session, "onto.task.delete", {"task_id": task})

    assert cleared["result"]["task"]["description"] is None
    assert [row["id"] for row in found["result"]["results"]] == [task]
    assert await titles(session) == []


async def test_null_moves_a_document_back_to_the_root(session: Session) -> None:
    ids: list[str] = []
    for title, parent in (("Plan", None), ("Detail", "Plan")):
        sent = {"title": title, "description": "", "content": "", "parent_id": ids[0] if parent else None}
        ids.append((await ran(session, "onto.document.create", sent))["result"]["document"]["id"])
    path = await ran(session, "onto.document.path.get", {"document_id": ids[1]})
    await ran(session, "onto.document.tree.move", {"document_id": ids[1], "new_parent_id": None, "new_position": 0})
    tree = await ran(session, "onto.document.tree.get")

    assert [step["title"] for step in path["result"]["path"]] == ["Plan", "Detail"]
    assert [node["id"] for node in tree["result"]["structure"]["root"]] == [ids[1], ids[0]]


async def test_a_model_that_only_follows_what_it_reads_gets_from_root_to_a_right_call(session: Session) -> None:
    root = await helped(session, "root")
    group = next(item["name"] for item in root["items"] if "task" in item["summary"])
    entity = next(item["name"] for item in (await helped(session, group))["items"] if item["name"].endswith(".task"))
    op = next(item["name"] for item in (await helped(session, entity))["items"] if item["summary"].startswith("Create"))
    wrong = await ran(session, op, {"titel": "Paint"})
    again = await helped(session, wrong["error"]["help_path"])
    given = {name: "Paint" for name in again["required_args"] if name != "project_id"}

    assert (await ran(session, op, given))["ok"]
    assert await titles(session) == ["Paint"]
