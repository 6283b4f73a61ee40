"""Rule layers, and those that apply to a session. The order of the layers, first to last:

  config      `rules:` of the files, the user's before the project's
  profile     `rules:` of the session's profile
  mode        `rules:` of its mode
  session     `session(rules=…)`
  identity    `rules:` under `identities:` for its principal

Deny comes before ask and ask before allow over all of them; of two layers with the same effect, the first is named. No
layer overrides a deny or an ask of another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from ..core.session import SessionState
from .rules import GivenRules, Rule, Rules, parse_rules

_NO_LAYERS: Final[Mapping[str, GivenRules]] = MappingProxyType({})
_MAX_COMBINATIONS: Final = 256
"""Combinations of layers that are kept ready."""


class RuleLayers:
    """All rules. Lives as long as the configuration; profiles may change meanwhile.

    Rules of a session are made at its first decision and kept by the texts and names that they come from, so that a
    profile which is loaded anew has its new rules at once.
    """

    def __init__(
        self,
        everywhere: Iterable[Rule] = (),
        *,
        profiles: Callable[[str], GivenRules] = lambda name: {},
        modes: Mapping[str, GivenRules] = _NO_LAYERS,
        identities: Mapping[str, GivenRules] = _NO_LAYERS,
        home: str = "",
    ) -> None:
        """Take the rules of each layer; `profiles` returns those of a profile by its name. Raises `ConfigError`."""
        self._everywhere = tuple(everywhere)
        self._profiles = profiles
        self._home = home
        self._modes = {name: self._parse_layer(given, f"mode {name}") for name, given in modes.items() if given}
        self._identities = {
            name: self._parse_layer(given, f"identity {name}") for name, given in identities.items() if given
        }
        self._base_rules = Rules(self._everywhere)
        self._rules_by_terms: dict[tuple[object, ...], Rules] = {}

    def of(self, session: SessionState) -> Rules:
        """Return the rules that hold for `session`."""
        given = self._profiles(session.profile)
        if not (given or session.rules or self._modes or self._identities):
            return self._base_rules
        frozen = tuple((effect, tuple(texts)) for effect, texts in given.items())
        key = (frozen, session.profile, session.mode, session.rules, session.principal)
        found = self._rules_by_terms.get(key)
        if found is None:
            if len(self._rules_by_terms) >= _MAX_COMBINATIONS:
                self._rules_by_terms.clear()
            found = self._rules_by_terms[key] = Rules(self._rules_for(session, given))
        return found

    def _rules_for(self, session: SessionState, given: GivenRules) -> Iterable[Rule]:
        yield from self._everywhere
        yield from self._parse_layer(given, f"profile {session.profile}")
        yield from self._modes.get(session.mode, ())
        yield from self._parse_layer(dict(session.rules), "session")
        yield from self._identities.get(session.principal, ())

    def _parse_layer(self, given: GivenRules, layer: str) -> tuple[Rule, ...]:
        return parse_rules(given, layer=layer, home=self._home)
