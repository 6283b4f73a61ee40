"""The task of an interaction, as the strategy `selection` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core.json import canonical

__all__ = ["SelectionState"]


@dataclass(slots=True, kw_only=True)
class SelectionState:
    """State of `selection` in one session: see `SessionState.state_of`."""

    required: tuple[str, ...] = ()
    """Capability tags that this interaction needs."""
    intent: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The caller's knowledge of the task: `complexity`, `needs_plan`, `skill_groups`, `required_tools` …"""
    plan: Mapping[str, Any] | None = None
    """The plan that the interaction works on."""

    @property
    def shown_by(self) -> object:
        """The task as canonical JSON; empty without one."""
        if not (self.required or self.intent or self.plan):
            return b""
        return canonical([self.required, self.intent, self.plan])
