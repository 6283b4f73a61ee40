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
from ..disclosure.base import Profile, Scene, View
from ..disclosure.labels import Labels
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
        self._verbs: dict[str, Mapping[str, tuple[str, Tool]]] = {}
        self._labels: dict[str, tuple[Catalog, Labels]] = {}
        self._views: OrderedDict[tuple[object, ...], View] = OrderedDict()
        self._bytes: OrderedDict[tuple[object, ...], bytes] = OrderedDict()

    def profile(self, name: str) -> Profile:
        """Return a profile by name; raises `ConfigError` with the nearest names for an unknown one."""
        if name not in self._profiles:
            self.add(profiles.load(name))
        return self._profiles[name]

    def add(self, profile: Profile) -> None:
        """Take a profile; one of the same name is replaced for sessions from now on."""
        self._profiles[profile.name] = profile
        self._labels.pop(profile.name, None)
        self._views.clear()
        self._bytes.clear()
        declared = verbs.definitions(profile, profiles.VERBS)
        self._verbs[profile.name] = {
            tool.name: (verb, tool) for verb, tool in zip(profile.verbs, declared, strict=True)
        }

    def scene(self, catalog: Catalog, session: SessionState) -> Scene:
        """Return what the session can see of `catalog`."""
        profile = self.profile(session.profile)
        known = self._labels.get(profile.name)
        if known is None or known[0] is not catalog:
            known = self._labels[profile.name] = (catalog, Labels(catalog, profile.names, profile.mcp_names))
        return Scene(profile=profile, catalog=catalog, session=session, labels=known[1])

    def around(self, catalog: Catalog, session: SessionState) -> Surroundings:
        """Return what calls of this session are resolved against."""
        scene = self.scene(catalog, session)
        return Surroundings(scene=scene, verbs=self._verbs[session.profile], view=lambda: self.view(catalog, session))

    def view(self, catalog: Catalog, session: SessionState) -> View:
        """Return what the session's model sees of `catalog`."""
        key = _key(catalog, session)
        view = self._views.get(key)
        if view is None:
            scene = self.scene(catalog, session)
            view = profiles.strategy_of(scene.profile).view(scene)
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
    return (session.profile, catalog.version, *session.shown_by)


def _keep(kept: OrderedDict[tuple[object, ...], T], key: tuple[object, ...], value: T) -> None:
    kept[key] = value
    if len(kept) > _KEPT:
        kept.popitem(last=False)
