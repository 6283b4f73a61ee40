"""MCP over a byte stream, one message a line: standard input and output, or a connection of the local daemon.

The reader is linear and capped: a line that is too long costs an error answer, never memory. Writing waits for the
client, so one that does not read delays its own answers only.
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import threading
from types import TracebackType
from typing import Final, Self

import anyio
import anyio.to_thread

from ..core.json import MESSAGE_BYTES
from ..mcp.jsonrpc import INVALID_REQUEST, RpcError, error_message
from ..mcp.server.connection import Connection
from ..mcp.server.service import Service
from ..mcp.stdio import read_messages
from .pipes import relay

_TOO_LONG: Final = RpcError(INVALID_REQUEST, f"Invalid request: a message has at most {MESSAGE_BYTES} bytes")

_CALL_BYTES: Final = 100
"""Bytes in front of a message that are the id of its call."""
_CHUNK: Final = 64 * 1024
_LOOK_SECONDS: Final = 0.1
_FLUSH_SECONDS: Final = 2.0
"""Seconds for the client to read the last answers before the process ends."""


class Link:
    """One connected stream socket, used from one event loop: one task receives, another may send.

    A broken connection looks like an ended one to the receiver; the sender gets the `ConnectionError`.
    anyio's own socket stream reports a spurious error to the event loop when it is cancelled while data arrives.
    """

    def __init__(self, sock: socket.socket) -> None:
        """Take `sock` over; leaving the context closes it."""
        sock.setblocking(False)
        self.socket = sock

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        anyio.notify_closing(self.socket)
        self.socket.close()

    async def receive(self) -> bytes:
        """Return the received bytes, at most 64 KiB; empty at the end."""
        while True:
            try:
                return self.socket.recv(_CHUNK)
            except BlockingIOError:
                await anyio.wait_readable(self.socket)
            except ConnectionError:
                return b""

    async def send(self, data: bytes) -> None:
        """Send all of `data`; raises `ConnectionError` when the far end no longer reads."""
        view = memoryview(data)
        while view:
            try:
                view = view[self.socket.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self.socket)

    async def hung_up(self) -> None:
        """Return when the other end is gone altogether, so that no answer will be read any more.

        A peer that only closed its sending side is still there. Looks ten times a second, because no event loop
        signals that; where the system has no `poll` this never returns.
        """
        while True:
            if self.is_hung_up:
                return
            await anyio.sleep(_LOOK_SECONDS)

    @property
    def is_hung_up(self) -> bool:
        """Whether the other end is gone altogether.

        `poll` without a requested event reports a hang-up or an error alone, never that data waits.
        """
        if sys.platform == "win32":
            return False
        look = select.poll()
        look.register(self.socket, 0)
        return bool(look.poll(0))


async def converse(
    service: Service,
    link: Link,
    *,
    received: bytes = b"",
    profile: str = "",
    mode: str = "",
    conversation: str = "",
) -> None:
    """Serve MCP to the connected client until it has left or the service stops.

    `received` arrived before. A `conversation` outlives its connection: each of its lines is the id of its call, a
    space and the message; the word `again` in front says that an earlier connection got the same.

        call_4f2a {"jsonrpc":"2.0","id":7,"method":"tools/call",…}
        again call_4f2a {"jsonrpc":"2.0","id":7,"method":"tools/call",…}

    When the client
    closes its input, pending requests are still answered; when it has gone altogether, or the service's drain is over,
    running calls are cancelled.
    """
    sending = anyio.Lock(fast_acquire=True)

    async def send(message: bytes) -> None:
        async with sending:
            with contextlib.suppress(ConnectionError):  # a client that has left reads no answers
                await link.send(message + b"\n")

    most = MESSAGE_BYTES + (_CALL_BYTES if conversation else 0)
    async with (
        Connection(service, send, profile=profile, mode=mode, conversation=conversation) as connection,
        anyio.create_task_group() as tasks,
    ):
        with anyio.CancelScope() as whole:
            reading = anyio.CancelScope()
            tasks.start_soon(_stop_in_time, service, reading, whole)
            with reading:
                async for line in read_messages(link.receive, received, most):
                    if not isinstance(line, bytes):
                        await send(error_message(line, _TOO_LONG))
                        continue
                    call, message, is_again = _parts_of(line) if conversation else ("", line, False)
                    await connection.feed(message, call, is_again=is_again)
            while connection.running and not link.is_hung_up:
                with anyio.move_on_after(_LOOK_SECONDS):
                    await link.hung_up()
        tasks.cancel_scope.cancel()


def _parts_of(line: bytes) -> tuple[str, bytes, bool]:
    """Return the parts of a line of a conversation: the id of its call, the message, whether it was sent before."""
    call, _, message = line.partition(b" ")
    if is_again := call == b"again":
        call, _, message = message.partition(b" ")
    return call.decode(), message, is_again


async def serve_stdio(service: Service, source: int, sink: int) -> None:
    """Serve the client at the other end of two descriptors in this process, until it has left or the service stops."""
    ours, theirs = socket.socketpair()
    relaying = threading.Thread(target=_relay, args=(source, sink, theirs), daemon=True)
    relaying.start()
    async with Link(ours) as link:
        await converse(service, link)
    with anyio.move_on_after(_FLUSH_SECONDS):
        await anyio.to_thread.run_sync(relaying.join, abandon_on_cancel=True)


def _relay(source: int, sink: int, link: socket.socket) -> None:
    with link:
        relay(source, sink, link)


async def _stop_in_time(service: Service, reading: anyio.CancelScope, whole: anyio.CancelScope) -> None:
    """Once the service stops, accept no further requests, and give running ones the service's drain to end."""
    await service.stopping.wait()
    whole.deadline = anyio.current_time() + service.limits.drain
    reading.cancel()
