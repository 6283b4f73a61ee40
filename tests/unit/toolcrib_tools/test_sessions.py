"""The file tools in sessions: offered where there is a workspace, and seeing what waits for review."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.config.settings import WorkspaceSpec
from toolcrib.core.session import Limits
from toolcrib.errors import UsageError
from toolcrib.plugin import Context, tool
from unit.toolcrib_tools.telling import text_of

FILE_TOOLS = {
    *(
        "copy_file",
        "edit_file",
        "file_info",
        "find_and_replace",
        "glob_files",
        "grep",
        "list_backups",
        "list_directory",
    ),
    *(
        "move_file",
        "multi_edit",
        "read_file",
        "remove_file",
        "restore_backup",
        "search_files",
        "undo_edit",
        "write_file",
    ),
}


@asynccontextmanager
async def crib_of(*roots: Path, **settings: Any) -> AsyncGenerator[Toolcrib]:
    spec = WorkspaceSpec(roots=roots)
    async with Toolcrib(bare().with_values(builtins=True, workspace=spec, **settings), memory=True) as crib:
        yield crib


async def test_without_a_workspace_there_are_no_file_tools_and_why_says_so(folder: Path) -> None:
    async with crib_of() as crib:
        session = crib.session(profile="flat")
        why = crib.explainer.why("read_file", session)
        result = await session.call("read_file", {"path": "a"})

        assert FILE_TOOLS.isdisjoint(crib.catalog.tools)
        assert FILE_TOOLS.isdisjoint(shown.name for shown in session.tools)
    assert (why.verdict, why.stopped_by, why.code) == ("refused", "need", "not_found")
    assert why.reason == "it needs a workspace, and this session has none"
    assert result.error is not None
    assert result.error.code == "not_found"


async def test_a_need_or_a_trait_that_there_is_not_is_refused_where_it_is_written() -> None:
    with pytest.raises(UsageError, match=r"takes one of language_server, shell, .*workspace; did you mean 'workspace'"):
        tool(needs=["workspce"])
    with pytest.raises(UsageError, match="did you mean 'file_writer'"):
        tool(traits=["file_write"])
    with pytest.raises(UsageError, match="takes a list"):
        tool(needs="workspace")


@pytest.mark.slow
async def test_a_configured_workspace_offers_all_of_them(folder: Path) -> None:
    async with crib_of(folder) as crib:
        assert set(crib.catalog.tools) >= FILE_TOOLS
        assert {shown.name for shown in crib.session(profile="flat").tools} >= FILE_TOOLS


async def test_only_the_session_that_has_a_workspace_may_know_of_them(folder: Path) -> None:
    (folder / "a.txt").write_text("text")
    async with crib_of() as crib:
        plain, working = crib.session(profile="flat"), crib.session(profile="flat", workspace=folder)
        refused = await plain.call("read_file", {"path": "a.txt"})
        found = crib.explainer.why("read_file", plain)

        assert await text_of(working, "read_file", path="a.txt") == "text"
        assert {shown.name for shown in working.tools} >= FILE_TOOLS
        assert FILE_TOOLS.isdisjoint(shown.name for shown in plain.tools)
        search = crib.session(profile="adaptive")
        assert "read_file" not in (await search.call("search_tools", {"query": "read a file"})).text
    assert refused.error is not None
    assert (refused.error.code, found.stopped_by) == ("not_in_scope", "need")


async def test_a_tool_of_the_same_name_is_the_users_own_with_a_workspace_and_without(folder: Path) -> None:
    @tool(kind="read")
    def read_file(path: str) -> str:
        """Read it my way."""
        return f"mine: {path}"

    async with crib_of() as crib:
        crib.add(read_file)
        assert await text_of(crib.session(profile="flat"), "read_file", path="x") == "mine: x"
        session = crib.session(profile="flat", workspace=folder)
        assert await text_of(session, "read_file", path="x") == "mine: x"
        assert [problem.tool for problem in crib.problems] == []


async def test_a_tool_of_ones_own_may_need_a_workspace_and_gets_it(folder: Path) -> None:
    (folder / "a.txt").write_text("text")

    @tool(kind="read", needs=["workspace"])
    async def size_of(path: str, ctx: Context) -> int:
        """Tell the size of a file."""
        assert ctx.workspace is not None
        return len(await ctx.workspace.read(path))

    async with Toolcrib() as crib:
        crib.add(size_of)
        refused = await crib.session(profile="flat").call("size_of", {"path": "a.txt"})
        session = crib.session(profile="flat", workspace=folder)

        assert await text_of(session, "size_of", path="a.txt") == "4"
    assert refused.is_error


@pytest.mark.process
@pytest.mark.parametrize("mode", ["review", "audit"])
async def test_what_waits_for_review_is_seen_by_every_reader_and_the_disk_is_as_it_was(
    folder: Path, engine: str, mode: str
) -> None:
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "old.txt").write_text("needle old\n")
    (folder / "gone.txt").write_text("needle gone\n")
    (folder / "src").mkdir()
    (folder / "src" / "kept.txt").write_text("needle kept\n")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    async with crib_of(folder) as crib:
        session = crib.session(profile="flat", mode=mode)
        made = json.loads(await text_of(session, "write_file", path="new/n.txt", content="needle new\n"))
        await text_of(session, "write_file", path="new/n.log", content="needle ignored\n")
        await text_of(session, "edit_file", path="old.txt", search="old", replace="edited")
        await text_of(session, "move_file", source="src/kept.txt", destination="src/moved.txt")
        await text_of(session, "remove_file", path="gone.txt")

        assert (made["action"], made["pending"]) == ("created", True)
        assert await text_of(session, "read_file", path="old.txt") == "needle edited"
        assert (await text_of(session, "grep", pattern="needle")).splitlines() == [
            *("new/n.txt:1:needle new", "old.txt:1:needle edited", "src/moved.txt:1:needle kept"),
        ]
        assert (await text_of(session, "grep", pattern="needle", path="src")).splitlines() == [
            "src/moved.txt:1:needle kept"
        ]
        names = (await text_of(session, "glob_files", pattern="*.txt")).split()
        assert names == ["new/n.txt", "old.txt", "src/moved.txt"]
        assert (await text_of(session, "search_files", pattern="moved")).split() == ["src/moved.txt"]
        listed = await text_of(session, "list_directory", depth=2)
        assert "gone.txt" not in listed
        assert "n.txt  11  (pending)" in listed
        assert json.loads(await text_of(session, "file_info", path="new/n.txt"))["pending"] is True
        replaced = json.loads(await text_of(session, "find_and_replace", pattern="needle", replacement="pin"))
        assert [one["path"] for one in replaced["files"]] == ["new/n.txt", "old.txt", "src/moved.txt"]
        await text_of(session, "undo_edit")
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before

        await crib.changes.accept()
    after = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.txt")}
    assert after == {"new/n.txt": "needle new\n", "old.txt": "needle edited\n", "src/moved.txt": "needle kept\n"}


async def test_ignore_files_that_wait_for_review_count(folder: Path, engine: str) -> None:
    (folder / "a.log").write_text("needle\n")
    async with crib_of(folder) as crib:
        session = crib.session(profile="flat", mode="review")
        await text_of(session, "write_file", path=".gitignore", content="*.log\n")

        assert await text_of(session, "grep", pattern="needle") == "[nothing in '.' matches 'needle']"


async def test_writes_ask_in_cautious_mode_and_reads_do_not(folder: Path) -> None:
    async with crib_of(folder) as crib:
        session = crib.session(profile="flat", mode="cautious")
        refused = await session.call("write_file", {"path": "a.txt", "content": "x"})

        assert await text_of(session, "list_directory") == "['.' is empty]"
    assert refused.error is not None
    assert refused.error.code == "denied"
    assert list(folder.iterdir()) == []


async def test_calls_of_several_sessions_on_one_file_take_turns(folder: Path) -> None:
    (folder / "a.txt").write_text("".join(f"<{number}>\n" for number in range(20)))
    async with crib_of(folder) as crib:
        sessions = [crib.session(profile="flat", mode="autonomous") for _ in range(4)]

        async def edit(number: int) -> None:
            path = "a.txt" if number % 2 else str(folder / "a.txt")
            operation = {"path": path, "search": f"<{number}>", "replace": f"[{number}]"}
            if number % 3:
                await text_of(sessions[number % 4], "edit_file", **operation)
            else:
                await text_of(sessions[number % 4], "multi_edit", operations=[operation])

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(edit, number)

    assert (folder / "a.txt").read_text() == "".join(f"[{number}]\n" for number in range(20))


@pytest.mark.process
@pytest.mark.parametrize("tokens", [500, 4_000])
async def test_pages_fit_the_budget_of_the_session_and_nothing_is_cut_a_second_time(folder: Path, tokens: int) -> None:
    (folder / "a.txt").write_text("".join(f"a line that is needed, number {number}\n" for number in range(3_000)))
    async with crib_of(folder, limits=Limits(result_tokens=tokens)) as crib:
        for profile in ("flat", "adaptive", "selection"):
            session = crib.session(profile=profile, tools=["read_file", "grep"])
            read = await session.call("read_file", {"path": "a.txt"})
            found = await session.call("grep", {"pattern": "needed", "max_results": 500})

            assert ("artifact" in read.meta, "artifact" in found.meta) == (False, False)
            assert "go on with offset=" in read.text
            assert len(read.text.encode()) > tokens * 3
            assert "matching lines shown" in found.text


@pytest.mark.process
async def test_relative_paths_begin_in_the_first_root_and_other_roots_are_reached_by_absolute_ones(
    folder: Path, tmp_path: Path, engine: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (folder / "a.txt").write_text("needle here\n")
    (other / "b.txt").write_text("needle there\n")
    async with crib_of(folder, other) as crib:
        session = crib.session(profile="flat", mode="autonomous")

        assert await text_of(session, "grep", pattern="needle") == "a.txt:1:needle here"
        assert await text_of(session, "grep", pattern="needle", path=str(other)) == f"{other}/b.txt:1:needle there"
        assert await text_of(session, "glob_files", pattern="*.txt", path=str(other)) == f"{other}/b.txt"
        await text_of(session, "move_file", source="a.txt", destination=f"{other}/")
        await text_of(session, "undo_edit")
    assert (folder / "a.txt").read_text() == "needle here\n"
