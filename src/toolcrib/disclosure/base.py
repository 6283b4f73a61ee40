"""Progressive disclosure: a strategy turns a catalog and a session into what this session's model sees now.

A strategy is a pure function; the profile is its data. The order of the tools in a view is stable, later ones are
appended, so that a client's prompt cache survives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ..catalog.catalog import Catalog
from ..core.json import dumps
from ..core.session import SessionState
from ..core.tool import Tool

__all__ = ["Profile", "Strategy", "View", "estimate_tokens", "in_scope"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How tools are shown, as data: one YAML file."""

    name: str
    strategy: str
    description: str = ""
    verbs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Verb → the name under which the model sees it."""
    core: tuple[str, ...] = ()
    """Names of tools that are always shown, in this order; a tool that marks itself core follows them."""
    budget_tokens: int = 2000
    """Estimated tokens of all definitions up to which everything is shown directly."""
    shown_tokens: int = 900
    """Estimated tokens that the shown surface may take above the budget, instructions included."""
    instructions: str = ""
    """What the model is told; `{verb}` fields stand for the verbs' names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What one session's model sees: tools in order, and the prompt part that explains them."""

    tools: tuple[Tool, ...]
    instructions: str = ""
    verbs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Shown name → verb, for every verb that the profile has; they dispatch even when they are not shown."""


Strategy = Callable[[Profile, Catalog, SessionState], View]


def estimate_tokens(tool: Tool) -> int:
    """Estimate what a definition costs: UTF-8 bytes / 4 (dependencies.md section 4: within 8 % of o200k)."""
    return len(dumps(tool.definition)) // 4


def in_scope(catalog: Catalog, session: SessionState) -> Iterator[Tool]:
    """Yield the tools that this session may know of, in the catalog's order."""
    yield from (tool for tool in catalog.tools.values() if session.includes(tool.name))
