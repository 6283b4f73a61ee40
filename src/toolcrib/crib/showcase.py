"""What each session is shown, kept as long as nothing changes: views, and the bytes that MCP sends of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from ..catalog.catalog import Catalog
from ..catalog.skill_groups import SkillGroups
from ..config.profiles import GivenProfile
from ..core.events import Problem
from ..core.json import dumps
from ..core.session import SessionState
from ..core.tool import Annotations, Tool
from ..disclosure import meta_tools, profiles
from ..disclosure.aliases import Labels
from ..disclosure.base import READS, Profile, Scene, View
from ..disclosure.missing_tools import gaps, op_problems
from ..disclosure.ops import OpMap
from ..disclosure.server_instructions import server_instructions
from ..dispatch.steps.resolve import Surroundings
from ..errors import ConfigError, UsageError

__all__ = ["Showcase"]

T = TypeVar("T")

_KEPT: Final = 64
"""Views in memory; an older one is made again when it is asked for."""
_PLAIN: Final[Mapping[str, Any]] = {"fence": "none", "mcp_names": ""}
"""Keys of profiles behind a client that guards its user itself: names and results are what the servers gave."""
_ASSUMED: Final = Annotations().to_mcp()
_LABELS_KEPT: Final = 8
"""Sets of labels, each of which holds on to its catalog."""


class Showcase:
    """Profiles and the views they give. One for a crib."""

    def __init__(
        self,
        groups: Callable[[], SkillGroups],
        prompt_of: Callable[[str], str],
        held: Callable[[], Collection[str]],
        *,
        guarded: bool = True,
    ) -> None:
        """Start with nothing loaded.

        `groups` says which skill groups there are now, `prompt_of` what a mode tells the model, `held` which tools
        wait for a session that has what they need. Without `guarded` the list costs no more than the servers' own.
        """
        self._guarded = guarded
        self._held = held
        self._groups = groups
        self._prompt_of = prompt_of
        self._profiles: dict[str, Profile] = {}
        self._given: dict[str, GivenProfile] = {}
        self._broken: dict[str, Problem] = {}
        self._verbs: dict[str, Mapping[str, tuple[str, Tool]]] = {}
        self._labels: OrderedDict[tuple[object, ...], tuple[Catalog, Labels]] = OrderedDict()
        self._views: OrderedDict[tuple[object, ...], View] = OrderedDict()
        self._bytes: OrderedDict[tuple[object, ...], bytes] = OrderedDict()

    def profile(self, name: str) -> Profile:
        """Return a profile by name; raises `ConfigError` with the nearest names for an unknown one."""
        if name not in self._profiles:
            self.add(self._called(name))
        return self._profiles[name]

    def take(self, given: Iterable[GivenProfile]) -> None:
        """Know what the user says of profiles; what cannot be built is a problem until somebody wants it."""
        self._given |= {one.name: one for one in given}
        for name in self._given:
            try:
                self._called(name)
            except ConfigError as error:
                self._broken[name] = Problem(source=name, code="bad_profile", message=str(error))

    def all(self) -> dict[str, Profile]:
        """Return every profile that can be had, the built-in ones first."""
        known = dict.fromkeys((*profiles.BUILT_IN, *self._given, *self._profiles))
        return {name: self._profiles.get(name) or self._called(name) for name in known if name not in self._broken}

    def built(self, given: GivenProfile | Mapping[str, Any]) -> Profile:
        """Build a profile, which may extend any that the user speaks of. Raises `ConfigError`."""
        values = {"name": given.name, **given.values} if isinstance(given, GivenProfile) else given
        file = given.file if isinstance(given, GivenProfile) else ""
        mine = values.get("name")
        others = {name: {"name": name, **one.values} for name, one in self._given.items() if name != mine}
        return profiles.build(values, file=file, others=others)

    def _called(self, name: str) -> Profile:
        given = self._given.get(name)
        profile = self.built(given) if given else profiles.load(name, others=self._given)
        if self._guarded:
            return profile
        plain = {key: value for key, value in _PLAIN.items() if given is None or key not in given.values}
        return replace(profile, **plain)

    def add(self, profile: Profile) -> None:
        """Take a profile; one of the same name is replaced for sessions from now on."""
        self._profiles[profile.name] = profile
        self._broken.pop(profile.name, None)
        self._labels.clear()
        self._views.clear()
        self._bytes.clear()
        shows_own = profile.progressive or profiles.STRATEGIES[profile.strategy].whole is not None
        known = profiles.VERBS if shows_own else meta_tools.VERBS
        there = (verb for verb in profile.verbs if verb in known)
        self._verbs[profile.name] = {
            tool.name: (verb, _as_run(verb, tool))
            for verb, tool in zip(there, meta_tools.definitions(profile, known), strict=True)
        }

    def loads(self, name: str) -> bool:
        """Whether a verb of the profile adds tools to the list."""
        return any(profiles.VERBS[verb].loads for verb, _ in self._verbs[self.profile(name).name].values())

    def named(self, catalog: Catalog, session: SessionState, names: Iterable[str]) -> tuple[str, ...]:
        """Return an exact set by catalog names, verbs by their own; raises `UsageError` for what is not in scope.

        The set that the session has now limits nothing.
        """
        scene = self.scene(catalog, replace(session, scope=replace(session.scope, exact=None)))
        found: dict[str, None] = {}
        for name in names:
            tool = None if name in self._verbs[scene.profile.name] else scene.find(name)
            if tool is None and name not in self._verbs[scene.profile.name]:
                close = scene.catalog.nearest(name, allowed=scene.admitted)
                meant = f"; did you mean {', '.join(close)}?" if close else ""
                raise UsageError(f"tools: there is no tool {name!r} in the scope of this session{meant}")
            found[tool.name if tool else name] = None
        return tuple(found)

    def problems(self, catalog: Catalog) -> tuple[Problem, ...]:
        """Return what the profiles in use name and `catalog` does not have, and the ops that tools lost."""
        held = self._held()
        found = (gaps(profile, catalog, held).problem(profile) for profile in self._profiles.values())
        lost = (problem for ops in self._ops(catalog) for problem in op_problems(ops))
        return (*self._broken.values(), *(problem for problem in found if problem is not None), *dict.fromkeys(lost))

    def _ops(self, catalog: Catalog) -> Iterator[OpMap]:
        """Yield the ops of each profile in use that calls tools by them; without one, the ops that tools declare."""
        used = [profile for profile in self._profiles.values() if profile.strategy == "gateway"]
        for profile in used:
            yield self._labels_of(profile, catalog).ops
        if not used:
            yield OpMap(tool for tool in catalog.tools.values() if tool.op)

    def scene(self, catalog: Catalog, session: SessionState) -> Scene:
        """Return what the session can see of `catalog`."""
        profile = self.profile(session.profile)
        return Scene(
            profile=profile,
            catalog=catalog,
            session=session,
            labels=self._labels_of(profile, catalog),
            skill_groups=self._groups,
            aids=self._guarded,
        )

    def _labels_of(self, profile: Profile, catalog: Catalog) -> Labels:
        """Return the labels of exactly this catalog, which stays while they do; sessions of instances take turns."""
        key = (profile.name, id(catalog))
        known = self._labels.get(key)
        if known is None:
            ops = profile.options.get("ops")
            taken = profile.verbs.values()
            labels = Labels(catalog, profile.names, profile.mcp_names, ops, taken, ours=profile.ours)
            known = (catalog, labels)
            _keep(self._labels, key, known, _LABELS_KEPT)
        return known[1]

    def around(self, catalog: Catalog, session: SessionState, at: Callable[[str, str], Surroundings]) -> Surroundings:
        """Return what calls of this session are resolved against; `at` is `Surroundings.at`."""
        scene, verbs = self.scene(catalog, session), self._verbs[session.profile]
        return Surroundings(scene=scene, verbs=verbs, view=lambda: self.view(catalog, session), at=at)

    def view(self, catalog: Catalog, session: SessionState) -> View:
        """Return what the session's model sees of `catalog`."""
        prompt = self._prompt_of(session.mode)
        key = (*_key(catalog, session), self._groups(), prompt)
        view = self._views.get(key)
        if view is None:
            scene = self.scene(catalog, session)
            view = _planning(scene) or _exact(scene) or profiles.strategy_of(scene.profile).view(scene)
            of_servers = ""
            if session.audience.is_client and not profiles.strategy_of(scene.profile).tells_sources:
                of_servers = server_instructions(scene, view)
            if of_servers or prompt:
                view = replace(view, instructions="\n\n".join(filter(None, (view.instructions, prompt, of_servers))))
            _keep(self._views, key, view)
        return view

    def listing(self, catalog: Catalog, session: SessionState) -> bytes:
        """Return the shown definitions as a JSON array."""
        key = (*_key(catalog, session), self._groups())
        listed = self._bytes.get(key)
        if listed is None:
            shown = (tool.listed for tool in self.view(catalog, session).tools)
            listed = dumps(list(shown if self._guarded else map(_lean, shown)))
            _keep(self._bytes, key, listed)
        return listed


def _lean(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a definition without the hints that MCP assumes where a server says nothing."""
    hints = {
        name: value for name, value in definition.get("annotations", {}).items() if _ASSUMED.get(name) is not value
    }
    rest = {key: value for key, value in definition.items() if key != "annotations"}
    return {**rest, "annotations": hints} if hints else rest


def _planning(scene: Scene) -> View | None:
    """Return the view of a session whose plan was not approved yet: what asks the user, and nothing else."""
    if not scene.session.scope.planning:
        return None
    asking = (tool for tool in scene.offered() if "asks_user" in tool.traits)
    return View(tools=tuple(face for tool in asking for face in scene.faces(tool)))


def _exact(scene: Scene) -> View | None:
    """Return the view of an interaction with an exact set of tools, in its order; None without one."""
    session, tools = scene.session, scene.catalog.tools
    if session.scope.exact is None:
        return None
    declared = {tool.name: tool for tool in meta_tools.definitions(scene.profile, profiles.VERBS)}
    shown: list[Tool] = []
    for name in session.scope.exact:
        if name in declared:
            shown.append(declared[name])
        elif name in tools and session.admits(tools[name]) and scene.is_offered(tools[name]):
            shown.extend(scene.faces(tools[name]))
    return View(tools=tuple(shown))


def _as_run(verb: str, tool: Tool) -> Tool:
    """Return the tool that a verb runs as: it only makes calls, and each of them is decided on as what it is."""
    return tool if profiles.VERBS[verb].run is None else replace(tool, annotations=READS)


def _key(catalog: Catalog, session: SessionState) -> tuple[object, ...]:
    return (session.profile, catalog.version, catalog.words, *session.shown_by)


def _keep(kept: OrderedDict[tuple[object, ...], T], key: tuple[object, ...], value: T, most: int = _KEPT) -> None:
    kept[key] = value
    if len(kept) > most:
        kept.popitem(last=False)
