"""Modes of a session: what is asked, where changes go, plans, shadows, and going from one mode to another."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from toolcrib.config import bare
from toolcrib.config.settings import WorkspaceSpec
from toolcrib.core.context import Context
from toolcrib.core.json import fields_of
from toolcrib.core.permission import Answer, Question
from toolcrib.core.result import ToolResult
from toolcrib.core.saved_call import SavedCall, SavedSession
from toolcrib.core.workspace import Workspace
from toolcrib.crib import Session, Toolcrib
from toolcrib.crib.options import SessionOptions
from toolcrib.errors import ToolFailure, UsageError
from toolcrib.policy.modes import ModeSettings, resolve_modes
from toolcrib.sources.python import tool
from toolcrib.testing import RecordingApprover


def files_of(ctx: Context) -> Workspace:
    assert ctx.workspace is not None
    return ctx.workspace


@tool(kind="write", traits=["file_writer"], needs=["workspace"])
async def put(path: str, text: str, ctx: Context) -> str:
    """Write a file."""
    await files_of(ctx).write(path, text.encode())
    return "written"


@tool(kind="read", needs=["workspace"])
async def get(path: str, ctx: Context) -> str:
    """Read a file."""
    return (await files_of(ctx).read(path)).decode()


@tool(kind="read", needs=["workspace"])
async def where(ctx: Context) -> str:
    """Say where relative paths begin."""
    assert files_of(ctx).root == ctx.cwd
    return str(ctx.cwd)


@tool(kind="write")
async def send(text: str) -> str:
    """Send something away."""
    return f"sent {text}"


@tool(kind="write", approval="always")
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(kind="read", traits=["asks_user"])
async def ask(question: str) -> str:
    """Ask the user."""
    return f"answer to {question}"


MODES = resolve_modes(
    {
        "careful": ModeSettings(extends="review", prompt="Work in small steps.", tools={"send": "deny"}),
        "apart": ModeSettings(extends="autonomous", shadow=True),
    }
)


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    async with Toolcrib(bare().with_values(modes=MODES), memory=True) as opened:
        opened.add(put, get, where, send, pay, ask)
        yield opened


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    return folder


async def put_a(session: Session, text: str = "A") -> ToolResult:
    return await session.call("put", {"path": "a.txt", "text": text})


async def a_of(session: Session) -> str:
    return (await session.call("get", {"path": "a.txt"})).text


@pytest.mark.parametrize("mode", ["review", "audit", "careful"])
async def test_a_write_of_files_runs_unasked_and_waits(crib: Toolcrib, root: Path, mode: str) -> None:
    approver = RecordingApprover("no")
    session = crib.session(workspace=root, mode=mode, approver=approver)
    written = await put_a(session)
    assert (written.text, written.meta["rule"]) == ("written", f"mode {mode}: changes of files wait for review")
    assert (await a_of(session), (root / "a.txt").read_text(), approver.questions) == ("A", "a", [])
    [waiting] = await crib.changes.list()
    assert (waiting.path, waiting.kind, waiting.files) == ("a.txt", "file", "audit" if mode == "audit" else "review")
    assert "+A" in await crib.changes.diff("a.txt")
    assert await crib.changes.accept() == ["a.txt"]
    assert ((root / "a.txt").read_text(), await crib.changes.list()) == ("A", [])


@pytest.mark.parametrize("mode", ["review", "audit"])
async def test_every_other_write_asks_in_review_and_audit(crib: Toolcrib, root: Path, mode: str) -> None:
    approver = RecordingApprover("yes")
    session = crib.session(workspace=root, mode=mode, approver=approver)
    await session.call("send", {"text": "x"})
    await session.call("pay", {"amount": 1})
    rules = [question.decision.rule for question in approver.questions]
    assert rules == [f"mode {mode}: a write tool is asked for", "approval always: pay asks in every mode"]


async def test_the_tools_of_a_mode_of_ones_own_hold(crib: Toolcrib, root: Path) -> None:
    result = await crib.session(workspace=root, mode="careful").call("send", {"text": "x"})
    assert result.error is not None
    assert result.error.details["rule"] == "deny send (tools of mode careful)"


async def test_the_prompt_of_a_mode_is_part_of_the_instructions(crib: Toolcrib) -> None:
    session = crib.session(mode="careful")
    plain = crib.session(mode="autonomous").instructions
    assert session.instructions == "\n\n".join(filter(None, (plain, "Work in small steps.")))
    session.mode = "autonomous"
    assert session.instructions == plain


async def test_going_to_another_mode_keeps_what_waits(crib: Toolcrib, root: Path) -> None:
    session = crib.session(workspace=root, mode="review")
    await put_a(session)
    session.mode = "autonomous"
    assert (session.mode, await a_of(session)) == ("autonomous", "a")
    await session.call("put", {"path": "b.txt", "text": "B"})
    assert (root / "b.txt").read_text() == "B"
    session.mode = "review"
    assert (await a_of(session), [file.path for file in await crib.changes.list()]) == ("A", ["a.txt"])


async def test_a_mode_that_does_not_exist_changes_nothing(crib: Toolcrib) -> None:
    session = crib.session(mode="review")
    with pytest.raises(UsageError, match="'reveiw'"):
        session.mode = "reveiw"
    assert session.mode == "review"


async def test_the_next_session_of_a_task_sees_what_waits_and_others_do_not(crib: Toolcrib, root: Path) -> None:
    await put_a(crib.session(workspace=root, mode="review", task="t"))
    seen = [await a_of(crib.session(workspace=root, mode="audit", task=task)) for task in ("t", "u")]
    assert seen == ["A", "a"]


async def test_a_saved_call_is_made_again_in_the_workspace_and_the_task_of_its_session(
    crib: Toolcrib, root: Path
) -> None:
    state = crib.session(workspace=root, mode="review", task="t").state
    session = SavedSession.from_json(json.loads(json.dumps(fields_of(SavedSession.of(state)))))
    assert session == SavedSession.of(state)
    definition = crib.catalog.tools["put"].digest.hex()
    arguments = {"path": "a.txt", "text": "A"}
    saved = SavedCall(id="call-1", name="put", arguments=arguments, session=session, definition=definition)
    async with Toolcrib(bare().with_values(modes=MODES), memory=True) as later:
        later.add(put, get)
        assert (await later.parts.saved_calls.make(saved)).text == "written"
        assert [(one.owner, one.path) for one in await later.changes.list()] == [("task t", "a.txt")]
    assert (root / "a.txt").read_text() == "a"


async def test_where_several_have_changes_one_must_be_named(crib: Toolcrib, root: Path) -> None:
    for task in ("t", "u"):
        await put_a(crib.session(workspace=root, mode="review", task=task), task)
    with pytest.raises(ToolFailure, match="several have changes that wait"):
        await crib.changes.accept()
    await crib.changes.reject(owner="task t")
    assert await crib.changes.accept(owner="task u") == ["a.txt"]
    assert (root / "a.txt").read_text() == "u"


async def test_others_changes_do_not_exist_for_a_principal(crib: Toolcrib, root: Path) -> None:
    await put_a(crib.session(workspace=root, mode="review", principal="mallory"))
    assert (await crib.changes.list(), [one.path for one in await crib.changes.list(principal="mallory")]) == (
        [],
        ["a.txt"],
    )


async def test_a_session_that_wants_no_files_has_none_whatever_is_configured(root: Path) -> None:
    settings = bare().with_values(workspace=WorkspaceSpec(roots=(root,)))
    async with Toolcrib(settings, memory=True) as crib:
        crib.add(get)
        configured, without = crib.session(), crib.session(workspace=None, key="k")
        without.mode = "autonomous"
        assert (await configured.call("get", {"path": "a.txt"})).text == "a"
        for session in (without, crib.session(key="k")):
            assert session.state.files.workspace is None
            assert (await session.call("get", {"path": "a.txt"})).is_error


async def test_without_a_workspace_a_tool_that_needs_one_is_out_of_scope(crib: Toolcrib) -> None:
    session = crib.session(mode="autonomous")
    assert "put" not in [tool.name for tool in session.tools]
    assert (await put_a(session)).is_error


@pytest.mark.parametrize("given", ["nowhere", 3, [], ["a", 3]])
async def test_a_workspace_that_is_no_folder_is_a_usage_error(crib: Toolcrib, given: Any) -> None:
    with pytest.raises(UsageError, match="workspace"):
        crib.session(workspace=given)


async def test_before_its_plan_a_session_shows_what_asks_the_user_and_refuses_the_rest(
    crib: Toolcrib, root: Path
) -> None:
    session = crib.session(workspace=root, mode="plan", approver=RecordingApprover("yes"))
    assert [tool.name for tool in session.tools] == ["ask", "submit_plan"]
    assert "No tool runs until the plan is approved" in session.instructions
    refused = await put_a(session)
    assert refused.error is not None
    assert (refused.error.code, refused.error.details["rule"]) == (
        "denied",
        "mode plan: no tool runs until the plan is approved",
    )
    assert (await session.call("ask", {"question": "which?"})).text == "answer to which?"


async def test_an_approved_plan_starts_autonomous_work(crib: Toolcrib, root: Path) -> None:
    approver = RecordingApprover("yes")
    session = crib.session(workspace=root, mode="plan", approver=approver)
    approved = await session.approve_plan("1. Write a.txt.")
    [question] = approver.questions
    assert (question.tool.name, question.arguments, question.decision.rule) == (
        "submit_plan",
        {"plan": "1. Write a.txt."},
        "mode plan: submit_plan is asked for",
    )
    assert "1. Write a.txt." in approved.text
    assert "put" in [tool.name for tool in session.tools]
    assert "submit_plan" not in [tool.name for tool in session.tools]
    assert (await put_a(session)).meta["rule"] == "mode plan: a write tool is allowed"
    await session.call("pay", {"amount": 1})
    assert [asked.tool.name for asked in approver.questions] == ["submit_plan", "pay"]


async def test_a_refused_plan_leaves_the_session_planning_and_the_comment_reaches_the_model(crib: Toolcrib) -> None:
    async def refuses(question: Question) -> Answer:
        return Answer(verdict="comment", comment="add a test")

    session = crib.session(mode="plan", approver=refuses)
    result = await session.approve_plan("1. Do it.")
    assert (result.is_error, "add a test" in result.text) == (True, True)
    assert (await session.call("send", {"text": "x"})).is_error


@pytest.mark.parametrize("profile", ["adaptive", "tiered", "gateway", "flat", "introspection", "selection"])
async def test_a_plan_is_submitted_and_approved_in_every_profile(crib: Toolcrib, profile: str) -> None:
    session = crib.session(mode="plan", profile=profile, approver=RecordingApprover("yes"))
    assert "submit_plan" in [tool.name for tool in session.tools]
    assert (await session.call("send", {"text": "x"})).is_error
    assert not (await session.approve_plan("1. Send it.")).is_error
    assert not session.state.scope.planning


async def test_without_anybody_to_ask_no_plan_is_approved(crib: Toolcrib) -> None:
    session = crib.session(mode="plan")
    assert (await session.approve_plan("1. Do it.")).is_error
    assert (await session.call("send", {"text": "x"})).is_error


async def test_entering_the_mode_again_wants_a_new_plan(crib: Toolcrib) -> None:
    session = crib.session(mode="plan", approver=RecordingApprover("yes"))
    await session.approve_plan("1.")
    assert not (await session.call("send", {"text": "x"})).is_error
    session.mode = "autonomous"
    session.mode = "plan"
    assert (await session.call("send", {"text": "x"})).is_error


def repository(root: Path) -> None:
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
        subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


@pytest.mark.process
@pytest.mark.parametrize(("mode", "shadow"), [("autonomous", True), ("apart", False)])
async def test_a_shadow_takes_the_place_of_the_main_tree_for_every_tool(
    crib: Toolcrib, root: Path, mode: str, shadow: bool
) -> None:
    repository(root)
    asked: SessionOptions = {"shadow": True} if shadow else {}
    asked |= {"mode": mode, "workspace": root, "task": "t1"}
    session = crib.session(**asked)
    assert (await put_a(session)).text == "written"
    assert (await session.call("where", {})).text == str(root / ".toolcrib" / "shadows" / "t1")
    assert (await a_of(session), (root / "a.txt").read_text()) == ("A", "a")
    assert "+A" in await crib.shadows.diff("t1", workspace=root)
    assert await crib.shadows.merge("t1", workspace=root) == ["a.txt"]
    assert (root / "a.txt").read_text() == "A"
    await crib.shadows.discard("t1", workspace=root)
    assert list(crib.shadows.list(workspace=root)) == []


@pytest.mark.process
async def test_calls_at_the_same_time_make_one_shadow(crib: Toolcrib, root: Path) -> None:
    repository(root)
    session = crib.session(workspace=root, mode="autonomous", shadow=True)
    results = await session.call_many([("where", None)] * 3)
    assert len({result.text for result in results}) == 1
    assert not any(result.is_error for result in results)


@pytest.mark.process
async def test_what_is_done_in_a_shadow_can_wait_for_review_too(crib: Toolcrib, root: Path) -> None:
    repository(root)
    session = crib.session(workspace=root, mode="review", shadow=True, task="t1")
    await put_a(session)
    assert (root / ".toolcrib" / "shadows" / "t1" / "a.txt").read_text() == "a"
    await crib.changes.accept()
    assert (root / ".toolcrib" / "shadows" / "t1" / "a.txt").read_text() == "A"


async def test_a_shadow_without_a_git_repository_is_a_usage_error(crib: Toolcrib, root: Path) -> None:
    with pytest.raises(UsageError, match="no git repository"):
        crib.session(workspace=root, shadow=True)
