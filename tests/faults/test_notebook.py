"""Cells that attack what runs them: the limits hold, the session stays, and the next cell begins anew."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rig.sandbox import needs_sandbox
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.config.settings import ShellSpec, WorkspaceSpec
from toolcrib.crib.session import Session

pytestmark = needs_sandbox

FOUND = (
    "import glob, os\n"
    "relay = os.getppid()\n"
    "ours = [p for p in glob.glob(f'/proc/{relay}/fd/*') if p[-2:] != '/0' and os.readlink(p).startswith('pipe:')]\n"
)
"""Finds the pipes of the program beside the kernel: on one of them it tells us what happened."""


@asynccontextmanager
async def session_in(folder: Path, shell: ShellSpec) -> AsyncGenerator[Session]:
    waits = {"background_after": {"notebook_execute": None}}  # a cell has the time that it takes on a loaded machine
    settings = bare().with_values(builtins=True, workspace=WorkspaceSpec(roots=(folder,)), shell=shell, tools=waits)
    async with (
        Toolcrib(settings, memory=True) as crib,
        crib.session(profile="flat", mode="autonomous") as session,
    ):
        yield session


@pytest.mark.parametrize(
    ("code", "shell", "why"),
    [
        ("import os\nwhile True: os.fork()", ShellSpec(processes=64), "more than 64 processes|unavailable"),
        ("held = []\nwhile True: held.append(b'x' * 10_000_000)", ShellSpec(memory_mb=1024), "memory"),
    ],
)
async def test_a_cell_that_takes_too_much_ends_or_fails_and_the_next_one_runs(
    tmp_path: Path, code: str, shell: ShellSpec, why: str
) -> None:
    async with session_in(tmp_path, shell) as session:
        result = await session.call("notebook_execute", {"code": code, "timeout": 300})
        after = await session.call("notebook_execute", {"code": "'runs'"})
        if after.error is not None:  # what the cell had left behind ended the kernel once more
            after = await session.call("notebook_execute", {"code": "'runs'"})

    assert re.search(why, result.text.lower())
    assert (after.error, after.text.splitlines()[0]) == (None, "'runs'")


@pytest.mark.parametrize(
    "line",
    [
        "'no json\\n'",
        "'[1, 2]\\n'",
        "'[' * 100_000 + '\\n'",
        '\'{"event": "done", "id": "x"}\\n\'',
        '\'{"event": "data", "data": {"image/png": 5}}\\n\'',
    ],
)
async def test_lines_that_a_cell_slips_in_are_no_more_than_its_output(tmp_path: Path, line: str) -> None:
    code = (
        f"{FOUND}for path in ours:\n    try:\n        open(path, 'w').write({line})\n    except OSError: pass\n'said'"
    )
    async with session_in(tmp_path, ShellSpec()) as session:
        result = await session.call("notebook_execute", {"code": code})
        after = await session.call("notebook_execute", {"code": "'runs'"})

    assert (result.error, result.text.splitlines()[-1]) == (None, "'said'")
    assert (after.error, after.text) == (None, "'runs'")


async def test_a_line_without_an_end_ends_the_kernel_and_nothing_else(tmp_path: Path) -> None:
    code = (
        f"{FOUND}import threading\n"
        "def fill(path):\n"
        "    with open(path, 'w') as out:\n        while True: out.write('x' * 65_536)\n"
        "for path in ours: threading.Thread(target=fill, args=(path,), daemon=True).start()\n"
        "import time; time.sleep(600)"
    )
    async with session_in(tmp_path, ShellSpec()) as session:
        result = await session.call("notebook_execute", {"code": code, "timeout": 300})
        after = await session.call("notebook_execute", {"code": "'runs'"})

    assert result.error is not None
    assert "it sent a line that is too long" in result.text
    assert (after.error, after.text.splitlines()[0]) == (None, "'runs'")
