"""Connections that only go to addresses which the guard has checked.

The check sits below the connection pool, where the socket is opened: TLS and the `Host` header keep the name, the
socket gets the address, and nothing looks the name up a second time.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterable, AsyncIterator, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Final, cast

import httpcore2
import httpx2

from .guard import Guard, Resolve

__all__ = ["GuardedTransport"]

_MAX_CONNECTIONS: Final = 64
_KEPT_ALIVE: Final = 16
_KEPT_SECONDS: Final = 30.0


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
    """A connection pool behind a guard. No proxy, no environment."""

    def __init__(self, guard: Guard, resolve: Resolve, tls: ssl.SSLContext | None) -> None:
        """`tls` is made at the first `https` request when it is None: loading the certificates takes 30 ms."""
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
                max_keepalive_connections=_KEPT_ALIVE,
                keepalive_expiry=_KEPT_SECONDS,
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
