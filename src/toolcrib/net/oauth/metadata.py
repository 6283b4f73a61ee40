"""Authorization server metadata: challenges, well-known documents, and the addresses that may receive credentials.

    401, WWW-Authenticate ─> `Challenge` ─> resource metadata (RFC 9728): where the challenge says, else well-known
      ─> `Resource`, which has to cover the server's URL ─> its issuers
      ─> metadata of an issuer (RFC 8414, else OpenID) ─> `AuthorizationServer`, which has to name that issuer

Both comparisons keep a server from having tokens sent, or made, for another one. Every address is https, or this
machine's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from ...core.json import read_json
from ...core.patterns import regex
from ...errors import ToolFailure
from ..guard import Guard
from ..urls import DEFAULT_PORTS, is_loopback, origin, same_origin, url_parts
from .login import scopes_in

if TYPE_CHECKING:  # slow to load, and every gateway loads this module
    from ..client import WebClient

_MAX_URL_LENGTH: Final = 2048
_URL_CHARACTERS: Final = regex(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")
"""Characters of a URL (RFC 3986): others mean something to the programs that open a browser."""
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")

_MAX_CHALLENGE_LENGTH: Final = 8192
"""Characters of a header that are looked at."""

_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_PARAMETER: Final = regex(rf'({_TOKEN})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_SCHEME: Final = regex(rf"({_TOKEN})(?=[\s,]|$)(?:[ \t]+[A-Za-z0-9\-._~+/]+=*(?=\s*(?:,|$)))?")
_GAP: Final = regex(r"[\s,]*")

_MAX_ENTRIES: Final = 20
"""Authorization servers that are looked at, and methods that are read."""

_TOO_MANY_REQUESTS: Final = 429
_RESOURCE_METADATA_PATH: Final = "/.well-known/oauth-protected-resource"
_SERVER_METADATA_PATH: Final = "/.well-known/oauth-authorization-server"
_OPENID_METADATA_PATH: Final = "/.well-known/openid-configuration"


def safe_url(url: str, what: str) -> str:
    """Return `url`. Raises `ToolFailure` `denied` unless it is `https`, or `http` on this machine, and plain."""
    parts = _split(url)
    plain = url.isascii() and url.isprintable() and not {" ", "\\"}.intersection(url) and len(url) <= _MAX_URL_LENGTH
    if parts is None or not parts.hostname or not plain or parts.fragment or "@" in parts.netloc:
        raise ToolFailure("denied", f"{what} is not a usable URL")
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname)):
        return url
    raise ToolFailure("denied", f"{what} ({origin(url)}) is not https: credentials are never sent in clear")


def canonical(url: str) -> str:
    """Return the resource identifier of a server at `url` (RFC 8707): no fragment, no lone slash, small host."""
    parts = urlsplit(url)
    path = "" if parts.path == "/" else parts.path
    return origin(url) + path + (f"?{parts.query}" if parts.query else "")


def covers(resource: str, url: str) -> bool:
    """Whether the resource identifier names the server at `url`, or a part of its origin that the server is in."""
    if not same_origin(resource, url):
        return False
    named, asked = (urlsplit(one).path.rstrip("/") + "/" for one in (resource, url))
    return asked.startswith(named)


def guard_for(url: str, issuer: str) -> Guard:
    """Return the addresses allowed on behalf of the server at `url`: public ones, and those configured.

    For a server on this machine that is the whole machine: a process that listens there can reach it anyway.
    """
    allow: list[tuple[str, int | None]] = []
    for configured in (url, issuer):
        parts = _split(configured)
        if parts is not None and parts.hostname:
            allow.append((parts.hostname.rstrip(".").lower(), parts.port or DEFAULT_PORTS.get(parts.scheme)))
    if allow and is_loopback(allow[0][0]):
        allow += [(host, None) for host in _LOOPBACK]
    return Guard(allow=frozenset(allow))


def _split(url: str) -> SplitResult | None:
    try:
        return url_parts(url)
    except ValueError:
        return None


class Challenge(Struct, frozen=True, kw_only=True):
    """The `Bearer` challenge of a refusal. Everything in it is what the server says."""

    error: str = ""
    scopes: tuple[str, ...] = ()
    resource_metadata: str = ""

    @property
    def wants_more(self) -> bool:
        """Whether our token is good, but not for this."""
        return self.error == "insufficient_scope"


def bearer_challenge(header: str) -> Challenge | None:
    """Return the first `Bearer` challenge of a header, which may hold several; None without one."""
    text, place, scheme = header[:_MAX_CHALLENGE_LENGTH], 0, ""
    found: dict[str, str] | None = None
    while (place := _after_gap(text, place)) < len(text):
        if scheme and (parameter := _PARAMETER.match(text, place)):
            if scheme == "bearer" and found is not None:
                name, quoted, plain = parameter.groups()
                found.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) if plain is None else plain)
            place = parameter.end()
        elif named := _SCHEME.match(text, place):
            if found is not None:
                break
            scheme, place = named[1].lower(), named.end()
            found = {} if scheme == "bearer" else None
        else:
            place += 1
    if found is None:
        return None
    return Challenge(
        error=found.get("error", ""),
        scopes=scopes_in(found.get("scope", "")),
        resource_metadata=found.get("resource_metadata", ""),
    )


def _after_gap(text: str, place: int) -> int:
    gap = _GAP.match(text, place)
    return gap.end() if gap else place


class Resource(Struct, frozen=True, kw_only=True):
    """Protected resource metadata of a server (RFC 9728)."""

    identifier: str
    """The `resource` that tokens for it are asked for."""
    issuers: tuple[str, ...]
    """The authorization servers it trusts, in its order; never empty."""
    scopes: tuple[str, ...] = ()


class AuthorizationServer(Struct, frozen=True, kw_only=True):
    """Metadata of an authorization server (RFC 8414), all of its addresses safe to send credentials to."""

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
    """Return the metadata of the server at `url` from the document; None if a required member is missing.

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
    """Return the metadata of `issuer` from the document. Raises `ToolFailure` `denied` if it must not be used."""
    declared = text_in(document, "issuer")
    if declared != issuer and not _is_same_root(declared, issuer):
        raise ToolFailure(
            "denied",
            f"the metadata of {issuer[:200]} names another issuer ({declared[:200] or 'none'}); it is not used",
        )
    token_endpoint = text_in(document, "token_endpoint")
    if not token_endpoint:
        raise ToolFailure("denied", f"the authorization server {issuer[:200]} names no token endpoint")
    safe_url(token_endpoint, f"the token endpoint of {issuer[:200]}")
    if (asking := text_in(document, "authorization_endpoint")) and not _URL_CHARACTERS.fullmatch(asking):
        raise ToolFailure("denied", f"the authorization endpoint of {issuer[:200]} is not a usable URL")
    others = ("authorization_endpoint", "registration_endpoint", "revocation_endpoint")
    return AuthorizationServer(
        issuer=declared,
        token_endpoint=token_endpoint,
        **{name: _endpoint(document, name, issuer) for name in others},
        scopes=scopes_in(" ".join(_texts_in(document, "scopes_supported", 100))),
        client_auths=_texts_in(document, "token_endpoint_auth_methods_supported"),
        challenge_methods=_texts_in(document, "code_challenge_methods_supported"),
        names_itself=document.get("authorization_response_iss_parameter_supported") is True,
        takes_metadata_urls=document.get("client_id_metadata_document_supported") is True,
    )


def text_in(document: Mapping[str, Any], key: str) -> str:
    """Return the text under `key`; empty when missing."""
    value = document.get(key)
    return value if isinstance(value, str) else ""


def _endpoint(document: Mapping[str, Any], name: str, issuer: str) -> str:
    url = text_in(document, name)
    return safe_url(url, f"the {name.replace('_', ' ')} of {issuer[:200]}") if url else ""


def _texts_in(document: Mapping[str, Any], key: str, most: int = _MAX_ENTRIES) -> tuple[str, ...]:
    value = document.get(key)
    items = cast("list[Any]", value)[:most] if isinstance(value, list) else []
    return tuple(item for item in items if isinstance(item, str) and item)


def _is_same_root(declared: str, issuer: str) -> bool:
    """An origin with its lone slash and without it are one issuer: both make the same well-known address."""
    root = declared.rstrip("/")
    return {declared, issuer} == {root, root + "/"} and origin(declared) == root


async def find_resource(http: WebClient, url: str, challenge: Challenge | None) -> Resource:
    """Return the metadata of the server at `url`.

    A server of revision 2025-03-26 says nothing: its origin is its authorization server then. Raises `ToolFailure`.
    """
    path = urlsplit(url).path.rstrip("/")
    places = list(
        dict.fromkeys((f"{origin(url)}{_RESOURCE_METADATA_PATH}{path}", f"{origin(url)}{_RESOURCE_METADATA_PATH}"))
    )
    if challenge is not None and challenge.resource_metadata:
        places.insert(0, challenge.resource_metadata)
    for place in places:
        document = await _fetch_document(http, place, "the description of the server")
        if document is not None and (found := read_resource(document, url)) is not None:
            return found
    return Resource(identifier=canonical(url), issuers=(origin(url),))


async def find_server(http: WebClient, issuer: str) -> AuthorizationServer:
    """Return the metadata of the authorization server `issuer`. Raises `ToolFailure`."""
    safe_url(issuer, "the authorization server")
    for place in _metadata_urls(issuer):
        document = await _fetch_document(http, place, "the authorization server")
        if document is not None:
            return read_server(document, issuer)
    raise ToolFailure(
        "unavailable",
        f"{issuer[:200]} does not say how to log in: it publishes no authorization server metadata",
        hint="Give the server's `headers` a credential, or ask its operator.",
    )


def _metadata_urls(issuer: str) -> list[str]:
    base, path = origin(issuer), urlsplit(issuer).path.rstrip("/")
    if not path:
        return [base + _SERVER_METADATA_PATH, base + _OPENID_METADATA_PATH]
    return [
        base + _SERVER_METADATA_PATH + path,
        base + _OPENID_METADATA_PATH + path,
        base + path + _OPENID_METADATA_PATH,
    ]


async def _fetch_document(http: WebClient, url: str, what: str) -> Mapping[str, Any] | None:
    """Return the JSON object at `url`; None when it is missing, or lies at another origin."""
    safe_url(url, what)
    from ..client import WebRequest  # a caller that has the client has loaded it

    answer = await http.send(WebRequest(method="GET", url=url, headers={"accept": "application/json"}))
    if answer.status >= 500 or answer.status == _TOO_MANY_REQUESTS:
        raise ToolFailure("unavailable", f"{origin(url)} cannot say now how to log in (HTTP {answer.status})")
    if answer.status != 200 or not same_origin(answer.url, url):
        return None
    try:
        found = read_json(answer.body)
    except ValueError:
        return None
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else None
