"""MCP over HTTP: the ASGI application, its listener (uvicorn), and the server from bind to the last answer.

MCP is at `/mcp` and `/mcp/{profile}`, tools by REST at `/v1/tools`, probes at `/healthz` and `/readyz`, and
`/llms.txt`. The listener limits the headers of a request in size and time, and leaves signals to the caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, ClassVar, Final, Protocol

import anyio
import uvicorn
from anyio.abc import TaskStatus
from msgspec import Struct, field
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..config.settings import TokenSpec
from ..core.json import dumps
from ..core.patterns import regex
from ..core.session import LOCAL
from ..core.similar import did_you_mean
from ..errors import UsageError
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
from .llms_txt import LLMS_TXT
from .request_checks import Authority, RequestLimits, instance_of
from .tools_api import ToolsApi

_HEADER_BYTES: Final = 32 * 1024

_logger = logging.getLogger(__name__)

_PATH: Final = regex(r"/mcp(?:/(?P<profile>[a-z0-9_-]{1,64}))?/?")
_HANDSHAKE: Final = frozenset(version.encode() for version in HANDSHAKE_VERSIONS)
_MODERN: Final = frozenset(version.encode() for version in MODERN_VERSIONS)
_SWEEP_SECONDS: Final = 30.0

_CLOSE_SECONDS: Final = 0.5
"""Seconds for connections to end after the drain, before they are cut."""

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
