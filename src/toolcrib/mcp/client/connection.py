"""Connection to one server: started in the background, healed when it ends, left alone when it cannot start.

One task a source makes links one after another; calls only ever wait for the current attempt. A call is never sent
twice here: that is for `source` to decide, which knows what the tool does.

`Breaker` spaces the attempts (security.md T23): the first restart is immediate; failures wait longer and longer, with
jitter; too many of them in a short time open the breaker: nothing is tried until a time that doubles with every
further failure. A call that comes when the first of these times is over has the server tried all the same: one whose
network is back after an hour is back with the next call.
"""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Literal

import anyio

from ...errors import ToolFailure
from ...system.tasks import Background
from ..auth.login_store import NeedsLogin
from ..jsonrpc import RpcError
from .handshake import ClientInfo, Hint, negotiate
from .session import ClientSession
from .spec import McpLimits
from .transport import Link, LinkLost

_LONGEST_BACKOFF: Final = 10.0

_logger = logging.getLogger(__name__)

_PROOF: Final = 1.0
"""Seconds that a server must live, unless it answers a call before, for its start to count as a good one."""

_LOGIN_SECONDS: Final = 300.0
"""Interval of checks whether a server still wants a login, as long as no login was made."""

Phase = Literal["connecting", "up", "down"]


class Breaker:
    """The failures of one server. Lives as long as its source."""

    def __init__(self, limits: McpLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._failures: deque[float] = deque(maxlen=limits.breaker_failures)
        self._in_a_row = 0
        self._period = 0.0
        self._until = 0.0
        self._calls_until = 0.0

    @property
    def open_for(self) -> float:
        """Seconds for which nothing is tried without a call; 0 when it is closed."""
        return max(0.0, self._until - self._clock())

    @property
    def refuses_for(self) -> float:
        """Seconds for which a call does not have the server tried either; 0 when it is closed."""
        return max(0.0, self._calls_until - self._clock())

    def failed(self) -> float:
        """Note a failed start and return the seconds to wait before the next."""
        now = self._clock()
        self._failures.append(now)
        self._in_a_row += 1
        limits = self._limits
        full = len(self._failures) == limits.breaker_failures
        if self._period or (full and now - self._failures[0] <= limits.breaker_window):
            self._period = min(self._period * 2, limits.breaker_open_max) if self._period else limits.breaker_open
            self._until = now + self._period
            self._calls_until = now + limits.breaker_open
            return self._period
        delay = min(limits.backoff * 2 ** min(self._in_a_row - 1, 16), _LONGEST_BACKOFF)
        return delay * random.uniform(0.5, 1.5)

    def succeeded(self) -> None:
        """Note that the server works: forget its failures."""
        self._failures.clear()
        self._in_a_row = 0
        self._period = self._until = self._calls_until = 0.0


class _Attempt:
    """One try to connect; calls wait for `done`. Without a session, `reason` says why it failed."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.session: ClientSession | None = None
        self.reason = ""


class Connection:
    """The connection of one source. `run` keeps it until it is cancelled.

    `run` is the only task that makes links. `get` waits for its present attempt, or the next one, and wakes it from the
    long pause of an open breaker, so that a hundred calls to a server that is down make one start of it.
    """

    def __init__(
        self,
        name: str,
        limits: McpLimits,
        client: ClientInfo,
        background: Background,
        make_link: Callable[[], Link],
        prepare: Callable[[ClientSession], Awaitable[None]],
    ) -> None:
        """`prepare` runs before a new session is handed out; when it raises, the start has failed."""
        self.session: ClientSession | None = None
        self.hint: Hint = ""
        self.phase: Phase = "connecting"
        self.reason = ""
        """Reason why it is down; it may quote the server."""
        self._own_reason = ""
        """The same in our own words alone; empty where `reason` has no others."""
        self.barred: NeedsLogin | None = None
        """Failure of every call while a person has to log in."""
        self.last_words = ""
        """Its last output outside the protocol, for the operator only: it may hold anything."""
        self.on_phase: Callable[[], None] = _no_listener
        self.on_wanted: Callable[[], None] = _no_listener
        """Called when a session is needed and there is none."""
        self._name = name
        self._limits = limits
        self._client = client
        self._background = background
        self._make_link = make_link
        self._prepare = prepare
        self._breaker = Breaker(limits)
        self._attempt = _Attempt()
        self._closed = False
        self._woken = anyio.Event()
        self._starting: Link | None = None

    @property
    def starting_words(self) -> str:
        """Output so far of a server that is being started, as in `last_words`."""
        return self._starting.last_words if self._starting is not None else ""

    @property
    def live(self) -> ClientSession | None:
        """The session that calls can use right now."""
        session = self.session
        return session if session is not None and not session.link.reason else None

    async def get(self) -> ClientSession:
        """Return a live session, waiting for the attempt that runs; raises `ToolFailure("unavailable")`."""
        if (session := self.live) is not None:
            return session
        if self._closed:
            raise ToolFailure("unavailable", f"server {self._name!r} is closed")
        if self.barred is not None:
            raise self.barred
        self.on_wanted()
        if self._breaker.refuses_for > 0:
            raise ToolFailure("unavailable", self.outage, hint=self.remedy)
        if self._breaker.open_for > 0 and self._starting is None:
            self._woken.set()
        attempt = self._attempt
        await attempt.done.wait()
        if attempt.session is None:
            if self.barred is not None:
                raise self.barred
            raise ToolFailure("unavailable", f"{self._name} is down: {attempt.reason}", hint=self.remedy)
        return attempt.session

    @property
    def outage(self) -> str:
        """Reason why calls fail, without text of the server: a model reads it as ours, also before any review."""
        return f"{self._name} is down: {self._own_reason or self.reason}"

    @property
    def remedy(self) -> str:
        """Time from which a call tries the server again, and the command that examines it."""
        wait = self._breaker.refuses_for
        again = f"It failed too often and is tried again in {wait:.0f} s. " if wait > 0 else ""
        return f"{again}`toolcrib doctor` examines it; use another tool meanwhile."

    async def run(self) -> None:
        """Connect, and again whenever the connection ends. Ends every link before it returns."""
        try:
            while True:
                delay = await self._live_once()
                with anyio.move_on_after(delay):
                    await self._woken.wait()
        finally:
            self._closed = True
            self._settle(None, "is closed")

    def wake(self) -> None:
        """Try again now what waits for its next try; calls wait for that."""
        self.barred = None
        self._woken.set()

    async def _live_once(self) -> float:
        """Make one link and stay with it until it ends; return the seconds to wait before the next."""
        link = self._make_link()
        handed_over = False
        self._woken = anyio.Event()
        try:
            self._enter("connecting", "")
            self._starting = link
            try:
                session = await self._start(link)
            except Exception as error:  # noqa: BLE001 - after any failure of a server, the next start may work
                return self._start_failed(error, link)
            finally:
                self._starting = None
            began = time.monotonic()
            self.barred = None
            self.session = session
            self._settle(session, "")
            self._enter("up", "")
            self._background.spawn(session.follow_changes)
            await link.lost.wait()
            self.session = None
            # Ending a process may take seconds, and calls wait for the next start.
            self._background.spawn(partial(_close, link))
            handed_over = True
            return self._ended(session, time.monotonic() - began)
        finally:
            self.session = None
            if not handed_over:
                await _close(link)

    async def _start(self, link: Link) -> ClientSession:
        with anyio.fail_after(self._limits.start_timeout):
            await link.open()
            era = await negotiate(link, self._client, self.hint, self._limits.probe_timeout)
            session = ClientSession(link, era, self._client, self._limits)
            await self._prepare(session)
        self.hint = "modern" if era.modern else "legacy"
        return session

    def _start_failed(self, error: Exception, link: Link) -> float:
        self.barred = error if isinstance(error, NeedsLogin) else None
        if self.barred is not None:
            _logger.warning("%s (%s)", self.barred.message, self.barred.hint)
            self._settle(None, "needs a login")
            self._enter("down", f"{self.barred.message}. {self.barred.hint}")
            return _LOGIN_SECONDS
        own = f"refused the connection with error {error.code}" if isinstance(error, RpcError) else ""
        if isinstance(error, TimeoutError):
            reason = f"did not get ready within {self._limits.start_timeout:g} s"
        elif isinstance(error, LinkLost):
            reason = error.reason
        elif isinstance(error, RpcError | ToolFailure):
            reason = f"cannot be used: {error}"
        else:
            _logger.error("server %s failed to start in a way that was not foreseen", self._name, exc_info=error)
            reason = f"cannot be used: {type(error).__name__}"
        # What was learnt before may be what fails now: the next start probes again. Where the link ended during the
        # very first probe, the server may be one that ends at a message it does not know: it gets `initialize` alone.
        self.hint = "legacy" if link.reason and not self.hint else ""
        delay = self._breaker.failed()
        level = logging.DEBUG if reason == self.reason else logging.WARNING  # it is warned of once
        words = f" ({link.last_words})" if link.last_words else ""
        _logger.log(level, "server %s %s%s; next try in %.1f s", self._name, reason, words, delay)
        self._settle(None, reason)
        self._enter("down", reason, link.last_words, own=own)
        return delay

    def _ended(self, session: ClientSession, lived: float) -> float:
        """Return the delay of the restart: 0, unless it ended before it was of any use."""
        reason = session.link.reason
        _logger.info("server %s %s; restarting", self._name, reason)
        if session.served or lived >= _PROOF:
            self._breaker.succeeded()
            return 0.0
        delay = self._breaker.failed()
        if self._breaker.open_for > 0:
            self._settle(None, f"{reason} soon after each start")
            self._enter("down", f"{reason} soon after each start", session.link.last_words)
        return delay

    def _settle(self, session: ClientSession | None, reason: str) -> None:
        attempt = self._attempt
        attempt.session, attempt.reason = session, reason
        attempt.done.set()
        self._attempt = _Attempt()

    def _enter(self, phase: Phase, reason: str, last_words: str = "", *, own: str = "") -> None:
        self.phase, self.reason, self.last_words = phase, reason or self.reason, last_words
        if reason:
            self._own_reason = own
        self.on_phase()


async def _close(link: Link) -> None:
    with anyio.CancelScope(shield=True):
        await link.close()


def _no_listener() -> None:
    """Default of `on_phase`."""
