"""Token endpoint: client registration, client authentication, token requests, and checked token responses."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from ...core.json import as_mapping, dumps, read_json
from ...core.patterns import regex
from ...core.sanitize import escape
from ...core.services.host import Page
from ...errors import ToolFailure, UsageError
from ..client import WebClient, WebRequest
from ..urls import origin, same_origin
from .login import Login, RegisteredClient, Tokens, scopes_in
from .metadata import AuthorizationServer, safe_url, text_in
from .spec import ClientAuth, OAuthSpec

_ASSERTION_SECONDS: Final = 120
"""Lifetime of an assertion: it is used at once."""
_CLOCK_TOLERANCE_SECONDS: Final = 5
"""Seconds that two clocks may differ and both be right."""

_BEARER_TOKEN: Final = regex(r"[\x21-\x7e]{1,16384}")
"""Characters of a bearer token in a header (RFC 6750)."""
_ERROR_CODE: Final = regex(r"[\x20-\x21\x23-\x5b\x5d-\x7e]{1,64}")
"""An error code (RFC 6749, section 5.2), of a length that a code has."""
_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_MIN_LIFETIME_SECONDS: Final = 60.0
"""Seconds. A token of a shorter life is renewed once it is refused: before that, each request would renew one."""
_MAX_LIFETIME_SECONDS: Final = 10 * 365 * 86_400.0
_CLIENT_AUTH_BY_METHOD: Final[Mapping[str, ClientAuth]] = {
    "none": "none",
    "client_secret_basic": "basic",
    "client_secret_post": "post",
    "private_key_jwt": "private_key_jwt",
}

_CLIENT_NAME: Final = "Toolcrib"
_METHOD_BY_CLIENT_AUTH: Final = {"none": "none", "basic": "client_secret_basic", "post": "client_secret_post"}
_MAX_VALUE_LENGTH: Final = 4096


def client_assertion(pem: str, client_id: str, audience: str, *, ahead: int = 0) -> str:
    """Return a JWT by which `client_id` proves to `audience`, an issuer, that it holds the key.

    `ahead` is how many seconds the issuer's clock is ahead of ours.

    Raises `UsageError` for an unusable private key.
    """
    import jwt  # few servers need it, and cryptography
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError("auth: `private_key` is not a PEM private key without a password") from error
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        algorithm = "ES256"
    elif isinstance(key, rsa.RSAPrivateKey):
        algorithm = "RS256"
    elif isinstance(key, ed25519.Ed25519PrivateKey):
        algorithm = "EdDSA"  # not yet `Ed25519` (RFC 9864): few servers know it
    else:
        raise UsageError("auth: `private_key` must be an EC P-256, an RSA or an Ed25519 key")
    now = int(time.time()) + ahead
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "iat": now,
        "exp": now + _ASSERTION_SECONDS,
        "jti": secrets.token_urlsafe(24),
    }
    return jwt.encode(claims, key, algorithm)


class OAuthRefusal(ToolFailure):
    """Refusal by the authorization server. `error` is its code: `invalid_grant`, `invalid_client` …"""

    def __init__(self, error: str, message: str) -> None:
        super().__init__("denied", message)
        self.error = error
        self.ahead = 0
        """Seconds that its clock is ahead of ours, where it says the time."""


def _way_to_show(word: str) -> ClientAuth | None:
    """Return our word for a token endpoint authentication method; None for one that we do not know."""
    return _CLIENT_AUTH_BY_METHOD.get(word)


async def get_tokens(
    http: WebClient, spec: OAuthSpec, login: Login, form: Mapping[str, str], scopes: tuple[str, ...] = ()
) -> Tokens:
    """Ask the token endpoint of `login` and return what it gives. Raises `OAuthRefusal`, or `ToolFailure`.

    `form` is the grant with its parameters; who we are and the resource are added here. `scopes` were asked for: they
    are granted where the answer says nothing else (RFC 6749, section 5.1).
    """
    asked = {**form, "resource": login.resource}
    signed = _with_client(login.client, spec, login.issuer, asked)
    try:
        document = await _ask(http, login.token_endpoint, signed)
    except OAuthRefusal as refusal:
        if login.client.auth != "private_key_jwt" or abs(refusal.ahead) < _CLOCK_TOLERANCE_SECONDS:
            raise
        signed = _with_client(login.client, spec, login.issuer, asked, ahead=refusal.ahead)
        document = await _ask(http, login.token_endpoint, signed)
    access, kind = text_in(document, "access_token"), text_in(document, "token_type")
    if not _BEARER_TOKEN.fullmatch(access) or kind.lower() != "bearer":
        raise ToolFailure("denied", f"{origin(login.token_endpoint)} gave no bearer token that can be used")
    refresh = text_in(document, "refresh_token")
    granted = document.get("scope")
    return Tokens(
        access=access,
        refresh=refresh if _BEARER_TOKEN.fullmatch(refresh) else "",
        expires=_end(document.get("expires_in")),
        scopes=scopes_in(granted) if isinstance(granted, str) else scopes,
    )


async def renewed(http: WebClient, spec: OAuthSpec, login: Login) -> Tokens:
    """Return new tokens for the refresh token of `login`; where none comes back the old one stays (RFC 6749, 6)."""
    old = login.tokens
    new = await get_tokens(http, spec, login, {"grant_type": "refresh_token", "refresh_token": old.refresh})
    return Tokens(
        access=new.access,
        refresh=new.refresh or old.refresh,
        expires=new.expires,
        scopes=new.scopes or old.scopes,
    )


async def revoke(http: WebClient, spec: OAuthSpec, login: Login) -> bool:
    """Tell the authorization server that the tokens are no longer wanted (RFC 7009); return whether it took it."""
    token = login.tokens.refresh or login.tokens.access
    if not login.revocation_endpoint or not token:
        return False
    kind = "refresh_token" if login.tokens.refresh else "access_token"
    form = _with_client(login.client, spec, login.issuer, {"token": token, "token_type_hint": kind})
    answer = await _sent(http, _post(login.revocation_endpoint, form))
    return answer.status == 200


def refusal_in(document: Mapping[str, Any], status: int, where: str) -> OAuthRefusal:
    """Say what an error answer means: its code, and what it says for people, made harmless and short."""
    raw = text_in(document, "error")
    code = raw if _ERROR_CODE.fullmatch(raw) else ""
    words = escape(" ".join(text_in(document, "error_description").split()))[:200]
    reason = ": ".join(part for part in (code or f"HTTP {status}", words) if part)
    return OAuthRefusal(code, f"{origin(where)} refused: {reason}")


def _json_of(body: bytes) -> Mapping[str, Any]:
    """Return a JSON object; anything else counts as an empty one."""
    try:
        found = read_json(body)
    except ValueError:
        return {}
    return as_mapping(found)


async def _ask(http: WebClient, url: str, signed: tuple[Mapping[str, str], Mapping[str, str]]) -> Mapping[str, Any]:
    answer = await _sent(http, _post(url, signed))
    if answer.status >= 500 or answer.status == 429:
        raise ToolFailure("unavailable", f"{origin(url)} gives no token now (HTTP {answer.status})")
    document = _json_of(answer.body)
    if not 200 <= answer.status < 300 or "error" in document:
        refusal = refusal_in(document, answer.status, url)
        refusal.ahead = _ahead(answer)
        raise refusal
    return document


def _ahead(answer: Page) -> int:
    try:
        return round(parsedate_to_datetime(answer.headers.get("date", "")).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0


async def _sent(http: WebClient, request: WebRequest) -> Page:
    """Return the answer of the endpoint itself. Raises `ToolFailure` `denied` for one that another origin gave."""
    answer = await http.send(request)
    if not same_origin(answer.url, request.url):
        raise ToolFailure(
            "denied", f"{origin(request.url)} redirects to {origin(answer.url)}, whose answer is not used"
        )
    return answer


def _post(url: str, signed: tuple[Mapping[str, str], Mapping[str, str]]) -> WebRequest:
    form, extra = signed
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json", **extra}
    return WebRequest(
        method="POST", url=safe_url(url, "the token endpoint"), headers=headers, content=urlencode(form).encode()
    )


def _with_client(
    client: RegisteredClient, spec: OAuthSpec, issuer: str, form: Mapping[str, str], *, ahead: int = 0
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the form and the headers by which we show who we are."""
    named = {**form, "client_id": client.id}
    if client.auth == "basic":
        pair = f"{quote(client.id, safe='')}:{quote(client.secret, safe='')}"
        # The id in the body as well: the servers of the MCP SDK look for it there.
        return named, {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    if client.auth == "post":
        return {**named, "client_secret": client.secret}, {}
    if client.auth == "private_key_jwt":
        assertion = client_assertion(spec.private_key, client.id, issuer, ahead=ahead)
        return {**named, "client_assertion_type": _ASSERTION_TYPE, "client_assertion": assertion}, {}
    return named, {}


def _end(seconds: object) -> float:
    """Return when a token of that life runs out, 0 if unknown. Some servers say it as a text."""
    if isinstance(seconds, str) and seconds.isascii() and seconds.isdecimal() and len(seconds) < 12:
        seconds = int(seconds)
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not _MIN_LIFETIME_SECONDS <= seconds < _MAX_LIFETIME_SECONDS
    ):
        return 0.0
    return time.time() + seconds


def configured(spec: OAuthSpec, server: AuthorizationServer) -> RegisteredClient | None:
    """Return the client that needs no registration at `server`; None without one."""
    if spec.client_id:
        return RegisteredClient(
            id=spec.client_id, secret=spec.client_secret, auth=spec.client_auth or _fitting(spec, server)
        )
    if spec.client_metadata_url and server.takes_metadata_urls:
        return RegisteredClient(id=spec.client_metadata_url, auth="private_key_jwt" if spec.private_key else "none")
    return None


async def register(
    http: WebClient, server: AuthorizationServer, redirect_uri: str, scopes: tuple[str, ...]
) -> RegisteredClient:
    """Have ourselves registered and return who we are now. Raises `ToolFailure`."""
    if not server.registration_endpoint:
        raise ToolFailure(
            "denied",
            f"{server.issuer[:200]} does not register clients by itself",
            hint="Register an application there and write its `client_id` under `auth` of the server.",
        )
    offered = [_way_to_show(word) for word in server.client_auths]
    # `post` before `basic`: servers made with the MCP SDK want the secret in the form when a token is revoked.
    ways: tuple[ClientAuth, ...] = ("none", "post", "basic")
    wanted = next((way for way in ways if way in offered), ways[0])
    asked = {
        "client_name": _CLIENT_NAME,
        "application_type": "native",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": _METHOD_BY_CLIENT_AUTH[wanted],
    }
    if scopes:
        asked["scope"] = " ".join(scopes)
    headers = {"content-type": "application/json", "accept": "application/json"}
    answer = await _sent(
        http, WebRequest(method="POST", url=server.registration_endpoint, headers=headers, content=dumps(asked))
    )
    document = _json_of(answer.body)
    if answer.status not in (200, 201):
        raise refusal_in(document, answer.status, server.registration_endpoint)
    usual = _METHOD_BY_CLIENT_AUTH[wanted] if text_in(document, "client_secret") else "none"
    method = text_in(document, "token_endpoint_auth_method") or usual
    client = _registered(document, _way_to_show(method))
    if client is None:
        raise ToolFailure(
            "denied",
            f"{origin(server.registration_endpoint)} registered us in a way that we cannot use ({method[:80]})",
            hint="Register an application there and write its `client_id` under `auth` of the server.",
        )
    return replace(client, redirect_uri=redirect_uri, scopes=scopes)


def _registered(document: Mapping[str, Any], way: ClientAuth | None) -> RegisteredClient | None:
    """Return the client that an answer to a registration names; None for one that we cannot use."""
    given, secret = text_in(document, "client_id"), text_in(document, "client_secret")
    is_usable = way in _METHOD_BY_CLIENT_AUTH and (way == "none" or bool(secret))
    if not 0 < len(given) <= _MAX_VALUE_LENGTH or len(secret) > _MAX_VALUE_LENGTH or way is None or not is_usable:
        return None
    if way == "none":
        return RegisteredClient(id=given, auth=way)
    ends = document.get("client_secret_expires_at")
    expires = float(ends) if isinstance(ends, int | float) and not isinstance(ends, bool) else 0.0
    return RegisteredClient(id=given, secret=secret, auth=way, expires=expires)


def _fitting(spec: OAuthSpec, server: AuthorizationServer) -> ClientAuth:
    """Return the authentication of a configured client: with its credentials, by a method that the server takes."""
    if spec.private_key:
        return "private_key_jwt"
    if not spec.client_secret:
        return "none"
    offered = {_way_to_show(word) for word in server.client_auths}
    return "post" if "post" in offered and "basic" not in offered else "basic"
