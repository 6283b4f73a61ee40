"""The transport to a server that is an object of this process: the SDK's own memory streams, without a subprocess.

Messages pass as JSON text in both directions, so that neither side holds an object of the other, and limits of size
and depth are those of stdio. The link knows the handshake era only: a server asks and notifies in it without a
second connection, which would enter its lifespan a second time.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from msgspec import Struct
from pydantic import TypeAdapter

from ...core.json import dumps
from ...system.tasks import Background
from ..jsonrpc import METHOD_NOT_FOUND, RpcError
from ..stdio import Flood, LineReader
from .spec import McpLimits, ServerSpec
from .transport import Inbound, LinkLost, Mux, Outgoing, Reply, request_number

_INNER: Final = ("_lowlevel_server", "_mcp_server")
"""Attributes with the SDK's `Server` of its `MCPServer`, and of `FastMCP`."""
_RELAYS: Final = "FastMCPProxy"
"""A class of servers that pass on what others say."""


def server_of(thing: object) -> Any | None:
    """Return the SDK's `Server` that `thing` is or holds; None for anything else."""
    for one in (thing, *(getattr(thing, name, None) for name in _INNER)):
        if hasattr(one, "create_initialization_options") and inspect.iscoroutinefunction(getattr(one, "run", None)):
            return one
    return None


def passes_on(thing: object) -> bool:
    """Whether a server object passes on the tools of another server."""
    return any(kind.__name__ == _RELAYS for kind in type(thing).__mro__)


class _Wire(Struct, frozen=True):
    """The types of messages of the installed SDK."""

    wrapped: Any
    any_message: TypeAdapter[Any]


@cache
def _wire() -> _Wire:
    from mcp.shared.message import SessionMessage  # loaded by the program that made the server
    from mcp.types import JSONRPCMessage

    return _Wire(SessionMessage, TypeAdapter[Any](JSONRPCMessage))


class InProcessLink:
    """One run of a server object. `open` starts it; it is lost when the server ends, by itself or by an error.

    The server runs in a task of its own, out of reach of the cancellation of others: `close` ends its input, and gives
    it `stop_grace` to finish its calls and to leave its lifespan.
    """

    def __init__(
        self, spec: ServerSpec, limits: McpLimits, spool_dir: Path, inbound: Inbound, background: Background
    ) -> None:
        self.lost = anyio.Event()
        self.reason = ""
        self.last_words = ""
        self._server = server_of(spec.server)
        self._limits = limits
        self._background = background
        self._mux = Mux(self, inbound, limits, self._lose)
        self._lines = LineReader(limits, spool_dir)
        self._to_server, self._server_reads = anyio.create_memory_object_stream[Any](math.inf)
        self._running = anyio.CancelScope(shield=True)
        self._ended = anyio.Event()
        self._is_open = False

    @property
    def pending(self) -> Mapping[int, Outgoing]:
        """The requests in flight."""
        return self._mux.pending

    async def open(self) -> None:
        """Start the server beside everything else."""
        self._is_open = True
        self._background.spawn(self._run)

    async def ask(self, request: Outgoing) -> Reply:
        """Send `request` and wait for its answer; a cancellation is sent to the server at once."""
        if self.reason:
            raise LinkLost(self.reason, written=False)
        if request.method == "server/discover":
            raise RpcError(METHOD_NOT_FOUND, "a server of this process is spoken to in the handshake era")
        return await self._mux.ask(request, self._send)

    def agree(self, version: str) -> None:
        """Nothing here depends on the revision."""

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification."""
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def answer(self, reply: Mapping[str, Any]) -> None:
        """Answer a request of the server."""
        self._send({"jsonrpc": "2.0", **reply})

    async def close(self) -> None:
        """End its input, let it leave its lifespan, and make sure that it ended."""
        self._lose("the connection was closed")
        if not self._is_open:
            self._server_reads.close()
            return
        with anyio.move_on_after(self._limits.stop_grace):
            await self._ended.wait()
        self._running.cancel()
        await self._ended.wait()
        self._lines.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        if not self.reason:
            wire = _wire()
            self._to_server.send_nowait(wire.wrapped(wire.any_message.validate_json(dumps(message))))

    async def _run(self) -> None:
        """Run the server and take what it sends until it ends."""
        to_us, ours = anyio.create_memory_object_stream[Any](1)
        server: Any = self._server
        reason = "ended"
        try:
            with self._running:
                async with self._server_reads, to_us, anyio.create_task_group() as group:
                    group.start_soon(self._listen, ours)
                    await server.run(self._server_reads, to_us, server.create_initialization_options())
                    group.cancel_scope.cancel()
        except Exception as error:  # noqa: BLE001 - code of a program, such as its lifespan
            first: Any = error
            while isinstance(first, ExceptionGroup):  # of the task groups that it runs in
                first = cast("Any", first).exceptions[0]
            self.last_words = f"{type(first).__name__}: {first}"
            reason = f"ended with {type(first).__name__}"
        finally:
            self._lose(reason)
            ours.close()
            self._ended.set()

    async def _listen(self, ours: MemoryObjectReceiveStream[Any]) -> None:
        async for sent in ours:
            line = sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
            owner = self._mux.pending.get(request_number(getattr(sent.metadata, "related_request_id", None)) or 0)
            try:
                for message in self._lines.feed(line + b"\n"):
                    self._mux.receive(message, owner)
            except Flood as flood:
                self._lose(str(flood))

    def _lose(self, reason: str) -> None:
        if self.reason:
            return
        self.reason = reason
        self._mux.fail(reason, lambda request: True)
        self._to_server.close()
        self.lost.set()
