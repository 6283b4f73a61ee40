"""Builds of large structures, in a thread or in slices, while the event loop goes on.

    `build_at_once`      without an event loop: the caller waits
    `build_in_slices`    on the event loop; other code runs between two slices, and may change what the steps read
    `build_in_thread`    in a thread, from values that nothing changes meanwhile

Catalog, search index and listings are built so.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Final, TypeVar

from anyio import to_thread

T = TypeVar("T")

_TURN: Final = 0.0005
"""Seconds after which a thread that computes lets another one have the interpreter; 5 ms otherwise.

The event loop gives it away at every read and write, so with 5 ms one call stood still for 66 to 148 ms while 100,000
tools were indexed, now for 10 to 18 (`bench/growth.py tools`); the build takes a tenth longer.
"""

_SLICE: Final = 0.003
"""Seconds after which a build on the event loop lets everything else have a turn."""

_lock = Lock()
_before: list[float] = []
"""The interval before each build that runs now."""


def has_loop() -> bool:
    """Whether an event loop runs here, so that a build can go on beside everything else."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def build_at_once(steps: Generator[None, None, T]) -> T:
    """Run `steps` and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


async def build_in_slices(steps: Generator[None, None, T]) -> T:
    """Run `steps` on the event loop, which goes on after every slice of some short steps; return the result."""
    end = time.perf_counter() + _SLICE
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value
        if time.perf_counter() >= end:
            await asyncio.sleep(0)
            end = time.perf_counter() + _SLICE


async def build_in_thread(build: Callable[[], T]) -> T:
    """Run `build`, which takes seconds of Python, return the result, and release the memory that it needed meanwhile.

    A caller that is cancelled leaves it running.
    """
    return await to_thread.run_sync(_built, build, abandon_on_cancel=True)


def _built(build: Callable[[], T]) -> T:
    with _short_turns():
        made = build()
    _return_freed_memory()
    return made


@contextmanager
def _short_turns() -> Generator[None]:
    """Set the interval until the last of the builds that overlap ends: the first entry is that of the program."""
    with _lock:
        _before.append(sys.getswitchinterval())
        sys.setswitchinterval(min(_TURN, _before[0]))
    try:
        yield
    finally:
        with _lock:
            first = _before[0]
            _before.pop()
            if not _before:
                sys.setswitchinterval(first)


def _return_freed_memory() -> None:
    """Return blocks that were freed between others: 65 MB after the index of 100,000 tools. For glibc alone."""
    if sys.platform == "linux":
        from ctypes import CDLL  # to build only

        with suppress(OSError, AttributeError):  # AttributeError: musl has no such function
            CDLL(None).malloc_trim(0)
