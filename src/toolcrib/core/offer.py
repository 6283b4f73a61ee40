"""What a source offers beside tools: resources, templates of them, and prompts.

The entries are the plain JSON objects of MCP, as `resources/list`, `resources/templates/list` and `prompts/list` show
them: they cross every edge without being rebuilt. Whoever made the offer has checked them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["NOTHING", "Offer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Everything that one source offers now beside tools, or all sources together. Frozen; a later one replaces it."""

    resources: tuple[Mapping[str, Any], ...] = ()
    templates: tuple[Mapping[str, Any], ...] = ()
    prompts: tuple[Mapping[str, Any], ...] = ()
    reads: bool = False
    """Whether resources can be read at all: a server may serve some that it lists nowhere."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read and nothing to get."""
        return not (self.reads or self.prompts)


NOTHING: Final = Offer()
