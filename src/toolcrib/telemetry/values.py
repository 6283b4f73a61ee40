"""Attributes of spans for arguments, results and other values, and the span of the call that runs in this task."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from ..core.json import dumps

_MAX_TEXT_LENGTH: Final = 8192
"""Characters of arguments, of a result and of any other text: what most backends show."""

CURRENT: Final[ContextVar[Any]] = ContextVar("toolcrib_call_span", default=None)
"""The `spans.CallSpan` of the call that runs in this task: that module is slow to load."""


class ShownValues:
    """Values as the spans of one crib show them."""

    def __init__(self, redact: Callable[[Any], Any], *, content: bool) -> None:
        """`content`: arguments and results are shown too, as `redact` leaves them."""
        self.content = content
        self._redact = redact

    def text(self, value: Any) -> str:
        """Return `value` without secrets and no longer than is fit for an attribute: text as it is, else JSON.

        A value that is not JSON is shown by its type.
        """
        clean = self._redact(value)
        try:
            text = clean if isinstance(clean, str) else dumps(clean).decode()
        except (TypeError, ValueError, RecursionError):
            return f"({type(value).__name__})"
        return text if len(text) <= _MAX_TEXT_LENGTH else f"{text[:_MAX_TEXT_LENGTH]}…"
