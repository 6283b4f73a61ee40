"""Changes reach every listener of a service, however many there are."""

from __future__ import annotations

from collections import Counter

import anyio
import anyio.lowlevel

from rig import PATIENCE
from toolcrib.mcp.server.service import Service
from unit.toolcrib.server.fake_backend import FakeBackend

MANY = 1_000


async def test_each_of_many_listeners_hears_of_a_change_and_the_loop_goes_on_meanwhile(backend: FakeBackend) -> None:
    heard: Counter[int] = Counter()
    async with Service(backend, profile="flat", mode="autonomous") as service:
        for number in range(MANY):
            service.subscribe(lambda number=number: heard.update([number]))
        service.stop()
        at_once = heard.total()
        with anyio.fail_after(PATIENCE):
            while heard.total() < MANY:
                await anyio.lowlevel.checkpoint()

    assert 0 < at_once < MANY
    assert set(heard.values()) == {1}


async def test_a_listener_that_leaves_before_its_turn_is_not_called(backend: FakeBackend) -> None:
    heard: Counter[int] = Counter()
    async with Service(backend, profile="flat", mode="autonomous") as service:
        leave = [service.subscribe(lambda number=number: heard.update([number])) for number in range(MANY)]
        service.stop()
        leave[-1]()
        with anyio.fail_after(PATIENCE):
            while heard.total() < MANY - 1:
                await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()

    assert heard[MANY - 1] == 0
