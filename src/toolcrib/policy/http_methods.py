"""HTTP methods (RFC 9110) as the kind of a request: for one tool that sends requests of every method."""

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
"""Kind by method; a missing one, DELETE among them, counts as destructive."""


def kind_of(tool: Tool, arguments: Mapping[str, Any]) -> Kind:
    """Return the kind of a call: the tool's own, or that of the method for a tool declared so."""
    if _TRAIT not in tool.traits:
        return tool.kind
    method = arguments.get(_ARGUMENT)
    return _KINDS.get(method.strip().upper(), "destructive") if isinstance(method, str) else tool.kind
