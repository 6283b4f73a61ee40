"""Budgets and loop detection: limits on use, and on repeated turns of a model.

A budget of None is unlimited. Its holder defines what it covers (a session, an identity, a tool).

`dispatch.budgets` counts: a session's own limits are in `core.session.Limits`, its use in `Usage`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from .settings import Count, Section, setting

_MINUTE: Final = 60.0


class Budget(Section):
    """Limits on the calls and tokens of one holder; None means no limit.

    A call over one is refused as `budget_exceeded`, or as `overloaded` with `retry_after` (seconds) by the rate.
    """

    replaced_whole = True

    calls: Count | None = None
    """Calls that ran or are running; denied, refused and dry-run calls do not count."""
    calls_per_minute: Count | None = None
    """The rate: a bucket of that many calls, which fills up evenly within a minute."""
    tokens: Count | None = None
    """Estimated tokens (UTF-8 bytes / 4) of results as the model saw them, cut and redacted."""


class Budgets(Section):
    """The budgets of one crib: the key `budgets` of a configuration. Each that covers a call must have room for it."""

    session: Budget = Budget.model_construct()
    """Of one conversation."""
    identity: Budget = Budget.model_construct()
    """Of one principal on one day (UTC), over all its sessions; remembered in the store."""
    identities: Mapping[str, Budget] = setting({})
    """Of single principals by name, each in the place of `identity`."""
    tools: Mapping[str, Budget] = setting({})
    """Of one conversation, by a tool's name or a pattern with `*`, whose tools share the budget."""


NO_BUDGETS: Final = Budgets.model_construct()


class Loops(Struct, frozen=True, kw_only=True):
    """Limits on repeated turns of a model (seed 002).

    A turn is one `call_many`; the same call twice in one turn counts once.
    """

    burst: int | None = None
    """Calls of one turn; the rest of it is refused."""
    same: int | None = None
    """Number of equal calls within `window` of which the last is refused."""
    cycle: int | None = None
    """Number of repetitions of a pattern of 2 to 4 calls of which the last is refused."""
    window: int = 8
    """Calls that are looked back on, this one included."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Loops:
        """Build the limits from `given`, as it stands in a profile; null counts as not set.

        Raises `ValueError` with key and reason.
        """
        known = cls.__struct_fields__
        for key, value in given.items():
            if key not in known:
                raise ValueError(f"{key}: unknown key (known: {', '.join(known)})")
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < (1 if key == "burst" else 2):
                raise ValueError(f"{key}: takes a whole number from {1 if key == 'burst' else 2} on, not {value!r}")
        return cls(**{key: value for key, value in given.items() if value is not None})

    def found(self, recent: deque[bytes], call: bytes) -> str:
        """Return the repetition that `call` after `recent` would complete, in words for the model.

        Empty without one.
        """
        seen = [*recent, call][-self.window :]
        if self.same is not None and seen.count(call) >= self.same:
            return f"the same call with the same arguments was asked for {seen.count(call)} times"
        if self.cycle is None:
            return ""
        for length in (2, 3, 4):
            pattern, needed = seen[-length:], length * self.cycle
            if len(set(pattern)) > 1 and len(seen) >= needed and seen[-needed:] == pattern * self.cycle:
                return f"the same {length} calls follow one another for the {self.cycle}. time"
        return ""


NO_LOOPS: Final = Loops()


class Bucket:
    """The calls left under a rate: full at first, and refilled evenly. `now` is any monotonic clock."""

    __slots__ = ("_filled", "_level")

    def __init__(self, rate: int, now: float) -> None:
        """Full: `rate` calls."""
        self._level = float(rate)
        self._filled = now

    def wait(self, rate: int, now: float) -> float:
        """Return the seconds until a call is left; 0.0 if one is left now."""
        self._level = min(float(rate), self._level + max(0.0, now - self._filled) * rate / _MINUTE)
        self._filled = now
        return 0.0 if self._level >= 1 else (1 - self._level) * _MINUTE / rate

    def take(self, calls: int = 1) -> None:
        """Take a call out; -1 puts one back that did not run."""
        self._level -= calls
