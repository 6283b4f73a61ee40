"""One timer for all deadlines: each scope ends at its own time, and keeps what anyio's own time limit promises."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import anyio
import pytest
from anyio.lowlevel import checkpoint

from toolcrib.core.call_guards import Deadlines, Signal

SOON = 0.02
LATER = 1.0
"""Far enough for what has to be done before, on a machine that stands still now and then."""


async def outcome(deadlines: Deadlines, seconds: float, body: Callable[[], Awaitable[object]]) -> str:
    """Run `body` as a call runs, and tell how it ended."""
    scope = deadlines.open(time.monotonic() + seconds)
    try:
        with scope:
            await body()
            return "ended"
    finally:
        deadlines.close(scope)
    return "timed out"


async def test_what_ends_in_time_is_left_alone_and_what_does_not_is_cancelled() -> None:
    deadlines = Deadlines()
    assert await outcome(deadlines, LATER, checkpoint) == "ended"
    assert await outcome(deadlines, SOON, anyio.sleep_forever) == "timed out"


async def test_an_end_that_has_passed_cancels_at_the_first_pause() -> None:
    assert await outcome(Deadlines(), -1, checkpoint) == "timed out"


@pytest.mark.slow
async def test_no_scope_ends_before_its_own_time_whatever_the_order_in_which_they_were_opened() -> None:
    deadlines, early, begin = Deadlines(), dict[int, float](), time.monotonic()

    async def hang(place: int) -> None:
        due = begin + LATER + place * SOON
        await outcome(deadlines, due - time.monotonic(), anyio.sleep_forever)
        early[place] = max(0.0, due - time.monotonic())

    async with anyio.create_task_group() as group:
        for place in (3, 1, 4, 2):
            group.start_soon(hang, place)
    assert early == {1: 0.0, 2: 0.0, 3: 0.0, 4: 0.0}


@pytest.mark.slow
async def test_the_timer_goes_on_when_the_scope_it_was_set_for_was_left_in_time() -> None:
    deadlines, ended = Deadlines(), list[str]()

    async def hang() -> None:
        ended.append(await outcome(deadlines, LATER + SOON, anyio.sleep_forever))

    async with anyio.create_task_group() as group:
        group.start_soon(hang)
        assert await outcome(deadlines, LATER, checkpoint) == "ended"
    assert ended == ["timed out"]
    assert await outcome(deadlines, SOON, anyio.sleep_forever) == "timed out"


async def test_who_swallows_the_cancellation_is_cancelled_again() -> None:
    swallowed = list[str]()

    async def stubborn() -> None:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            swallowed.append("once")
        await anyio.sleep_forever()

    assert await outcome(Deadlines(), SOON, stubborn) == "timed out"
    assert swallowed == ["once"]


async def test_who_swallows_the_cancellation_and_returns_leaves_nothing_behind() -> None:
    async def gives_in() -> None:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return

    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    assert await outcome(Deadlines(), SOON, gives_in) == "ended"
    await checkpoint()
    assert task.cancelling() == before


async def test_shielded_work_is_finished_before_the_end_takes_effect() -> None:
    finished = list[str]()

    async def says_goodbye() -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(3 * SOON):
            await anyio.sleep_forever()
        finished.append("goodbye")
        await anyio.sleep_forever()

    assert await outcome(Deadlines(), SOON, says_goodbye) == "timed out"
    assert finished == ["goodbye"]


async def test_an_end_reaches_the_tasks_that_the_call_has_started() -> None:
    async def several() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            group.start_soon(anyio.sleep_forever)

    assert await outcome(Deadlines(), SOON, several) == "timed out"


async def test_the_inner_end_of_a_call_within_a_call_leaves_the_outer_one_running() -> None:
    deadlines, inner = Deadlines(), list[str]()

    async def calls_another() -> None:
        inner.append(await outcome(deadlines, SOON, anyio.sleep_forever))
        await checkpoint()

    assert await outcome(deadlines, 60, calls_another) == "ended"
    assert inner == ["timed out"]


async def test_the_outer_end_of_a_call_within_a_call_is_not_taken_for_the_inner_one() -> None:
    deadlines, inner = Deadlines(), list[str]()

    async def calls_another() -> None:
        inner.append(await outcome(deadlines, 60, anyio.sleep_forever))

    assert await outcome(deadlines, SOON, calls_another) == "timed out"
    assert inner == []


async def test_a_caller_who_leaves_as_the_time_runs_out_is_not_told_of_a_timeout() -> None:
    told = list[str]()
    deadlines = Deadlines()

    async def hang() -> None:
        told.append(await outcome(deadlines, SOON, anyio.sleep_forever))

    caller = asyncio.create_task(hang())
    await checkpoint()
    deadline = time.monotonic() + SOON
    while time.monotonic() < deadline:  # the loop stands still, so that both come in its next turn
        pass
    asyncio.get_running_loop().call_soon(caller.cancel)
    await asyncio.wait([caller])
    assert (caller.cancelled(), told) == (True, [])


async def test_the_signal_of_a_call_is_given_when_its_time_is_up_even_where_the_work_is_shielded() -> None:
    deadlines, signal = Deadlines(), Signal()
    scope = deadlines.open(time.monotonic() + SOON, signal)
    with scope, anyio.CancelScope(shield=True):
        await signal.wait()
    deadlines.close(scope)
    assert (signal.reason, scope.cancel_called) == ("timeout", True)
