"""Stored login: our client at an authorization server, and the tokens that it issued. All of it is secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, cast

from ...core.patterns import regex
from .spec import CLIENT_AUTHS, ClientAuth

_SCOPE: Final = regex(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""RFC 6749, section 3.3."""
_MAX_SCOPE_LENGTH: Final = 256
_MAX_SCOPES: Final = 100

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredClient:
    """Our registration at one authorization server."""

    id: str
    secret: str = field(default="", repr=False)
    auth: ClientAuth = "none"
    redirect_uri: str = ""
    """Redirect URI of the registration; empty for a configured client."""
    scopes: tuple[str, ...] = ()
    """Scopes of the registration: some servers grant no others."""
    expires: float = 0.0
    """Expiry of the secret, in seconds since 1970; 0 is never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Tokens of one login."""

    access: str = field(default="", repr=False)
    refresh: str = field(default="", repr=False)
    expires: float = 0.0
    """Expiry of `access`, in seconds since 1970; 0 when unknown."""
    scopes: tuple[str, ...] = ()
    """The requested scopes, or the granted ones where the server named them."""

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets of the login, which are never shown."""
        return tuple(token for token in (self.access, self.refresh) if token)


NO_TOKENS: Final = Tokens()


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """One server, its authorization server, who we are there and what we got."""

    resource: str
    """The identifier that tokens are asked for with."""
    issuer: str
    token_endpoint: str
    client: RegisteredClient
    revocation_endpoint: str = ""
    tokens: Tokens = NO_TOKENS


def plain(login: Login) -> dict[str, Any]:
    """Return `login` as JSON."""
    return {"format": _FORMAT, **asdict(login)}


def login_of(value: object) -> Login:
    """Return the login from its `plain` form. Raises `ValueError` for anything else."""
    kept = _mapping(value)
    if kept.get("format") != _FORMAT:
        raise ValueError("written by another version")
    client, tokens = _mapping(kept.get("client")), _mapping(kept.get("tokens"))
    auth: ClientAuth | None = next((one for one in CLIENT_AUTHS if one == client.get("auth")), None)
    if auth is None or not isinstance(client.get("id"), str):
        raise ValueError("names no client")
    named = {one.name: _text(kept, one.name) for one in fields(Login) if one.name not in ("client", "tokens")}
    return Login(
        **named,
        client=RegisteredClient(
            id=_text(client, "id"),
            secret=_text(client, "secret"),
            auth=auth,
            redirect_uri=_text(client, "redirect_uri"),
            scopes=_scopes(client),
            expires=_number(client, "expires"),
        ),
        tokens=Tokens(
            access=_text(tokens, "access"),
            refresh=_text(tokens, "refresh"),
            expires=_number(tokens, "expires"),
            scopes=_scopes(tokens),
        ),
    )


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("is not a login")
    return cast("Mapping[str, Any]", value)


def _text(kept: Mapping[str, Any], name: str) -> str:
    value = kept.get(name, "")
    if not isinstance(value, str):
        raise ValueError(f"{name} is not a text")
    return value


def _scopes(kept: Mapping[str, Any]) -> tuple[str, ...]:
    value = kept.get("scopes", [])
    if not isinstance(value, list):
        raise ValueError("scopes is not a list")
    return scopes_in(" ".join(map(str, cast("list[Any]", value))))


def _number(kept: Mapping[str, Any], name: str) -> float:
    value = kept.get(name, 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is not a number")
    return float(value)


def scopes_in(text: str) -> tuple[str, ...]:
    """Return the scopes of a list with spaces, each once; invalid ones are left out."""
    words = (word for word in text.split() if len(word) <= _MAX_SCOPE_LENGTH and _SCOPE.fullmatch(word))
    return tuple(dict.fromkeys(words))[:_MAX_SCOPES]
