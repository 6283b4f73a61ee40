"""Profiles of a crib: the built-in ones, those of the configuration and those that a program adds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from ..core.events import Problem
from ..core.session import SessionTable
from ..core.tool import READS, Tool
from ..disclosure import meta_tools, profiles
from ..disclosure.base import Profile
from ..disclosure.settings import BY_CATALOG, GivenProfile
from ..errors import ConfigError

_PLAIN: Final[Mapping[str, Any]] = {"fence": "none", "mcp_names": ""}
"""Keys of profiles behind a client that guards its user itself: names and results are what the servers gave."""


class ProfileRegistry(Mapping[str, Profile]):
    """Every profile by name. A profile that cannot be built is a problem, and is not in the mapping."""

    def __init__(self, given: Iterable[GivenProfile], sessions: SessionTable, *, guarded: bool) -> None:
        """Register the profiles of the configuration; each is built when a session first needs it.

        Without `guarded` the list costs no more than the servers' own.
        """
        self._guarded = guarded
        self._sessions = sessions
        self.built: dict[str, Profile] = {}
        """The profiles that a session had or a program added, by name."""
        self._given: dict[str, GivenProfile] = {one.name: one for one in given}
        self._broken: dict[str, list[Problem]] = {}
        self._verbs: dict[str, Mapping[str, tuple[str, Tool]]] = {}
        self.version = 0
        """Increases with every profile that is added or replaced; caches of views compare it."""
        for name in self._given:
            try:
                self._load(name)
            except ConfigError as error:
                self._broken[name] = [Problem(source=name, code="bad_profile", message=str(one)) for one in error.each]

    def __getitem__(self, name: str) -> Profile:
        """Return a profile that can be built. Raises `KeyError`; see `get_or_load` for the error with near names."""
        try:
            return self.built.get(name) or self._load(name)
        except ConfigError as error:
            raise KeyError(name) from error

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, the built-in ones first."""
        known = dict.fromkeys((*profiles.BUILT_IN, *self._given, *self.built))
        return (name for name in known if name not in self._broken and name != BY_CATALOG)

    def __len__(self) -> int:
        """Return the number of profiles."""
        return sum(1 for _ in self)

    def add(self, profile: Profile | GivenProfile | Mapping[str, Any]) -> None:
        """Add a profile, built or in the keys of a profile's YAML file; it replaces one of the same name.

        Sessions that have it see the new one from now on. Raises `ConfigError` naming the key.
        """
        added = profile if isinstance(profile, Profile) else self._build(profile)
        self._register(added)
        for state in self._sessions.all():
            if state.profile == added.name:
                state.treat_as_write = frozenset(added.session.treat_as_write)

    def get_or_load(self, name: str) -> Profile:
        """Return a profile by name. Raises `ConfigError` with the nearest names for an unknown one."""
        if name not in self.built:
            self._register(self._load(name))
        return self.built[name]

    @property
    def in_use(self) -> tuple[Profile, ...]:
        """The profiles that a session had, and those that a program added."""
        return tuple(self.built.values())

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The profiles that cannot be built."""
        return tuple(problem for problems in self._broken.values() for problem in problems)

    def verbs(self, name: str) -> Mapping[str, tuple[str, Tool]]:
        """Return the meta-tools (verbs) that a profile declares, by shown name: the verb, and its definition."""
        return self._verbs[self.get_or_load(name).name]

    def loads(self, name: str) -> bool:
        """Whether a meta-tool of the profile adds tools to the list."""
        return any(profiles.VERBS[verb].loads for verb, _ in self.verbs(name).values())

    def _build(self, given: GivenProfile | Mapping[str, Any]) -> Profile:
        """Build a profile, which may extend any other of the configuration. Raises `ConfigError`."""
        values = {"name": given.name, **given.values} if isinstance(given, GivenProfile) else given
        file = given.file if isinstance(given, GivenProfile) else ""
        mine = values.get("name")
        others = {name: {"name": name, **one.values} for name, one in self._given.items() if name != mine}
        return profiles.build(values, file=file, others=others)

    def _load(self, name: str) -> Profile:
        given = self._given.get(name)
        profile = self._build(given) if given else profiles.load(name, others=self._given)
        if self._guarded:
            return profile
        plain = {key: value for key, value in _PLAIN.items() if given is None or key not in given.values}
        return profile.with_values(plain)

    def _register(self, profile: Profile) -> None:
        self.built[profile.name] = profile
        self._broken.pop(profile.name, None)
        self.version += 1
        shows_own = profile.progressive or profiles.STRATEGIES[profile.strategy].whole is not None
        known = profiles.VERBS if shows_own else meta_tools.VERBS
        there = (verb for verb in profile.verbs if verb in known)
        self._verbs[profile.name] = {
            tool.name: (verb, _as_run(verb, tool))
            for verb, tool in zip(there, meta_tools.definitions(profile, known), strict=True)
        }


def _as_run(verb: str, tool: Tool) -> Tool:
    """Return the tool that a verb runs as: it only makes calls, and each of them is decided on as what it is."""
    return tool if profiles.VERBS[verb].run is None else replace(tool, annotations=READS)
