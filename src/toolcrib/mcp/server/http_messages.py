"""HTTP messages of the server: headers and refusals of requests; responses as JSON or as an event stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import anyio

from ...core.call import TRACE
from ...errors import ToolFailure
from ..jsonrpc import INVALID_REQUEST
from ..sse import PING, encode_events
from .exchange import Exchange

Headers = Mapping[bytes, bytes]
"""By lower-case name."""

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Pair = tuple[bytes, bytes]
"""A header: name and value."""

_PING_SECONDS: Final = 15.0
"""Silence after which a comment is sent, so that proxies keep the connection."""

_LINGER_SECONDS: Final = 0.5
_LINGER_BYTES: Final = 16 * 1024 * 1024

_BACKLOG: Final = 1000
"""Messages that wait for a client that reads slowly; notifications above that are dropped."""

_STREAM_HEADERS: Final[tuple[Pair, ...]] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class Refusal(Exception):
    """A request that is turned away with an HTTP status. `code` is the JSON-RPC error code in the body."""

    def __init__(
        self, status: int, message: str, *, code: int = INVALID_REQUEST, headers: Iterable[tuple[bytes, bytes]] = ()
    ):
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.headers = tuple(headers)


def trace_of(headers: Headers) -> dict[str, str]:
    """Return the trace context of a request."""
    return {name: headers[name.encode()].decode("latin-1") for name in TRACE if name.encode() in headers}


@lru_cache(maxsize=256)
def is_json(content_type: bytes) -> bool:
    """Whether a body is declared to be JSON in UTF-8."""
    media, *parameters = (part.strip().lower() for part in content_type.split(b";"))
    charsets = [part for part in parameters if part.startswith(b"charset=")]
    return media == b"application/json" and all(
        part.strip(b'"') in (b"charset=utf-8", b'charset="utf-8') for part in charsets
    )


@lru_cache(maxsize=256)
def _media_types(accept: bytes) -> frozenset[bytes]:
    return frozenset(part.split(b";")[0].strip().lower() for part in accept.split(b","))


def accepts_stream(accept: bytes) -> bool:
    """Whether the client takes an event stream."""
    return not _media_types(accept).isdisjoint((b"text/event-stream", b"text/*", b"*/*"))


def accepts_json_and_stream(accept: bytes) -> bool:
    """Whether the client takes both JSON and an event stream, as the transport asks of every POST."""
    return accepts_stream(accept) and not _media_types(accept).isdisjoint(
        (b"application/json", b"application/*", b"*/*")
    )


async def send_body(
    send: Send, body: bytes, content_type: bytes, *, status: int = 200, headers: Iterable[Pair] = (), more: bool = False
) -> None:
    """Send a whole response; with `more`, leave it to the caller to end it."""
    fields = [(b"content-type", content_type), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def send_json(
    send: Send, body: bytes, *, status: int = 200, headers: Iterable[Pair] = (), more: bool = False
) -> None:
    """Send a whole JSON response, as `send_body` does."""
    await send_body(send, body, b"application/json", status=status, headers=headers, more=more)


async def send_status(send: Send, status: int, *, headers: Iterable[Pair] = ()) -> None:
    """Send a response without a body."""
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0"), *headers]})
    await send({"type": "http.response.body", "body": b""})


async def linger(receive: Receive) -> None:
    """Read part of an unwanted body: closing at once would reset the connection and lose the answer."""
    size = 0
    with anyio.move_on_after(_LINGER_SECONDS):
        while size < _LINGER_BYTES:
            message = await receive()
            size += len(message.get("body", b""))
            if not message.get("more_body", False):
                return


class EventStream:
    """A `text/event-stream` response. `put` never blocks; `run` writes until `end`.

    Up to 1,000 messages wait for a client that reads slowly; those that wait together go out in one write. Events have
    no ids, so a stream is never resumed: its client lists again (`legacy.LegacySession.catch_up`).
    """

    def __init__(self, send: Send, headers: Iterable[Pair]) -> None:
        self._send = send
        self._headers = [*_STREAM_HEADERS, *headers]
        self._waiting: deque[bytes] = deque()
        self._wake = anyio.Event()
        self._ending = False
        self.finished = anyio.Event()

    def put(self, message: bytes) -> bool:
        """Queue `message`; False when it was dropped because the client does not keep up or the stream ends."""
        if self._ending or len(self._waiting) >= _BACKLOG:
            return False
        self._waiting.append(message)
        self._wake.set()
        return True

    def end(self, message: bytes | None = None) -> None:
        """Send what waits, then `message`, and close."""
        if not self._ending:
            if message is not None:
                self._waiting.append(message)
            self._ending = True
            self._wake.set()

    async def run(self) -> None:
        """Write the response; returns after `end`."""
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": self._headers})
            await self._flush()
            while not self._ending:
                with anyio.move_on_after(_PING_SECONDS) as silence:
                    await self._wake.wait()
                self._wake = anyio.Event()
                if silence.cancelled_caught:
                    await self._write(PING)
                await self._flush()
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._ending = True
            self.finished.set()

    async def _flush(self) -> None:
        if not self._waiting:
            # An empty chunk makes the server send the headers now.
            await self._write(b"")
        while self._waiting:
            events = encode_events(self._waiting)
            self._waiting.clear()
            await self._write(events)

    async def _write(self, body: bytes) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": True})


class HttpExchange(Exchange):
    """One POST. `spawn` runs the writer of an event stream beside the request.

    The response is undecided until its first byte: an answer alone goes out as JSON with its status, anything sent
    before the answer makes it an event stream, whose status is 200.
    """

    __slots__ = ("_headers", "_send", "_spawn", "_stream", "gone")

    def __init__(
        self, scope: anyio.CancelScope, send: Send, spawn: Callable[[Callable[[], Awaitable[None]]], None]
    ) -> None:
        super().__init__(scope)
        self._send = send
        self._spawn = spawn
        self._headers: tuple[Pair, ...] = ()
        self._stream: EventStream | None = None
        self.gone = False
        """True once the client has closed the connection."""

    def stream(self) -> None:
        """Make the answer an event stream, if that is not decided yet."""
        if self._stream is None and not self.ended:
            self._stream = EventStream(self._send, self._headers)
            self._spawn(self._stream.run)

    async def tell(self, message: bytes) -> None:
        """Send it as an event."""
        self.stream()
        if self._stream is not None:
            self._stream.put(message)

    async def ask(self, message: bytes) -> None:
        """Send it as an event; raises `ToolFailure` when the response has ended or the client does not keep up."""
        self.stream()
        if self._stream is None or not self._stream.put(message):
            raise ToolFailure("unavailable", "the client cannot be asked any more: its request has ended")

    async def answer(self, message: bytes) -> None:
        """Send it with status 200."""
        await self.reply(message)

    async def reply(self, message: bytes, *, status: int = 200, headers: Iterable[Pair] = ()) -> None:
        """Send the answer and end. Status and headers are for plain answers; a stream has sent its own."""
        if self.ended:
            return
        self.ended = True
        if self._stream is None:
            await send_json(self._send, message, status=status, headers=headers)
        else:
            self._stream.end(message)
            await self._stream.finished.wait()
