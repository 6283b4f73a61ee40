"""Where a model sits: one profile, one way in. It lists what it sees, goes the way to a tool that the profile teaches,
and reads what comes back in the profile's own shape.

What the shapes mean is written down here once more, from the seeds' documents and not from our code.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import anyio
from mcp import Client
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from toolcrib.core.result import ToolResult
from toolcrib.crib import Session, Toolcrib
from toolcrib.mcp.server.connection import Connection
from toolcrib.mcp.server.service import Service, ServiceLimits
from toolcrib.server.backend import CribBackend

PROFILES: Final = ("adaptive", "flat", "gateway", "introspection", "selection", "tiered")

WAYS_IN: Final = ("library", "legacy", "2026-07-28")
"""The library, and MCP in memory in both eras, with the SDK's own client."""

Way = Literal["library", "legacy", "2026-07-28"]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a model reads of a call, and what stands beside it for machines."""

    is_error: bool
    code: str
    """The code of the one table, `ok` for a success."""
    value: Any
    """What the tool gave: the same whatever the shape."""
    told: Mapping[str, Any]
    """Of a failure, what the shape says: its own keys."""
    text: str
    structured: Any


def reply_of(profile: str, is_error: bool, structured: Any, text: str, code: str) -> Reply:
    """Read a result in the shape of its profile."""
    told = cast("dict[str, Any]", structured) if isinstance(structured, dict) else {}
    value: Any
    if profile == "gateway" and {"op", "ok"} <= told.keys():
        assert told["ok"] is not is_error
        assert json.loads(text) == told
        value, told = told.get("result"), told.get("error", {})
    else:
        value = _plain(text) if structured is None else cast("Any", structured)
    return Reply(
        is_error=is_error,
        code=code,
        value=None if is_error else value,
        told=told if is_error else {},
        text=text,
        structured=structured,
    )


def _plain(text: str) -> Any:
    if text[:1] not in ("[", "{"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


Ask = Callable[[str, Any], Awaitable[Reply]]
Listed = Callable[[], Awaitable[list[str]]]


@dataclass(frozen=True, kw_only=True)
class Seat:
    """One model. `ask` calls by a name as it is, `use` goes the way of the profile."""

    profile: str
    crib: Toolcrib
    ask: Ask
    listed: Listed
    session: Session | None = None
    """Where the model is a guest of the library."""

    async def reach(self, *tools: str) -> None:
        """Do what the profile teaches to make tools callable; whether it worked, the calls will show."""
        if self.profile == "tiered":
            shown = await self.listed()
            for tool in tools:
                if tool not in shown:
                    await self.ask("load_tools", {"tool_name": tool})
        elif self.profile == "introspection":
            await self.ask("get_tool_schemas", {"names": list(tools)})
        elif self.profile == "selection" and self.session is not None:
            self.session.begin(intent={"required_tools": list(tools)})

    async def use(self, tool: str, arguments: Any = None) -> Reply:
        """Call a tool as a model of this profile does."""
        await self.reach(tool)
        return await self.ask(*await self.way(tool, arguments))

    async def way(self, tool: str, arguments: Any = None) -> tuple[str, Any]:
        """Return the call by which a model of this profile calls a tool that it has reached."""
        given: Any = {} if arguments is None else arguments
        if self.profile == "gateway":
            return "tool_exec", {"op": self.op(tool), "args": given}
        shown = await self.listed()
        if tool not in shown and "call_tool" in shown:
            return "call_tool", {"name": tool, "arguments": given}
        return tool, given

    def op(self, tool: str) -> str:
        """Return the op of a tool; a name that is none stays as it is."""
        known = self.crib.catalog.find(tool)
        return self.crib.session(profile="gateway").op_of(known) if known is not None else tool


def in_library(crib: Toolcrib, session: Session) -> Seat:
    """Sit down at a session of the library."""
    profile = session.state.profile

    async def ask(name: str, arguments: Any) -> Reply:
        return of_library(profile, await session.call(name, arguments))

    async def listed() -> list[str]:
        return [tool.name for tool in session.tools]

    return Seat(profile=profile, crib=crib, ask=ask, listed=listed, session=session)


def of_library(profile: str, result: ToolResult) -> Reply:
    """Read what the library returns."""
    code = result.error.code if result.error else "ok"
    return reply_of(profile, result.is_error, result.structured_content, result.text, code)


@asynccontextmanager
async def over_mcp(
    crib: Toolcrib, profile: str, era: Way, mode: str, limits: ServiceLimits | None = None
) -> AsyncGenerator[Seat]:
    """Sit down as a client of the MCP SDK, at the other end of a pair of pipes in memory."""
    async with (
        Service(CribBackend(crib), profile=profile, mode=mode, limits=limits) as service,
        Client(_Pipes(service), mode=era) as client,
    ):

        async def ask(name: str, arguments: Any) -> Reply:
            result = await client.call_tool(name, arguments)
            text = "\n".join(getattr(block, "text", "") for block in result.content)
            error = (result.meta or {}).get("io.toolcrib/error")
            code = error["code"] if error else "ok"
            return reply_of(profile, bool(result.is_error), result.structured_content, text, code)

        async def listed() -> list[str]:
            return [tool.name for tool in (await client.list_tools()).tools]

        yield Seat(profile=profile, crib=crib, ask=ask, listed=listed)


@asynccontextmanager
async def at(crib: Toolcrib, profile: str, way: Way = "library", mode: str = "autonomous") -> AsyncGenerator[Seat]:
    """Sit down by a way in, with a session of one's own."""
    if way == "library":
        async with crib.session(profile=profile, mode=mode) as session:
            yield in_library(crib, session)
    else:
        async with over_mcp(crib, profile, way, mode) as seat:
            yield seat


class _Pipes:
    """A transport of the SDK: messages go to our connection and come back, nothing leaves the process."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._context = self._open()

    async def __aenter__(self) -> TransportStreams:
        return await self._context.__aenter__()

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._context.__aexit__(*error)

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[TransportStreams]:
        to_client, read = anyio.create_memory_object_stream[SessionMessage | Exception](100)
        write, from_client = anyio.create_memory_object_stream[SessionMessage](100)

        async def send(message: bytes) -> None:
            await to_client.send(SessionMessage(jsonrpc_message_adapter.validate_json(message)))

        async def feed(connection: Connection) -> None:
            async with from_client:
                async for sent in from_client:
                    await connection.feed(sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode())

        connection = Connection(self._service, send)
        async with to_client, read, write, connection, anyio.create_task_group() as tasks:
            tasks.start_soon(feed, connection)
            yield read, write
            tasks.cancel_scope.cancel()
