"""Strategy of seed 004: the list of tools is the selection, and meta-tools do not change it."""

from __future__ import annotations

from typing import Final

from .. import growing_list, meta_tools
from ..base import Strategy, View, VisibleCatalog
from .invocation import deliver
from .selector import FAILING, select

__all__ = ["STRATEGY"]

_NOT_FAILING: Final = "it failed time after time in this session"


def _view(scene: VisibleCatalog) -> View:
    """List the selected tools; the meta-tool that reads long results joins when one exists, if the list may grow."""
    selection = select(scene)
    session, profile = scene.session, scene.profile
    declared = meta_tools.definitions(profile, meta_tools.VERBS)
    if session.audience.grows:
        declared = tuple(tool for tool in declared if tool.name in session.history.loaded)
    shown = {tool.name for tool in declared}
    later = growing_list.loaded_tools(scene)
    chosen = {tool.name: tool for tool in (*selection.tools, *(later if session.audience.grows else ()))}
    faces = (face for tool in chosen.values() for face in scene.faces(tool))
    tools = (face for face in faces if face.name not in shown)
    failing = [name for name, why in selection.left_out.items() if why == FAILING]
    return View(
        tools=(*tools, *declared),
        instructions=meta_tools.instructions(profile),
        callable=frozenset((*selection.names, *failing, *(tool.name for tool in later))),
    )


STRATEGY: Final = Strategy(
    view=_view,
    deliver=deliver,
    options={
        "available": dict,
        "core_tools_override": list,
        "simple_task_tools": list,
        "skill_groups": dict,
        "tools": list,
        "unknown_task": frozenset({"all", "core"}),
    },
)
