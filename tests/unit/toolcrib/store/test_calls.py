"""The record of calls in a file: what is shown in it, what a crash leaves beside it, how a changed byte shows.

What every store does, whatever keeps it, is in tests/durable/test_stores.py.
"""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from toolcrib.core.call import Call
from toolcrib.core.permission import Decision
from toolcrib.core.result import ToolResult
from toolcrib.core.session import SessionState
from toolcrib.core.tool import Tool
from toolcrib.store.store import Store

TOOL = Tool(name="git__commit", source="git", local_name="commit")
SESSION = SessionState(key="s1", principal="ada")
DONE = ToolResult.of_text("done")


def make_call(number: int = 1) -> Call:
    return Call(
        id=f"call-{number}",
        name="git__commit",
        arguments={"message": "hello", "n": number},
        session=SESSION,
        origin="mcp",
        tool=TOOL,
        decision=Decision(effect="allow", rule="mode autonomous"),
        started=time.monotonic(),
    )


async def test_arguments_are_stored_as_the_redactor_shows_them_and_cut_when_long() -> None:
    async with Store.open(None, redact=lambda value: {**value, "password": "[redacted]"}) as store:
        store.calls.note(make_call(1).evolve(arguments={"password": "hunter2"}), DONE)
        store.calls.note(make_call(2).evolve(arguments={"text": "ä" * 10_000}), DONE)
        long, short = await store.calls.list()

    assert short.arguments == '{"password":"[redacted]"}'
    assert json.loads(long.arguments).keys() == {"truncated", "bytes", "head"}
    assert len(long.arguments.encode()) <= 8192


@pytest.mark.slow
async def test_200_flipped_bits_in_the_rows_of_the_file_are_all_found(tmp_path: Path) -> None:
    """T26 below the SQL: whoever edits the file."""
    path = tmp_path / "store.db"
    async with Store.open(path) as store:
        for number in range(3):
            store.calls.note(make_call(number), DONE)
    clean = path.read_bytes()
    start, last = clean.index(b"call-2s1"), clean.index(b"call-0s1")
    end = clean.index(b"0" * 64, last) + 128  # prev and hash of the first row
    random_ = random.Random(26)
    missed: list[int] = []
    for offset in random_.sample(range(start, end), 200):
        damaged = tmp_path / "damaged.db"
        damaged.write_bytes(clean[:offset] + bytes([clean[offset] ^ 1 << random_.randrange(8)]) + clean[offset + 1 :])
        async with Store.open(damaged) as store:
            if not (await store.calls.verify()).problem:
                missed.append(offset)

    assert missed == []


_KILLED = """
import os, pathlib, sys
sys.path[:0] = {path!r}
from toolcrib.store.store import Store
Store.open(pathlib.Path({file!r}))
os.kill(os.getpid(), 9)
"""


@pytest.mark.process
async def test_what_a_killed_store_leaves_beside_the_file_is_cleared_away_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    code = _KILLED.format(path=sys.path, file=str(path))
    killed = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    left = sorted(file.suffix for file in tmp_path.iterdir())

    async with Store.open(path), Store.open(path):
        leases = [file for file in tmp_path.iterdir() if file.suffix == ".live"]

    assert (killed.returncode, len(leases)) == (-9, 2)
    assert ".live" in left
    assert [file.name for file in tmp_path.iterdir()] == ["store.db"]
