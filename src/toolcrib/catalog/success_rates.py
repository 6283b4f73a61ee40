"""Success rates of tools from past calls: how often each worked, lately, for each identity.

For every identity and tool two weights are kept, of successes and of failures; each halves in `HALF_LIFE`. The rate is
smoothed towards `EXPECTED`, as if `_PRIOR_CALLS` calls had gone that way before the first one. It becomes points that
move a priority by at most `BOUND` in either direction: an order changes, nothing ever disappears from it.

The audit rows are the memory of it: a crib that opens hands the recorded outcomes to `replay`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal

from msgspec import Struct

Scope = Literal["identity", "global", "off"]

HALF_LIFE: Final = 7 * 24 * 3600.0
"""Seconds: a tool that was broken last month is as good as new."""
MEMORY: Final = 4 * HALF_LIFE
"""Seconds after which a call weighs next to nothing: how far back the records are read."""
BOUND: Final = 10
"""Points, of the 100 of a priority: a preference, weaker than an explicit one of the catalog."""
EXPECTED: Final = 0.8
"""The share of calls that work where nothing is known."""
_PRIOR_CALLS: Final = 5.0
"""Calls that the expectation counts for."""
_ALL_IDENTITIES: Final = ""
"""The identity under which the calls of all principals are counted together."""

_STEP_SECONDS: Final = 60.0
"""Seconds in which nothing fades: calls in quick succession pay no power each, and no point hangs on it."""
_MAX_PAIRS: Final = 20_000
"""Pairs of identity and tool that are remembered; the one that was used least lately goes first."""
_FAULTS: Final = frozenset({"tool_error", "timeout", "unavailable", "internal", "outcome_unknown", "overloaded"})
"""Outcomes that count against a tool. Wrong arguments, refusals and cancellations do not."""


class _Weights(Struct):
    good: float = 0.0
    bad: float = 0.0
    at: float = 0.0

    def decay(self, now: float) -> None:
        share = 0.5 ** ((now - self.at) / HALF_LIFE)
        self.good *= share
        self.bad *= share
        self.at = now

    def points(self, now: float) -> int:
        share = 0.5 ** (max(0.0, now - self.at) / HALF_LIFE)
        good, bad = self.good * share, self.bad * share
        rate = (good + EXPECTED * _PRIOR_CALLS) / (good + bad + _PRIOR_CALLS)
        room = 1 - EXPECTED if rate > EXPECTED else EXPECTED
        return round(BOUND * (rate - EXPECTED) / room)


class SuccessRates:
    """The rates of one crib. Used from its event loop.

    Two counts for each call: one for its identity, one for all. Entries are kept in the order of their last use.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives seconds since 1970."""
        self._clock = clock
        self._weights: dict[tuple[str, str], _Weights] = {}

    def note(self, identity: str, tool: str, outcome: str) -> None:
        """Count one call that ran and ended now."""
        self._count(identity, tool, outcome, self._clock())

    def replay(self, outcomes: Iterable[tuple[str, str, str, float]]) -> None:
        """Count calls of earlier runs, oldest first: identity, tool, outcome, and when in seconds since 1970."""
        for identity, tool, outcome, at in outcomes:
            self._count(identity, tool, outcome, at)

    def points(self, identity: str, scope: Scope = "identity") -> Mapping[str, int]:
        """Return the points to add to the priority of each tool, without zeros.

        `scope` selects the calls that count.
        """
        if scope == "off":
            return {}
        whose, now = _ALL_IDENTITIES if scope == "global" else identity, self._clock()
        found = ((tool, weights.points(now)) for (who, tool), weights in self._weights.items() if who == whose)
        return {tool: points for tool, points in found if points}

    def _count(self, identity: str, tool: str, outcome: str, at: float) -> None:
        """Count one outcome; wrong arguments, refusals and cancellations count neither way."""
        is_bad = outcome != "ok"
        if not tool or (is_bad and outcome not in _FAULTS):
            return
        for whose in (identity, _ALL_IDENTITIES) if identity != _ALL_IDENTITIES else (_ALL_IDENTITIES,):
            weights = self._weights.get((whose, tool))
            if weights is None or at - weights.at >= _STEP_SECONDS:
                weights = self._renew(whose, tool, at)
            if is_bad:
                weights.bad += 1
            else:
                weights.good += 1

    def _renew(self, whose: str, tool: str, at: float) -> _Weights:
        """Return the weights of a pair as they are at `at`, and give it the last place: that of the newest."""
        weights = self._weights.pop((whose, tool), None) or _Weights(at=at)
        weights.decay(at)
        self._weights[whose, tool] = weights
        while len(self._weights) > _MAX_PAIRS:
            del self._weights[next(iter(self._weights))]
        return weights
