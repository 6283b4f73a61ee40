"""Limits of library code that can search without end: a rule such as "hourly on the 30th of February"."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Final
from weakref import WeakValueDictionary

from anyio import Lock
from anyio.lowlevel import RunVar

_LOOKED_AT: Final = 0xFF
"""The time is looked at with every 256th call of a function: 0.1 ms, at 1 % of the time of what is limited."""

_turns: Final = RunVar[WeakValueDictionary[str, Lock]]("toolcrib_work.calendar.turns")


def in_turn(principal: str) -> AbstractAsyncContextManager[None]:
    """Return a lock to hold while a call of `principal` computes in a thread: one at a time.

    Threads that compute take the interpreter from the event loop, and places from other threads: 60 calls at once held
    up everybody's for half a minute.
    """
    turns = _turns.get(None)
    if turns is None:
        _turns.set(turns := WeakValueDictionary[str, Lock]())
    lock = turns.get(principal)
    if lock is None:
        lock = turns[principal] = Lock()
    return lock


@contextmanager
def computing_limit(seconds: float) -> Generator[None]:
    """Raise `TimeoutError` in the block when Python code in it has run for `seconds` of this thread's CPU time.

    It is raised where the code next calls a function or returns. The block must not wait and must not yield to others:
    what it measures is the thread's.
    """
    until, calls, outer = time.thread_time() + seconds, 0, sys.getprofile()

    def look(frame: object, event: str, argument: Any) -> None:
        nonlocal calls
        calls += 1
        if not calls & _LOOKED_AT and time.thread_time() > until:
            raise TimeoutError(f"more than {seconds:g} s of computing")

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(outer)
