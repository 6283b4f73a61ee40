"""Guarded HTTP client: connections only to checked addresses, bounded responses, and the curl line of a request."""

from __future__ import annotations

import shlex
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib.metadata import version
from typing import Any, Final, cast
from urllib.parse import urlsplit

import anyio
import httpcore2
import httpx2
from msgspec import Struct, field
from msgspec.structs import replace

from ..core.services.host import Page
from .guard import Guard, NetFailure, Resolve, system_resolve
from .urls import DEFAULT_PORTS, is_address, is_loopback, origin, same_origin

_MAX_CONNECTIONS: Final = 64
_MAX_IDLE_CONNECTIONS: Final = 16
_IDLE_CONNECTION_SECONDS: Final = 30.0

_REDIRECTS: Final = (301, 302, 303, 307, 308)
_METHOD_PRESERVING_REDIRECTS: Final = (307, 308)
_READ_METHODS: Final = ("GET", "HEAD")
_FORWARDED_HEADERS: Final = ("accept", "accept-language", "user-agent")
_BODY_HEADERS: Final = ("content-type", "content-encoding", "content-language", "content-length")
_UNSENT_ERRORS: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_MIN_RATIO_BYTES: Final = 1 << 20
"""Bytes; below that a body may be compressed as well as it likes."""

MASK = "***"
"""Stands for every secret."""

_MAX_SHOWN_BODY_LENGTH = 4000
"""Characters of a body that are shown."""


class _GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Opens sockets. Addresses are tried one after the other, each with a fair part of the time that is left."""

    def __init__(self, guard: Guard, resolve: Resolve) -> None:
        self._guard = guard
        self._resolve = resolve
        self._inner = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        addresses = await self._guard.addresses(host, port, self._resolve)
        each = None if timeout is None else timeout / len(addresses)
        for address in addresses[:-1]:
            try:
                return await self._inner.connect_tcp(address, port, each, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._inner.connect_tcp(addresses[-1], port, each, local_address, socket_options)


class GuardedTransport(httpx2.AsyncBaseTransport):
    """A connection pool behind a guard. No proxy, no environment.

    The guard sits in the pool's network backend: the address that was checked is the one that is connected to. A check
    of the URL before the request would leave a second look-up, which may answer otherwise (DNS rebinding).
    """

    def __init__(self, guard: Guard, resolve: Resolve, tls: ssl.SSLContext | None) -> None:
        """`tls` None is created at the first `https` request: loading the certificates takes 30 ms."""
        self._backend = _GuardedBackend(guard, resolve)
        self._tls = tls
        self._pools: dict[str, httpcore2.AsyncConnectionPool] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; raises `NetFailure` for a refused address and httpx2's errors for everything else."""
        url = request.url
        sent = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _translated():
            response: Any = await self._pool(url.scheme).handle_async_request(sent)
        return httpx2.Response(
            status_code=response.status,
            headers=response.headers,
            stream=_Body(response.stream),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close every connection."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.aclose()

    def _pool(self, scheme: str) -> httpcore2.AsyncConnectionPool:
        pool = self._pools.get(scheme)
        if pool is None:
            if scheme == "https" and self._tls is None:
                self._tls = httpx2.create_ssl_context(trust_env=False)
            pool = self._pools[scheme] = httpcore2.AsyncConnectionPool(
                ssl_context=self._tls,
                max_connections=_MAX_CONNECTIONS,
                max_keepalive_connections=_MAX_IDLE_CONNECTIONS,
                keepalive_expiry=_IDLE_CONNECTION_SECONDS,
                network_backend=self._backend,
            )
        return pool


class _Body(httpx2.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream: AsyncIterable[bytes] = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _translated():
            async for part in self._stream:
                yield part

    async def aclose(self) -> None:
        close = getattr(self._stream, "aclose", None)
        if close is not None:
            await close()


@contextmanager
def _translated() -> Generator[None]:
    """Raise httpx2's error of the same name for one of httpcore2."""
    try:
        yield
    except Exception as error:
        theirs = getattr(httpx2, type(error).__name__, None)
        if type(error).__module__.startswith("httpcore2") and isinstance(theirs, type):
            raise theirs(str(error)) from error
        raise


class NetLimits(Struct, frozen=True, kw_only=True):
    """Limits of one request (security.md T20)."""

    body_bytes: int = 10 << 20
    """Of the answer, decompressed."""
    seconds: float = 30.0
    """For everything, redirects included."""
    idle_seconds: float = 10.0
    """Without a byte from the far end."""
    connect_seconds: float = 10.0
    ratio: int = 100
    """Highest ratio of an answer's size to its compressed size on the wire."""
    redirects: int = 5


class WebRequest(Struct, frozen=True, kw_only=True):
    """One request, ready to be sent."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Lower-case names. Values may be secrets: another origin never gets them."""
    content: bytes = b""


class WebClient:
    """Sends requests where the guard lets them go. Used from one event loop; the owner calls `aclose`.

    Cookies are never kept, and redirects are followed here, one by one: each target is checked anew, and credentials
    stay with their origin.
    """

    def __init__(
        self,
        guard: Guard | None = None,
        limits: NetLimits | None = None,
        *,
        resolve: Resolve = system_resolve,
        tls: ssl.SSLContext | None = None,
        app: Any = None,
    ) -> None:
        """`tls` None trusts the usual authorities. `resolve` looks up names.

        `app` is an ASGI application of this process that answers every request, in place of the network; errors that it
        does not handle are answers with status 500, as those of a server are.
        """
        own = None if app is None else httpx2.ASGITransport(app, raise_app_exceptions=False)
        self._guard = guard or Guard()
        self._limits = limits or NetLimits()
        self._resolve = resolve
        self._http = httpx2.AsyncClient(
            transport=own or GuardedTransport(self._guard, resolve, tls),
            timeout=httpx2.Timeout(
                self._limits.idle_seconds, connect=self._limits.connect_seconds, pool=self._limits.seconds
            ),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            headers={"user-agent": _user_agent(), "accept": "*/*"},
            follow_redirects=False,
            trust_env=False,
        )

    async def send(self, request: WebRequest, *, seconds: float | None = None, redirects: bool = True) -> Page:
        """Return the answer. `seconds` replaces the limit of the same name; without `redirects` none is followed.

        Raises `NetFailure`: `denied` for an address that may not be reached, `unavailable`, `timeout`, `too_large`.
        """
        allowed = self._limits.seconds if seconds is None else seconds
        with anyio.move_on_after(allowed):
            return await (self._follow(request) if redirects else self._once(request))
        raise NetFailure("timeout", f"{origin(request.url)} did not answer within {allowed:g} s", sent=True)

    async def check(self, url: str, *, look_up: bool = True) -> None:
        """Send nothing. Raises `NetFailure` `denied` where a request would be refused now.

        A host that cannot be found is not refused: it may come yet. Without `look_up` names of other machines pass: the
        question for one reaches the name server of its domain, and tells it the whole name.
        """
        parsed = self._check_url(url)
        if not look_up and not (is_loopback(parsed.host) or is_address(parsed.host)):
            return
        try:
            await self._guard.addresses(parsed.host, parsed.port or DEFAULT_PORTS[parsed.scheme], self._resolve)
        except NetFailure as failure:
            if failure.code == "denied":
                raise

    async def aclose(self) -> None:
        """Close every connection. Safe to call twice."""
        await self._http.aclose()

    async def _follow(self, request: WebRequest) -> Page:
        for hop in range(self._limits.redirects + 1):
            try:
                answer = await self._once(request)
            except NetFailure as failure:
                failure.sent |= hop > 0  # an answer named this address
                raise
            following = _redirect(request, answer)
            if following is None:
                return answer
            request = following
        raise NetFailure(
            "unavailable", f"{origin(request.url)} redirects more than {self._limits.redirects} times", sent=True
        )

    async def _once(self, request: WebRequest) -> Page:
        url = self._check_url(request.url)
        if self._http.is_closed:
            raise NetFailure("unavailable", "the connections to it were closed")
        headers = {**request.headers, "accept-encoding": "gzip, deflate"}
        try:
            async with self._http.stream(
                request.method, url, headers=headers, content=request.content or None
            ) as response:
                return Page(
                    status=response.status_code,
                    headers={name.lower(): value for name, value in response.headers.items()},
                    body=await self._read(response),
                    url=request.url,
                )
        except (httpx2.LocalProtocolError, UnicodeError):
            # Their texts quote what cannot be sent: that may be a credential.
            message = f"the request to {origin(request.url)} cannot be written: a header holds what no header can"
            raise NetFailure("unavailable", message) from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise _failure(error, request.url) from error

    def _check_url(self, text: str) -> httpx2.URL:
        """Parse once: what is checked is what is sent."""
        try:
            url = httpx2.URL(text)
        except (httpx2.InvalidURL, ValueError) as error:
            raise NetFailure("denied", f"not a URL: {error}") from error
        if url.userinfo:
            raise NetFailure("denied", "a URL with a user or password in it is not sent")
        self._guard.check(url.scheme, url.host, url.port or DEFAULT_PORTS.get(url.scheme, 0))
        return url

    async def _read(self, response: httpx2.Response) -> bytes:
        limits, body = self._limits, bytearray()
        announced = response.headers.get("content-length", "")
        is_bodiless = response.request.method == "HEAD"
        if announced.isdecimal() and int(announced) > limits.body_bytes and not is_bodiless:
            raise _too_large(limits)
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > limits.body_bytes:
                raise _too_large(limits)
            if len(body) > max(_MIN_RATIO_BYTES, limits.ratio * response.num_bytes_downloaded):
                raise NetFailure("too_large", f"the answer grows more than {limits.ratio} times unpacked", sent=True)
        return bytes(body)


def _redirect(request: WebRequest, answer: Page) -> WebRequest | None:
    """Return the request that a redirect asks for, or None where the answer is to be taken as it is."""
    location = answer.headers.get("location", "")
    if answer.status not in _REDIRECTS or not location:
        return None
    try:
        target = str(httpx2.URL(request.url).join(location))
    except (httpx2.InvalidURL, ValueError) as error:
        raise NetFailure("unavailable", f"redirects to an invalid URL: {error}", sent=True) from error
    if urlsplit(request.url).scheme == "https" and not target.startswith("https:"):
        raise NetFailure("denied", f"{origin(request.url)} redirects to {origin(target)}, in clear", sent=True)
    is_same = same_origin(target, request.url)
    is_read = request.method in _READ_METHODS
    if answer.status not in _METHOD_PRESERVING_REDIRECTS and answer.status != 303 and not is_read:
        return None
    if answer.status == 303 and not is_read:
        kept = {name: value for name, value in request.headers.items() if name not in _BODY_HEADERS}
        request = replace(request, method="GET", content=b"", headers=kept)
    elif not is_read and not is_same:
        return None
    if not is_same:
        kept = {name: value for name, value in request.headers.items() if name in _FORWARDED_HEADERS}
        request = replace(request, headers=kept)
    return replace(request, url=target)


def _failure(error: httpx2.HTTPError | httpx2.StreamError, url: str) -> NetFailure:
    where, detail = origin(url), str(error) or type(error).__name__
    sent = not isinstance(error, _UNSENT_ERRORS)
    if isinstance(error, httpx2.TimeoutException):
        return NetFailure("timeout", f"{where} {'fell silent' if sent else 'did not take the connection'}", sent=sent)
    if isinstance(error, httpx2.DecodingError):
        return NetFailure("unavailable", f"{where} sent a body that cannot be unpacked: {detail}", sent=True)
    what = "broke off the exchange" if sent else "cannot be reached"
    return NetFailure("unavailable", f"{where} {what}: {detail}", sent=sent)


def _too_large(limits: NetLimits) -> NetFailure:
    return NetFailure("too_large", f"the answer has more than {limits.body_bytes:,} bytes", sent=True)


@cache
def _user_agent() -> str:
    return f"toolcrib/{version('toolcrib')}"


def curl(request: WebRequest, parts: tuple[str, ...] = ()) -> str:
    """Return one line for a shell. `parts` are those of a multipart body, which is not shown as it travels."""
    words = ["curl"]
    if request.method != "GET":
        words += ["-X", request.method]
    words.append(shlex.quote(request.url))
    for name, value in request.headers.items():
        if not (parts and name == "content-type"):
            words += ["-H", shlex.quote(f"{name}: {value}")]
    for part in parts:
        words += ["-F", shlex.quote(part[:_MAX_SHOWN_BODY_LENGTH])]
    if request.content and not parts:
        words += ["--data-binary", shlex.quote(_display_body(request.content))]
    return " ".join(words)


def _display_body(content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"<{len(content):,} bytes>"
    return text if len(text) <= _MAX_SHOWN_BODY_LENGTH else f"{text[:_MAX_SHOWN_BODY_LENGTH]}… <{len(content):,} bytes>"
