"""What the suites of this folder share."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from durable.places import EMPTY, EVERYWHERE, Place
from toolcrib import Session, Toolcrib
from toolcrib.store.store import Store


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    kind: str = request.param
    if kind.endswith("postgres"):
        return Place(where=request.getfixturevalue("empty_postgres_url" if kind == EMPTY else "postgres_url"))
    return Place(where=tmp_path / "data" / "store.db" if kind == "file" else None)


@pytest.fixture(params=EVERYWHERE)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    where = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    async with Store.open(tmp_path / "data" / "store.db" if request.param == "file" else where) as opened:
        yield opened


def free(crib: Toolcrib, **options: Any) -> Session:
    return crib.session(mode="autonomous", **options)


async def background(session: Session, name: str = "build", **options: Any) -> str:
    result = await session.call(name, {"n": 1}, background=True, **options)
    assert result.error is None, result
    return result.structured_content["task_id"]
