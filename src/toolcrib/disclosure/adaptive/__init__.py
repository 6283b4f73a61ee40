"""The default strategy: all tools while they fit a budget, else core tools and the meta-tools that reach the rest.

Over MCP the surface is fixed. In a library session, tools that were found, described or used are appended.

    definitions within `budget_tokens`     every tool in scope, and no meta-tool but that for long results
    else                                    core tools that fit `shown_tokens`, meta-tools, and what was used

In a session whose list may not grow, the second form never changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...catalog.catalog import BUILTIN_SOURCES
from ...core.tool import Tool
from ...telemetry.tokens import definition_text, estimate, tokenizer
from .. import meta_tools
from ..base import Strategy, View, VisibleCatalog, estimate_tokens

__all__ = ["STRATEGY", "adaptive"]

_MAX_SOURCES_NAMED = 12
"""More sources than this are counted, not named: instructions must not grow with the catalog."""

_ESTIMATE_ERROR: Final = 0.25
"""Part of the budget by which an estimate may be wrong: 0.83 was measured for definitions in plain English."""


def adaptive(visible: VisibleCatalog) -> View:
    """Return all tools in scope, or the small surface when they cost more than the profile's budget."""
    profile, session = visible.profile, visible.session
    declared = meta_tools.definitions(profile, meta_tools.VERBS)
    faces = (face for tool in visible.listed() for face in visible.presentations(tool))
    everything = _all_within(faces, profile.tokens.budget_tokens)
    if everything is not None:
        reading = profile.verbs.get("read") if visible.aids else None
        return View(tools=(*everything, *(tool for tool in declared if tool.name == reading)))
    instructions = _instructions(visible)
    spent = sum(map(estimate_tokens, declared)) + len(instructions.encode()) // 4
    core = _core_within(visible, profile.tokens.shown_tokens - spent)
    grown = _used_tools(visible, core) if session.audience.grows else ()
    present = visible.aliases.present
    spent += sum(map(estimate_tokens, core))
    return View(
        tools=(*map(present, core), *declared, *map(present, grown)),
        instructions=instructions,
        spare_tokens=max(0, profile.tokens.shown_tokens - spent),
    )


def _all_within(tools: Iterable[Tool], budget: int) -> tuple[Tool, ...] | None:
    """Return the tools when their definitions fit `budget` together, else None.

    They are counted where the estimate is too near to the budget to tell; it stops where the estimate is far above.

    Counting with the tokenizer takes much longer than estimating: it is done only within 25 % of the budget.
    """
    taken: list[Tool] = []
    texts: list[str] = []
    spent = 0
    for tool in tools:
        taken.append(tool)
        texts.append(definition_text(tool))
        spent += estimate(texts[-1])
        if spent > budget * (1 + _ESTIMATE_ERROR):
            return None
    if spent > budget * (1 - _ESTIMATE_ERROR):
        spent = sum(map(tokenizer().count, texts))
    return tuple(taken) if spent <= budget else None


def _core_within(visible: VisibleCatalog, budget: int) -> tuple[Tool, ...]:
    """Return the core tools that fit beside the meta-tools; the others can be found by search."""
    named = (visible.find(name) for name in visible.profile.core)
    found = {tool.name: tool for tool in (*named, *visible.core()) if tool is not None and visible.is_offered(tool)}
    taken: list[Tool] = []
    for tool in found.values():
        cost = estimate_tokens(tool)
        if cost <= budget:
            taken.append(tool)
            budget -= cost
    return tuple(taken)


def _used_tools(visible: VisibleCatalog, core: tuple[Tool, ...]) -> tuple[Tool, ...]:
    known = {tool.name for tool in core}
    tools = visible.catalog.tools
    used = (tools[name] for name in visible.session.history.activated if name not in known and name in tools)
    return tuple(tool for tool in used if visible.session.admits(tool) and visible.is_offered(tool))


def _instructions(visible: VisibleCatalog) -> str:
    """Return the sources of the tools, if that is short, the profile's text, and the number of tools.

    The sources stand alone on the first line: it is all that Codex shows of a server whose tools it holds back, in
    place of one line for each server that it has itself.
    """
    known = visible.offered_by_source()
    sources = [source for source in known if source not in BUILTIN_SOURCES] or [*known]
    listed = ", ".join(sources) if len(sources) <= _MAX_SOURCES_NAMED else f"{len(sources)} sources"
    return f"Tools of {listed}\n{meta_tools.instructions(visible.profile)}\n{sum(known.values())} tools in all."


STRATEGY = Strategy(view=adaptive)
