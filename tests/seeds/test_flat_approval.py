"""Seed 002's approvals: three inputs in one order, by which the first that speaks decides and is named."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from rig.sandbox import needs_sandbox
from seeds.rigging import built_in
from toolcrib.core.permission import Answer, Effect, Question
from toolcrib.crib import Session, Toolcrib
from toolcrib.errors import ToolFailure
from toolcrib.policy.modes import MODES, Mode
from toolcrib.testing import RecordingApprover

Row = tuple[str, str, str, dict[str, Effect], Literal["run", "ask"], str]
"""What the row says, the call, the mode, the permissions, what becomes of the call, and who decided."""


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    async with built_in() as opened:
        yield opened


def flat(crib: Toolcrib, folder: Path, **options: Any) -> Session:
    known: dict[str, Any] = {"profile": "flat", "workspace": folder, **options}
    return crib.session(**known)


def mode_of(base: str, tools: Mapping[str, Effect]) -> Mode:
    return replace(MODES[base], name="mine", tools=tools)


PRIORITY: list[Row] = [
    ("1 always-ask tools ask", "update_setting", "autonomous", {"update_setting": "allow"}, "ask", "approval always"),
    ("2 irrecoverable asks", "rm", "autonomous", {"run_command": "allow"}, "ask", "irrecoverable: rm -rf"),
    ("3 explicit allow runs", "write_file", "manual", {"write_file": "allow"}, "run", "allow write_file"),
    ("4 explicit ask asks", "list_directory", "autonomous", {"list_directory": "ask"}, "ask", "ask list_directory"),
    ("5 manual asks for everything", "list_directory", "manual", {}, "ask", "mode manual"),
    ("6 cautious asks for what needs approval", "write_file", "cautious", {}, "ask", "mode cautious"),
    ("7 cautious runs the others", "list_directory", "cautious", {}, "run", "mode cautious"),
    ("8 autonomous runs", "write_file", "autonomous", {}, "run", "mode autonomous"),
]
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "update_setting": ("update_setting", {"key": "model", "value": "m"}),
    "rm": ("run_command", {"command": "rm -rf build"}),
    "write_file": ("write_file", {"path": "a.txt", "content": "A"}),
    "list_directory": ("list_directory", {}),
}


@pytest.mark.parametrize(
    ("row", "said_by"),
    [
        pytest.param(row, said_by, id=f"{row[0]}, {said_by}")
        for row in PRIORITY
        for said_by in (("mode", "global") if row[3] else ("base",))
    ],
)
async def test_the_first_of_the_inputs_that_speaks_decides_and_is_named(row: Row, said_by: str, tmp_path: Path) -> None:
    _, call, base, permissions, expected, source = row
    mode = mode_of(base, permissions if said_by == "mode" else {})
    everywhere: dict[str, Effect] = permissions if said_by == "global" else {}
    found, rule, _ = await outcome(call, tmp_path, mode, everywhere)
    assert (found, rule.replace("mode mine", f"mode {base}").startswith(source)) == (expected, True)


@pytest.mark.parametrize("base", MODES)
async def test_an_explicit_deny_comes_before_everything(base: str, tmp_path: Path) -> None:
    names = [name for name, _ in CALLS.values()]
    async with opened(mode_of(base, dict.fromkeys(names, "deny")), dict.fromkeys(names, "allow")) as crib:
        found = {name: await outcome_in(crib, call, tmp_path) for call, (name, _) in CALLS.items()}

    assert {name: (verdict, rule) for name, (verdict, rule, _) in found.items()} == {
        name: ("deny", f"deny {name} (tools of mode mine)") for name in names
    }
    assert all(text.startswith("Tool call denied by policy: ") for _, _, text in found.values())


async def test_what_the_mode_says_of_a_tool_replaces_what_all_modes_say(tmp_path: Path) -> None:
    found, rule, _ = await outcome(
        "write_file", tmp_path, mode_of("manual", {"write_file": "allow"}), {"write_file": "deny"}
    )
    assert (found, rule) == ("run", "allow write_file (tools of mode mine)")


async def test_a_written_deny_rule_wins_over_what_a_mode_allows(tmp_path: Path) -> None:
    found, rule, _ = await outcome(
        "write_file", tmp_path, mode_of("cautious", {"write_file": "allow"}), {}, rules={"deny": ("write_file",)}
    )
    assert (found, rule) == ("deny", "deny write_file (config)")


def opened(mode: Mode, everywhere: Mapping[str, Effect], **settings: Any) -> AbstractAsyncContextManager[Toolcrib]:
    return built_in(modes={**MODES, "mine": mode}, mode="mine", tool_permissions=everywhere, **settings)


async def outcome(
    call: str, folder: Path, mode: Mode, everywhere: Mapping[str, Effect], **settings: Any
) -> tuple[str, str, str]:
    async with opened(mode, everywhere, **settings) as crib:
        return await outcome_in(crib, call, folder)


async def outcome_in(crib: Toolcrib, call: str, folder: Path) -> tuple[str, str, str]:
    """Return whether the call ran, was asked for or was denied; by which rule; and what the model reads."""
    approver = RecordingApprover("no")
    result = await flat(crib, folder, key=call, approver=approver).call(*CALLS[call])
    if approver.questions:
        return "ask", approver.questions[0].decision.rule, result.text
    rule = result.error.details["rule"] if result.error else result.meta["rule"]
    return ("deny" if result.is_error else "run"), rule, result.text


async def test_a_call_that_the_user_denies_does_not_run(crib: Toolcrib, tmp_path: Path) -> None:
    result = await flat(crib, tmp_path, mode="cautious", approver=RecordingApprover("no")).call(*CALLS["write_file"])
    assert (result.text, list(tmp_path.iterdir())) == ("Tool call denied by user.", [])


async def test_the_comment_of_a_denial_reaches_the_model(crib: Toolcrib, tmp_path: Path) -> None:
    async def refuses(question: Question) -> Answer:
        return Answer(verdict="no", comment="use notes.md")

    result = await flat(crib, tmp_path, mode="cautious", approver=refuses).call(*CALLS["write_file"])
    assert result.text == "Tool call denied by user.\nuse notes.md"


async def test_without_a_user_interface_what_must_be_asked_does_not_run(crib: Toolcrib, tmp_path: Path) -> None:
    modes = [mode for mode in MODES if mode != "plan"]
    results = [await flat(crib, tmp_path, mode=mode).call(*CALLS["rm"]) for mode in modes]
    assert [result.text.partition(":")[0] for result in results] == ["Tool call denied"] * len(modes)
    refusals = [result.error for result in results if result.error is not None]
    assert [refusal.details["reason"] for refusal in refusals] == ["no_approver"] * len(modes)


async def test_a_tool_that_asks_always_asks_every_time_even_after_always(crib: Toolcrib) -> None:
    approver = RecordingApprover("always")
    session = crib.session(profile="flat", approver=approver)
    for _ in range(3):
        await session.call(*CALLS["update_setting"])
    assert len(approver.questions) == 3


async def text_of(session: Session, name: str, **arguments: Any) -> str:
    """Return what the tool said, which ran."""
    result = await session.call(name, arguments)
    assert not result.is_error, result.text
    return result.text.rstrip("\n")


async def test_in_review_each_file_is_accepted_or_rejected(crib: Toolcrib, tmp_path: Path) -> None:
    session = flat(crib, tmp_path, workspace=tmp_path, mode="review")
    for name in ("a.txt", "b.txt"):
        await text_of(session, "write_file", path=name, content=name)
    await crib.changes.accept("a.txt")
    await crib.changes.reject("b.txt")
    assert await text_of(session, "list_directory") == "a.txt  5"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


async def test_in_audit_the_whole_batch_takes_place_or_nothing(crib: Toolcrib, tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("b")
    session = flat(crib, tmp_path, workspace=tmp_path, mode="audit")
    for name in ("a.txt", "b.txt", "c.txt"):
        await text_of(session, "write_file", path=name, content="new")
    (tmp_path / "b.txt").write_text("changed underneath")
    with pytest.raises(ToolFailure, match=r"b\.txt"):
        await crib.changes.accept()
    assert [path.name for path in tmp_path.iterdir()] == ["b.txt"]
    assert list(await crib.changes.accept(on_conflict="overwrite")) == ["a.txt", "b.txt", "c.txt"]
    assert {path.read_text() for path in tmp_path.iterdir()} == {"new"}


async def test_in_plan_the_first_turn_has_no_tools_and_its_approval_starts_autonomous_work(
    crib: Toolcrib, tmp_path: Path
) -> None:
    approver = RecordingApprover("yes", "no")
    session = flat(crib, tmp_path, workspace=tmp_path, mode="plan", approver=approver)
    assert {tool.name for tool in session.tools} == {"ask_user", "hitl", "request_clarification", "submit_plan"}
    refused = await session.call(*CALLS["write_file"])
    assert "mode plan: no tool runs until the plan is approved" in refused.text
    await session.approve_plan("1. Write a.txt.")
    await text_of(session, "write_file", path="a.txt", content="A")
    assert (await session.call(*CALLS["rm"])).is_error
    assert [question.tool.name for question in approver.questions] == ["submit_plan", "run_command"]


@needs_sandbox
@pytest.mark.process
async def test_a_shadow_is_where_the_relative_paths_of_every_tool_begin(crib: Toolcrib, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    session = crib.session(profile="flat", workspace=tmp_path, shadow=True, task="t1")
    await text_of(session, "write_file", path="a.txt", content="A")
    shadow = tmp_path / ".toolcrib" / "shadows" / "t1"
    assert await text_of(session, "run_command", command="pwd") == str(shadow)
    assert ((shadow / "a.txt").read_text(), (tmp_path / "a.txt").exists()) == ("A", False)
    await crib.shadows.merge("t1", workspace=tmp_path)
    assert (tmp_path / "a.txt").read_text() == "A"
