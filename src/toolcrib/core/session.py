"""State of one session: seen and loaded tools, grants, and usage.

The only mutable domain value. A session belongs to one principal and is used from one event loop; calls of the same
session may run concurrently, so counters are changed without awaiting in between.

A session also holds objects of its tools between calls: a shell, a symbol graph, a connection.

`SessionTable` finds the open sessions of a crib, and closes what their tools hold.
"""

import inspect
import logging
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, cast
from weakref import WeakValueDictionary

from msgspec import Struct, field

from ..errors import ToolFailure
from .budget import Bucket
from .context import Context
from .elicitation import Elicitor
from .json import canonical
from .permission import Approver, Effect
from .settings import Amount, Number, Section, setting
from .taint import Taint
from .tool import Tool
from .workspace import Workspace

_logger = logging.getLogger(__name__)

BUILT_IN: Final = frozenset({"builtin", "jobs", "subagents"})
"""Sources of the tools that come with us, which a profile can include and exclude."""
LOCAL: Final = "local"
"""The principal of the process's own user: the library's own caller, stdio, loopback without a token."""

GLOBAL: Final = frozenset({"global"})
"""The contexts of a session without declared ones."""

IN_A_ROW: Final = 3
"""Consecutive errors of one type, or failures of one tool, that count as a pattern (seed 004)."""

_RESULT_TOKENS: Final = 4000

UNSANDBOXED: Final = "unsandboxed"
"""Availability of a session whose commands run without a sandbox, so that each needs approval."""


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
            except Exception:  # it is logged, and the others are closed
                _logger.exception("%s of a session's runtime could not be closed", name)


class Limits(Section):
    """Limits of one session. None means no limit."""

    timeout: Number = 60.0
    """Default timeout of a call in seconds, for tools and callers that set none."""
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

    @property
    def tokens_of_result(self) -> int:
        """Estimated tokens of one result that does not pass whole."""
        return _RESULT_TOKENS if self.result_tokens is None else self.result_tokens


NO_LIMITS: Final = Limits.model_construct()
"""Limits of a session that sets none."""


class Scope(Struct, kw_only=True):
    """Tools that a session can reach: their names, conditions, switches and versions.

    Set when the session opens, by `crib.sessions` and `crib.workspaces`. `disabled`, `planning` and `exact` change
    later.
    """

    allowed: frozenset[str] | None = None
    """Tool names in scope; None is every tool. A call outside is refused on every path."""
    exact: tuple[str, ...] | None = None
    """Tool names that this interaction is restricted to; None for no restriction, empty for no tool at all."""
    included: frozenset[str] = frozenset()
    """Names and categories of the built-in tools in scope; empty is every built-in tool."""
    excluded: frozenset[str] = frozenset()
    """Names and categories of built-in tools that are out of scope."""
    contexts: frozenset[str] = GLOBAL
    """Kinds of session that this one is: tools made for others are out of scope."""
    provided: frozenset[str] = frozenset()
    """Conditions of tools (`Availability.needs`) that this session meets: `workspace`, `shell`; and `UNSANDBOXED`."""
    available: Mapping[str, Any] = {}
    """Resources for tools that need them: `network` and `auth` (true or false), `apis` (their names)."""
    disabled: dict[str, None] = {}
    """Names of tools that are switched off for this session."""
    disabled_for_all: Mapping[str, None] = {}
    """Names of tools that are switched off for every session; the crib's own table, which changes."""
    planning: bool = False
    """True until the plan is approved, in a mode that wants one: no tool is shown or runs."""
    versions: Mapping[str, str] = {}
    """Pinned versions by tool name; every other tool has its newest."""


class History(Struct, kw_only=True):
    """Tools that a session came to use, and how their calls ended.

    Read by views: `activated`, `loaded`, `learned` and `failing` are a part of `SessionState.shown_by`.
    """

    interactions: int = 0
    """Interactions that have begun."""
    activated: dict[str, None] = {}
    """Names of tools in the order in which this session came to use them."""
    loaded: dict[str, None] = {}
    """Names of tools that a meta-tool loaded, in order.

    For an interaction or the session, by the profile's `lifetime`.
    """
    succeeded: dict[str, None] = {}
    """Names of tools of which a call of this session has succeeded."""
    learned: Mapping[str, int] = {}
    """Points that past calls add to the priority of tools; read when an interaction begins."""
    failures: Counter[str] = field(default_factory=Counter[str])
    """Failures in a row, by tool name; a success resets them."""
    errors: tuple[str, int] = ("", 0)
    """The type of the newest errors, and how many of it came in a row."""

    @property
    def failing(self) -> tuple[str, ...]:
        """Names of the tools that failed `IN_A_ROW` times or more without a success since."""
        return tuple(sorted(name for name, count in self.failures.items() if count >= IN_A_ROW))


class Usage(Struct, kw_only=True):
    """Consumption of a session, as budgets count it.

    Counted without awaiting between check and change, so that concurrent calls cannot pass a budget together.
    """

    calls: Counter[str] = field(default_factory=Counter[str])
    """Calls that ran or run now, by tool name; a refused call gives its share back."""
    tokens: Counter[str] = field(default_factory=Counter[str])
    """Estimated tokens of the results that the model saw, by tool name; counted where a budget exists for them."""
    rates: dict[str, Bucket] = {}
    """Remaining allowance of the session's own rates."""


class SessionApprovals(Struct, kw_only=True):
    """The approver of a session, and the answers that hold for later calls."""

    approver: Approver | None = None
    remembered: dict[str, Effect] = {}
    """Answers `never` by tool name, and `always` by name and definition."""
    blanket: dict[str, float] = {}
    """Answers for every call (`all`, `turn`, `idle`), and the time of the last call (`time.monotonic`)."""


class SessionFiles(Struct, kw_only=True):
    """Folders that the tools of a session work in."""

    cwd: Path = Path()
    """Base of relative paths."""
    workspace: Workspace | None = None
    """Files that its tools may work on; set with `Scope.provided`, by `crib.workspaces` alone."""
    task: str = ""
    """Owner of pending file changes and of a shadow; it outlives the session."""


class Audience(Struct, kw_only=True):
    """Reader of the tool list and of the results."""

    grows: bool = True
    """Whether the tool list may grow as the session activates tools; False over MCP, whose list is fixed."""
    is_client: bool = False
    """Whether an MCP client reads the results: a host with limits of its own."""
    listed: frozenset[tuple[str, str]] | None = None
    """Source and local name of each tool that a list sent to this client had; None before the first list."""


class StrategyState(Protocol):
    """State that one strategy or step keeps for a session; created by its type, without arguments."""

    @property
    def shown_by(self) -> object:
        """The part of this state that a view may depend on; hashable, equal values give equal views."""
        ...


_State = TypeVar("_State", bound=StrategyState)


class SessionState(Struct, kw_only=True, eq=False, weakref=True):
    """The state of one conversation. `key` is unique for a principal.

    Made by `crib.sessions.SessionFactory`, which puts it into the `SessionTable`. The table holds it weakly: `Session`
    objects and running calls keep it alive. With the last of them it ends, and its `runtime` is closed by the next call
    of any session, or with the crib. A later session of the same key starts anew, but for what the store has kept
    (`keep_for`).
    """

    key: str
    principal: str = LOCAL
    instance: str = ""
    profile: str = "adaptive"
    mode: str = "cautious"
    keep_for: float = 0.0
    """Seconds without a call for which the store keeps taint, answers and loaded tools; 0 keeps nothing."""
    is_alone: bool = False
    """Whether one connection has the conversation for itself: what the store keeps is read once, when it is resumed."""
    rules: tuple[tuple[Effect, tuple[str, ...]], ...] = ()
    """Rules of this session, as written, beside those of the configuration."""
    treat_as_write: frozenset[str] = frozenset()
    """Origins (`mcp` …), categories and names of tools that count as writes, also where they declare to read."""
    limits: Limits = NO_LIMITS
    defaults: Mapping[str, Any] = {}
    """Context defaults: values for arguments that a schema declares and a call leaves out."""
    user: str = ""
    """The person that the conversation serves, for tools; it grants no right."""
    elicitor: Elicitor | None = None
    """Answers the questions that tools have for the user."""
    scope: Scope = field(default_factory=Scope)
    audience: Audience = field(default_factory=Audience)
    files: SessionFiles = field(default_factory=SessionFiles)
    approvals: SessionApprovals = field(default_factory=SessionApprovals)
    history: History = field(default_factory=History)
    usage: Usage = field(default_factory=Usage)
    taint: Taint = field(default_factory=Taint)
    runtime: Runtime = field(default_factory=Runtime)
    """Values that tools keep between calls."""
    strategies: dict[type[StrategyState], StrategyState] = {}
    """State of strategies and steps by type; see `state_of`."""

    def state_of(self, kind: type[_State]) -> _State:
        """Return this session's `kind`: state that one strategy owns, created on first use.

            kept = session.state_of(KeptSecrets)

        The class is the key: a strategy, a step or a policy keeps its state here without a field of `SessionState`.
        """
        state = self.strategies.get(kind)
        if state is None:
            state = self.strategies[kind] = kind()
        return cast("_State", state)

    def includes(self, name: str) -> bool:
        """Whether the name is in scope: whether this session may learn of such a tool at all."""
        scope = self.scope
        return (scope.allowed is None or name in scope.allowed) and (scope.exact is None or name in scope.exact)

    def admits(self, tool: Tool) -> bool:
        """Whether this session may know of `tool`: name and contexts are in scope, and its needs are met."""
        scope = self.scope
        is_meant = not tool.availability.contexts or not scope.contexts.isdisjoint(tool.availability.contexts)
        if tool.source in BUILT_IN and (scope.included or scope.excluded):
            words = {tool.name, tool.category}
            is_meant = is_meant and not (scope.included and scope.included.isdisjoint(words))
            is_meant = is_meant and scope.excluded.isdisjoint(words)
        return (
            is_meant
            and self.includes(tool.name)
            and (not tool.availability.needs or scope.provided.issuperset(tool.availability.needs))
        )

    def is_disabled(self, name: str) -> bool:
        """Whether the tool of that name is switched off, here or for all."""
        return name in self.scope.disabled or name in self.scope.disabled_for_all

    @property
    def result_tokens(self) -> int:
        """Estimated tokens of one result that does not pass whole."""
        return self.limits.tokens_of_result

    @property
    def shown_by(self) -> tuple[object, ...]:
        """Everything of this state that a view may depend on; equal values give equal views.

        `Views` compares it with that of the last view: what changes the tool list and is missing here shows a stale
        list.
        """
        scope, history, grows = self.scope, self.history, self.audience.grows
        disabled = (tuple(scope.disabled), tuple(scope.disabled_for_all))
        there = canonical(scope.available) if scope.available else b""
        reach = (scope.allowed, scope.exact, scope.contexts, scope.provided, there, scope.planning, disabled)
        grown = (tuple(history.activated), history.failing) if grows else ((), ())
        moved = (tuple(history.loaded), tuple(history.learned.items()), *grown)
        owned = tuple((kind, part) for kind, one in self.strategies.items() if (part := one.shown_by))
        return (*reach, grows, self.audience.is_client, moved, owned)


class Runtimes:
    """The runtimes of all sessions of a crib. A session that is closed by its user has closed its own before.

    A session ends in garbage collection, whose callback cannot await. It only moves the runtime to `left`; `CallRunner`
    closes what is there before the next call.
    """

    def __init__(self) -> None:
        """Start with no session."""
        self._kept: Final[dict[int, tuple[weakref.ref[SessionState], Runtime]]] = {}
        self.left: Final[list[Runtime]] = []
        """Values that ended sessions have left behind, to be closed before the next call."""

    def watch(self, state: SessionState) -> None:
        """Close the runtime of `state` some time after the last reference to it is gone."""
        key = id(state)
        self._kept[key] = (weakref.ref(state, lambda _: self._leave(key)), state.runtime)

    async def close_left(self) -> None:
        """Close what sessions have left behind."""
        while self.left:
            await self.left.pop().aclose()

    async def close(self) -> None:
        """Close everything."""
        await self.close_left()
        for _, runtime in tuple(self._kept.values()):
            await runtime.aclose()

    def _leave(self, key: int) -> None:
        # Before another session can have this id: the memory is freed after the callback.
        _, runtime = self._kept.pop(key)
        if runtime:
            self.left.append(runtime)


class SessionTable:
    """The sessions of a crib by principal and key, as long as a reference exists."""

    def __init__(self) -> None:
        """Start with no session."""
        self._states: WeakValueDictionary[tuple[str, str], SessionState] = WeakValueDictionary()
        self.runtimes = Runtimes()
        """They close what the tools of a session keep once the session is gone."""

    def find(self, principal: str, key: str) -> SessionState | None:
        """Return the session of that principal and key if this process still has it."""
        return self._states.get((principal, key))

    def of_call(self, principal: str, key: str) -> SessionState:
        """Return the session of a call that may have outlived it. Raises `ToolFailure("unavailable")` then."""
        state = self.find(principal, key)
        if state is None:
            raise ToolFailure("unavailable", "the session of this call has ended")
        return state

    def get(self, context: Context) -> SessionState:
        """Return the session of a call that runs.

        Raises `KeyError` where it is gone; a running call keeps its session, so that one has it.
        """
        return self._states[context.principal, context.session_key]

    def put(self, state: SessionState) -> None:
        """Register a new session."""
        self._states[state.principal, state.key] = state
        self.runtimes.watch(state)

    def all(self) -> Iterable[SessionState]:
        """Return the sessions that live now."""
        return tuple(self._states.values())
