"""A folder whose name is not UTF-8: calls in it are asked about, stored and run as in any other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolcrib import Toolcrib
from toolcrib.config import load
from toolcrib.core.permission import Answer
from toolcrib.core.saved_call import path_of, path_text
from toolcrib.mcp.client.spec import ServerSpec


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Return two folders with names that read the same."""
    made = [tmp_path / os.fsdecode(name) for name in (b"f\xff", b"f\xfe")]
    for folder in made:
        folder.mkdir()
    return made


async def test_a_call_that_asks_there_is_held_and_runs_once_after_the_yes(tmp_path: Path, folders: list[Path]) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("workspace: .\nbuiltins: [files]\napproval_wait: 0.01\n")
    here, other = (load([file], environ={"HOME": str(tmp_path)}, cwd=folder) for folder in folders)
    given = {"path": "a.txt", "content": "x"}

    async with Toolcrib(here) as crib, crib.session(for_client=True) as session:
        held = await session.call("write_file", given)
        (asked,) = await crib.approvals.list()
        await crib.approvals.decide(asked.id, Answer(verdict="yes"))
        written = await session.call("write_file", given)
        again = await session.call("write_file", given)

    assert [one.error and one.error.code for one in (held, written, again)] == [
        *("approval_pending", None, "approval_pending")
    ]
    assert [(folder / "a.txt").exists() for folder in folders] == [True, False]
    assert here.digest() != other.digest()


def test_a_stored_path_and_the_key_of_a_server_keep_the_bytes(folders: list[Path]) -> None:
    keys = {ServerSpec(name="s", transport="stdio", command="x", cwd=str(folder)).key() for folder in folders}

    assert [path_of(path_text(path)) for path in (*folders, Path("plain"))] == [*folders, Path("plain")]
    assert len(keys) == len(folders)
    assert path_text(folders[0]).encode()
