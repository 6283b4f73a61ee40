"""Limits of one run and the usage that is counted against them.

A sub-agent has its own limits, and its usage also counts against its parent's: payments go up the chain of
`UsageLimits`, and what is left is the least that any of them has left.

    run (50 requests) <── spawned (15) <── spawned by it (15)
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from toolcrib.errors import UsageError

_LIMIT_OF_PROFILE_KEY: Final[Mapping[str, str]] = {
    "depth": "depth",
    "max_turns": "spawned_turns",
    "requests": "spawned_requests",
}
"""Key of a profile's `agents` → limit."""


class AgentLimits(Struct, frozen=True, kw_only=True):
    """Limits of one run: one request of the user, until its answer. None means unlimited.

    At a limit nothing is lost: one last request, in which no tool can be called, asks for an answer with what there is.
    Raises `UsageError` for a figure that cannot be.
    """

    requests: int | None = 50
    """Requests to models, those of sub-agents included; repeated and summarising ones count too."""
    calls: int | None = 400
    """Tool calls; those beyond it are answered with `budget_exceeded` and do not run."""
    tokens: int | None = None
    """Input and output tokens of all requests as the APIs count them, cached ones too; estimated where they do not."""
    seconds: float | None = None
    """Wall time, time spent waiting for people included. What runs then is cancelled."""
    answer_seconds: float = 120.0
    """Seconds that the last request may take on top of `seconds`."""
    analysis_seconds: float = 2.0
    """Seconds that a model has to say what a task needs, in the profile `selection`; then the task begins without."""
    retries: int = 4
    """Retries of a request after a transient failure: a rate limit, a 5xx, a lost connection."""
    backoff: float = 1.0
    """Seconds before the first repetition, doubled for each further one; a model API that says how long is believed."""
    max_wait_seconds: float = 60.0
    """Seconds; an API that wants a longer wait than this has failed."""
    blank_answers: int = 2
    """Consecutive blank answers after which the model is not asked again."""
    fruitless_rounds: int = 5
    """Rounds in a row without one call that could run (unknown tools, bad arguments), after which it must answer."""
    context: int | None = None
    """Tokens of the model's context window; None takes what is known of the model, else 128,000."""
    compact_at: float = 0.75
    """Share of the context window at which older messages are replaced by a summary."""
    keep: float = 0.25
    """Share of the context window that stays word for word then."""
    depth: int = 3
    """Maximum depth of agents that spawn agents (seed 002)."""
    spawned_requests: int = 15
    """Requests of one spawned agent (seed 002)."""
    spawned_turns: int | None = 10
    """Turns of one background sub-agent: its task, and each message to it (seed 003)."""
    sub_agents: int = 8
    """Background sub-agents of one session that are not closed."""
    delegated_requests: int = 10
    """Requests of one delegated task (seed 002)."""

    def __post_init__(self) -> None:
        """Refuse what no limit can be."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and (value != value or value < 0):
                raise UsageError(f"limits.{name}: takes no negative number, not {value!r}")
        for name in ("requests", "context", "spawned_requests", "spawned_turns", "delegated_requests"):
            if getattr(self, name) == 0:
                raise UsageError(f"limits.{name}: nothing can be done with 0; None means unlimited")
        if not 0 < self.keep < self.compact_at <= 1:
            raise UsageError(
                f"limits: 0 < keep < compact_at <= 1 must hold, and keep is {self.keep}, compact_at {self.compact_at}"
            )


def limits_for(agents: Mapping[str, int]) -> AgentLimits:
    """Return the limits that a profile's key `agents` sets; the others are the defaults."""
    return AgentLimits(**{_LIMIT_OF_PROFILE_KEY[key]: value for key, value in agents.items()})


class Usage(Struct, frozen=True, kw_only=True):
    """Usage of models and tools; a sum is the sum over requests."""

    requests: int = 0
    calls: int = 0
    """Tool calls that were made, those of sub-agents included."""
    input_tokens: int = 0
    """Cached ones included."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float = 0.0
    """US dollars, of the requests whose model has a known price."""
    unpriced: int = 0
    """Requests whose price is not known, a local model's for instance."""
    is_estimated: bool = False
    """True if some tokens are estimated as UTF-8 bytes / 4, because an API reported none."""

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        """Return the sum."""
        summed = {name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__}
        return Usage(**{**summed, "is_estimated": self.is_estimated or other.is_estimated})


class UsageLimits:
    """Usage of one run, counted against its limits and against those of its parent."""

    def __init__(self, limits: AgentLimits, parent: UsageLimits | None = None) -> None:
        """Begin now; `parent` is the run that this one works for."""
        self._limits = limits
        self._parent = parent
        self._started_at = time.monotonic()
        self.used = Usage()

    def charge(self, usage: Usage) -> None:
        """Count `usage`, also against the limits of all parents. Nothing is refused; see `exhausted_limit`."""
        self.used += usage
        if self._parent is not None:
            self._parent.charge(usage)

    @property
    def exhausted_limit(self) -> str:
        """Limit that is used up, in words for the model; empty while another request can be made."""
        limits, used = self._limits, self.used
        if limits.requests is not None and used.requests >= limits.requests:
            return f"the {limits.requests} requests to the model are used up"
        if limits.tokens is not None and used.tokens >= limits.tokens:
            return f"{used.tokens:,} tokens were used, {limits.tokens:,} may be"
        if self.seconds_left <= 0:
            return f"the {limits.seconds or 0:g} seconds that it may take are over"
        return self._parent.exhausted_limit if self._parent is not None else ""

    @property
    def requests_left(self) -> float:
        """Number of requests to models that may still be made."""
        own = math.inf if self._limits.requests is None else self._limits.requests - self.used.requests
        return own if self._parent is None else min(own, self._parent.requests_left)

    @property
    def calls_left(self) -> float:
        """Number of tool calls that may still be made."""
        own = math.inf if self._limits.calls is None else self._limits.calls - self.used.calls
        return own if self._parent is None else min(own, self._parent.calls_left)

    @property
    def seconds_left(self) -> float:
        """Seconds left, negative after the deadline."""
        own = math.inf if self._limits.seconds is None else self._limits.seconds - (time.monotonic() - self._started_at)
        return own if self._parent is None else min(own, self._parent.seconds_left)
