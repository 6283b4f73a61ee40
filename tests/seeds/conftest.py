"""The cribs of the golden suites, with tools that come with us: a module says by `PROFILE` which profile it walks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from seeds.rigging import built_in, seeded
from toolcrib.crib import Session, Toolcrib


@pytest.fixture(scope="module")
async def crib() -> AsyncGenerator[Toolcrib]:
    async with built_in(builtins=("coordination", "hooks", "math", "memory", "system", "tasks")) as opened:
        yield opened


@pytest.fixture
async def other() -> AsyncGenerator[Toolcrib]:
    """A small crib of its own, for a test that changes what there is."""
    async with built_in(builtins=("math",)) as opened:
        yield opened


@pytest.fixture
def session(request: pytest.FixtureRequest, crib: Toolcrib) -> Session:
    return crib.session(profile=str(cast("Any", request).module.PROFILE))


@pytest.fixture(scope="module")
async def shared() -> AsyncGenerator[Toolcrib]:
    """One crib of seed 001 for all tests of a module that leave it as it is: each session has a world of its own."""
    async with seeded("gateway") as opened:
        yield opened
