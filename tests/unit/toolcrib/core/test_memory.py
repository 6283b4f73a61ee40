"""Memory budget: large contents are reserved by the call that they are for; over it a call waits, then is refused."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from toolcrib import Toolcrib, tool
from toolcrib.core.context import Context
from toolcrib.core.memory import SMALL, MemoryBudget, reserve

LARGE = 2 * SMALL
"""A content that takes 8 MiB of a budget."""


async def settled() -> None:
    """Let every task that can go on go on."""
    for _ in range(10):
        await checkpoint()


async def test_a_small_content_and_one_outside_of_a_call_take_nothing() -> None:
    budget = MemoryBudget(1)
    await reserve(LARGE)
    with budget.share():
        await reserve(SMALL)
        assert budget.held == 0


async def test_a_call_waits_for_room_until_another_one_ends_and_gives_everything_back() -> None:
    budget, order, held = MemoryBudget(4 * LARGE), list[str](), list[int]()

    async def call(name: str, gate: anyio.Event) -> None:
        with budget.share():
            await reserve(LARGE)
            order.append(name)
            held.append(budget.held)
            await gate.wait()

    gates = [anyio.Event() for _ in range(3)]
    async with anyio.create_task_group() as group:
        for name, gate in zip("abc", gates, strict=True):
            group.start_soon(call, name, gate)
            await settled()
        assert order == ["a"]
        for gate in gates:
            gate.set()
            await settled()
    assert (order, held, budget.held) == (["a", "b", "c"], [4 * LARGE] * 3, 0)


async def test_a_content_above_the_whole_budget_has_it_alone() -> None:
    budget = MemoryBudget(LARGE)
    with budget.share():
        await reserve(100 * LARGE)
        assert budget.held == LARGE
    assert budget.held == 0


async def test_calls_that_all_wait_for_more_go_on_one_after_the_other() -> None:
    budget, done = MemoryBudget(2 * 4 * LARGE), list[str]()

    async def call(name: str) -> None:
        with budget.share():
            await reserve(LARGE)
            await settled()
            await reserve(LARGE)
            await settled()
            done.append(name)

    async with anyio.create_task_group() as group:
        for name in "abc":
            group.start_soon(call, name)
    assert (sorted(done), budget.held) == (["a", "b", "c"], 0)


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=20))
@pytest.mark.slow
def test_whatever_is_cancelled_no_more_than_the_budget_is_held_and_nothing_stays(
    calls: list[tuple[int, bool]],
) -> None:
    async def run() -> tuple[int, int, int]:
        budget, most, done = MemoryBudget(5 * 4 * LARGE), 0, 0

        async def call(size: int, scope: anyio.CancelScope) -> None:
            nonlocal most, done
            with scope, budget.share():
                await reserve(size * LARGE)
                most = max(most, budget.held)
                await checkpoint()
                done += 1

        async with anyio.create_task_group() as group:
            scopes = [anyio.CancelScope() for _ in calls]
            for (size, _), scope in zip(calls, scopes, strict=True):
                group.start_soon(call, size, scope)
            await checkpoint()
            for (_, is_left), scope in zip(calls, scopes, strict=True):
                if is_left:
                    scope.cancel()
        return most, budget.held, done

    most, held, done = anyio.run(run)
    assert (most <= 5 * 4 * LARGE, held) == (True, 0)
    assert done >= sum(not is_left for _, is_left in calls)


@asynccontextmanager
async def opened(folder: Path, held: anyio.Event, release: anyio.Event) -> AsyncGenerator[Toolcrib]:
    """A crib with a budget for one large file, and tools that read and hold them."""

    @tool(kind="read")
    async def look(ctx: Context, path: str, hold: bool = False) -> int:
        """Read a file."""
        assert ctx.workspace is not None
        size = len(await ctx.workspace.read(path))
        if hold:
            held.set()
            await release.wait()
        return size

    @tool(kind="read")
    async def look_at_all(ctx: Context, paths: list[str]) -> list[int]:
        """Read files."""
        assert ctx.workspace is not None
        found = await ctx.workspace.read_many(paths)
        return [len(content) if isinstance(content, bytes) else -1 for content in found]

    (folder / "large").write_bytes(bytes(LARGE))
    (folder / "small").write_bytes(b"small")
    settings: dict[str, Any] = {"mode": "autonomous", "memory": {"budget": 5 * LARGE}, "workspace": str(folder)}
    async with Toolcrib(**settings) as crib:
        crib.add(look, look_at_all)
        yield crib


async def test_a_read_that_finds_no_room_is_overloaded_at_its_deadline_and_runs_again_later(tmp_path: Path) -> None:
    held, release = anyio.Event(), anyio.Event()
    async with opened(tmp_path, held, release) as crib:
        holder = asyncio.create_task(crib.session().call("look", {"path": "large", "hold": True}))
        await held.wait()
        small = await crib.session().call("look", {"path": "small"})
        late = (await crib.session().call("look", {"path": "large"}, timeout=0.1)).error
        release.set()
        found = await crib.session().call("look", {"path": "large"})
        await holder

    assert late is not None
    assert (small.text, late.code, late.details, found.text) == ("5", "overloaded", {"retry_after": 5.0}, str(LARGE))


async def test_many_files_are_read_piece_by_piece_in_their_order(tmp_path: Path) -> None:
    async with opened(tmp_path, anyio.Event(), anyio.Event()) as crib:
        paths = ["small", "large", "none", "small"]
        found = await crib.session().call("look_at_all", {"paths": paths})
        assert found.text == f"[5,{LARGE},-1,5]"


@pytest.mark.slow
@pytest.mark.long
async def test_a_walk_of_very_many_files_finds_no_room_either_and_one_of_few_needs_none(tmp_path: Path) -> None:
    held, release = anyio.Event(), anyio.Event()
    (tmp_path / "few").mkdir()
    (tmp_path / "many").mkdir()
    (tmp_path / "few" / "a").touch()
    for number in range(SMALL // 100 + 1):
        os.mknod(tmp_path / "many" / str(number))

    @tool(kind="read")
    async def count(ctx: Context, path: str) -> int:
        """Count files."""
        assert ctx.workspace is not None
        return len(await ctx.workspace.walk(path))

    async with opened(tmp_path, held, release) as crib:
        crib.add(count)
        holder = asyncio.create_task(crib.session().call("look", {"path": "large", "hold": True}))
        await held.wait()
        few = await crib.session().call("count", {"path": "few"})
        late = (await crib.session().call("count", {"path": "many"}, timeout=0.5)).error
        release.set()
        many = await crib.session().call("count", {"path": "many"})
        await holder

    assert late is not None
    assert (few.text, late.code, many.text) == ("1", "overloaded", str(SMALL // 100 + 1))


@pytest.mark.parametrize("given_budget", ["512MiB", 536870912])
async def test_the_budget_is_a_setting(given_budget: object) -> None:
    async with Toolcrib(memory={"budget": given_budget}) as crib:
        assert crib.settings.memory.budget == 512 * 1024 * 1024
