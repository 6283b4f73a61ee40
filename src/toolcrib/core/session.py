"""What one conversation has seen, loaded, been granted and spent.

The only mutable noun. A session belongs to one principal and is used from one event loop; calls of the same session
may run concurrently, so counters are changed without awaiting in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .permission import Approver, Effect

__all__ = ["LOCAL", "Limits", "SessionState"]

LOCAL: Final = "local"
"""The principal of whoever runs the process: the library's own caller, stdio, loopback without a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one session may use. None is no limit."""

    timeout: float = 60.0
    """Seconds that a call may run when neither the tool nor the caller says otherwise (security.md R2)."""
    max_timeout: float = 600.0
    """Seconds that no tool, caller or progress notice can extend a call beyond."""
    calls: int | None = None
    calls_per_tool: Mapping[str, int] = field(default_factory=dict[str, int])
    """Budget by tool name; a tool that is not named has none."""
    result_tokens: int = 4000
    """Estimated tokens (UTF-8 bytes / 4) of one result that the model sees; the rest becomes an artifact."""


@dataclass(slots=True, kw_only=True, weakref_slot=True, eq=False)
class SessionState:
    """The state of one conversation. `key` is unique for a principal."""

    key: str
    principal: str = LOCAL
    instance: str = ""
    profile: str = "adaptive"
    mode: str = "cautious"
    allowed: frozenset[str] | None = None
    """Tool names in scope; None is every tool. A call outside is refused on every path."""
    approver: Approver | None = None
    limits: Limits = field(default_factory=Limits)
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Context defaults: argument values that a call gets when its schema has such an argument and it gives none."""
    grows: bool = True
    """Whether the shown tools may grow as the session activates some; False over MCP, whose list must stand still."""
    activated: dict[str, None] = field(default_factory=dict[str, None])
    """Names of tools in the order in which this session came to use them."""
    remembered: dict[str, Effect] = field(default_factory=dict[str, Effect])
    """Answers `never` by tool name, and `always` by name and definition."""
    spent: Counter[str] = field(default_factory=Counter[str])
    """Calls that passed the budget, by tool name, whatever became of them."""

    def includes(self, name: str) -> bool:
        """Whether the tool `name` is in scope: whether this session may know of it at all."""
        return self.allowed is None or name in self.allowed
