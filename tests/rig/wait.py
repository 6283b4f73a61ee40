"""Wait for what nobody announces: a process that ends, a file that appears in another program's folder."""

from __future__ import annotations

from collections.abc import Callable

import anyio

__all__ = ["eventually"]

_POLL_SECONDS = 0.02


async def eventually(condition: Callable[[], object], *, within: float = 10.0) -> None:
    """Return as soon as `condition()` is true; raises TimeoutError after `within` seconds.

    For the world outside only. What our own code does, it tells: wait for its event, result or message.
    """
    with anyio.fail_after(within):
        while not condition():
            await anyio.sleep(_POLL_SECONDS)
