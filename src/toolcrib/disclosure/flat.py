"""Everything, always: for small catalogs and for clients that hold definitions back themselves."""

from __future__ import annotations

from ..catalog.catalog import Catalog
from ..core.session import SessionState
from . import verbs
from .base import Profile, View, in_scope

__all__ = ["flat"]


def flat(profile: Profile, catalog: Catalog, session: SessionState) -> View:
    """Show every tool in scope, then the profile's verbs: a long result names the one that reads on."""
    tools = (*in_scope(catalog, session), *verbs.definitions(profile))
    return View(tools=tools, instructions=profile.instructions, verbs=verbs.names(profile))
