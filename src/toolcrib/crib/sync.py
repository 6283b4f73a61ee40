"""The one place where Toolcrib leaves async."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import anyio

__all__ = ["run"]

T = TypeVar("T")


def run(awaitable: Awaitable[T]) -> T:
    """Run `awaitable` from synchronous code and return its value. Not from inside a running event loop."""

    async def main() -> T:
        return await awaitable

    return anyio.run(main)
