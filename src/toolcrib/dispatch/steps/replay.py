"""The same request again gets the first one's outcome; a dry run is described. Nobody is asked for either."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio

from ...core.call import Call
from ...core.json import canonical, dumps
from ...core.result import ToolResult
from ...core.tool import Tool
from ...errors import ToolFailure
from ...sources.base import Source
from ...store.receipts import Conflict, Receipts, Replay

__all__ = ["ReplayOrDescribe"]


class ReplayOrDescribe:
    """End the walk for what need not run."""

    def __init__(
        self,
        receipts: Receipts,
        sources: Callable[[str], Source | None],
        diff: Callable[[Call], Awaitable[str]],
    ) -> None:
        """`receipts` holds the idempotency keys, `sources` finds a source by name.

        `diff` says what a call would change in a file, empty for one that edits none.
        """
        self._receipts = receipts
        self._sources = sources
        self._diff = diff

    async def __call__(self, call: Call) -> Call | ToolResult:
        """Return the call, holding its key if it has one, or the outcome that stands for it.

        A key on a read has no effect: reads may run twice.
        """
        if call.dry_run:
            return _described(call, self._sources(call.target.source), await self._diff(call))
        if not call.idempotency_key or call.target.annotations.read_only:
            return call
        session, tool = call.session, call.target
        request = hashlib.sha256(canonical([tool.digest.hex(), call.arguments])).digest()
        with anyio.CancelScope(shield=True):  # a key that was taken and that nobody knows of would stay taken
            taken = await self._receipts.reserve(session.principal, call.idempotency_key, request, call.id)
            if isinstance(taken, Replay):
                return taken.result.with_meta(replayed=True)
            if isinstance(taken, Conflict):
                raise ToolFailure("conflict", taken.reason)
        return call.evolve(reserved=True)


def _described(call: Call, source: Source | None, diff: str) -> ToolResult:
    """Say what the call would do, and whether somebody would be asked first."""
    tool, decision = call.target, call.decision
    effect: dict[str, Any] = {
        "dry_run": True,
        "tool": tool.name,
        "source": tool.source,
        "kind": tool.kind,
        "arguments": call.told,
        "decision": decision.effect if decision else "ask",
        "rule": decision.rule if decision else "",
    }
    describe: Callable[[Tool, Mapping[str, Any]], str | None] | None = getattr(source, "describe", None)
    if describe is not None and (described := describe(tool, call.arguments)):
        effect["request"] = described
    if diff:
        effect["diff"] = diff
    return ToolResult.of_text(dumps(effect).decode(), structured=effect)
