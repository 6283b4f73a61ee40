"""One client at the end of a pair of pipes: standard input and output, or a local socket.

The client's first request decides the era of the connection, `server/discover` excepted, which asks without deciding:
`initialize` opens a `LegacySession`, a request whose `_meta` names its revision makes the connection modern. A request
of the other era is an error from then on.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Self

import anyio
from anyio.abc import TaskGroup

from ...core.session import LOCAL
from ...errors import UsageError
from ..jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    VERSION_KEY,
    Request,
    Response,
    RpcError,
    error_message,
    parse,
    result_message,
)
from .exchange import Exchange, take_notification
from .legacy import LegacySession
from .modern import ModernServer, read_envelope, unsupported_version
from .service import Service

_logger = logging.getLogger(__name__)

Send = Callable[[bytes], Awaitable[None]]
"""Sends one message, without line end; waits while the client does not read."""

_INLINE = frozenset({"initialize", "logging/setLevel", "ping"})
"""Requests that are answered before the next message is read.

The request behind `initialize` may be on its way before the answer, and needs the session. A `ping` answered here shows
that messages are read, however many calls run.
"""

_LISTEN = "subscriptions/listen"

_BACKLOG = 256
"""Messages that belong to no request and wait to be sent; above that they are dropped."""


class _LineExchange(Exchange):
    """A request whose messages all go down the same pipe."""

    __slots__ = ("_send",)

    def __init__(self, scope: anyio.CancelScope, send: Send) -> None:
        super().__init__(scope)
        self._send = send

    async def tell(self, message: bytes) -> None:
        if not self.ended:
            await self._send(message)

    async def ask(self, message: bytes) -> None:
        await self._send(message)

    async def answer(self, message: bytes) -> None:
        self.ended = True
        await self._send(message)


class Connection:
    """Serves one client, the user of this process. An asynchronous context manager: leaving it cancels what still runs.

    `feed` takes one message after the other; `send` is called with what goes back, by several tasks at a time.
    """

    def __init__(
        self, service: Service, send: Send, *, profile: str = "", mode: str = "", conversation: str = ""
    ) -> None:
        """Empty `profile` and `mode` take the service's.

        A `conversation` outlives this process under that key; without one it ends with the connection.
        """
        self._service = service
        self._send = send
        self._profile = profile or service.profile
        self._mode = mode or service.mode
        self._legacy: LegacySession | None = None
        self._is_modern = False
        self._conversation = conversation
        # Without a conversation of its own, what one client's user answers would hold for every other client.
        self._modern = ModernServer(
            service,
            principal=LOCAL,
            profile=self._profile,
            mode=self._mode,
            conversation=conversation or secrets.token_hex(8),
        )
        self._running: dict[str | int, Exchange] = {}
        """Requests with a task of their own, for `notifications/cancelled`."""
        self._listening: set[str | int] = set()
        self._tasks: TaskGroup | None = None
        self._outbox, self._unsent = anyio.create_memory_object_stream[bytes](_BACKLOG)

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._pump)
        return self

    async def __aexit__(self, *failure: object) -> None:
        """Close the session first: it withdraws its requests, whose answers are then not sent any more."""
        if self._legacy is not None:
            self._legacy.close()
        try:
            if self._tasks is not None:
                self._tasks.cancel_scope.cancel()
                await self._tasks.__aexit__(None, None, None)
        finally:
            self._outbox.close()
            self._unsent.close()

    @property
    def running(self) -> int:
        """Requests that are being worked on; those that only wait for news are left out."""
        return len(self._running) - len(self._listening)

    async def feed(self, raw: bytes, call: str = "", *, is_again: bool = False) -> None:
        """Take one message. Never raises for what the client sent: a bad message gets an error answer.

        `call` and `is_again` are the `call_id` and `is_again` of its `Exchange`.
        """
        try:
            message = parse(raw)
        except RpcError as error:
            await self._send(error_message(error.request_id, error))
            return
        try:
            if isinstance(message, Request):
                await self._request(message, call, is_again)
            elif isinstance(message, Response):
                if self._legacy is not None:
                    self._legacy.response(message)
            else:
                take_notification(message, self._running)
        except Exception:
            _logger.exception("a %s failed", type(message).__name__.lower())
            if isinstance(message, Request):
                await self._send(error_message(message.id, RpcError(INTERNAL_ERROR, "Internal error")))

    async def _request(self, request: Request, call: str, is_again: bool) -> None:
        exchange = _LineExchange(anyio.CancelScope(), self._send)
        exchange.call_id, exchange.is_again = call, is_again
        if request.method in _INLINE:
            await self._answer(request, exchange)
        elif request.id in self._running:
            refusal = RpcError(INVALID_REQUEST, "Invalid request: a request with this id is still running")
            await self._send(error_message(request.id, refusal))
        elif self._tasks is not None:
            self._running[request.id] = exchange
            if request.method == _LISTEN:
                self._listening.add(request.id)
            self._tasks.start_soon(self._work, request, exchange)

    async def _work(self, request: Request, exchange: Exchange) -> None:
        try:
            with exchange.scope:
                await self._answer(request, exchange)
        finally:
            del self._running[request.id]
            self._listening.discard(request.id)

    async def _answer(self, request: Request, exchange: Exchange) -> None:
        exchange.request_id = request.id
        try:
            body = await self._dispatch(request, exchange)
            message = None if body is None else result_message(request.id, body)
        except RpcError as error:
            message = error_message(request.id, error)
        except UsageError as error:
            message = error_message(request.id, RpcError(INVALID_PARAMS, str(error)))
        except Exception:
            _logger.exception("the request %s failed", request.method[:100])
            message = error_message(request.id, RpcError(INTERNAL_ERROR, "Internal error"))
        if message is not None and not exchange.withdrawn:  # MCP: a cancelled request SHOULD get no response
            await exchange.answer(message)

    async def _dispatch(self, request: Request, exchange: Exchange) -> bytes | None:
        meta = request.params.get("_meta")
        is_modern = isinstance(meta, dict) and VERSION_KEY in meta
        if request.method == "initialize":
            return await self._initialize(request, exchange)
        if is_modern or self._is_modern:
            return await self._dispatch_modern(request, exchange)
        if self._legacy is not None:
            return await self._legacy.request(request, exchange)
        if request.method == "ping":
            return b"{}"
        if request.method == "server/discover":
            read_envelope(request.params)  # always raises, since the version is missing, and names the missing keys
        raise RpcError(INVALID_REQUEST, f"Invalid request: send initialize before {request.method[:100]}")

    async def _initialize(self, request: Request, exchange: Exchange) -> bytes:
        if self._is_modern:
            wanted = request.params.get("protocolVersion")
            raise unsupported_version(wanted if isinstance(wanted, str) else "")
        if self._legacy is not None:
            raise RpcError(INVALID_REQUEST, "Invalid request: this connection was initialised before")
        session = LegacySession(
            self._service, principal=LOCAL, profile=self._profile, mode=self._mode, conversation=self._conversation
        )
        if exchange.is_again:
            await session.session.restore()
        body = session.initialize(request)
        session.listen(self._post, lambda: None)
        self._legacy = session
        return body

    async def _dispatch_modern(self, request: Request, exchange: Exchange) -> bytes | None:
        if self._legacy is not None:
            raise RpcError(INVALID_REQUEST, "Invalid request: this connection began with initialize")
        if request.method in _INLINE:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {request.method}")
        envelope = read_envelope(request.params)
        self._is_modern = self._is_modern or request.method != "server/discover"
        return await self._modern.request(request, envelope, exchange)

    def _post(self, message: bytes) -> None:
        """Send a message that belongs to no request, without waiting; drop it if the client does not keep up.

        Its callers are callbacks of catalog changes. `_send` waits for a client that does not read, so `_pump` calls
        it.
        """
        if self._unsent.statistics().current_buffer_used < _BACKLOG:
            self._outbox.send_nowait(message)

    async def _pump(self) -> None:
        async for message in self._unsent:
            await self._send(message)
