"""A second connection of a remote server, in the handshake era, for clients of that era that can be asked in a call.

A server with both eras may be able to ask in one of them only: `elicit` of the SDKs needs a connection that
began with `initialize`. So a client of that era is served as it would be without a gateway. The connection is made for
the first call of such a client; servers that refuse it, and calls that cannot ask, are served by the first one.

A program gets no second connection, which would be a second process with a state of its own.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from ...core.context import Context
from ...core.result import ToolResult
from ...core.tool import Tool
from ...errors import ToolFailure
from ...mcp.client.handshake import ClientInfo, negotiate
from ...mcp.client.server_requests import RELAYED, peer_of
from ...mcp.client.session import ClientSession, needing_tasks
from ...mcp.client.spec import McpLimits, ServerSpec
from ...mcp.client.transport import Link, LinkLost
from ...mcp.jsonrpc import INTERNAL_ERROR, RpcError
from ...system.tasks import Background
from .tool_list import build_listing, same

_logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 300.0
"""Time after which a server that refused the handshake is tried again: it may be another version by then."""


def asks_during_calls(context: Context, spec: ServerSpec) -> bool:
    """Whether the client of a call, or an elicitor, can be asked while it runs, and the server may ask.

    A call that continues an earlier one belongs to the connection that began it.
    """
    peer = peer_of(context)
    if peer is None or not peer.takes_requests or not spec.relay or context.resume:
        return False
    return any(capability in peer.capabilities for capability in RELAYED.values())


class HandshakeConnection:
    """The second connection of one source, made when it is needed. Ends with `background`.

    `_outside` are tools that do not work here, learnt from calls that failed or ended with questions; `_refused_at` is
    when the server last had no such connection. In both cases the first connection serves the call.
    """

    def __init__(
        self,
        spec: ServerSpec,
        limits: McpLimits,
        client: ClientInfo,
        background: Background,
        make_link: Callable[[], Link],
    ) -> None:
        self._spec = spec
        self._limits = limits
        self._client = client
        self._background = background
        self._make_link = make_link
        self._session: ClientSession | None = None
        self._tools: Mapping[str, Tool] = {}
        self._listed_at = -math.inf
        self._refused_at = -math.inf
        self._connecting: anyio.Event | None = None
        self._outside: set[str] = set()
        self._listing = anyio.Lock()

    async def session_for(self, tool: Tool) -> ClientSession | None:
        """Return a session that describes `tool` as the first connection does; None if there is none."""
        if tool.local_name in self._outside:
            return None
        session = self._session
        if session is None or session.link.reason:
            if time.monotonic() - self._refused_at < _RETRY_SECONDS:
                return None
            if self._connecting is None:
                self._connecting = anyio.Event()
                self._background.spawn(partial(self._live, self._connecting))
            await self._connecting.wait()
            session = self._session
            if session is None:
                return None
        try:
            return session if await self._describes(session, tool) else None
        except (LinkLost, RpcError, ToolFailure, TimeoutError):
            return None

    def note(self, tool: Tool, result: ToolResult) -> None:
        """Leave a tool that ended its call with questions to the first connection."""
        if result.input_required is not None:
            self._outside.add(tool.local_name)

    def refuses_questions(self, tool: Tool, session: ClientSession, error: RpcError) -> bool:
        """Whether a call here failed as one does that ended with questions, which this era has not.

        The tool is left to the first connection from now on.
        """
        if session is not self._session or error.code != INTERNAL_ERROR:
            return False
        self._outside.add(tool.local_name)
        return True

    async def _describes(self, session: ClientSession, tool: Tool) -> bool:
        """Whether the list of the session, one that is recent, has the tool as it is."""
        age = time.monotonic() - self._listed_at
        is_old = not tool.annotations.read_only and 0 < self._spec.relist_after < age
        if is_old or not self._is_listed(tool):
            began = time.monotonic()
            async with self._listing:
                if self._listed_at < began:
                    with anyio.fail_after(self._limits.start_timeout):
                        await self._list(session)
        return self._is_listed(tool)

    def _is_listed(self, tool: Tool) -> bool:
        found = self._tools.get(tool.local_name)
        return (
            found is not None and same(found.input_schema, tool.input_schema) and found.description == tool.description
        )

    async def _list(self, session: ClientSession) -> None:
        began = time.monotonic()
        raw = await session.list_tools()
        session.tasks = needing_tasks(raw.tools)
        listing = await anyio.to_thread.run_sync(partial(build_listing, raw, self._spec, self._limits, session.era))
        self._tools = {tool.local_name: tool for tool in listing.tools}
        self._listed_at = began

    async def _live(self, connected: anyio.Event) -> None:
        """Connect, and stay connected until the link or the source ends."""
        link = self._make_link()
        session: ClientSession | None = None
        try:
            with anyio.fail_after(self._limits.start_timeout):
                await link.open()
                era = await negotiate(link, self._client, "legacy", self._limits.probe_timeout)
                session = ClientSession(link, era, self._client, self._limits)
                await self._list(session)
            self._session = session
            self._settle(connected)
            await link.lost.wait()
        except (LinkLost, RpcError, ToolFailure, TimeoutError, OSError) as error:
            self._refused_at = time.monotonic()
            _logger.info("server %s has no connection of the handshake era: %s", self._spec.name, error or "no answer")
        finally:
            if self._session is session:
                self._session = None
            self._settle(connected)
            with anyio.CancelScope(shield=True):
                await link.close()

    def _settle(self, connected: anyio.Event) -> None:
        connected.set()
        if self._connecting is connected:
            self._connecting = None
