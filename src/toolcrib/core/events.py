"""Events sent to listeners: small frozen facts, without behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["CallFinished", "CatalogChanged", "Event", "Problem", "SourceState"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that could not be loaded, with its reason; everything else continues to work."""

    source: str
    code: str
    """`bad_tool`, `bad_schema`, `too_large`, `duplicate`, `collision`, `quarantined`, `unreviewed` …"""
    message: str
    tool: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """State of one source."""

    source: str
    kind: str
    """`python`, `mcp` …"""
    state: Literal["cached", "connecting", "ready", "stale", "failed", "needs_login", "closed"]
    """`cached`: listed from disk, not connected yet. `stale`: listed before, unreachable now.

    `needs_login`: a person has to log in; `detail` has the command.
    """
    tools: int = 0
    detail: str = ""
    outage: str = ""
    """Why calls of its tools fail, as a model may read it ("github is down: …"); empty while they work."""
    hint: str = ""
    """The remedy for the outage, with its command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogChanged:
    """The catalog has another version."""

    version: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFinished:
    """End of one call, with any outcome. `entity` and `action` are those of the tool's op."""

    call_id: str
    session: str
    tool: str
    """Empty when there was no such tool."""
    requested: str
    """The name that was asked for."""
    op: str
    entity: str
    action: str
    kind: str
    """`read`, `write` or `destructive`."""
    outcome: str
    """`ok`, `input_required`, or the error's code."""
    latency_ms: float


Event = CallFinished | CatalogChanged | Problem | SourceState
