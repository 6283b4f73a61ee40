"""One MCP server as a source of tools (`sources.source.Source`)."""

from __future__ import annotations

import contextlib
import logging
import math
import re
import time
from collections.abc import Mapping
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from msgspec.structs import replace

from ...core.call_guards import Deadlines
from ...core.context import Context
from ...core.events import Problem, SourceState
from ...core.patterns import regex
from ...core.result import ToolResult
from ...core.tool import Tool
from ...errors import ToolFailure
from ...mcp.client.connection import Connection
from ...mcp.client.features import RemoteFeatures
from ...mcp.client.handshake import ClientInfo, Era, Hint
from ...mcp.client.server_requests import RELAYED, Relay, cannot_ask, elicited
from ...mcp.client.session import (
    ClientSession,
    RawListing,
    list_features,
    needing_tasks,
    of_error,
    of_reply,
    of_spooled,
)
from ...mcp.client.spec import McpLimits, ServerSpec
from ...mcp.client.spooled_result import convert
from ...mcp.client.stdio import StdioLink
from ...mcp.client.transport import Link, LinkLost, Reply
from ...mcp.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from ...mcp.stdio import SpooledMessage
from ...system.child_processes import shared_reaper
from ...system.file_watch import POLL_SECONDS
from ...system.tasks import Background
from ...telemetry.otel import current_kit
from ..source import Listing, Publish, still_starting
from .handshake_connection import HandshakeConnection, asks_during_calls
from .listed_tools import ListedTools
from .tool_list import Cached, ListingCache, build_listing, same

if TYPE_CHECKING:  # it brings the HTTP client, which is slow to load: only for servers with logins
    from ...mcp.auth.access import Access

_logger = logging.getLogger(__name__)

_DEBOUNCE: Final = 0.2
"""Seconds that a server gets to finish changing its tools after it announced a change."""

_UNKNOWN: Final = regex(r"unknown tool|no such tool|tool\b.{0,200}\bnot found", re.IGNORECASE)
"""Words of servers for a tool that they do not have any more."""

_SILENCE: Final = 1.0
"""Seconds from which on the silence of a server is shown."""

_GRACE: Final = 0.1
"""Seconds past the context's deadline: its owner's timer goes first, this one is for callers without a timer."""

_ATTEMPTS: Final = 3
"""Connections that one call may be sent on, when it is certain that it did not run on the ones before."""

_RECENT: Final = 24 * 3600.0
"""Seconds for which a cached list stands for the server in a command that ends soon."""

_CONVERTERS: Final = 2
"""Large results that are turned into files at a time: each holds a few megabytes."""


class McpSource:
    """One configured server: its process or its address, its tools, its health. Opened once, closed once.

    `open` publishes the listing of the last run and connects beside everything else; each connection lists before it
    takes calls. States (`SourceState.state`): `connecting` until the first listing or failure, `cached` with the list
    of an earlier run, `ready`, then `stale` (down, and its tools are known), `failed` (down without any) or
    `needs_login`; `closed` at the end.

    Calls run concurrently on one connection; each waits for the start, not for another call. Tasks belong to
    `_background`, which `close` ends with the processes that they hold.
    """

    def __init__(
        self,
        spec: ServerSpec,
        *,
        environment: Mapping[str, str],
        cache_dir: Path | None,
        spool_dir: Path,
        limits: McpLimits | None = None,
        access: Access | None = None,
        reviewed: bool = True,
        starts_on_use: bool = False,
    ) -> None:
        """`environment` is ours: a server started from it gets only the harmless part (PATH, HOME, LANG …).

        `access` logs in to a server over HTTP; it is closed with the source. Where definitions are not `reviewed`, a
        call of a tool whose definition changed since the caller saw it reaches the server, as it does in any client.
        `starts_on_use`: a server whose list was cached lately is connected to when something needs it.
        """
        self._starts_on_use = starts_on_use
        self._is_started = False
        self._reviewed = reviewed
        self._spec = spec
        self._access = access
        self._environment = environment
        self._spool_dir = spool_dir
        self._limits = limits or McpLimits()
        self._cache = ListingCache(cache_dir, spec)
        self._background = Background()
        self._deadlines = Deadlines()
        self._relay = Relay(
            spec, self._limits, self._background, self._note_change, lambda uri: self.features.updated(uri)
        )
        self._connection = Connection(
            spec.name, self._limits, _client(spec), self._background, self._make_link, self._take_list
        )
        self._handshake = HandshakeConnection(spec, self._limits, _client(spec), self._background, self._make_link)
        self._begins_with_handshake = False
        """Whether its next start is in the handshake era, in which it can ask."""
        self._connection.on_phase = self._on_phase
        self._connection.on_wanted = self._start
        self.features = RemoteFeatures(spec, self._connection, self._convert_spooled)
        """Resources and prompts of the server."""
        self._publish: Publish = _ignore
        self._listing = Listing(tools=())
        self._raw: tuple[RawListing, Era] | None = None
        """Raw listing behind `_listing`."""
        self._holds_reaper = False
        self._listed = ListedTools(spec, reviewed=reviewed)
        self._listed_at = -math.inf
        """Time of the request for the newest list (`time.monotonic`)."""
        self._listing_again = anyio.Lock()
        self._keeping = anyio.Lock(fast_acquire=True)
        self._changed = anyio.Event()
        self._ready = anyio.Event()
        self._converting = anyio.CapacityLimiter(_CONVERTERS)
        self._state = SourceState(source=spec.name, kind="mcp", state="connecting")

    @property
    def name(self) -> str:
        """The configured name."""
        return self._spec.name

    @property
    def spec(self) -> ServerSpec:
        """The configured server."""
        return self._spec

    @property
    def state(self) -> SourceState:
        """Present state; while it connects with what the server has written so far, for the operator."""
        words = self._connection.starting_words if self._state.state == "connecting" else self._silence()
        return replace(self._state, detail=words) if words else self._state

    def _silence(self) -> str:
        session = self._connection.live
        seconds = session.link.silent_for if session is not None and isinstance(session.link, StdioLink) else 0.0
        if seconds < _SILENCE:
            return ""
        limit = self._limits.silence
        return f"has not answered anything for {seconds:.0f} s; after {limit:.0f} s it is started again"

    def files(self) -> list[str]:
        """Return the files that decide what runs: the program, as `program:WORD`, and its arguments that are files."""
        if self._spec.transport != "stdio":
            return []
        here = Path(self._spec.cwd or ".").absolute()
        arguments = [str(here / argument) for argument in self._spec.args if (here / argument).is_file()]
        return [f"program:{self._spec.command}", *arguments]

    async def open(self, publish: Publish) -> None:
        """Publish the cached listing and connect in the background, now or when the server is used."""
        self._publish = publish
        await self._background.start()
        self._holds_reaper = self._spec.transport == "stdio"
        if self._holds_reaper:
            shared_reaper().hold()
        cached = await anyio.to_thread.run_sync(self._cache.read)
        if cached is not None:
            self._connection.hint = cached.era
            self._publish_listing(cached.listing)
            self._become("cached")
        if cached is None or not self._starts_on_use or not self._cache.is_recent(_RECENT):
            self._start()

    def _start(self) -> None:
        """Begin to connect, once."""
        if self._is_started:
            return
        self._is_started = True
        self._background.spawn(self._connection.run)
        self._background.spawn(self._keep_fresh)
        if self._access is not None:
            self._background.spawn(partial(self._follow_login, self._access))

    async def ready(self) -> None:
        """Return when the first fresh list was published, or the first attempt to get one has failed."""
        self._start()
        await self._ready.wait()

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run `tool`; raises `ToolFailure` by the deadline of `context` or the server's own time limit.

        Where the runner of the call cancels it at that deadline, a scope of our own could not end before.
        """
        signal = context.signal
        if signal.is_enforced and signal.deadline == context.deadline and self._spec.timeout is None:
            return await self._call(tool, arguments, context)
        limit = min(context.remaining + _GRACE, self._spec.timeout or math.inf)
        scope = self._deadlines.open(time.monotonic() + limit)
        try:
            with scope:
                return await self._call(tool, arguments, context)
        finally:
            self._deadlines.close(scope)
        if signal.is_starting:
            raise still_starting(self.name)
        raise ToolFailure(
            "timeout",
            f"server {self.name!r} did not answer within {limit:.1f} s and was cancelled; the tool may have run",
            hint="Check its effects before calling it again.",
        )

    async def list_again(self) -> Listing:
        """List the connected server now, publish and return its listing.

        Raises `ToolFailure` where it is not connected or does not answer in time, else as the list does.
        """
        session = self._connection.live
        if session is None:
            raise ToolFailure("unavailable", self._state.outage or f"server {self.name!r} is not connected")
        try:
            await self._list_again(session, time.monotonic())
        except TimeoutError as error:
            raise ToolFailure("unavailable", f"server {self.name!r} does not list its tools in time") from error
        return self._listing

    async def close(self) -> None:
        """End the connection and every process of it, at most three seconds."""
        await self._background.stop()
        if self._access is not None:
            await self._access.aclose()
        if self._holds_reaper:
            self._holds_reaper = False
            shared_reaper().release()
        self._become("closed")
        self._ready.set()

    async def _call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Return the result of a call; questions that it ends with go to the elicitor of a session without a client."""
        result = await self._send(tool, arguments, context)
        while result.input_required is not None and (answers := await elicited(context, result.input_required)):
            context = replace(context, resume=answers)
            result = await self._send(tool, arguments, context)
        return result

    async def _send(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Send the call, on up to three connections, and return its result. Raises `ToolFailure`.

        A connection that ended before a byte of the request was read: the next one gets the call. One that ended
        later: a read-only or idempotent tool is called once more; any other is `outcome_unknown`, for it may have run.
        """
        repeatable = tool.annotations.read_only or tool.annotations.idempotent
        repeats = 0
        for attempt in range(_ATTEMPTS):
            session = self._connection.live
            if session is None:
                context.signal.is_starting = not repeats  # the deadline may end this wait: it must not look like a run
                session = await self._connection.get()
                context.signal.is_starting = False
            try:
                current = await self._listed_now(tool, session)
            except LinkLost as lost:  # nothing of the call was sent, though the request for the list may have been
                _logger.info("server %s %s before a call; attempt %d follows", self.name, lost.reason, attempt + 2)
                continue
            session = await self._in_era_of(context, current, session)
            headers = self._listed.headers(current, session, arguments)
            sent = time.monotonic()
            try:
                reply = await self._ask(session, tool, arguments, context, headers)
            except RpcError as error:
                if self._handshake.refuses_questions(tool, session, error) and repeatable:
                    continue
                raise await self._refusal(tool, session, context, error, sent) from error
            except LinkLost as lost:
                if lost.written and (not repeatable or repeats):
                    raise _unknown(self.name, lost, repeatable) from lost
                repeats += lost.written
                _logger.info("server %s %s during a call; attempt %d follows", self.name, lost.reason, attempt + 2)
                continue
            result = await self._result(current, reply)
            self._handshake.note(tool, result)
            if result.is_error:
                await self._learn_era(session, context, result.text)
            if result.is_error and _UNKNOWN.search(result.text):
                await self._check_again(tool, session, sent)
            return result
        raise ToolFailure("unavailable", f"server {self.name!r} ended {_ATTEMPTS} times before it took the call")

    async def _refusal(
        self, tool: Tool, session: ClientSession, context: Context, error: RpcError, sent: float
    ) -> ToolFailure:
        """Return the failure that the refusal of a call at `sent` means; raise as `ListedTools` does."""
        if error.code in (INVALID_PARAMS, METHOD_NOT_FOUND) and not cannot_ask(error.message):
            await self._check_again(tool, session, sent)
        await self._learn_era(session, context, error.message)
        return of_error(error, tool.local_name)

    async def _in_era_of(self, context: Context, tool: Tool, session: ClientSession) -> ClientSession:
        """Return the session for a call: of the handshake era, where its client can be asked in that alone."""
        if self._spec.transport == "stdio" or not session.era.modern or not asks_during_calls(context, self._spec):
            return session
        return await self._handshake.session_for(tool) or session

    async def _learn_era(self, session: ClientSession, context: Context, text: str) -> None:
        """Begin with the handshake from the next start on, where a program could not ask a client of that era."""
        if self._spec.transport != "stdio" or not session.era.modern or self._begins_with_handshake:
            return
        if asks_during_calls(context, self._spec) and cannot_ask(text):
            self._begins_with_handshake = True
            _logger.info("server %s asks in the handshake era only: it begins with that from its next start", self.name)
            await self._keep(self._listing, session.era)

    async def _ask(
        self,
        session: ClientSession,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: Context,
        headers: Mapping[str, str] | None,
    ) -> Reply:
        """Send the call, in a span of its own if tracing is on; raises the exceptions of `ClientSession.call`."""
        kit = current_kit()
        if kit is None:
            return await session.call(tool.local_name, arguments, context, headers)
        transport = {"stdio": "pipe", "memory": "inproc"}.get(self._spec.transport, "tcp")
        from ...telemetry.spans import hop  # loaded with the kit

        with hop(kit, "tools/call", tool.name, version=session.era.version, transport=transport) as span:
            context = replace(context, meta={**context.meta, **span.meta})
            reply = await session.call(tool.local_name, arguments, context, headers)
            if not isinstance(reply, SpooledMessage) and reply.get("isError") is True:
                span.failed("tool_error")
            return reply

    async def _result(self, tool: Tool, reply: Reply) -> ToolResult:
        if isinstance(reply, SpooledMessage):
            return of_spooled(await self._convert_spooled(reply))
        return of_reply(reply, self._spec, self._listed.output(tool))

    async def _convert_spooled(self, big: SpooledMessage) -> Any:
        work = partial(convert, big, self._spool_dir)
        try:
            return await anyio.to_thread.run_sync(work, limiter=self._converting)
        except ValueError as error:
            raise ToolFailure("tool_error", f"the server answered {big.size} bytes that are broken: {error}") from error
        except OSError as error:
            raise ToolFailure("storage", f"a result of {big.size} bytes cannot be kept: {error.strerror}") from error
        finally:
            big.discard()

    async def _listed_now(self, tool: Tool, session: ClientSession) -> Tool:
        """Return the tool as it is listed now, recently where the call has side effects and definitions are reviewed.

        Raises `ToolFailure("unavailable")` where the server does not list its tools: they could be others by now.
        """
        age = time.monotonic() - self._listed_at
        if self._reviewed and not tool.annotations.read_only and 0 < self._spec.relist_after < age:
            try:
                await self._list_again(session, time.monotonic() - self._spec.relist_after)
            except (RpcError, TimeoutError) as error:
                message = f"server {self.name!r} does not list its tools: they are compared before a side effect"
                raise ToolFailure("unavailable", f"{message} ({error or 'no answer'})") from error
        return self._listed.current(tool)

    async def _check_again(self, tool: Tool, session: ClientSession, sent: float) -> None:
        """List again after a call at `sent`, of which the server did not know the tool; raise as `ListedTools` does."""
        with contextlib.suppress(LinkLost, RpcError, TimeoutError):
            await self._list_again(session, sent)
        self._listed.current(tool)

    async def _list_again(self, session: ClientSession, since: float) -> None:
        """Take the list, unless that was done after `since` already. Raises `TimeoutError` for one that is late."""
        with anyio.fail_after(self._limits.start_timeout):
            async with self._listing_again:
                if self._listed_at < since:
                    await self._take_list(session)

    def _make_link(self) -> Link:
        spec, background = self._spec, self._background
        if spec.transport == "stdio":
            return StdioLink(spec, self._environment, self._limits, self._spool_dir, self._relay, background)
        if spec.transport == "memory":
            from ...mcp.client.in_process import InProcessLink  # only for programs with a server object

            return InProcessLink(spec, self._limits, self._spool_dir, self._relay, background)
        if spec.transport == "http":
            from ...mcp.client.http import HttpLink as RemoteLink  # the HTTP client is slow to load
        else:
            from ...mcp.client.sse import SseLink as RemoteLink  # as above
        link = RemoteLink(spec, f"toolcrib/{_version()}", self._limits, self._spool_dir, self._relay, background)
        link.access = self._access
        return link

    async def _take_list(self, session: ClientSession) -> None:
        """Fetch the list and publish it; an unchanged one is only confirmed.

        `Connection` awaits it before a new session takes calls, `_list_again` at a change or when the list is old.
        """
        began = time.monotonic()
        raw = await session.list_tools()
        raw = replace(raw, features=await list_features(session.ask, session.era.capabilities, self._limits))
        session.tasks = needing_tasks(raw.tools)
        if self._raw is None or self._raw[1] != session.era or not same(raw, self._raw[0]):
            build = partial(build_listing, raw, self._spec, self._limits, session.era)
            listing = await anyio.to_thread.run_sync(build)
            self._raw = raw, session.era
            self._publish_listing(listing)
            self._background.spawn(partial(self._keep, listing, session.era))
        elif self._state.state in ("stale", "failed", "needs_login"):
            self._publish_listing(self._listing)
        self._listed_at = began
        self._ready.set()

    async def _keep(self, listing: Listing, era: Era) -> None:
        async with self._keeping:  # what is decided later is written later
            hint: Hint = "modern" if era.modern and not self._begins_with_handshake else "legacy"
            try:
                await anyio.to_thread.run_sync(self._cache.write, Cached(listing=listing, era=hint))
            except OSError as error:
                _logger.warning("the tool list of server %s cannot be cached: %s", self.name, error)

    async def _keep_fresh(self) -> None:
        """List again when the server announces a change, and periodically in any case."""
        while True:
            with anyio.move_on_after(self._limits.refresh or None):
                await self._changed.wait()
            await anyio.sleep(_DEBOUNCE)
            self._changed = anyio.Event()
            session = self._connection.session
            if session is None:
                continue
            try:
                await self._list_again(session, time.monotonic())
            except (LinkLost, RpcError, ToolFailure, TimeoutError) as error:
                _logger.warning("server %s cannot be listed again: %s", self.name, error or "no answer")

    async def _follow_login(self, access: Access) -> None:
        """Notice a login or logout, in this process or another."""
        while True:
            await anyio.sleep(POLL_SECONDS)
            if await access.changed():
                access.forget()
                if self._connection.barred is not None:
                    self._connection.wake()

    def _note_change(self) -> None:
        self._changed.set()

    def _publish_listing(self, listing: Listing) -> None:
        self._listing = listing
        self._listed.replace(listing)
        self._state = replace(self._state, tools=len(listing.tools))
        self._publish(listing)

    def _on_phase(self) -> None:
        connection = self._connection
        if connection.phase == "up":
            self._become("ready")
            if connection.session is not None:
                self._background.spawn(partial(self.features.follow, connection.session))
        elif connection.phase == "down":
            listed = bool(self._listing.tools)
            reason = connection.reason + (f" ({connection.last_words})" if connection.last_words else "")
            barred = connection.barred
            if barred is not None:
                self._become("needs_login", f"{barred.message}. {barred.hint}", outage=barred.message, hint=barred.hint)
                problem = Problem(source=self.name, code="needs_login", message=barred.message, hint=barred.hint)
            else:
                outage, hint = connection.outage, connection.remedy
                self._become("stale" if listed else "failed", reason, outage=outage, hint=hint)
                problem = Problem(source=self.name, code="unavailable", message=reason)
            with contextlib.suppress(ValueError):
                self._publish(replace(self._listing, problems=(*self._listing.problems, problem)))
            self._ready.set()
        elif self._state.state not in ("cached", "stale", "failed", "needs_login"):
            self._become("connecting")

    def _become(self, state: Any, detail: str = "", *, outage: str = "", hint: str = "") -> None:
        tools = len(self._listing.tools)
        self._state = SourceState(
            source=self.name, kind="mcp", state=state, tools=tools, detail=detail, outage=outage, hint=hint
        )


def _unknown(server: str, lost: LinkLost, repeatable: bool) -> ToolFailure:
    if repeatable:
        return ToolFailure("unavailable", f"server {server!r} {lost.reason} twice while it ran the call")
    return ToolFailure(
        "outcome_unknown",
        f"server {server!r} {lost.reason} instead of answering; the tool may have run, or part of it",
        hint="It was not sent again. Check its effects before calling it again.",
    )


def _client(spec: ServerSpec) -> ClientInfo:
    capabilities = {capability: dict[str, Any]() for capability in RELAYED.values()} if spec.relay else {}
    return ClientInfo(version=_version(), capabilities=capabilities)


@cache
def _version() -> str:
    """Return our version; reading it takes a millisecond, and every server is sent it."""
    try:
        return version("toolcrib")
    except PackageNotFoundError:
        return "0"


def _ignore(listing: Listing) -> None:
    """Listener before `open`: ignores listings."""
