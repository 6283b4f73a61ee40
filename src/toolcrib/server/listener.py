"""uvicorn with additions: limits on headers in size and time, and signals left to the caller."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..errors import UsageError

__all__ = ["Listener", "bind"]

_HEADER_BYTES: Final = 32 * 1024


class _Protocol(HttpToolsProtocol):
    """Closes connections that send their headers too slowly, and answers 431 when there are too many."""

    patience = 10.0
    """Seconds from the start of a connection, or of a further request on it, to the end of the headers."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._in_headers = False
        self._header_bytes = 0
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._header_timer = self.loop.call_later(self.patience, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > _HEADER_BYTES and not self.transport.is_closing():
                head = b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
                self.transport.write(head + b"content-length: 0\r\nconnection: close\r\n\r\n")
                self.transport.close()

    def on_message_begin(self) -> None:
        self._header_bytes = 0
        self._in_headers = True
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(self.patience, self.timeout_keep_alive_handler)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._stop_timer()
        super().on_headers_complete()

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


class Listener(uvicorn.Server):
    """Serves an ASGI application on a bound socket until `stop`, telling when it has begun."""

    def __init__(self, application: Any, *, begun: Callable[[], None], drain: float, patience: float) -> None:
        """`drain` is how many seconds open connections get at the end before their work is cancelled.

        `patience` is how many seconds a client may take for the headers of a request.
        """
        super().__init__(
            uvicorn.Config(
                application,
                http=type("Protocol", (_Protocol,), {"patience": patience}),
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
        raise UsageError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None
    return listener
