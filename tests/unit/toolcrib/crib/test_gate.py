"""The gate for Claude Code: rules, modes and answers decide what its tools may do, and each decision is recorded."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from rig import PATIENCE
from toolcrib.claude_code.gate import ClaudeUse, Ruling, gate_of
from toolcrib.config import bare
from toolcrib.core.context import Context
from toolcrib.core.permission import Answer, Approval
from toolcrib.core.result import ToolResult
from toolcrib.crib import Toolcrib
from toolcrib.errors import UsageError
from toolcrib.testing import ScriptedSource


@asynccontextmanager
async def opened(**settings: Any) -> AsyncGenerator[Toolcrib]:
    async with Toolcrib(bare().with_values(**settings), memory=True) as crib:
        yield crib


def use(tool: str, *, conversation: str = "one", cwd: Path = Path("/project"), **arguments: Any) -> ClaudeUse:
    return ClaudeUse(tool=tool, arguments=arguments, conversation=conversation, cwd=cwd)


async def answered(crib: Toolcrib, asked: ClaudeUse, answer: Answer) -> tuple[Ruling, Approval]:
    """Decide on a use, and answer the question that it becomes."""
    rulings: list[Ruling] = []
    approvals: list[Approval] = []

    async def decide() -> None:
        rulings.append(await gate_of(crib).decide(asked))

    async with anyio.create_task_group() as group:
        group.start_soon(decide)
        with anyio.fail_after(PATIENCE):
            async for approval in crib.approvals.watch():
                if approval.state == "pending":
                    approvals.append(approval)
                    await crib.approvals.decide(approval.id, answer)
                    break
    return rulings[0], approvals[0]


@pytest.mark.parametrize(
    ("tool", "arguments", "behavior", "rule"),
    [
        ("Bash", {"command": "git status"}, "allow", "mode cautious: a command that only reads is allowed"),
        ("Bash", {"command": "make && make test"}, "allow", "allow Bash(make:*) (config)"),
        ("Bash", {"command": "make; git push -f"}, "deny", "deny Bash(git push:*) (config)"),
        ("Monitor", {"command": "git push"}, "deny", "deny Bash(git push:*) (config)"),
        ("Edit", {"file_path": "/project/src/a.py"}, "allow", "allow Edit(./src/**) (config)"),
        ("Write", {"file_path": "/project/src/a.py"}, "allow", "allow Edit(./src/**) (config)"),
        ("Read", {"file_path": "/project/.env"}, "deny", "deny Read(.env) (config)"),
        ("Read", {"file_path": "/project/a"}, "allow", "mode cautious: a read tool is allowed"),
        ("WebFetch", {"url": "https://docs.python.org/3/"}, "allow", "allow WebFetch(domain:docs.python.org) (config)"),
        ("mcp__github__get_issue", {"number": 1}, "allow", "allow mcp__github__get_issue (config)"),
        ("mcp__shady__x", {}, "deny", "deny mcp__shady (config)"),
        ("TodoWrite", {"todos": []}, "allow", "mode cautious: a read tool is allowed"),
    ],
)
async def test_rules_and_modes_decide_on_claude_codes_tools(
    tool: str, arguments: dict[str, Any], behavior: Any, rule: str
) -> None:
    allow = ("Bash(make:*)", "Edit(./src/**)", "WebFetch(domain:docs.python.org)", "mcp__github__get_issue")
    deny = ("Bash(git push:*)", "Read(.env)", "mcp__shady")
    async with opened(rules={"allow": allow, "deny": deny}) as crib:
        ruling = await gate_of(crib).decide(use(tool, **arguments))
        [row] = await crib.store.calls.list()

    assert (ruling.behavior, ruling.arguments, ruling.rule) == (behavior, arguments, rule)
    assert (row.tool, row.origin, row.decision, row.rule) == (tool, "claude", behavior, rule)
    assert (rule in ruling.message) is (behavior == "deny")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Bash", {"command": "make"}),
        ("Edit", {"file_path": "/project/a", "old_string": "a", "new_string": "b"}),
        ("WebFetch", {"url": "https://example.org", "prompt": "x"}),
        ("WebSearch", {"query": "x"}),
        ("mcp__any__thing", {"a": 1}),
        ("SomethingNew", {}),
        ("ExitPlanMode", {"plan": "1. Do it."}),
    ],
)
async def test_what_nobody_decided_is_asked_and_silence_is_a_no(tool: str, arguments: dict[str, Any]) -> None:
    async with opened(approvals={"timeout": 0.1}) as crib:
        ruling = await gate_of(crib).decide(use(tool, **arguments))
        [approval] = await crib.approvals.list()
        [row] = await crib.store.calls.list()

    assert (ruling.behavior, ruling.unanswered) == ("deny", True)
    assert "within 0.1 s" in ruling.message
    assert (approval.state, json.loads(approval.arguments)) == ("expired", arguments)
    assert (row.outcome, row.decision) == ("denied", "ask")


async def test_a_yes_runs_exactly_what_was_asked_and_says_who_gave_it() -> None:
    async with opened() as crib:
        ruling, approval = await answered(crib, use("Bash", command="make"), Answer(verdict="yes", by="Ada"))
        [row] = await crib.store.calls.list()

    assert (ruling.behavior, ruling.arguments) == ("allow", {"command": "make"})
    assert (approval.tool, approval.session) == ("Bash", "claude:one")
    assert row.rule.startswith("approved by Ada")


async def test_an_edit_runs_what_the_answer_says_unless_a_rule_denies_it() -> None:
    fine = Answer(verdict="edit", by="Ada", arguments={"command": "make test"})
    bad = Answer(verdict="edit", by="Ada", arguments={"command": "rm -r build"})
    async with opened(rules={"deny": ("Bash(rm:*)",)}) as crib:
        changed, _ = await answered(crib, use("Bash", command="make"), fine)
        denied, _ = await answered(crib, use("Bash", command="make"), bad)

    assert (changed.behavior, changed.arguments) == ("allow", {"command": "make test"})
    assert denied.behavior == "deny"
    assert "deny Bash(rm:*)" in denied.message


async def test_a_comment_is_what_the_model_reads() -> None:
    async with opened() as crib:
        no = Answer(verdict="comment", by="Ada", comment="not on Fridays")
        ruling, _ = await answered(crib, use("Bash", command="make"), no)

    assert (ruling.behavior, ruling.unanswered) == ("deny", False)
    assert ruling.message.startswith("Ada refused Bash: not on Fridays.")


async def test_always_and_never_hold_for_their_conversation_alone() -> None:
    async with opened() as crib:
        decide = gate_of(crib).decide
        await answered(crib, use("Bash", command="make"), Answer(verdict="always", by="Ada"))
        await answered(crib, use("WebSearch", query="x"), Answer(verdict="never", by="Ada"))
        again = [await decide(use("Bash", command="make")), await decide(use("WebSearch", query="y"))]
        other, _ = await answered(crib, use("Bash", conversation="two", command="make"), Answer(verdict="no", by="Ada"))

    assert [ruling.behavior for ruling in again] == ["allow", "deny"]
    assert other.behavior == "deny"


async def test_a_question_shows_what_would_change_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\n")
    edit = {"file_path": str(tmp_path / "a.py"), "old_string": "two", "new_string": "three"}
    async with opened() as crib:
        _, approval = await answered(crib, use("Edit", cwd=tmp_path, **edit), Answer(verdict="no", by="Ada"))

    assert "-two\n+three\n" in approval.diff


async def test_secrets_are_masked_where_people_look_and_reach_claude_code_whole() -> None:
    token = "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"
    command = f"curl -H 'Authorization: Bearer {token}' https://example.org"
    async with opened() as crib:
        ruling, approval = await answered(crib, use("Bash", command=command), Answer(verdict="yes", by="Ada"))
        [row] = await crib.store.calls.list()

    assert ruling.arguments == {"command": command}
    assert token not in approval.arguments + row.arguments


async def test_what_was_fetched_from_strangers_makes_later_effects_a_question() -> None:
    async with opened(mode="autonomous", approvals={"timeout": 0.1}) as crib:
        decide = gate_of(crib).decide
        before = await decide(use("Bash", command="make"))
        await decide(use("WebFetch", url="https://example.org", prompt="x"))
        after = await decide(use("Bash", command="make"))

    assert (before.behavior, after.behavior) == ("allow", "deny")
    assert "untrusted content (WebFetch)" in after.rule


async def test_a_tool_of_the_catalog_with_such_a_name_is_never_run() -> None:
    ran: list[str] = []

    async def body(arguments: Any, context: Context) -> ToolResult:
        ran.append("Bash")
        return ToolResult.of_text("")

    async with opened(mode="autonomous") as crib:
        await crib.tools.mount_source(ScriptedSource("own", {"Bash": body}), prefix=False)
        ruling = await gate_of(crib).decide(use("Bash", command="make"))

    assert (ruling.behavior, ran) == ("allow", [])


async def test_nobody_else_sees_or_calls_claude_codes_tools() -> None:
    async with opened(mode="autonomous") as crib:
        await gate_of(crib).decide(use("Bash", command="make"))
        session = crib.session()
        called = await session.call("Bash", {"command": "make"})
        shown = [tool.name for tool in session.tools]

    assert called.error is not None
    assert called.error.code == "not_found"
    assert "Bash" not in [*shown, *crib.catalog.tools]
    assert crib.tools.sources == ()


async def test_a_caller_that_leaves_takes_its_question_back() -> None:
    async with opened() as crib:
        async with anyio.create_task_group() as group:
            group.start_soon(gate_of(crib).decide, use("Bash", command="make"))
            with anyio.fail_after(PATIENCE):
                async for _ in crib.approvals.watch():
                    break
            group.cancel_scope.cancel()
        [approval] = await crib.approvals.list()

    assert approval.state == "cancelled"


async def test_a_mode_that_does_not_exist_is_told() -> None:
    async with opened() as crib:
        with pytest.raises(UsageError, match="'carefull'"):
            await gate_of(crib).decide(replace(use("Bash", command="make"), mode="carefull"))
