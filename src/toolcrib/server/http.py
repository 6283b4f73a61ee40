"""MCP over HTTP: the ASGI application, and the server from bind to the last answer.

MCP is at `/mcp` and `/mcp/{profile}`, tools by REST at `/v1/tools`, probes at `/healthz` and `/readyz`, and
`/llms.txt`.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final, Protocol

import anyio
from anyio.abc import TaskStatus
from msgspec import Struct, field

from ..config.settings import TokenSpec
from ..core.json import dumps
from ..core.patterns import regex
from ..core.session import LOCAL
from ..core.similar import did_you_mean
from ..mcp.jsonrpc import HANDSHAKE_VERSIONS, INTERNAL_ERROR, MODERN_VERSIONS, RpcError, error_message
from ..mcp.server.backend import Backend
from ..mcp.server.http_endpoint import CLOSE, RETRY, SESSION_HEADER, VERSION_HEADER, Arrival, HttpEndpoint, SessionTable
from ..mcp.server.http_messages import (
    EventStream,
    Receive,
    Refusal,
    Send,
    accepts_stream,
    linger,
    send_body,
    send_json,
    send_status,
)
from ..mcp.server.service import Service, ServiceLimits
from ..system.stop_signals import stop_signals
from .listener import Listener, bind
from .llms_txt import LLMS_TXT
from .request_checks import Authority, RequestLimits, instance_of
from .tools_api import ToolsApi

_logger = logging.getLogger(__name__)

_PATH: Final = regex(r"/mcp(?:/(?P<profile>[a-z0-9_-]{1,64}))?/?")
_HANDSHAKE: Final = frozenset(version.encode() for version in HANDSHAKE_VERSIONS)
_MODERN: Final = frozenset(version.encode() for version in MODERN_VERSIONS)
_SWEEP_SECONDS: Final = 30.0

_CLOSE_SECONDS: Final = 0.5
"""Seconds for connections to end after the drain, before they are cut."""


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

    def __init__(
        self,
        service: Service,
        edge: RequestLimits,
        routes: Iterable[HttpRoute],
        identities: Mapping[str, tuple[str, str]],
    ) -> None:
        """`identities`: profile and mode by principal, as in `HttpOptions`."""
        self._service = service
        self._identities = identities
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
                await self._public(scope["path"], send)
                return
            caller, headers = self._edge.admit(scope)
            profile, mode = self._identities.get(caller.principal, ("", ""))
            arrival = Arrival(
                principal=caller.principal,
                instance=instance_of(caller, headers),
                profile=match["profile"] or profile or self._service.profile,
                mode=mode or self._service.mode,
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

    async def _public(self, path: str, send: Send) -> None:
        """Serve what needs no token. Raises `Refusal` for any other path."""
        if path == "/healthz":
            await send_json(send, b'{"status":"ok"}')
        elif path == "/llms.txt":
            await send_body(send, LLMS_TXT.encode(), b"text/plain; charset=utf-8")
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

        with _streaming(service, arrival.principal):
            unlisten = session.listen(stream.put, stream.end)
            session.catch_up()
            unsubscribe = service.subscribe(end_at_stop)
            service.spawn(watch)
            try:
                await stream.run()
            finally:
                unlisten()
                unsubscribe()


@contextmanager
def _streaming(service: Service, principal: str) -> Generator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(service.streaming(principal))
        except RpcError as error:
            raise Refusal(503, error.message, headers=[RETRY]) from None
        yield


MakeRoute = Callable[[RequestLimits, float], HttpRoute]
"""Makes a route of the checks that every request passes, and the seconds that a body may take to arrive."""


class HttpOptions(Struct, frozen=True, kw_only=True):
    """Address and options of the server. `port` 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 0
    profile: str = "adaptive"
    mode: str = "cautious"
    token: str = ""
    """Bearer token that every request must carry; without one only loopback is served."""
    admin_token: str = ""
    """Bearer token with admin scope; without one, also in `tokens`, administration over HTTP is off."""
    tokens: tuple[TokenSpec, ...] = ()
    """Further tokens, each with its scope."""
    hosts: tuple[str, ...] = ()
    """Further names by which clients reach this server, as in a URL, without port."""
    origins: tuple[str, ...] = ()
    """Web origins whose pages may call this server, as `https://name:port`."""
    limits: ServiceLimits = field(default_factory=ServiceLimits)
    identities: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Profile and mode by principal, in place of the server's; empty takes the server's."""


async def serve_http(
    backend: Backend,
    options: HttpOptions,
    *,
    started: Callable[[str], None],
    stop: anyio.Event | None = None,
    routes: Iterable[MakeRoute] = (),
) -> None:
    """Serve until SIGTERM, SIGINT or `stop`, then drain: returns at the latest after `limits.drain` and a second.

    Signals are taken in the main thread only; a server in another thread ends by `stop`.

    `started` is called with the URL of the endpoint once connections are taken. `routes` are those that slices
    bring, beside MCP's.

    Raises `UsageError` when the address cannot be had or would be open to strangers.
    """
    authority = Authority(options.token, host=options.host, admin_token=options.admin_token, tokens=options.tokens)
    edge = RequestLimits(authority, host=options.host, hosts=options.hosts, origins=options.origins)
    for name in sorted(options.identities.keys() - authority.principals - {LOCAL}):
        meant = did_you_mean(name, authority.principals)
        _logger.warning("identities.%s: no token has this principal%s", name, meant)
    if options.hosts and authority.is_open:
        _logger.warning("hosts: calls need no token: everybody who reaches %s may make them", ", ".join(options.hosts))
    socket = bind(options.host, options.port)
    stopped = stop or anyio.Event()
    with socket:
        async with Service(backend, profile=options.profile, mode=options.mode, limits=options.limits) as service:
            patience = options.limits.patience
            tools = ToolsApi(service, edge, options.identities)
            app = McpApp(service, edge, [tools, *(make(edge, patience) for make in routes)], options.identities)
            name = f"[{options.host}]" if ":" in options.host else options.host
            url = f"http://{name}:{socket.getsockname()[1]}/mcp"
            listener = Listener(app, begun=lambda: started(url), drain=_CLOSE_SECONDS, patience=patience)
            async with anyio.create_task_group() as tasks:
                await tasks.start(_until_signal, service, app, stopped)  # before it says that it serves
                tasks.start_soon(app.sweep)
                tasks.start_soon(_drain, service, app, listener, stopped)
                await listener.serve(sockets=[socket])
                tasks.cancel_scope.cancel()


async def _until_signal(service: Service, app: McpApp, stopped: anyio.Event, *, task_status: TaskStatus[None]) -> None:
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        task_status.started()
        return
    with stop_signals() as signals:
        task_status.started()
        async for number in signals:
            running, sessions = service.admission.running, len(app.sessions)
            _logger.info("stopped by %s: %d sessions, %d running calls", signal.Signals(number).name, sessions, running)
            stopped.set()


async def _drain(service: Service, app: McpApp, listener: Listener, stopped: anyio.Event) -> None:
    """After the stop signal: end streams, give running calls their time, then end the sessions and the server."""
    await stopped.wait()
    service.stop()
    with anyio.move_on_after(service.limits.drain):
        await service.admission.idle()
    app.sessions.clear()
    listener.stop()
