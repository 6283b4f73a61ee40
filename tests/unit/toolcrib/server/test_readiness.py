"""`/readyz`: 200 while calls are taken, 503 with the names of the parts that fail, and 200 again after that."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from rig import PATIENCE, eventually
from toolcrib.config import Directories, bare
from toolcrib.crib import Toolcrib
from toolcrib.server.backend import CribBackend
from toolcrib.server.http import HttpOptions
from unit.toolcrib.server.fake_backend import FakeBackend
from unit.toolcrib.server.wire_client import Site, serving

READY = (200, {"status": "ready"})
DEAD = (503, {"status": "unavailable", "failed": ["store"]})


@dataclass(frozen=True, kw_only=True)
class Running:
    """A gateway over a store in a file."""

    site: Site
    crib: Toolcrib
    store: Path

    async def ready(self) -> tuple[int, object]:
        """Ask once."""
        response = await self.site.client.get(self.site.url.replace("/mcp", "/readyz"))
        return response.status_code, response.json()

    async def becomes(self, answer: tuple[int, object]) -> None:
        """Ask until it is answered so: an answer counts for a second, and a store that failed is tried each second."""

        async def is_answered() -> bool:
            return await self.ready() == answer

        await eventually(is_answered)


@asynccontextmanager
async def running(home: Path) -> AsyncGenerator[Running]:
    directories = Directories.of({"HOME": str(home)})
    settings = bare().with_values(directories=directories, accept=True)
    async with Toolcrib(settings) as crib, serving(CribBackend(crib), HttpOptions()) as site:
        yield Running(site=site, crib=crib, store=directories.data / "toolcrib.db")


@pytest.mark.slow
async def test_a_store_whose_file_is_gone_makes_the_gateway_unready_until_it_is_back(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        before = await gateway.ready()
        away = gateway.store.rename(tmp_path / "away.db")
        await gateway.becomes(DEAD)
        exists = gateway.store.exists()
        away.rename(gateway.store)
        await gateway.becomes(READY)
        checked = await gateway.crib.store.calls.verify()

    assert (before, exists, checked.problem) == (READY, False, "")


async def test_a_store_that_is_closed_makes_the_gateway_unready(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        await gateway.crib.store.close()
        assert await gateway.ready() == DEAD


async def test_probing_writes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        await gateway.crib.store.flush()
        files = [gateway.store, gateway.store.with_name("toolcrib.db-wal")]
        before = [file.read_bytes() for file in files]
        for _ in range(5):
            assert await gateway.crib.store.check() == ""
        assert await gateway.ready() == READY

        assert [file.read_bytes() for file in files] == before


@pytest.mark.slow
async def test_however_many_ask_the_parts_are_checked_once_a_second(site: Site, backend: FakeBackend) -> None:
    ready = site.url.replace("/mcp", "/readyz")
    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(site.client.get, ready)

    assert 1 <= backend.checks <= 1 + PATIENCE


async def test_the_reason_is_for_the_log_and_not_for_strangers(
    site: Site, backend: FakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    backend.failures["store"] = "cannot reach db.internal as ada"

    response = await site.client.get(site.url.replace("/mcp", "/readyz"))

    assert (response.status_code, response.json()) == DEAD
    assert "db.internal" not in response.text
    assert "cannot reach db.internal as ada" in caplog.text
