"""The servers that `toolcrib demo` brings itself."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from toolcrib import Toolcrib
from toolcrib.cli.processes.sample_server import SERVERS
from toolcrib.crib.session import Session

pytestmark = pytest.mark.anyio


@pytest.fixture
async def session(tmp_path: Path) -> AsyncGenerator[Session]:
    """Return a session with the tools of both servers on a folder with two files."""
    (tmp_path / "a.txt").write_text("one\nTwo\n")
    (tmp_path / "inner").mkdir()
    async with Toolcrib() as crib:
        for functions in SERVERS.values():
            crib.add(*functions(tmp_path))
        async with crib.session(mode="autonomous") as opened:
            yield opened


async def test_a_time_is_converted_between_timezones(session: Session) -> None:
    arguments = {"time": "07:30", "source_timezone": "UTC", "target_timezone": "Asia/Tokyo"}

    assert (await session.call("convert_time", arguments)).text.endswith("T16:30+09:00")


@pytest.mark.parametrize(
    "tool,arguments,code",
    [
        ("get_current_time", {"timezone": "Paris"}, "invalid_arguments"),
        ("convert_time", {"time": "9am", "source_timezone": "UTC", "target_timezone": "UTC"}, "invalid_arguments"),
        ("read_text", {"path": "../other"}, "denied"),
        ("read_text", {"path": "b.txt"}, "not_found"),
    ],
)
async def test_arguments_that_make_no_sense_are_refused(
    session: Session, tool: str, arguments: dict[str, str], code: str
) -> None:
    result = await session.call(tool, arguments)

    assert result.error is not None
    assert result.error.code == code


async def test_a_folder_is_listed_searched_and_read(session: Session) -> None:
    listed = await session.call("list_folder", {})
    found = await session.call("search_text", {"pattern": "two"})
    read = await session.call("read_text", {"path": "a.txt"})

    assert json.loads(listed.text) == ["a.txt", "inner/"]
    assert json.loads(found.text) == ["a.txt:2: Two"]
    assert read.text == "one\nTwo\n"
