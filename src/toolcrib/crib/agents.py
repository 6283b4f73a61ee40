"""Tools that run agents, for the sessions of MCP clients: in a served crib whose configuration names a model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from msgspec import Struct

from ..core.entry_points import AGENT_TOOLS, installed
from ..core.events import Problem
from ..sources.source import Source
from .session import SessionParts

_logger = logging.getLogger(__name__)


class AgentToolset(Struct, frozen=True, kw_only=True):
    """Tools of a package that runs agents: the target of an entry point in the group `toolcrib.agent_tools`."""

    categories: Mapping[str, str]
    """Category by the name of a tool: what the key `builtins` may name."""
    conditions: frozenset[str]
    """Requirements of the tools that sessions of clients meet, once they are mounted."""
    open: Callable[[SessionParts, frozenset[str] | None], Sequence[Source]]
    """Makes the sources, of a crib and of the words that choose tools; None is all of them."""


def toolsets() -> tuple[AgentToolset, ...]:
    """Return those of installed packages. One that cannot be loaded is logged and left out."""
    found: list[AgentToolset] = []
    for point in installed(AGENT_TOOLS):
        try:
            found.append(cast("AgentToolset", point.load()))
        except Exception:  # the code of another package
            _logger.warning("the agent tools of %s cannot be loaded", point.value, exc_info=True)
    return tuple(found)


async def mount_agent_tools(parts: SessionParts) -> None:
    """Offer them to the sessions of clients, if a model is configured and `builtins` does not leave them out."""
    builtins = parts.settings.sources.builtins
    if not (builtins and parts.settings.chat.model):
        return
    words = frozenset(builtins) if isinstance(builtins, tuple) else None
    for toolset in toolsets():
        if words is not None and words.isdisjoint({*toolset.categories, *toolset.categories.values()}):
            continue
        for source in toolset.open(parts, words):
            if any(state.source == source.name for state in parts.tools.sources):
                parts.tools.report(Problem(source=source.name, code="bad_config", message="it is mounted already"))
                continue
            await parts.tools.mount_source(source, prefix=False, trusted=True)
        parts.sessions.conditions_of_clients |= toolset.conditions
