"""Requests to addresses that somebody else may have chosen, with limits on everything that comes back.

    client = WebClient(Guard.of(["127.0.0.1:8080"]))
    answer = await client.send(WebRequest(method="GET", url="https://example.org/"))

A client belongs to one event loop and lives as long as whoever made it; it keeps connections, never cookies. Redirects
are followed one by one through the guard: a read anywhere, a write only to the same origin and only where the status
says "the same again". Across origins nothing but `accept`, `accept-language` and `user-agent` goes along.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib.metadata import version
from typing import Final
from urllib.parse import urlsplit

import anyio
import httpx2

from .failures import NetFailure
from .guard import DEFAULT_PORTS, Guard, Resolve, system_resolve
from .transport import GuardedTransport

__all__ = ["NetLimits", "WebAnswer", "WebClient", "WebRequest"]

_REDIRECTS: Final = (301, 302, 303, 307, 308)
_SAME_AGAIN: Final = (307, 308)
_READS: Final = ("GET", "HEAD")
_HARMLESS: Final = ("accept", "accept-language", "user-agent")
_OF_A_BODY: Final = ("content-type", "content-encoding", "content-language", "content-length")
_NOT_SENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_RATIO_FROM: Final = 1 << 20
"""Bytes; below that a body may be compressed as well as it likes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetLimits:
    """How much of everything one request may take (security.md T20)."""

    body_bytes: int = 10 << 20
    """Of the answer, decompressed."""
    seconds: float = 30.0
    """For everything, redirects included."""
    idle_seconds: float = 10.0
    """Without a byte from the far end."""
    connect_seconds: float = 10.0
    ratio: int = 100
    """How many times larger than it came over the wire an answer may be."""
    redirects: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class WebRequest:
    """One request, ready to be sent."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Lower-case names. Values may be secrets: another origin never gets them."""
    content: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAnswer:
    """One whole answer, whatever its status."""

    status: int
    headers: Mapping[str, str]
    """Lower-case names; values of repeated ones are joined by commas."""
    body: bytes
    """Decompressed."""
    url: str
    """Where it came from in the end."""
    redirects: int = 0

    @property
    def media_type(self) -> str:
        """The content type in lower case, without parameters; empty when there is none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class WebClient:
    """Sends requests where the guard lets them go."""

    def __init__(
        self,
        guard: Guard | None = None,
        limits: NetLimits | None = None,
        *,
        resolve: Resolve = system_resolve,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`tls` None trusts the usual authorities. `resolve` looks up names."""
        self._guard = guard or Guard()
        self._limits = limits or NetLimits()
        self._resolve = resolve
        self._http = httpx2.AsyncClient(
            transport=GuardedTransport(self._guard, resolve, tls),
            timeout=httpx2.Timeout(
                self._limits.idle_seconds, connect=self._limits.connect_seconds, pool=self._limits.seconds
            ),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            headers={"user-agent": _user_agent(), "accept": "*/*"},
            follow_redirects=False,
            trust_env=False,
        )

    async def send(self, request: WebRequest, *, seconds: float | None = None, redirects: bool = True) -> WebAnswer:
        """Return the answer. `seconds` replaces the limit of the same name; without `redirects` none is followed.

        Raises `NetFailure`: `denied` for an address that may not be reached, `unavailable`, `timeout`, `too_large`.
        """
        allowed = self._limits.seconds if seconds is None else seconds
        with anyio.move_on_after(allowed):
            return await (self._follow(request) if redirects else self._once(request, 0))
        raise NetFailure("timeout", f"{_origin(request.url)} did not answer within {allowed:g} s", sent=True)

    async def check(self, url: str) -> None:
        """Look `url` up and send nothing. Raises `NetFailure`: `denied` where a request would be refused now."""
        parsed = self._checked(url)
        await self._guard.addresses(parsed.host, parsed.port or DEFAULT_PORTS[parsed.scheme], self._resolve)

    async def aclose(self) -> None:
        """Close every connection. Safe to call twice."""
        await self._http.aclose()

    async def _follow(self, request: WebRequest) -> WebAnswer:
        for count in range(self._limits.redirects + 1):
            answer = await self._once(request, count)
            following = _redirected(request, answer)
            if following is None:
                return answer
            request = following
        raise NetFailure(
            "unavailable", f"{_origin(request.url)} redirects more than {self._limits.redirects} times", sent=True
        )

    async def _once(self, request: WebRequest, redirects: int) -> WebAnswer:
        url = self._checked(request.url)
        if self._http.is_closed:
            raise NetFailure("unavailable", "the connections to it were closed")
        headers = {**request.headers, "accept-encoding": "gzip, deflate"}
        try:
            async with self._http.stream(
                request.method, url, headers=headers, content=request.content or None
            ) as response:
                return WebAnswer(
                    status=response.status_code,
                    headers={name.lower(): value for name, value in response.headers.items()},
                    body=await self._read(response),
                    url=request.url,
                    redirects=redirects,
                )
        except (httpx2.LocalProtocolError, UnicodeError):
            # Their texts quote what cannot be sent: that may be a credential.
            message = f"the request to {_origin(request.url)} cannot be written: a header holds what no header can"
            raise NetFailure("unavailable", message) from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise _failure(error, request.url) from error

    def _checked(self, text: str) -> httpx2.URL:
        """Parse once: what is checked is what is sent."""
        try:
            url = httpx2.URL(text)
        except (httpx2.InvalidURL, ValueError) as error:
            raise NetFailure("denied", f"this is no URL: {error}") from error
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
            if len(body) > max(_RATIO_FROM, limits.ratio * response.num_bytes_downloaded):
                raise NetFailure("too_large", f"the answer grows more than {limits.ratio} times unpacked", sent=True)
        return bytes(body)


def _redirected(request: WebRequest, answer: WebAnswer) -> WebRequest | None:
    """Return the request that a redirect asks for, or None where the answer is to be taken as it is."""
    location = answer.headers.get("location", "")
    if answer.status not in _REDIRECTS or not location:
        return None
    try:
        target = str(httpx2.URL(request.url).join(location))
    except (httpx2.InvalidURL, ValueError) as error:
        raise NetFailure("unavailable", f"redirects to what is no URL: {error}", sent=True) from error
    if urlsplit(request.url).scheme == "https" and not target.startswith("https:"):
        raise NetFailure("denied", f"{_origin(request.url)} redirects to {_origin(target)}, in clear", sent=True)
    is_same = _origin(target) == _origin(request.url)
    is_read = request.method in _READS
    if answer.status not in _SAME_AGAIN and answer.status != 303 and not is_read:
        return None
    if answer.status == 303 and not is_read:
        kept = {name: value for name, value in request.headers.items() if name not in _OF_A_BODY}
        request = replace(request, method="GET", content=b"", headers=kept)
    elif not is_read and not is_same:
        return None
    if not is_same:
        kept = {name: value for name, value in request.headers.items() if name in _HARMLESS}
        request = replace(request, headers=kept)
    return replace(request, url=target)


def _origin(url: str) -> str:
    """Scheme, host and port, for comparing and for people."""
    parts = urlsplit(url)
    try:
        port = parts.port or DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError:
        port = 0
    shown = "" if port == DEFAULT_PORTS.get(parts.scheme) else f":{port}"
    return f"{parts.scheme}://{(parts.hostname or '').lower()}{shown}"


def _failure(error: httpx2.HTTPError | httpx2.StreamError, url: str) -> NetFailure:
    where, detail = _origin(url), str(error) or type(error).__name__
    sent = not isinstance(error, _NOT_SENT)
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
