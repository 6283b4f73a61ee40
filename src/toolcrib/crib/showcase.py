"""What each session is shown, kept as long as nothing changes: views, and the bytes that MCP sends of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, TypeVar

from ..catalog.catalog import Catalog
from ..core.json import dumps
from ..core.session import SessionState
from ..core.tool import Tool
from ..disclosure import profiles, verbs
from ..disclosure.base import Profile, View
from ..dispatch.steps.resolve import Surroundings

__all__ = ["Showcase"]

T = TypeVar("T")

_KEPT: Final = 64
"""Views in memory; an older one is made again when it is asked for."""


class Showcase:
    """Profiles and the views they give. One for a crib."""

    def __init__(self) -> None:
        """Start with nothing loaded."""
        self._profiles: dict[str, Profile] = {}
        self._verbs: dict[str, Mapping[str, Tool]] = {}
        self._around: dict[str, Surroundings] = {}
        self._views: OrderedDict[tuple[object, ...], View] = OrderedDict()
        self._bytes: OrderedDict[tuple[object, ...], bytes] = OrderedDict()

    def profile(self, name: str) -> Profile:
        """Return a profile by name; raises `ConfigError` with the nearest names for an unknown one."""
        if name not in self._profiles:
            self._profiles[name] = profiles.load(name)
            self._verbs[name] = {tool.name: tool for tool in verbs.definitions(self._profiles[name])}
        return self._profiles[name]

    def around(self, catalog: Catalog, session: SessionState) -> Surroundings:
        """Return what calls of this session are resolved against."""
        around = self._around.get(session.profile)
        if around is None or around.catalog is not catalog:
            profile = self.profile(session.profile)
            around = Surroundings(catalog=catalog, profile=profile, verbs=self._verbs[session.profile])
            self._around[session.profile] = around
        return around

    def view(self, catalog: Catalog, session: SessionState) -> View:
        """Return what the session's model sees of `catalog`."""
        key = _key(catalog, session)
        view = self._views.get(key)
        if view is None:
            profile = self.profile(session.profile)
            view = profiles.STRATEGIES[profile.strategy](profile, catalog, session)
            _keep(self._views, key, view)
        return view

    def listing(self, catalog: Catalog, session: SessionState) -> bytes:
        """Return the shown definitions as a JSON array."""
        key = _key(catalog, session)
        listed = self._bytes.get(key)
        if listed is None:
            listed = dumps([tool.definition for tool in self.view(catalog, session).tools])
            _keep(self._bytes, key, listed)
        return listed


def _key(catalog: Catalog, session: SessionState) -> tuple[object, ...]:
    grown = tuple(session.activated) if session.grows else ()
    return (session.profile, catalog.version, session.allowed, grown)


def _keep(kept: OrderedDict[tuple[object, ...], T], key: tuple[object, ...], value: T) -> None:
    kept[key] = value
    if len(kept) > _KEPT:
        kept.popitem(last=False)
