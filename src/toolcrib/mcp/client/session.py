"""Session of a connection whose era is known: listing tools, calling them, and running them as tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import anyio

from ...core.context import Context
from ...errors import ToolFailure
from ..jsonrpc import LATEST, LOG_LEVEL_KEY, METHOD_NOT_FOUND, RpcError, mapping
from ..stdio import SpooledMessage
from .feature_listing import RawOffer
from .handshake import Client, Era, envelope
from .messages import LinkLost
from .spec import McpLimits
from .transport import Link, Outgoing, Reply

__all__ = ["RawListing", "Session", "needing_tasks", "run_task"]

_LONGEST_TTL: Final = 3600.0
"""Seconds that a server is asked to keep a task whose call has no deadline."""
_CANCEL_SECONDS: Final = 1.0


def needing_tasks(tools: Iterable[Any]) -> frozenset[str]:
    """Return the names of the listed tools that refuse a plain call."""
    entries = (mapping(entry) for entry in tools)
    needing = (entry for entry in entries if mapping(entry.get("execution")).get("taskSupport") == "required")
    return frozenset(str(entry.get("name")) for entry in needing)


async def run_task(link: Link, params: Mapping[str, Any], context: Context, version: str) -> Reply:
    """Run `tools/call` with `params` as a task and return its result.

    Raises `RpcError`, `LinkLost`, or `ToolFailure` when the server starts no task.
    """
    ttl = round(min(context.remaining, _LONGEST_TTL) * 1000)
    started = await link.ask(Outgoing("tools/call", {**params, "task": {"ttl": ttl}}, version=version, context=context))
    task = _task_id(started)
    request = Outgoing("tasks/result", {"taskId": task}, version=version, context=context)
    try:
        return await link.ask(request)
    except anyio.get_cancelled_exc_class():
        with anyio.move_on_after(_CANCEL_SECONDS, shield=True):
            await _cancel(link, task, version)
        raise


def _task_id(started: Reply) -> str:
    if isinstance(started, SpooledMessage):
        started.discard()
        raise ToolFailure("tool_error", "the server answered a task with a message that is too large")
    task: Any = mapping(started.get("task")).get("taskId")
    if not isinstance(task, str):
        raise ToolFailure("tool_error", "the server runs this tool only as a task, and started none")
    return task


async def _cancel(link: Link, task: str, version: str) -> None:
    try:
        await link.ask(Outgoing("tasks/cancel", {"taskId": task}, version=version))
    except (LinkLost, RpcError, ToolFailure):
        return


_log = logging.getLogger(__name__)

_TRACE: Final = ("traceparent", "tracestate", "baggage")
_HANDED_ON: Final = (*_TRACE, LOG_LEVEL_KEY)
"""What of a caller's `_meta` goes to a server; nothing else of the caller does."""

_RESUMING: Final = ("inputResponses", "requestState")
"""What of a call's resumption goes to a server."""

_RELISTEN: Final = 30.0
"""Seconds before a subscription that ended is opened again."""

_MOST_LISTED: Final = 20
"""A list is cut off at this many times the tools that are taken: it would only cost memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawListing:
    """What `tools/list` gave, unchecked."""

    tools: Sequence[Any]
    more: str = ""
    """Why there is more than `tools`: the server would not stop."""
    offer: RawOffer | None = None
    """What else it lists; None where that was not asked for."""


class Session:
    """One live connection in one era. Ends with its link."""

    def __init__(self, link: Link, era: Era, client: Client, limits: McpLimits) -> None:
        self.link = link
        self.era = era
        self.served = 0
        """Calls that were answered."""
        self.tasks: frozenset[str] = frozenset()
        """Names of the tools that run only as tasks."""
        self._client = client
        self._limits = limits
        self._envelope = envelope(client, {}) if era.modern else {}

    async def list_tools(self) -> RawListing:
        """Fetch every page; raises `LinkLost`, `RpcError` or `ToolFailure`."""
        tools: list[Any] = []
        cursor: str | None = None
        for _ in range(self._limits.pages):
            params: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
            if self.era.modern:
                params["_meta"] = self._envelope
            try:
                reply = await self.link.ask(Outgoing("tools/list", params, version=self.era.version))
            except RpcError as error:
                if error.code == METHOD_NOT_FOUND and not tools:
                    return RawListing(tools=())
                raise
            tools += _page(reply)
            if len(tools) > self._limits.tools * _MOST_LISTED:
                return RawListing(
                    tools=tools, more=f"the server lists more than {len(tools)} tools; the rest was not read"
                )
            cursor = _cursor(reply)
            if cursor is None:
                return RawListing(tools=tools)
        return RawListing(tools=tools, more=f"the list goes on after {self._limits.pages} pages; the rest was not read")

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: Context, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Run a tool; raises `RpcError`, `LinkLost` or `ToolFailure`. `headers` go along on HTTP."""
        params: dict[str, Any] = {"name": name, "arguments": arguments}
        if self.era.modern and context.resume:
            params.update({key: context.resume[key] for key in _RESUMING if key in context.resume})
        request = Outgoing("tools/call", params, version=self.era.version, context=context, headers=headers)
        meta = self._meta(context)
        if meta:
            params["_meta"] = meta
        if name in self.tasks and not self.era.modern:
            reply = await run_task(self.link, params, context, self.era.version)
        else:
            reply = await self.link.ask(request)
        self.served += 1
        return reply

    async def ask(self, method: str, params: Mapping[str, Any], context: Context | None = None) -> Reply:
        """Ask for something that only reads; raises `RpcError`, `LinkLost` or `ToolFailure`."""
        asked = dict(params)
        if self.era.modern and context is not None and context.resume:
            asked.update({key: context.resume[key] for key in _RESUMING if key in context.resume})
        meta = self._meta(context) if context is not None else dict(self._envelope)
        if meta:
            asked["_meta"] = meta
        reply = await self.link.ask(Outgoing(method, asked, version=self.era.version, context=context))
        if context is not None:
            self.served += 1
        return reply

    async def listen(self, wanted: Mapping[str, Any]) -> None:
        """Have a server of the modern era say when something of `wanted` changes; returns when it stops to."""
        params = {"notifications": wanted, "_meta": self._envelope}
        try:
            await self.link.ask(Outgoing("subscriptions/listen", params, version=LATEST))
        except (LinkLost, ToolFailure, RpcError) as error:
            _log.debug("no notice of changes: %s", error)

    async def follow_changes(self) -> None:
        """Have the server say when its tools change, where the era wants that asked for. Runs until the link ends."""
        if not (self.era.modern and self.era.lists_changes):
            return
        wanted = {"toolsListChanged": True}
        while not self.link.reason:
            params = {"notifications": wanted, "_meta": self._envelope}
            try:
                await self.link.ask(Outgoing("subscriptions/listen", params, version=LATEST))
            except (LinkLost, ToolFailure):
                pass
            except RpcError as error:
                _log.debug("no notice of changed tools: %s", error)
                return
            with anyio.move_on_after(_RELISTEN):
                await self.link.lost.wait()

    def _meta(self, context: Context) -> dict[str, Any]:
        meta: dict[str, Any] = {key: context.meta[key] for key in _HANDED_ON if key in context.meta}
        if self.era.modern:
            offered = mapping(context.peer.capabilities if context.peer is not None else None)
            capabilities = {key: offered[key] for key in self._client.capabilities if key in offered}
            meta.update(envelope(self._client, capabilities) if capabilities else self._envelope)
        return meta


def _page(reply: Reply) -> list[Any]:
    if isinstance(reply, SpooledMessage):
        reply.discard()
        raise ToolFailure("unavailable", f"its list of tools has {reply.size} bytes on one page, more than is taken")
    tools = reply.get("tools")
    if not isinstance(tools, list):
        raise ToolFailure("unavailable", "its list of tools is malformed: `tools` is not a list")
    return cast("list[Any]", tools)


def _cursor(reply: Reply) -> str | None:
    cursor = reply.get("nextCursor") if not isinstance(reply, SpooledMessage) else None
    return cursor if isinstance(cursor, str) and cursor else None
