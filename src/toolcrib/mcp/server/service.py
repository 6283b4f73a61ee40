"""The MCP service of one process: what all its connections share.

That is the backend, the limits, the listeners of changes, the suspended calls, and the sessions of the stateless era,
which are known by principal and the key that the client names. A session lives for `idle` seconds after its last use;
above `limit`, the least recently used one goes first.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from typing import Any, Final, Self

import anyio
import anyio.lowlevel
from msgspec import Struct

from ...core.bounded_mapping import BoundedMapping
from ...core.call_guards import Deadlines
from ...core.context import Peer
from ...core.result import ToolResult
from ...core.session import LOCAL
from ...system.tasks import Background
from ..headers import ParameterHeaders
from ..jsonrpc import INTERNAL_ERROR, SERVER_INFO_KEY, RpcError
from .admission import Admission
from .backend import Backend, BackendSession, Resources, SessionRequest
from .calls import ToolCall
from .suspended_calls import StateSigner, SuspendedCalls

_logger = logging.getLogger(__name__)

_TITLE: Final = "Toolcrib"
_FRESH_MS: Final = 60_000
_NOTED: Final = 1000
"""Clients of the stateless era that are logged: a client may declare another name with each request."""
_NOTIFIED_AT_ONCE: Final = 200
"""Listeners: each compares the lists of its session, in some 15 µs."""
_CHECK_SECONDS: Final = 1.0
"""For which the answer of one check counts: anybody may ask `/readyz`."""


class SessionCache:
    """A bounded table of sessions, least recently used first.

    A session that is forgotten here is not closed: its running calls keep it, and a conversation that the store keeps
    continues there when its key comes again.
    """

    def __init__(self, backend: Backend, *, limit: int, idle: float) -> None:
        self._backend = backend
        self._idle = idle
        self._known = BoundedMapping[tuple[str, ...], tuple[BackendSession, float]](limit)

    def __len__(self) -> int:
        return len(self._known)

    def get(self, principal: str, profile: str, mode: str, instance: str, key: str) -> BackendSession:
        """Return the conversation, opening it at need. Raises `UsageError` for an unknown profile or mode."""
        now, place = time.monotonic(), (principal, profile, mode, instance, key)
        known = self._known.get(place)
        session = known[0] if known is not None and now - known[1] < self._idle else None
        if session is None:
            # The backend knows a conversation by principal and key alone; without a key it opens a new one. The
            # instance is part of the key in a form that no key can imitate: instances never share a conversation.
            # A principal that identified itself and gives no key has one conversation, on every replica.
            is_named = bool(key) or principal != LOCAL
            name = f"{f'{instance}@' if instance else ''}{profile}/{mode}/{key}" if is_named else ""
            session = self._backend.open_session(
                SessionRequest(
                    key=name,
                    principal=principal,
                    profile=profile,
                    mode=mode,
                    instance=instance,
                    is_stateless=True,
                    is_shared=not key,
                )
            )
        self._known[place] = (session, now)
        return session

    def sweep(self) -> None:
        """Forget what has been idle for too long."""
        now = time.monotonic()
        while self._known:
            place, (_, used) = next(iter(self._known.items()))
            if now - used < self._idle:
                return
            del self._known[place]


class ServiceLimits(Struct, frozen=True, kw_only=True):
    """Limits of all clients together (security.md R11, R16)."""

    running: int = 64
    """Calls that run at the same time."""
    queue: int = 256
    """Calls that wait for one of those places."""
    sessions: int = 4000
    """MCP sessions, and conversations of the stateless era, kept at the same time: about 10 KiB each (measured)."""
    idle: float = 1800.0
    """Seconds without a request after which a session is forgotten."""
    suspended: int = 256
    """Calls suspended in memory while a client of the stateless era is asked for input."""
    streams: int = 1000
    """Open event streams that wait for changes."""
    streams_per_principal: int = 250
    """Streams of one principal; the process's own user may have all."""
    patience: float = 10.0
    """Seconds that a client may take to send the headers of a request, and again its body."""
    first_list: float = 5.0
    """Seconds from the start within which a list waits for servers never seen before; a call waits by itself."""
    drain: float = 2.0
    """Seconds that running calls get to end once the process receives a stop signal."""


@cache
def server_info() -> Mapping[str, Any]:
    """Return the `Implementation` that names us."""
    return {"name": "toolcrib", "title": _TITLE, "version": version("toolcrib")}


def capabilities(resources: Resources) -> Mapping[str, Any]:
    """Return the server capabilities for a client that may use `resources`.

    They are sent once: prompts are declared even while there are none. Resources are not where none can come of the
    servers that are there: Claude Code shows its model three tools for them, some 540 tokens (2.1.329, measured).
    """
    declared = {
        "logging": {},
        "tools": {"listChanged": True},
        "completions": {},
        "prompts": {"listChanged": True},
    }
    return {**declared, "resources": {"listChanged": True, "subscribe": True}} if resources.may_exist else declared


class Service:
    """Shared by all connections of one process. An asynchronous context manager; belongs to one event loop.

    `stopping` is set once no new work is taken; `spawn` runs something beside the requests until the service ends.
    Leaving it cancels what was spawned. `stop` comes before, so that running calls get their time (`limits.drain`);
    the server waits for them.
    """

    def __init__(self, backend: Backend, *, profile: str, mode: str, limits: ServiceLimits | None = None) -> None:
        self.backend = backend
        self.profile = profile
        self.mode = mode
        self.limits = limits or ServiceLimits()
        self.admission = Admission(running=self.limits.running, queue=self.limits.queue)
        self.signer = StateSigner()
        self.deadlines = Deadlines()
        """Of requests whose body has not arrived yet."""
        self.info = server_info()
        self.suspended = SuspendedCalls(self.admission, limit=self.limits.suspended, stamp={SERVER_INFO_KEY: self.info})
        self.sessions = SessionCache(backend, limit=self.limits.sessions, idle=self.limits.idle)
        self.parameter_headers = ParameterHeaders(backend.find_tool)
        self.stopping = anyio.Event()
        self._tasks = Background()
        self._streams: Counter[str] = Counter()
        """Open event streams by principal."""
        self._noted: set[tuple[str, str]] = set()
        self._listeners: dict[object, Callable[[], None]] = {}
        self._waiting: deque[object] = deque()
        """Clients that are not notified of the last change yet."""
        self._unsubscribe: Callable[[], None] | None = None
        self._warm_until = time.monotonic() + self.limits.first_list
        self._checking = anyio.Lock()
        self._check_at = 0.0
        self._failing: Mapping[str, str] = {}

    async def __aenter__(self) -> Self:
        await self._tasks.start()
        self._unsubscribe = self.backend.on_change(self._changed)
        return self

    async def __aexit__(self, *failure: object) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
        await self._tasks.stop()

    def note_client(self, name: str, principal: str) -> None:
        """Log a client of the stateless era at its first request: it has no connection that begins."""
        client = (name, principal)
        if client not in self._noted and len(self._noted) < _NOTED:
            self._noted.add(client)
            _logger.info("client %s calls, for %s", name or "without a name", principal)

    def stop(self) -> None:
        """Take no new work; streams end, calls that wait for a client are cancelled, running calls go on."""
        self.suspended.clear()
        self.stopping.set()
        self._changed()

    def spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` beside the requests; what it raises is logged."""
        self._tasks.spawn(work)

    @contextmanager
    def streaming(self, principal: str) -> Generator[None]:
        """Count one open event stream. Raises `RpcError` when there are too many, in all or of this principal."""
        most = self.limits.streams if principal == LOCAL else self.limits.streams_per_principal
        if self._streams.total() >= self.limits.streams or self._streams[principal] >= most:
            raise RpcError(INTERNAL_ERROR, "Too many open event streams; close one first")
        self._streams[principal] += 1
        try:
            yield
        finally:
            self._streams[principal] -= 1
            self._streams += Counter()  # drops principals without one

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` at every change of the catalog and at the stop; returns how to end that."""
        token = object()
        self._listeners[token] = listener

        def unsubscribe() -> None:
            self._listeners.pop(token, None)

        return unsubscribe

    def _changed(self) -> None:
        """Notify the listeners: some at once, the others in parts, between which the event loop goes on."""
        waiting = tuple(self._listeners)
        self._notify(waiting[:_NOTIFIED_AT_ONCE])
        if len(waiting) <= _NOTIFIED_AT_ONCE:
            return
        if not self._waiting:
            self.spawn(self._notify_others)
        self._waiting = deque(waiting[_NOTIFIED_AT_ONCE:])

    async def _notify_others(self) -> None:
        while self._waiting:
            await anyio.lowlevel.checkpoint()
            self._notify([self._waiting.popleft() for _ in range(min(_NOTIFIED_AT_ONCE, len(self._waiting)))])

    def _notify(self, tokens: Iterable[object]) -> None:
        for token in tokens:
            if (listener := self._listeners.get(token)) is not None:
                listener()

    async def warm(self) -> None:
        """Wait for servers never seen before, at most until `limits.first_list` after the start, once."""
        remaining = self._warm_until - time.monotonic()
        if remaining > 0:
            await self.backend.wait_ready(remaining)
            self._warm_until = 0.0

    @property
    def fresh_ms(self) -> int:
        """Milliseconds for which a client may keep the list: none while a server is on its way."""
        return 0 if self.backend.is_connecting else _FRESH_MS

    @property
    def is_ready(self) -> bool:
        """Whether a list that is asked for now would be answered at once, and calls are taken."""
        is_warm = self.fresh_ms > 0 or time.monotonic() >= self._warm_until
        return is_warm and not self.stopping.is_set()

    async def failing(self) -> Mapping[str, str]:
        """Return the parts that cannot work, with their reasons, as of a second ago at most: a prober costs nothing."""
        async with self._checking:
            if time.monotonic() >= self._check_at:
                failing = await self.backend.failing()
                if failing and failing.keys() != self._failing.keys():
                    _logger.warning("not ready: %s", "; ".join(f"{part}: {why}" for part, why in failing.items()))
                elif self._failing and not failing:
                    _logger.info("ready again")
                self._failing, self._check_at = failing, time.monotonic() + _CHECK_SECONDS
            return self._failing

    async def run(
        self, session: BackendSession, caller: str, call: ToolCall, peer: Peer, resume: Mapping[str, Any] | None
    ) -> ToolResult:
        """Run one call when it is its turn. Raises `Overloaded` when it will not be.

        `caller` is whose turn it takes; `peer` is the client at the far end.
        """
        await self.admission.enter(caller)
        try:
            return await session.call(call, peer, resume)
        finally:
            self.admission.leave()


def overloaded() -> ToolResult:
    """Return the answer to a call that was not started because too many wait."""
    return ToolResult.failed(
        "overloaded",
        "the gateway has too many calls waiting; this one was not started",
        hint="Send the same call again in a second.",
    )
