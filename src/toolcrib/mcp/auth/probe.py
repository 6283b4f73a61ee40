"""Probe of a server without credentials, for its authentication challenge."""

from __future__ import annotations

from typing import Any, Final

import anyio
import httpx2

from ...core.json import dumps
from ...errors import ToolFailure
from ...net.oauth.metadata import Challenge, bearer_challenge
from ..client.handshake import Client, envelope
from ..client.http_session import failure_of, make_client
from ..client.messages import LinkLost
from ..client.spec import ServerSpec
from ..jsonrpc import LATEST

__all__ = ["knock"]

_SECONDS: Final = 20.0


async def knock(spec: ServerSpec, version: str) -> Challenge | None:
    """Return how the server at `spec.url` refuses; None where it does not. Raises `ToolFailure` `unavailable`."""
    params = {"_meta": envelope(Client(version=version, capabilities={}), {})}
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
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            failure = failure_of(error)
            reason = failure.reason if isinstance(failure, LinkLost) else failure.message
            raise ToolFailure("unavailable", f"server {spec.name!r} {reason}") from error
    raise ToolFailure("unavailable", f"server {spec.name!r} did not answer within {_SECONDS:g} s")
