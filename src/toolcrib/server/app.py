"""The ASGI application: MCP at `/mcp` and `/mcp/{profile}`; `/healthz` and `/readyz` for probes."""

from __future__ import annotations

import logging
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final, Protocol

import anyio

from ..core.json import dumps
from ..mcp.jsonrpc import HANDSHAKE_VERSIONS, INTERNAL_ERROR, MODERN_VERSIONS, RpcError, error_message
from ..mcp.server.http_endpoint import CLOSE, RETRY, VERSION_HEADER, Arrival, HttpEndpoint
from ..mcp.server.http_messages import (
    EventStream,
    Receive,
    Refusal,
    Send,
    accepts_stream,
    linger,
    send_json,
    send_status,
)
from ..mcp.server.service import Service
from ..mcp.server.session_table import SESSION_HEADER, SessionTable
from .request_limits import RequestLimits, instance_of

__all__ = ["HttpRoute", "McpApp"]

_logger = logging.getLogger(__name__)

_PATH: Final = re.compile(r"/mcp(?:/(?P<profile>[a-z0-9_-]{1,64}))?/?")
_HANDSHAKE: Final = frozenset(version.encode() for version in HANDSHAKE_VERSIONS)
_MODERN: Final = frozenset(version.encode() for version in MODERN_VERSIONS)
_SWEEP_SECONDS: Final = 30.0


class HttpRoute(Protocol):
    """ASGI application with paths of its own beside MCP's, brought by a slice."""

    def serves(self, path: str) -> bool:
        """Whether the path belongs to this route."""
        ...

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request for one of its paths."""
        ...


class McpApp:
    """The ASGI application. Works while its service is open; `sessions` are those of the handshake era."""

    def __init__(self, service: Service, edge: RequestLimits, routes: Iterable[HttpRoute] = ()) -> None:
        self._service = service
        self._routes = tuple(routes)
        self._edge = edge
        self.sessions = SessionTable(service)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served here, not {scope['type']}")
        for route in self._routes:
            if route.serves(scope["path"]):
                await route(scope, receive, send)
                return
        try:
            match = _PATH.fullmatch(scope["path"])
            if match is None:
                await self._watched(scope["path"], send)
                return
            caller, headers = self._edge.admit(scope["headers"])
            profile = match["profile"] or self._service.profile
            arrival = Arrival(
                principal=caller.principal,
                instance=instance_of(caller, headers),
                profile=profile,
                headers=headers,
                receive=receive,
                send=send,
            )
            await self._mcp(scope["method"], arrival)
        except Refusal as refusal:
            body = error_message(None, RpcError(refusal.code, refusal.message))
            if refusal.status == 413:
                await send_json(send, body, status=413, headers=refusal.headers, more=True)
                await linger(receive)
                await send({"type": "http.response.body", "body": b""})
            else:
                await send_json(send, body, status=refusal.status, headers=refusal.headers)
        except Exception:
            _logger.exception("a %s of %s failed", scope["method"], scope["path"][:200])
            body = error_message(None, RpcError(INTERNAL_ERROR, "Internal error"))
            with suppress(RuntimeError):  # the server's word for a response that has begun: it closes the connection
                await send_json(send, body, status=500)

    async def sweep(self) -> None:
        """Forget idle sessions and conversations, until cancelled."""
        while True:
            await anyio.sleep(_SWEEP_SECONDS)
            self.sessions.sweep()
            self._service.sessions.sweep()

    async def _watched(self, path: str, send: Send) -> None:
        if path == "/healthz":
            await send_json(send, b'{"status":"ok"}')
        elif path == "/readyz":
            answer = await self._readiness()
            await send_json(send, dumps(answer), status=200 if answer["status"] == "ready" else 503)
        else:
            raise Refusal(404, "Not found: MCP is served at /mcp")

    async def _readiness(self) -> Mapping[str, Any]:
        """Return the body of `/readyz`: names of failing parts.

        Their reasons are in the log, since the page is public.
        """
        if self._service.stopping.is_set():
            return {"status": "stopping"}
        if failing := await self._service.failing():
            return {"status": "unavailable", "failed": sorted(failing)}
        return {"status": "ready" if self._service.is_ready else "starting"}

    async def _mcp(self, method: str, arrival: Arrival) -> None:
        version = arrival.headers.get(VERSION_HEADER)
        if method == "POST":
            await HttpEndpoint(self._service, self.sessions, arrival).serve()
        elif method not in ("GET", "DELETE") or version in _MODERN:
            allowed = b"POST" if version in _MODERN else b"GET, POST, DELETE"
            raise Refusal(405, "Method not allowed", headers=[(b"allow", allowed)])
        elif version is not None and version not in _HANDSHAKE:
            raise Refusal(400, "Bad request: MCP-Protocol-Version names a revision that is not served")
        elif method == "GET":
            await self._listen(arrival)
        else:
            self.sessions.close(self.sessions.find(arrival.headers, arrival.principal, arrival.instance))
            await send_status(arrival.send, 204)

    async def _listen(self, arrival: Arrival) -> None:
        """Serve the stream of a session for what belongs to no request. A second one takes the place of the first."""
        headers, service = arrival.headers, self._service
        if not accepts_stream(headers.get(b"accept", b"")):
            raise Refusal(406, "Not acceptable: the client must accept text/event-stream")
        session = self.sessions.find(headers, arrival.principal, arrival.instance)
        if service.stopping.is_set():
            raise Refusal(503, "Shutting down", headers=[RETRY, CLOSE])
        stream = EventStream(arrival.send, [(SESSION_HEADER, headers[SESSION_HEADER])])

        def end_at_stop() -> None:
            if service.stopping.is_set():
                stream.end()

        async def watch() -> None:
            while not stream.finished.is_set() and (await arrival.receive())["type"] != "http.disconnect":
                pass
            stream.end()

        with _streaming(service):
            unlisten = session.listen(stream.put, stream.end)
            unsubscribe = service.subscribe(end_at_stop)
            service.spawn(watch)
            try:
                await stream.run()
            finally:
                unlisten()
                unsubscribe()


@contextmanager
def _streaming(service: Service) -> Generator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(service.streaming())
        except RpcError as error:
            raise Refusal(503, error.message, headers=[RETRY]) from None
        yield
