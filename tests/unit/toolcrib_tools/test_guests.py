"""The tools that come with Toolcrib: right answers, and failures that say what to do."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import toolcrib_tools
from toolcrib import Toolcrib
from toolcrib.plugin import ToolFailure, load_entry_points
from toolcrib.sources.python import PythonSource
from toolcrib.sources.python.declaration import NEEDS
from toolcrib.sources.source import Listing
from toolcrib.testing import RecordingApprover
from toolcrib_tools.calculator import add, calculate, divide, multiply, subtract
from toolcrib_tools.clock import convert_time, current_time
from toolcrib_tools.text import count_text, diff_text


async def error_of(expression: str) -> str:
    with pytest.raises(ToolFailure) as failure:
        await calculate(expression)
    return failure.value.message


# Calculator


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("(3 + 4) * 2.5", "17.5"),
        ("2 ** 100", "1267650600228229401496703205376"),
        ("7 // 2 - -7 % 3", "1"),
        ("10 / 4", "2.5"),
        ("10 / 5", "2"),
        ("0.1 + 0.2", "0.30000000000000004"),
        ("sqrt(2) ** 2", "2.0000000000000004"),
        ("round(sin(pi / 2) + cos(0) + hypot(3, 4), 2)", "7"),
        ("max(1, 2, gcd(12, 18))", "6"),
        ("-2 ** 2", "-4"),
        ("2 ** -1", "0.5"),
        (" 1e3\n", "1000"),
    ],
)
async def test_arithmetic_is_calculated(expression: str, result: str) -> None:
    assert await calculate(expression) == result


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("1 +", "this is not an arithmetic expression: "),
        ("1 / 0", "division by zero"),
        ("x + 1", "'x' is not known here"),
        ("__import__('os').system('id')", "\"__import__('os').system('id')\" is not known here"),
        ("().__class__", "'().__class__' is not known here"),
        ("'a' * 3", "\"'a'\" is not known here"),
        ("[1][0]", "'[1][0]' is not known here"),
        ("True + 1", "'True' is not known here"),
        ("sqrt(-1)", "this cannot be calculated: "),
        ("(-8) ** 0.5", "this cannot be calculated: the root of a negative number is not real"),
        ("sqrt(1, 2)", "this cannot be calculated: math.sqrt() takes exactly one argument"),
        ("9 ** 9 ** 9", "the result is too large, or the expression is nested too deeply"),
        ("1e308 * 10", "the result is too large, or the expression is nested too deeply"),
        ("1e300 * 1e300 ** 2", "the result is too large, or the expression is nested too deeply"),
    ],
)
async def test_what_is_no_arithmetic_is_refused(expression: str, reason: str) -> None:
    assert (await error_of(expression)).startswith(reason)


@pytest.mark.parametrize("expression", ["(" * 400 + "1" + ")" * 400, "-" * 990 + "1", "9**9**" * 100 + "9"])
async def test_an_expression_made_to_hurt_is_over_at_once(expression: str) -> None:
    started = time.process_time()

    try:
        await calculate(expression)
    except ToolFailure as failure:
        assert failure.code == "tool_error"
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("work", "a", "b", "result"),
    [
        (add, 0.1, 0.2, "0.3"),
        (add, 2**100, 1, "1267650600228229401496703205377"),
        (add, 1e22, 1, "10000000000000000000001"),
        (subtract, 1, 0.9, "0.1"),
        (subtract, 5, 5.0, "0"),
        (multiply, 1.1, 3, "3.3"),
        (multiply, 1e300, 1e300, "1E+600"),
        (multiply, 50, 20, "1000"),
        (divide, 10, 5, "2"),
        (divide, 1, 8, "0.125"),
        (divide, 10**60, 10, f"1{'0' * 59}"),
        (divide, 1, 3, f"0.{'3' * 29}"),
        (divide, -7, 2.5, "-2.8"),
    ],
)
async def test_two_numbers_are_calculated_with_exactly(work: Any, a: float, b: float, result: str) -> None:
    assert await work(a, b) == result


@pytest.mark.parametrize(
    ("work", "a", "b", "code", "message"),
    [
        (divide, 1, 0, "tool_error", "division by zero"),
        (divide, 0, 0.0, "tool_error", "division by zero"),
        (add, float("inf"), 1, "invalid_arguments", "a: inf is not a number that can be calculated with"),
        (multiply, 2, 1 << 5_000, "too_large", "b: an integer of 5,001 bits; 4,096 at most"),
    ],
)
async def test_what_cannot_be_calculated_with_is_refused(
    work: Any, a: float, b: float, code: str, message: str
) -> None:
    with pytest.raises(ToolFailure) as failure:
        await work(a, b)

    assert (failure.value.code, failure.value.message) == (code, message)


# Clock


async def test_the_current_time_is_that_of_the_zone() -> None:
    told = await current_time("Asia/Tokyo")
    moment = datetime.fromisoformat(told["time"])

    assert moment.utcoffset() == timedelta(hours=9)
    assert abs(datetime.now(UTC) - moment) < timedelta(minutes=1)
    assert (told["zone"], told["weekday"]) == ("Asia/Tokyo", moment.strftime("%A"))


async def test_a_time_is_converted_with_the_offset_of_that_day() -> None:
    assert await convert_time("2026-07-01T09:30", "Europe/Berlin", "America/New_York") == {
        "time": "2026-07-01T15:30:00+02:00",
        "zone": "Europe/Berlin",
        "weekday": "Wednesday",
        "utc": "2026-07-01T13:30:00+00:00",
    }


async def test_an_offset_in_the_time_counts_instead_of_the_zone() -> None:
    told = await convert_time("2026-01-01T00:00+02:00", "UTC", "Asia/Tokyo")

    assert told["time"] == "2025-12-31T22:00:00+00:00"


@pytest.mark.parametrize(
    ("zone", "reason"),
    [
        ("Berlin", "there is no time zone 'Berlin'; did you mean Europe/Berlin?"),
        ("new york", "there is no time zone 'new york'; did you mean America/New_York"),
        ("../../etc/passwd", "there is no time zone '../../etc/passwd'; give an IANA name such as Europe/Berlin"),
    ],
)
async def test_an_unknown_zone_is_refused_with_the_nearest(zone: str, reason: str) -> None:
    with pytest.raises(ToolFailure) as failure:
        await current_time(zone)

    assert failure.value.message.startswith(reason)


@pytest.mark.parametrize("given", ["tomorrow", "0001-01-01T00:00"])
async def test_a_time_that_cannot_be_converted_is_refused(given: str) -> None:
    with pytest.raises(ToolFailure):
        await convert_time(given, "America/New_York", "Asia/Tokyo")


# Text


async def test_text_is_counted() -> None:
    assert await count_text("A strawberry.\nR!", find="r") == {"characters": 16, "words": 3, "lines": 2, "found": 4}
    assert await count_text("") == {"characters": 0, "words": 0, "lines": 0}


def test_two_versions_are_compared_line_by_line() -> None:
    assert diff_text("one\ntwo\n", "one\nthree\n") == "--- old\n+++ new\n@@ -1,2 +1,2 @@\n one\n-two\n+three"
    assert diff_text("same", "same") == "the texts are equal"
    assert diff_text("same\n", "same") == "only line ends differ"


def test_texts_of_too_many_lines_are_not_compared() -> None:
    with pytest.raises(ToolFailure, match="more than 5000 lines"):
        diff_text("\n" * 5_001, "")


# All of them

LISTED: dict[str, dict[str, str]] = {
    "api": {
        "read": "get_endpoint_schema list_endpoints list_schemas preview_request",
        "write": "configure_service_auth discover_service import_bruno_collection save_schema",
        "destructive": "api_calling call_service remove_service",
    },
    "code": {
        "read": (
            "lsp_document_symbols lsp_find_references lsp_get_code_actions lsp_goto_definition lsp_hover"
            " lsp_workspace_symbols"
        ),
        "write": "lsp_apply_code_action lsp_rename_symbol",
    },
    "coordination": {
        "read": "get_blocked_steps get_plan_status get_task_events list_subscriptions list_waypoints waypoint_info",
        "write": (
            "add_dependent_step add_step complete_plan complete_step_with_output create_plan plan save_waypoint"
            " set_step_status start_plan subscribe_to_tasks unsubscribe"
        ),
        "destructive": "delete_waypoint restore_waypoint",
    },
    "diagnostics": {"read": "get_diagnostics lsp_get_diagnostics"},
    "files": {
        "read": "display_diagram file_info glob_files list_backups list_directory read_file view_image",
        "write": "edit_file find_and_replace restore_backup undo_edit",
        "destructive": "copy_file move_file multi_edit remove_file write_file",
    },
    "git": {
        "read": "git_changed_files git_diff git_log git_status",
        "write": "git_branch git_commit git_merge git_stage",
        "destructive": "git_create_pr git_pull git_push git_stash",
    },
    "human": {"read": "ask_user hitl request_clarification"},
    "knowledge": {
        "read": (
            "check_related_artifacts compute_embedding get_field_info get_product_overview get_usage_guide"
            " knowledge_search list_references list_tracked_artifacts select_references validate_reference"
        ),
        "write": "acknowledge_review flag_for_review notify_change track_artifact update_tracked_artifact",
        "destructive": "untrack_artifact",
    },
    "math": {"read": "add calculate divide multiply subtract"},
    "memory": {
        "read": (
            "compare_specs_notes get_template list_memory_tags list_notes list_template_variables list_templates"
            " memory_search memory_stats read_note retrieve_memories validate_template_index view_profile"
        ),
        "write": (
            "append_note create_template edit_project_profile memory_reindex promote_note regenerate_profile"
            " store_memory write_file_from_template write_note"
        ),
        "destructive": "compact_memory delete_memory delete_note delete_template",
    },
    "messaging": {"write": "send_message"},
    "notebook": {
        "read": "notebook_backends notebook_list notebook_variables",
        "write": "notebook_create notebook_reset",
        "destructive": "notebook_execute",
    },
    "prompt": {
        "read": "list_saved_prompts read_prompt render_prompt",
        "write": "save_prompt",
        "destructive": "delete_prompt",
    },
    "settings": {"read": "get_setting", "write": "switch_backend update_setting"},
    "shell": {
        "read": "shell_list shell_read",
        "write": "shell_close",
        "destructive": "nodes run_command run_tests shell_control shell_input shell_spawn",
    },
    "screen": {"read": "observe_screen"},
    "system": {
        "read": "get_config get_environment get_recent_events get_status get_token_usage system_monitor",
        "write": "open_system_preferences session_describe",
    },
    "text": {"read": "count_text diff_text"},
    "time": {"read": "convert_time current_time"},
    "web": {"read": "web_fetch web_search", "write": "browser web_post"},
}
"""By category and kind, the tools that there are."""
OUTWARD = {"api", "git", "messaging", "notebook", "shell", "web"}
"""Categories with tools that reach beyond this machine."""


@pytest.mark.slow
async def test_every_guest_arrives_described_with_valid_examples_and_without_a_problem() -> None:
    guests, problems = load_entry_points()
    programs = {"browser": {"program": sys.executable}}  # not every machine has Chromium
    source, seen = PythonSource("python", programs.get), list[Listing]()
    source.provide(frozenset(NEEDS))
    for guest in guests:
        if f"({toolcrib_tools.__name__})" in guest.origin:
            source.offer(guest.thing, guest.origin)
    await source.open(seen.append)

    listed: dict[str, dict[str, list[str]]] = {}
    for tool in sorted(seen[-1].tools, key=lambda tool: tool.name):
        listed.setdefault(tool.category, {}).setdefault(tool.kind, []).append(tool.name)
    assert (problems, seen[-1].problems) == ((), ())
    assert {category: listed.get(category) for category in LISTED} == {
        category: {kind: names.split() for kind, names in kinds.items()} for category, kinds in LISTED.items()
    }
    for tool in seen[-1].tools:
        assert tool.category
        assert tool.guidance.examples
        assert tool.category in OUTWARD or not tool.annotations.open_world, tool.name
        assert tool.category not in ("files", "search") or tool.availability.needs == ("workspace",)
        assert tool.category != "files" or ("file_writer" in tool.traits) == (tool.kind != "read")
        needs = ("language_server", "workspace") if tool.name.startswith("lsp_") else ("workspace",)
        assert "file_writer" not in tool.traits or (tuple(sorted(tool.availability.needs)), tool.kind != "read") == (
            needs,
            True,
        ), tool.name
        undescribed = [name for name, field in tool.input_schema["properties"].items() if "description" not in field]
        assert undescribed == [], json.dumps(tool.input_schema)


async def test_a_person_is_asked_about_what_is_there_to_be_deleted_and_about_nothing_else(tmp_path: Path) -> None:
    calls: Mapping[str, Any] = {
        "delete_memory": {"memory_id": "1"},
        "delete_note": {"title": "1"},
        "delete_prompt": {"name": "1"},
        "delete_template": {"name": "1"},
        "delete_waypoint": {"waypoint_id": "1"},
        "remove_service": {"service": "shop"},
    }
    approver = RecordingApprover("yes", "no")
    async with Toolcrib(builtins=True, memory=True, workspace={"roots": [str(tmp_path)]}, mode="manual") as crib:
        session = crib.session(profile="flat", approver=approver)
        absent = [(await session.call(name, arguments)).error for name, arguments in calls.items()]
        await session.call("write_note", {"title": "1", "content": "x"})
        present = (await session.call("delete_note", {"title": "1"})).error

    assert [error and error.code for error in absent] == ["not_found"] * len(calls)
    assert [question.tool.name for question in approver.questions] == ["write_note", "delete_note"]
    assert present is not None
    assert present.code == "denied"
