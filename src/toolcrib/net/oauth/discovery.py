"""Finding out who lets us in: well-known addresses in the order of the MCP specification, and what may be believed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import urlsplit

from ...core.json import read_json
from ...errors import ToolFailure
from ..client import NetLimits, WebClient, WebRequest
from .addresses import canonical, origin, safe_url
from .challenge import Challenge
from .metadata import AuthorizationServer, Resource, read_resource, read_server

__all__ = ["LIMITS", "find_resource", "find_server"]

LIMITS: Final = NetLimits(body_bytes=256 * 1024, seconds=20.0, idle_seconds=10.0)
"""Of a client for OAuth: no document of it is a tenth as long, and a person waits."""

_OVERLOADED: Final = 429
_RESOURCE: Final = "/.well-known/oauth-protected-resource"
_SERVER: Final = "/.well-known/oauth-authorization-server"
_OPENID: Final = "/.well-known/openid-configuration"


async def find_resource(http: WebClient, url: str, challenge: Challenge | None) -> Resource:
    """Return what the server at `url` says of itself.

    A server of revision 2025-03-26 says nothing: its origin is its authorization server then. Raises `ToolFailure`.
    """
    places = _resource_places(url)
    if challenge is not None and challenge.resource_metadata:
        places.insert(0, challenge.resource_metadata)
    for place in places:
        document = await _document(http, place, "the description of the server")
        if document is not None and (found := read_resource(document, url)) is not None:
            return found
    return Resource(identifier=canonical(url), issuers=(origin(url),))


async def find_server(http: WebClient, issuer: str) -> AuthorizationServer:
    """Return what the authorization server `issuer` says of itself. Raises `ToolFailure`."""
    safe_url(issuer, "the authorization server")
    for place in _server_places(issuer):
        document = await _document(http, place, "the authorization server")
        if document is not None:
            return read_server(document, issuer)
    raise ToolFailure(
        "unavailable",
        f"{issuer[:200]} does not say how to log in: it publishes no authorization server metadata",
        hint="Give the server's `headers` a credential, or ask whoever runs it.",
    )


def _resource_places(url: str) -> list[str]:
    path = urlsplit(url).path.rstrip("/")
    return list(dict.fromkeys((f"{origin(url)}{_RESOURCE}{path}", f"{origin(url)}{_RESOURCE}")))


def _server_places(issuer: str) -> list[str]:
    base, path = origin(issuer), urlsplit(issuer).path.rstrip("/")
    if not path:
        return [base + _SERVER, base + _OPENID]
    return [base + _SERVER + path, base + _OPENID + path, base + path + _OPENID]


async def _document(http: WebClient, url: str, what: str) -> Mapping[str, Any] | None:
    """Return the JSON object at `url`; None when there is none, or it lies at another origin."""
    safe_url(url, what)
    answer = await http.send(WebRequest(method="GET", url=url, headers={"accept": "application/json"}))
    if answer.status >= 500 or answer.status == _OVERLOADED:
        raise ToolFailure("unavailable", f"{origin(url)} cannot say now how to log in (HTTP {answer.status})")
    if answer.status != 200 or origin(answer.url) != origin(url):
        return None
    try:
        found = read_json(answer.body)
    except ValueError:
        return None
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else None
