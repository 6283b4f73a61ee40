"""Memory of the process: garbage collections where they find something, and freed blocks kept for the next result."""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

_KEPT_BYTES: Final = 8 << 20
"""Bytes of one block, and of free memory at the end of a heap, that are not returned to the system at once."""
_MIN_LOADED_OBJECTS: Final = 10_000
"""Objects of a package that is loaded for the first time."""
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""Options of `mallopt` in glibc's malloc.h."""


@contextmanager
def without_collection() -> Generator[None]:
    """Collect no garbage inside: for code that only makes what stays, such as the import of modules.

    The collector would look at all of it several times, 13 % of the CPU of `from toolcrib import Toolcrib`. At the end
    all of it counts as old: the next collection of what is new would look at it once more, another 9 %.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    made_before = gc.get_count()[0]
    try:
        yield
    finally:
        if was_enabled:
            # Few new objects need nothing; and `unfreeze` would undo what the program itself froze. Those before do not
            # count: a program that collects seldom has many, and to count a large frozen heap takes 75 ms.
            if gc.get_count()[0] - made_before > _MIN_LOADED_OBJECTS and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()  # into the oldest generation
            gc.enable()


def collect_seldom(*, is_clean: bool = False) -> None:
    """Keep what is loaded out of later garbage collections, and collect seldom. For a process that only serves.

    Calls leave hardly any cycles. `bench/gateway.py`: 4 to 9 % of the CPU of a read with 8 and 64 in flight.
    A pass looks at 10,000 objects at most, some 5 ms, except for the rare one over all that is new since the start.
    `is_clean`: nothing is garbage yet, so that no collection comes first.
    """
    if not is_clean:
        gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 1, 8_000)


def keep_freed_memory() -> None:
    """Let the C library keep up to 8 MiB that was freed at the end of a heap, and no block that is larger.

    glibc returns the buffers of each large result to the system, which clears them page by page for the next one: 2,260
    page faults, 4 of 32 ms CPU, for a result of 1 MB. Without effect on other C libraries.
    """
    if sys.platform != "linux":
        return
    from ctypes import CDLL

    with suppress(OSError, AttributeError):  # AttributeError: musl has no such function
        library = CDLL(None)
        library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)
