"""The two documents that say who lets us in, read and checked: of a protected resource, of an authorization server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from ...errors import ToolFailure
from .addresses import covers, origin, safe_url
from .challenge import scopes_in

__all__ = ["AuthorizationServer", "Resource", "read_resource", "read_server", "text_in"]

_MOST: Final = 20
"""Authorization servers that are looked at, and methods that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """What a server says of itself (RFC 9728)."""

    identifier: str
    """The `resource` that tokens for it are asked for."""
    issuers: tuple[str, ...]
    """The authorization servers it trusts, in its order; never empty."""
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationServer:
    """What an authorization server says of itself (RFC 8414), all of its addresses safe to send credentials to."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str = ""
    registration_endpoint: str = ""
    revocation_endpoint: str = ""
    scopes: tuple[str, ...] = ()
    client_auths: tuple[str, ...] = ()
    """In its own words; empty where it says nothing."""
    challenge_methods: tuple[str, ...] = ()
    names_itself: bool = False
    """Whether its answers carry `iss` (RFC 9207)."""
    takes_metadata_urls: bool = False
    """Whether a URL of ours may be our client id."""


def read_resource(document: Mapping[str, Any], url: str) -> Resource | None:
    """Return what the document says of the server at `url`; None when it lacks what it must have.

    Raises `ToolFailure` `denied` when it is about another server: tokens for that one are none of ours.
    """
    identifier, issuers = text_in(document, "resource"), _texts_in(document, "authorization_servers")
    if not identifier or not issuers:
        return None
    if not covers(identifier, url):
        raise ToolFailure(
            "denied",
            f"the server at {origin(url)} describes itself as another one ({identifier[:200]}); it gets no token",
        )
    scopes = scopes_in(" ".join(_texts_in(document, "scopes_supported", 100)))
    return Resource(identifier=identifier, issuers=issuers, scopes=scopes)


def read_server(document: Mapping[str, Any], issuer: str) -> AuthorizationServer:
    """Return what the document says of `issuer`. Raises `ToolFailure` `denied` for what must not be used."""
    said = text_in(document, "issuer")
    if said != issuer and not _is_same_root(said, issuer):
        raise ToolFailure(
            "denied",
            f"what {issuer[:200]} says of itself names another issuer ({said[:200] or 'none'}); it is not used",
        )
    token_endpoint = text_in(document, "token_endpoint")
    if not token_endpoint:
        raise ToolFailure("denied", f"the authorization server {issuer[:200]} names no token endpoint")
    safe_url(token_endpoint, f"the token endpoint of {issuer[:200]}")
    others = ("authorization_endpoint", "registration_endpoint", "revocation_endpoint")
    return AuthorizationServer(
        issuer=said,
        token_endpoint=token_endpoint,
        **{name: _endpoint(document, name, issuer) for name in others},
        scopes=scopes_in(" ".join(_texts_in(document, "scopes_supported", 100))),
        client_auths=_texts_in(document, "token_endpoint_auth_methods_supported"),
        challenge_methods=_texts_in(document, "code_challenge_methods_supported"),
        names_itself=document.get("authorization_response_iss_parameter_supported") is True,
        takes_metadata_urls=document.get("client_id_metadata_document_supported") is True,
    )


def text_in(document: Mapping[str, Any], key: str) -> str:
    """Return the text under `key`; empty when there is none."""
    value = document.get(key)
    return value if isinstance(value, str) else ""


def _endpoint(document: Mapping[str, Any], name: str, issuer: str) -> str:
    url = text_in(document, name)
    return safe_url(url, f"the {name.replace('_', ' ')} of {issuer[:200]}") if url else ""


def _texts_in(document: Mapping[str, Any], key: str, most: int = _MOST) -> tuple[str, ...]:
    value = document.get(key)
    items = cast("list[Any]", value)[:most] if isinstance(value, list) else []
    return tuple(item for item in items if isinstance(item, str) and item)


def _is_same_root(said: str, issuer: str) -> bool:
    """An origin with its lone slash and without it are one issuer: both make the same well-known address."""
    return {said, issuer} == {said.rstrip("/"), said.rstrip("/") + "/"} and origin(said) == said.rstrip("/")
