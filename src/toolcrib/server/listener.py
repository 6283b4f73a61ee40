"""HTTP listener (uvicorn): the bound socket, limits of its connections, and its start and end without signals.

The headers of a request are limited in size and time, connections in number; signals are left to the caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import socket
import sys
from collections.abc import Callable, Generator
from typing import Any, ClassVar, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..errors import UsageError

_HEADER_BYTES: Final = 32 * 1024

_logger = logging.getLogger(__name__)

_FILES_OF_START: Final = 24
"""Files that are open before the first client comes: libraries, store, log and pipes."""
_REPORT_SECONDS: Final = 60.0
"""Seconds between two lines of the log about too many connections."""


class JoinedWrites(asyncio.Transport):
    """Transport that sends the head of a response together with what follows in the same turn of the event loop.

    uvicorn writes the head and the body apart: two system calls and two packets for each small answer.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """`transport` is that of the connection, `loop` the event loop that it belongs to."""
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._head = b""

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Send `data`; the head of a response waits for more until the event loop turns."""
        head, self._head = self._head, b""
        if head:
            self._transport.write(head + data)
        elif data[:9] == b"HTTP/1.1 ":
            self._head = bytes(data)
            self._loop.call_soon(self._send_head)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Send what waits, and close the connection."""
        self._send_head()
        self._transport.close()

    def abort(self) -> None:
        """Cut the connection; what waits is lost."""
        self._head = b""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether the connection is closing or closed."""
        return self._transport.is_closing()

    def _send_head(self) -> None:
        head, self._head = self._head, b""
        if head:
            self._transport.write(head)


class _Protocol(HttpToolsProtocol):
    """Closes connections that send their headers too slowly, or idle ones for new ones; 431 is for too many headers.

    uvicorn limits neither. Its `timeout_keep_alive_handler` closes the connection: the timer of the headers calls it.
    """

    patience = 10.0
    """Seconds from the start of a connection, or of a further request on it, to the end of the headers."""
    most = math.inf
    """Connections at a time. Another takes the place of an idle one, and is answered 503 where each has a request."""
    idle: ClassVar[dict[_Protocol, None]] = {}
    """Connections without a whole request, the longest so first; of one listener."""
    reported: ClassVar[dict[str, float]] = {}
    """When the log last had that there are too many, by what is done about it; of one listener."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._in_headers = False
        self._header_bytes = 0
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.transport = JoinedWrites(transport, self.loop)
        self._header_timer = self.loop.call_later(self.patience, self.timeout_keep_alive_handler)
        if len(self.connections) <= self.most or self._make_room():
            self.idle[self] = None
        else:
            self._refuse()

    def _make_room(self) -> bool:
        """Close the connection that has been idle the longest: idle ones must not keep requests and probes out."""
        longest = next(iter(self.idle), None)
        if longest is None:
            return False
        self._report("idle connections are closed for new ones")
        del self.idle[longest]
        longest.transport.close()
        return True

    def _refuse(self) -> None:
        self._report("connections are refused")
        head = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n"
        self.transport.write(head + b"content-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()

    def _report(self, what: str) -> None:
        now = self.loop.time()
        if now - self.reported.get(what, -math.inf) >= _REPORT_SECONDS:
            self.reported[what] = now
            message = "%s: %d are open, as many as the limit of open files leaves room for"
            _logger.warning(f"{message} (LimitNOFILE= of systemd, `ulimit -n`)", what, self.most)

    def connection_lost(self, exc: Exception | None) -> None:
        self.idle.pop(self, None)
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_headers:  # most headers arrive whole, and need no timer
            if self._header_timer is None:
                self._header_timer = self.loop.call_later(self.patience, self.timeout_keep_alive_handler)
            self._header_bytes += len(data)
            if self._header_bytes > _HEADER_BYTES and not self.transport.is_closing():
                head = b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
                self.transport.write(head + b"content-length: 0\r\nconnection: close\r\n\r\n")
                self.transport.close()

    def on_message_begin(self) -> None:
        self._header_bytes = 0
        self._in_headers = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self.cycle.response_complete:  # some are answered by their headers
            self.idle.pop(self, None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        is_idle = self.cycle.response_complete or self.cycle.more_body  # else it has a pipelined request, a whole one
        if is_idle and not self.transport.is_closing():
            self.idle[self] = None

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


class Listener(uvicorn.Server):
    """Serves an ASGI application on a bound socket until `stop`, telling when it has begun.

    `serve` of uvicorn calls, in this order, `capture_signals`, `startup`, `main_loop` and `shutdown`; all four are
    overridden. Calls have had their time before `stop` (`_drain`), so that `drain` here is for connections alone.
    """

    def __init__(self, application: Any, *, begun: Callable[[], None], drain: float, patience: float) -> None:
        """`drain` is how many seconds open connections get at the end before their work is cancelled.

        `patience` is how many seconds a client may take for the headers of a request.
        """
        super().__init__(
            uvicorn.Config(
                application,
                http=type(
                    "Protocol",
                    (_Protocol,),
                    {"patience": patience, "most": _most_connections(), "idle": {}, "reported": {}},
                ),
                ws="none",
                lifespan="off",
                interface="asgi3",
                access_log=False,
                log_config=None,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_keep_alive=65,
            )
        )
        self._begun = begun
        self._drain = drain
        self._stopping = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and notify the waiter."""
        await super().startup(sockets)
        self._begun()

    def stop(self) -> None:
        """Take no more connections and let `serve` return."""
        self._stopping.set()

    async def main_loop(self) -> None:
        """Wait for the stop; uvicorn's own loop looks ten times a second."""
        await self.on_tick(0)
        try:
            await self._stopping.wait()
        except BaseException:
            self._cut()
            raise

    def _cut(self) -> None:
        """Close everything at once, after the server was cancelled."""
        for server in self.servers:
            server.close()
        for connection in tuple(self.server_state.connections):
            connection.transport.abort()
        for task in tuple(self.server_state.tasks):
            task.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close listeners and idle connections, give requests the time of the drain, then cut them."""
        for server in self.servers:
            server.close()
        for connection in tuple(self.server_state.connections):
            connection.shutdown()
        if tasks := set(self.server_state.tasks):
            _, late = await asyncio.wait(tasks, timeout=self._drain)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=self._drain)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals alone: uvicorn would raise them again at the end, before anything else is cleaned up."""
        yield


def _most_connections() -> float:
    """Leave a quarter of the files that the process may open, and those of its start, to all that calls need.

    Without a limit of ours the system drops further connections without a word, and no server or file can be opened.
    """
    if sys.platform == "win32":
        return math.inf
    import resource  # Windows has none

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if files == resource.RLIM_INFINITY else max(1, files * 3 // 4 - _FILES_OF_START)


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises `UsageError` when the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        free = "; `--port 0` takes a free one" if error.errno == errno.EADDRINUSE else ""
        raise UsageError(f"cannot listen on {host} port {port}: {error.strerror or error}{free}") from None
    return listener
