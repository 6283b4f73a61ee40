"""Calls of built-in tools that only look count as reads: no mode asks for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolcrib import Toolcrib
from toolcrib.core.tool import Tool
from toolcrib.policy.modes import kind_of
from toolcrib.policy.rules import Rules, parse_rules

LOOKS = {
    "compact_memory": [{"dry_run": True}],
    "find_and_replace": [{"dry_run": True}],
    "git_branch": [{"action": "list"}],
    "git_stash": [{"action": "list"}, {"action": "show"}],
    "nodes": [{"action": "status"}, {"action": "describe"}, {"action": "which"}],
    "orchestrator_control": [{"action": "status"}],
    "pipeline": [{"action": "status"}],
    "restore_waypoint": [{"dry_run": True}],
    "scheduled_task": [{"operation": "list"}],
    "browser": [{"action": name} for name in ("navigate", "snapshot", "screenshot", "tabs", "close")],
}
OPERATIONS = {"action", "dry_run", "operation", "preview"}
"""Arguments that decide what a call of a built-in tool does."""
ONLY_WRITES = {"plan", "set_project_calendar"}
"""Tools with such an argument, all of whose values change something."""


PATHS = re.compile(r"(?:.*_)?(?:attachments|files?|paths?|source)")
"""Names of arguments that are files of the workspace in most tools."""
NO_FILES = {
    *("api_calling.path", "call_service.path", "get_endpoint_schema.path", "list_endpoints.filter_path"),
    "preview_request.path",
}
"""Parts of addresses."""


async def _tools(tmp_path: Path) -> dict[str, Tool]:
    async with Toolcrib(builtins=True, memory=True, workspace={"roots": [str(tmp_path)]}) as crib:
        return dict(crib.catalog.tools)


def _calls(tool: Tool) -> Iterator[dict[str, Any]]:
    for name, schema in tool.input_schema.get("properties", {}).items():
        if name in OPERATIONS:
            yield from ({name: value} for value in schema.get("enum", [True, False]))


async def test_every_operation_of_the_built_in_tools_is_judged(tmp_path: Path) -> None:
    tools = await _tools(tmp_path)
    several = {name: tool for name, tool in tools.items() if tool.kind != "read" and any(_calls(tool))}
    reads = {name: [one for one in _calls(tool) if kind_of(tool, one) == "read"] for name, tool in several.items()}

    assert {name: found for name, found in reads.items() if name not in ONLY_WRITES or found} == {
        name: found for name, found in LOOKS.items() if name in several
    }
    assert several.keys() >= {"git_branch", "nodes", "orchestrator_control", "pipeline"}


async def test_a_deny_of_reading_a_file_is_about_every_built_in_tool_that_may_be_given_it(tmp_path: Path) -> None:
    tools = await _tools(tmp_path)
    given = [(tool, name) for tool in tools.values() for name in tool.input_schema.get("properties", {})]
    rules = Rules(parse_rules({"deny": ["Read(a.txt)"]}))
    calls = {f"{tool.name}.{name}": (tool, {name: ["a.txt"]}) for tool, name in given if PATHS.fullmatch(name)}
    decided = {call: rules.decide(tool, arguments, tmp_path) for call, (tool, arguments) in calls.items()}

    assert {call for call, decision in decided.items() if decision is None} == NO_FILES
    assert {decision.effect for decision in decided.values() if decision} == {"deny"}
    assert rules.decide(tools["git_status"], {"repo": "."}, tmp_path) is None
    assert rules.decide(tools["get_diagnostics"], {"path": "."}, tmp_path) is None
