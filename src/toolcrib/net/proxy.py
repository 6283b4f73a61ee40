"""Egress proxy of sandboxed commands: named hosts at checked addresses, TLS names included.

    CONNECT host:port    a tunnel; its first bytes go on once TLS, if that is what they are, asks for the same host
    GET http://host/…    one request and its answer, rewritten for the far side

Either way the host must be among those of the command, and the connection goes to an address that was looked up and
checked here: a command has no other way out, so that names which resolve to private addresses lead nowhere. A target
that two readers could take differently is refused.
"""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import anyio
import h11
from anyio.abc import SocketListener, SocketStream
from msgspec import Struct, field

from ..core.patterns import regex
from ..core.sandbox import Reach
from .guard import Allowed, NetFailure, Resolve, system_resolve
from .urls import DEFAULT_PORTS

_TLS_HANDSHAKE: Final = 0x16
_MAX_HELLO_BYTES: Final = 64 * 1024
"""Bytes; the first message of today's clients has some 2,000."""

_logger = logging.getLogger(__name__)
_PIECE_BYTES: Final = 64 * 1024
_MAX_HEAD_BYTES: Final = 32 * 1024
"""Bytes of a request's or an answer's first line and headers."""
_AUTHORITY: Final = r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})"
_TUNNEL_TARGET: Final = regex(rf"{_AUTHORITY}:([0-9]{{1,5}})")
_ABSOLUTE_URL: Final = regex(rf"(?i:http)://{_AUTHORITY}(?::([0-9]{{1,5}}))?([/?][!-~]*)?")
_HOP_BY_HOP_HEADERS: Final = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer transfer-encoding"
    b" upgrade expect host".split()
)
"""Headers between two neighbours, and `Host`, which is written anew."""
_CONNECTION_ENDED: Final = (
    anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError, h11.ProtocolError
)  # fmt: skip


class TlsHello:
    """Reads the first bytes of one connection, as they come. TLS itself is read by the library, in memory.

    The handshake is begun with a server context that has no certificate, only for its callback with the name; it then
    fails, and the same bytes go to the real server.
    """

    def __init__(self) -> None:
        self.name = ""
        """The host that is asked for; empty when it is not TLS, or names none."""
        self.is_unread = False
        """It looks like TLS and cannot be read: an old version of it, or one that our library does not know."""
        self._is_heard = False
        self._read = 0
        self._incoming = ssl.MemoryBIO()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.sni_callback = self._note_name
        self._server = context.wrap_bio(self._incoming, ssl.MemoryBIO(), server_side=True)

    def is_over(self, data: bytes) -> bool:
        """Take more bytes; return whether nothing more has to be waited for."""
        if not data:
            return False
        if not self._read and data[0] != _TLS_HANDSHAKE:
            return True
        self._read += len(data)
        self._incoming.write(data)
        try:
            self._server.do_handshake()
        except ssl.SSLWantReadError:
            if self._read <= _MAX_HELLO_BYTES:
                return False
        except ssl.SSLError:  # we have no certificate to go on with
            pass
        self.is_unread = not self._is_heard
        return True

    def _note_name(self, _server: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> int:
        self._is_heard = True
        self.name = (name or "").rstrip(".").lower()
        return ssl.ALERT_DESCRIPTION_HANDSHAKE_FAILURE


class ProxyLimits(Struct, frozen=True, kw_only=True):
    """Limits of the connections of one command (security.md T15, T20)."""

    connections: int = 64
    """At a time; more wait."""
    head_seconds: float = 30.0
    """Until a request is there."""
    connect_seconds: float = 15.0
    """For all addresses of a host."""
    idle_seconds: float = 300.0
    """Without a byte in either direction."""
    traffic: int = 4 << 30
    """Bytes, both directions of all connections together."""


class Proxy:
    """Serves the sandboxes of one crib; without a state of its own. See `core.sandbox.Outlet`."""

    def __init__(self, *, resolve: Resolve = system_resolve, limits: ProxyLimits | None = None) -> None:
        """`resolve` looks up names."""
        self._resolve = resolve
        self._limits = limits or ProxyLimits()

    async def serve(self, listener: SocketListener, reach: Reach, refused: Callable[[str], None]) -> None:
        """Serve connections until cancelled; `refused` receives each refused destination, and the reason."""
        visit = _ProxySession(
            allowed=Allowed.of(reach.hosts, reach.private), resolve=self._resolve, limits=self._limits, refused=refused
        )
        slots = anyio.Semaphore(self._limits.connections)
        async with listener, anyio.create_task_group() as group:
            while True:
                await slots.acquire()
                try:
                    group.start_soon(visit.exchange, await listener.accept(), slots)
                except OSError as error:  # too many open files: those that wait are served when there are fewer
                    _logger.warning("the proxy of a command cannot take a connection: %s", error)
                    slots.release()
                    await anyio.sleep(1)


class _Refusal(Exception):
    """An exchange that ends with a status of ours."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class _Target(Struct, frozen=True, kw_only=True):
    """Destination of a request."""

    host: str
    """As it is compared: lower case, no brackets, no dot at the end."""
    port: int
    authority: bytes
    """The value that `Host` must have."""
    path: bytes = b""
    """Empty for a tunnel."""

    @property
    def shown(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _Wire(Struct, kw_only=True):
    """One connection, and what HTTP knows of it."""

    stream: SocketStream
    peer: h11.Connection
    seconds: float

    async def event(self) -> object:
        """Return the next event. Raises `TimeoutError` after so many seconds without a byte."""
        while (found := self.peer.next_event()) is h11.NEED_DATA:
            if self.peer.they_are_waiting_for_100_continue:
                await self.send(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
            try:
                with anyio.fail_after(self.seconds):
                    data = await self.stream.receive(_PIECE_BYTES)
            except anyio.EndOfStream:
                data = b""
            self.peer.receive_data(data)
        return found

    async def send(self, event: h11.Event) -> None:
        """Write an event."""
        if data := self.peer.send(event):
            await self.stream.send(data)


class _Activity(Struct):
    """Time of the last byte in a tunnel, in either direction."""

    at: float = field(default_factory=anyio.current_time)


class _TimedEnd(Struct, frozen=True, kw_only=True):
    """One end of a tunnel."""

    stream: SocketStream
    moved: _Activity
    """The same at both ends: one may listen for hours while the other speaks."""
    seconds: float

    async def receive(self) -> bytes:
        """Return the next bytes. Raises `BrokenResourceError` when nothing moved for too long, in either direction."""
        while True:
            with anyio.move_on_after(self.seconds):
                data = await self.stream.receive(_PIECE_BYTES)
                self.moved.at = anyio.current_time()
                return data
            if self.moved.at + self.seconds <= anyio.current_time():
                raise anyio.BrokenResourceError


class _ProxySession(Struct, kw_only=True):
    """The connections of one command."""

    allowed: Allowed
    resolve: Resolve
    limits: ProxyLimits
    refused: Callable[[str], None]
    traffic: int = 0

    async def exchange(self, stream: SocketStream, slots: anyio.Semaphore) -> None:
        """Serve one connection to its end, with any outcome."""
        peer = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES)
        inside = _Wire(stream=stream, peer=peer, seconds=self.limits.head_seconds)
        try:
            async with stream:
                with suppress(*_CONNECTION_ENDED, TimeoutError):
                    await self._serve(inside)
        except Exception:  # of one connection: the command goes on
            _logger.exception("the proxy of a command failed")
        finally:
            slots.release()

    async def _serve(self, inside: _Wire) -> None:
        try:
            try:
                request = await inside.event()
            except h11.RemoteProtocolError as error:
                raise _Refusal(400, f"invalid request: {error}") from error
            if not isinstance(request, h11.Request):  # it went away without one
                return
            target = _parse_target(request)
            far = await self._connect(target)
        except _Refusal as refusal:
            await _answer(inside, refusal)
            return
        async with far:
            inside.seconds = self.limits.idle_seconds
            if target.path:
                await self._forward(inside, far, request, target)
            else:
                await inside.send(h11.Response(status_code=200, headers=[], reason=b"Connection established"))
                await self._tunnel(inside, far, target)

    async def _connect(self, target: _Target) -> SocketStream:
        """Open a connection to a target that may be reached. Raises `_Refusal`."""
        if self.traffic > self.limits.traffic:
            raise self._refuse(target, f"this command has moved more than {self.limits.traffic >> 20} MiB already")
        if not self.allowed.names(target.host, target.port):
            raise self._refuse(target, "it is not among the hosts that this command may reach")
        try:
            self.allowed.guard.check("https", target.host, target.port)
            addresses = await self.allowed.guard.addresses(target.host, target.port, self.resolve)
        except NetFailure as failure:
            if failure.code == "denied":
                raise self._refuse(target, failure.message) from failure
            raise _Refusal(502, failure.message) from failure
        cause = ""
        for address in addresses:
            with anyio.move_on_after(self.limits.connect_seconds / len(addresses)):
                try:
                    return await anyio.connect_tcp(address, target.port)
                except OSError as error:
                    cause = f": {error}"
        raise _Refusal(502, f"{target.shown} cannot be reached{cause}")

    def _refuse(self, target: _Target, why: str) -> _Refusal:
        reason = f"{target.shown}: {why}"
        _logger.info("a command was refused %s", reason)
        self.refused(reason)
        return _Refusal(403, reason)

    def _count(self, data: bytes) -> None:
        """Count what goes through. Raises `BrokenResourceError` once it is too much."""
        self.traffic += len(data)
        if self.traffic > self.limits.traffic:
            raise anyio.BrokenResourceError

    # Tunnels

    async def _tunnel(self, inside: _Wire, far: SocketStream, target: _Target) -> None:
        early, _ = inside.peer.trailing_data
        near = _TimedEnd(stream=inside.stream, moved=_Activity(), seconds=self.limits.idle_seconds)
        there = _TimedEnd(stream=far, moved=near.moved, seconds=near.seconds)
        async with anyio.create_task_group() as group:

            async def out() -> None:
                with suppress(*_CONNECTION_ENDED):
                    await self._pump(near, there, await self._check_tls_name(near, early, target))
                    return
                group.cancel_scope.cancel()

            async def back() -> None:
                with suppress(*_CONNECTION_ENDED):
                    await self._pump(there, near, b"")
                    return
                group.cancel_scope.cancel()

            group.start_soon(out)
            group.start_soon(back)

    async def _pump(self, source: _TimedEnd, target: _TimedEnd, data: bytes) -> None:
        """Copy one way, and its end too. Raises `BrokenResourceError` when nothing has moved for too long."""
        while True:
            if data:
                self._count(data)
                await target.stream.send(data)
            try:
                data = await source.receive()
            except anyio.EndOfStream:
                await target.stream.send_eof()
                return

    async def _check_tls_name(self, source: _TimedEnd, data: bytes, target: _Target) -> bytes:
        """Return the first bytes of a tunnel, once it is known that TLS asks for its host there.

        Raises `BrokenResourceError` when it asks for another one.
        """
        hello = TlsHello()
        head = b""
        while not hello.is_over(data):
            head += data
            data = await source.receive()
        if hello.is_unread:
            self._refuse(target, "TLS there does not tell which host it asks for (versions before 1.2 do not here)")
            raise anyio.BrokenResourceError
        if hello.name and hello.name != target.host:
            self._refuse(target, f"TLS asks for {hello.name!r} there, which is another host")
            raise anyio.BrokenResourceError
        return head + data

    # Requests in clear

    async def _forward(self, inside: _Wire, stream: SocketStream, request: h11.Request, target: _Target) -> None:
        peer = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
        far = _Wire(stream=stream, peer=peer, seconds=self.limits.idle_seconds)
        headers = [(b"host", target.authority), *_forwarded_headers(request.headers), (b"connection", b"close")]
        if _has_chunks(request.headers):
            headers.append((b"transfer-encoding", b"chunked"))
        await far.send(h11.Request(method=request.method, target=target.path, headers=headers))
        async with anyio.create_task_group() as group:

            async def body() -> None:
                with suppress(*_CONNECTION_ENDED, TimeoutError):
                    await self._copy(inside, far)

            group.start_soon(body)
            with suppress(*_CONNECTION_ENDED, TimeoutError):
                while not isinstance(answer := await far.event(), h11.Response):
                    if not isinstance(answer, h11.InformationalResponse):
                        raise anyio.BrokenResourceError
                headers = [*_forwarded_headers(answer.headers), (b"connection", b"close")]
                await inside.send(h11.Response(status_code=answer.status_code, headers=headers, reason=answer.reason))
                await self._copy(far, inside)
            group.cancel_scope.cancel()
        if inside.peer.our_state is h11.SEND_RESPONSE:
            await _answer(inside, _Refusal(502, f"{target.shown} broke off the exchange"))

    async def _copy(self, source: _Wire, target: _Wire) -> None:
        """Copy the body of a message."""
        while isinstance(part := await source.event(), h11.Data):
            self._count(part.data)
            await target.send(h11.Data(data=bytes(part.data)))
        if not isinstance(part, h11.EndOfMessage):
            raise anyio.BrokenResourceError
        await target.send(h11.EndOfMessage())


def _parse_target(request: h11.Request) -> _Target:
    """Return the target of a request. Raises `_Refusal` for one that can be read in two ways."""
    is_tunnel = request.method == b"CONNECT"
    text = request.target.decode("ascii", "replace")
    found = (_TUNNEL_TARGET if is_tunnel else _ABSOLUTE_URL).fullmatch(text)
    if found is None:
        raise _Refusal(400, "this is a proxy: `CONNECT host:port`, or a request for http://host/…, was expected")
    port = int(found[2]) if found[2] else DEFAULT_PORTS["http"]
    if not 0 < port < 65536:
        raise _Refusal(400, f"{port} is not a port")
    host = found[1].strip("[]").rstrip(".").lower()
    names = [value for name, value in request.headers if name == b"host"]
    if any(_authority_of(name, port) != (host, port) for name in names):
        raise _Refusal(400, "`Host` names another host than the request itself")
    if not is_tunnel and _has_chunks(request.headers) and any(name == b"content-length" for name, _ in request.headers):
        raise _Refusal(400, "a request with a length and with chunks can be read in two ways")
    authority = found[1] if is_tunnel or not found[2] else f"{found[1]}:{port}"
    path = "" if is_tunnel else found[3] or "/"
    path = f"/{path}" if path.startswith("?") else path
    return _Target(host=host, port=port, authority=authority.encode(), path=path.encode())


def _authority_of(header: bytes, port: int) -> tuple[str, int] | None:
    """Return host and port of a `Host` header; without one it is the port of the request itself."""
    found = re.fullmatch(rf"{_AUTHORITY}(?::([0-9]{{1,5}}))?", header.decode("latin-1"))
    return (found[1].strip("[]").rstrip(".").lower(), int(found[2] or port)) if found else None


def _has_chunks(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(name == b"transfer-encoding" for name, _ in headers)


def _forwarded_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers that are for the far side, and not for its neighbour."""
    listed = b",".join(value for name, value in headers if name == b"connection").lower().split(b",")
    left = _HOP_BY_HOP_HEADERS | {name.strip() for name in listed}
    return [(bytes(name), bytes(value)) for name, value in headers if name not in left]


async def _answer(inside: _Wire, refusal: _Refusal) -> None:
    """Say why there is no answer, in the words that programs show: the reason, and a text."""
    text = f"{refusal.message}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(text))]
    reason = {400: b"Bad request", 403: b"Refused by the sandbox"}.get(refusal.status, b"Not reached")
    await inside.send(
        h11.Response(status_code=refusal.status, headers=[*headers, (b"connection", b"close")], reason=reason)
    )
    await inside.send(h11.Data(data=text))
    await inside.send(h11.EndOfMessage())
