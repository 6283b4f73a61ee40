"""Seed 001: `tool_help` at every depth, its words, and its memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from seeds.gateway_world import PROJECT
from seeds.rigging import answer_of, seeded
from toolcrib.core.context import Context
from toolcrib.core.tool import Annotations, Tool
from toolcrib.crib import Session, Toolcrib
from toolcrib.disclosure.base import Desk
from toolcrib.disclosure.gateway.help import run_help
from toolcrib.results.artifacts import Artifacts
from toolcrib.sources.base import Listing
from toolcrib.testing import StaticSource

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def shared() -> AsyncGenerator[Toolcrib]:
    async with seeded("gateway") as opened:
        yield opened


@pytest.fixture
async def session(shared: Toolcrib) -> Session:
    return shared.session(profile="gateway", context={"project_id": PROJECT}, contexts=("global", "project"))


async def helped(session: Session, path: str, **options: Any) -> Any:
    return answer_of(await session.call("tool_help", {"path": path, **options}))
