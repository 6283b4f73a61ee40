"""The token endpoint: showing who we are, and reading what comes back without believing it.

Tokens travel in request bodies and headers only, never in a URL; no message of ours holds one, nor a secret.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, cast
from urllib.parse import quote, urlencode

from ...core.hidden import escape
from ...core.json import read_json
from ...errors import ToolFailure
from ..client import WebClient, WebRequest
from .addresses import origin, safe_url
from .challenge import scopes_in
from .login import Client, Login, Tokens
from .metadata import text_in
from .spec import ClientAuth, OAuthSpec

__all__ = ["Refused", "get_tokens", "json_of", "refusal_in", "renewed", "revoke", "way_to_show"]

_BEARER: Final = re.compile(r"[\x21-\x7e]{1,16384}")
"""What can be sent in a header."""
_CODE: Final = re.compile(r"[\x20-\x21\x23-\x5b\x5d-\x7e]{1,64}")
"""An error code (RFC 6749, section 5.2), of a length that a code has."""
_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_LONGEST_LIFE: Final = 10 * 365 * 86_400.0
_THEIR_WORDS: Final[Mapping[str, ClientAuth]] = {
    "none": "none",
    "client_secret_basic": "basic",
    "client_secret_post": "post",
    "private_key_jwt": "private_key_jwt",
}


class Refused(ToolFailure):
    """The authorization server said no. `error` is its code: `invalid_grant`, `invalid_client` …"""

    def __init__(self, error: str, message: str, *, hint: str = "") -> None:
        super().__init__("denied", message, hint=hint)
        self.error = error


def way_to_show(word: str) -> ClientAuth | None:
    """Return our word for a token endpoint authentication method; None for one that we do not know."""
    return _THEIR_WORDS.get(word)


async def get_tokens(
    http: WebClient, spec: OAuthSpec, login: Login, form: Mapping[str, str], scopes: tuple[str, ...] = ()
) -> Tokens:
    """Ask the token endpoint of `login` and return what it gives. Raises `Refused`, or `ToolFailure`.

    `form` is the grant with its parameters; who we are and the resource are added here. `scopes` were asked for: they
    are granted where the answer says nothing else (RFC 6749, section 5.1).
    """
    asked = {**form, "resource": login.resource}
    document = await _ask(http, login.token_endpoint, _with_client(login.client, spec, login.issuer, asked))
    access, kind = text_in(document, "access_token"), text_in(document, "token_type")
    if not _BEARER.fullmatch(access) or kind.lower() != "bearer":
        raise ToolFailure("denied", f"{origin(login.token_endpoint)} gave no bearer token that can be used")
    refresh = text_in(document, "refresh_token")
    granted = document.get("scope")
    return Tokens(
        access=access,
        refresh=refresh if _BEARER.fullmatch(refresh) else "",
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
    answer = await http.send(_post(login.revocation_endpoint, form))
    return answer.status == 200


def refusal_in(document: Mapping[str, Any], status: int, where: str) -> Refused:
    """Say what an error answer means: its code, and what it says for people, made harmless and short."""
    said = text_in(document, "error")
    code = said if _CODE.fullmatch(said) else ""
    words = escape(" ".join(text_in(document, "error_description").split()))[:200]
    reason = ": ".join(part for part in (code or f"HTTP {status}", words) if part)
    return Refused(code, f"{origin(where)} refused: {reason}")


def json_of(body: bytes) -> Mapping[str, Any]:
    """Return a JSON object; anything else counts as an empty one."""
    try:
        found = read_json(body)
    except ValueError:
        return {}
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}


async def _ask(http: WebClient, url: str, signed: tuple[Mapping[str, str], Mapping[str, str]]) -> Mapping[str, Any]:
    answer = await http.send(_post(url, signed))
    if answer.status >= 500 or answer.status == 429:
        raise ToolFailure("unavailable", f"{origin(url)} gives no token now (HTTP {answer.status})")
    document = json_of(answer.body)
    if not 200 <= answer.status < 300 or "error" in document:
        raise refusal_in(document, answer.status, url)
    return document


def _post(url: str, signed: tuple[Mapping[str, str], Mapping[str, str]]) -> WebRequest:
    form, extra = signed
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json", **extra}
    return WebRequest(
        method="POST", url=safe_url(url, "the token endpoint"), headers=headers, content=urlencode(form).encode()
    )


def _with_client(
    client: Client, spec: OAuthSpec, issuer: str, form: Mapping[str, str]
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
        signing: Any = import_module(f"{__package__}.assertion")  # loads cryptography: few servers need it
        word = signing.signed_word(spec.private_key, client.id, issuer)
        return {**named, "client_assertion_type": _ASSERTION, "client_assertion": word}, {}
    return named, {}


def _end(seconds: object) -> float:
    """Return when a token of that life runs out; some servers say it as a text."""
    if isinstance(seconds, str) and seconds.isascii() and seconds.isdecimal() and len(seconds) < 12:
        seconds = int(seconds)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < _LONGEST_LIFE:
        return 0.0
    return time.time() + seconds
