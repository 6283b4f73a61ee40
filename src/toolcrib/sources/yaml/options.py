"""What a catalog is opened with: what it may run, and what stands for what it names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.context import Context
from ...core.result import ToolResult
from ...errors import ConfigError
from ..watch import POLL_SECONDS

__all__ = ["CallTool", "YamlOptions"]

CallTool = Callable[[str, str, Mapping[str, Any], Context], Awaitable[ToolResult]]
"""Calls a tool of a server for whoever makes this call, through the one door: server, tool, arguments, context."""


def _literal(text: str) -> str:
    if "${" in text:
        raise ConfigError("variables (${NAME}) have no values here")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlOptions:
    """How one catalog is read and run. Frozen, and as old as its source."""

    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Ours; a command gets only the harmless part of it."""
    expand: Callable[[str], str] = _literal
    """Replaces `${VAR}`; raises `ConfigError` for one that is not set."""
    code: tuple[Path, ...] | None = ()
    """Folders, beside the catalog's own, that its modules may come from; None: it may not load code at all."""
    trusted: Callable[[Path, bytes], bool] = lambda path, content: True
    """Whether the operator has agreed to a file with this content. What it refuses is not read any further."""
    also_watched: tuple[Path, ...] = ()
    """Files whose change makes the catalog be read again: the record of what is trusted."""
    call_tool: CallTool | None = None
    """None: entries that name an MCP tool are unavailable."""
    poll_seconds: float = POLL_SECONDS
    """Between two looks at the file."""
