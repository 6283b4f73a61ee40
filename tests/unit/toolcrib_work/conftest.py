"""A crib with the graph and the calendar, two people in it, and a CalDAV server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator

import pytest

from toolcrib import Toolcrib
from toolcrib.config import bare
from unit.toolcrib_work.caldav_server import CalendarServer, serve
from unit.toolcrib_work.people import Person, person


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    async with Toolcrib(bare().with_values(builtins=("onto", "work", "cal")), memory=True) as opened:
        yield opened


@pytest.fixture
def ada(crib: Toolcrib) -> Person:
    return person(crib, "ada")


@pytest.fixture
def eve(crib: Toolcrib) -> Person:
    return person(crib, "eve")


@pytest.fixture(scope="session")
def calendar_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[CalendarServer]:
    with serve(tmp_path_factory.mktemp("radicale")) as server:
        yield server
