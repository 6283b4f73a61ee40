"""The MCP endpoint over HTTP: one POST from its headers to its answer, and the sessions of the handshake era by id.

    headers   415, 406, 413 by content type, `Accept` and length          `_check`
    body      at most `MESSAGE_BYTES`, within `limits.patience` seconds    `HttpEndpoint._body`
    message   parsed; the header `MCP-Protocol-Version` decides the era    `HttpEndpoint._message`
    request   of a session (`_legacy`), or by itself (`_modern`)
    answer    JSON, or an event stream once something was sent before it, or after 15 s

`toolcrib.server.http` has checked host, origin and token before, and serves GET and DELETE.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter, OrderedDict
from typing import Any, Final, cast

import anyio
from msgspec import Struct

from ...core.json import MESSAGE_BYTES
from ...errors import UsageError
from ..headers import NAMED, decode_header, mismatch
from ..jsonrpc import (
    HANDSHAKE_VERSIONS,
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MODERN_VERSIONS,
    REQUEST_CANCELLED,
    VERSION_KEY,
    Notification,
    Request,
    Response,
    RpcError,
    error_message,
    parse,
    result_message,
)
from .http_messages import (
    Headers,
    HttpExchange,
    Receive,
    Refusal,
    Send,
    accepts_json_and_stream,
    is_json,
    send_json,
    send_status,
    trace_of,
)
from .legacy import LegacySession
from .modern import ModernServer, read_envelope, unsupported_version
from .service import Service

SESSION_HEADER: Final = b"mcp-session-id"

_logger = logging.getLogger(__name__)

_WATCH_SECONDS: Final = 0.05
"""A request that takes longer is watched: when its client goes away, its work is cancelled.

Most requests end earlier, and are spared a task of their own.
"""

_STREAM_SECONDS: Final = 15.0
"""A request that takes longer is answered by an event stream, whose pings keep proxies from closing it."""

VERSION_HEADER: Final = b"mcp-protocol-version"
CLOSE: Final = (b"connection", b"close")
RETRY: Final = (b"retry-after", b"1")

_HANDSHAKE: Final = frozenset(version.encode() for version in HANDSHAKE_VERSIONS)
_STATUS: Final = {METHOD_NOT_FOUND: 404, INTERNAL_ERROR: 200, REQUEST_CANCELLED: 200}


class _KeptSession:
    __slots__ = ("session", "used")

    def __init__(self, session: LegacySession, used: float) -> None:
        self.session = session
        self.used = used

    @property
    def is_busy(self) -> bool:
        return bool(self.session.running) or self.session.outlet is not None


class SessionTable:
    """At most `limits.sessions` sessions, each forgotten after `limits.idle` seconds without a request.

    At the cap a new session takes the place of the one that has been idle for longest, of the principal that has most
    (security.md R16). An id is 192 random bits and belongs to one principal; to others it does not exist.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._kept: OrderedDict[str, _KeptSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def open(self, arrival: Arrival) -> tuple[str, LegacySession]:
        """Return a new session and its id.

        Raises `Refusal` when all that are kept are in use, and `UsageError` for an unknown profile.
        """
        session = LegacySession(
            self._service,
            principal=arrival.principal,
            profile=arrival.profile,
            mode=arrival.mode,
            instance=arrival.instance,
        )
        if len(self._kept) >= self._service.limits.sessions:
            self._evict(session)
        session_id = secrets.token_urlsafe(24)
        self._kept[session_id] = _KeptSession(session, time.monotonic())
        return session_id, session

    def find(self, headers: Headers, principal: str, instance: str = "") -> LegacySession:
        """Return the session that the headers name, now the last used one.

        Raises `Refusal`: 400 when they name none, 404 when this principal has no such session as this instance.
        """
        given = headers.get(SESSION_HEADER)
        if given is None:
            raise Refusal(400, "Bad request: send initialize first, then its Mcp-Session-Id with every request")
        session_id = given.decode("latin-1")
        kept = self._kept.get(session_id)
        if kept is None or (kept.session.principal, kept.session.instance) != (principal, instance):
            raise Refusal(404, "Session not found: it was ended or forgotten, send initialize again")
        kept.used = time.monotonic()
        self._kept.move_to_end(session_id)
        return kept.session

    def close(self, session: LegacySession) -> None:
        """End one session."""
        for session_id, kept in self._kept.items():
            if kept.session is session:
                del self._kept[session_id]
                break
        session.close()

    def sweep(self) -> None:
        """End what has been idle for too long."""
        now = time.monotonic()
        for session_id, kept in tuple(self._kept.items()):
            if kept.is_busy:
                kept.used = now
            elif now - kept.used >= self._service.limits.idle:
                del self._kept[session_id]
                kept.session.close()

    def clear(self) -> None:
        """End all."""
        while self._kept:
            self._kept.popitem()[1].session.close()

    def _evict(self, newcomer: LegacySession) -> None:
        """Close one idle session to make room. Raises `Refusal`, and closes `newcomer`, when none is idle."""
        idle = [session_id for session_id, kept in self._kept.items() if not kept.is_busy]
        if idle:
            held = Counter(kept.session.principal for kept in self._kept.values())
            held[newcomer.principal] += 1
            # `_kept` is in the order of use, and `max` takes the first of equals: the one unused for longest.
            self._kept.pop(max(idle, key=lambda one: held[self._kept[one].session.principal])).session.close()
            return
        newcomer.close()
        raise Refusal(503, "Too many sessions are in use; try again later", headers=[(b"retry-after", b"10")])


class Arrival(Struct, frozen=True, kw_only=True):
    """An admitted request: principal, instance, profile, mode and headers."""

    principal: str
    instance: str
    profile: str
    mode: str
    headers: Headers
    receive: Receive
    send: Send


class HttpEndpoint:
    """Serves one POST. Used once.

    The scope of its exchange is around the whole of `serve`: it ends the wait for a body that does not arrive, and the
    work of a request that the client withdraws or leaves.
    """

    def __init__(self, service: Service, sessions: SessionTable, arrival: Arrival) -> None:
        self._service = service
        self._sessions = sessions
        self._arrival = arrival
        self._headers = arrival.headers
        self._exchange = HttpExchange(service.deadlines.scope(), arrival.send, service.spawn)
        self._exchange.trace = trace_of(self._headers)
        self._is_legacy = True
        self._watching: anyio.CancelScope | None = None

    async def serve(self) -> None:
        """Answer any request. Raises `Refusal`."""
        _check(self._headers)
        scope, deadlines = self._exchange.scope, self._service.deadlines
        body: bytes | None = None
        with scope:
            deadlines.watch(scope, time.monotonic() + self._service.limits.patience)
            try:
                body = await self._body()
            finally:
                deadlines.close(scope)
            await self._message(body)
        if scope.cancelled_caught:
            if body is None:
                raise Refusal(408, "Request timeout: the body did not arrive in time", headers=[CLOSE])
            await self._cancelled()

    async def _body(self) -> bytes:
        message = await self._arrival.receive()
        if not message.get("more_body", False):
            return message.get("body", b"")
        parts: list[bytes] = []
        size = 0
        while True:
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > MESSAGE_BYTES:
                raise _too_large()
            if not message.get("more_body", False):
                return b"".join(parts)
            message = await self._arrival.receive()

    async def _message(self, body: bytes) -> None:
        send = self._arrival.send
        try:
            message = parse(body)
        except RpcError as error:
            await send_json(send, error_message(error.request_id, error), status=400)
            return
        version = self._headers.get(VERSION_HEADER)
        self._is_legacy = version is None or version.strip() in _HANDSHAKE
        if isinstance(message, Request):
            self._exchange.request_id = message.id
            await self._request(message)
        elif self._is_legacy:
            session = self._sessions.find(self._headers, self._arrival.principal, self._arrival.instance)
            if isinstance(message, Response):
                session.response(message)
            else:
                session.notification(message)
            await send_status(send, 202)
        else:
            await self._note(message, (version or b"").decode("latin-1"))

    async def _note(self, message: Notification | Response, version: str) -> None:
        """Answer what the stateless era has no use for: a notification is accepted and dropped."""
        if isinstance(message, Response):
            error = RpcError(INVALID_REQUEST, "Invalid request: responses are not sent to this revision")
        elif version not in MODERN_VERSIONS:
            error = unsupported_version(version)
        else:
            await send_status(self._arrival.send, 202)
            return
        await send_json(self._arrival.send, error_message(None, error), status=400)

    async def _request(self, request: Request) -> None:
        if self._service.stopping.is_set():
            raise Refusal(503, "Shutting down: send the request again in a second", headers=[RETRY, CLOSE])
        timer = asyncio.get_running_loop().call_later(_WATCH_SECONDS, self._service.spawn, self._watch)
        try:
            await (self._legacy(request) if self._is_legacy else self._modern(request))
        except RpcError as error:
            await self._exchange.reply(error_message(request.id, error), status=self._status(error))
        except UsageError as error:
            raise Refusal(404, f"Not found: {error}") from None
        except Refusal:
            raise
        except asyncio.CancelledError:
            if not self._service.stopping.is_set():
                raise
            # the end of the drain: an answer in place of the web server's 500 and its traceback in the log
            error = RpcError(REQUEST_CANCELLED, "Cancelled: the server is shutting down")
            await self._exchange.reply(error_message(request.id, error))
        except Exception:
            _logger.exception("the request %s failed", request.method[:100])
            await self._exchange.reply(error_message(request.id, RpcError(INTERNAL_ERROR, "Internal error")))
        finally:
            timer.cancel()
            if self._watching is not None:
                self._watching.cancel()

    async def _watch(self) -> None:
        """Cancel the work when the client goes away; keep the connection alive when it takes long.

        The body was read whole before, so all that `receive` can return now is `http.disconnect`.
        """
        exchange = self._exchange
        with anyio.CancelScope() as self._watching:
            stream = asyncio.get_running_loop().call_later(_STREAM_SECONDS, exchange.stream)
            try:
                while not exchange.ended and (await self._arrival.receive())["type"] != "http.disconnect":
                    pass
                exchange.gone = True
                exchange.withdraw()
            finally:
                stream.cancel()

    async def _legacy(self, request: Request) -> None:
        meta = request.params.get("_meta")
        if isinstance(meta, dict) and VERSION_KEY in meta and request.method != "initialize":
            raise mismatch("MCP-Protocol-Version does not name the revision that the body's _meta names")
        if request.method == "initialize" and SESSION_HEADER not in self._headers:
            await self._initialize(request)
            return
        session = self._sessions.find(self._headers, self._arrival.principal, self._arrival.instance)
        body = await session.request(request, self._exchange)
        if body is not None:
            await self._finish(request, body)

    async def _initialize(self, request: Request) -> None:
        session_id, session = self._sessions.open(self._arrival)
        try:
            body = session.initialize(request)
        except RpcError:
            self._sessions.close(session)
            raise
        headers = [(SESSION_HEADER, session_id.encode())]
        await self._exchange.reply(result_message(request.id, body), headers=headers)

    async def _modern(self, request: Request) -> None:
        envelope = read_envelope(request.params)
        self._check_routing(request, envelope.version)
        arrival = self._arrival
        server = ModernServer(
            self._service,
            principal=arrival.principal,
            profile=arrival.profile,
            mode=arrival.mode,
            instance=arrival.instance,
        )
        body = await server.request(request, envelope, self._exchange)
        if body is not None:
            await self._finish(request, body)

    def _check_routing(self, request: Request, version: str) -> None:
        """Raise `RpcError` when the headers that proxies route by say something else than the body."""
        headers = self._headers
        if headers.get(VERSION_HEADER, b"").strip() != version.encode():
            raise mismatch("MCP-Protocol-Version does not name the revision that the body's _meta names")
        if headers.get(b"mcp-method", b"").strip() != request.method.encode():
            raise mismatch("Mcp-Method does not name the method of the body")
        named = NAMED.get(request.method)
        if named is None:
            return
        target = request.params.get(named)
        if target is not None and decode_header(headers.get(b"mcp-name")) != target:
            raise mismatch(f"Mcp-Name does not say what {named!r} says in the body")
        arguments: Any = request.params.get("arguments") or {}
        if request.method == "tools/call" and isinstance(target, str) and isinstance(arguments, dict):
            self._service.parameter_headers.check(target, cast("dict[str, Any]", arguments), headers)

    async def _finish(self, request: Request, body: bytes) -> None:
        headers = [RETRY] if self._exchange.is_overloaded else []
        await self._exchange.reply(result_message(request.id, body), headers=headers)

    def _status(self, error: RpcError) -> int:
        if self._is_legacy:
            return 400 if error.code == HEADER_MISMATCH else 200
        return _STATUS.get(error.code, 400)

    async def _cancelled(self) -> None:
        """End the response of a request whose work was cancelled. This era ends a stream by an answer only."""
        exchange = self._exchange
        if exchange.gone or exchange.ended:
            return
        error = RpcError(REQUEST_CANCELLED, "Request cancelled")
        await exchange.reply(error_message(exchange.request_id, error))


def _check(headers: Headers) -> None:
    """Raise `Refusal` for a body that is not JSON, is too large, or whose answer the client could not take."""
    if not is_json(headers.get(b"content-type", b"")):
        raise Refusal(415, "Unsupported media type: the body must be application/json", headers=[CLOSE])
    if not accepts_json_and_stream(headers.get(b"accept", b"")):
        message = "Not acceptable: the client must accept application/json and text/event-stream"
        raise Refusal(406, message, headers=[CLOSE])
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 15 or int(length) > MESSAGE_BYTES:
        raise _too_large()


def _too_large() -> Refusal:
    return Refusal(413, f"Payload too large: at most {MESSAGE_BYTES} bytes", headers=[CLOSE])
