"""Backend of the MCP server: its functions, implemented with a crib."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..config import Settings
from ..core.context import Peer
from ..core.result import ToolResult
from ..core.tool import Tool
from ..crib import CallOptions, Session, Toolcrib
from ..crib.resources import SessionResources
from ..mcp.server.calls import ToolCall
from ..mcp.server.service import ServiceLimits
from .approvals import ClientApprover, current_peer
from .tasks import JobSessionTasks, JobTasks

__all__ = ["CribBackend", "CribSession", "limits_of"]


def limits_of(settings: Settings) -> ServiceLimits:
    """Return the limits of the MCP server that the configuration sets; the others are the defaults."""
    return ServiceLimits(first_list=settings.sources.first_list_timeout)


class CribBackend:
    """Implements `mcp.server.backend.Backend`."""

    def __init__(self, crib: Toolcrib) -> None:
        """`crib` is open, and the caller closes it."""
        self.crib = crib

    @property
    def is_connecting(self) -> bool:
        """Whether a source is still connecting."""
        return any(source.state == "connecting" for source in self.crib.tools.sources)

    def find_tool(self, name: str, /) -> Tool | None:
        """Return the tool of that name."""
        return self.crib.catalog.get(name)

    def open_session(
        self, *, key: str, principal: str, profile: str, mode: str, instance: str, is_stateless: bool, is_shared: bool
    ) -> CribSession:
        """Open a conversation. Raises `UsageError` for an unknown profile or mode."""
        session = self.crib.session(
            key=key,
            principal=principal,
            profile=profile,
            mode=mode,
            approver=ClientApprover(is_shared=is_shared),
            grows=False if is_stateless else None,
            for_client=True,
            instance=instance,
        )
        return self.serve(session)

    def serve(self, session: Session) -> CribSession:
        """Return the server's view of an open session; a subclass may extend it."""
        return CribSession(session)

    def on_change(self, callback: Callable[[], None], /) -> Callable[[], None]:
        """Call `callback` after every change of the catalog; return the unsubscribe function."""
        return self.crib.tools.on_change(lambda _: callback())

    async def failing(self) -> Mapping[str, str]:
        """Return the parts that cannot work now, with reasons for the operator; takes 2 s at most."""
        reason = await self.crib.store.check()
        return {"store": reason} if reason else {}

    async def wait_ready(self, seconds: float, /) -> None:
        """Return when every source has published or failed once, at the latest after `seconds`."""
        await self.crib.tools.wait_ready(seconds)

    def session_tasks(self, principal: str, notify: Callable[[bytes], object], /) -> JobSessionTasks:
        """Return the tasks of a handshake session."""
        return JobSessionTasks(self.crib.jobs, principal, notify)

    def stateless_tasks(self, principal: str, stamp: Mapping[str, Any], /) -> JobTasks:
        """Return the tasks of a principal in the stateless era."""
        return JobTasks(self.crib.jobs, principal, stamp)


class CribSession:
    """Implements `mcp.server.backend.Session`."""

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def listing(self) -> bytes:
        """JSON array of the listed tool definitions."""
        return self.session.listing

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The listed tools, in the order of `listing`."""
        return self.session.tools

    @property
    def instructions(self) -> str:
        """Instructions for the model."""
        return self.session.instructions

    @property
    def servers(self) -> Mapping[str, Mapping[str, Any]]:
        """Server info of the MCP servers in scope, by source."""
        return self.session.servers

    @property
    def resources(self) -> SessionResources:
        """Resources, prompts and skills in scope."""
        return self.session.shelf

    async def call(self, call: ToolCall, peer: Peer, resume: Mapping[str, Any] | None) -> ToolResult:
        """Run one call through the pipeline. Approval questions go to `peer`, the client of this call."""
        options = _call_options(call)
        options["peer"] = peer
        if resume is not None:
            options["resume"] = resume
        token = current_peer.set(peer)
        arguments = call.arguments
        try:
            if call.method == "resources/read":
                return await self.session.shelf.read(arguments["uri"], **options)
            if call.method == "prompts/get":
                return await self.session.shelf.get(arguments["name"], arguments["arguments"], **options)
            return await self.session.call(call.name, arguments, **options)
        finally:
            current_peer.reset(token)


def _call_options(call: ToolCall) -> CallOptions:
    options: CallOptions = {"origin": "mcp", "progress_token": call.progress_token, "meta": call.meta}
    if call.client:
        options["client_name"] = call.client
    if call.timeout is not None:
        options["timeout"] = call.timeout
    if call.idempotency_key:
        options["idempotency_key"] = call.idempotency_key
    if call.dry_run:
        options["dry_run"] = True
    if call.version:
        options["version"] = call.version
    if call.takes_task:
        options["takes_task"] = True
        options["background"] = call.background
    return options
