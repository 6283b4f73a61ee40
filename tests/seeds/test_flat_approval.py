"""Seed 002's approvals: three inputs in one order, by which the first that speaks decides and is named."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from seeds.rigging import seeded
from toolcrib.core.permission import Answer, Effect, Question
from toolcrib.crib import Session, Toolcrib
from toolcrib.policy.modes import MODES, Mode
from toolcrib.testing import RecordingApprover

Row = tuple[str, str, str, dict[str, Effect], Literal["run", "ask"], str]
"""What the row says, the call, the mode, the permissions, what becomes of the call, and who decided."""


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    async with seeded("flat") as opened:
        yield opened


def flat(crib: Toolcrib, folder: Path, **options: Any) -> Session:
    return crib.session(profile="flat", cwd=folder, **options)


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


@pytest.mark.parametrize("row", PRIORITY, ids=lambda row: row[0])
@pytest.mark.parametrize("said_by", ["mode", "global"])
async def test_the_first_of_the_inputs_that_speaks_decides_and_is_named(row: Row, said_by: str, tmp_path: Path) -> None:
    _, call, base, permissions, expected, source = row
    mode = mode_of(base, permissions if said_by == "mode" else {})
    everywhere: dict[str, Effect] = permissions if said_by == "global" else {}
    found, rule, _ = await outcome(call, tmp_path, mode, everywhere)
    assert (found, rule.replace("mode mine", f"mode {base}").startswith(source)) == (expected, True)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("base", MODES)
async def test_an_explicit_deny_comes_before_everything(call: str, base: str, tmp_path: Path) -> None:
    name = CALLS[call][0]
    found, rule, text = await outcome(call, tmp_path, mode_of(base, {name: "deny"}), {name: "allow"})
    assert (found, rule) == ("deny", f"deny {name} (tools of mode mine)")
    assert text.startswith("Tool call denied by policy: ")


async def test_what_the_mode_says_of_a_tool_replaces_what_all_modes_say(tmp_path: Path) -> None:
    found, rule, _ = await outcome(
        "write_file", tmp_path, mode_of("manual", {"write_file": "allow"}), {"write_file": "deny"}
    )
    assert (found, rule) == ("run", "allow write_file (tools of mode mine)")


async def test_a_written_deny_rule_wins_over_what_a_mode_allows(tmp_path: Path) -> None:
    found, rule, _ = await outcome(
        "write_file", tmp_path, mode_of("cautious", {"write_file": "allow"}), {}, deny=("write_file",)
    )
    assert (found, rule) == ("deny", "deny write_file (config)")


async def outcome(
    call: str, folder: Path, mode: Mode, everywhere: Mapping[str, Effect], **settings: Any
) -> tuple[str, str, str]:
    """Return whether the call ran, was asked for or was denied; by which rule; and what the model reads."""
    modes = {**MODES, "mine": mode}
    async with seeded("flat", modes=modes, mode="mine", tool_permissions=everywhere, **settings) as crib:
        approver = RecordingApprover("no")
        result = await flat(crib, folder, approver=approver).call(*CALLS[call])
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
    results = [await flat(crib, tmp_path, mode=mode).call(*CALLS["rm"]) for mode in MODES]
    assert [result.text.partition(":")[0] for result in results] == ["Tool call denied"] * len(MODES)
    assert all("there is nobody to ask" in result.text for result in results)


async def test_an_exception_in_the_gate_is_a_denial(crib: Toolcrib, tmp_path: Path) -> None:
    async def broken(question: Question) -> Answer:
        raise RuntimeError("no window")

    result = await flat(crib, tmp_path, mode="cautious", approver=broken).call(*CALLS["write_file"])
    assert (result.is_error, list(tmp_path.iterdir())) == (True, [])


async def test_a_tool_that_asks_always_asks_every_time_even_after_always(crib: Toolcrib) -> None:
    approver = RecordingApprover("always")
    session = crib.session(profile="flat", approver=approver)
    for _ in range(3):
        await session.call(*CALLS["update_setting"])
    assert len(approver.questions) == 3
