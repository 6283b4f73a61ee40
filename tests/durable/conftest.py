"""What the suites of this folder share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from durable.places import EVERYWHERE, Place
from toolcrib.store.store import Store

__all__ = ["place", "store"]


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    kind: str = request.param
    if kind == "postgres":
        return Place(where=request.getfixturevalue("postgres_url"))
    return Place(where=tmp_path / "data" / "store.db" if kind == "file" else None)


@pytest.fixture(params=EVERYWHERE)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    where = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    async with Store.open(tmp_path / "data" / "store.db" if request.param == "file" else where) as opened:
        yield opened
