"""MCP over HTTP: the whole server, from binding the socket to the last answer."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import anyio

from ..config.sections import TokenSpec
from ..mcp.server.backend import Backend
from ..mcp.server.service import Service, ServiceLimits
from .app import HttpRoute, McpApp
from .auth import Authority
from .listener import Listener, bind
from .request_limits import RequestLimits

__all__ = ["HttpOptions", "MakeRoute", "serve_http"]

MakeRoute = Callable[[RequestLimits, float], HttpRoute]
"""Makes a route of the checks that every request passes, and the seconds that a body may take to arrive."""

_CLOSE_SECONDS: Final = 0.5
"""Seconds for connections to end after the drain, before they are cut."""


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
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


async def serve_http(
    backend: Backend,
    options: HttpOptions,
    *,
    started: Callable[[str], None],
    stop: anyio.Event | None = None,
    routes: Iterable[MakeRoute] = (),
) -> None:
    """Serve until SIGTERM, SIGINT or `stop`, then drain: returns at the latest after `limits.drain` and a second.

    `started` is called with the URL of the endpoint once connections are taken. `routes` are those that slices
    bring, beside MCP's.

    Raises `UsageError` when the address cannot be had or would be open to strangers.
    """
    authority = Authority(options.token, host=options.host, admin_token=options.admin_token, tokens=options.tokens)
    edge = RequestLimits(authority, host=options.host, hosts=options.hosts, origins=options.origins)
    socket = bind(options.host, options.port)
    stopped = stop or anyio.Event()
    with socket:
        async with Service(backend, profile=options.profile, mode=options.mode, limits=options.limits) as service:
            patience = options.limits.patience
            app = McpApp(service, edge, [make(edge, patience) for make in routes])
            name = f"[{options.host}]" if ":" in options.host else options.host
            url = f"http://{name}:{socket.getsockname()[1]}/mcp"
            listener = Listener(app, begun=lambda: started(url), drain=_CLOSE_SECONDS, patience=patience)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_until_signal, service, app, stopped)
                tasks.start_soon(app.sweep)
                tasks.start_soon(_drain, service, app, listener, stopped)
                await listener.serve(sockets=[socket])
                tasks.cancel_scope.cancel()


async def _until_signal(service: Service, app: McpApp, stopped: anyio.Event) -> None:
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        return
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            running, sessions = service.admission.running, len(app.sessions)
            _log.info("stopped by %s: %d sessions, %d running calls", signal.Signals(number).name, sessions, running)
            stopped.set()


async def _drain(service: Service, app: McpApp, listener: Listener, stopped: anyio.Event) -> None:
    """After the stop signal: end streams, give running calls their time, then end the sessions and the server."""
    await stopped.wait()
    service.stop()
    with anyio.move_on_after(service.limits.drain):
        await service.admission.idle()
    app.sessions.clear()
    listener.stop()
