"""Make a result fit what the model may spend on it: whole, or its ends with the rest an artifact."""

from __future__ import annotations

from dataclasses import replace

from ...core.call import Call
from ...core.result import ToolError, ToolResult
from ...results.limit import Limiter

__all__ = ["Limit"]


class Limit:
    """Cut what is too long, keep all of it."""

    def __init__(self, limiter: Limiter) -> None:
        """`limiter` keeps the artifacts."""
        self._limiter = limiter

    async def __call__(self, call: Call, result: ToolResult) -> ToolResult:
        """Return the result within the session's budget of tokens for one result."""
        limited = await self._limiter.apply(result, call.session.limits.result_tokens, call.session.principal)
        if result.structured_content is not None and limited.structured_content is None:
            return _without_structure(call, limited)
        return limited


def _without_structure(call: Call, limited: ToolResult) -> ToolResult:
    """Call it an error where the caller was promised structured content: MCP clients reject a result without it.

    An error they pass on, and with it the ends of the text and the artifact. A call through a verb promised nothing.
    """
    if limited.is_error or call.requested or call.tool is None or call.tool.output_schema is None:
        return limited
    error = ToolError(code="too_large", message=f"{call.name} ran, and its result is too large to be shown whole")
    return replace(limited, error=error)
