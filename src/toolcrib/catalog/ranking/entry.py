"""Input and output of the ranking: `Entry` (one tool, as text) and `Hit` (one match)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Entry", "Hit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The text of one tool, as far as the ranking reads it. Read once, when it is added; not kept."""

    name: str
    """The unique name that a search returns."""
    leaf: str
    """The tool's name inside its source; may equal `name`."""
    source: str
    source_title: str = ""
    source_description: str = ""
    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    category: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """JSON Schema of the arguments: names, descriptions and enum values of properties are read, nothing is resolved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One tool that fits a query; hits come best first."""

    name: str
    score: float
    """Comparable within one answer only: inverse document frequencies, weighted."""
    exact: bool
    """The query is this tool's full or leaf name, in any case and with any separators."""
