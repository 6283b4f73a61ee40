"""Statements of the seeds, held against the tools that come with us: no stand-in world, no tool of the test's own."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from peers import LEDGER
from peers.api import api
from rig import PATIENCE, eventually
from rig.sandbox import needs_sandbox, stands_still
from seeds.inventory import cases_of
from seeds.rigging import built_in, names, sent
from seeds.selection_skills import skills_of, write_skill
from seeds.test_gateway import OPS
from toolcrib.core.events import CallFinished
from toolcrib.core.json import dumps
from toolcrib.core.permission import Answer, Question
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Tool
from toolcrib.crib import Session, Toolcrib
from toolcrib.disclosure.profiles import load
from toolcrib.disclosure.settings import seed_tools
from toolcrib.plugin import Plugin
from toolcrib.policy.taint import Taint
from toolcrib.testing import RecordingApprover
from toolcrib.testing.models import Reply, ScriptedModel, Seen, calls
from toolcrib_agent import Agent
from toolcrib_agent.events import Selected
from toolcrib_agent.sub_agents.registry import registry_of

_EMPTY: dict[str, Any] = {"entities": [], "relationships": []}


@pytest.fixture(scope="module")
async def crib() -> AsyncGenerator[Toolcrib]:
    async with built_in() as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


def of(crib: Toolcrib, profile: str, folder: Path, **options: Any) -> Session:
    known: dict[str, Any] = {"profile": profile, "workspace": folder, "key": str(folder), **options}
    return crib.session(**known)


async def told(session: Session, name: str, arguments: dict[str, Any] | None = None) -> Any:
    """Return what a call that succeeds has to tell."""
    result = await session.call(name, arguments)
    assert not result.is_error, result.text
    return result.structured_content


async def failed(session: Session, name: str, arguments: dict[str, Any] | None = None) -> Any:
    """Return what the model reads of a call that fails."""
    result = await session.call(name, arguments)
    assert result.is_error
    return json.loads(result.text)


# Seed 000


async def test_categories_are_loaded_on_demand_for_one_interaction(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, "tiered", folder)
    core = names(session)
    overview = await told(session, "browse_tools")
    assert all(set(entry) == {"name", "description", "tool_count"} for entry in overview["categories"])
    (files,) = [entry for entry in overview["categories"] if entry["name"] == "files"]

    loaded = await told(session, "load_tools", {"category": "files"})
    assert loaded == {
        "loaded": "files",
        "tools_added": loaded["tools_added"],
        "message": f"{files['tool_count']} files tools are now available.",
    }
    assert names(session) == [*core, *loaded["tools_added"]]
    await told(session, "load_tools", {"category": "files"})
    assert names(session) == [*core, *loaded["tools_added"]]
    for entry in overview["categories"]:
        await told(session, "load_tools", {"category": entry["name"]})
    assert len(names(session)) == len(set(names(session)))
    session.unload_unused()
    assert names(session)[: len(core)] == core
    session.begin()
    assert (names(session), {"browse_tools", "load_tools"} <= set(core)) == (core, True)


async def test_the_seven_categories_have_the_tools_that_the_seed_counts(folder: Path) -> None:
    async with built_in(tools={"git": {"tokens": {"git.example": "unused"}}}) as crib:
        session = of(crib, "tiered", folder, principal="ada")
        overview = await told(session, "browse_tools")
        loaded = {
            entry["name"]: (await told(session, "load_tools", {"category": entry["name"]}))["tools_added"]
            for entry in overview["categories"]
        }
    known = {case.name for case in cases_of("tiered")}

    assert [(one["name"], one["description"], one["tool_count"]) for one in overview["categories"][:7]] == [
        ("git", "Branch, commit, push, PR, and merge operations", 11),
        ("project", "Project CRUD, workspace management", 16),
        ("agent", "Agent management, agent profiles", 17),
        ("hooks", "Direct hook management (low-level)", 6),
        ("memory", "Memory operations beyond search, notes, project profiles", 13),
        ("files", "Read, write, edit, search, and browse files in project workspaces", 8),
        ("system", "Token usage, config, diagnostics, task lifecycle ops, prompts", 28),
    ]
    assert {name for category in [*loaded][:7] for name in loaded[category]} <= known
    assert loaded["git"][:2] == ["get_git_status", "git_commit"]
    assert {one["name"]: one["tool_count"] for one in overview["categories"]} == {
        category: len(added) for category, added in loaded.items()
    }


async def test_a_category_of_the_profile_that_lacks_a_workspace_is_not_unknown(crib: Toolcrib) -> None:
    session = crib.session(profile="tiered", principal="ada", key="nowhere", workspace=None)

    known = await session.call("load_tools", {"category": "git"})
    unknown = await session.call("load_tools", {"category": "gti"})

    assert [one.error and one.error.code for one in (known, unknown)] == ["unavailable", "not_found"]


async def test_a_tool_whose_name_another_one_has_here_is_loaded_under_its_own(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, "tiered", folder)
    await told(session, "load_tools", {"category": "machine"})
    made = await told(session, "create_task", {"title": "One"})
    call, *_ = (await told(session, "get_recent_calls", {"tool": "create_task"}))["events"]
    event, *_ = (await told(session, "get_recent_events", {"limit": 1}))["events"]

    assert {"get_session_status", "get_session_usage", "get_recent_calls"} <= set(names(session))
    assert "get_recent_events" not in names(session)
    assert (call["tool"], call["outcome"]) == ("create_task", "ok")
    assert (event["type"], event["task_id"]) == ("task.created", made["created"])


async def test_what_tools_tell_of_tools_is_by_the_names_of_the_profile(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, "tiered", folder)
    await session.call("checkout_branch", {"branch_name": "x"})
    used = (await told(session, "get_session_usage"))["by_tool"]
    events = (await told(session, "get_recent_calls", {"tool": "checkout_branch"}))["events"]
    allowed = ["list_available_tools", "git_branch", "git_status"]
    narrow = of(crib, "tiered", folder, key="narrow", allowed_tools=allowed)
    few, many = [(await told(one, "list_available_tools"))["tools"] for one in (narrow, session)]
    made = await told(session, "create_profile", {"id": "p", "name": "P", "allowed_tools": ["checkout_branch"]})

    assert ([*used], {event["tool"] for event in events}) == (["checkout_branch"], {"checkout_branch"})
    assert {entry["name"] for entry in few} == {
        "git_create_branch",
        "checkout_branch",
        "get_git_status",
        "list_available_tools",
    }
    assert ({*map(len, few)}, {*map(len, many)}) == ({2}, {1})  # of many the names alone
    assert "warnings" not in made


async def test_a_tool_runs_whether_it_is_loaded_or_not(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, "tiered", folder)
    assert "write_file" not in names(session)
    await told(session, "write_file", {"path": "a.txt", "content": "one\n"})
    assert (folder / "a.txt").read_text() == "one\n"


async def test_rule_tools_name_what_took_the_place_of_rules(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, "tiered", folder)
    asked: dict[str, dict[str, Any]] = {
        "browse_rules": {},
        "load_rule": {"id": "r"},
        "save_rule": {"content": "c"},
        "delete_rule": {"id": "r"},
    }
    answers = [json.dumps((await session.call(name, given)).structured_content) for name, given in asked.items()]
    assert all("deprecated" in answer for answer in answers)


# Seed 001


async def test_help_leads_from_the_root_to_an_op_and_exec_runs_it(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, "gateway", folder)
    assert names(session) == ["tool_help", "tool_exec", "tool_batch"]
    assert [tool.input_schema["properties"].keys() for tool in session.tools] == [
        {"path", "format", "include_examples", "include_schemas"},
        {"op", "args", "idempotency_key", "dry_run"},
        {"ops", "mode"},
    ]
    root = await told(session, "tool_help", {"path": "root"})
    assert await told(session, "tool_help", {"path": ""}) == root == await told(session, "tool_help", {})
    assert "util" in root["groups"]
    group = await told(session, "tool_help", {"path": "util.buildos"})
    op = next(item["name"] for item in group["items"] if item["name"].endswith("overview"))
    described = await told(session, "tool_help", {"path": op})
    assert {"summary", "usage", "args", "notes", "examples"} <= described.keys()
    assert all({"name", "type", "required"} <= argument.keys() for argument in described["args"])
    answer = await told(session, "tool_exec", {"op": op, "args": {}})
    assert answer["meta"]["trace_id"].startswith("tr_")
    assert (answer["op"], answer["ok"], set(answer["meta"]) >= {"trace_id", "latency_ms", "warnings"}) == (
        op,
        True,
        True,
    )


_OUTSIDE = ("util.web.search", "util.web.visit")
"""Ops whose examples need a provider and the network; `test_builtin_inventories` runs them."""


async def test_each_group_is_summarised_and_every_op_of_the_document_is_reached(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, "gateway", folder)
    root = await told(session, "tool_help", {})
    groups = [await told(session, "tool_help", {"path": group}) for group in ("onto", "util", "cal")]

    assert root["groups"] == ["onto", "util", "cal", "x"]
    assert [(one["path"], one["type"]) for one in groups] == [(name, "directory") for name in ("onto", "util", "cal")]
    assert all(
        item["summary"] and item["name"].startswith(f"{one['path']}.") for one in groups for item in one["items"]
    )
    assert set(OPS) <= {session.op_of(tool) for tool in crib.catalog.tools.values() if tool.source == "builtin"}
    for op in OPS:
        described = await told(session, "tool_help", {"path": op})
        assert described["op"] == op
        result = await session.call("tool_exec", {**described["example_call"], "dry_run": True})
        answer: Any = result.structured_content or json.loads(result.text)
        assert answer["op"] == op
        assert answer["ok"] or answer["error"]["code"] == "NOT_FOUND" or op in _OUTSIDE, answer


async def test_help_tells_of_an_op_what_is_in_its_record_and_one_version_of_them_all(
    crib: Toolcrib, folder: Path
) -> None:
    session = of(crib, "gateway", folder)
    asked = {"path": "x.file.write", "format": "full", "include_schemas": True}
    described = await told(session, "tool_help", asked)
    assert (described["op"], described["tool_name"], described["kind"]) == ("x.file.write", "write_file", "write")
    assert {"description", "schema", "examples", "policy", "version"} <= described.keys()
    assert set(described["policy"]) <= {"do", "dont", "edge_cases"}
    short = await told(session, "tool_help", {"path": "x.file.write", "include_examples": False})
    assert short.keys().isdisjoint({"description", "schema"})
    root = await told(session, "tool_help", {"path": "root"})
    async with built_in(builtins=("text", "time")) as other:
        elsewhere = await told(of(other, "gateway", folder), "tool_help", {"path": "root"})
    assert (root["version"] == described["version"], root["version"] == elsewhere["version"]) == (True, False)


async def test_help_goes_from_the_graph_to_its_entities_their_ops_and_the_arguments_of_one(
    crib: Toolcrib, folder: Path
) -> None:
    session = of(crib, "gateway", folder)
    group = await told(session, "tool_help", {"path": "onto"})
    items = {item["name"]: item["type"] for item in group["items"]}
    assert (group["type"], items["onto.task"], items["onto.search"]) == ("directory", "entity", "op")
    entity = await told(session, "tool_help", {"path": "onto.task"})
    actions = ("create", "delete", "docs.create_or_attach", "docs.list", "get", "list", "search", "update")
    assert [(item["name"], item["type"]) for item in entity["items"]] == [(f"onto.task.{one}", "op") for one in actions]
    op = await told(session, "tool_help", {"path": "onto.task.update"})
    arguments = {one["name"]: (one["type"], one["required"]) for one in op["args"]}
    assert (op["type"], op["tool_name"], op["required_args"]) == ("op", "update_onto_task", ["task_id"])
    assert (arguments["task_id"], arguments["title"]) == (("string", True), ("string", False))
    for name in ("onto.task.create", "onto.project.create"):
        policy = (await told(session, "tool_help", {"path": name}))["policy"]
        assert all(policy[part] for part in ("do", "dont", "edge_cases")), name


async def test_exec_fills_arguments_from_the_schema_and_the_context_and_takes_a_document_under_usual_names(
    crib: Toolcrib, folder: Path
) -> None:
    project = {"name": "Pier", "type_key": "project.technical.pier"}
    given: dict[str, Any] = {"project": project, "entities": [], "relationships": []}
    made = await told(of(crib, "gateway", folder), "tool_exec", {"op": "onto.project.create", "args": given})
    context = {"project_id": made["result"]["project_id"]}
    session = of(crib, "gateway", folder, key="inside", context=context)
    task = await told(session, "tool_exec", {"op": "onto.task.create", "args": {"title": "Order wood"}})
    args = {"markdown": "# Loads\nTen tons."}
    document = await told(session, "tool_exec", {"op": "onto.document.create", "args": args})

    filled = {name: task["result"]["task"][name] for name in ("project_id", "priority", "state_key", "type_key")}
    assert filled == {**context, "priority": 3, "state_key": "todo", "type_key": "task.execute"}
    created = document["result"]["document"]
    assert (created["project_id"], created["title"], created["content"]) == (
        context["project_id"],
        "Loads",
        "# Loads\nTen tons.",
    )


async def test_the_prompt_of_the_gateway_teaches_the_way_and_the_retry(crib: Toolcrib, folder: Path) -> None:
    text = of(crib, "gateway", folder).instructions
    assert text.index("root") < text.index("help_path")
    assert [word for word in ("tool_help", "never guess", "list") if word not in text.lower()] == []


async def test_every_failure_of_exec_leads_back_to_help(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, "gateway", folder, rules={"deny": ["remove_file"]})
    (folder / "a.txt").touch()
    asked: list[tuple[str, dict[str, Any]]] = [
        ("util.web.visit", {}),
        ("util.web.vsiit", {"url": "https://example.org"}),
        ("x.file.remove", {"path": "a.txt"}),
        ("x.file.read", {"path": "none.txt"}),
    ]
    errors = [(await failed(session, "tool_exec", {"op": op, "args": args}))["error"] for op, args in asked]
    assert [(error["code"], error["help_path"]) for error in errors] == [
        ("VALIDATION_ERROR", "util.web.visit"),
        ("NOT_FOUND", "root"),
        ("PERMISSION_DENIED", "x.file.remove"),
        ("NOT_FOUND", "x.file.read"),
    ]
    assert errors[0]["details"]["field_errors"][0]["path"] == "url"

    without_op = await session.call("tool_exec", {}, origin="mcp")
    error = without_op.structured_content["error"]
    assert (error["code"], error["help_path"]) == ("VALIDATION_ERROR", "root")


async def test_a_batch_mixes_help_and_exec_a_dry_run_changes_nothing_and_a_key_runs_once(
    crib: Toolcrib, folder: Path
) -> None:
    session = of(crib, "gateway", folder)
    finished: list[CallFinished] = []
    end = crib.calls.on_finished(finished.append)
    write = {"op": "x.file.write", "args": {"path": "a.txt", "content": "one\n"}}
    try:
        await told(session, "tool_exec", {**write, "dry_run": True})
        assert not (folder / "a.txt").exists()
        both = [await told(session, "tool_exec", {**write, "idempotency_key": "k"}) for _ in range(2)]
        (folder / "a.txt").write_text("two\n")
        again = await told(session, "tool_exec", {**write, "idempotency_key": "k"})
        ops = [
            {"type": "help", "path": "x.file.write"},
            {"type": "exec", "op": "x.file.read", "args": {"path": "a.txt"}},
        ]
        batch = await told(session, "tool_batch", {"ops": ops, "mode": "parallel"})
    finally:
        end()
    assert both[0]["result"] == both[1]["result"] == again["result"]
    assert (folder / "a.txt").read_text() == "two\n"
    assert [entry["ok"] for entry in batch["results"]] == [True, True]
    assert ("write", "write_file") in {(event.action, event.tool) for event in finished}
    assert "write_file" in {row.tool for row in await crib.store.calls.list(session=session.state.key)}


async def test_events_of_operations_that_exec_runs_name_entity_and_action_and_an_unknown_op_is_on_record(
    folder: Path,
) -> None:
    async with built_in(builtins=("onto", "cal", "work")) as crib:
        session = of(crib, "gateway", folder, principal="ada")
        project = {"name": "Shop", "type_key": "project.technical.shop"}
        await told(session, "tool_exec", {"op": "onto.project.create", "args": {"project": project, **_EMPTY}})
        times = {"start_at": "2026-12-01T10:00:00+01:00", "end_at": "2026-12-01T11:00:00+01:00"}
        await told(session, "tool_exec", {"op": "cal.event.create", "args": {"title": "Talk", **times}})
        unknown = await failed(session, "tool_exec", {"op": "onto.unicorn.create", "args": {}})
        await crib.store.flush()
        events = await crib.store.shared.events("ada", project_id="", types=(), limit=10)
        newest, *_ = await crib.store.calls.list(limit=1)

    assert [(one.type, one.payload["entity"], one.payload["action"]) for one in events] == [
        ("cal.event.create", "event", "create"),
        ("onto.project.create", "project", "create"),
    ]
    assert (unknown["error"]["code"], unknown["error"]["help_path"]) == ("NOT_FOUND", "root")
    assert (newest.requested, newest.tool, newest.outcome) == ("tool_exec", "onto.unicorn.create", "not_found")


# Seed 002


async def test_flat_declares_every_tool_in_full_in_every_turn(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, "flat", folder)
    before = session.listing
    assert {"read_file", "git_push", "system_monitor"} <= set(names(session))
    assert all(tool.description and tool.input_schema["type"] == "object" for tool in session.tools)
    await session.call("list_directory")
    session.begin()
    assert session.listing == before


async def test_results_are_one_to_one_with_the_calls_whatever_becomes_of_each(crib: Toolcrib, folder: Path) -> None:
    (folder / "a.txt").write_text("A\n")
    session = of(crib, "flat", folder, mode="cautious", approver=RecordingApprover("no"))
    asked: list[tuple[str, Any]] = [
        ("read_file", {"path": "a.txt"}),
        ("no_such_tool", {}),
        ("write_file", {"path": "b.txt", "content": "B"}),
        ("read_file", "{broken"),
        ("read_file", {"path": "missing.txt"}),
        ("list_directory", {}),
    ]
    results = await session.call_many(asked)
    assert [(result.text.splitlines()[0][:36], result.is_error) for result in results] == [
        ("A", False),
        ("Unknown tool: no_such_tool", True),
        ("Tool call denied by user.", True),
        ("the arguments are not valid JSON: ex", True),
        ("there is no 'missing.txt'", True),
        ("a.txt  2", False),
    ]
    assert not (folder / "b.txt").exists()


async def test_arguments_are_recorded_without_their_secrets_and_the_tool_gets_them_whole(folder: Path) -> None:
    secret = "correct-horse-battery"
    async with built_in(secrets=(secret,)) as crib:
        await told(of(crib, "flat", folder), "write_file", {"path": "a.txt", "content": f"password {secret}"})
        (row,) = await crib.store.calls.list()
    assert (secret in row.arguments, (folder / "a.txt").read_text()) == (False, f"password {secret}")


@needs_sandbox
@pytest.mark.process
async def test_a_cancelled_call_ends_its_command(crib: Toolcrib, folder: Path) -> None:
    begun, ended = anyio.Event(), anyio.Event()
    command = "while :; do date +%s.%N > alive; echo going; sleep 0.05; done"
    async with of(crib, "flat", folder) as session:

        async def wait(task_status: TaskStatus[anyio.CancelScope]) -> None:
            with anyio.CancelScope() as scope:
                task_status.started(scope)
                await session.call("run_command", {"command": command}, listener=lambda _: begun.set())
            ended.set()

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as group:
                scope: anyio.CancelScope = await group.start(wait)
                await begun.wait()
                scope.cancel()
                await ended.wait()
        await stands_still(folder / "alive")


@needs_sandbox
@pytest.mark.process
async def test_a_shadow_is_the_folder_of_every_file_tool(crib: Toolcrib, folder: Path) -> None:
    other = folder.parent / "other"
    other.mkdir()
    for place in (folder, other):
        session = of(crib, "flat", place)
        await told(session, "write_file", {"path": "who.txt", "content": place.name})
        result = await session.call("run_command", {"command": "cat who.txt"})
        assert result.text == place.name


@asynccontextmanager
async def gathering(together: int, **settings: Any) -> AsyncGenerator[tuple[Toolcrib, dict[str, str], list[int]]]:
    """A crib, a page whose server answers once so many ask for it at a time, and how many ever did."""
    waiting, most, full = 0, [0], anyio.Event()

    async def meet(request: Request) -> Response:
        nonlocal waiting
        waiting += 1
        most[0] = max(most[0], waiting)
        if waiting == together:
            full.set()
        await full.wait()
        waiting -= 1
        return PlainTextResponse("met")

    async with api({"GET /meet": meet}) as server:
        host = server.origin.removeprefix("http://")
        tools = {"web": {"private_hosts": [host], "robots": "ignore"}}
        async with built_in(tools=tools, untrusted=Taint(ask=False), **settings) as crib:
            yield crib, {"url": f"{server.origin}/meet"}, most


@pytest.mark.process
async def test_all_calls_of_a_turn_run_at_the_same_time(folder: Path) -> None:
    async with gathering(12) as (crib, page, most):
        session = of(crib, "flat", folder)
        results = await session.call_many(
            [("web_fetch", {**page, "url": f"{page['url']}?{n}"}) for n in range(12)], timeout=PATIENCE
        )
    assert (["met" in result.text for result in results], most) == ([True] * 12, [12])


@needs_sandbox
async def test_flat_can_be_cut_to_the_27_built_ins_of_its_seed(folder: Path) -> None:
    seed = [case.name for case in cases_of("flat")]
    search = {"web": {"search": {"searxng_url": "https://search.example"}}}
    async with built_in(tools=search) as crib:
        crib.profiles.add({"name": "seed", "extends": "flat", "include": seed})
        session = of(crib, "seed", folder, elicitor=answers)
        model = ScriptedModel("Done.", system="anthropic")
        await Agent(model, session, local=ScriptedModel()).run("Look")
        mine = [tool.name for tool in session.tools if tool.source not in ("plan", "toolcrib", "resources")]
        assert sorted(mine) == sorted([*seed, "spawn_agent", "delegate_task"])
        assert sent(session) <= 8_000
        assert (await session.call("calculate", {"expression": "1"})).text.startswith("Unknown tool: calculate")


async def test_a_profile_includes_and_excludes_built_in_tools_by_name_and_category(folder: Path) -> None:
    async with built_in(builtins=("files", "text", "time", "git")) as crib:
        crib.profiles.add({"name": "few", "extends": "flat", "include": ["text", "readFile", "read_file"]})
        crib.profiles.add({"name": "most", "extends": "introspection", "exclude": ["git", "readFile"]})
        few = {tool.category for tool in of(crib, "few", folder).tools if tool.source == "builtin"}
        most = of(crib, "most", folder, key="most")
        listed = {entry["name"] for entry in (await told(most, "list_tools"))["categories"]}
        assert ({"git", "time"} & few, "text" in few, "code" in listed) == (set(), True, False)
        assert (await failed(most, "readFile", {"path": "a"}))[
            "error"
        ] == "readFile is not in the scope of this session"


@needs_sandbox
@pytest.mark.process
async def test_a_delegated_task_has_ten_reading_tools_in_2000_tokens(crib: Toolcrib, folder: Path) -> None:
    (folder / "a.txt").write_text("one\n")
    paid = ScriptedModel(calls("delegate_task", task="Read a.txt"), "One.", system="anthropic")
    local = ScriptedModel(calls("read_file", path="a.txt"), "It says one.")
    async with of(crib, "flat", folder) as session:
        await Agent(paid, session, local=local).run("What does a.txt say?")
        tools = {tool.name: tool for tool in session.tools}
    given = [name for name in local.seen[0].tools if name in tools and tools[name].source == "builtin"]
    assert (len(given), local.seen[1].results, paid.seen[1].results) == (10, ["one"], ["It says one."])
    cost = (len(dumps([tools[n].name, tools[n].description, tools[n].input_schema])) // 4 for n in given)
    assert sum(cost) <= 2_000


# Seed 003

NAMED_BY_THE_DOCUMENT = {
    "filesystem": {"updateFile", "writeNewFile", "removeFile", "moveFile", "copyFile", "glob_files", "list_directory"},
    "search": {"grep_content", "web_search", "ast_search"},
    "web": {"fetch_url", "fetch_url_post"},
    "coordination": {"start_background", "save_waypoint"},
    "communication": {"request_clarification"},
    "memory": {"list_templates", "get_template", "create_template"},
}


async def answers(question: Any) -> str | None:
    return "yes"


async def test_list_tools_names_the_categories_and_no_tool_of_them(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, "introspection", folder, elicitor=answers)
    shown = await told(session, "list_tools")
    assert [set(entry) for entry in shown["categories"]] == [{"name", "tool_count", "description"}] * len(
        shown["categories"]
    )
    assert [entry["name"] for entry in shown["categories"] if not entry["description"]] == []
    assert set(NAMED_BY_THE_DOCUMENT) <= {entry["name"] for entry in shown["categories"]}
    assert "writeNewFile" not in json.dumps(shown)


@needs_sandbox
@pytest.mark.parametrize("category", NAMED_BY_THE_DOCUMENT)
async def test_a_category_has_the_tools_that_the_document_names(crib: Toolcrib, folder: Path, category: str) -> None:
    session = of(crib, "introspection", folder, elicitor=answers)
    shown = await told(session, "list_tools", {"category": category})
    listed = {entry["name"]: entry["description"] for entry in shown["tools"]}
    assert (NAMED_BY_THE_DOCUMENT[category] - listed.keys(), shown["tool_count"]) == (set(), len(listed))
    assert all(listed.values())


async def test_get_tool_schemas_tells_the_parameters_and_makes_the_tool_callable(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, "introspection", folder)
    core = names(session)
    given = {"path": "new.txt", "content": "text\n"}
    refused = await failed(session, "writeNewFile", given)
    assert ("writeNewFile" in refused["error"], "get_tool_schemas" in refused["hint"]) == (True, True)
    assert not (folder / "new.txt").exists()

    shown = await told(session, "get_tool_schemas", {"names": ["writeNewFile"]})
    (schema,) = shown["schemas"]
    assert (schema["parameters"]["path"]["required"], shown["activated"]) == (True, ["writeNewFile"])
    assert names(session) == [*core, "writeNewFile"]
    await told(session, "writeNewFile", given)
    assert (folder / "new.txt").read_text() == "text\n"
    session.begin()
    assert names(session) == [*core, "writeNewFile"]
    started = await session.call("readFile", {"path": "new.txt"}, background=True)
    assert (started.structured_content["plugin_name"], schema["plugin_source"]) == ("file_edit", "file_edit")


@needs_sandbox
@pytest.mark.process
async def test_what_fails_is_told_in_the_names_of_the_profile(crib: Toolcrib, folder: Path) -> None:
    (folder / "a.txt").write_text("one\n")
    session = of(crib, "introspection", folder, mode="manual", approver=RecordingApprover("no", "yes", "yes", "yes"))
    refused = await failed(session, "run", {"command": "pwd"})
    assert (" run" in refused["error"], "run_command" in json.dumps(refused)) == (True, False)
    await told(session, "get_tool_schemas", {"names": ["writeNewFile", "updateFile"]})
    taken = await failed(session, "writeNewFile", {"path": "a.txt", "content": "two"})
    absent = await failed(session, "readFile", {"path": "none/b.txt"})
    missed = await failed(session, "updateFile", {"path": "a.txt", "old": "three", "new": "four"})
    unread = await failed(of(crib, "selection", folder, key="s"), "memory_recall", {})
    texts = [json.dumps(answer) for answer in (taken, missed, unread, absent)]
    internal = ("edit_file", "read_file", "write_file", "memory_search", "search_files")
    assert [name for name in internal for text in texts if name in text] == []
    row = (await crib.store.calls.list(session=session.state.key))[0]
    assert row.tool == "edit_file"


async def test_a_name_that_no_tool_has_suggests_those_with_its_word(crib: Toolcrib, folder: Path) -> None:
    shown = await told(of(crib, "introspection", folder), "get_tool_schemas", {"names": ["file"]})
    assert len(shown["suggestions"]["file"]) == 3
    assert [name for name in shown["suggestions"]["file"] if "profile" in name] == []


async def test_every_tool_is_discoverable_unless_it_is_marked_core(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, "introspection", folder)
    everything = {
        entry["name"]
        for category in (await told(session, "list_tools"))["categories"]
        for entry in (await told(session, "list_tools", {"category": category["name"]}))["tools"]
    }
    core = [tool.name for tool in session.tools if tool.name not in ("list_tools", "get_tool_schemas")]
    assert set(core) <= everything
    assert len(core) * 4 < len(everything)


@pytest.mark.process
async def test_tools_of_mcp_servers_are_in_a_category_of_their_own(folder: Path) -> None:
    server = {"command": sys.executable, "args": ["-IS", LEDGER, str(folder / "ledger")]}
    async with built_in() as crib:
        await crib.mount({"mcpServers": {"books": server}})
        await crib.tools.wait_ready(PATIENCE)
        session = of(crib, "introspection", folder)
        listed = await told(session, "list_tools", {"category": "MCP"})
        assert "mcp__books__look" in {entry["name"] for entry in listed["tools"]}
        await told(session, "get_tool_schemas", {"names": ["mcp__books__look"]})
        assert names(session)[-1] == "mcp__books__look"
        assert not (await session.call("mcp__books__look", {"query": "a"})).is_error


async def test_delegate_starts_a_sub_agent_whose_answer_comes_into_the_next_turn(crib: Toolcrib, folder: Path) -> None:
    (folder / "a.txt").write_text("one\n")

    def answer(seen: Seen) -> Reply:
        if seen.prompts[0].startswith("Read"):
            return Reply(text="It says one.") if seen.results else calls("readFile", path="a.txt")
        if not seen.results:
            return calls("list_tools", category="coordination") + calls("get_tool_schemas", names=["delegate"])
        if len(seen.results) == 2:
            return calls("delegate", task="Read a.txt", name="reader")
        return Reply(text="Delegated.")

    async with of(crib, "introspection", folder, key=f"{folder}/agent", elicitor=answers) as session:
        model = ScriptedModel(*[answer] * 9)
        parent = Agent(model, session)
        outcome = await parent.run("Have a.txt read")
        listed, _, spawned = [json.loads(text) for text in model.seen[-1].results[:3]]
        await registry_of(session).wait_idle()
        again = await parent.run("And?", history=outcome.history)
    names_ = {entry["name"] for entry in listed["tools"]}
    assert {"delegate", "spawn_subagent", "send_to_subagent", "cancel_subagent", "close_subagent"} <= names_
    assert {"list_active_subagents", "list_subagent_profiles", "validateProfile"} <= names_
    assert (parent.limits.spawned_turns, parent.limits.spawned_requests) == (10, 15)
    assert (spawned["status"], spawned["subagent_id"].startswith("reader-")) == ("spawned", True)
    assert (outcome.text, again.text) == ("Delegated.", "Delegated.")
    (told,) = [
        text for text in model.seen[-1].prompts if text.startswith(f"[Sub-agent {spawned['subagent_id']} answers")
    ]
    assert "It says one." in told


COUNTED = {"filesystem": 10, "system": 3, "coordination": 13, "search": 3, "web": 2}
"""Tools of a category that the document counts, at least."""


@needs_sandbox
async def test_the_inventory_has_as_many_tools_as_the_document_counts(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, "introspection", folder, elicitor=answers)
    shown = await told(session, "list_tools")
    counts = {entry["name"]: entry["tool_count"] for entry in shown["categories"]}
    assert {name: counts[name] for name, least in COUNTED.items() if counts[name] < least} == {}
    core = set(names(session))
    assert {"list_tools", "get_tool_schemas", "readFile", "run"} <= core
    assert len([name for name in core if "Plan" in name or "Step" in name or "Task" in name]) >= 8
    assert (len(core) >= 14, shown["total_tools"] - len(core) >= 85) == (True, True)


@needs_sandbox
@pytest.mark.process
async def test_permission_comes_first_as_an_answer_a_rule_or_the_mode(crib: Toolcrib, folder: Path) -> None:
    given = {"command": "touch made"}
    refusing = RecordingApprover("no")
    asked = of(crib, "introspection", folder, key="asked", mode="cautious", approver=refusing)
    rules = {"allow": ["Bash(touch *)"]}
    listed = of(crib, "introspection", folder, key="listed", mode="cautious", approver=refusing, rules=rules)
    refused = await failed(asked, "run", given)
    assert refused["error"].startswith("Permission denied: ")
    assert set(refused["_permission"]) == {"decision", "reason", "method"}
    assert not (folder / "made").exists()
    async with listed:
        await listed.call("run", given)
    assert ((folder / "made").exists(), len(refusing.questions)) == (True, 1)


@pytest.mark.process
async def test_at_most_eight_calls_run_at_a_time_each_with_an_id_of_its_own(folder: Path) -> None:
    async with gathering(8) as (crib, page, most):
        session = of(crib, "introspection", folder)
        await told(session, "get_tool_schemas", {"names": ["fetch_url"]})
        results = await session.call_many([("fetch_url", {**page, "url": f"{page['url']}?{n}"}) for n in range(20)])
    assert ({"met" in result.text for result in results}, most) == ({True}, [8])
    assert len({result.meta["call_id"] for result in results}) == 20


async def test_one_question_is_asked_at_a_time_and_each_names_its_call(crib: Toolcrib, folder: Path) -> None:
    asked: list[str] = []
    at_once = 0

    async def approver(question: Question) -> Answer:
        nonlocal at_once
        at_once += 1
        assert at_once == 1
        asked.append(question.call_id)
        await anyio.lowlevel.checkpoint()
        at_once -= 1
        return Answer(verdict="yes")

    session = of(crib, "introspection", folder, mode="cautious", approver=approver)
    await told(session, "get_tool_schemas", {"names": ["writeNewFile"]})
    results = await session.call_many([("writeNewFile", {"path": f"{n}.txt", "content": ""}) for n in range(5)])
    assert sorted(asked) == sorted(result.meta["call_id"] for result in results)
    assert len(list(folder.iterdir())) == 5


async def test_what_a_tool_fails_with_is_a_result_for_the_model(crib: Toolcrib, folder: Path) -> None:
    shown = await failed(of(crib, "introspection", folder), "readFile", {"path": "none.txt"})
    assert shown["error"] == "there is no 'none.txt'"


async def test_a_tool_that_takes_long_can_be_started_in_the_background(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, "introspection", folder)
    await told(session, "get_tool_schemas", {"names": ["start_background", "getBackgroundTask"]})
    (folder / "a.txt").write_text("one\n")
    started = await told(session, "start_background", {"tool_name": "readFile", "arguments": {"path": "a.txt"}})

    async def is_done() -> bool:
        return "one" in (await session.call("getBackgroundTask", {"task_id": started["task_id"]})).text

    await eventually(is_done)


@needs_sandbox
async def test_the_start_costs_at_most_2000_tokens_and_its_core_1200(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, "introspection", folder)
    core = sent(session)
    assert (core <= 1_200, core + len(session.instructions) // 4 <= 2_000) == (True, True)
    everything = sent(of(crib, "flat", folder, key="flat"))
    assert core * 10 <= everything * 3
    await told(session, "get_tool_schemas", {"names": ["readFile"]})
    (schema,) = (await told(session, "get_tool_schemas", {"names": ["readFile"]}))["schemas"]
    brief = {tool.name: tool for tool in session.tools}["readFile"]
    assert len(schema["description"]) >= len(brief.description)


@needs_sandbox
@pytest.mark.process
async def test_a_command_that_takes_long_goes_on_in_the_background_by_itself(folder: Path) -> None:
    tools = {"background_after": {"run_command": 0.05}}
    async with built_in(builtins=("shell",), tools=tools) as crib:
        session = of(crib, "introspection", folder)
        await told(session, "get_tool_schemas", {"names": ["run"]})
        begun = await told(session, "run", {"command": "until [ -e go ]; do sleep .02; done; echo gone"})
        (folder / "go").touch()
        task = {"task_id": begun["task_id"]}
        assert "getBackgroundTask has its result" in begun["message"]
        await told(session, "get_tool_schemas", {"names": ["getBackgroundTask"]})

        async def is_over() -> bool:
            return "gone" in (await session.call("getBackgroundTask", task)).text

        await eventually(is_over)


async def test_a_plugin_adds_to_the_results_of_other_tools_until_it_is_taken_back(folder: Path) -> None:
    class Lines(Plugin):
        name = "lines"

        async def enrich(self, tool: Tool, arguments: Mapping[str, Any], result: ToolResult) -> ToolResult:
            if tool.name != "write_file":
                return result
            return result.evolve(content=(*result.content, {"type": "text", "text": "It has 2 lines."}))

    async with built_in(builtins=("files",)) as crib:
        session = of(crib, "introspection", folder)
        await told(session, "get_tool_schemas", {"names": ["writeNewFile", "readFile"]})
        await crib.plugins.expose(Lines(), {})
        enriched = await session.call("writeNewFile", {"path": "a.txt", "content": "1\n2\n"})
        other = await session.call("readFile", {"path": "a.txt"})
        await crib.plugins.unexpose("lines")
        plain = await session.call("writeNewFile", {"path": "b.txt", "content": "1\n2\n"})

    assert ["It has 2 lines." in one.text for one in (enriched, other, plain)] == [True, False, False]


# Seed 004

SIMPLE = ["nodes", "knowledge_search", "hitl", "memory_recall"]
CORE = ["plan", "nodes", "knowledge_search", "hitl", "memory_recall", "observe_screen", "api_calling"]


@needs_sandbox
async def test_core_tools_are_in_every_selection(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, "selection", folder, elicitor=answers)
    wishes: list[dict[str, Any]] = [{}, {"required_capabilities": ["url"]}, {"intent": {"complexity": "complex"}}]
    for wanted in wishes:
        session.begin(**wanted)
        assert [name for name in CORE if name not in names(session)] == []


@needs_sandbox
async def test_a_simple_task_gets_the_four_tools_of_the_document(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, "selection", folder, elicitor=answers, intent={"complexity": "simple"})
    assert names(session) == SIMPLE
    assert sent(session) <= 600


@needs_sandbox
@pytest.mark.parametrize(
    "wanted",
    [
        {"required_capabilities": ["data analysis"]},
        {"plan": {"required_capabilities": ["data analysis"]}},
        {"intent": {"required_capabilities": ["data analysis"]}},
    ],
    ids=["caller", "plan", "intent"],
)
async def test_tools_with_a_wanted_capability_are_added_to_the_core(folder: Path, wanted: dict[str, Any]) -> None:
    async with built_in(builtins=("notebook", "files", "git")) as crib:
        session = of(crib, "selection", folder, **wanted)
        assert "notebook_execute" in [tool.name for tool in session.selection.dynamic_tools]
        assert "git_push" not in names(session)


async def test_a_whitelist_lets_only_what_it_names_of_core_and_matched_tools_pass(crib: Toolcrib, folder: Path) -> None:
    session = of(
        crib, "selection", folder, allowed_tools=["plan", "web_fetch", "git_push"], required_capabilities=["url"]
    )
    assert names(session) == ["plan", "web_fetch", "select_tools"]


async def test_a_core_can_be_put_in_the_place_of_the_profiles(folder: Path) -> None:
    async with built_in() as crib:
        override = {"core_tools_override": ["memory_recall", "web_fetch"]}
        crib.profiles.add({"name": "mine", "extends": "selection", "options": override})
        session = of(crib, "mine", folder, intent={"required_tools": ["web_fetch"]})
        assert names(session) == ["memory_recall", "web_fetch", "select_tools"]


@needs_sandbox
@pytest.mark.process
async def test_a_long_result_is_compressed_above_1500_characters_and_kept_whole(crib: Toolcrib, folder: Path) -> None:
    (folder / "big.txt").write_text("".join(f"line {number}\n" for number in range(4000)))
    session = of(crib, "selection", folder, intent={"required_tools": ["run_command"]})
    short = await session.call("run_command", {"command": "head -n 100 big.txt"})
    assert ("artifact" in short.meta, len(short.text.splitlines())) == (False, 100)
    result = await session.call("run_command", {"command": "cat big.txt"})
    assert len(result.text) <= 1500
    whole = await session.recover(result.meta["artifact"])
    assert whole.count("line ") == 4000


@needs_sandbox
@pytest.mark.process
async def test_a_tool_is_told_who_calls_and_finds_what_that_user_keeps(crib: Toolcrib, folder: Path) -> None:
    for user in ("ada", "bob"):
        session = of(crib, "selection", folder, principal=user, key=user, tools=["store_memory", "memory_recall"])
        await told(
            session, "store_memory", {"content": f"{user} drinks tea", "description": "a drink", "tags": ["tea"]}
        )
        found = await told(session, "memory_recall", {"query": "tea"})
        assert [user in json.dumps(entry) for entry in found["results"]] == [True]


@needs_sandbox
@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "given", "kind"),
    [
        ("memory_recall", {}, "VALIDATION_ERROR"),
        ("teleport", {}, "NOT_FOUND"),
        ("api_calling", {"api_name": "bank"}, "NOT_FOUND"),
        ("nodes", {"action": "run", "command": ["sleep", "60"], "timeout_ms": 200}, "TIMEOUT"),
        ("api_calling", {"url": "{origin}/private"}, "AUTH_FAILURE"),
        ("api_calling", {"url": "{origin}/broken"}, "EXECUTION_ERROR"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isupper() else "",
)
async def test_every_error_has_one_of_the_five_types_and_says_how_to_go_on(
    folder: Path, name: str, given: dict[str, Any], kind: str
) -> None:
    async def private(request: Request) -> Response:
        return Response(status_code=401)

    async def broken(request: Request) -> Response:
        return Response(status_code=500)

    async with api({"GET /private": private, "GET /broken": broken}) as server:
        tools = {"web": {"private_hosts": [server.origin.removeprefix("http://")], "robots": "ignore"}}
        async with built_in(tools=tools, untrusted=Taint(ask=False)) as crib:
            args = {
                key: value.replace("{origin}", server.origin) if isinstance(value, str) else value
                for key, value in given.items()
            }
            result = await of(crib, "selection", folder).call(name, args)
    answer = json.loads(result.text)
    assert (answer["success"], answer["error_type"]) == (False, kind)
    assert result.meta["recovery"] in ("CONTINUE", "BACKTRACK", "FAIL_GRACEFULLY", "ESCALATE")


@needs_sandbox
@pytest.mark.process
async def test_a_call_is_direct_programmatic_or_streaming_by_its_tool(folder: Path) -> None:
    async with api() as server:
        tools = {
            "web": {"private_hosts": [server.origin.removeprefix("http://")], "robots": "ignore"},
            "api": {"shop": {"url": server.origin}},
        }
        async with built_in(tools=tools, untrusted=Taint(ask=False)) as crib:
            session = of(crib, "selection", folder)
            direct = await session.call("memory_recall", {"query": "tea"})
            programmatic = await session.call("api_calling", {"api_name": "shop", "path": "/"})
    assert (direct.meta["invocation"], programmatic.meta["invocation"]) == ("DIRECT", "PROGRAMMATIC")


async def test_calls_of_one_turn_run_beside_each_other_up_to_five(folder: Path) -> None:
    async with gathering(5) as (crib, page, most):
        session = of(crib, "selection", folder, intent={"required_tools": ["web_fetch"]})
        results = await session.call_many([("web_fetch", {**page, "url": f"{page['url']}?{n}"}) for n in range(9)])
    assert ({"met" in result.text for result in results}, most) == ({True}, [5])


async def test_the_list_of_tools_of_an_agent_is_wanted_and_a_whitelist(folder: Path) -> None:
    async with built_in() as crib:
        crib.profiles.add({"name": "mine", "extends": "selection", "options": {"tools": ["web_fetch", "plan"]}})
        assert names(of(crib, "mine", folder)) == ["plan", "web_fetch", "select_tools"]


async def test_a_skill_is_selected_and_called_like_a_tool(folder: Path) -> None:
    write_skill(folder / "skills", "greeter", capabilities="[greeting]")
    async with built_in() as crib:
        source = skills_of(folder / "skills", ["greeter"], {})
        await crib.tools.mount_source(source, prefix=False, trusted=True)
        await source.ready()
        session = of(crib, "selection", folder, required_capabilities=["greeting"])
        assert [tool.name for tool in session.selection.dynamic_tools] == ["greeter"]
        assert "How to do greeter." in (await session.call("greeter")).text


@needs_sandbox
@pytest.mark.process
async def test_what_failed_comes_after_what_worked_in_the_next_interaction(folder: Path) -> None:
    async with built_in(builtins=("shell", "files", "search")) as crib:
        wanted = {"intent": {"required_tools": ["read_file", "file_info"]}}
        session = of(crib, "selection", folder, **wanted)
        before = [tool.name for tool in session.selection.dynamic_tools]
        first, second = before[:2]
        (folder / "a.txt").touch()
        for _ in range(6):
            await session.call(first, {"path": "none.txt"})
            await session.call(second, {"path": "a.txt"})
        session.begin(**wanted)
        assert [tool.name for tool in session.selection.dynamic_tools][:2] == [second, first]


async def test_an_agent_sees_the_tools_of_its_profile_and_calls_them(crib: Toolcrib, folder: Path) -> None:
    (folder / "a.txt").write_text("one\n")
    model = ScriptedModel(calls("readFile", path="a.txt"), "It says one.")
    async with of(crib, "introspection", folder) as session:
        outcome = await Agent(model, session).run("What does a.txt say?")
    assert (outcome.text, model.seen[1].results) == ("It says one.", ["one"])


# Seed 004: intent


CLOCK = ["current_time"]
TASKS = {
    "What time is it in Tokyo?": ("simple", "current_time"),
    "Fetch the web page https://example.org/a": ("simple", "web_fetch"),
    "Read notes.md, then list the git branches, then delete the merged ones; finally push.": ("complex", ""),
}


@pytest.mark.parametrize("task", TASKS)
async def test_a_task_in_words_is_analysed_by_the_ranking(crib: Toolcrib, folder: Path, task: str) -> None:
    complexity, tool = TASKS[task]
    intent = of(crib, "selection", folder).intent_of(task)
    assert (intent["complexity"], intent["needs_plan"]) == (complexity, complexity != "simple")
    assert not tool or tool in intent["required_tools"]
    assert len(intent["required_tools"]) <= 5


async def test_what_is_not_understood_narrows_nothing(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, "selection", folder)
    session.begin(intent=session.intent_of("Zzyzx qwrtp " * 20))
    assert set(CORE) - {"hitl", "nodes"} <= set(names(session))


@needs_sandbox
async def test_an_agent_selects_for_its_task_and_tells_why_unless_it_is_switched_off(
    crib: Toolcrib, folder: Path
) -> None:
    heard: list[Any] = []
    simple = {"complexity": "simple", "is_follow_up": False, "relevant_skill_groups": [], "required_tools": CLOCK}
    follows = {**simple, "complexity": "medium", "is_follow_up": True, "required_tools": []}
    classified = [calls("classify_intent", **answer) for answer in (simple, follows)]
    model = ScriptedModel(classified[0], "It is noon.", classified[1], "Yes.", "Hello.")
    async with of(crib, "selection", folder, elicitor=answers) as session:
        agent = Agent(model, session)
        outcome = await agent.run("What time is it in Tokyo?", on_event=heard.append)
        assert {*SIMPLE, "current_time"} <= set(model.seen[1].tools)
        assert ("plan" in model.seen[1].tools, "select_tools" in model.seen[1].tools) == (False, False)
        await agent.run("And again?", history=outcome.history, on_event=heard.append)
        assert {"plan", "current_time", "select_tools"} <= set(model.seen[3].tools)
        await agent.run("What time is it in Tokyo?", intent={"complexity": "medium"})
        assert "current_time" not in model.seen[4].tools
    assert [seen.outputs for seen in model.seen] == [("classify_intent",), (), ("classify_intent",), (), ()]
    selected = [event for event in heard if isinstance(event, Selected)]
    assert [(event.intent["complexity"], event.by) for event in selected] == [("simple", "model"), ("medium", "model")]
    assert (selected[0].reason, "current_time" in selected[0].tools) == ("a simple task", True)


async def test_the_analysis_is_switched_off_by_one_setting_and_is_of_selection_alone(folder: Path) -> None:
    async with built_in() as crib:
        crib.profiles.add({"name": "mine", "extends": "selection", "options": {"analyse": False}})
        for profile in ("mine", "gateway", "adaptive", "flat"):
            assert of(crib, profile, folder, key=profile).intent_of("What time is it in Tokyo?") == {}


async def test_long_built_in_tools_go_on_in_the_background_unless_the_operator_lets_their_callers_wait(
    crib: Toolcrib, folder: Path
) -> None:
    long = ("run_command", "run_tests", "notebook_execute", "ast_search", "web_fetch")
    async with built_in(tools={"background_after": {"web_fetch": None, "ast_search": 30}}) as own:
        for one, seconds in ((crib, {}), (own, {"web_fetch": None, "ast_search": 30})):
            offered = of(one, "introspection", folder).visible.offered()
            found = {tool.name: tool.execution.background_after for tool in offered if tool.name in long}
            assert found == {name: seconds.get(name, 10) for name in found}
            assert {"web_fetch", "ast_search"} <= set(found)


GROUPS: Mapping[str, Mapping[str, Any]] = load("selection").options["skill_groups"]


def test_the_default_groups_have_the_categories_of_the_seed() -> None:
    assert {
        "ppt_generation",
        "document_creation",
        "image_generation",
        "data_analysis",
        "knowledge_base",
        "task_planning",
        "file_operations",
        "system_control",
        "screen_observation",
        "task_scheduling",
        "api_calling",
    } <= set(GROUPS)


@needs_sandbox
@pytest.mark.parametrize("group", GROUPS)
async def test_every_default_group_selects_the_built_in_tools_that_it_names(
    crib: Toolcrib, folder: Path, group: str
) -> None:
    chosen = of(crib, "selection", folder, intent={"skill_groups": [group]}).selection
    missing = set(GROUPS[group]["tools"]) - set(chosen.names)
    assert (missing - {"web_search"}, chosen.warnings) == (set(), ()), "web_search needs a service"
    planned = of(crib, "selection", folder, plan={"required_capabilities": [group]}).selection
    assert (set(GROUPS[group]["tools"]).isdisjoint(planned.names), planned.warnings) == (False, ())


@needs_sandbox
async def test_the_profile_that_is_served_alone_has_the_tools_of_its_groups(folder: Path) -> None:
    async with built_in(builtins=seed_tools("selection")) as crib:
        chosen = of(crib, "selection", folder, intent={"skill_groups": [*GROUPS]}).selection
    named = {name for group in GROUPS.values() for name in group["tools"]}

    assert named - {*chosen.names} == {"pipeline", "web_search"}, "these need workflows, and a service"


async def test_the_sessions_plan_selects_what_it_needs_until_it_ends(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, "selection", folder)
    before = names(session)
    needs = {"required_tools": ["git_log"], "required_capabilities": ["time"]}
    made = await told(session, "plan", {"action": "create", "name": "Report", "todos": ["Read", "Write"], **needs})
    assert {key: made[key] for key in needs} == needs
    assert {"git_log", "current_time"} <= set(names(session)) - set(before)
    session.begin(intent={"complexity": "simple"})
    assert {"git_log", "current_time", "plan"} <= set(names(session)), "a plan is more than a simple task"
    session.begin(plan={"required_tools": ["git_branch"]})
    assert ("git_branch" in names(session), "git_log" in names(session)) == (True, False)

    session.begin()
    await told(session, "plan", {"action": "update", "required_tools": [], "required_capabilities": []})
    assert names(session) == before
    await told(session, "plan", {"action": "update", "required_tools": ["git_log"]})
    assert "git_log" in names(session)
    for step in ("s1", "s2"):
        await told(session, "plan", {"action": "update", "todo_id": step, "status": "completed"})
    assert names(session) == before


async def test_the_model_selects_what_the_selection_lacks(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, "selection", folder)
    before = names(session)
    refused = await failed(session, "convert_time", {})
    assert "select_tools" in refused["recovery_hint"]
    wanted = {"task": "convert a time between zones", "names": ["git_log", "teleport"]}
    answer = await told(session, "select_tools", wanted)
    assert {"convert_time", "git_log"} <= set(answer["added"])
    assert [warning for warning in answer["warnings"] if "teleport" in warning]
    assert set(answer["names"]) <= set(names(session))
    assert set(before) <= set(names(session))
    session.begin()
    assert names(session) == before


async def test_what_the_model_selects_stays_under_the_whitelist(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, "selection", folder, allowed_tools=["plan", "convert_time"], intent={"allowed_tools": ["plan"]})
    answer = await told(session, "select_tools", {"names": ["convert_time", "git_log"]})
    assert (answer["added"], len(answer["warnings"])) == ([], 2)


async def test_where_the_list_stands_still_what_was_selected_is_called_through_call_tool(
    crib: Toolcrib, folder: Path
) -> None:
    session = of(crib, "selection", folder, grows=False)
    before = names(session)
    assert {"select_tools", "call_tool", "read_artifact"} <= set(before)
    call = {
        "name": "convert_time",
        "arguments": {"time": "2026-03-01T12:00", "from_zone": "UTC", "to_zone": "Asia/Tokyo"},
    }
    assert (await session.call("call_tool", call)).is_error
    await told(session, "select_tools", {"names": ["convert_time"]})
    assert "21:00" in (await session.call("call_tool", call)).text
    assert names(session) == before
