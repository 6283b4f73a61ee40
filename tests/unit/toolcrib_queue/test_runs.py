"""A run: an agent's program does a task in the sandbox, and the queue sees for itself what came of it."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from anyio import create_task_group

from peers.forge import forge, leading, pull_requests
from rig import eventually
from rig.sandbox import needs_gh, needs_sandbox
from seeds.inventory import git
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.plugin import Rows
from toolcrib_queue.model import SCHEMA
from unit.toolcrib_queue.conftest import CATEGORIES, Person, person

pytestmark = [needs_sandbox, pytest.mark.process, pytest.mark.long]

PROGRAM = """
    import json, os, re, subprocess, sys, time
    from pathlib import Path

    prompt, said = sys.argv[-1], "It answers 42 now."
    Path("seen.txt").write_text(prompt)
    if "ASK" in prompt and "blue" not in prompt:
        said = "I looked.\\nQUESTION: Which colour?"
    elif "OUTSIDE" in prompt:
        Path(sys.argv[0]).parent.joinpath("outside.txt").write_text("x")
    elif "LAZY" not in prompt:
        Path("answer.py").write_text("answer = 42\\n")
    if "PLAN" in prompt or "Count" in prompt:
        Path("plan.md").write_text("# Plan\\n\\n1. Count the boats\\nAll of them.\\n2. Paint the sign\\n")
    if "SWITCH" in prompt:
        Path(".git/HEAD").write_text("ref: refs/heads/own\\n")
        Path(".git/refs/heads/own").write_text(Path(".git/refs/heads/main").read_text())
    if "MOVE" in prompt:
        heads = Path(".git/refs/heads")
        first = (heads / "main").read_text()
        Path(".git/refs/tags/v1").write_text(first)
        (heads / "trunk").unlink()
        (heads / "trunk").mkdir()
        (heads / "trunk" / "more").write_text(first)
        own = Path(".git/HEAD").read_text().split("/", 2)[2].strip()
        (heads / own).write_text("ref: refs/heads/main\\n")
    if "half" in prompt:
        Path("half.txt").write_text("half")
    if named := "MERGE" in prompt and re.search("`git merge --no-commit ([0-9a-f]+)`", prompt):
        words = ["git", "-c", "user.name=x", "-c", "user.email=x@x", "merge", "--no-commit", named[1]]
        subprocess.run(words, stdout=subprocess.DEVNULL)
        if "HALF" not in prompt:
            Path("answer.py").write_text("answer = 42 + 1\\n")
    while "SLOW" in prompt:
        time.sleep(1)
    if "CRASH" in prompt:
        sys.exit("no more tokens")
    print(json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": said,
                      "total_cost_usd": 0.125 if "DEAR" in prompt else "much",
                      "usage": {"input_tokens": "many" if "BOAST" in prompt else 30, "output_tokens": 12}}))
"""
SHOWN = [{"type": "changed", "path": "answer.py"}, {"type": "commit"}]


@pytest.fixture
async def crib(tmp_path: Path) -> AsyncGenerator[Toolcrib]:
    program = tmp_path / "programs" / "agent.py"
    program.parent.mkdir()
    program.write_text(dedent(PROGRAM))
    claude = {"program": [sys.executable, str(program)]}
    settings = bare().with_values(builtins=CATEGORIES, tools={"queue": {"agents": {"claude": claude}}})
    async with Toolcrib(settings, memory=True) as opened:
        yield opened


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "answer.py").write_text("answer = 41\n")
    (folder / ".gitignore").write_text("seen.txt\n")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "Begin")
    return folder


@pytest.fixture
def ada(crib: Toolcrib, shop: Path) -> Person:
    return person(crib, "ada", shop)


async def test_a_task_is_done_on_its_branch_and_committed_with_its_id(ada: Person, shop: Path) -> None:
    agent = await ada.agent()
    task = await ada.task("Answer", description="Let it answer 42.", acceptance=SHOWN, attachments=["answer.py"])

    ran = await ada.ok("work_task", agent_id=agent)

    commit = git(shop, "rev-parse", f"task/{task}").strip()
    assert {key: ran[key] for key in ("task_id", "status", "branch", "commit", "merged_into", "tokens_used")} == {
        "task_id": task,
        "status": "COMPLETED",
        "branch": f"task/{task}",
        "commit": commit,
        "merged_into": "main",
        "tokens_used": 42,
    }
    assert (git(shop, "show", "main~:answer.py"), git(shop, "show", "main:answer.py")) == (
        "answer = 41\n",
        "answer = 42\n",
    )
    assert f"Task: {task}\nAgent: Ann (claude)" in git(shop, "log", "-1", "--format=%B", f"task/{task}")
    assert "# Answer\n\nLet it answer 42.\n\n## Read first\n- answer.py" in (shop / "seen.txt").read_text()
    assert await ada.ok("list_agents") == {
        "agents": [{"id": agent, "name": "Ann", "type": "claude", "state": "IDLE", "current_task": None}]
    }


async def test_a_project_whose_folder_is_out_of_reach_does_not_hold_up_the_others(
    crib: Toolcrib, shop: Path, tmp_path: Path
) -> None:
    far = tmp_path / "far"
    far.mkdir()
    elsewhere = person(crib, "ada", far)
    project = (await elsewhere.ok("create_project", name="Far"))["created"]
    await elsewhere.ok("add_workspace", project_id=project, source="link", path=".")
    await elsewhere.ok("create_task", title="There", project_id=project)
    ada = person(crib, "ada", shop)
    agent, near = await ada.agent(), await ada.task("Answer")

    ran = await ada.ok("work_task", agent_id=agent)
    left = await ada.ok("work_task", agent_id=agent)

    assert (ran["task_id"], left["task"], str(far) in left["message"]) == (near, None, True)


async def test_a_project_that_gets_no_agent_is_named_with_the_reason(ada: Person) -> None:
    agent, task = await ada.agent(), await ada.task("Answer")
    await ada.ok("work_task", agent_id=agent)
    project = (await ada.ok("get_task", task_id=task))["project_id"]
    await ada.task("Answer again")
    messages: list[str] = []
    for tool, given in (("edit_project", {"budget_limit": 1}), ("pause_project", {})):
        await ada.ok(tool, project_id=project, **given)
        messages.append((await ada.ok("work_task", agent_id=agent))["message"])

    assert [f"{project} has used 42 of 1" in messages[0], f"{project} is PAUSED" in messages[1]] == [True, True]


async def test_an_attachment_that_is_not_there_is_refused(ada: Person) -> None:
    assert (await ada.refused("create_task", title="Look", attachments=["none.txt"])).code == "not_found"


async def test_what_a_program_says_is_not_believed(ada: Person, shop: Path) -> None:
    agent = await ada.agent()
    task = await ada.task("LAZY", acceptance=SHOWN, max_retries=0)

    ran = await ada.ok("work_task", agent_id=agent)

    assert (ran["task_id"], ran["status"]) == (task, "FAILED")
    assert "answer.py" in (await ada.ok("get_agent_error", task_id=task))["error_message"]


async def test_a_program_that_fails_fails_its_task_with_the_reason_and_the_next_attempt_reads_it(
    ada: Person, shop: Path
) -> None:
    agent = await ada.agent()
    task = await ada.task("CRASH")

    first = await ada.ok("work_task", agent_id=agent)
    await ada.ok("work_task", agent_id=agent)

    assert (first["task_id"], first["status"], first["retries"]) == (task, "FAILED", "0 / 3")
    assert "no more tokens" in (await ada.ok("get_agent_error", task_id=task))["error_message"]
    _, _, failed = (shop / "seen.txt").read_text().partition("## The last attempt failed\n")
    assert (failed.startswith("<tool_output"), "\nexit status 1: no more tokens\n</tool_output>" in failed) == (
        True,
        True,
    )


async def test_a_question_waits_for_a_person_and_its_answer_reaches_the_next_run(ada: Person, shop: Path) -> None:
    agent = await ada.agent()
    task = await ada.task("ASK for the colour")

    asked = await ada.ok("work_task", agent_id=agent)
    question = (await ada.ok("get_task", task_id=task))["question"]
    waits = await ada.ok("work_task", agent_id=agent)
    await ada.ok("answer_question", task_id=task, answer="blue")
    ended = await ada.ok("work_task", agent_id=agent)

    assert (asked["status"], question, ended["status"]) == ("WAITING_INPUT", "Which colour?", "COMPLETED")
    assert (waits["task"], task in waits["message"]) == (None, True)
    assert "- Which colour?: blue" in (shop / "seen.txt").read_text()


async def test_a_program_writes_in_its_workspace_only(ada: Person, shop: Path) -> None:
    agent = await ada.agent()
    await ada.task("OUTSIDE")

    await ada.ok("work_task", agent_id=agent)

    assert not (shop.parent / "programs" / "outside.txt").exists()


async def test_changes_of_a_person_are_not_taken_for_those_of_an_agent(ada: Person, shop: Path) -> None:
    agent = await ada.agent()
    task = await ada.task("Answer")
    (shop / "answer.py").write_text("answer = 43\n")

    refused = await ada.refused("work_task", agent_id=agent)

    assert (refused.code, await ada.status(task)) == ("conflict", "FAILED")
    assert (shop / "answer.py").read_text() == "answer = 43\n"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"allowed_tools": ["github_*"]}, "allowed_tools"),
        ({"permission_mode": "cautious"}, "permission_mode"),
    ],
)
async def test_a_profile_that_cannot_be_bound_is_refused(
    ada: Person, shop: Path, fields: dict[str, Any], named: str
) -> None:
    agent = await ada.agent()
    await ada.ok("create_profile", id="p", name="P", **fields)
    task = await ada.task("Answer", profile_id="p", max_retries=0)

    refused = await ada.refused("work_task", agent_id=agent)

    assert (refused.code, named in refused.message, await ada.status(task)) == ("unavailable", True, "FAILED")
    assert not (shop / "seen.txt").exists()


async def test_a_type_without_its_program_names_those_that_are_there(ada: Person) -> None:
    agent = (await ada.ok("create_agent", name="Cy", agent_type="cursor"))["created"]

    refused = await ada.refused("work_task", agent_id=agent)

    assert (refused.code, refused.hint.startswith(("installed are: ", "the programs of no"))) == ("unavailable", True)
    assert json.dumps(refused.hint)


async def test_a_run_whose_task_a_person_stops_ends(crib: Toolcrib, ada: Person, shop: Path) -> None:
    agent, task = await ada.agent(), await ada.task("SLOW")
    ended: list[Any] = []

    async def run() -> None:
        ended.append(await ada.ok("work_task", agent_id=agent))

    async with create_task_group() as group:
        group.start_soon(run)
        await eventually(lambda: (shop / "seen.txt").exists())
        await ada.ok("stop_task", task_id=task)

    assert [(one["task_id"], one["status"]) for one in ended] == [(task, "BLOCKED")]


async def test_a_run_whose_lease_ran_out_stops_its_program_and_another_agent_goes_on_at_once(
    crib: Toolcrib, ada: Person, shop: Path
) -> None:
    agent, other, task = await ada.agent(), await ada.agent("Bob"), await ada.task("SLOW and half")
    ended: list[Any] = []
    generation, late = 0, list[str]()

    def let_run_out(rows: Rows) -> int:
        return int(rows.update("tasks", task, {"lease_until": rows.now - 1})["generation"])

    async with create_task_group() as group:

        async def run() -> None:
            ended.append(await ada.ok("work_task", agent_id=agent))

        group.start_soon(run)
        await eventually(lambda: (shop / "half.txt").exists())
        generation, _ = await crib.parts.storage.store.shared.write(SCHEMA, "ada", lambda value: value, let_run_out)
        claim = {"task_id": task, "generation": generation}
        late = [
            (await ada.refused("complete_task", **claim, summary="late")).code,
            (await ada.refused("heartbeat_task", **claim)).code,
        ]
    programs = [one.read_bytes() for one in Path("/proc").glob("[0-9]*/cmdline") if one.exists()]
    again = await ada.claimed(agent)

    assert late == ["conflict"] * 2
    assert [(one["task_id"], one.get("commit")) for one in ended] == [(task, None)]
    assert [one for one in programs if str(shop.parent / "programs").encode() in one] == []
    assert (again["task_id"], again["generation"] > generation) == (task, True)
    assert (await ada.ok("claim_task", agent_id=other))["task"] is None


async def test_what_an_interrupted_run_left_is_kept_on_its_branch(crib: Toolcrib, ada: Person, shop: Path) -> None:
    agent, task = await ada.agent(), await ada.task("SLOW and half", priority=1)
    async with create_task_group() as group:
        group.start_soon(partial(ada.session.call, "work_task", {"agent_id": agent}))
        await eventually(lambda: (shop / "half.txt").exists())
        group.cancel_scope.cancel()
    await ada.ok("stop_task", task_id=task)
    await ada.task("Answer")

    await ada.ok("work_task", agent_id=agent)

    assert git(shop, "show", f"task/{task}:half.txt") == "half"
    assert not (shop / "half.txt").exists()
    assert git(shop, "status", "--porcelain") == ""


async def test_a_task_begins_with_the_work_that_it_depends_on_though_a_person_took_its_merge_back(
    ada: Person, shop: Path
) -> None:
    agent = await ada.agent()
    first = await ada.task("Answer", requires_approval=True)
    second = await ada.task("LAZY", depends_on=[first])
    await ada.ok("work_task", agent_id=agent)
    await ada.ok("approve_task", task_id=first)
    git(shop, "update-ref", "refs/heads/main", "main^1")

    ran = await ada.ok("work_task", agent_id=agent)

    assert (ran["task_id"], ran["status"]) == (second, "COMPLETED")
    assert git(shop, "show", f"task/{second}:answer.py") == "answer = 42\n"


async def test_a_result_that_a_person_approves_is_merged_into_the_default_branch_of_the_project(
    ada: Person, shop: Path
) -> None:
    git(shop, "branch", "trunk")
    project = (await ada.ok("create_project", name="Shop"))["created"]
    await ada.ok("add_workspace", project_id=project, source="link", path=".")
    await ada.ok("set_default_branch", project_id=project, branch="trunk")
    agent, task = await ada.agent(), await ada.task("Answer", project_id=project, requires_approval=True)
    ran = await ada.ok("work_task", agent_id=agent)

    approved = await ada.ok("approve_task", task_id=task)

    assert (ran["status"], approved["merged_into"]) == ("AWAITING_APPROVAL", "trunk")
    assert (git(shop, "show", "trunk:answer.py"), git(shop, "show", "main:answer.py")) == (
        "answer = 42\n",
        "answer = 41\n",
    )


async def test_a_result_that_conflicts_by_now_is_not_approved_and_the_files_are_named(ada: Person, shop: Path) -> None:
    agent, task = await ada.agent(), await ada.task("Answer", requires_approval=True)
    await ada.ok("work_task", agent_id=agent)
    git(shop, "checkout", "--quiet", "main")
    (shop / "answer.py").write_text("answer = 43\n")
    git(shop, "commit", "--quiet", "-am", "Another answer")

    refused = await ada.refused("approve_task", task_id=task)

    assert (refused.code, "answer.py" in refused.message) == ("conflict", True)
    assert await ada.status(task) == "AWAITING_APPROVAL"


async def test_branches_and_tags_that_a_program_moves_are_put_back(ada: Person, shop: Path) -> None:
    git(shop, "branch", "trunk")
    begun = git(shop, "rev-parse", "main").strip()
    agent, task = await ada.agent(), await ada.task("MOVE", acceptance=SHOWN)

    ran = await ada.ok("work_task", agent_id=agent)

    assert (ran["status"], ran["restored_refs"]) == (
        "COMPLETED",
        [
            f"refs/heads/task/{task} deleted → {begun}",
            f"refs/heads/trunk deleted → {begun}",
            f"refs/heads/trunk/more {begun} → removed",
            f"refs/tags/v1 {begun} → removed",
        ],
    )
    assert (git(shop, "rev-parse", "trunk").strip(), git(shop, "tag")) == (begun, "")
    assert git(shop, "rev-parse", f"task/{task}").strip() == ran["commit"]
    assert git(shop, "rev-parse", "main^1").strip() == begun


async def test_work_that_conflicts_with_the_default_branch_is_not_completed(ada: Person, shop: Path) -> None:
    agent = await ada.agent()
    task = await ada.task("Answer", requires_approval=True, max_retries=0)
    await ada.ok("work_task", agent_id=agent)
    git(shop, "checkout", "--quiet", "main")
    (shop / "answer.py").write_text("answer = 43\n")
    git(shop, "commit", "--quiet", "-am", "Another answer")
    await ada.ok("reopen_with_feedback", task_id=task, feedback="again")

    ran = await ada.ok("work_task", agent_id=agent)

    assert (ran["status"], "answer.py" in ran["error_message"]) == ("FAILED", True)
    assert git(shop, "show", "main:answer.py") == "answer = 43\n"


async def commit_to_main(folder: Path, name: str, text: str) -> None:
    """Commit a file to the default branch, as a person does it beside the queue."""
    git(folder, "checkout", "--quiet", "main")
    (folder / name).write_text(text)
    git(folder, "add", name)
    git(folder, "commit", "--quiet", "-m", f"Change {name}")


async def test_a_reopened_task_goes_on_from_the_newest_default_branch(ada: Person, shop: Path) -> None:
    agent = await ada.agent()
    task = await ada.task("Answer", requires_approval=True, acceptance=SHOWN)
    await ada.ok("work_task", agent_id=agent)
    await commit_to_main(shop, "sails.txt", "three")
    await ada.ok("reopen_with_feedback", task_id=task, feedback="again")

    ran = await ada.ok("work_task", agent_id=agent)

    assert (ran["status"], "conflict" in ran) == ("AWAITING_APPROVAL", False)
    assert git(shop, "show", f"task/{task}:sails.txt") == "three"
    assert git(shop, "show", f"task/{task}:answer.py") == "answer = 42\n"


async def test_newer_commits_of_the_default_branch_are_no_evidence_of_the_task(ada: Person, shop: Path) -> None:
    agent = await ada.agent()
    task = await ada.task("LAZY and half", acceptance=SHOWN, max_retries=1)
    await ada.ok("work_task", agent_id=agent)
    await commit_to_main(shop, "answer.py", "answer = 43\n")

    ran = await ada.ok("work_task", agent_id=agent)

    assert (ran["task_id"], ran["status"]) == (task, "FAILED")
    assert "answer.py" in ran["error_message"]
    assert git(shop, "show", f"task/{task}:answer.py") == "answer = 43\n"


@pytest.mark.parametrize(("title", "status"), [("MERGE", "COMPLETED"), ("MERGE HALF", "FAILED")])
async def test_an_agent_is_told_which_commits_conflict_and_its_resolution_is_merged(
    ada: Person, shop: Path, title: str, status: str
) -> None:
    agent = await ada.agent()
    task = await ada.task(title, requires_approval=True)
    await ada.ok("work_task", agent_id=agent)
    await commit_to_main(shop, "answer.py", "answer = 43\n")
    await ada.ok("edit_task", task_id=task, priority=1)
    await ada.ok("reopen_with_feedback", task_id=task, feedback="again")

    ran = await ada.ok("work_task", agent_id=agent)
    approved = await ada.ok("approve_task", task_id=task) if status == "COMPLETED" else None

    notes = [one["content"] for one in (await ada.ok("get_task", task_id=task))["notes"] if one["type"] == "conflict"]
    assert notes == [ran["conflict"]]
    assert "answer.py" in ran["conflict"]
    assert await ada.status(task) == status
    if approved:
        assert git(shop, "show", "main:answer.py") == "answer = 42 + 1\n"
    else:
        assert ran["error_message"] == "conflicts are not resolved in answer.py"


async def two_workspaces(crib: Toolcrib, shop: Path) -> tuple[Person, str, str, str]:
    """Return a person with a project of two workspaces, the shop and a clone of it, and the ids of the three."""
    ada = person(crib, "ada", shop.parent)
    git(shop.parent, "clone", "--quiet", "shop", "second")
    project = (await ada.ok("create_project", name="Shop"))["created"]
    one, two = [
        (await ada.ok("add_workspace", project_id=project, source="link", path=path))["created"]
        for path in ("shop", "second")
    ]
    return ada, project, one, two


async def test_a_task_begins_with_merged_work_of_another_workspace_whose_branch_is_gone(
    crib: Toolcrib, shop: Path
) -> None:
    ada, project, one, two = await two_workspaces(crib, shop)
    agent = await ada.agent()
    first = await ada.task("Answer", project_id=project, preferred_workspace_id=one)
    second = await ada.task("LAZY", project_id=project, depends_on=[first], preferred_workspace_id=two)
    await ada.ok("work_task", agent_id=agent)
    git(shop, "checkout", "--quiet", "main")
    git(shop, "branch", "--quiet", "-D", f"task/{first}")

    ran = await ada.ok("work_task", agent_id=agent)

    assert (ran["task_id"], ran["status"]) == (second, "COMPLETED")
    assert git(shop.parent / "second", "show", f"task/{second}:answer.py") == "answer = 42\n"


async def test_two_agents_are_never_at_work_in_one_folder(crib: Toolcrib, ada: Person, shop: Path) -> None:
    first, second = await ada.agent(), await ada.agent("Bob")
    task, other = await ada.task("SLOW", priority=1), await ada.task("Answer")
    async with create_task_group() as group:
        group.start_soon(partial(ada.session.call, "work_task", {"agent_id": first}))
        await eventually(lambda: (shop / "seen.txt").exists())
        assert (await ada.ok("work_task", agent_id=second))["task"] is None
        await ada.ok("stop_task", task_id=task)

    assert await ada.status(other) == "READY"


async def test_projects_that_share_a_folder_are_at_work_in_it_one_after_the_other(ada: Person, shop: Path) -> None:
    first, second = await ada.agent(), await ada.agent("Bob")
    project = (await ada.ok("create_project", name="Shop"))["created"]
    for place in ({}, {"project_id": project}):
        await ada.task("LAZY", **place)
        await ada.ok("work_task", agent_id=first)
    (shop / "seen.txt").unlink()
    task, other = await ada.task("SLOW"), ""
    async with create_task_group() as group:
        group.start_soon(partial(ada.session.call, "work_task", {"agent_id": first}))
        await eventually(lambda: (shop / "seen.txt").exists())
        other = await ada.task("Answer", project_id=project)
        assert (await ada.ok("work_task", agent_id=second))["task"] is None
        await ada.ok("stop_task", task_id=task)

    assert await ada.status(other) == "READY"


async def test_a_run_whose_task_is_deleted_ends_and_commits_nothing(ada: Person, shop: Path) -> None:
    agent, task = await ada.agent(), await ada.task("SLOW and half")
    ended: list[Any] = []

    async def run() -> None:
        ended.append(await ada.session.call("work_task", {"agent_id": agent}))

    async with create_task_group() as group:
        group.start_soon(run)
        await eventually(lambda: (shop / "half.txt").exists())
        await ada.ok("delete_task", task_id=task)

    assert [one.error and one.error.code for one in ended] == ["not_found"]
    assert git(shop, "rev-parse", f"task/{task}") == git(shop, "rev-parse", "main")


async def test_work_on_a_branch_that_the_program_checked_out_is_committed_on_that_of_the_task(
    ada: Person, shop: Path
) -> None:
    agent, task = await ada.agent(), await ada.task("SWITCH", acceptance=SHOWN)

    ran = await ada.ok("work_task", agent_id=agent)

    assert (ran["status"], ran["commit"]) == ("COMPLETED", git(shop, "rev-parse", f"task/{task}").strip())
    assert git(shop, "show", f"task/{task}:answer.py") == "answer = 42\n"
    begun = git(shop, "rev-parse", "main~1").strip()
    assert (ran["restored_refs"], git(shop, "branch", "--list", "own")) == ([f"refs/heads/own {begun} → removed"], "")


async def test_evidence_with_a_path_that_begins_with_a_slash_is_measured_in_the_folder(ada: Person) -> None:
    agent = await ada.agent()
    await ada.task("LAZY", acceptance=[{"type": "changed", "path": "/answer.py"}], max_retries=0)

    ran = await ada.ok("work_task", agent_id=agent)

    assert (ran["status"], "/answer.py" in ran["error_message"]) == ("FAILED", True)


async def test_a_report_with_impossible_numbers_ends_the_run(ada: Person) -> None:
    agent = await ada.agent()
    await ada.task("BOAST")

    ran = await ada.ok("work_task", agent_id=agent)

    assert (ran["status"], ran["tokens_used"]) == ("COMPLETED", 12)


async def test_evidence_is_measured_from_where_the_branch_began(ada: Person, shop: Path) -> None:
    agent = await ada.agent()
    await ada.task("Answer", acceptance=SHOWN, priority=1)
    lazy = await ada.task("LAZY", acceptance=SHOWN, max_retries=0)
    await ada.ok("work_task", agent_id=agent)
    git(shop, "checkout", "--quiet", "-b", "task/other", "main~1")

    ran = await ada.ok("work_task", agent_id=agent)

    assert (ran["task_id"], ran["status"]) == (lazy, "FAILED")


async def test_a_test_that_an_attempt_changed_is_changed_for_the_next_one(ada: Person, shop: Path) -> None:
    agent = await ada.agent()
    task = await ada.task("CRASH", acceptance=[{"type": "unchanged", "path": "answer.py"}])

    await ada.ok("work_task", agent_id=agent)
    await ada.ok("run_queue")
    await ada.ok("edit_task", task_id=task, title="LAZY")
    ran = await ada.ok("work_task", agent_id=agent)

    assert (ran["task_id"], ran["status"]) == (task, "FAILED")
    assert "answer.py" in ran["error_message"]


async def test_without_a_sandbox_no_program_of_an_agent_runs(tmp_path: Path, shop: Path) -> None:
    settings = bare().with_values(builtins=CATEGORIES, shell={"unsandboxed": True})
    async with Toolcrib(replace(settings, environment={"PATH": str(tmp_path)}), memory=True) as crib:
        ada = person(crib, "ada", shop)
        agent = (await ada.ok("create_agent", name="Ann", agent_type="ours"))["created"]
        task = await ada.task("Answer")

        refused = await ada.refused("work_task", agent_id=agent)

        assert (refused.code, await ada.status(task)) == ("unavailable", "READY")


@pytest.mark.parametrize("branch", ["--orphan=x", "main", "task/of-another"])
async def test_a_result_is_on_the_branch_of_its_task_only(ada: Person, shop: Path, branch: str) -> None:
    agent = await ada.agent()
    task = await ada.task("Answer", requires_approval=True)
    claim = await ada.claimed(agent)

    refused = await ada.refused("complete_task", **claim, summary="x", branch=branch)
    ended = await ada.ok("complete_task", **claim, summary="x", branch=f"task/{task}")

    assert (refused.details["field_errors"][0]["path"], ended["status"]) == ("branch", "AWAITING_APPROVAL")


async def test_a_task_begins_with_work_that_another_workspace_holds(crib: Toolcrib, shop: Path) -> None:
    ada, project, one, two = await two_workspaces(crib, shop)
    agent = await ada.agent()
    first = await ada.task("Answer", project_id=project, preferred_workspace_id=one)
    await ada.task("LAZY", project_id=project, depends_on=[first], preferred_workspace_id=two)

    await ada.ok("work_task", agent_id=agent)
    ran = await ada.ok("work_task", agent_id=agent)

    assert (ran["status"], git(shop.parent / "second", "show", "main:answer.py")) == ("COMPLETED", "answer = 42\n")


async def test_the_changes_of_a_task_are_its_own_and_not_what_another_workspace_brought(
    crib: Toolcrib, shop: Path
) -> None:
    ada, project, _, two = await two_workspaces(crib, shop)
    agent = await ada.agent()
    await commit_to_main(shop, "answer.py", "answer = 43\n")
    task = await ada.task("LAZY and half", project_id=project, preferred_workspace_id=two, requires_approval=True)
    await ada.ok("work_task", agent_id=agent)

    shown = (await ada.ok("get_task_diff", task_id=task))["diff"]

    assert git(shop.parent / "second", "show", f"task/{task}:answer.py") == "answer = 43\n"
    assert [line for line in shown.splitlines() if line.startswith(("+", "-"))] == [
        "--- /dev/null",
        "+++ b/half.txt",
        "+half",
    ]


@pytest.mark.parametrize(("completion", "status"), [("push", "COMPLETED"), ("pull_request", "FAILED")])
async def test_a_result_is_pushed_where_the_operator_wants_that_and_not_merged(
    tmp_path: Path, shop: Path, completion: str, status: str
) -> None:
    program = tmp_path / "agent.py"
    program.write_text(dedent(PROGRAM))
    git(tmp_path, "clone", "--quiet", "--bare", "shop", "origin.git")
    git(shop, "remote", "add", "origin", str(tmp_path / "origin.git"))
    queue = {"agents": {"claude": {"program": [sys.executable, str(program)]}}, "completion": completion}
    async with Toolcrib(bare().with_values(builtins=CATEGORIES, tools={"queue": queue}), memory=True) as crib:
        ada = person(crib, "ada", tmp_path)
        project = (await ada.ok("create_project", name="Shop"))["created"]
        await ada.ok("add_workspace", project_id=project, source="link", path="shop")
        agent, task = await ada.agent(), await ada.task("Answer", project_id=project, acceptance=SHOWN)

        ran = await ada.ok("work_task", agent_id=agent)

    assert (ran["status"], "merged_into" in ran) == (status, False)
    assert git(tmp_path / "origin.git", "rev-parse", f"task/{task}").strip() == ran["commit"]
    assert git(shop, "show", "main:answer.py") == "answer = 41\n"
    assert ("git_create_pr" in ran.get("error_message", "")) == (completion == "pull_request")


ADDRESS = "https://git.example/team/work/pull/7"


@needs_gh
async def test_a_result_waits_with_its_pull_request_that_gh_opened_and_a_later_attempt_pushes_to_it(
    tmp_path: Path, shop: Path
) -> None:
    program = tmp_path / "agent.py"
    program.write_text(dedent(PROGRAM))
    claude = {"program": [sys.executable, str(program)]}
    with forge(tmp_path / "forge", token="t0ken") as there, leading({"git.example": ["127.0.0.1"]}):
        there.answers = pull_requests(ADDRESS)
        git(tmp_path, "clone", "--quiet", "--bare", str(shop), str(there.root / "team" / "work.git"))
        git(shop, "remote", "add", "origin", there.url("team/work.git"))
        tools = {
            "queue": {"agents": {"claude": claude}, "completion": "pull_request"},
            "git": {"tokens": {there.host: "t0ken"}, "private_hosts": [there.host], "ca_file": str(there.ca_file)},
        }
        async with Toolcrib(bare().with_values(builtins=CATEGORIES, tools=tools), memory=True) as crib:
            ada = person(crib, "ada", shop)
            agent, task = await ada.agent(), await ada.task("Answer", acceptance=SHOWN)
            ran = await ada.ok("work_task", agent_id=agent)
            waiting = await ada.ok("get_task", task_id=task)
            await commit_to_main(shop, "sails.txt", "three")
            await ada.ok("reopen_with_feedback", task_id=task, feedback="Take the sails in.")
            again = await ada.ok("work_task", agent_id=agent)
            await ada.ok("approve_task", task_id=task)
            ended = await ada.status(task)

    made = [asked["variables"]["input"] for asked in there.asked if "createPullRequest" in asked["query"]]
    assert (ran["status"], waiting["status"], waiting["pr_url"]) == ("AWAITING_APPROVAL", "AWAITING_APPROVAL", ADDRESS)
    assert [{key: one[key] for key in ("title", "body", "headRefName", "baseRefName")} for one in made] == [
        {
            "title": "Answer",
            "body": f"It answers 42 now.\n\nTask: {task}",
            "headRefName": f"task/{task}",
            "baseRefName": "main",
        }
    ]
    assert (again["status"], ended) == ("AWAITING_APPROVAL", "COMPLETED")
    assert git(there.root / "team" / "work.git", "show", f"task/{task}:sails.txt") == "three"
    assert git(shop, "show", "main:answer.py") == "answer = 41\n"


async def test_a_way_to_end_results_that_there_is_not_is_named(tmp_path: Path, shop: Path) -> None:
    queue = {"agents": {"claude": {"program": sys.executable}}, "completion": "fax"}
    async with Toolcrib(bare().with_values(builtins=CATEGORIES, tools={"queue": queue}), memory=True) as crib:
        ada = person(crib, "ada", shop)
        agent, task = await ada.agent(), await ada.task("Answer")

        refused = await ada.refused("work_task", agent_id=agent)

        assert (refused.code, refused.hint, await ada.status(task)) == (
            "unavailable",
            "it is merge, push, pull_request",
            "READY",
        )


PLAN = "# Plan\n\n1. Count the boats\nAll of them.\n2. Paint the sign\n"


async def test_a_plan_that_a_run_wrote_waits_for_a_person_and_its_steps_become_tasks(ada: Person, shop: Path) -> None:
    (shop / "plans").mkdir()
    (shop / "plans" / "old.md").write_text("1. An old step\n")
    git(shop, "add", ".")
    git(shop, "commit", "--quiet", "-m", "An old plan")
    agent = await ada.agent()
    task = await ada.task("PLAN the shop")
    ran = await ada.ok("work_task", agent_id=agent)
    approved = await ada.ok("approve_plan", task_id=task)
    step = await ada.ok("work_task", agent_id=agent)

    assert (ran["status"], approved["merged_into"]) == ("AWAITING_PLAN_APPROVAL", "main")
    assert [one["title"] for one in approved["subtasks"]] == ["Count the boats", "Paint the sign"]
    assert git(shop, "show", "main:plan.md") == PLAN
    assert (step["task_id"], step["status"]) == (approved["subtasks"][0]["id"], "COMPLETED")  # though it wrote plan.md


async def test_what_a_program_cost_is_in_the_ledger(ada: Person) -> None:
    agent, task = await ada.agent(), await ada.task("DEAR")
    await ada.ok("work_task", agent_id=agent)
    used = await ada.ok("queue_usage", task_id=task)

    assert (used["total"], used["total_cost_usd"], len(used["breakdown"])) == (42, 0.125, 1)
    assert used["total_seconds"] > 0
