"""Moving, copying, removing, and taking changes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolcrib.core.session import Runtime
from toolcrib.plugin import Context, ToolFailure
from toolcrib_tools.files import (
    copy_file,
    edit_file,
    list_backups,
    move_file,
    multi_edit,
    remove_file,
    restore_backup,
    undo_edit,
    write_file,
)
from toolcrib_tools.files.undo import MOST_BYTES, MOST_CHANGES, MOST_FILE_BYTES


async def refused(coroutine: Any) -> ToolFailure:
    with pytest.raises(ToolFailure) as failure:
        await coroutine
    return failure.value


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def planted(folder: Path) -> Path:
    for name in ("a.txt", "src/b.txt", "src/deep/c.txt", "src/.hidden"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


async def test_a_file_or_a_folder_is_moved_and_back(planted: Path, ctx: Context) -> None:
    before = tree(planted)

    assert (await move_file("a.txt", "new/x.txt", ctx)).get("path") == "new/x.txt"
    assert (await move_file("src", "new/", ctx)).get("path") == "new/src"
    assert tree(planted) == {
        "new/x.txt": "a.txt",
        "new/src/b.txt": "src/b.txt",
        "new/src/deep/c.txt": "src/deep/c.txt",
        "new/src/.hidden": "src/.hidden",
    }

    assert (await undo_edit(ctx))["paths"] == ["src", "new/src"]
    assert (await undo_edit(ctx, "new/x.txt"))["paths"] == ["a.txt", "new/x.txt"]
    assert tree(planted) == before


async def test_what_is_there_is_replaced_only_when_that_is_wanted(planted: Path, ctx: Context) -> None:
    before = tree(planted)

    for tool in (move_file, copy_file):
        assert (await refused(tool("a.txt", "src/b.txt", ctx))).hint == "set overwrite to replace it"
        assert (await refused(tool("a.txt", "src", ctx))).hint == "src/ puts it into the folder"
        assert (await refused(tool("a.txt", "./a.txt", ctx))).message == "'a.txt' is what it is called already"
        assert (await refused(tool("src/deep", "a.txt", ctx, overwrite=True))).code == "tool_error"
        assert (await refused(tool("gone.txt", "b.txt", ctx))).message == "there is no 'gone.txt'"
    assert tree(planted) == before

    await move_file("a.txt", "src/b.txt", ctx, overwrite=True)
    assert tree(planted) == {key: value for key, value in before.items() if key != "a.txt"} | {"src/b.txt": "a.txt"}
    await undo_edit(ctx)
    assert tree(planted) == before


async def test_a_folder_is_copied_with_all_its_files(planted: Path, ctx: Context) -> None:
    told = await copy_file("src", "copy", ctx)
    await copy_file("a.txt", "copy/", ctx)

    assert told == {"path": "copy", "action": "copied", "size": 34, "pending": False, "undo": True}
    copied = {"b.txt": "src/b.txt", "deep/c.txt": "src/deep/c.txt", ".hidden": "src/.hidden", "a.txt": "a.txt"}
    assert tree(planted / "copy") == copied


async def test_a_folder_with_something_in_it_is_removed_only_when_that_is_wanted(planted: Path, ctx: Context) -> None:
    before = tree(planted)

    assert (await refused(remove_file("src", ctx))).code == "tool_error"
    assert tree(planted) == before

    assert (await remove_file("src", ctx, recursive=True)).get("undo") is True
    assert not (planted / "src").exists()
    await undo_edit(ctx)
    assert tree(planted) == before


@pytest.mark.parametrize("path", ["../outside", "/etc", ".git", "link", "."])
async def test_nothing_is_taken_from_or_put_where_tools_have_no_business(
    planted: Path, ctx: Context, tmp_path: Path, path: str
) -> None:
    (tmp_path / "outside").mkdir()
    (planted / ".git").mkdir()
    (planted / ".git" / "config").touch()
    (planted / "link").symlink_to(tmp_path / "outside")
    before = sorted(tmp_path.rglob("*"))

    await refused(move_file("a.txt", f"{path}/x", ctx)) if path != "." else None
    await refused(copy_file("a.txt", f"{path}/x", ctx)) if path != "." else None
    await refused(copy_file(path, "taken", ctx)) if path not in (".", ".git") else None
    await refused(move_file(path, "taken", ctx)) if path != "link" else None
    await refused(remove_file(path, ctx, recursive=True)) if path != "link" else None

    assert sorted(tmp_path.rglob("*")) == before


async def test_the_newest_change_of_a_file_is_taken_back_first(folder: Path, ctx: Context) -> None:
    await write_file("a.txt", "one", ctx)
    await write_file("b.txt", "other", ctx)
    await edit_file("a.txt", "one", "two", ctx)

    assert await undo_edit(ctx, "./a.txt") == {"paths": ["a.txt"], "pending": False}
    assert (folder / "a.txt").read_text() == "one"
    await undo_edit(ctx, "a.txt")
    assert tree(folder) == {"b.txt": "other"}
    assert (await refused(undo_edit(ctx, "a.txt"))).message == "no change of 'a.txt' is known in this session"


async def test_a_file_that_somebody_else_changed_is_not_overwritten_by_undo(folder: Path, ctx: Context) -> None:
    (folder / "a.txt").write_text("one")
    (folder / "b.txt").write_text("one")
    edits: Any = [{"path": name, "search": "one", "replace": "two"} for name in ("a.txt", "b.txt")]
    await multi_edit(edits, ctx)
    (folder / "b.txt").write_text("somebody else's")

    failure = await refused(undo_edit(ctx))

    assert failure.message == "b.txt changed again since, so that change cannot be taken back"
    assert tree(folder) == {"a.txt": "two", "b.txt": "somebody else's"}
    backups = (await list_backups(ctx, "b.txt"))["backups"]
    assert [(one["id"], one["path"], one["size"]) for one in backups] == [("b1", "b.txt", 3)]
    await restore_backup("b.txt", ctx, "b1")
    assert (folder / "b.txt").read_text() == "one"
    await undo_edit(ctx)
    assert (folder / "b.txt").read_text() == "somebody else's"
    assert (await refused(restore_backup("b.txt", ctx, "b9"))).hint == "there are b1"


async def test_without_an_id_the_newest_backup_of_a_file_is_brought_back(folder: Path, ctx: Context) -> None:
    (folder / "a.txt").write_text("one")
    await write_file("a.txt", "two", ctx)
    await write_file("a.txt", "three", ctx)

    await restore_backup("a.txt", ctx)

    assert (folder / "a.txt").read_text() == "two"
    assert (await refused(restore_backup("b.txt", ctx))).message == "there is no backup of 'b.txt'"


async def test_sessions_do_not_see_each_others_changes(folder: Path, ctx: Context) -> None:
    await write_file("a.txt", "one", ctx)
    other = Context(call_id="c", session_key="other", principal="p", workspace=ctx.workspace, runtime=Runtime())

    assert (await list_backups(other))["backups"] == []
    assert (await refused(undo_edit(other))).message == "no change is known in this session"


@pytest.mark.slow
async def test_only_so_much_is_kept_and_what_is_not_is_told(folder: Path, ctx: Context) -> None:
    for number in range(MOST_CHANGES + 5):
        await write_file("a.txt", str(number), ctx)
    assert len((await list_backups(ctx))["backups"]) == MOST_CHANGES

    with (folder / "big.txt").open("wb") as file:
        file.truncate(200_000_000)
    told = await write_file("big.txt", "small", ctx)
    assert (told.get("action"), told.get("undo")) == ("changed", False)
    assert (await undo_edit(ctx))["paths"] == ["a.txt"]

    count = MOST_BYTES // MOST_FILE_BYTES + 2
    for number in range(count):
        (folder / f"{number}.txt").write_bytes(b"x" * MOST_FILE_BYTES)
        await write_file(f"{number}.txt", "small", ctx)
    kept = (await list_backups(ctx))["backups"]
    assert sum(one["size"] or 0 for one in kept) <= MOST_BYTES
    assert [one["path"] for one in kept[:2]] == [f"{count - 1}.txt", f"{count - 2}.txt"]
