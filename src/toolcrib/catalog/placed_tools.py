"""Tools of a registry by their names in the catalog, and snapshots of them that cost as much as has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from ..core.builds import build_at_once, build_in_slices, has_loop
from ..core.tool import Tool
from .parts import CatalogPart, PartedTools

__all__ = ["PlacedTools"]

_COPIED: Final = 2_000
"""Tools of which all are copied at each change, in 0.1 ms."""
_APART: Final = 64
"""Of more tools, this part of them may have changed before all are copied again."""


class PlacedTools:
    """The tools of now, and the last whole copy with what has changed since. Used from one event loop."""

    def __init__(self) -> None:
        self.tools: dict[str, Tool] = {}
        """The tools of now; changed by `put` and `pop` alone."""
        self._copied: Mapping[str, Tool] = {}
        """All tools at an earlier moment."""
        self._changed: dict[str, Tool | None] = {}
        """Tools that were added, removed (None) or changed since."""
        self._copying: asyncio.Future[None] | None = None
        self._changed_meanwhile: dict[str, Tool | None] = {}
        """The same since all tools began to be copied anew."""

    def put(self, name: str, tool: Tool) -> None:
        """Add or replace the tool of that name."""
        self.tools[name] = tool
        self._note(name, tool)

    def pop(self, name: str) -> Tool:
        """Remove and return the tool of that name."""
        tool = self.tools.pop(name)
        self._note(name, None)
        return tool

    def snapshot(self, parts: Sequence[CatalogPart]) -> Mapping[str, Tool]:
        """Return all tools in the order of `parts`, with look-ups in one dictionary unless little of many changed."""
        if len(self.tools) > _COPIED:
            is_much = len(self._changed) * _APART >= len(self.tools)
            if is_much and self._copying is None and len(self._copied) * 2 > len(self.tools) and has_loop():
                self._copying = asyncio.ensure_future(self._copy_in_slices(parts))
            if self._copying is not None or not is_much:
                return PartedTools(parts, self._copied, dict(self._changed))
        self._copied = build_at_once(_copied(parts))
        self._changed.clear()
        return self._copied

    def _note(self, name: str, tool: Tool | None) -> None:
        self._changed[name] = tool
        if self._copying is not None:
            self._changed_meanwhile[name] = tool

    async def _copy_in_slices(self, parts: Sequence[CatalogPart]) -> None:
        try:
            self._copied = await build_in_slices(_copied(parts))
            self._changed = self._changed_meanwhile
        finally:
            self._copying, self._changed_meanwhile = None, {}


def _copied(parts: Iterable[CatalogPart]) -> Generator[None, None, dict[str, Tool]]:
    tools: dict[str, Tool] = {}
    for part in parts:
        items = iter(part.tools.items())
        while some := tuple(islice(items, _COPIED)):
            tools.update(some)
            yield
    return tools
