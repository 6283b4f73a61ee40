"""Subscribers that add to a success, in the order of their priority; one that breaks adds nothing and hides nothing."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from ...core.call import Call
from ...core.result import ToolResult

__all__ = ["Enrich", "Enricher"]

Enricher = Callable[[Call, ToolResult], Awaitable[ToolResult]]

_logger = logging.getLogger("toolcrib.dispatch")


class Enrich:
    """The first step after the execution. Subscribers may come at any time."""

    def __init__(self) -> None:
        """Start without subscribers."""
        self._enrichers: list[tuple[int, Enricher]] = []

    def subscribe(self, enricher: Enricher, *, priority: int = 0) -> None:
        """Call `enricher` with every success from now on; a higher priority comes earlier."""
        self._enrichers.append((priority, enricher))
        self._enrichers.sort(key=lambda entry: -entry[0])

    async def __call__(self, call: Call, result: ToolResult) -> ToolResult:
        """Return `result` with what the subscribers add; a replay has it already, and a dry run is no success."""
        if not self._enrichers or result.is_error or call.grant is None:
            return result
        for _, enricher in self._enrichers:
            try:
                result = _result(await enricher(call, result))
            except Exception:
                _logger.exception("an enricher failed on call %s of %s", call.id, call.name)
        return result


def _result(enriched: object) -> ToolResult:
    """Return what an enricher returned; raises `TypeError` when it forgot to return the result."""
    if not isinstance(enriched, ToolResult):
        raise TypeError(f"an enricher returned {type(enriched).__name__}, not a ToolResult")
    return enriched
