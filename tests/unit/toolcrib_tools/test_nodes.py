"""This machine as a node: programs in the sandbox, without a shell between, under the rules for commands."""

from __future__ import annotations

import json
import platform
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rig.sandbox import needs_sandbox, stands_still
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.config.settings import WorkspaceSpec
from toolcrib.core.result import ToolError
from toolcrib.crib.session import Session
from toolcrib.testing import RecordingApprover

pytestmark = pytest.mark.process


@asynccontextmanager
async def session_of(folder: Path, **options: Any) -> AsyncGenerator[Session]:
    given: dict[str, Any] = {"profile": "flat", "mode": "autonomous", **options}
    spec = WorkspaceSpec(roots=(folder,))
    async with (
        Toolcrib(bare().with_values(builtins=True, workspace=spec), memory=True) as crib,
        crib.session(**given) as session,
    ):
        yield session


async def told(session: Session, action: str, **arguments: Any) -> Any:
    result = await session.call("nodes", {"action": action, **arguments})
    assert result.error is None, result.text
    return json.loads(result.text)


async def refused(session: Session, action: str, **arguments: Any) -> ToolError:
    result = await session.call("nodes", {"action": action, **arguments})
    assert result.error is not None, result.text
    return result.error


@needs_sandbox
async def test_a_program_runs_with_its_words_its_folder_and_its_variables(folder: Path) -> None:
    (folder / "sub").mkdir()
    async with session_of(folder) as session:
        words = await told(session, "run", command=["printf", "%s|", "$HOME", "a b", ";", "*"])
        await told(session, "run", command=["touch", "made here"], cwd="sub")
        given = await told(session, "run", command=["sh", "-c", 'echo "$WORD" >&2; exit 3'], env={"WORD": "x y"})

    assert (words["exit_code"], words["stdout"], words["stderr"]) == (0, "$HOME|a b|;|*|", "")
    assert [path.name for path in (folder / "sub").iterdir()] == ["made here"]
    assert (given["exit_code"], given["stderr"]) == (3, "x y\n")


@needs_sandbox
async def test_a_summary_has_the_beginning_and_the_end(folder: Path) -> None:
    async with session_of(folder) as session:
        whole = await told(session, "run", command=["seq", "100"])
        short = await told(session, "run", command=["seq", "100"], output_handling="summary")
        few = await told(session, "run", command=["seq", "40"], output_handling="summary")

    assert whole["stdout"].splitlines() == [str(number) for number in range(1, 101)]
    assert short["stdout"].splitlines() == [
        *(str(number) for number in range(1, 21)),
        "[60 lines left out]",
        *(str(number) for number in range(81, 101)),
    ]
    assert few["stdout"].splitlines() == [str(number) for number in range(1, 41)]


@needs_sandbox
async def test_a_program_that_takes_too_long_is_ended_with_all_that_it_has_started(folder: Path) -> None:
    script = "(while :; do date +%s.%N > alive; sleep 0.05; done) & wait"
    async with session_of(folder) as session:
        refusal = await refused(session, "run", command=["sh", "-c", script], timeout_ms=2000)

        assert refusal.code == "timeout"
        await stands_still(folder / "alive")


@needs_sandbox
async def test_programs_are_found_as_commands_would_find_them(folder: Path) -> None:
    async with session_of(folder) as session:
        found = await told(session, "which", command=["sh", "no-such-program", "-v", "$(touch evil)"])

    assert found["programs"] == {
        "sh": found["programs"]["sh"],
        "no-such-program": None,
        "-v": None,
        "$(touch evil)": None,
    }
    assert Path(found["programs"]["sh"]).name == "sh"
    assert list(folder.iterdir()) == []


@needs_sandbox
async def test_the_machine_is_described(folder: Path) -> None:
    async with session_of(folder) as session:
        status = await told(session, "status")
        described = await told(session, "describe")

    assert status == {"node": "local", "online": True, "platform": platform.system(), "sandbox": "bubblewrap"}
    assert status.items() <= described.items()
    assert (described["machine"], described["folders"], described["network"]) == (
        platform.machine(),
        [str(folder)],
        False,
    )


@needs_sandbox
async def test_a_notification_is_shown_on_the_desktop_as_text(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, shown = tmp_path / "notify-send", tmp_path / "shown"
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {shown}\n")
    program.chmod(0o755)
    async with session_of(folder) as session:
        monkeypatch.setenv("PATH", str(tmp_path))
        told_by = await told(session, "notify", title="--urgency=critical", message="<b>done</b>")

    assert told_by == {"node": "local", "shown_by": "desktop"}
    assert shown.read_text().splitlines() == [
        *("--app-name=Toolcrib", "--", "--urgency=critical", "&lt;b&gt;done&lt;/b&gt;"),
    ]


@needs_sandbox
async def test_a_notification_that_nobody_would_see_is_a_failure(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with session_of(folder) as session:
        monkeypatch.setenv("PATH", str(tmp_path))
        refusal = await refused(session, "notify", message="done")

    assert (refusal.code, "there is no notify-send here" in refusal.message) == ("unavailable", True)


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"action": "run"}, "invalid_arguments", "a list of words is needed"),
    ({"action": "which", "command": []}, "invalid_arguments", "a list of words is needed"),
    ({"action": "status", "node": "laptop"}, "not_found", "there is no node 'laptop'"),
    ({"action": "notify"}, "invalid_arguments", "what is to be shown is missing"),
    ({"action": "run", "command": ["ls"], "cwd": "gone"}, "not_found", "there is no 'gone'"),
    ({"action": "run", "command": ["ls"], "cwd": ".."}, "denied", "goes up"),
    ({"action": "run", "command": ["ls"], "env": {"A=B": "1"}}, "invalid_arguments", "'A=B' cannot be a variable"),
    ({"action": "whitelist_add", "command": ["rm"]}, "invalid_arguments", "action"),
]


@needs_sandbox
async def test_what_cannot_be_done_is_refused(folder: Path) -> None:
    async with session_of(folder) as session:
        results = [await session.call("nodes", arguments) for arguments, _, _ in REFUSED]
        missing = await told(session, "run", command=["no-such-program"])

    told_of = [(result.error.code, result.error.message) if result.error else ("", result.text) for result in results]
    assert [code for code, _ in told_of] == [code for _, code, _ in REFUSED]
    assert [message for (_, message), (_, _, said) in zip(told_of, REFUSED, strict=True) if said not in message] == []
    assert (missing["exit_code"], "no-such-program" in missing["stderr"]) == (127, True)


@needs_sandbox
async def test_rules_for_commands_hold_and_what_cannot_be_taken_back_is_asked_for(folder: Path) -> None:
    (folder / "kept").write_text("x")
    approver = RecordingApprover("no")
    rules = {"deny": ["Bash(curl *)"]}
    async with session_of(folder, approver=approver, rules=rules) as session:
        denied = await refused(session, "run", command=["curl", "http://example.org"])
        asked = await refused(session, "run", command=["rm", "-rf", "/"])
    async with session_of(folder, approver=approver, mode="cautious") as session:
        seen = await told(session, "run", command=["ls"])
        changed = await refused(session, "run", command=["ls"], env={"LD_PRELOAD": "./evil.so"})

    assert (denied.code, asked.code, changed.code) == ("denied", "denied", "denied")
    assert [question.arguments["command"] for question in approver.questions] == [["rm", "-rf", "/"], ["ls"]]
    assert seen["stdout"] == "kept\n"


async def test_without_a_workspace_there_is_no_node() -> None:
    async with Toolcrib(bare().with_values(builtins=True), memory=True) as crib:
        result = await crib.session(profile="flat").call("nodes", {"action": "status"})

    assert result.error is not None
    assert result.error.code == "not_found"
