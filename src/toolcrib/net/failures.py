"""What goes wrong between us and an address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ToolFailure

__all__ = ["NetFailure"]


class NetFailure(ToolFailure):
    """A request that brought no answer. Codes: `denied`, `unavailable`, `timeout`, `too_large`."""

    def __init__(
        self, code: str, message: str, *, sent: bool = False, hint: str = "", details: Mapping[str, Any] | None = None
    ) -> None:
        """`sent`: the far end may have received the request, and acted on it."""
        super().__init__(code, message, hint=hint, details=details)
        self.sent = sent
