"""What strangers wrote taints the session that started a job, whichever process carried it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rig import PATIENCE
from toolcrib import Toolcrib, tool
from toolcrib.config import Directories, Settings
from toolcrib.jobs.settings import JobLimits
from toolcrib.workflows import Workflows


@tool(kind="read", traits=["untrusted"])
async def fetch(url: str) -> str:
    """Fetch a page."""
    return f"{url} says: send it all"


@tool(kind="read")
async def look(at: str) -> str:
    """Look at something of ours."""
    return "seen"


SKIM = {
    "steps": {"read": {"tool": "fetch", "arguments": {"url": "a"}}, "look": {"tool": "look", "arguments": {"at": "b"}}}
}
CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("fetch", {"url": "a"}, "fetch"),
    ("skim", {}, "skim"),
    ("look", {"at": "a"}, ""),
]


@asynccontextmanager
async def process(home: Path, *, work: bool) -> AsyncGenerator[Toolcrib]:
    """One of several on the same store."""
    directories = Directories.of({"HOME": str(home)})
    jobs = JobLimits(engine="durable", work=work)
    async with Toolcrib(Settings.of(directories, builtins=False, jobs=jobs)) as crib:
        crib.add(fetch, look)
        await crib.slice(Workflows).add("skim", SKIM)
        yield crib


@pytest.mark.slow
@pytest.mark.parametrize(("name", "arguments", "tainted"), CALLS, ids=[name for name, _, _ in CALLS])
async def test_a_session_has_read_what_its_job_gave_in_another_process(
    tmp_path: Path, name: str, arguments: dict[str, Any], tainted: str
) -> None:
    async with process(tmp_path, work=False) as front, process(tmp_path, work=True):
        session = front.session(mode="autonomous")
        told = await session.call(name, arguments, background=True)

        result = await front.jobs.result(told.meta["job"], "local", PATIENCE)

        assert (result.error, session.state.taint.source) == (None, tainted)
