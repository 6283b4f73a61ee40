"""Workflow settings; the code that runs a workflow interprets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["GivenWorkflow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenWorkflow:
    """One entry below `workflows`."""

    name: str
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    file: str = field(default="", compare=False)
    """Where it stands: `file:line`."""
