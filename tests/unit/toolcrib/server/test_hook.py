"""What Claude Code reads of the gate: the output of its hook, and the answer of its permission-prompt tool."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from rig import PATIENCE
from toolcrib.claude_code.approve_tool import APPROVE, WithApprove, asked_from
from toolcrib.claude_code.gate import gate_of
from toolcrib.claude_code.hook import answer_hook, serve_hook
from toolcrib.claude_code.hook_messages import HookRequest, Unanswered
from toolcrib.config import Directories, bare
from toolcrib.config.clients.connections import connect
from toolcrib.config.clients.table import CLIENTS
from toolcrib.core.permission import Answer
from toolcrib.core.result import ToolResult
from toolcrib.crib import Toolcrib
from toolcrib.mcp.server.backend import SessionRequest
from toolcrib.mcp.server.calls import read_call
from toolcrib.server.stdio import Link
from toolcrib.testing import RecordingPeer

PRE = "PreToolUse"
PROMPT = "PermissionRequest"


@asynccontextmanager
async def opened(**settings: Any) -> AsyncGenerator[Toolcrib]:
    rules = {"rules": {"allow": ("Bash(touch:*)", "Edit(./src/**)"), "deny": ("Bash(rm:*)",)}}
    async with Toolcrib(
        bare().with_values(**{"approvals": {"timeout": PATIENCE}, **rules, **settings}), memory=True
    ) as crib:
        yield crib


def request(
    event: str, tool: str, given: dict[str, Any], *, project: str = "/project", unanswered: Unanswered = "deny"
) -> HookRequest:
    said = {"hook_event_name": event, "session_id": "s", "cwd": "/", "tool_name": tool, "tool_input": given}
    return HookRequest(event=said, project=project, unanswered=unanswered)


async def told(crib: Toolcrib, *asked: Any, **options: Any) -> dict[str, Any]:
    answer = json.loads(await answer_hook(gate_of(crib), request(*asked, **options)))
    said: dict[str, Any] = answer["hookSpecificOutput"]
    assert (list(answer), said.pop("hookEventName")) == (["hookSpecificOutput"], asked[0])
    return said


async def ask_by_tool(crib: Toolcrib, given: dict[str, Any]) -> ToolResult:
    """Call the tool as a client of the server does."""
    wanted = SessionRequest(
        key="", principal="local", profile="", mode="", instance="", is_stateless=False, is_shared=False
    )
    session = WithApprove(crib).open_session(wanted)
    return await session.call(read_call({"name": APPROVE, "arguments": given}), RecordingPeer(), None)


async def answering(crib: Toolcrib, answer: Answer) -> None:
    """Give one answer to the next question."""
    async for approval in crib.approvals.watch():
        if approval.state == "pending":
            await crib.approvals.decide(approval.id, answer)
            return


async def _with(beside: Coroutine[Any, Any, None], asked: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """Return what is asked for while something else goes on beside it."""
    found: list[dict[str, Any]] = []

    async def ask() -> None:
        found.append(await asked)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await beside
    return found[0]


async def test_before_a_tool_is_used_the_hook_says_allow_or_deny_and_why() -> None:
    async with opened() as crib:
        allowed = await told(crib, PRE, "Bash", {"command": "touch a"})
        denied = await told(crib, PRE, "Bash", {"command": "rm a"})

    assert allowed == {
        "permissionDecision": "allow",
        "permissionDecisionReason": "Toolcrib: allow Bash(touch:*) (config)",
    }
    assert denied["permissionDecision"] == "deny"
    assert "deny Bash(rm:*)" in denied["permissionDecisionReason"]


async def test_in_place_of_a_dialog_the_hook_says_it_in_the_dialogs_words() -> None:
    async with opened() as crib:
        allowed = await told(crib, PROMPT, "Bash", {"command": "touch a"})
        denied = await told(crib, PROMPT, "Bash", {"command": "rm a"})

    assert allowed == {"decision": {"behavior": "allow"}}
    assert denied["decision"]["behavior"] == "deny"
    assert "deny Bash(rm:*)" in denied["decision"]["message"]


@pytest.mark.parametrize("event", [PRE, PROMPT])
async def test_an_edited_input_goes_back_with_the_answer(event: str) -> None:
    edit = Answer(verdict="edit", by="Ada", arguments={"command": "mkdir b"})
    async with opened() as crib:
        said = await _with(answering(crib, edit), told(crib, event, "Bash", {"command": "mkdir a"}))

    assert said.get("decision", said)["updatedInput"] == {"command": "mkdir b"}


async def test_patterns_of_files_count_from_the_project() -> None:
    async with opened(approvals={"timeout": 0.1}) as crib:
        inside = await told(crib, PRE, "Edit", {"file_path": "/a/src/x"}, project="/a")
        outside = await told(crib, PRE, "Edit", {"file_path": "/a/src/x"}, project="/b")

    assert (inside["permissionDecision"], outside["permissionDecision"]) == ("allow", "deny")


async def test_silence_is_a_deny_or_as_configured_claude_codes_own_dialog_and_that_asks_once() -> None:
    asked = ("Bash", {"command": "mkdir a"})
    async with opened(approvals={"timeout": 0.1}) as crib:
        denied = await told(crib, PRE, *asked)
        handed = await told(crib, PRE, *asked, unanswered="ask")
        dialog = await answer_hook(gate_of(crib), request(PROMPT, *asked, unanswered="ask"))
        questions = await crib.approvals.list()

    assert (denied["permissionDecision"], handed["permissionDecision"]) == ("deny", "ask")
    assert "within 0.1 s" in handed["permissionDecisionReason"]
    assert (dialog, len(questions)) == ("", 2)


async def test_in_the_mode_plan_nothing_runs_until_the_gate_has_approved_claude_codes_plan() -> None:
    plan = (PRE, "ExitPlanMode", {"plan": "1. touch a"})
    async with opened(mode="plan") as crib:
        before = await told(crib, PRE, "Bash", {"command": "touch a"})
        entered = await told(crib, PRE, "EnterPlanMode", {})
        approved = await _with(answering(crib, Answer(verdict="yes", by="Ada")), told(crib, *plan))
        after = await told(crib, PRE, "Bash", {"command": "touch a"})
        later = await answer_hook(gate_of(crib), request(*plan))

    decisions = [said["permissionDecision"] for said in (before, entered, approved, after)]
    assert decisions == ["deny", "allow", "allow", "allow"]
    assert later == ""


@pytest.mark.parametrize(
    ("event", "tool"),
    [
        ("PostToolUse", "Bash"),
        (PRE, "AskUserQuestion"),
        (PRE, "ExitPlanMode"),
        (PRE, "mcp__toolcrib__call_tool"),
    ],
)
async def test_what_is_not_the_gates_affair_is_left_to_claude_code_and_not_recorded(event: str, tool: str) -> None:
    async with opened() as crib:
        answer = await answer_hook(gate_of(crib), request(event, tool, {}))
        rows = await crib.store.calls.list()

    assert (answer, rows) == ("", [])


OURS: dict[str, Any] = {"command": "/usr/bin/toolcrib", "args": ["serve"]}


@pytest.mark.parametrize(
    ("file", "entry", "is_left"),
    [
        (".claude.json", {"mcpServers": {"toolcrib": OURS}}, True),
        (".claude.json", {"mcpServers": {"toolcrib": {"command": "evil"}}}, False),
        (".claude.json", {"projects": {"PROJECT": {"mcpServers": {"toolcrib": {"url": "http://evil"}}}}}, False),
        (".claude.json", {"projects": {"/else/where": {"mcpServers": {"toolcrib": {"command": "evil"}}}}}, True),
        ("project/.mcp.json", {"mcpServers": {"toolcrib": OURS}}, False),
        ("project/.mcp.json", {"mcpServers": {"toolcrib  x": {"command": "evil"}}}, False),
        ("project/.mcp.json", {"mcpServers": {"toolcrib-like": {"command": "fair"}}}, True),
        (".mcp.json", {"mcpServers": {"toolcrib": {"command": "evil"}}}, False),
        ("project/.mcp.json", "{", False),
    ],
)
async def test_a_server_with_our_name_skips_no_question(tmp_path: Path, file: str, entry: Any, is_left: bool) -> None:
    home = {"HOME": str(tmp_path)}
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / file).write_text(
        entry if isinstance(entry, str) else json.dumps(entry).replace("PROJECT", str(project))
    )
    rules = {"deny": ("mcp__toolcrib",)}
    async with opened(directories=Directories.of(home), environment=home, rules=rules) as crib:
        asked = request(PRE, "mcp__toolcrib__call_tool", {}, project=str(project))
        answer = await answer_hook(gate_of(crib), asked)
        with asked_from(str(project)):
            by_tool = await ask_by_tool(crib, {"tool_name": "mcp__toolcrib__call_tool", "input": {}})

    assert (answer == "", json.loads(by_tool.text)["behavior"]) == (is_left, "allow" if is_left else "deny")


async def test_our_entry_in_a_file_of_the_project_is_ours_where_connect_wrote_it(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    directories = Directories.of(home)
    file = tmp_path / ".mcp.json"
    connect(CLIENTS["claude-code"], file, OURS, state=directories.state)
    rules = {"deny": ("mcp__toolcrib",)}
    async with opened(directories=directories, environment=home, rules=rules) as crib:
        asked = request(PRE, "mcp__toolcrib__call_tool", {}, project=str(tmp_path))
        written = await answer_hook(gate_of(crib), asked)
        file.write_text(file.read_text().replace('"serve"', '"serve", "--guard", "off"'))
        changed = await answer_hook(gate_of(crib), asked)

    assert (written, json.loads(changed)["hookSpecificOutput"]["permissionDecision"]) == ("", "deny")


async def test_a_model_may_not_use_the_tool_that_asks() -> None:
    async with opened(mode="autonomous") as crib:
        by_hook = await told(crib, PRE, "mcp__toolcrib__approve", {})
        by_tool = await ask_by_tool(crib, {"tool_name": "mcp__toolcrib__approve", "input": {}})

    assert by_hook["permissionDecision"] == json.loads(by_tool.text)["behavior"] == "deny"


async def test_a_hook_that_goes_away_takes_its_question_back() -> None:
    ours, theirs = socket.socketpair()
    states: list[str] = []
    async with opened() as crib, Link(ours) as link, anyio.create_task_group() as group:
        group.start_soon(serve_hook, gate_of(crib), link, b"")
        theirs.sendall(request(PRE, "Bash", {"command": "mkdir a"}).encode())
        with anyio.fail_after(PATIENCE):
            async for approval in crib.approvals.watch():
                states.append(approval.state)
                if approval.state != "pending":
                    break
                theirs.close()

    assert states == ["pending", "cancelled"]


async def test_the_tool_is_shown_to_connections_that_ask_for_it_and_to_no_other() -> None:
    async with opened() as crib:
        plain = crib.session(profile="flat")
        served = WithApprove(crib).serve(plain)
        names = [tool["name"] for tool in json.loads(served.listing)]
        others = [tool["name"] for tool in json.loads(plain.listing)]
        refused = await plain.call("approve", {"tool_name": "Bash", "input": {"command": "touch a"}})

    assert names == [*others, "approve"]
    assert "approve" not in others
    assert refused.error is not None


async def test_the_tool_answers_in_claude_codes_words_with_the_input_that_is_to_run() -> None:
    edit = Answer(verdict="edit", by="Ada", arguments={"command": "mkdir b"})
    async with opened() as crib:

        async def ask(tool: str, **given: Any) -> dict[str, Any]:
            with asked_from("/project"):
                result = await ask_by_tool(crib, {"tool_name": tool, "input": given, "tool_use_id": "t"})
            answer: dict[str, Any] = json.loads(result.text)
            return answer

        allowed = await ask("Bash", command="touch a")
        denied = await ask("Bash", command="rm a")
        inside = await ask("Edit", file_path="/project/src/a")
        own = await ask("mcp__toolcrib__call_tool", name="x")
        lookalike = await _with(answering(crib, Answer(verdict="no", by="Ada")), ask("mcp__toolcrib__evil__call_tool"))
        edited = await _with(answering(crib, edit), ask("Bash", command="mkdir a"))

    assert allowed == {"behavior": "allow", "updatedInput": {"command": "touch a"}}
    assert (denied["behavior"], "deny Bash(rm:*)" in denied["message"]) == ("deny", True)
    assert inside["behavior"] == "allow"
    assert own == {"behavior": "allow", "updatedInput": {"name": "x"}}
    assert lookalike["behavior"] == "deny", "a server may be named toolcrib__evil"
    assert edited == {"behavior": "allow", "updatedInput": {"command": "mkdir b"}}


@pytest.mark.parametrize("given", [{}, {"tool_name": "", "input": {}}, {"tool_name": "Bash", "input": "make"}])
async def test_a_question_that_cannot_be_read_is_an_error_and_no_answer(given: dict[str, Any]) -> None:
    async with opened(mode="autonomous") as crib:
        result = await ask_by_tool(crib, given)

    assert result.error is not None
    assert result.error.code == "invalid_arguments"
