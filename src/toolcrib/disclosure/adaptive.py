"""The default: everything while it fits a budget, else core tools and the verbs that reach all the rest.

Over MCP the surface stands still. In a library session what was found, described or used is appended.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..catalog.catalog import Catalog
from ..core.session import SessionState
from ..core.tool import Tool
from . import verbs
from .base import Profile, View, estimate_tokens, in_scope

__all__ = ["adaptive"]

_SOURCES_NAMED = 12
"""More sources than this are counted, not named: instructions must not grow with the catalog."""


def adaptive(profile: Profile, catalog: Catalog, session: SessionState) -> View:
    """Return all tools in scope, or the small surface when they cost more than the profile's budget."""
    shown = verbs.names(profile)
    everything = _within(in_scope(catalog, session), profile.budget_tokens)
    if everything is not None:
        reading = tuple(tool for tool in verbs.definitions(profile) if shown[tool.name] == "read")
        return View(tools=(*everything, *reading), verbs=shown)
    instructions = _instructions(profile, catalog, session)
    declared = verbs.definitions(profile)
    spent = sum(map(estimate_tokens, declared)) + len(instructions.encode()) // 4
    core = _core(profile, catalog, session, profile.shown_tokens - spent)
    grown = _grown(catalog, session, core) if session.grows else ()
    return View(tools=(*core, *declared, *grown), instructions=instructions, verbs=shown)


def _within(tools: Iterable[Tool], budget: int) -> tuple[Tool, ...] | None:
    """Return the tools when their definitions fit `budget` together, else None; stops at the first that does not."""
    taken: list[Tool] = []
    for tool in tools:
        budget -= estimate_tokens(tool)
        if budget < 0:
            return None
        taken.append(tool)
    return tuple(taken)


def _core(profile: Profile, catalog: Catalog, session: SessionState, budget: int) -> tuple[Tool, ...]:
    """Return the core tools that fit what the verbs leave of the ceiling; the others are found like any tool."""
    named = [catalog.tools[name] for name in profile.core if name in catalog.tools]
    marked = [tool for tool in catalog.tools.values() if tool.core and tool not in named]
    taken: list[Tool] = []
    for tool in (*named, *marked):
        cost = estimate_tokens(tool)
        if session.includes(tool.name) and cost <= budget:
            taken.append(tool)
            budget -= cost
    return tuple(taken)


def _grown(catalog: Catalog, session: SessionState, core: tuple[Tool, ...]) -> tuple[Tool, ...]:
    known = {tool.name for tool in core}
    names = (name for name in session.activated if name not in known and name in catalog.tools)
    return tuple(catalog.tools[name] for name in names if session.includes(name))


def _instructions(profile: Profile, catalog: Catalog, session: SessionState) -> str:
    """Return the profile's words and where the tools come from, as far as that is short."""
    counts: dict[str, int] = {}
    for tool in in_scope(catalog, session):
        counts[tool.source] = counts.get(tool.source, 0) + 1
    if len(counts) <= _SOURCES_NAMED:
        listed = ", ".join(f"{source} ({count})" for source, count in counts.items())
    else:
        listed = f"{len(counts)} sources"
    text = profile.instructions.format(**profile.verbs).strip()
    return f"{text}\n{sum(counts.values())} tools: {listed}."
