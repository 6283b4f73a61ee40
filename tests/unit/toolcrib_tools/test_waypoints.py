"""Waypoints: the workspace as it was, brought back byte for byte, and nothing lost by it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from toolcrib import Toolcrib
from toolcrib.crib.session import Session
from toolcrib_tools import files, waypoints
from toolcrib_tools.waypoints import storage
from unit.toolcrib_tools.telling import refused, told

pytestmark = pytest.mark.process


GUESTS = (waypoints, files)


@pytest.fixture
def session(crib: Toolcrib, folder: Path) -> Session:
    (folder / "src").mkdir()
    (folder / "src/app.py").write_bytes(b"one\r\n\xff\x00")
    (folder / "README.md").write_text("readme\n")
    (folder / ".gitignore").write_text("build/\n*.log\n")
    (folder / "build").mkdir()
    (folder / "build/out.bin").write_text("made")
    (folder / ".env").write_text("TOKEN=x")
    return crib.session(profile="flat", mode="autonomous", workspace=folder)


async def save(session: Session, description: str) -> str:
    return str((await told(session, "save_waypoint", description=description))["waypoint"]["id"])


def state(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def spoil(folder: Path) -> None:
    """Change, remove and add files, those that are left out of waypoints too."""
    (folder / "src/app.py").write_text("two\n")
    (folder / "README.md").unlink()
    (folder / "new").mkdir()
    (folder / "new/file.txt").write_text("new")
    (folder / "build/out.bin").write_text("made anew")
    (folder / "trace.log").write_text("log")


async def test_the_workspace_is_brought_back_byte_for_byte_and_what_is_ignored_is_left_alone(
    session: Session, folder: Path
) -> None:
    before = state(folder)
    saved = await told(session, "save_waypoint", description=" before the parser ")
    spoil(folder)
    spoilt = state(folder)

    info = await told(session, "waypoint_info", waypoint_id="1")
    dry = await told(session, "restore_waypoint", waypoint_id="1", dry_run=True)
    assert state(folder) == spoilt
    done = await told(session, "restore_waypoint", waypoint_id="1")

    assert state(folder) == {**before, "build/out.bin": b"made anew", "trace.log": b"log"}
    assert saved["waypoint"].pop("saved").startswith("20")
    assert saved["waypoint"] == {
        "id": "1",
        "description": "before the parser",
        "files": 3,
        "size": 7 + 7 + 13,
        "automatic": False,
    }
    assert (info["changed"], info["missing"], info["new"]) == (["src/app.py"], ["README.md"], ["new/file.txt"])
    named = {"changed": ["src/app.py"], "recreated": ["README.md"], "removed": ["new/file.txt"], "left": []}
    assert {key: dry[key] for key in named} == {key: done[key] for key in named} == named
    assert (dry["dry_run"], dry["saved_as"], done["dry_run"], done["saved_as"]) == (True, "", False, "2")


async def test_a_restored_waypoint_is_taken_back_by_the_one_that_was_saved_before(
    session: Session, folder: Path
) -> None:
    first = await save(session, "first")
    spoil(folder)
    spoilt = state(folder)
    done = await told(session, "restore_waypoint", waypoint_id=first)
    await told(session, "restore_waypoint", waypoint_id=done["saved_as"])

    assert state(folder) == spoilt
    listed = (await told(session, "list_waypoints"))["waypoints"]
    assert [(one["id"], one["description"], one["automatic"]) for one in listed] == [
        ("3", "before waypoint 2 was restored", True),
        ("2", "before waypoint 1 was restored", True),
        ("1", "first", False),
    ]


async def test_where_nothing_changed_nothing_is_written_or_saved(session: Session, folder: Path) -> None:
    await save(session, "first")
    os.utime(folder / "README.md", (1, 1))
    done = await told(session, "restore_waypoint", waypoint_id="1")

    assert (done["changed"], done["recreated"], done["removed"], done["saved_as"]) == ([], [], [], "")
    assert (folder / "README.md").stat().st_mtime == 1
    assert len((await told(session, "list_waypoints"))["waypoints"]) == 1


async def test_new_files_stay_when_that_is_asked_for(session: Session, folder: Path) -> None:
    await save(session, "first")
    spoil(folder)
    done = await told(session, "restore_waypoint", waypoint_id="1", keep_new=True)

    assert (done["removed"], (folder / "new/file.txt").read_text()) == ([], "new")
    assert (folder / "README.md").read_text() == "readme\n"


async def test_what_could_not_be_saved_before_is_never_overwritten(
    session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await save(session, "first")
    monkeypatch.setattr(storage, "MOST_FILE_BYTES", 100)
    (folder / "README.md").write_text("x" * 101)
    (folder / "src/app.py").unlink()
    (folder / ".gitignore").write_text("build/\n*.log\nsrc/\n")
    (folder / "src/app.py").write_text("ignored now")
    done = await told(session, "restore_waypoint", waypoint_id="1")

    assert [one["path"] for one in done["left"]] == ["README.md", "src/app.py"]
    assert ((folder / "README.md").read_text(), (folder / "src/app.py").read_text()) == ("x" * 101, "ignored now")
    assert (folder / ".gitignore").read_text() == "build/\n*.log\n"
    assert done["changed"] == [".gitignore"]


async def test_what_is_listed_from_outside_is_not_named(
    session: Session, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a folder becomes a link while ripgrep walks."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.txt").write_text("secret")
    (folder / "swapped").symlink_to(tmp_path / "outside")
    (tmp_path / "programs").mkdir()
    names = "./README.md\\0./.env\\0./swapped/secret.txt\\0../outside/secret.txt\\0"
    (tmp_path / "programs/rg").write_text(f"#!/bin/sh\nprintf '{names}'\n")
    (tmp_path / "programs/rg").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))

    saved = await told(session, "save_waypoint", description="now")

    assert [one["path"] for one in saved["left_out"]] == [".env"]
    assert saved["waypoint"]["files"] == 1


async def test_a_file_that_is_too_large_or_guarded_is_in_no_waypoint(
    crib: Toolcrib, session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "MOST_FILE_BYTES", 8)
    (folder / "large.txt").write_text("123456789")
    saved = await told(session, "save_waypoint", description="first")

    assert {one["path"] for one in saved["left_out"]} >= {"large.txt", ".gitignore"}
    assert saved["waypoint"]["files"] == 2
    kept = crib.parts.host_services.folder("waypoints", kept=True)
    assert not any(b"TOKEN" in path.read_bytes() for path in kept.rglob("*") if path.is_file())
    monkeypatch.setattr(storage, "MOST_FILES", 2)
    assert "at most 2 files" in await refused(session, "save_waypoint", description="second")
    assert len((await told(session, "list_waypoints"))["waypoints"]) == 1


async def test_a_protected_file_is_left_and_everything_else_is_brought_back(session: Session, folder: Path) -> None:
    (folder / ".vscode").mkdir()
    (folder / ".vscode/tasks.json").write_text("{}")
    await save(session, "first")
    (folder / ".vscode/tasks.json").write_text("[]")
    (folder / "README.md").write_text("changed")
    done = await told(session, "restore_waypoint", waypoint_id="1")

    assert ((folder / "README.md").read_text(), done["changed"]) == ("readme\n", ["README.md"])
    assert [one["path"] for one in done["left"]] == [".vscode/tasks.json"]
    assert "protected" in done["left"][0]["reason"]


async def test_under_review_a_restored_waypoint_waits_and_the_disk_is_as_it_was(
    crib: Toolcrib, session: Session, folder: Path
) -> None:
    await save(session, "first")
    (folder / "README.md").write_text("changed")
    reviewed = crib.session(profile="flat", mode="review", workspace=folder)
    done = await told(reviewed, "restore_waypoint", waypoint_id="1")

    assert (done["pending"], done["changed"]) == (True, ["README.md"])
    assert (folder / "README.md").read_text() == "changed"
    assert "readme" in (await reviewed.call("read_file", {"path": "README.md"})).text
    assert (await told(reviewed, "waypoint_info", waypoint_id="1"))["changed"] == []


async def test_waypoints_belong_to_one_workspace_and_one_principal(
    crib: Toolcrib, session: Session, folder: Path, tmp_path: Path
) -> None:
    await save(session, "first")
    (tmp_path / "other").mkdir()
    elsewhere = crib.session(profile="flat", mode="autonomous", workspace=tmp_path / "other")
    bob = crib.session(profile="flat", mode="autonomous", workspace=folder, principal="bob")

    for other in (elsewhere, bob):
        assert (await told(other, "list_waypoints"))["waypoints"] == []
        for name in ("restore_waypoint", "waypoint_info", "delete_waypoint"):
            assert (await refused(other, name, waypoint_id="1")).startswith("this workspace has no waypoint '1'")


async def test_contents_are_kept_once_and_go_with_the_last_waypoint_that_holds_them(
    crib: Toolcrib, session: Session, folder: Path
) -> None:
    kept = crib.parts.host_services.folder("waypoints", kept=True)

    def contents() -> int:
        return len([path for path in kept.rglob("*") if path.is_file() and path.parent.name != "lists"])

    def grow_old() -> None:
        past = time.time() - 7200
        for path in kept.rglob("*"):
            if path.is_file():
                os.utime(path, (past, past))

    await save(session, "first")
    (folder / "README.md").write_text("second\n")
    await save(session, "second")
    assert contents() == 4
    assert (await session.call("delete_waypoint", {"waypoint_id": "1"})).text == "deleted: first"
    assert contents() == 4  # young ones are left: somebody may be saving them just now
    grow_old()
    await save(session, "third")
    await session.call("delete_waypoint", {"waypoint_id": "2"})
    assert contents() == 3
    (folder / "README.md").write_text("changed")
    await told(session, "restore_waypoint", waypoint_id="3")
    assert (folder / "README.md").read_text() == "second\n"


async def test_a_damaged_waypoint_changes_nothing(crib: Toolcrib, session: Session, folder: Path) -> None:
    await save(session, "first")
    kept = crib.parts.host_services.folder("waypoints", kept=True)
    for path in kept.rglob("*"):
        if path.is_file() and path.parent.name != "lists":
            path.write_bytes(b"damaged")
    spoil(folder)
    spoilt = state(folder)

    assert "cannot be read any more" in await refused(session, "restore_waypoint", waypoint_id="1")
    assert state(folder) == spoilt


async def test_a_waypoint_can_be_deleted_beside_a_damaged_one_and_no_content_goes(
    crib: Toolcrib, session: Session, folder: Path
) -> None:
    await save(session, "first")
    await save(session, "second")
    kept = crib.parts.host_services.folder("waypoints", kept=True)
    damaged = min(kept.rglob("lists/*"))
    damaged.write_bytes(b"damaged")
    contents = sorted(path for path in kept.rglob("*") if path.is_file() and path.parent.name != "lists")
    for path in contents:
        os.utime(path, (0, 0))

    assert (await session.call("delete_waypoint", {"waypoint_id": "2"})).text == "deleted: second"
    assert [path for path in contents if not path.exists()] == []
    assert "the list of its files is damaged or gone" in await refused(session, "restore_waypoint", waypoint_id="1")


async def test_old_automatic_waypoints_go_and_there_is_room_for_so_many(
    session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "MOST_AUTOMATIC", 2)
    monkeypatch.setattr(storage, "MOST", 2)
    await save(session, "first")
    for number in range(4):
        (folder / "README.md").write_text(f"{number}")
        await told(session, "restore_waypoint", waypoint_id="1")
    await save(session, "second")

    listed = (await told(session, "list_waypoints"))["waypoints"]
    assert [(one["id"], one["automatic"]) for one in listed] == [("6", False), ("5", True), ("4", True), ("1", False)]
    assert (await refused(session, "save_waypoint", description="third")).startswith(
        "this workspace has 2 waypoints already"
    )
    assert "description" in await refused(session, "save_waypoint", description=" ")


async def test_waypoints_outlast_the_crib_and_do_not_lie_where_things_are_cleared(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DATA", "CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    config = tmp_path / "toolcrib.yaml"
    config.write_text("mode: autonomous\n")
    (folder / "a.txt").write_text("first")
    async with Toolcrib.open(config) as crib:
        await save(crib.session(profile="flat", workspace=folder), "first")
    (folder / "a.txt").write_text("second")
    shutil.rmtree(tmp_path / "CACHE", ignore_errors=True)
    async with Toolcrib.open(config) as crib:
        await told(crib.session(profile="flat", workspace=folder), "restore_waypoint", waypoint_id="1")

    assert (folder / "a.txt").read_text() == "first"
