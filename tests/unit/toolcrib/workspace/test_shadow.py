"""Shadows begin as the main tree is and are merged as a whole; a hostile repository runs nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from toolcrib.errors import ToolFailure, UsageError
from toolcrib.workspace.disk import DiskWorkspace
from toolcrib.workspace.paths import Guard
from toolcrib.workspace.shadow import Shadow, shadow_of, shadows_of

pytestmark = pytest.mark.process

LINES = "1\n2\n3\n4\n5\n"


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    done = subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "a.txt").write_text(LINES)
    (folder / "old.txt").write_text("old\n")
    (folder / ".gitignore").write_text("build/\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


async def opened(root: Path, task: str = "t1") -> tuple[Shadow, DiskWorkspace]:
    shadow = shadow_of(root, task)
    return shadow, await shadow.open(Guard())


async def merged(shadow: Shadow) -> list[str]:
    return await shadow.merge(DiskWorkspace(shadow.workspace).tree)


async def test_a_shadow_begins_as_the_main_tree_is_without_what_git_ignores(root: Path) -> None:
    (root / "a.txt").write_text("not committed\n")
    (root / "new.txt").write_text("not added\n")
    (root / "staged.txt").write_text("staged\n")
    git(root, "add", "staged.txt")
    (root / "build").mkdir()
    (root / "build" / "out.o").write_text("ignored")
    before = git(root, "status", "--porcelain")
    _, files = await opened(root)
    assert {entry.path for entry in await files.walk()} == {"a.txt", "new.txt", "old.txt", "staged.txt"}
    assert await files.read("a.txt") == b"not committed\n"
    assert (git(root, "status", "--porcelain"), git(root, "stash", "list")) == (before, "")


async def test_what_the_task_did_is_merged_as_a_whole_and_nothing_is_committed(root: Path) -> None:
    shadow, files = await opened(root)
    await files.write_all({"a.txt": b"ONE\n2\n3\n4\n5\n", "old.txt": None, "sub/new.sh": b"echo\n"})
    (files.root / "sub" / "new.sh").chmod(0o755)
    (root / "a.txt").write_text("1\n2\n3\n4\nFIVE\n")
    assert await merged(shadow) == ["a.txt", "old.txt", "sub/new.sh"]
    assert (root / "a.txt").read_text() == "ONE\n2\n3\n4\nFIVE\n"
    assert ((root / "old.txt").exists(), (root / "sub" / "new.sh").stat().st_mode & 0o777) == (False, 0o755)
    assert git(root, "log", "--format=%s").split() == ["first"]
    assert await merged(shadow) == ["a.txt", "old.txt", "sub/new.sh"], "again is no harm"


async def test_a_conflict_is_named_and_nothing_is_half_merged(root: Path) -> None:
    shadow, files = await opened(root)
    await files.write_all({"a.txt": b"mine\n", "new.txt": b"new\n", "old.txt": None})
    (root / "a.txt").write_text("theirs\n")
    (root / "old.txt").write_text("changed\n")
    with pytest.raises(ToolFailure) as failure:
        await merged(shadow)
    assert [conflict["path"] for conflict in failure.value.details["conflicts"]] == ["a.txt", "old.txt"]
    assert ((root / "a.txt").read_text(), (root / "new.txt").exists()) == ("theirs\n", False)


async def test_what_the_task_committed_in_its_shadow_is_merged_too(root: Path) -> None:
    shadow, files = await opened(root)
    await files.write("a.txt", b"committed\n")
    git(files.root, "add", "-A")
    git(files.root, "commit", "-qm", "by the task")
    assert await merged(shadow) == ["a.txt"]
    assert (root / "a.txt").read_text() == "committed\n"


async def test_a_file_that_became_a_folder_is_merged(root: Path) -> None:
    shadow, files = await opened(root)
    await files.remove("old.txt")
    await files.write("old.txt/inside.txt", b"x")
    await merged(shadow)
    assert (root / "old.txt" / "inside.txt").read_bytes() == b"x"


async def test_a_shadow_is_found_again_and_leaves_nothing_when_it_is_discarded(root: Path) -> None:
    references = git(root, "for-each-ref")
    shadow, files = await opened(root)
    await files.write("a.txt", b"x")
    again, same = await opened(root)
    assert (await same.read("a.txt"), [one.task for one in shadows_of(root)]) == (b"x", ["t1"])
    await again.discard()
    assert (git(root, "for-each-ref"), git(root, "worktree", "list").count("\n"), shadows_of(root)) == (
        references,
        1,
        [],
    )
    assert not shadow.top.exists()


async def test_a_workspace_below_the_top_of_its_repository_has_its_own_part(root: Path) -> None:
    (root / "pkg").mkdir()
    (root / "pkg" / "x.py").write_text("x\n")
    shadow, files = await opened(root / "pkg")
    assert [entry.path for entry in await files.walk()] == ["x.py"]
    await files.write("x.py", b"y\n")
    (shadow.top / "a.txt").write_text("outside of the workspace\n")
    with pytest.raises(ToolFailure, match=r"a\.txt: .*outside of the workspace"):
        await merged(shadow)
    (shadow.top / "a.txt").write_text(LINES)
    assert await merged(shadow) == ["pkg/x.py"]


async def test_a_repository_without_a_commit_has_shadows(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a.txt").write_text("a")
    shadow, files = await opened(tmp_path)
    await files.write("a.txt", b"b")
    await merged(shadow)
    assert (tmp_path / "a.txt").read_text() == "b"


async def test_two_tasks_have_two_shadows(root: Path) -> None:
    (_, one), (_, two) = await opened(root, "one"), await opened(root, "two")
    await one.write("a.txt", b"1")
    assert await two.read("a.txt") == LINES.encode()


@pytest.mark.parametrize("task", ["", "../x", "a/b", "-x", "a..b", "x.lock", ".hidden", "x" * 65, "a b", "x."])
def test_a_name_that_could_lead_elsewhere_is_no_task(root: Path, task: str) -> None:
    with pytest.raises(UsageError, match="a task is named by"):
        shadow_of(root, task)


def test_without_git_there_is_no_shadow(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no git repository"):
        shadow_of(tmp_path, "t")


async def test_a_link_that_the_task_made_is_not_merged(root: Path) -> None:
    shadow, files = await opened(root)
    (files.root / "link").symlink_to("/etc/passwd")
    with pytest.raises(ToolFailure, match="link: it is a link"):
        await merged(shadow)
    assert not (root / "link").is_symlink()


async def test_a_place_for_shadows_that_is_a_link_is_not_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (root / ".toolcrib").symlink_to(tmp_path / "outside")
    with pytest.raises(ToolFailure):
        await opened(root)
    assert list((tmp_path / "outside").iterdir()) == []


HOOKS = ("post-checkout", "post-index-change", "reference-transaction", "pre-commit", "post-commit", "post-rewrite")


async def test_nothing_that_a_hostile_repository_configures_is_run(root: Path, tmp_path: Path) -> None:
    shot = tmp_path / "shot"
    script = tmp_path / "shoot.sh"
    script.write_text(f"#!/bin/sh\ntouch {shot}\ncat\n")
    script.chmod(0o755)
    hooks = root / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for hook in HOOKS:
        (hooks / hook).write_text(script.read_text())
        (hooks / hook).chmod(0o755)
    keys = ["core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.askPass", "diff.external"]
    keys += ["filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "filter.a=b.clean", "filter.a=b.smudge"]
    keys += ["diff.evil.command", "diff.evil.textconv", "merge.evil.driver", "gpg.program", "credential.helper"]
    keys += ["alias.add", "alias.worktree", "core.hooksPath", "core.gitProxy", "uploadpack.packObjectsHook"]
    for key in keys:
        value = str(hooks) if key == "core.hooksPath" else f"!{script}" if key.startswith("alias") else str(script)
        git(root, "config", key, value)
    for key in ("filter.evil.required", "commit.gpgSign", "core.untrackedCache"):
        git(root, "config", key, "true")
    (root / ".git" / "config").write_text(
        (root / ".git" / "config").read_text() + "[include]\n\tpath = more\n[core]\n\tworktree = /\n"
    )
    (root / ".git" / "more").write_text(f'[filter "included"]\n\tclean = {script}\n\tsmudge = {script}\n')
    attributes = "*.txt filter=evil diff=evil merge=evil\n*.md filter=a=b\n*.rst filter=included\n"
    (root / ".gitattributes").write_text(attributes)
    for name in ("x.md", "y.rst"):
        (root / name).write_text("text\n")
    os.utime(root / "a.txt", (1, 1))
    shadow, files = await opened(root)
    await files.write_all({"a.txt": b"mine\n", "x.md": b"mine\n", "y.rst": b"mine\n"})
    assert "+mine" in await shadow.diff()
    assert await merged(shadow) == ["a.txt", "x.md", "y.rst"]
    await shadow.discard()
    assert not shot.exists()
