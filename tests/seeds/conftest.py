"""The cribs of the golden suites: a module says by `SEED` whose tools and which profile it walks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from seeds.rigging import seeded
from toolcrib.crib import Session, Toolcrib


def _seed(request: pytest.FixtureRequest) -> str:
    return str(cast("Any", request).module.SEED)


@pytest.fixture(scope="module")
async def crib(request: pytest.FixtureRequest) -> AsyncGenerator[Toolcrib]:
    async with seeded(_seed(request)) as opened:
        yield opened


@pytest.fixture
async def other(request: pytest.FixtureRequest) -> AsyncGenerator[Toolcrib]:
    """A crib of its own, for a test that changes what there is."""
    async with seeded(_seed(request)) as opened:
        yield opened


@pytest.fixture
def session(request: pytest.FixtureRequest, crib: Toolcrib) -> Session:
    return crib.session(profile=_seed(request))


@pytest.fixture(scope="module")
async def shared() -> AsyncGenerator[Toolcrib]:
    """One crib of seed 001 for all tests of a module that leave it as it is: each session has a world of its own."""
    async with seeded("gateway") as opened:
        yield opened
