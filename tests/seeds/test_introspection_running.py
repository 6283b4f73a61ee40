"""Seed 003, walked along its checklist: tools switched off and on, and how calls run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from seeds.introspection_world.state import reset
from seeds.rigging import every_argument, failed, names, told
from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Annotations, Tool
from toolcrib.crib import Session, Toolcrib
from toolcrib.errors import UsageError
from toolcrib.testing import RecordingApprover, ScriptedSource

SEED = "introspection"


@pytest.fixture(autouse=True)
def _() -> None:
    reset()


# On and off


async def test_a_tool_that_is_off_leaves_the_list_is_listed_as_off_and_runs_on_no_path(session: Session) -> None:
    core = names(session)
    await session.call("get_tool_schemas", {"names": ["fetch_url"]})
    session.disable("fetch_url", "get_environment")
    assert names(session) == [name for name in core if name != "get_environment"]
    page = {"url": "https://example.org/a"}
    for name, arguments in (
        ("fetch_url", page),
        ("web_fetch", page),
        ("call_tool", {"name": "fetch_url", "arguments": page}),
        ("get_environment", {}),
    ):
        shown = await failed(session, name, arguments)
        assert "is switched off for this session" in shown["error"]
    (many,) = await session.call_many([("fetch_url", page)])
    assert many.error is not None
    assert many.error.code == "disabled"
    listed = await told(session, "list_tools", {"category": "web"})
    assert [entry["name"] for entry in listed["tools"] if not entry["enabled"]] == ["fetch_url"]
    described = await told(session, "get_tool_schemas", {"names": ["fetch_url"]})
    assert (described["schemas"][0]["enabled"], "activated" in described) == (False, False)


async def test_a_tool_that_is_on_again_is_where_it_was(session: Session) -> None:
    await session.call("get_tool_schemas", {"names": ["fetch_url"]})
    before = session.listing
    session.disable("fetch_url", "run")
    session.enable("fetch_url", "run")
    assert session.listing == before


async def test_all_tools_can_be_switched_off_and_on_and_the_status_says_so(crib: Toolcrib, session: Session) -> None:
    core = names(session)
    session.disable_all()
    assert names(session) == ["list_tools", "get_tool_schemas"]
    assert set(session.status.values()) == {False}
    session.enable_all()
    assert set(session.status.values()) == {True}
    assert (len(session.status), names(session)) == (len(crib.catalog) - 1, core)


async def test_what_the_crib_switches_off_is_off_in_every_session_and_no_session_can_undo_it(other: Toolcrib) -> None:
    earlier = other.session(profile="introspection")
    core = names(earlier)
    heard: list[tuple[str, ...]] = []
    other.tools.on_change(lambda change: heard.append(change.changed))
    other.tools.disable("run")
    earlier.enable("run")
    for session in (earlier, other.session(profile="introspection"), other.session(profile="flat")):
        result = await session.call("run", {"command": "pwd"})
        assert result.error is not None
        assert (result.error.code, "run" in names(session)) == ("disabled", False)
    assert (other.tools.status["run"], earlier.status["run"]) == (False, False)
    other.tools.enable_all()
    assert names(earlier) == core
    assert heard == [("run",), ("run",)]


async def test_a_name_that_no_tool_has_cannot_be_switched(session: Session) -> None:
    with pytest.raises(UsageError, match="there is no tool 'raedFile' to switch; did you mean readFile"):
        session.disable("run", "raedFile")
    assert session.status["run"]


# The world behind the tools


async def test_what_was_changed_can_be_undone_and_restored(crib: Toolcrib) -> None:
    session = crib.session(profile="flat")
    before = (await told(session, "readFile", {"path": "/README.md"}))["content"]
    kept = (await told(session, "save_waypoint", {"description": "before"}))["id"]
    await told(session, "updateFile", {"path": "/README.md", "new_content": "gone"})
    await told(session, "undoFileChange", {"path": "/README.md"})
    assert (await told(session, "readFile", {"path": "/README.md"}))["content"] == before
    await told(session, "removeFile", {"path": "/README.md"})
    await told(session, "restore_waypoint", {"waypoint_id": kept})
    assert (await told(session, "readFile", {"path": "/README.md"}))["content"] == before


async def test_a_plan_knows_which_steps_wait_for_others(session: Session) -> None:
    await told(session, "get_tool_schemas", {"names": ["addDependentStep"]})
    plan = await told(session, "createPlan", {"title": "Ship", "steps": ["build"]})
    build = plan["steps"][0]["id"]
    ship = (await told(session, "addDependentStep", {"description": "ship", "depends_on": [build]}))["id"]
    assert (await told(session, "getBlockedSteps"))["blocked"] == [{"id": ship, "waits_for": [build]}]
    await told(session, "completeStepWithOutput", {"step_id": build, "output": {"file": "app"}})
    assert (await told(session, "getBlockedSteps"))["blocked"] == []


# The pipeline


async def test_a_name_that_no_tool_has_is_refused_before_anybody_is_asked(crib: Toolcrib) -> None:
    approver = RecordingApprover("yes")
    session = crib.session(profile="introspection", mode="cautious", approver=approver)
    shown = await failed(session, "writeFile", {"path": "/x"})
    assert shown["error"] == "No executor registered for writeFile"
    assert approver.questions == []


async def test_a_denied_call_says_who_denied_it(crib: Toolcrib) -> None:
    session = crib.session(profile="introspection", mode="cautious", approver=RecordingApprover("no"))
    shown = await failed(session, "run", {"command": "pwd"})
    assert shown["error"].startswith("Permission denied: ")
    assert set(shown["_permission"]) == {"decision", "reason", "method"}
    assert shown["_permission"]["decision"] == "deny"


async def test_the_two_verbs_ask_nobody(crib: Toolcrib) -> None:
    approver = RecordingApprover("no")
    session = crib.session(profile="introspection", mode="cautious", approver=approver)
    await told(session, "list_tools")
    await told(session, "get_tool_schemas", {"names": ["copyFile"]})
    assert approver.questions == []


async def test_what_a_tool_raises_is_an_error_result(session: Session) -> None:
    shown = await failed(session, "readFile", {"path": "/none"})
    assert shown == {"error": "File not found: /none"}


async def test_at_most_eight_calls_run_at_the_same_time_and_results_keep_their_order(other: Toolcrib) -> None:
    running, most, full = 0, 0, anyio.Event()

    async def waits(arguments: Mapping[str, Any], context: Context) -> ToolResult:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 8:
            full.set()
        await full.wait()
        await anyio.lowlevel.checkpoint()
        running -= 1
        return ToolResult.of_text(str(arguments["number"]))

    schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
    tool = Tool(
        name="waits",
        local_name="waits",
        source="slow",
        core=True,
        input_schema=schema,
        annotations=Annotations(read_only=True),
    )
    await other.tools.mount_source(ScriptedSource("slow", {"waits": waits}, listed=[tool]), prefix=False)
    session = other.session(profile="introspection")
    results = await session.call_many([("waits", {"number": number}) for number in range(20)])
    assert [result.text for result in results] == [str(number) for number in range(20)]
    assert most == 8
    assert len({result.meta["call_id"] for result in results}) == 20


async def test_one_question_is_asked_at_a_time_and_each_names_its_call(crib: Toolcrib) -> None:
    asked: list[str] = []
    open_questions = 0
    inner = RecordingApprover("yes")

    async def approver(question: Any) -> Any:
        nonlocal open_questions
        open_questions += 1
        assert open_questions == 1
        asked.append(question.call_id)
        await anyio.lowlevel.checkpoint()
        open_questions -= 1
        return await inner(question)

    session = crib.session(profile="introspection", mode="cautious", approver=approver)
    results = await session.call_many([("run", {"command": "pwd", "args": [str(number)]}) for number in range(5)])
    assert sorted(asked) == sorted(result.meta["call_id"] for result in results)
    assert all(not result.is_error for result in results)


async def test_every_tool_runs_with_all_of_its_arguments_and_with_none_that_it_can_do_without(crib: Toolcrib) -> None:
    session = crib.session(profile="flat", contexts=["global", "sub_session"])
    codes: dict[str, set[str]] = {}
    for tool in crib.catalog.tools.values():
        everything = every_argument(tool.input_schema)
        needed = {name: everything[name] for name in tool.input_schema.get("required", ())}
        results = [await session.call(tool.name, given) for given in (needed, everything)]
        codes[tool.name] = {result.error.code for result in results if result.error}
    assert {name: found for name, found in codes.items() if found - {"tool_error"}} == {}
