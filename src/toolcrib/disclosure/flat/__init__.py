"""Everything, always: for small catalogs and for clients that hold definitions back themselves. Seed 002's catalog."""

from __future__ import annotations

from msgspec.structs import replace

from ...core.tool import Tool
from .. import meta_tools
from ..base import Strategy, View, VisibleCatalog

__all__ = ["STRATEGY", "flat"]


def flat(visible: VisibleCatalog) -> View:
    """List every tool in scope, then the profile's meta-tools: a long result names the one that reads on."""
    declared = meta_tools.definitions(visible.profile, meta_tools.VERBS) if visible.aids else ()
    shown = (_with_server(face, visible) for tool in visible.listed() for face in visible.presentations(tool))
    return View(tools=(*shown, *declared), instructions=meta_tools.instructions(visible.profile))


def _with_server(tool: Tool, visible: VisibleCatalog) -> Tool:
    """Return `tool` with the server that it comes from in its description, where the profile wants that.

    For models of library sessions: over MCP a definition reaches the client word by word as it was reviewed.
    """
    template = visible.profile.options.get("mcp_descriptions")
    if tool.origin != "mcp" or not template or not visible.session.audience.grows:
        return tool
    words = {"{server}": tool.source, "{description}": tool.description}
    for field, value in words.items():
        template = template.replace(field, value, 1)
    return replace(tool, description=template.strip())


STRATEGY = Strategy(view=flat, options={"mcp_descriptions": str})
