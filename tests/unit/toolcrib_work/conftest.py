"""A crib with the graph, and two people in it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from toolcrib import Toolcrib
from toolcrib.config import bare
from unit.toolcrib_work.people import Person, person


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    async with Toolcrib(bare().with_values(builtins=("onto", "work")), memory=True) as opened:
        yield opened


@pytest.fixture
def ada(crib: Toolcrib) -> Person:
    return person(crib, "ada")


@pytest.fixture
def eve(crib: Toolcrib) -> Person:
    return person(crib, "eve")
