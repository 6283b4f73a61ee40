"""Wait for what nobody announces: a process that ends, a file that appears in another program's folder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

PATIENCE: Final = 60.0
"""Seconds that a test waits for what comes at once on an idle machine. A passing test never waits that long.

It only ends a test that would hang, so it is far above what a loaded machine needs and below pytest's own limit, which
tells less. A shorter limit is a flake to come; what must be quick is measured in `bench` and `tests/faults`.
"""

_POLL_SECONDS = 0.02


async def eventually(condition: Callable[[], object], *, within: float = PATIENCE) -> None:
    """Return as soon as `condition()`, or what it awaits, is true; raises TimeoutError after `within` seconds.

    For the world outside only. What our own code does, it tells: wait for its event, result or message.
    """
    with anyio.fail_after(within):
        while True:
            found = condition()
            if await found if isinstance(found, Awaitable) else found:
                return
            await anyio.sleep(_POLL_SECONDS)
