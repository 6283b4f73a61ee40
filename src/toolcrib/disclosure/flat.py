"""Everything, always: for small catalogs and for clients that hold definitions back themselves."""

from __future__ import annotations

from . import verbs
from .base import Scene, Strategy, View

__all__ = ["STRATEGY", "flat"]


def flat(scene: Scene) -> View:
    """Show every tool in scope, then the profile's verbs: a long result names the one that reads on."""
    declared = verbs.definitions(scene.profile, verbs.VERBS)
    return View(tools=(*map(scene.labels.shown, scene.tools()), *declared), instructions=scene.profile.instructions)


STRATEGY = Strategy(view=flat)
