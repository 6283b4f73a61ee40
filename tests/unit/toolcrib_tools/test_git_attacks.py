"""What hostile repositories and hostile arguments do not get to run, to read or to write (security.md T22)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rig.sandbox import needs_sandbox
from toolcrib.config import bare
from toolcrib.testing import RecordingApprover
from unit.toolcrib_tools.repositories import OWN, git, session_of, told, without_sandbox
from unit.toolcrib_tools.telling import error_of

pytestmark = pytest.mark.process

HOSTILE: Mapping[str, str] = {
    "core.fsmonitor": "touch {canary}-fsmonitor",
    "core.editor": "touch {canary}-editor",
    "core.pager": "touch {canary}-pager",
    "core.sshCommand": "touch {canary}-ssh",
    "core.askPass": "{canary}.sh",
    "core.alternateRefsCommand": "touch {canary}-alternate",
    "core.gitProxy": "{canary}.sh",
    "diff.external": "{canary}.sh",
    "diff.bad.command": "{canary}.sh",
    "diff.bad.textconv": "{canary}.sh",
    "filter.bad.clean": "{canary}.sh",
    "filter.bad.smudge": "{canary}.sh",
    "filter.bad.process": "{canary}.sh",
    "merge.bad.driver": "{canary}.sh",
    "hook.bad.event": "pre-commit",
    "hook.bad.command": "{canary}.sh",
    "gpg.program": "{canary}.sh",
    "commit.gpgSign": "true",
    "log.showSignature": "true",
    "credential.helper": "!touch {canary}-helper",
    "remote.origin.uploadpack": "{canary}.sh",
    "remote.origin.receivepack": "{canary}.sh",
    "remote.origin.vcs": "bad",
    "sequence.editor": "{canary}.sh",
    "rebase.backend": "apply",
    "pager.log": "{canary}.sh",
    "alias.status": "!touch {canary}-alias",
}


@needs_sandbox
async def test_a_hostile_repository_runs_nothing(repo: Path, origin: Path, tmp_path: Path) -> None:
    canary = repo / "canary"
    script = repo / "canary.sh"
    script.write_text(f"#!/bin/sh\ntouch {canary}-$$\ncat\n")
    script.chmod(0o755)
    (repo / ".gitattributes").write_text("*.txt diff=bad merge=bad\n")
    git(repo, "add", ".")
    git(repo, "commit", "--quiet", "-m", "attributes")
    for hook in ("pre-commit", "commit-msg", "post-commit", "post-checkout", "post-merge", "pre-push", "pre-rebase"):
        place = repo / ".git" / "hooks" / hook
        place.write_text(script.read_text())
        place.chmod(0o755)
    for key, value in HOSTILE.items():
        git(repo, "config", key, value.format(canary=canary))
    async with session_of(repo, origin) as session:
        (repo / "a.txt").write_text("two\n")
        for name, arguments in (
            *(("git_status", {}), ("git_diff", {}), ("git_log", {"full": True}), ("git_changed_files", {})),
            *(("git_stash", {}), ("git_stash", {"action": "show"}), ("git_stash", {"action": "pop"})),
            *(("git_stage", {"files": ["a.txt"]}), ("git_commit", {"message": "two"})),
            *(("git_branch", {"action": "create", "name": "topic", "start": "HEAD~1"}),),
        ):
            await told(session, name, **arguments)
        (repo / "a.txt").write_text("three\n")
        await told(session, "git_commit", message="three", all=True)
        assert (await error_of(session, "git_merge", branch="topic", into="main"))[0] == "conflict"
        await told(session, "git_branch", action="switch", name="main")
        await told(session, "git_push")
        await told(session, "git_pull", rebase=True)

    assert [path.name for path in repo.glob("canary-*")] == []
    assert git(origin, "log", "-1", "--format=%s", "main") == "two"
    subprocess.run(["git", "status"], cwd=repo, env={**os.environ, **OWN}, capture_output=True, check=False)
    assert [path.name for path in repo.glob("canary-*")] == ["canary-fsmonitor"], "anybody else's git runs it"


INJECTED = (
    "--output={canary}", "--upload-pack=touch {canary}", "-D", "$(touch {canary})", "x\ntouch {canary}",
    "--pathspec-from-file=/etc/passwd", "../../../etc/passwd", ":(top)../x",
)  # fmt: skip
PLACES: Mapping[str, tuple[str, ...]] = {
    "git_status": ("repo",),
    "git_diff": ("ref1", "ref2", "path", "repo"),
    "git_log": ("ref", "path", "repo"),
    "git_changed_files": ("base_branch", "repo"),
    "git_branch": ("name", "start", "repo"),
    "git_merge": ("branch", "into", "repo"),
    "git_stage": ("files", "repo"),
    "git_commit": ("message", "repo"),
    "git_stash": ("message", "repo"),
    "git_push": ("branch", "remote", "repo"),
    "git_pull": ("branch", "remote", "repo"),
}
BESIDE: Mapping[str, Mapping[str, Any]] = {
    "git_branch": {"action": "create", "name": "made"},
    "git_merge": {"branch": "main"},
    "git_stash": {"action": "push"},
}


@needs_sandbox
@pytest.mark.parametrize("text", INJECTED)
async def test_no_argument_becomes_an_option_or_a_command(repo: Path, origin: Path, tmp_path: Path, text: str) -> None:
    """Every text argument of every tool, once: nothing runs, nothing outside is read, no file is made by an option."""
    canary = repo / "canary"
    said = text.format(canary=canary)
    (repo / "a.txt").write_text("changed\n")
    before = sorted(path.name for path in repo.iterdir())
    answers: list[str] = []
    async with session_of(repo, origin) as session:
        for name, places in PLACES.items():
            for place in places:
                value = [said] if place == "files" else said
                result = await session.call(name, {**BESIDE.get(name, {}), place: value})
                assert result.error is None or result.error.code != "internal", result.text
                answers.append(result.text)

    assert sorted(path.name for path in repo.iterdir()) == before
    assert not any("root:x:0" in answer for answer in answers)
    assert not list(tmp_path.rglob("canary*"))


@needs_sandbox
async def test_what_a_repository_says_of_places_elsewhere_is_not_believed(repo: Path, tmp_path: Path) -> None:
    """Another working tree, objects of another repository, an included file, a link in place of `.git`."""
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    (other / "secret.txt").write_text("kept from tools\n")
    git(other, "add", ".")
    git(other, "commit", "--quiet", "-m", "theirs")
    secret = git(other, "rev-parse", "HEAD")
    (other / "included").write_text(f"[core]\n\tpager = touch {repo}/canary\n")
    git(repo, "config", "core.worktree", str(other))
    git(repo, "config", "include.path", str(other / "included"))
    (repo / ".git" / "objects" / "info" / "alternates").write_text(f"{other}/.git/objects\n")
    linked = repo / "linked"
    linked.mkdir()
    (linked / ".git").symlink_to(other / ".git")
    async with session_of(repo) as session:
        status = await told(session, "git_status")
        shown = await error_of(session, "git_log", ref=secret)
        through = await error_of(session, "git_log", repo="linked")

    assert status["untracked"] == []
    assert "secret.txt" not in json.dumps(status)
    assert "there is no commit" in shown[1]
    assert through[0] in ("denied", "not_found", "tool_error")
    assert not (repo / "canary").exists()


@needs_sandbox
async def test_a_submodule_fetches_and_runs_nothing(repo: Path, origin: Path) -> None:
    (repo / ".gitmodules").write_text(f'[submodule "x"]\n\tpath = x\n\turl = ext::sh -c "touch {repo}/canary"\n')
    git(repo, "add", ".")
    git(repo, "update-index", "--add", "--cacheinfo", f"160000,{git(repo, 'rev-parse', 'HEAD')},x")
    git(repo, "commit", "--quiet", "-m", "with a submodule")
    async with session_of(repo, origin) as session:
        for name in ("git_status", "git_diff", "git_changed_files", "git_push", "git_pull"):
            await told(session, name)
        await told(session, "git_branch", action="create", name="topic", start="HEAD~1")
        await told(session, "git_branch", action="switch", name="main")

    assert not list(repo.rglob("canary"))


@pytest.mark.parametrize("sandboxed", [True, False])
async def test_a_remote_that_is_no_server_is_refused(repo: Path, tmp_path: Path, sandboxed: bool) -> None:
    urls = ["ext::sh -c 'touch canary'", "/etc", "file:///etc", "-oProxyCommand=touch", "http://example.com/a", "a::b"]
    async with session_of(repo, environment=bare().environment if sandboxed else without_sandbox(tmp_path)) as session:
        for url in urls:
            git(repo, "config", "remote.origin.url", url)
            assert (await error_of(session, "git_push"))[0] == "denied", url
            assert (await error_of(session, "git_pull"))[0] == "denied", url
    assert not (repo / "canary").exists()


async def test_a_repository_outside_of_the_workspace_is_out_of_reach(repo: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    (repo / "sub").mkdir()
    (repo / "sub" / ".git").write_text(f"gitdir: {other}/.git\n")
    async with session_of(repo / "sub") as session:
        linked = await error_of(session, "git_status")
        (repo / "sub" / ".git").unlink()
        above = await error_of(session, "git_status")
        outside = await error_of(session, "git_status", repo=str(other))

    assert linked[0] in ("denied", "not_found", "tool_error")
    assert above == ("tool_error", "'.' is in no git repository of the workspace")
    assert outside[0] == "denied"


async def test_nobody_is_asked_about_a_remote_that_is_never_reached(repo: Path) -> None:
    urls = ["ext::sh -c 'touch canary'", "/etc", "https://127.0.0.1:1/a.git", ""]
    approver = RecordingApprover("no")
    async with session_of(repo, mode="manual") as session:
        session.state.approvals.approver = approver
        for url in urls:
            git(repo, "config", "remote.origin.url", url or "unset")
            if not url:
                git(repo, "config", "--unset", "remote.origin.url")
            codes = [(await error_of(session, name))[0] for name in ("git_push", "git_pull")]
            assert codes == [["denied", "not_found"][not url]] * 2, url
        assert approver.questions == []
        git(repo, "config", "remote.origin.url", "https://git.example/a.git")
        assert (await error_of(session, "git_push"))[0] == "denied"
    assert [question.tool.name for question in approver.questions] == ["git_push"]
