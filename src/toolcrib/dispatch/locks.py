"""Turns: calls that write the same thing run one after another, everything else at once.

A lock is known by a key; it exists while somebody holds or awaits it. Keys are taken in sorted order, so that two
calls that need the same two never wait for each other.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, cast

import anyio

from ..core.json import canonical
from ..core.tool import Tool

__all__ = ["Locks", "lock_keys"]

_RESOURCE_ARGUMENTS: Final = frozenset(
    {"path", "file", "file_path", "filepath", "filename", "source", "destination", "uri", "repo_path"}
)
"""Argument names that say what a write touches when the tool does not declare it; the usual ones of MCP servers."""


def lock_keys(tool: Tool, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys of what this call writes, and of its tool if that is serial; none for any other read."""
    own = (f"tool:{tool.source}/{tool.local_name}",) if tool.serial else ()
    if tool.annotations.read_only:
        return own
    names = tool.locks or _RESOURCE_ARGUMENTS
    values = [value for name, value in arguments.items() if name in names and value is not None]
    parts = [part for value in values for part in _parts(value)]
    return tuple(sorted({*own, *(f"resource:{_plain(part)}" for part in parts)}))


def _parts(value: Any) -> Sequence[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else (value,)


def _plain(value: Any) -> str:
    """Return one spelling for the most usual spellings of a path; anything but text as JSON."""
    if not isinstance(value, str):
        return canonical(value).decode()
    parts = [part for part in value.split("/") if part not in ("", ".")]
    return ("/" if value.startswith("/") else "") + "/".join(parts)


class Locks:
    """All turns that are taken now. One for a crib, used from one event loop."""

    def __init__(self) -> None:
        """Start with nothing held."""
        self._held: dict[str, tuple[anyio.Lock, int]] = {}

    @asynccontextmanager
    async def hold(self, keys: tuple[str, ...]) -> AsyncGenerator[None]:
        """Hold every key inside the block; waits for those who came first."""
        async with AsyncExitStack() as stack:
            for key in keys:
                await stack.enter_async_context(self._one(key))
            yield

    @asynccontextmanager
    async def _one(self, key: str) -> AsyncGenerator[None]:
        lock, users = self._held.get(key, (anyio.Lock(), 0))
        self._held[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._held[key]
            if users == 1:
                del self._held[key]
            else:
                self._held[key] = (lock, users - 1)
