"""Requests whose HTTP method says what they do (RFC 9110): one tool that sends them all is not all of them at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..core.tool import Kind, Tool

__all__ = ["kind_of"]

_TRAIT: Final = "by_method"
_ARGUMENT: Final = "method"
_KINDS: Final[Mapping[str, Kind]] = {
    "GET": "read",
    "HEAD": "read",
    "OPTIONS": "read",
    "POST": "write",
    "PUT": "write",
    "PATCH": "write",
}
"""What is not here, DELETE among it, counts as what destroys."""


def kind_of(tool: Tool, arguments: Mapping[str, Any]) -> Kind:
    """Return the kind of a call: the tool's own, or that of the method where the tool says that it goes by it."""
    if _TRAIT not in tool.traits:
        return tool.kind
    method = arguments.get(_ARGUMENT)
    return _KINDS.get(method.strip().upper(), "destructive") if isinstance(method, str) else tool.kind
