"""Seed 001: `tool_help` at every depth, its words, and its memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from seeds.rigging import answer_of, in_project
from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.core.schema import compile_schema
from toolcrib.core.tool import Tool
from toolcrib.crib import Session, Toolcrib
from toolcrib.disclosure.base import VerbContext
from toolcrib.disclosure.gateway.help import MAX_ITEMS, run_help
from toolcrib.results.artifacts import Artifacts
from toolcrib.testing import ScriptedSource

pytestmark = pytest.mark.anyio

ITEM = {"name", "type", "summary"}


@pytest.fixture
async def session(shared: Toolcrib) -> Session:
    return await in_project(shared)


async def helped(session: Session, path: str, **options: Any) -> Any:
    return answer_of(await session.call("tool_help", {"path": path, **options}))


# --- root


@pytest.mark.parametrize("path", ["", "root", " . ", "ROOT", '"root"'])
async def test_the_root_is_a_directory_of_the_groups(shared: Toolcrib, session: Session, path: str) -> None:
    root = await helped(session, path)

    assert (root["type"], root["path"], root["format"]) == ("directory", "root", "short")
    assert (root["version"], root["groups"]) == (shared.catalog.version, ["onto", "util", "cal"])
    assert [(item["name"], item["type"], item["summary"].split(":")[0]) for item in root["items"][:3]] == [
        ("onto", "group", "48 ops"),
        ("util", "group", "5 ops"),
        ("cal", "group", "7 ops"),
    ]


async def test_the_root_says_what_a_call_needs_and_what_must_never_be_done(session: Session) -> None:
    contract = (await helped(session, "root"))["command_contract"]

    assert {verb: part["required"] for verb, part in contract.items()} == {
        "tool_help": [],
        "tool_exec": ["op", "args"],
        "tool_batch": ["ops"],
    }
    assert any("never guess" in rule for rule in contract["tool_exec"]["critical_rules"])


async def test_the_root_has_a_numbered_workflow_and_examples_that_work(session: Session) -> None:
    root = await helped(session, "root")
    looked_up, called = root["examples"]

    assert [step[:2] for step in root["workflow"]] == ["1)", "2)", "3)", "4)"]
    assert answer_of(await session.call("tool_help", looked_up["tool_help"]))["type"] == "op"
    assert answer_of(await session.call("tool_exec", called["tool_exec"]))["error"]["code"] == "NOT_FOUND"
    assert "examples" not in await helped(session, "root", include_examples=False)


# --- directories


async def test_a_group_lists_its_entities_with_their_actions_and_its_own_ops(session: Session) -> None:
    items = (await helped(session, "onto"))["items"]

    assert [item["name"] for item in items] == sorted(item["name"] for item in items)
    assert {item["name"]: item["type"] for item in items if item["name"] in ("onto.goal", "onto.search")} == {
        "onto.goal": "entity",
        "onto.search": "op",
    }
    (goal,) = [item for item in items if item["name"] == "onto.goal"]
    assert goal == {"name": "onto.goal", "type": "entity", "summary": "5 ops: create, delete, get, list, update"}


@pytest.mark.parametrize(("path", "count"), [("util", 5), ("cal", 7), ("cal.event", 5), ("onto.task", 8)])
async def test_a_small_group_or_an_entity_lists_its_ops(session: Session, path: str, count: int) -> None:
    directory = await helped(session, path)

    assert (directory["type"], directory["ops"], len(directory["items"])) == ("directory", count, count)
    assert all(item.keys() == ITEM and item["type"] == "op" for item in directory["items"])
    assert [item["name"] for item in directory["items"]] == sorted(item["name"] for item in directory["items"])
    assert "tool_exec runs it" in directory["next_step"]
    assert directory["examples"][0]["tool_help"]["path"] in [item["name"] for item in directory["items"]]


async def test_the_full_form_of_a_directory_adds_kind_and_required_args(session: Session) -> None:
    short, full = await helped(session, "cal"), await helped(session, "cal", format="full")

    assert (short["format"], full["format"]) == ("short", "full")
    (event,) = [item for item in full["items"] if item["name"] == "cal.event.create"]
    assert (event["kind"], event["required_args"]) == ("write", ["title", "start_at"])


async def test_schemas_of_a_directory_are_those_of_its_ops(session: Session) -> None:
    directory = await helped(session, "util", include_schemas=True)

    assert directory["schemas"].keys() == {item["name"] for item in directory["items"]}
    assert directory["schemas"]["util.web.search"]["required"] == ["query"]
    assert "schemas" not in await helped(session, "util")


# --- one op


async def test_an_op_tells_everything_that_a_call_needs(session: Session) -> None:
    shown = await helped(session, "onto.task.list")

    assert shown == {
        "type": "op",
        "path": "onto.task.list",
        "format": "short",
        "version": shown["version"],
        "op": "onto.task.list",
        "tool_name": "list_onto_tasks",
        "kind": "read",
        "summary": "List tasks, newest change first, with their total.",
        "usage": 'tool_exec({ op: "onto.task.list", args: { project_id?, state_key?, limit?, offset? } })',
        "args": [
            {
                "name": "project_id",
                "type": "string",
                "required": False,
                "description": "Id of the project; without it all projects of the user",
            },
            {
                "name": "state_key",
                "type": "string",
                "required": False,
                "values": ["todo", "in_progress", "blocked", "done"],
            },
            {"name": "limit", "type": "integer", "required": False, "default": 20},
            {"name": "offset", "type": "integer", "required": False, "default": 0},
        ],
        "required_args": [],
        "id_args": ["project_id"],
        "notes": ["Match args exactly to the required ones; others do not exist."],
        "examples": [{"description": "A valid call", "tool_exec": {"op": "onto.task.list", "args": {}}}],
        "example_call": {"op": "onto.task.list", "args": {}},
    }


async def test_the_full_form_of_an_op_adds_the_whole_description(session: Session) -> None:
    short, full = await helped(session, "onto.task.create"), await helped(session, "onto.task.create", format="full")

    assert full == {
        **short,
        "format": "full",
        "description": "Create a task in a project. For future work of the user that should be tracked."
        " Without a parent it belongs to the project itself.",
    }


async def test_schema_and_examples_are_told_when_they_are_asked_for(session: Session) -> None:
    with_schema = await helped(session, "onto.goal.get", include_schemas=True)
    bare = await helped(session, "onto.goal.get", include_examples=False)

    assert with_schema["schema"]["required"] == ["goal_id"]
    assert bare.keys() & {"schema", "examples", "example_call"} == set()


async def test_a_union_is_told_with_all_its_types_and_an_enum_with_its_values(session: Session) -> None:
    args = {arg["name"]: arg for arg in (await helped(session, "onto.task.update"))["args"]}

    assert args["description"]["type"] == "string | null"
    assert args["state_key"]["values"] == ["todo", "in_progress", "blocked", "done"]


@pytest.mark.parametrize(
    ("op", "told"),
    [
        ("onto.task.update", "It needs task_id and at least one field to change"),
        ("onto.task.update", "null clears a field."),
        ("onto.task.get", "task_id must be exact"),
        ("onto.task.delete", "task_id must be exact"),
        ("onto.task.delete", "It cannot be undone"),
        ("onto.task.search", "search says what to look for"),
        ("onto.search", "query says what to look for"),
        ("cal.event.list", "timeMin and timeMax bound the time range"),
        ("onto.document.tree.move", "Without a parent it moves to the top"),
        ("onto.task.create", "idempotency_key makes a repeat harmless"),
    ],
)
async def test_notes_say_what_the_schema_cannot(session: Session, op: str, told: str) -> None:
    assert any(note.startswith(told) or told in note for note in (await helped(session, op))["notes"])


@pytest.mark.parametrize("op", ["onto.task.create", "onto.project.create"])
async def test_policy_is_told_where_there_is_one(session: Session, op: str) -> None:
    policy = (await helped(session, op))["policy"]

    assert list(policy) == ["do", "dont", "edge_cases"]
    assert all(policy.values())
    assert "policy" not in await helped(session, "onto.goal.create")


async def test_the_example_of_an_update_changes_something_and_names_what_belongs_there(session: Session) -> None:
    shown = await helped(session, "onto.task.update", include_schemas=True)

    assert shown["example_call"] == {"op": "onto.task.update", "args": {"task_id": "<task_id>", "title": "<title>"}}
    assert [step["op"] for step in shown["examples"][-1]["sequence"]] == ["onto.task.list", "onto.task.update"]


async def test_every_example_of_every_op_is_valid(shared: Toolcrib, session: Session) -> None:
    for tool in shared.catalog.tools.values():
        example = (await helped(session, session.op_of(tool)))["example_call"]["args"]
        missing = {"project_id": "p"} if "project_id" in tool.input_schema.get("properties", {}) else {}
        assert compile_schema(tool.input_schema).check({**missing, **example}) == (), tool.name


# --- paths


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        (".onto.task.", "onto.task"),
        ("onto/task/update", "onto.task.update"),
        ("Onto.Task.Update", "onto.task.update"),
        ("onto_task_update", "onto.task.update"),
        ("update_onto_task", "onto.task.update"),
        ("update_task", "onto.task.update"),
        ("task.update", "onto.task.update"),
        ("onto.tasks.list", "onto.task.list"),
        ("onto.tasks", "onto.task"),
        ("task", "onto.task"),
        ("ontology", "onto"),
        ("calendar.event", "cal.event"),
        ("get_calendar_event_details", "cal.event.get"),
        ("onto.task.d*", "onto.task.d*"),
    ],
)
async def test_a_path_is_found_in_any_spelling_that_can_only_mean_it(session: Session, asked: str, path: str) -> None:
    assert (await helped(session, asked))["path"] == path


async def test_nothing_at_a_path_is_a_result_with_the_nearest_paths(session: Session) -> None:
    result = await session.call("tool_help", {"path": "onto.task.udpate"})
    told = answer_of(result)

    assert (result.error, told["type"], told["path"]) == (None, "not_found", "onto.task.udpate")
    assert (told["nearest"][0], told["groups"]) == ("onto.task.update", ["onto", "util", "cal"])
    assert "onto.task.update" in told["next_step"]


async def test_ops_of_the_same_entity_in_another_group_are_named(session: Session) -> None:
    assert (await helped(session, "onto.project"))["see_also"] == ["cal.project"]
    assert (await helped(session, "onto.project.set"))["nearest"][0] == "cal.project.set"


async def test_every_op_that_the_root_names_has_help_and_its_errors_lead_to_it(session: Session) -> None:
    contract = (await helped(session, ""))["command_contract"]
    assert 'op "read_artifact"' in contract["tool_exec"]["long_results"]
    told = await helped(session, "read_artifact")
    failed = answer_of(await session.call("tool_exec", {"op": "read_artifact", "args": {"id": "none"}}))

    assert (told["type"], told["op"], [one["name"] for one in told["args"]][:2]) == (
        "op",
        "read_artifact",
        ["id", "offset"],
    )
    assert (failed["error"]["code"], failed["error"]["help_path"]) == ("NOT_FOUND", "read_artifact")


async def test_a_question_in_place_of_a_path_is_answered_with_what_does_that(session: Session) -> None:
    assert "util.web.search" in (await helped(session, "look something up on the web"))["nearest"]


async def test_wrong_arguments_of_help_are_a_validation_error_that_leads_to_the_root(session: Session) -> None:
    told = answer_of(await session.call("tool_help", {"path": "root", "format": "long"}))

    assert (told["op"], told["ok"], told["error"]["code"]) == ("tool_help", False, "VALIDATION_ERROR")
    assert (told["error"]["help_path"], told["error"]["details"]["field_errors"][0]["path"]) == ("root", "format")


# --- size


async def answering(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    return ToolResult.of_text("done")


def many(count: int, *words: str) -> ScriptedSource:
    names = [f"{words[number % len(words)]}_thing_{number:04}" for number in range(count)]
    listed = [Tool(name=name, source="api", local_name=name, origin="mcp", description="Do it.") for name in names]
    return ScriptedSource("api", dict.fromkeys(names, answering), listed=listed)


@pytest.mark.long
async def test_thousands_of_ops_stay_readable_and_every_one_can_be_reached() -> None:
    words = [f"{first}{second}" for first in ("issue", "pull", "repo", "team", "user") for second in ("s", "Admin")]
    async with Toolcrib() as crib:
        await crib.tools.mount_source(many(3000, *words), trusted=True)
        session = crib.session(profile="gateway")
        seen, waiting = set[str](), ["root"]
        while waiting:
            result = await session.call("tool_help", {"path": waiting.pop(), "include_examples": False})
            shown = answer_of(result)
            assert (len(result.text) // 4 < 2500, len(shown["items"]) <= MAX_ITEMS) == (True, True)
            seen |= {item["name"] for item in shown["items"] if item["type"] == "op"}
            waiting += [item["name"] for item in shown["items"] if item["type"] != "op"]
        assert seen == {session.op_of(tool) for tool in crib.catalog.tools.values()}
        assert session.instructions.splitlines()[-1] == "3,000 ops: x (api)."


async def test_an_op_that_is_also_a_directory_hides_nothing_below_it() -> None:
    ops = ["cal.event", *(f"cal.event.{number:02}" for number in range(30))]
    listed = [Tool(name=f"t{at}", source="s", local_name=f"t{at}", op=op) for at, op in enumerate(ops)]
    async with Toolcrib() as crib:
        bodies = {tool.local_name: answering for tool in listed}
        await crib.tools.mount_source(ScriptedSource("s", bodies, listed=listed), trusted=True)
        session = crib.session(profile="gateway")
        items = {item["type"]: item["name"] for item in (await helped(session, "cal"))["items"]}
        below = (await helped(session, items["entity"]))["items"]

    assert (items["op"], len(below)) == ("cal.event", 30)


# --- memory


async def test_help_is_kept_by_version_path_format_schemas_and_examples(session: Session, tmp_path: Path) -> None:
    memory: dict[tuple[object, ...], Any] = {}
    artifacts = Artifacts(tmp_path)
    context = VerbContext(
        context=Context(call_id="c", session_key="k", principal="p"), artifacts=artifacts, run=never, memory=memory
    )
    asked = {"path": "onto.task", "format": "short", "include_schemas": False, "include_examples": True}
    version = session.visible.catalog.version

    await run_help(session.visible, asked, context)
    await run_help(session.visible, {**asked, "path": ".onto.task"}, context)
    assert [key[:6] for key in memory] == [("help", version, "onto.task", "short", False, True)]

    for change in ({"path": "cal"}, {"format": "full"}, {"include_schemas": True}, {"include_examples": False}):
        await run_help(session.visible, {**asked, **change}, context)
    assert len(memory) == 5

    (key, (profile, _)), *_ = memory.items()
    memory[key] = (profile, {"type": "kept"})
    assert answer_of(await run_help(session.visible, asked, context)) == {"type": "kept"}
    artifacts.close()


async def never(*_: Any, **__: Any) -> ToolResult:
    raise AssertionError("help makes no calls")
