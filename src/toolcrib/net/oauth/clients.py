"""Who we are at an authorization server: configured, by a URL of ours, or registered on the spot (RFC 7591).

A client id belongs to the server that gave it and is shown to no other (mix-up attacks).
"""

from __future__ import annotations

from typing import Final

from ...core.json import dumps
from ...errors import ToolFailure
from ..client import WebClient, WebRequest
from .addresses import origin
from .login import Client
from .metadata import AuthorizationServer, text_in
from .spec import ClientAuth, OAuthSpec
from .tokens import json_of, refusal_in, way_to_show

__all__ = ["configured", "register"]

_NAME: Final = "Toolcrib"
_WORDS: Final = {"none": "none", "basic": "client_secret_basic", "post": "client_secret_post"}
_LONGEST: Final = 4096


def configured(spec: OAuthSpec, server: AuthorizationServer) -> Client | None:
    """Return the client that needs no registration at `server`; None where there is none."""
    if spec.client_id:
        return Client(id=spec.client_id, secret=spec.client_secret, auth=spec.client_auth or _fitting(spec, server))
    if spec.client_metadata_url and server.takes_metadata_urls:
        return Client(id=spec.client_metadata_url, auth="private_key_jwt" if spec.private_key else "none")
    return None


async def register(http: WebClient, server: AuthorizationServer, redirect_uri: str, scopes: tuple[str, ...]) -> Client:
    """Have ourselves registered and return who we are now. Raises `ToolFailure`."""
    if not server.registration_endpoint:
        raise ToolFailure(
            "denied",
            f"{server.issuer[:200]} registers nobody by itself",
            hint="Register an application there and write its `client_id` under `auth` of the server.",
        )
    offered = [way_to_show(word) for word in server.client_auths]
    # `post` before `basic`: servers made with the MCP SDK want the secret in the form when a token is revoked.
    ways: tuple[ClientAuth, ...] = ("none", "post", "basic")
    wanted = next((way for way in ways if way in offered), ways[0])
    asked = {
        "client_name": _NAME,
        "application_type": "native",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": _WORDS[wanted],
    }
    if scopes:
        asked["scope"] = " ".join(scopes)
    headers = {"content-type": "application/json", "accept": "application/json"}
    answer = await http.send(
        WebRequest(method="POST", url=server.registration_endpoint, headers=headers, content=dumps(asked))
    )
    document = json_of(answer.body)
    if answer.status not in (200, 201):
        raise refusal_in(document, answer.status, server.registration_endpoint)
    given, secret = text_in(document, "client_id"), text_in(document, "client_secret")
    said = text_in(document, "token_endpoint_auth_method") or (_WORDS[wanted] if secret else "none")
    way = way_to_show(said)
    usable = way in _WORDS and (way == "none" or bool(secret))
    if not 0 < len(given) <= _LONGEST or len(secret) > _LONGEST or way is None or not usable:
        raise ToolFailure(
            "denied",
            f"{origin(server.registration_endpoint)} registered us in a way that we cannot use ({said[:80]})",
            hint="Register an application there and write its `client_id` under `auth` of the server.",
        )
    ends = document.get("client_secret_expires_at")
    expires = float(ends) if isinstance(ends, int | float) and not isinstance(ends, bool) and way != "none" else 0.0
    return Client(
        id=given,
        secret=secret if way != "none" else "",
        auth=way,
        redirect_uri=redirect_uri,
        scopes=scopes,
        expires=expires,
    )


def _fitting(spec: OAuthSpec, server: AuthorizationServer) -> ClientAuth:
    """Return how a configured client shows itself: with what it has, in a way that the server takes."""
    if spec.private_key:
        return "private_key_jwt"
    if not spec.client_secret:
        return "none"
    offered = {way_to_show(word) for word in server.client_auths}
    return "post" if "post" in offered and "basic" not in offered else "basic"
