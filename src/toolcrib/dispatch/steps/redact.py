"""Mask secrets before anything is stored, logged or shown. The tool itself had the real values."""

from __future__ import annotations

from ...core.call import Call
from ...core.result import ToolResult
from ...results.redact import Redactor

__all__ = ["Redact"]


class Redact:
    """Mask what a result says."""

    def __init__(self, redactor: Redactor) -> None:
        """`redactor` knows the formats of secrets, and our own."""
        self._redactor = redactor

    async def __call__(self, call: Call, result: ToolResult) -> ToolResult:
        """Return the result without secrets."""
        return await self._redactor.clean(result)
