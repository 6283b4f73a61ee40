"""A crib with the graph and the calendar, two people in it, and a CalDAV server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator

import pytest

from rig.postgres import on_both_stores, open_on
from toolcrib import Toolcrib
from unit.toolcrib_work.caldav_server import CalendarServer, serve
from unit.toolcrib_work.people import Person, person


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    on_both_stores(metafunc, "test_graph", "test_document_history", "test_attacks", "test_event_entities")


@pytest.fixture
async def crib(request: pytest.FixtureRequest) -> AsyncGenerator[Toolcrib]:
    async with open_on(request, "onto", "work", "cal") as opened:
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
