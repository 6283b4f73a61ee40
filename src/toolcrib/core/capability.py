"""What a selection weighs beyond a tool's definition: seed 004's `Capability` record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

__all__ = ["PLAIN", "Capability", "CapabilityType"]

CapabilityType = Literal["TOOL", "SKILL", "CODE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """The record of one capability, without what `Tool` has a word for (tags, level, schema)."""

    type: CapabilityType = "TOOL"
    subtype: str = ""
    """PREBUILT, CUSTOM, NATIVE, EXTERNAL, DYNAMIC … as the catalog says it."""
    provider: str = ""
    """Who brings it: user, system, local …"""
    priority: int = 50
    """0 to 100; the higher is preferred when several fit."""
    cost: Mapping[str, str] = field(default_factory=dict[str, str])
    """`time` and `money`, in the catalog's words: fast, slow, free, high …"""
    constraints: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """`requires_api`, `api_name`, `requires_network`, `requires_auth`, `internal_use_only` …"""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fallback_tool: str = ""
    """The tool that does the work when this capability cannot."""
    skill_path: str = ""
    """Where a skill's SKILL.md is, relative to its root."""
    cache_stable: bool = False
    """Its definition never changes within a conversation."""

    explicit: tuple[str, ...] = ()
    """Arguments that a session's context never fills: left out, they mean something of their own."""

    def to_json(self) -> dict[str, Any]:
        """Return what differs from a plain tool, as JSON."""
        if self is PLAIN:
            return {}
        return {
            entry.name: value
            for entry in fields(self)
            if (value := getattr(self, entry.name)) != getattr(PLAIN, entry.name, None)
        }


PLAIN: Final = Capability()
"""A tool of which nothing more is known."""
