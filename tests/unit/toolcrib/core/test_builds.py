"""Builds in a thread: what they make, and the interpreter as it was afterwards."""

from __future__ import annotations

import sys
import threading

import anyio
import pytest

from toolcrib.core.builds import build_in_thread


async def test_threads_take_short_turns_until_the_last_of_several_builds_has_ended() -> None:
    usual, first, second = sys.getswitchinterval(), threading.Event(), threading.Event()
    seen: dict[str, float] = {}

    async def build(name: str, may_end: threading.Event, ends: threading.Event | None = None) -> None:
        def made() -> float:
            may_end.wait()
            return sys.getswitchinterval()

        seen[name] = await build_in_thread(made)
        if ends is not None:
            ends.set()

    async with anyio.create_task_group() as group:
        group.start_soon(build, "one", first, second)
        group.start_soon(build, "other", second)
        first.set()

    assert seen == {"one": pytest.approx(0.0005), "other": pytest.approx(0.0005)}
    assert sys.getswitchinterval() == usual


async def test_a_build_that_fails_leaves_the_interpreter_as_it_was() -> None:
    usual = sys.getswitchinterval()

    with pytest.raises(ZeroDivisionError):
        await build_in_thread(lambda: 1 // 0)

    assert sys.getswitchinterval() == usual
