"""Seed 001: `tool_exec`, its envelope, and what models really send."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from seeds.rigging import answer_of, in_project, project_of, seeded
from toolcrib import tool
from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.crib import Session, Toolcrib
from toolcrib.errors import ToolFailure
from toolcrib.testing import RecordingApprover, ScriptedSource

pytestmark = pytest.mark.anyio


@pytest.fixture
async def session(shared: Toolcrib) -> Session:
    return await in_project(shared)


async def sent(session: Session, arguments: Any) -> Any:
    return answer_of(await session.call("tool_exec", arguments))


async def ran(session: Session, op: str, args: Any = None, **options: Any) -> Any:
    return await sent(session, {"op": op, "args": args or {}, **options})


async def titles(session: Session) -> list[str]:
    return [task["title"] for task in (await ran(session, "onto.task.list"))["result"]["tasks"]]


# --- envelopes


async def test_a_success_is_op_ok_result_and_meta(session: Session) -> None:
    told = await ran(session, "onto.project.get")
    latency = told["meta"].pop("latency_ms")
    trace = told["meta"].pop("trace_id")

    assert told.pop("result")["project"]["id"] == project_of(session)
    assert told == {"op": "onto.project.get", "ok": True, "meta": {"warnings": []}}
    assert (trace[:3], latency > 0) == ("tr_", True)


async def test_the_trace_id_leads_to_the_record_of_the_call(shared: Toolcrib, session: Session) -> None:
    trace = (await ran(session, "onto.plan.list"))["meta"]["trace_id"]

    assert trace.removeprefix("tr_") in {row.id for row in await shared.store.calls.list(tool="list_onto_plans")}


async def test_what_the_model_reads_is_the_same_as_text(session: Session) -> None:
    result = await session.call("tool_exec", {"op": "onto.plan.list", "args": {}})

    assert result.text.startswith('{"op":"onto.plan.list","ok":true,"result":{')


@pytest.mark.parametrize(
    "field", [{}, {"title": 7}, {"title": "x", "priority": "high"}, {"title": "x", "colour": "red"}]
)
async def test_a_validation_error_names_every_field_and_leads_to_the_op(
    session: Session, field: dict[str, Any]
) -> None:
    error = (await ran(session, "onto.task.create", field))["error"]

    assert (error["code"], error["help_path"]) == ("VALIDATION_ERROR", "onto.task.create")
    assert [wrong["path"] for wrong in error["details"]["field_errors"]] == [[*field][-1] if field else "title"]
    assert await titles(session) == []


@pytest.mark.parametrize("sent_", [{}, {"args": {}}, {"op": ""}, {"op": 7, "args": {}}, "", "[]", None])
async def test_a_call_without_an_op_is_a_validation_error_that_leads_to_the_root(session: Session, sent_: Any) -> None:
    told = await sent(session, sent_)

    assert (told["ok"], told["error"]["code"], told["error"]["help_path"]) == (False, "VALIDATION_ERROR", "root")
    assert [wrong["path"] for wrong in told["error"]["details"]["field_errors"]] == ["op"]


async def test_an_unknown_op_leads_to_the_root_and_names_the_nearest_ops(session: Session) -> None:
    told = await ran(session, "onto.task.lst")

    assert (told["op"], told["error"]["code"], told["error"]["help_path"]) == ("onto.task.lst", "NOT_FOUND", "root")
    assert told["error"]["details"]["nearest"][0] == "onto.task.list"
    assert "onto.task.list" in told["error"]["message"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("invalid_arguments", "VALIDATION_ERROR"),
        ("denied", "PERMISSION_DENIED"),
        ("not_found", "NOT_FOUND"),
        ("conflict", "CONFLICT"),
        ("unavailable", "INTERNAL"),
        ("timeout", "INTERNAL"),
    ],
)
async def test_each_failure_has_one_of_the_five_codes_and_a_help_path(code: str, said: str) -> None:
    async def failing(arguments: Mapping[str, Any], context: Context) -> ToolResult:
        raise ToolFailure(code, "no")

    async with Toolcrib() as crib:
        await crib.tools.mount_source(ScriptedSource("s", {"fail": failing}), trusted=True)
        told = await ran(crib.session(profile="gateway", mode="autonomous"), "x.s.fail")

    error: dict[str, Any] = {"code": said, "message": "no", "help_path": "x.s.fail"}
    if said == "VALIDATION_ERROR":
        error["details"] = {"field_errors": [{"path": "", "keyword": "invalid", "message": "no"}]}
    assert told == {"op": "x.s.fail", "ok": False, "error": error}


# --- the way to the op


@pytest.mark.parametrize(
    "op",
    [
        "onto.task.list",
        " onto.task.list ",
        "`onto.task.list`",
        "onto.task.list()",
        'tool_exec("onto.task.list", {})',
        'tool_exec({ op: "onto.task.list" })',
        'op="onto.task.list"',
        "<op>onto.task.list</op>",
        '{"op": "onto.task.list", "args": {}}',
        "op: onto.task.list",
        "onto_task_list",
        "Onto.Task.List",
        "onto.tasks.list",
        "task.list",
        "list_tasks",
        "list_onto_tasks",
    ],
)
async def test_an_op_is_found_in_any_spelling_that_can_only_mean_it(session: Session, op: str) -> None:
    told = await ran(session, op)

    assert told["ok"]
    assert told["meta"].get("executed_op", told["op"]) == "onto.task.list"


async def test_the_op_is_told_back_as_it_was_asked_for_beside_what_ran(session: Session) -> None:
    told = await ran(session, "list_tasks")

    assert (told["op"], told["meta"]["executed_op"]) == ("list_tasks", "onto.task.list")


@pytest.mark.parametrize(
    "call",
    [
        {"op": "onto.goal.create", "args": {"name": "Open"}},
        {"op": "onto.goal.create", "args": '{"name": "Open"}'},
        {"op": "onto.goal.create", "args": '"{\\"name\\": \\"Open\\"}"'},
        {"op": "onto.goal.create", "name": "Open"},
        {"op": "onto.goal.create", "arguments": {"name": "Open"}},
        {"op": "onto.goal.create", "args": {}, "name": "Open"},
        {"args": {"op": "onto.goal.create", "args": {"name": "Open"}}},
        {"input": '{"op": "onto.goal.create", "args": {"name": "Open"}}'},
        {"operation": "onto.goal.create", "args": {"name": "Open"}},
        '{"op": "onto.goal.create", "args": {"name": "Open"}}',
        {"op": '{"op": "onto.goal.create", "args": {"name": "Open"}}', "args": {}},
        {"op": 'onto.goal.create({"name": "Open"})'},
        {"op": 'onto.goal.create", "args": {"name": "Open"}}', "args": {}},
    ],
)
async def test_every_shape_that_models_send_is_the_same_call(session: Session, call: Any) -> None:
    told = await sent(session, call)

    assert (told["ok"], told["result"]["goal"]["name"]) == (True, "Open")


async def test_arguments_that_cannot_be_read_out_of_the_op_are_refused_and_not_left_out(session: Session) -> None:
    for op in ("onto.task.list(limit=5)", 'tool_exec({ op: "onto.task.list", args: { limit: 5 } })'):
        error = (await sent(session, {"op": op, "args": {}}))["error"]
        assert (error["code"], [wrong["path"] for wrong in error["details"]["field_errors"]]) == (
            "VALIDATION_ERROR",
            ["op"],
        )


async def test_every_validation_error_has_a_help_path_and_field_errors(session: Session) -> None:
    calls: list[dict[str, Any]] = [
        {"op": "onto.task.create", "args": args} for args in ("{x", "[1]", [1], 5, {}, {"title": ""}, {"colour": 1})
    ]
    calls += [{"op": "tool_exec", "args": {}}, {"args": {}}, {"op": "onto.task.list(limit=5)", "args": {}}]
    calls += [{"op": "cal.event.get", "args": {}}, {"op": "onto.task.update", "args": {"task_id": "x"}}]
    for call in calls:
        error = (await sent(session, call))["error"]
        assert (error["code"], bool(error["help_path"])) == ("VALIDATION_ERROR", True), call
        assert [wrong["message"] for wrong in error["details"]["field_errors"] if not wrong["message"]] == [], call
        assert error["details"]["field_errors"], call


async def test_a_name_argument_is_not_taken_for_the_op(session: Session) -> None:
    told = await sent(session, {"op": "onto.plan.create", "name": "onto.plan.list"})

    assert told["result"]["plan"]["name"] == "onto.plan.list"


@pytest.mark.parametrize(
    ("op", "args", "taken"),
    [
        ("onto.task.search", {"query": "rail"}, "took query for search"),
        ("onto.search", {"search": "rail"}, "took search for query"),
        ("onto.task.create", {"name": "Rail"}, "took name for title"),
        ("onto.goal.create", {"title": "Rail"}, "took title for name"),
        (
            "onto.document.create",
            {"title": "t", "description": "d", "body_markdown": "b"},
            "took body_markdown for content",
        ),
        ("onto.project.get", {"id": "{project}"}, "took id for project_id"),
        ("cal.event.list", {"time_min": "2026-01-01", "timeMax": "2027-01-01"}, "took time_min for timeMin"),
    ],
)
async def test_an_argument_by_another_name_is_taken_and_said(
    session: Session, op: str, args: dict[str, Any], taken: str
) -> None:
    given = {name: value.replace("{project}", project_of(session)) for name, value in args.items()}
    told = await ran(session, op, given)

    assert (told["ok"], told["meta"]["warnings"]) == (True, [f"arguments repaired: {taken}"])


async def test_the_ends_of_an_edge_may_be_called_from_and_to(session: Session) -> None:
    goal = (await ran(session, "onto.goal.create", {"name": "Open"}))["result"]["goal"]["id"]
    task = (await ran(session, "onto.task.create", {"title": "Paint"}))["result"]["task"]["id"]
    ends = {"from_kind": "task", "from": task, "to_kind": "goal", "to": goal, "relationship": "supports_goal"}
    edge = (await ran(session, "onto.edge.link", ends))["result"]["edge"]

    assert {name: edge[name] for name in ("src_kind", "src_id", "dst_kind", "dst_id", "rel")} == {
        "src_kind": "task",
        "src_id": task,
        "dst_kind": "goal",
        "dst_id": goal,
        "rel": "supports_goal",
    }


async def test_a_declared_argument_is_never_taken_for_another(session: Session) -> None:
    told = await ran(session, "onto.task.create", {"title": "t", "name": "n"})

    assert [wrong["path"] for wrong in told["error"]["details"]["field_errors"]] == ["name"]


@pytest.mark.parametrize(
    ("op", "args", "wrong"),
    [
        (
            "onto.document.create",
            {"title": "t", "description": "d", "body": "a", "text": "b"},
            ["content", "body", "text"],
        ),
        ("onto.document.create", {"title": "t", "description": "d", "content": "a", "text": "b"}, ["text"]),
        ("onto.task.create", {"title": "t", "body": "a", "text": "b"}, ["body", "text"]),
        ("onto.project.get", {"id": "a", "uuid": "b"}, ["id", "uuid"]),
    ],
)
async def test_one_argument_under_two_names_is_refused_and_both_are_named(
    session: Session, op: str, args: dict[str, Any], wrong: list[str]
) -> None:
    error = (await ran(session, op, args))["error"]

    assert (error["code"], error["help_path"]) == ("VALIDATION_ERROR", op)
    assert [field["path"] for field in error["details"]["field_errors"]] == wrong


async def test_one_argument_under_two_names_with_the_same_value_is_taken_once(session: Session) -> None:
    given = {"title": "t", "description": "d", "body": "# a", "text": "# a"}
    document = (await ran(session, "onto.document.create", given))["result"]["document"]

    assert (document["description"], document["content"]) == ("d", "# a")


# --- defaults


async def test_the_sessions_project_is_the_default_and_what_is_given_comes_first(session: Session) -> None:
    project = {"name": "B", "type_key": "project.personal.b"}
    here = await ran(session, "onto.task.create", {"title": "here"})
    made = await ran(session, "onto.project.create", {"project": project, "entities": [], "relationships": []})
    other = made["result"]["project_id"]
    there = await ran(session, "onto.task.create", {"title": "there", "project_id": project_of(session)})
    shifted = await ran(session, "onto.task.create", {"title": "in the new one"})

    places = [told["result"]["task"]["project_id"] for told in (here, there, shifted)]
    assert places == [project_of(session), project_of(session), made["result"]["context_shift"]["entity_id"]]
    assert other == made["result"]["context_shift"]["entity_id"] != project_of(session)
    assert here["result"]["task"]["type_key"] == "task.execute"


# --- dry run and idempotency


async def test_a_dry_run_of_a_write_tells_what_it_would_do_and_changes_nothing(session: Session) -> None:
    told = await ran(session, "onto.goal.create", {"name": "Open"}, dry_run=True)

    args = {"name": "Open", "project_id": project_of(session), "type_key": "goal.outcome.project"}
    assert told["result"] == {"dry_run": True, "tool_name": "create_onto_goal", "args": args}
    assert [warning.partition(" (")[0] for warning in told["meta"]["warnings"]] == ["dry run: nothing was changed"]
    assert (await ran(session, "onto.goal.list"))["result"]["total"] == 0


async def test_a_dry_run_asks_nobody_and_still_refuses_what_is_wrong(shared: Toolcrib) -> None:
    approver = RecordingApprover()
    session = await in_project(shared, mode="cautious", approver=approver)
    right = await ran(session, "onto.goal.create", {"name": "Open"}, dry_run=True)
    wrong = await ran(session, "onto.goal.create", {"nam": "Open"}, dry_run=True)

    assert (right["ok"], wrong["error"]["code"], approver.questions) == (True, "VALIDATION_ERROR", [])


async def test_a_dry_run_of_a_read_runs_with_a_warning(session: Session) -> None:
    told = await ran(session, "onto.task.list", dry_run="true")

    assert (told["result"]["total"], told["meta"]["warnings"]) == (0, ["dry_run has no effect on a read: it ran"])


@pytest.mark.parametrize(("option", "value"), [("dry_run", "maybe"), ("dry_run", 1), ("idempotency_key", 7)])
async def test_an_option_of_the_wrong_type_runs_nothing(session: Session, option: str, value: Any) -> None:
    told = await ran(session, "onto.task.create", {"title": "x"}, **{option: value})

    assert [wrong["path"] for wrong in told["error"]["details"]["field_errors"]] == [option]
    assert await titles(session) == []


async def test_a_key_that_was_used_for_something_else_is_a_conflict(shared: Toolcrib) -> None:
    session = await in_project(shared, principal="reuses")
    await ran(session, "onto.task.create", {"title": "one"}, idempotency_key="k1")
    error = (await ran(session, "onto.task.create", {"title": "two"}, idempotency_key="k1"))["error"]

    assert (error["code"], error["help_path"]) == ("CONFLICT", "onto.task.create")
    assert await titles(session) == ["one"]


async def test_a_key_whose_call_still_runs_is_a_conflict() -> None:
    started, go_on = anyio.Event(), anyio.Event()

    async def slow(arguments: Mapping[str, Any], context: Context) -> ToolResult:
        started.set()
        await go_on.wait()
        return ToolResult.of_text("done")

    told: Any = None
    async with Toolcrib() as crib, anyio.create_task_group() as group:
        await crib.tools.mount_source(ScriptedSource("s", {"slow": slow}), trusted=True)
        session = crib.session(profile="gateway", mode="autonomous")
        call: dict[str, Any] = {"op": "x.s.slow", "args": {}, "idempotency_key": "k"}
        group.start_soon(session.call, "tool_exec", call)
        await started.wait()
        told = await sent(session, call)
        go_on.set()

    assert told["error"]["code"] == "CONFLICT"


async def test_a_key_on_a_read_has_no_effect_but_a_warning(session: Session) -> None:
    before = await ran(session, "onto.task.list", idempotency_key="k")
    await ran(session, "onto.task.create", {"title": "new"})
    after = await ran(session, "onto.task.list", idempotency_key="k")

    assert before["meta"]["warnings"] == ["idempotency_key has no effect on a read"]
    assert (before["result"]["total"], after["result"]["total"]) == (0, 1)


# --- the fallback of reads, which is opt-in


async def test_a_get_without_its_id_is_an_error_unless_the_profile_says_otherwise(session: Session) -> None:
    assert (await ran(session, "onto.task.get"))["error"]["code"] == "VALIDATION_ERROR"


async def test_with_the_fallback_a_get_without_its_id_lists_or_searches_and_says_so() -> None:
    async with seeded("gateway") as crib:
        crib.profiles.add({"name": "lenient", "extends": "gateway", "options": {"fallback": True}})
        session = await in_project(crib, profile="lenient")
        await ran(session, "onto.task.create", {"title": "Paint"})
        await ran(session, "onto.task.create", {"title": "Weld"})
        listed = await ran(session, "onto.task.get")
        found = await ran(session, "onto.task.get", {"title": "weld"})
        write = await ran(session, "onto.task.delete")

    mark = {"reason": "missing_required_arg", "required_arg": "task_id", "requested_op": "onto.task.get"}
    assert listed["result"]["_fallback"] == {**mark, "executed_op": "onto.task.list"}
    assert (listed["result"]["total"], len(listed["meta"]["warnings"])) == (2, 1)
    assert found["result"]["_fallback"] == {**mark, "executed_op": "onto.task.search"}
    assert [task["title"] for task in found["result"]["tasks"]] == ["Weld"]
    assert write["error"]["code"] == "VALIDATION_ERROR"


async def test_a_result_is_the_value_of_the_tool_and_a_null_is_an_argument_that_is_not_given() -> None:
    @tool(kind="read")
    def add(by: int = 1, to: str = "") -> int:
        return by + 1

    @tool(kind="read")
    def number() -> str:
        return "7"

    @tool(kind="write")
    def rename(title: str, note: str = "") -> bool:
        return bool(title)

    async with Toolcrib() as crib:
        crib.add(add, number, rename)
        session = crib.session(profile="gateway", mode="autonomous")
        given = {"add": {"by": None, "to": None}, "number": {}, "rename": {"title": "a", "note": None}}
        results = {name: (await ran(session, name, args))["result"] for name, args in given.items()}
        refused = await ran(session, "rename", {"title": None})

    assert json.dumps(results) == '{"add": 2, "number": "7", "rename": true}'
    assert refused["error"]["details"]["field_errors"][0]["path"] == "title"


# --- long results


@pytest.mark.parametrize("is_text", [False, True])
async def test_a_long_object_stays_one_and_a_warning_says_how_to_read_the_whole(*, is_text: bool) -> None:
    whole: dict[str, Any] = {"rows": [{"number": number, "text": "x" * 90} for number in range(3000)], "total": 3000}

    async def listed(arguments: Mapping[str, Any], context: Context) -> ToolResult:
        return ToolResult.of_text(json.dumps(whole), structured_content=None if is_text else whole)

    async with Toolcrib() as crib:
        await crib.tools.mount_source(ScriptedSource("s", {"listed": listed}), trusted=True)
        session = crib.session(profile="gateway", mode="autonomous")
        result = await session.call("tool_exec", {"op": "x.s.listed", "args": {}})
        shown = answer_of(result)
        (warning,) = shown["meta"]["warnings"]
        page = await ran(session, "read_artifact", json.loads(re.findall(r"\{.*\}", warning)[0]))

    assert shown["result"] == {"rows": whole["rows"][: len(shown["result"]["rows"])], "total": 3000}
    assert (len(shown["result"]["rows"]) > 50, len(result.text) < 4 * 4000 + 200, page["ok"]) == (True, True, True)


async def test_what_a_long_result_leaves_out_is_read_with_exec() -> None:
    async def long(arguments: Mapping[str, Any], context: Context) -> ToolResult:
        return ToolResult.of_text("\n".join(f"line {number}" for number in range(5000)))

    async with Toolcrib() as crib:
        await crib.tools.mount_source(ScriptedSource("s", {"long": long}), trusted=True)
        session = crib.session(profile="gateway", mode="autonomous")
        result = await session.call("tool_exec", {"op": "x.s.long", "args": {}})
        artifact = result.meta["artifact"]
        told = await ran(session, "read_artifact", {"id": artifact, "offset": 20_000})

    assert "read_artifact" in answer_of(result)["result"]
    assert (told["op"], told["ok"], "line 2" in told["result"]) == ("read_artifact", True, True)


async def test_an_image_stays_an_image_beside_the_envelope() -> None:
    image = {"type": "image", "data": "aGVyb24=", "mimeType": "image/png"}

    async def photograph(arguments: Mapping[str, Any], context: Context) -> ToolResult:
        return ToolResult(content=({"type": "text", "text": "a heron"}, image))

    async with Toolcrib() as crib:
        await crib.tools.mount_source(ScriptedSource("s", {"photograph": photograph}), trusted=True)
        result = await crib.session(profile="gateway", mode="autonomous").call("tool_exec", {"op": "x.s.photograph"})

    assert result.content[1] == image
    assert answer_of(result)["result"] == [
        {"type": "text", "text": "a heron"},
        {"type": "image", "mimeType": "image/png"},
    ]
