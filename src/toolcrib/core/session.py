"""What one conversation has seen, loaded, been granted and spent.

The only mutable noun. A session belongs to one principal and is used from one event loop; calls of the same session
may run concurrently, so counters are changed without awaiting in between.

What a session keeps between calls for its tools: a shell, a symbol graph, a connection.
"""

from __future__ import annotations

import inspect
import logging
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .budget import Bucket
from .elicitation import Clarifier
from .json import canonical
from .permission import Approver, Effect
from .settings import Amount, Number, Section, setting
from .tool import Tool
from .workspace import Workspace

__all__ = ["GLOBAL", "IN_A_ROW", "LOCAL", "UNSANDBOXED", "Limits", "Runtime", "SessionState"]

_LOG: Final = logging.getLogger(__name__)


class Runtime(dict[str, Any]):
    """A mapping of one session's own. No other session sees it, so that one's working directory is not another's.

    It ends with its session, at the latest with the crib: every value that has `aclose` or `close` is closed then, the
    newest first.
    """

    async def aclose(self) -> None:
        """Close and forget every value. One that cannot be closed is logged, and the others are closed all the same."""
        while self:
            name, value = self.popitem()
            close = getattr(value, "aclose", None) or getattr(value, "close", None)
            if not callable(close):
                continue
            try:
                ended = close()
                if inspect.isawaitable(ended):
                    await ended
            except Exception:  # noqa: BLE001 - it is logged, and the others are closed
                _LOG.exception("%s of a session's runtime could not be closed", name)


LOCAL: Final = "local"
"""The principal of whoever runs the process: the library's own caller, stdio, loopback without a token."""

GLOBAL: Final = frozenset({"global"})
"""The contexts of a session that says nothing of itself."""

IN_A_ROW: Final = 3
"""Errors of one type, or failures of one tool, after which it is no accident (seed 004)."""

_RESULT_TOKENS: Final = 4000

UNSANDBOXED: Final = "unsandboxed"
"""Among what a session has: its commands run without a sandbox, so that each is asked for."""


class Limits(Section):
    """What one session may use. None is no limit."""

    timeout: Number = 60.0
    """Seconds that a call may run when neither the tool nor the caller says otherwise."""
    max_timeout: Number = 600.0
    """Seconds that no tool, caller or progress notice can extend a call beyond."""
    calls: Amount | None = None
    """Calls of the session."""
    calls_per_tool: Mapping[str, Amount] = setting({})
    """Budget by tool name; a tool that is not named has none."""
    result_tokens: Amount | None = None
    """Estimated tokens (UTF-8 bytes / 4) of one result that the model sees; the rest becomes an artifact.

    None is 4,000, but for results that an MCP client reads: they pass whole up to `results.pass_whole`.
    """


@dataclass(slots=True, kw_only=True, weakref_slot=True, eq=False)
class SessionState:
    """The state of one conversation. `key` is unique for a principal."""

    key: str
    principal: str = LOCAL
    instance: str = ""
    profile: str = "adaptive"
    mode: str = "cautious"
    rules: tuple[tuple[Effect, tuple[str, ...]], ...] = ()
    """Rules of its own, as they are written, beside those of the configuration."""
    allowed: frozenset[str] | None = None
    """Tool names in scope; None is every tool. A call outside is refused on every path."""
    approver: Approver | None = None
    limits: Limits = field(default_factory=Limits.model_construct)
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Context defaults: argument values that a call gets when its schema has such an argument and it gives none."""
    grows: bool = True
    """Whether the shown tools may grow as the session activates some; False over MCP, whose list must stand still."""
    for_client: bool = False
    """Whether an MCP client reads the results: a host with limits of its own, which had the servers before."""
    activated: dict[str, None] = field(default_factory=dict[str, None])
    """Names of tools in the order in which this session came to use them."""
    loaded: dict[str, None] = field(default_factory=dict[str, None])
    """Names of tools that a verb loaded, in their order; for an interaction or the session, as the profile says."""
    exact: tuple[str, ...] | None = None
    """Tool names that this interaction is cut down to; None is no such cut, empty is no tool at all."""
    contexts: frozenset[str] = GLOBAL
    """Kinds of session that this one is: tools made for others are out of scope."""
    provided: frozenset[str] = frozenset()
    """What this session has for tools that need it (`Tool.needs`): `workspace`, `shell`; and `UNSANDBOXED`."""
    disabled: dict[str, None] = field(default_factory=dict[str, None])
    """Names of tools that are switched off for this session."""
    disabled_for_all: Mapping[str, None] = field(default_factory=dict[str, None])
    """Names of tools that are switched off for every session; the crib's own table, which changes."""
    succeeded: dict[str, None] = field(default_factory=dict[str, None])
    """Names of tools of which a call of this session has succeeded."""
    required: tuple[str, ...] = ()
    """Capability tags that this interaction needs."""
    intent: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the caller knows of the task: `complexity`, `needs_plan`, `skill_groups`, `required_tools` …"""
    plan: Mapping[str, Any] | None = None
    """The plan that the interaction works on."""
    interactions: int = 0
    """How many have begun."""
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    """Versions that it pins, by the name of the tool; of every other tool it has the newest."""
    user: str = ""
    """Whom the conversation serves, for tools that want to know; no right hangs on it."""
    clarifier: Clarifier | None = None
    """Answers the questions that tools have for the user."""
    cwd: Path = Path()
    """Where the relative paths of its tools begin."""
    workspace: Workspace | None = None
    """The files that its tools may work on; set with `provided`, by `crib.workspaces` alone."""
    task: str = ""
    """The task that it works on: what waits for review, or a shadow, belongs to that and outlives the session."""
    planning: bool = False
    """True until the plan is approved, in a mode that wants one: no tool is shown or runs."""
    runtime: Runtime = field(default_factory=Runtime)
    """What tools keep between calls."""
    wary: frozenset[str] = frozenset()
    """Origins (`mcp` …) whose tools count as writes, whatever they say of themselves."""
    available: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What there is for tools that need it: `network` and `auth` (true or false), `apis` (their names)."""
    learned: Mapping[str, int] = field(default_factory=dict[str, int])
    """Points that past calls give to the priority of tools; taken when an interaction begins."""
    failures: Counter[str] = field(default_factory=Counter[str])
    """Failures in a row, by tool name: a success forgets them."""
    errors: tuple[str, int] = ("", 0)
    """The type of the newest errors, and how many of it came in a row."""
    remembered: dict[str, Effect] = field(default_factory=dict[str, Effect])
    """Answers `never` by tool name, and `always` by name and definition."""
    wide: dict[str, float] = field(default_factory=dict[str, float])
    """Answers for every call (`all`, `turn`, `idle`), and when the last call was, on the clock of `time.monotonic`."""
    tainted: str = ""
    """The tool that first brought content of strangers into this session; a new session alone is free of it."""
    confided: str = ""
    """The tool that first read private data in this session."""
    links: dict[str, None] = field(default_factory=dict[str, None])
    """Links that untrusted results showed, the newest last: to follow one as it stands tells nobody anything."""
    spent: Counter[str] = field(default_factory=Counter[str])
    """Calls that ran or run now, by tool name: one that was refused gives its share back."""
    tokens: Counter[str] = field(default_factory=Counter[str])
    """Estimated tokens of the results that the model saw, by tool name; counted where a budget is for them."""
    rates: dict[str, Bucket] = field(default_factory=dict[str, Bucket])
    """What is left of the rates that are this session's own."""
    turns: deque[bytes] = field(default_factory=deque[bytes])
    """The newest calls of its turns, each as a hash of name and arguments, once a turn."""
    turn: set[bytes] = field(default_factory=set[bytes])
    """Those of the turn that runs now."""

    def includes(self, name: str) -> bool:
        """Whether the name is in scope: whether this session may know of such a tool at all."""
        return (self.allowed is None or name in self.allowed) and (self.exact is None or name in self.exact)

    def admits(self, tool: Tool) -> bool:
        """Whether this session may know of `tool`: name and contexts are in scope, and what it needs is there."""
        is_meant = not tool.contexts or not self.contexts.isdisjoint(tool.contexts)
        return is_meant and self.includes(tool.name) and (not tool.needs or self.provided.issuperset(tool.needs))

    def is_disabled(self, name: str) -> bool:
        """Whether the tool of that name is switched off, here or for all."""
        return name in self.disabled or name in self.disabled_for_all

    @property
    def result_tokens(self) -> int:
        """Estimated tokens of one result, where it does not pass whole."""
        return _RESULT_TOKENS if self.limits.result_tokens is None else self.limits.result_tokens

    @property
    def failing(self) -> tuple[str, ...]:
        """Names of the tools that failed `IN_A_ROW` times or more, and did not work since."""
        return tuple(sorted(name for name, count in self.failures.items() if count >= IN_A_ROW))

    @property
    def shown_by(self) -> tuple[object, ...]:
        """Everything of this state that a view may depend on; equal values give equal views."""
        activated = tuple(self.activated) if self.grows else ()
        wanted = (self.required, canonical([self.intent, self.plan]) if self.intent or self.plan else b"")
        disabled = (tuple(self.disabled), tuple(self.disabled_for_all))
        scope = (self.allowed, self.exact, self.contexts, self.provided, self.planning, disabled)
        there = canonical(self.available) if self.available else b""
        moved = (tuple(self.learned.items()), self.failing if self.grows else (), there)
        return (*scope, self.grows, self.for_client, tuple(self.loaded), activated, wanted, moved)
