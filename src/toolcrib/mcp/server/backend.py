"""Functions that the MCP server calls to reach the tools. `toolcrib.server.backend` implements them with a crib."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from ...core.context import Peer
from ...core.result import ToolResult
from ...core.server_features import ServerFeatures
from ...core.tool import Tool
from ..jsonrpc import Request
from .calls import ToolCall
from .exchange import Exchange


class Resources(Protocol):
    """Resources, prompts and skills of one session."""

    @property
    def version(self) -> int:
        """A number that changes whenever `features` may have changed."""
        ...

    @property
    def features(self) -> ServerFeatures:
        """Prompts, resources and templates, as they are listed."""
        ...

    @property
    def may_exist(self) -> bool:
        """Whether there are resources, or a source may bring some: by its first listing, or by a review."""
        ...

    @property
    def skills(self) -> tuple[Mapping[str, Any], ...]:
        """Entries of `skills/list`."""
        ...

    async def complete(self, kind: str, named: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a server's completion; raises `ToolFailure`."""
        ...

    async def watch(self, uri: str, changed: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Call `changed` after every update of the resource; return the unsubscribe function. Raises `ToolFailure`."""
        ...


class BackendSession(Protocol):
    """One conversation."""

    @property
    def listing(self) -> bytes:
        """JSON array of the listed tool definitions."""
        ...

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The listed tools, in the order of `listing`."""
        ...

    @property
    def instructions(self) -> str:
        """Instructions for the model."""
        ...

    @property
    def servers(self) -> Mapping[str, Mapping[str, Any]]:
        """Server info of the MCP servers behind the gateway, by source."""
        ...

    @property
    def resources(self) -> Resources:
        """Resources, prompts and skills."""
        ...

    def note_listed(self) -> None:
        """Note that the client is sent the present `listing`: it was shown the tools in it."""
        ...

    async def restore(self) -> None:
        """Take over what an earlier process has stored of the conversation."""
        ...

    async def call(self, call: ToolCall, peer: Peer, resume: Mapping[str, Any] | None) -> ToolResult:
        """Run `tools/call`, `resources/read` or `prompts/get` (`call.method`). Every outcome is a result."""
        ...


class Tasks(Protocol):
    """Background jobs of one principal, as MCP tasks."""

    def task_of(self, result: ToolResult) -> str:
        """Return the id of the task that the call became; empty if `result` is its outcome."""
        ...

    async def created(self, id: str, /) -> bytes:
        """Return the body that announces the task. Raises `RpcError`."""
        ...

    async def answer(self, request: Request, exchange: Exchange, /) -> bytes:
        """Answer a `tasks/*` request. Raises `RpcError`."""
        ...


class SessionTasks(Tasks, Protocol):
    """Tasks of revision 2025-11-25, which notifies the client of progress."""

    async def follow(self, id: str, progress_token: str | int | None, /) -> None:
        """Notify the client of progress and status until the task has ended."""
        ...

    def close(self) -> None:
        """Stop following; the jobs continue."""
        ...


class SessionRequest(Struct, frozen=True, kw_only=True):
    """The conversation that a client opens."""

    key: str
    principal: str
    profile: str
    mode: str
    instance: str
    is_stateless: bool
    is_shared: bool
    """Whether several clients of the principal use it, so that an answer of one user holds for one call only."""
    is_resumable: bool = False
    """Whether, with state, another process continues it once its connection has ended."""


class Backend(Protocol):
    """The tools behind the server."""

    @property
    def is_connecting(self) -> bool:
        """Whether the list of tools is incomplete because a source is still connecting."""
        ...

    def find_tool(self, name: str, /) -> Tool | None:
        """Return the tool of that name."""
        ...

    def open_session(self, wanted: SessionRequest, /) -> BackendSession:
        """Open a conversation. Raises `UsageError` for an unknown profile or mode."""
        ...

    def on_change(self, callback: Callable[[], None], /) -> Callable[[], None]:
        """Call `callback` after every change of the catalog; return the unsubscribe function."""
        ...

    async def failing(self) -> Mapping[str, str]:
        """Return the parts that cannot work now, with reasons for the operator; takes 2 s at most."""
        ...

    async def wait_ready(self, seconds: float, /) -> None:
        """Return when every source has published or failed once, at the latest after `seconds`."""
        ...

    def session_tasks(self, principal: str, notify: Callable[[bytes], object], /) -> SessionTasks:
        """Return the tasks of a handshake session. `notify` sends a message outside of any request, or drops it."""
        ...

    def stateless_tasks(self, principal: str, stamp: Mapping[str, Any], /) -> Tasks:
        """Return the tasks of a principal in the stateless era. `stamp` goes into the `_meta` of every result."""
        ...
