"""A call that names something that does not exist answers `not_found`: every built-in tool, and the gateway's verbs."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from rig.sandbox import needs_sandbox
from seeds.builtin_world import World, world_of
from toolcrib.core.session import LOCAL
from toolcrib.crib import Session
from unit.toolcrib_tools.repositories import made

NONE = "nowhere"
SANDBOXED = ("git_", "notebook_", "run_", "shell_")

CASES: list[tuple[str, dict[str, Any]]] = [
    ("acknowledge_review", {"path": NONE}),
    ("acknowledge_review", {"paths": [NONE]}),
    ("api_calling", {"api_name": NONE, "path": "/x"}),
    ("ast_search", {"pattern": "x", "path": NONE}),
    ("call_service", {"service": NONE, "path": "/x", "method": "GET"}),
    ("cancel_background_task", {"task_id": NONE}),
    ("check_related_artifacts", {"path": NONE}),
    ("compare_specs_notes", {"specs_path": NONE}),
    ("compute_embedding", {"file": NONE}),
    ("compute_embedding", {"reference": NONE}),
    ("configure_service_auth", {"service": NONE, "auth": {"type": "none"}}),
    ("convert_time", {"time": "2026-03-01T09:30", "to_zone": NONE}),
    ("copy_file", {"source": NONE, "destination": "b"}),
    ("current_time", {"zone": NONE}),
    ("delete_memory", {"memory_id": NONE}),
    ("delete_note", {"title": NONE}),
    ("delete_prompt", {"name": NONE}),
    ("delete_template", {"name": NONE}),
    ("delete_waypoint", {"waypoint_id": NONE}),
    ("discover_service", {"source": "nowhere.yaml", "alias": "x"}),
    ("display_diagram", {"path": NONE}),
    ("edit_file", {"path": NONE, "search": "a", "replace": "b"}),
    ("file_info", {"path": NONE}),
    ("find_and_replace", {"pattern": "a", "replacement": "b", "paths": [NONE]}),
    ("find_references", {"symbol": "x", "file": "nowhere.py"}),
    ("flag_for_review", {"path": NONE, "reason": "x"}),
    ("get_background_task", {"task_id": NONE}),
    ("get_config", {"section": NONE}),
    ("get_diagnostics", {"path": NONE}),
    ("get_endpoint_schema", {"service": NONE, "method": "GET", "path": "/x"}),
    ("get_field_info", {"entity_type": NONE}),
    ("get_field_info", {"entity_type": "task", "field_name": NONE}),
    ("get_setting", {"key": NONE}),
    ("get_template", {"name": NONE}),
    ("get_usage_guide", {"topic": NONE}),
    ("git_branch", {"action": "create", "name": "n", "start": NONE}),
    ("git_branch", {"action": "delete", "name": NONE}),
    ("git_branch", {"action": "switch", "name": NONE}),
    ("git_changed_files", {"base_branch": NONE}),
    ("git_commit", {"message": "x", "repo": NONE}),
    ("git_diff", {"path": NONE}),
    ("git_diff", {"ref1": NONE}),
    ("git_log", {"path": NONE}),
    ("git_log", {"ref": NONE}),
    ("git_merge", {"branch": NONE}),
    ("git_pull", {"remote": NONE}),
    ("git_push", {"branch": NONE}),
    ("git_push", {"remote": NONE}),
    ("git_stage", {"files": [NONE]}),
    ("git_stash", {"action": "pop", "index": 7}),
    ("git_status", {"repo": NONE}),
    ("glob_files", {"pattern": "*", "path": NONE}),
    ("grep", {"pattern": "x", "path": NONE}),
    ("import_bruno_collection", {"path": NONE, "service_name": "b"}),
    ("knowledge_search", {"query": "x", "path": NONE}),
    ("list_backups", {"path": NONE}),
    ("list_directory", {"path": NONE}),
    ("list_endpoints", {"service": NONE}),
    ("list_schemas", {"service": NONE}),
    ("list_template_variables", {"template": NONE}),
    ("list_template_variables", {"template_path": NONE}),
    ("lsp_apply_code_action", {"file_path": "nowhere.py", "start_line": 1, "action_title": "x"}),
    ("lsp_document_symbols", {"file_path": "nowhere.py"}),
    ("lsp_find_references", {"file_path": "nowhere.py", "line": 1, "column": 1}),
    ("lsp_get_code_actions", {"file_path": "nowhere.py", "start_line": 1}),
    ("lsp_get_diagnostics", {"file_path": "nowhere.py"}),
    ("lsp_goto_definition", {"file_path": "nowhere.py", "line": 1, "column": 1}),
    ("lsp_hover", {"file_path": "nowhere.py", "line": 1, "column": 1}),
    ("lsp_rename_symbol", {"symbol": "x", "new_name": "y", "file_path": "nowhere.py"}),
    ("move_file", {"source": NONE, "destination": "b"}),
    ("multi_edit", {"operations": [{"path": NONE, "action": "edit", "search": "a", "replace": "b"}]}),
    ("nodes", {"action": "describe", "node": NONE}),
    ("notebook_execute", {"code": "1", "notebook": NONE}),
    ("notebook_reset", {"notebook": NONE}),
    ("notebook_variables", {"notebook": NONE}),
    ("notify_change", {"path": NONE, "reason": "x"}),
    ("pipeline", {"action": "status", "task_id": NONE}),
    ("preview_request", {"service": NONE, "path": "/x", "method": "GET"}),
    ("project_knowledge_search", {"query": "x", "path": NONE}),
    ("promote_note", {"title": NONE}),
    ("read_file", {"path": NONE}),
    ("read_note", {"title": NONE}),
    ("read_prompt", {"name": NONE}),
    ("remove_file", {"path": NONE}),
    ("remove_service", {"service": NONE}),
    ("render_prompt", {"name": NONE}),
    ("restore_backup", {"path": NONE}),
    ("restore_waypoint", {"waypoint_id": NONE}),
    ("run_command", {"command": "true", "working_dir": NONE}),
    ("run_command", {"command_id": NONE}),
    ("run_tests", {"file": "nowhere.py"}),
    ("run_tests", {"working_dir": NONE}),
    ("scheduled_task", {"operation": "cancel", "task_id": NONE}),
    ("search_files", {"pattern": "x", "path": NONE}),
    ("select_references", {"ids": [NONE]}),
    ("send_message", {"content": "x", "channel_id": NONE}),
    ("shell_close", {"session_id": NONE}),
    ("shell_control", {"session_id": NONE, "key": "ctrl-c"}),
    ("shell_input", {"session_id": NONE, "input": "x"}),
    ("shell_read", {"session_id": NONE}),
    ("shell_spawn", {"working_dir": NONE}),
    ("start_background_task", {"tool_name": NONE}),
    ("subscribe_to_tasks", {"event_types": ["step_completed"], "plan_id": NONE}),
    ("symbols", {"path": NONE}),
    ("track_artifact", {"path": NONE, "artifact_type": "code", "description": "x"}),
    ("undo_edit", {"path": NONE}),
    ("unsubscribe", {"subscription_id": NONE}),
    ("untrack_artifact", {"path": NONE}),
    ("untrack_artifact", {"paths": [NONE]}),
    ("update_setting", {"key": NONE, "value": 1}),
    ("update_tracked_artifact", {"path": NONE, "description": "x"}),
    ("validate_reference", {"path": NONE}),
    ("validate_template_index", {"path": NONE}),
    ("view_image", {"path": NONE}),
    ("waypoint_info", {"waypoint_id": NONE}),
    ("web_fetch", {"url": "{origin}/missing"}),
    ("write_file_from_template", {"output_path": "o.txt", "template": NONE}),
    ("write_file_from_template", {"output_path": "o.txt", "template_path": NONE}),
    # Tools of the session's plan: without one.
    ("add_dependent_step", {"description": "x", "depends_on": [NONE]}),
    ("add_step", {"description": "x"}),
    ("complete_plan", {"status": "completed"}),
    ("complete_step_with_output", {"step_id": NONE, "output": {}}),
    ("get_blocked_steps", {}),
    ("get_plan_status", {}),
    ("plan", {"action": "update", "todo_id": NONE, "status": "completed"}),
    ("set_step_status", {"step_id": NONE, "status": "completed"}),
    ("start_plan", {}),
]

OF_A_PLAN: list[tuple[str, dict[str, Any]]] = [
    ("add_dependent_step", {"description": "x", "depends_on": [NONE]}),
    ("complete_step_with_output", {"step_id": NONE, "output": {}}),
    ("plan", {"action": "update", "todo_id": NONE, "status": "completed"}),
    ("set_step_status", {"step_id": NONE, "status": "completed"}),
]

NAMED = frozenset(
    "api_name branch channel_id command_id file file_path files id ids key memory_id name node notebook parent_id path"
    " paths plan_id profile profile_id reference remote repo section service session_id source specs_path step_id"
    " subscription_id task_id template template_path title todo_id tool_name topic waypoint_id working_dir".split()
)
"""Arguments that name something which has to exist."""

ELSEWHERE = {
    **dict.fromkeys(("onto", "work", "cal"), "unit/toolcrib_work"),
    **dict.fromkeys(("agent", "hooks", "playbooks", "project", "queue", "tasks"), "unit/toolcrib_queue/test_tools.py"),
}
"""Categories whose tools have this test in a file of their own."""

CREATING = {
    ("append_note", "title"): "a note is created by its first line",
    ("create_plan", "title"): "the text of a new plan",
    ("create_template", "name"): "a new template",
    ("git_create_pr", "branch"): "the tool is not offered without gh and a token: test_git_remotes",
    ("git_create_pr", "repo"): "the tool is not offered without gh and a token: test_git_remotes",
    ("git_create_pr", "title"): "the text of a new pull request",
    ("hitl", "title"): "the text of a form",
    ("notebook_create", "name"): "a new notebook",
    ("save_prompt", "name"): "a new prompt",
    ("save_schema", "name"): "a new endpoint",
    ("save_schema", "service"): "a new service, whose address is then required",
    ("switch_backend", "profile"): "a world without listed backends has nothing to choose from: test_settings",
    ("write_file", "path"): "a new file",
    ("write_note", "title"): "a new note",
}
"""What need not exist, and why."""


@pytest.fixture(scope="module")
async def world() -> AsyncGenerator[World]:
    async with world_of() as opened:
        yield opened


@pytest.fixture
def session(world: World, tmp_path: Path) -> Session:
    made(tmp_path)
    return world.session("gateway", tmp_path, principal=LOCAL)


async def codes(session: Session, world: World, cases: list[tuple[str, dict[str, Any]]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, given in cases:
        arguments = json.loads(json.dumps(given).replace("{origin}", world.server.origin))
        told = (await session.call("tool_exec", {"op": name, "args": arguments})).structured_content
        found[f"{name} {given}"] = (
            "ok" if told["ok"] else f"{told['error']['code']} {told['error']['help_path'] != 'root'}"
        )
    return found


async def test_what_does_not_exist_is_not_found(session: Session, world: World) -> None:
    plain = [case for case in CASES if not case[0].startswith(SANDBOXED)]

    found = await codes(session, world, plain)

    assert found == dict.fromkeys(found, "NOT_FOUND True")


@pytest.mark.long
@pytest.mark.process
@needs_sandbox
async def test_what_does_not_exist_is_not_found_by_tools_in_a_sandbox(session: Session, world: World) -> None:
    found = await codes(session, world, [case for case in CASES if case[0].startswith(SANDBOXED)])

    assert found == dict.fromkeys(found, "NOT_FOUND True")


async def test_a_step_that_the_plan_does_not_have_is_not_found(session: Session, world: World) -> None:
    await session.call("tool_exec", {"op": "create_plan", "args": {"title": "A", "steps": ["one"]}})
    await session.call("tool_exec", {"op": "start_plan", "args": {}})

    found = await codes(session, world, OF_A_PLAN)

    assert found == dict.fromkeys(found, "NOT_FOUND True")


async def test_a_kept_output_that_does_not_exist_is_not_found(session: Session) -> None:
    told = (await session.call("tool_exec", {"op": "read_artifact", "args": {"id": NONE}})).structured_content

    assert told["error"]["code"] == "NOT_FOUND"


async def test_an_op_that_does_not_exist_is_not_found(session: Session) -> None:
    ran = (await session.call("tool_exec", {"op": "x.nothing.here", "args": {}})).structured_content
    helped = (await session.call("tool_help", {"path": "x.nothing.here"})).structured_content

    assert (ran["error"]["code"], ran["error"]["help_path"], helped["type"]) == ("NOT_FOUND", "root", "not_found")


@needs_sandbox
async def test_every_built_in_tool_that_names_something_is_called_here(session: Session) -> None:
    called = {(name, argument) for name, given in (*CASES, *OF_A_PLAN) for argument in given}
    tools = [tool for tool in session.visible.tools() if tool.source in ("builtin", "jobs")]
    tools = [tool for tool in tools if tool.category not in ELSEWHERE]
    naming = {
        (tool.name, argument) for tool in tools for argument in tool.input_schema["properties"] if argument in NAMED
    }

    assert sorted({name for name, _ in naming - CREATING.keys()} - {name for name, _ in called}) == []
    assert CREATING.keys() <= naming
