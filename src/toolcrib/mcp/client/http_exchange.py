"""HTTP exchanges with MCP servers, shared by both HTTP transports: one guarded client a server, and the error texts.

No redirect is followed and no environment proxy used, so a credential only ever reaches the configured origin. Bodies
are asked for uncompressed: a compressed one could grow without limit between two reads.

A server is probed without credentials for its authentication challenge.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import httpx2

from ...core.json import as_mapping, dumps
from ...errors import ToolFailure
from ...net.oauth.metadata import Challenge, bearer_challenge
from ..auth.access import Access
from ..jsonrpc import LATEST, RpcError
from .handshake import ClientInfo, envelope
from .spec import ServerSpec
from .transport import LinkLost, decode

_CONNECT_TIMEOUT: Final = 10.0
_WRITE_TIMEOUT: Final = 30.0
_KEPT_ALIVE: Final = 32
_ERROR_BYTES: Final = 64 * 1024
_LOGINS: Final = 2
"""Times that one request may lead to another token."""
_SECONDS: Final = 20.0
"""For the answer to a probe."""
_NOT_SENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_RETRY_LATER: Final = (429, 503)


def make_client(spec: ServerSpec, user_agent: str) -> httpx2.AsyncClient:
    """Return the client of one server; the caller closes it. Raises `LinkLost` where no request could be made."""
    try:
        return httpx2.AsyncClient(
            headers={"user-agent": user_agent, **spec.headers, "accept-encoding": "identity"},
            timeout=httpx2.Timeout(None, connect=_CONNECT_TIMEOUT, write=_WRITE_TIMEOUT),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=_KEPT_ALIVE),
            follow_redirects=False,
            trust_env=False,
            verify=spec.url.lower().startswith("https:"),
        )
    except (ValueError, OSError, httpx2.InvalidURL) as error:
        raise LinkLost(f"cannot be reached: {error}", written=False) from error


@asynccontextmanager
async def exchange(
    client: httpx2.AsyncClient, access: Access | None, method: str, url: str, **how: Any
) -> AsyncGenerator[httpx2.Response]:
    """Send one request with our token and yield its response, after a login if that is what is wanted.

    A refused request did not run, so that it may be sent again. Raises what `Access` does, and httpx2's errors.
    """
    headers: Mapping[str, str] = how.pop("headers", {})
    for attempt in range(_LOGINS + 1):
        token = await access.header() if access is not None else ""
        sent = {**headers, "authorization": token} if token else headers
        async with client.stream(method, url, headers=sent, **how) as response:
            status, challenge = response.status_code, response.headers.get("www-authenticate", "")
            if access is None or attempt == _LOGINS or not access.concerns(status, challenge):
                if access is not None and status not in (401, 403):
                    access.worked()
                yield response
                return
        await access.refused(status, challenge, token)


def failure_of(error: httpx2.HTTPError | httpx2.InvalidURL | httpx2.StreamError) -> LinkLost | ToolFailure:
    """Say what a transport error means, and whether the request may have run."""
    detail = str(error) or type(error).__name__
    if isinstance(error, _NOT_SENT):
        return LinkLost(f"does not accept connections ({detail})", written=False)
    if isinstance(error, httpx2.NetworkError | httpx2.RemoteProtocolError | httpx2.TimeoutException):
        return LinkLost(f"broke the connection ({detail})", written=True)
    return ToolFailure("unavailable", f"the server cannot be talked to: {detail}")


async def refusal_of(response: httpx2.Response) -> Exception:
    """Say what a status other than success means for the request."""
    status = response.status_code
    if 300 <= status < 400:
        target = response.headers.get("location", "elsewhere")[:200]
        return ToolFailure(
            "unavailable", f"the server redirects to {target}, which is not followed: configure that URL"
        )
    if (error := await _rpc_error(response)) is not None:
        return error
    if status in (401, 403):
        return ToolFailure("unavailable", f"the server refuses our credentials (HTTP {status}): check its `headers`")
    if status in _RETRY_LATER:
        return ToolFailure("unavailable", f"the server is overloaded (HTTP {status}): try again later")
    if status >= 500:
        return LinkLost(f"answered HTTP {status}", written=True)
    return ToolFailure("unavailable", f"the server refuses the request (HTTP {status}): check its `url`")


def media_type(response: httpx2.Response) -> str:
    """Return the content type without its parameters; raises `ToolFailure` for an encoded body."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise ToolFailure("unavailable", "the server compressed its answer although it must not")
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


async def pieces(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield the body as it arrives; raises `LinkLost` when it breaks off."""
    try:
        async for piece in response.aiter_raw():
            yield piece
    except httpx2.HTTPError as error:
        raise LinkLost(f"broke off its answer ({str(error) or type(error).__name__})") from error


async def _rpc_error(response: httpx2.Response) -> RpcError | None:
    """Return the JSON-RPC error that a refusal carries; None when it carries none."""
    try:
        if media_type(response) != "application/json":
            return None
        body = b""
        async for piece in pieces(response):
            body += piece
            if len(body) > _ERROR_BYTES:
                return None
        error = as_mapping(as_mapping(decode(body)).get("error"))
    except (ValueError, LinkLost, ToolFailure):
        return None
    return RpcError.of(error) if isinstance(error.get("code"), int) else None


async def probe_auth_challenge(spec: ServerSpec, version: str) -> Challenge | None:
    """Return the challenge of the server at `spec.url`; None without one. Raises `ToolFailure` `unavailable`."""
    params = {"_meta": envelope(ClientInfo(version=version, capabilities={}), {})}
    body = dumps({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": params})
    headers = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": LATEST,
        "mcp-method": "server/discover",
    }
    how: dict[str, Any] = {"headers": headers, "content": body} if spec.transport == "http" else {}
    method = "POST" if how else "GET"
    with anyio.move_on_after(_SECONDS):
        try:
            async with (
                make_client(spec, f"toolcrib/{version}") as client,
                client.stream(method, spec.url, **how) as response,
            ):
                if response.status_code != 401:
                    return None
                return bearer_challenge(response.headers.get("www-authenticate", "")) or Challenge()
        except (LinkLost, httpx2.HTTPError, httpx2.InvalidURL) as error:
            failure = error if isinstance(error, LinkLost) else failure_of(error)
            reason = failure.reason if isinstance(failure, LinkLost) else failure.message
            raise ToolFailure("unavailable", f"server {spec.name!r} {reason}") from error
    raise ToolFailure("unavailable", f"server {spec.name!r} did not answer within {_SECONDS:g} s")
