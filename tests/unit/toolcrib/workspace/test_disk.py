"""Files on the disk as tools see them: whole or not at all, several together or none."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Awaitable
from pathlib import Path

import pytest

from toolcrib.core.workspace import FileEntry, Written
from toolcrib.errors import ToolFailure, UsageError
from toolcrib.workspace.batch import Change, Conflict, apply
from toolcrib.workspace.disk import DiskWorkspace
from toolcrib.workspace.paths import Guard


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def workspace(root: Path) -> DiskWorkspace:
    return DiskWorkspace(root)


def on_disk(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


async def failure_of(work: Awaitable[object]) -> ToolFailure:
    with pytest.raises(ToolFailure) as failure:
        await work
    return failure.value


async def test_a_write_makes_its_folders_and_says_what_it_came_to(workspace: DiskWorkspace, root: Path) -> None:
    assert await workspace.write("a/b/c.txt", b"1") == Written(path="a/b/c.txt", created=True, size=1)
    assert await workspace.write("a/b/c.txt", b"22") == Written(path="a/b/c.txt", created=False, size=2)
    assert on_disk(root) == {"a/b/c.txt": b"22"}


async def test_a_file_that_is_replaced_keeps_its_permissions_and_loses_no_reader(
    workspace: DiskWorkspace, root: Path
) -> None:
    (root / "run.sh").write_bytes(b"old")
    (root / "run.sh").chmod(0o750)
    with (root / "run.sh").open("rb") as reading:
        await workspace.write("run.sh", b"new")
        assert reading.read() == b"old"
    assert ((root / "run.sh").stat().st_mode & 0o7777, (root / "run.sh").read_bytes()) == (0o750, b"new")


async def test_a_new_file_has_the_permissions_that_the_process_gives(workspace: DiskWorkspace, root: Path) -> None:
    (root / "by_hand").touch()
    await workspace.write("ours", b"x")
    assert (root / "ours").stat().st_mode == (root / "by_hand").stat().st_mode


async def test_several_files_are_written_or_none_of_them(workspace: DiskWorkspace, root: Path) -> None:
    await workspace.write_all({"a": b"1", "b": b"1", "gone": b"1"})
    before = on_disk(root)
    (root / "folder").mkdir()
    for contents in ({"a": b"2", "folder": b"2"}, {"a": b"2", "b/x": b"2"}, {"a": b"2", "nowhere": None}):
        await failure_of(workspace.write_all(contents))
        assert on_disk(root) == before
    assert {entry.path for entry in await workspace.list()} == {"a", "b", "folder", "gone"}
    await workspace.write_all({"a": b"2", "b": b"2", "gone": None})
    assert on_disk(root) == {"a": b"2", "b": b"2"}


def test_what_fails_in_the_middle_is_taken_back(root: Path) -> None:
    tree = DiskWorkspace(root).tree
    (root / "a").write_bytes(b"old")
    (root / "sub").mkdir()
    (root / "sub" / "x").write_bytes(b"kept")
    changes = [
        Change(place=tree.place("sub")),
        Change(place=tree.place("a"), content=b"new"),
        Change(place=tree.place("made/deep/file"), content=b"new"),
        Change(place=tree.place("b/x/y"), content=b"new"),
    ]
    (root / "b").write_bytes(b"a file where a folder shall be")
    with pytest.raises(ToolFailure):
        apply(changes)
    assert on_disk(root) == {"a": b"old", "sub/x": b"kept", "b": b"a file where a folder shall be"}
    assert sorted(path.name for path in root.iterdir()) == ["a", "b", "sub"]


def test_a_change_that_was_made_for_another_state_is_a_conflict_and_nothing_changes(root: Path) -> None:
    tree = DiskWorkspace(root).tree
    (root / "a").write_bytes(b"now")
    changes = [Change(place=tree.place(name), content=b"new", expected="") for name in ("a", "b")]
    with pytest.raises(Conflict) as conflict:
        apply(changes)
    assert ([change.place.shown for change in conflict.value.changes], on_disk(root)) == (["a"], {"a": b"now"})


async def test_a_disk_that_refuses_leaves_the_old_file(workspace: DiskWorkspace, root: Path) -> None:
    (root / "full").symlink_to("/dev/full")
    (root / "a").write_bytes(b"old")
    failure = await failure_of(workspace.write_all({"a": b"new", "full": b"x"}))
    assert (failure.code, on_disk(root)["a"]) == ("denied", b"old")


async def test_what_is_not_there_is_told_with_what_is_near(workspace: DiskWorkspace) -> None:
    await workspace.write("src/readme.md", b"x")
    failure = await failure_of(workspace.read("src/readm.md"))
    assert (failure.message, failure.hint) == ("there is no src/readm.md", "near it there is readme.md")


@pytest.mark.parametrize("limit", [4, None])
async def test_more_than_the_limit_is_too_large(workspace: DiskWorkspace, root: Path, limit: int | None) -> None:
    with (root / "big").open("wb") as file:
        file.truncate(5 if limit else (100 << 20) + 1)
    assert (await failure_of(workspace.read("big", limit=limit))).code == "too_large"


async def test_a_walk_gives_files_by_path_and_leaves_out_what_is_hidden_or_not_for_tools(
    workspace: DiskWorkspace, root: Path
) -> None:
    for path in ("b.txt", "a/z.txt", ".hidden/x", "a/.dot", ".git/config", ".toolcrib/shadows/t/x", ".env", "sub/.git"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"")
    assert [entry.path for entry in await workspace.walk()] == ["a/z.txt", "b.txt"]
    assert [entry.path for entry in await workspace.walk(hidden=True)] == [".hidden/x", "a/.dot", "a/z.txt", "b.txt"]
    assert [entry.path for entry in await workspace.walk("a")] == ["a/z.txt"]
    assert len(await workspace.walk(limit=1)) == 1


@pytest.mark.process
async def test_a_tree_deeper_than_there_are_descriptors_is_walked(workspace: DiskWorkspace, root: Path) -> None:
    deep = "/".join("d" for _ in range(1500))
    folder = os.open(root, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(os.open("x.txt", os.O_CREAT, dir_fd=folder))
    os.close(folder)
    try:
        assert [entry.path for entry in await workspace.walk()] == [f"{deep}/x.txt"]
    finally:  # pytest, which takes old folders away, cannot climb down so far
        subprocess.run(["rm", "-rf", str(root / "d")], check=True)


async def test_paths_of_the_second_root_are_absolute(root: Path, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    workspace = DiskWorkspace(root, tmp_path / "second")
    path = str(tmp_path / "second" / "x.txt")
    assert await workspace.write(path, b"x") == Written(path=path, created=True, size=1)
    await workspace.move(path, "here.txt")
    assert on_disk(root) == {"here.txt": b"x"}


async def test_relative_paths_begin_where_the_session_begins(root: Path) -> None:
    (root / "sub").mkdir()
    workspace = DiskWorkspace(root, begin=root / "sub")
    await workspace.write("x.txt", b"x")
    assert on_disk(root) == {"sub/x.txt": b"x"}
    found = await workspace.stat(f"{root}")
    assert found == FileEntry(path=str(root), kind="folder", modified=root.stat().st_mtime)


@pytest.mark.parametrize("folder", ["nowhere", "file"])
def test_a_workspace_is_made_of_folders_that_are_there(root: Path, folder: str) -> None:
    (root / "file").touch()
    with pytest.raises(UsageError, match=f"^{root / folder} "):
        DiskWorkspace(root / folder)


async def test_a_setting_adds_to_what_is_guarded_and_lets_through(root: Path) -> None:
    workspace = DiskWorkspace(root, guard=Guard(("*.secret", "!.env"), ("linked",), (root / "ours",)))
    await workspace.write(".env", b"x")
    assert (await failure_of(workspace.write("a.secret", b"x"))).code == "denied"
    assert (await failure_of(workspace.write("ours/x", b"x"))).code == "denied"
    (root / "linked").mkdir()
    (root / "linked" / "one").write_bytes(b"1")
    os.link(root / "linked" / "one", root / "linked" / "two")
    assert await workspace.read("linked/two") == b"1"


async def test_a_file_is_read_in_windows_as_it_was_when_it_was_opened(workspace: DiskWorkspace, root: Path) -> None:
    (root / "a.txt").write_bytes(b"0123456789")

    async with workspace.opened("a.txt") as file:
        (root / "new").write_bytes(b"another file")
        with (root / "a.txt").open("ab") as growing:
            growing.write(b"more")
        os.replace(root / "new", root / "a.txt")
        read = [file.read_at(0, 4), file.read_at(8, 100), file.read_at(10, 1), file.read_at(99, 1), file.read_at(0, 99)]

    assert (file.size, read) == (10, [b"0123", b"89", b"", b"", b"0123456789"])
    with pytest.raises((ToolFailure, ValueError)):
        file.read_at(0, 1)


@pytest.mark.parametrize(
    ("path", "code"),
    [("link", "denied"), ("way/a", "denied"), ("pipe", "denied"), ("names", "denied"), ("folder", "tool_error"),
     ("nothing", "not_found"), ("../outside", "denied"), (".env", "denied"), ("large", "too_large")],
)  # fmt: skip
async def test_what_may_not_be_read_whole_may_not_be_opened_either(
    workspace: DiskWorkspace, root: Path, tmp_path: Path, path: str, code: str
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a").write_bytes(b"secret")
    (root / "link").symlink_to(tmp_path / "outside" / "a")
    (root / "way").symlink_to(tmp_path / "outside")
    os.link(tmp_path / "outside" / "a", root / "names")
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    (root / ".env").write_bytes(b"KEY=1")
    (root / "large").write_bytes(b"12345678")

    async def open_it() -> None:
        async with workspace.opened(path, limit=7):
            raise AssertionError

    opened, read = await failure_of(open_it()), await failure_of(workspace.read(path, limit=7))
    assert (opened.code, opened.code, opened.message) == (code, read.code, read.message)
