"""File watcher: polls the stamps of files, and reads only where a stamp moved.

Stamps are taken in a worker thread: a file may lie on a slow or a dead network share, for which no loop should wait.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

POLL_SECONDS: Final = 1.0
"""Between two looks. A person who saves a file and turns to the agent takes longer."""

Stamp = tuple[str, int, int, int, int]
"""Path, device and inode, change time and size; zeros for a file that is not there."""


def stamps(paths: Iterable[Path]) -> tuple[Stamp, ...]:
    """Return a stamp that shows a later look whether one of `paths` was changed, replaced or removed."""
    return tuple(map(_stamp, paths))


async def watch(look: Callable[[], object], changed: Callable[[], Awaitable[None]], *, every: float) -> None:
    """Await `changed` at once, and again whenever `look()`, called in a thread, returns something else than before.

    Looks first and reads then: what changes while `changed` runs is noticed by the next look. Never returns.
    """
    run = partial(anyio.to_thread.run_sync, look, abandon_on_cancel=True)
    before: object = None
    while True:
        now = await run()
        if now != before:
            before = now
            await changed()
        await anyio.sleep(every)


def _stamp(path: Path) -> Stamp:
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # ValueError: a path that none can be, with a NUL in it
        return (str(path), 0, 0, 0, 0)
    return (str(path), found.st_dev, found.st_ino, max(found.st_mtime_ns, found.st_ctime_ns), found.st_size)
