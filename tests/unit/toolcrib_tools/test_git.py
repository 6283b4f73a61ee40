"""The git tools on real repositories: what `git` itself then says."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.sandbox import needs_landlock, needs_sandbox
from toolcrib.config.settings import ShellSpec
from unit.toolcrib_tools.repositories import git, session_of, told, without_sandbox
from unit.toolcrib_tools.telling import error_of

pytestmark = pytest.mark.process


async def test_status_says_what_git_says(repo: Path) -> None:
    (repo / "a.txt").write_text("two\n")
    (repo / "new file.txt").write_text("new\n")
    (repo / "staged.txt").write_text("staged\n")
    git(repo, "add", "staged.txt")
    async with session_of(repo) as session:
        status = await told(session, "git_status")

    assert status | {"recent": None} == {
        "branch": "main",
        "staged": ["A staged.txt"],
        "changed": ["M a.txt"],
        "untracked": ["new file.txt"],
        "conflicts": [],
        "recent": None,
        "clean": False,
    }
    assert [line.endswith("Ann: first (HEAD -> main)") for line in status["recent"]] == [True]


async def test_stage_and_commit_make_a_commit_of_the_user_with_the_model_in_a_trailer(repo: Path) -> None:
    (repo / "a.txt").write_text("two\n")
    (repo / "b.txt").write_text("b\n")
    async with session_of(repo) as session:
        session.state.runtime["agent.model"] = "example-model-1"
        staged = await told(session, "git_stage", files=["a.txt"])
        made = await told(session, "git_commit", message="Change a\n\nIt was one.")
        rest = await told(session, "git_commit", message="Add b", all=True)
        nothing = await error_of(session, "git_commit", message="Nothing")

    assert staged == {"staged": ["M a.txt"]}
    assert made == {
        "commit": git(repo, "rev-parse", "HEAD~1"),
        "branch": "main",
        "subject": "Change a",
        "files": ["M a.txt"],
    }
    assert git(repo, "log", "-1", "--format=%an <%ae>%n%cn%n%B", "HEAD~1").rstrip() == (
        "Ann <ann@example.com>\nAnn\nChange a\n\nIt was one.\n\nX-AI-Model: example-model-1"
    )
    assert (rest["files"], git(repo, "status", "--porcelain")) == (["A b.txt"], "")
    assert nothing == ("tool_error", "nothing is staged")


async def test_diff_log_and_changed_files_show_what_differs(repo: Path) -> None:
    git(repo, "switch", "--quiet", "-c", "feature")
    (repo / "b.txt").write_text("b\n")
    git(repo, "add", ".")
    git(repo, "commit", "--quiet", "-m", "second")
    (repo / "a.txt").write_text("two\n")
    (repo / "new.txt").write_text("new\n")
    async with session_of(repo) as session:
        unstaged = await told(session, "git_diff")
        between = await told(session, "git_diff", ref1="main", ref2="feature", stat=True)
        only = await told(session, "git_diff", ref1="main", path="b.txt")
        nothing = await told(session, "git_diff", staged=True)
        log = await told(session, "git_log", count=1)
        of_a = await told(session, "git_log", path="a.txt", ref="feature")
        full = await told(session, "git_log", count=1, full=True)
        changed = await told(session, "git_changed_files", base_branch="main")
        unknown = await error_of(session, "git_diff", ref1="mian")
        option = await error_of(session, "git_log", ref="--output=x")

    assert unstaged.endswith("-one\n+two")
    assert (between.splitlines()[0].split()[0], "a.txt" in between) == ("b.txt", False)
    assert (only.endswith("+b"), nothing) == (True, "[no difference]")
    assert ("second" in log, "first" in log, "first" in of_a, "second" in of_a) == (True, False, True, False)
    assert "b.txt | 1 +" in full
    assert changed == [
        {"path": "a.txt", "change": "modified"},
        {"path": "b.txt", "change": "added"},
        {"path": "new.txt", "change": "untracked"},
    ]
    assert unknown == ("not_found", "there is no commit 'mian'")
    assert option == ("invalid_arguments", "'--output=x' is not a branch or commit name")
    assert not (repo / "x").exists()


async def test_branches_are_made_switched_to_listed_and_deleted(repo: Path) -> None:
    async with session_of(repo) as session:
        made = await told(session, "git_branch", action="create", name="topic")
        at_topic = git(repo, "branch", "--show-current")
        await told(session, "git_branch", action="switch", name="main")
        listed = await told(session, "git_branch")
        gone = await told(session, "git_branch", action="delete", name="topic")
        unknown = await error_of(session, "git_branch", action="switch", name="nowhere")
        bad = await error_of(session, "git_branch", action="create", name="a b")
        worse = await error_of(session, "git_branch", action="delete", name="-D")

    assert (made["branch"], at_topic) == ("topic", "topic")
    assert sorted(branch["name"] for branch in listed["branches"]) == ["main", "topic"]
    assert gone == {"deleted": "topic", "branch": "main"}
    assert git(repo, "branch", "--format=%(refname:short)") == "main"
    assert [unknown[0], bad[0], worse[0]] == ["not_found", "invalid_arguments", "invalid_arguments"]


async def test_a_merge_that_conflicts_is_taken_back_and_names_the_files(repo: Path) -> None:
    git(repo, "switch", "--quiet", "-c", "topic")
    (repo / "a.txt").write_text("topic\n")
    git(repo, "commit", "--quiet", "-am", "topic")
    git(repo, "switch", "--quiet", "main")
    (repo / "a.txt").write_text("main\n")
    git(repo, "commit", "--quiet", "-am", "main")
    git(repo, "switch", "--quiet", "-c", "aside")
    before = git(repo, "rev-parse", "main")
    async with session_of(repo) as session:
        conflict = await error_of(session, "git_merge", branch="topic")
        there = (
            git(repo, "branch", "--show-current"),
            git(repo, "status", "--porcelain"),
            git(repo, "rev-parse", "main"),
        )
        git(repo, "switch", "--quiet", "topic")
        merged = await told(session, "git_merge", branch="aside", into="main")

    assert conflict == ("conflict", "the merge was taken back, for these files conflict: a.txt")
    assert there == ("aside", "", before)
    assert merged == {"branch": "main", "commit": before, "merged": "aside"}


async def test_a_stash_sets_changes_aside_and_brings_them_back(repo: Path) -> None:
    (repo / "a.txt").write_text("two\n")
    (repo / "new.txt").write_text("new\n")
    async with session_of(repo) as session:
        await told(session, "git_stash", message="half done")
        after_push = (git(repo, "status", "--porcelain"), (repo / "a.txt").read_text())
        listed = await told(session, "git_stash", action="list")
        shown = await told(session, "git_stash", action="show")
        await told(session, "git_stash", action="apply")
        mixed = await error_of(session, "git_stash", action="pop")
        git(repo, "checkout", "--quiet", "--", ".")
        (repo / "new.txt").unlink()
        await told(session, "git_stash", action="pop")
        none = await error_of(session, "git_stash", action="drop", index=0)

    assert after_push == ("", "one\n")
    assert ("half done" in listed, shown.endswith("-one\n+two")) == (True, True)
    assert mixed[1] == "files have changes that a conflict would be mixed with"
    assert ((repo / "a.txt").read_text(), (repo / "new.txt").read_text()) == ("two\n", "new\n")
    assert none == ("not_found", "there is no stash 0")


@needs_sandbox
async def test_a_stash_with_a_new_file_that_is_there_by_now_changes_nothing(repo: Path) -> None:
    for path in ("a.txt", "new.txt"):
        (repo / path).write_text("set aside\n")
    async with session_of(repo) as session:
        await told(session, "git_stash")
        (repo / "new.txt").write_text("another\n")
        before = (repo / "a.txt").read_text()
        refusal = await error_of(session, "git_stash", action="pop")

    assert refusal == ("conflict", "the stash has new files that are there already: new.txt")
    assert ((repo / "a.txt").read_text(), (repo / "new.txt").read_text()) == (before, "another\n")


@needs_sandbox
async def test_push_and_pull_reach_the_remote(repo: Path, origin: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", str(origin), "other")
    other = tmp_path / "other"
    async with session_of(repo, origin) as session:
        (repo / "a.txt").write_text("two\n")
        made = await told(session, "git_commit", message="two", all=True)
        pushed = await told(session, "git_push", set_upstream=True)
        git(other, "pull", "--quiet")
        (other / "b.txt").write_text("b\n")
        git(other, "add", ".")
        git(other, "commit", "--quiet", "-m", "theirs")
        git(other, "push", "--quiet")
        (repo / "c.txt").write_text("c\n")
        await told(session, "git_commit", message="ours", all=True)
        behind = await error_of(session, "git_push")
        pulled = await told(session, "git_pull", rebase=True)
        await told(session, "git_push")
        status = await told(session, "git_status")

    assert pushed == {"branch": "main", "remote": "origin", "commit": made["commit"]}
    assert behind == ("conflict", "origin has commits that are not here")
    assert pulled["new_commits"] == 2
    assert git(origin, "log", "--format=%s", "main").split("\n") == ["ours", "theirs", "two", "first"]
    assert (status["upstream"], status["ahead"], status["behind"]) == ("origin/main", 0, 0)


@needs_sandbox
async def test_a_pull_that_conflicts_is_taken_back(repo: Path, origin: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", str(origin), "other")
    (tmp_path / "other" / "a.txt").write_text("theirs\n")
    git(tmp_path / "other", "commit", "--quiet", "-am", "theirs")
    git(tmp_path / "other", "push", "--quiet")
    (repo / "a.txt").write_text("ours\n")
    git(repo, "commit", "--quiet", "-am", "ours")
    before = git(repo, "rev-parse", "HEAD")
    async with session_of(repo, origin) as session:
        merged = await error_of(session, "git_pull")
        rebased = await error_of(session, "git_pull", rebase=True)

    assert (merged[0], rebased[0]) == ("conflict", "conflict")
    assert (git(repo, "rev-parse", "HEAD"), git(repo, "status", "--porcelain")) == (before, "")
    assert (repo / "a.txt").read_text() == "ours\n"


@needs_sandbox
async def test_a_merge_that_a_person_has_not_finished_stays_as_it_is(repo: Path, origin: Path) -> None:
    git(repo, "switch", "--quiet", "-c", "feature")
    (repo / "a.txt").write_text("theirs\n")
    git(repo, "commit", "--quiet", "-am", "theirs")
    git(repo, "switch", "--quiet", "main")
    git(repo, "merge", "--no-commit", "--no-ff", "feature")
    (repo / "a.txt").write_text("by hand\n")
    git(repo, "add", "a.txt")
    async with session_of(repo, origin) as session:
        pulled = [await error_of(session, "git_pull", rebase=rebase) for rebase in (False, True)]
        merged = await error_of(session, "git_merge", branch="feature")

    assert {code for code, _ in (*pulled, merged)} == {"conflict"}
    assert (git(repo, "status", "--porcelain"), (repo / "a.txt").read_text()) == ("M  a.txt", "by hand\n")
    assert (repo / ".git" / "MERGE_HEAD").exists()


@needs_sandbox
async def test_a_merge_is_committed_once_no_conflict_is_left(repo: Path) -> None:
    git(repo, "switch", "--quiet", "-c", "feature")
    (repo / "a.txt").write_text("theirs\n")
    git(repo, "commit", "--quiet", "-am", "theirs")
    git(repo, "switch", "--quiet", "main")
    (repo / "a.txt").write_text("ours\n")
    git(repo, "commit", "--quiet", "-am", "ours")
    with pytest.raises(AssertionError):
        git(repo, "merge", "feature")
    async with session_of(repo) as session:
        early = await error_of(session, "git_commit", message="Merge", all=True)
        (repo / "a.txt").write_text("ours\n")
        await told(session, "git_commit", message="Merge", all=True)

    assert early == ("conflict", "conflicts are not resolved: a.txt")
    assert git(repo, "log", "-1", "--format=%s %P").count(" ") == 2


@needs_sandbox
async def test_more_than_a_message_can_hold_is_refused_as_such(repo: Path) -> None:
    (repo / "big.txt").write_text("x" * 79 + "\n")
    git(repo, "add", ".")
    git(repo, "commit", "--quiet", "-m", "big")
    (repo / "big.txt").write_text(("y" * 79 + "\n") * 250_000)
    async with session_of(repo) as session:
        refusal = await error_of(session, "git_diff")

    assert refusal == ("too_large", "it says more than 16 MiB")


async def test_files_that_a_filter_makes_are_left_to_the_user(repo: Path) -> None:
    (repo / ".gitattributes").write_text("*.bin filter=lfs\n")
    (repo / "big.bin").write_bytes(b"\0" * 100)
    async with session_of(repo) as session:
        refusal = await error_of(session, "git_commit", message="big", all=True)
        staged = await told(session, "git_stage", files=[".gitattributes"])

    assert refusal == ("tool_error", "big.bin go through the filter 'lfs', a program that this tool does not run")
    assert staged == {"staged": ["A .gitattributes"]}


async def test_a_worktree_of_a_repository_elsewhere_can_be_worked_in(repo: Path, tmp_path: Path) -> None:
    git(repo, "worktree", "add", "--quiet", "-b", "topic", str(tmp_path / "tree"))
    (tmp_path / "tree" / "t.txt").write_text("t\n")
    async with session_of(tmp_path / "tree") as session:
        made = await told(session, "git_commit", message="topic", all=True)

    assert git(repo, "log", "--format=%s", "topic").split("\n") == ["topic", "first"]
    assert made["branch"] == "topic"


@pytest.mark.parametrize("landlock", [False, pytest.param(True, marks=needs_landlock)])
async def test_without_bubblewrap_git_works_all_the_same(repo: Path, tmp_path: Path, landlock: bool) -> None:
    (repo / "a.txt").write_text("two\n")
    shell = ShellSpec(landlock=landlock)
    async with session_of(repo, shell=shell, environment=without_sandbox(tmp_path)) as session:
        assert ("shell" in session.state.scope.provided) == landlock
        await told(session, "git_commit", message="two", all=True)

    assert git(repo, "log", "-1", "--format=%s") == "two"


async def test_what_changes_or_leaves_the_repository_asks_in_cautious_mode(repo: Path) -> None:
    async with session_of(repo, mode="cautious") as session:
        tools = [tool for tool in session.tools if tool.category == "git"]
        decided = {tool.name: session.parts.policy.decide(tool, {}, session.state).effect for tool in tools}
        branch = next(tool for tool in tools if tool.name == "git_branch")
        actions = {
            action: session.parts.policy.decide(branch, {"action": action}, session.state).effect
            for action in ("list", "create", "switch", "delete")
        }

    assert actions == {"list": "allow", "create": "ask", "switch": "ask", "delete": "ask"}
    assert decided == {
        **dict.fromkeys(("git_branch", "git_changed_files", "git_diff", "git_log", "git_status"), "allow"),
        **dict.fromkeys(("git_commit", "git_merge", "git_pull", "git_push"), "ask"),
        **dict.fromkeys(("git_stage", "git_stash"), "ask"),
    }
