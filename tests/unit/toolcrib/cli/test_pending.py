"""`toolcrib pending` and `toolcrib shadow`, as somebody types them in a project."""

from __future__ import annotations

import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from toolcrib.config import Settings, load
from toolcrib.crib import Toolcrib
from toolcrib.workspace.disk import DiskWorkspace
from toolcrib.workspace.paths import Guard
from toolcrib.workspace.pending_changes import PendingWorkspace
from toolcrib.workspace.shadow import shadow_of
from unit.toolcrib.cli.conftest import User


@pytest.fixture
def project(user: User, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(user.project)
    (user.project / "a.txt").write_text("a\n")
    (user.project / "b.txt").write_text("b\n")
    return user.project


def settings_of(user: User) -> Settings:
    return load((), {}, {"HOME": str(user.home)}, cwd=user.project)


def waits(user: User, owner: str = "task t", **contents: str) -> None:
    """Let changes wait, as a session of a mode with review leaves them."""

    async def main() -> None:
        async with Toolcrib(settings_of(user)) as crib:
            tree = DiskWorkspace(user.project).tree
            workspace = PendingWorkspace(tree, crib.store.pending, principal="local", owner=owner, files="review")
            await workspace.write_all({f"{name}.txt": text.encode() for name, text in contents.items()})

    anyio.run(main)


def run(main: Callable[[], Awaitable[object]]) -> None:
    async def wait() -> None:
        await main()

    anyio.run(wait)


def test_where_nothing_waits_that_is_said_and_no_file_is_made(user: User, project: Path) -> None:
    result = user.types("pending")
    assert (result.exit_code, result.stderr) == (0, "nothing waits for review\n")
    assert not (user.home / ".local").exists()


def test_what_waits_is_listed_and_shown_as_a_diff(user: User, project: Path) -> None:
    waits(user, a="A\n", c="C\n")
    assert [(one["owner"], one["path"], one["kind"]) for one in user.reads("pending")] == [
        ("task t", "a.txt", "file"),
        ("task t", "c.txt", "file"),
    ]
    assert "PATH\n" in user.types("pending").stdout
    assert "-a\n+A\n" in user.types("pending", "diff", "a.txt").stdout
    assert "+C" in user.types("pending", "diff").stdout


def test_a_file_is_accepted_by_its_path_from_here_or_from_the_workspace(
    user: User, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "sub").mkdir()
    monkeypatch.chdir(project / "sub")
    waits(user, a="A\n", b="B\n", c="C\n")
    assert user.types("pending", "accept", "../a.txt").stdout == "accepted: a.txt\n"
    assert user.types("pending", "accept", "b.txt").stdout == "accepted: b.txt\n"
    assert user.types("pending", "reject", "--all").stdout == "rejected: c.txt\n"
    assert [(project / name).read_text() for name in ("a.txt", "b.txt")] == ["A\n", "B\n"]
    assert not (project / "c.txt").exists()


def test_a_conflict_shows_both_sides_and_is_settled_by_an_option(user: User, project: Path) -> None:
    (project / "a.txt").write_text("1\n2\n3\n4\n")
    waits(user, a="one\n2\n3\n4\n")
    (project / "a.txt").write_text("1\n2\n3\nfour\n")
    result = user.types("pending", "accept", "--all")
    assert (result.exit_code, (project / "a.txt").read_text()) == (6, "1\n2\n3\nfour\n")
    assert all(text in result.stderr for text in ("+four", "+one", "--merge puts both together"))
    assert user.types("pending", "accept", "--all", "--merge").exit_code == 0
    assert (project / "a.txt").read_text() == "one\n2\n3\nfour\n"


@pytest.mark.slow
def test_where_several_tasks_have_changes_one_is_named(user: User, project: Path) -> None:
    waits(user, "task t", a="T\n")
    waits(user, "task u", a="U\n")
    result = user.types("pending", "accept", "--all")
    assert (result.exit_code, "--task ID" in result.stderr) == (2, True)
    assert user.types("pending", "accept", "--all", "--task", "u").exit_code == 0
    assert (project / "a.txt").read_text() == "U\n"
    assert [one["owner"] for one in user.reads("pending")] == ["task t"]


@pytest.mark.parametrize(
    "words",
    [
        ["accpt"],
        ["accept"],
        ["accept", "a.txt", "--all"],
        ["list", "--merge"],
        ["accept", "--all", "--merge", "--overwrite"],
        ["list", "--task", "t", "--session", "s"],
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(user: User, project: Path, words: list[str]) -> None:
    assert user.types("pending", *words).exit_code == 2


@pytest.mark.slow
def test_calls_of_one_task_see_what_waits_of_it_and_others_do_not(user: User, project: Path) -> None:
    project.joinpath("c.yaml").write_text("workspace: .\nmode: review\n")
    words = ("call", "--config", "c.yaml", "--mode", "review")
    written = user.types(*words, "--task", "t", "write_file", "path=a.txt", "content=new")
    same, other = (user.types(*words, "--task", task, "read_file", "path=a.txt").stdout for task in ("t", "u"))

    assert written.exit_code == 0, written.output
    assert (same.strip(), other.strip(), project.joinpath("a.txt").read_text()) == ("new", "a", "a\n")
    assert "task t " in user.types("pending").stdout


def test_a_path_at_which_nothing_waits_is_not_found(user: User, project: Path) -> None:
    waits(user, a="A\n")
    result = user.types("pending", "accept", "b.txt")
    assert (result.exit_code, "nothing waits for review at b.txt" in result.stderr) == (3, True)


@pytest.mark.process
def test_a_shadow_is_listed_shown_merged_and_discarded(user: User, project: Path) -> None:
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
        subprocess.run(["git", *identity, *arguments], cwd=project, check=True, capture_output=True)

    async def work() -> None:
        workspace = await shadow_of(project, "t1").open(Guard())
        await workspace.write("a.txt", b"A\n")

    run(work)
    assert user.reads("shadow") == ["t1"]
    assert "+A" in user.types("shadow", "diff", "t1").stdout
    assert user.types("shadow", "merge", "t1").stdout == "merged: a.txt\n"
    assert (project / "a.txt").read_text() == "A\n"
    assert user.types("shadow", "discard", "t1").exit_code == 0
    assert user.types("shadow").stderr == "no task has a shadow here\n"
    assert user.types("shadow", "merge", "t1").exit_code == 3
