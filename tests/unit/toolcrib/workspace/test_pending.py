"""Changes that wait for review: seen by every reader, accepted one by one or together, kept over a restart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from rig import PATIENCE
from toolcrib.core.workspace import MAX_PENDING
from toolcrib.errors import ToolFailure
from toolcrib.store.store import Store
from toolcrib.workspace.disk import DiskWorkspace
from toolcrib.workspace.pending_changes import PendingWorkspace
from toolcrib.workspace.review import accept, diff, merged, reject


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    async with Store.open(tmp_path / "data" / "toolcrib.db") as opened:
        yield opened


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\nthree\nfour\nfive\n")
    (folder / "b.txt").write_text("b\n")
    return folder


def over(root: Path, store: Store, owner: str = "session s", principal: str = "p") -> PendingWorkspace:
    return PendingWorkspace(DiskWorkspace(root).tree, store.pending, principal=principal, owner=owner, files="audit")


@pytest.fixture
def workspace(root: Path, store: Store) -> PendingWorkspace:
    return over(root, store)


def on_disk(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


async def taken(workspace: PendingWorkspace, *paths: str, **options: Any) -> list[str]:
    return await accept(workspace.tree, workspace.store, workspace.key, paths or None, **options)


BEFORE = {"a.txt": "one\ntwo\nthree\nfour\nfive\n", "b.txt": "b\n"}


async def test_a_write_is_seen_by_every_reader_and_not_on_the_disk(workspace: PendingWorkspace, root: Path) -> None:
    written = await workspace.write("new/c.txt", b"c\n")
    assert (written.pending, written.created, on_disk(root)) == (True, True, BEFORE)
    assert await workspace.read("new/c.txt") == b"c\n"
    assert [(entry.path, entry.pending) for entry in await workspace.walk()] == [
        ("a.txt", False),
        ("b.txt", False),
        ("new/c.txt", True),
    ]
    assert [(entry.path, entry.kind) for entry in await workspace.list("new")] == [("new/c.txt", "file")]
    assert dict(await workspace.overlay()) == {"new/c.txt": b"c\n"}


async def test_windows_show_what_waits_and_the_disk_where_nothing_does(workspace: PendingWorkspace, root: Path) -> None:
    await workspace.write("b.txt", b"new content")
    await workspace.remove("a.txt")
    (root / "c.txt").write_bytes(b"on the disk")

    async with workspace.opened("b.txt") as waiting, workspace.opened("c.txt") as there:
        read = [(file.size, file.read_at(3, 5)) for file in (waiting, there)]

    assert read == [(11, b" cont"), (11, b"the d")]
    for path, limit, code in (("a.txt", None, "not_found"), ("b.txt", 10, "too_large"), (".", None, "tool_error")):
        with pytest.raises(ToolFailure) as failure:
            async with workspace.opened(path, limit=limit):
                raise AssertionError
        assert failure.value.code == code


async def test_many_files_are_read_at_once_and_one_that_may_not_be_hides_no_other(workspace: PendingWorkspace) -> None:
    await workspace.write("b.txt", b"new\n")
    await workspace.remove("a.txt")
    found = await workspace.read_many(["../x", "b.txt", "a.txt", ".env", "b.txt"])
    assert [one.code if isinstance(one, ToolFailure) else one for one in found] == [
        *("denied", b"new\n", "not_found", "denied", b"new\n"),
    ]


async def test_many_paths_are_looked_at_at_once(workspace: PendingWorkspace, root: Path) -> None:
    await workspace.write("new.txt", b"new\n")
    await workspace.remove("a.txt")
    (root / ".env").write_bytes(b"KEY=1\n")
    asked = ["../x", "b.txt", "a.txt", ".env", "new.txt", "nothing"]
    waiting, disk = await workspace.stat_many(asked), await DiskWorkspace(root).stat_many(asked)
    assert [one and (one.path, one.kind, one.pending) for one in waiting] == [
        *(None, ("b.txt", "file", False), None, None, ("new.txt", "file", True), None),
    ]
    assert [one and one.path for one in disk] == [None, "b.txt", "a.txt", None, None, None]


async def test_one_file_is_accepted_and_another_rejected(workspace: PendingWorkspace, root: Path) -> None:
    await workspace.write_all({"a.txt": b"A\n", "new/c.txt": b"c\n", "b.txt": None})
    assert await taken(workspace, "new/c.txt") == ["new/c.txt"]
    assert on_disk(root) == {**BEFORE, "new/c.txt": "c\n"}
    assert await reject(workspace.tree, workspace.store, workspace.key, ["b.txt"]) == ["b.txt"]
    assert [change.path for change in (await workspace.waiting()).changes] == [str(root / "a.txt")]
    assert await workspace.read("b.txt") == b"b\n"


async def test_a_change_that_is_taken_back_waits_no_more(workspace: PendingWorkspace) -> None:
    await workspace.write("b.txt", b"other\n")
    await workspace.write("b.txt", b"b\n")
    assert (await workspace.waiting()).changes == ()


async def test_a_batch_of_which_one_file_cannot_be_written_changes_nothing(
    workspace: PendingWorkspace, root: Path
) -> None:
    await workspace.write_all({"a.txt": b"A\n", "b.txt": b"B\n", "c/d.txt": b"D\n"})
    (root / "c").write_text("a file where a folder shall be")
    with pytest.raises(ToolFailure):
        await taken(workspace)
    assert on_disk(root) == {**BEFORE, "c": "a file where a folder shall be"}
    assert {entry.name for entry in root.iterdir()} == {"a.txt", "b.txt", "c"}, "nothing of ours is left"
    (root / "c").unlink()
    assert await taken(workspace) == ["a.txt", "b.txt", "c/d.txt"]
    assert on_disk(root) == {"a.txt": "A\n", "b.txt": "B\n", "c/d.txt": "D\n"}


async def test_a_file_that_changed_underneath_is_a_conflict_that_shows_both_sides(
    workspace: PendingWorkspace, root: Path
) -> None:
    await workspace.write_all({"a.txt": b"ONE\ntwo\nthree\nfour\nfive\n", "b.txt": b"B\n"})
    (root / "a.txt").write_text("one\ntwo\nthree\nfour\nFIVE\n")
    with pytest.raises(ToolFailure) as failure:
        await taken(workspace)
    shown = failure.value.details["conflicts"][0]
    assert (failure.value.code, shown["path"], shown["can_merge"]) == ("conflict", "a.txt", True)
    assert ("+FIVE" in shown["disk"], "+ONE" in shown["pending"]) == (True, True)
    assert on_disk(root)["b.txt"] == "b\n", "nothing is half done"
    assert len((await workspace.waiting()).changes) == 2
    await taken(workspace, on_conflict="merge")
    assert on_disk(root) == {"a.txt": "ONE\ntwo\nthree\nfour\nFIVE\n", "b.txt": "B\n"}


async def test_a_link_that_leads_elsewhere_since_is_a_change_of_the_folder_that_is_to_go(
    workspace: PendingWorkspace, root: Path
) -> None:
    link = root / "folder" / "link"
    link.parent.mkdir()
    link.symlink_to("../a.txt")
    await workspace.remove("folder", recursive=True)
    link.unlink()
    link.symlink_to("../b.txt")
    with pytest.raises(ToolFailure) as failure:
        await taken(workspace)
    assert (failure.value.code, link.is_symlink()) == ("conflict", True)


async def test_a_conflict_on_the_same_line_is_not_merged_but_can_be_overwritten(
    workspace: PendingWorkspace, root: Path
) -> None:
    await workspace.write("b.txt", b"mine\n")
    (root / "b.txt").write_text("theirs\n")
    with pytest.raises(ToolFailure) as failure:
        await taken(workspace, on_conflict="merge")
    assert failure.value.details["conflicts"][0]["can_merge"] is False
    await taken(workspace, on_conflict="overwrite")
    assert on_disk(root)["b.txt"] == "mine\n"


async def test_a_file_that_holds_already_what_waits_is_no_conflict(workspace: PendingWorkspace, root: Path) -> None:
    await workspace.write("b.txt", b"same\n")
    (root / "b.txt").write_text("same\n")
    assert await taken(workspace) == ["b.txt"]
    assert (await workspace.waiting()).changes == ()


async def test_the_permissions_of_a_file_outlive_its_change(workspace: PendingWorkspace, root: Path) -> None:
    (root / "run.sh").write_text("echo\n")
    (root / "run.sh").chmod(0o750)
    await workspace.write("run.sh", b"echo 2\n")
    await workspace.move("run.sh", "bin/run.sh")
    await taken(workspace)
    assert ((root / "bin" / "run.sh").stat().st_mode & 0o777, (root / "run.sh").exists()) == (0o750, False)


async def test_what_waits_is_bound_to_its_principal_workspace_and_owner(
    workspace: PendingWorkspace, root: Path, store: Store, tmp_path: Path
) -> None:
    await workspace.write("b.txt", b"mine\n")
    (tmp_path / "elsewhere").mkdir()
    for other in (
        over(root, store, "session t"),
        over(root, store, principal="q"),
        over(tmp_path / "elsewhere", store),
    ):
        assert (await other.waiting()).changes == ()
    assert await over(root, store).read("b.txt") == b"mine\n"


async def test_two_sessions_of_one_task_see_each_others_changes(root: Path, store: Store) -> None:
    one, two = over(root, store, "task t"), over(root, store, "task t")
    await one.write("x.txt", b"1")
    await two.write("y.txt", b"2")
    assert [entry.path for entry in await one.walk()] == ["a.txt", "b.txt", "x.txt", "y.txt"]


@pytest.mark.slow
async def test_more_than_the_cap_is_refused_and_what_waits_stays(workspace: PendingWorkspace) -> None:
    await workspace.write("half.bin", os.urandom(1024) * (MAX_PENDING // 2048))
    with pytest.raises(ToolFailure) as failure:
        await workspace.write("more.bin", b"x" * (MAX_PENDING // 2 + 1))
    assert failure.value.code == "too_large"
    assert [entry.path for entry in await workspace.walk()] == ["a.txt", "b.txt", "half.bin"]


async def test_the_database_alone_does_not_tell_what_waits(
    workspace: PendingWorkspace, store: Store, tmp_path: Path
) -> None:
    await workspace.write("b.txt", b"the launch code is 4711\n" * 50)
    await store.flush()
    kept = b"".join(path.read_bytes() for path in (tmp_path / "data").glob("toolcrib.db*"))
    assert b"launch code" not in kept


async def test_the_diff_of_a_change_is_against_the_disk(workspace: PendingWorkspace, root: Path) -> None:
    await workspace.write_all({"b.txt": b"c\n", "new.bin": b"\0\1"})
    await workspace.remove("a.txt")
    waiting = (await workspace.waiting()).changes
    shown = "".join([await diff(workspace.tree, workspace.store, workspace.key, change) for change in waiting])
    assert ("-b\n+c\n" in shown, "new.bin: nothing on disk, 2 bytes pending" in shown, "-five" in shown) == (True,) * 3


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", ".env", ".git/config", "link/x"])
async def test_what_may_not_be_written_may_not_be_written_down(
    workspace: PendingWorkspace, root: Path, path: str
) -> None:
    (root / "link").symlink_to("/etc")
    with pytest.raises(ToolFailure):
        await workspace.write(path, b"x")
    assert (await workspace.waiting()).changes == ()


async def test_a_link_that_came_underneath_is_not_written_through(
    workspace: PendingWorkspace, root: Path, tmp_path: Path
) -> None:
    (root / "sub").mkdir()
    await workspace.write("sub/x.txt", b"x")
    (root / "sub").rmdir()
    (tmp_path / "outside").mkdir()
    (root / "sub").symlink_to(tmp_path / "outside")
    with pytest.raises(ToolFailure):
        await taken(workspace, on_conflict="overwrite")
    assert list((tmp_path / "outside").iterdir()) == []


WRITER = """
import anyio, os, sys
from pathlib import Path
from toolcrib.store.store import Store
from toolcrib.workspace import batch
from toolcrib.workspace.disk import DiskWorkspace
from toolcrib.workspace.pending_changes import PendingWorkspace
from toolcrib.workspace.review import accept

async def main(root, database, commits):
    async with Store.open(Path(database)) as store:
        tree = DiskWorkspace(root).tree
        workspace = PendingWorkspace(tree, store.pending, principal="p", owner="task t", files="audit")
        await workspace.write_all({"a.txt": b"A\\n", "b.txt": b"B\\n", "c/d.txt": b"D\\n"})
        if commits:
            left = [int(commits)]
            commit = batch._Batch.commit
            def dies(work, change):
                if not left[0]:
                    os.kill(os.getpid(), 9)
                left[0] -= 1
                commit(work, change)
            batch._Batch.commit = dies
            await accept(tree, store.pending, workspace.key)
        os.kill(os.getpid(), 9)

anyio.run(main, *sys.argv[1:])
"""


def killed(root: Path, tmp_path: Path, commits: int) -> None:
    """Write three files down in a process that is killed; after so many steps of an acceptance, or without one."""
    database = str(tmp_path / "data" / "toolcrib.db")
    command = [sys.executable, "-c", WRITER, str(root), database, str(commits or "")]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


@pytest.mark.process
async def test_what_waits_survives_kill_9(root: Path, tmp_path: Path) -> None:
    killed(root, tmp_path, 0)
    async with Store.open(tmp_path / "data" / "toolcrib.db") as store:
        workspace = over(root, store, "task t")
        assert await workspace.read("c/d.txt") == b"D\n"
        assert on_disk(root) == BEFORE
        await taken(workspace)
    assert on_disk(root) == {"a.txt": "A\n", "b.txt": "B\n", "c/d.txt": "D\n"}


@pytest.mark.process
@pytest.mark.parametrize("commits", [1, 2, 3])
async def test_an_acceptance_that_kill_9_interrupted_is_brought_to_its_end(
    root: Path, tmp_path: Path, commits: int
) -> None:
    killed(root, tmp_path, commits)
    assert on_disk(root) != {"a.txt": "A\n", "b.txt": "B\n", "c/d.txt": "D\n"}
    async with Store.open(tmp_path / "data" / "toolcrib.db") as store:
        workspace = over(root, store, "task t")
        assert (await workspace.waiting()).changes == ()
        assert [entry.path for entry in await workspace.walk()] == ["a.txt", "b.txt", "c/d.txt"]
    assert on_disk(root) == {"a.txt": "A\n", "b.txt": "B\n", "c/d.txt": "D\n"}


@pytest.mark.parametrize(
    ("ours", "theirs", "both"),
    [
        ("1\n2\n3\nx\n", "y\n2\n3\n4\n", "y\n2\n3\nx\n"),
        ("1\n2\n3\n4\n5\n", "0\n1\n2\n3\n4\n", "0\n1\n2\n3\n4\n5\n"),
        ("1\nx\n3\n4\n", "1\ny\n3\n4\n", None),
        ("1\n3\n4\n", "1\n2\nx\n4\n", None),
        ("1\nx\n3\n4\n", "1\nx\n3\n4\n", "1\nx\n3\n4\n"),
        ("1\n2\n3\n4\n", "1\n", "1\n"),
    ],
)
def test_two_sides_are_put_together_where_they_touch_different_lines(ours: str, theirs: str, both: str | None) -> None:
    found = merged(b"1\n2\n3\n4\n", ours.encode(), theirs.encode())
    assert found == (None if both is None else both.encode())
