"""OAuth settings of a remote server: its key `auth`.

    auth: {type: oauth, client_id: "…", client_secret: "${SECRET}", scopes: [read]}
    auth: {type: oauth, grant: client_credentials, client_id: "…", private_key: "${PEM}"}
    auth: {type: none}

Without `auth`, and without an `Authorization` among its headers, a server gets a login as soon as it asks for one.
Claude Code's `oauth: {clientId, callbackPort}` and Cursor's `auth: {CLIENT_ID, CLIENT_SECRET}` are understood too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

from ..catalog.names import nearest
from ..errors import ConfigError
from ..net.oauth.login import CLIENT_AUTHS, GRANTS, OAuthSpec

__all__ = ["AUTH_KEYS", "Reading", "oauth_secrets", "oauth_spec"]

AUTH_KEYS: Final[Mapping[str, str]] = {
    "type": "type",
    "grant": "grant",
    "client_id": "client_id",
    "clientId": "client_id",
    "client_secret": "client_secret",
    "clientSecret": "client_secret",
    "CLIENT_ID": "client_id",
    "CLIENT_SECRET": "client_secret",
    "client_auth": "client_auth",
    "private_key": "private_key",
    "client_metadata_url": "client_metadata_url",
    "scopes": "scopes",
    "issuer": "issuer",
    "redirect_port": "redirect_port",
    "callbackPort": "redirect_port",
    "scope": "scopes",
}
"""Every key that `auth` may have, and our word for it."""

_TEXTS: Final = ("client_id", "client_secret", "private_key", "client_metadata_url", "issuer")
_TYPES: Final = ("oauth", "none")


class Reading(NamedTuple):
    """Reader of a part of an entry: it knows the position in the file."""

    text: Callable[..., str]
    """Of a value and its keys: the text, expanded. Raises `ConfigError`."""
    error: Callable[..., ConfigError]
    """Of a message and the keys that it is about."""


def oauth_spec(given: Any, headers: Mapping[str, str], reading: Reading, key: str = "auth") -> OAuthSpec | None:
    """Return how to log in; None where `headers` do that, or `auth` disables it. Raises `ConfigError`."""
    sends_own = any(name.lower() == "authorization" for name in headers)
    if given is None:
        return None if sends_own else OAuthSpec()
    if given in _TYPES:
        given = {"type": given}
    if not isinstance(given, Mapping):
        raise reading.error("a mapping with `type: oauth` or `type: none` was expected", key)
    value = _known(cast("Mapping[str, Any]", given), reading, key)
    kind = value.pop("type", "oauth")
    if kind not in _TYPES:
        raise reading.error(f"{kind!r} is not one of {', '.join(_TYPES)}; give a fixed token in `headers`", key, "type")
    if kind == "none":
        if value:
            raise reading.error(f"`type: none` takes no {next(iter(value))}", key)
        return None
    if sends_own:
        raise reading.error("there is an `Authorization` among `headers` already; leave one of them out", key)
    texts = {name: reading.text(value[name], key, name) for name in _TEXTS if name in value}
    spec = OAuthSpec(
        **texts,
        grant=_one_of(value.get("grant", GRANTS[0]), GRANTS, reading, key, "grant"),
        client_auth=_one_of(value["client_auth"], CLIENT_AUTHS, reading, key, "client_auth")
        if "client_auth" in value
        else None,
        scopes=_scopes(value.get("scopes", ()), reading, key),
        redirect_port=_port(value.get("redirect_port", 0), reading, key),
    )
    _check(spec, reading, key)
    return spec


def oauth_secrets(spec: OAuthSpec | None) -> tuple[str, ...]:
    """Return the values to mask wherever they turn up."""
    return tuple(value for value in (spec.client_secret, spec.private_key) if value) if spec is not None else ()


def _known(given: Mapping[str, Any], reading: Reading, key: str) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for name, item in given.items():
        ours = AUTH_KEYS.get(name)
        if ours is None:
            close = nearest(name, AUTH_KEYS, 1)
            raise reading.error(f"unknown key{f'; did you mean {close[0]!r}?' if close else ''}", key, str(name))
        if ours in known:
            raise reading.error(f"says the same as another key of it ({ours!r})", key, name)
        if item is not None:
            known[ours] = item
    return known


def _one_of(item: Any, known: Sequence[Any], reading: Reading, *keys: str) -> Any:
    if item not in known:
        raise reading.error(f"{item!r} is not one of {', '.join(known)}", *keys)
    return item


def _scopes(items: Any, reading: Reading, key: str) -> tuple[str, ...]:
    if isinstance(items, str):
        items = items.split()
    if not isinstance(items, Sequence):
        raise reading.error("a list of scopes was expected", key, "scopes")
    listed = cast("Sequence[Any]", items)
    scopes = tuple(reading.text(item, key, f"scopes[{place}]") for place, item in enumerate(listed))
    if any(not scope or len(scope.split()) != 1 for scope in scopes):
        raise reading.error("a scope is one word", key, "scopes")
    return scopes


def _port(item: Any, reading: Reading, key: str) -> int:
    if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item <= 65535:
        raise reading.error("a port from 0 (any free one) to 65535 was expected", key, "redirect_port")
    return item


def _check(spec: OAuthSpec, reading: Reading, key: str) -> None:
    """Raise `ConfigError` for what cannot work together."""
    shows = bool(spec.client_secret or spec.private_key)
    if spec.grant == "client_credentials" and not (spec.client_id and shows):
        raise reading.error("client_credentials needs `client_id`, with `client_secret` or `private_key`", key)
    if (spec.client_secret or spec.client_auth) and not spec.client_id:
        useless = "client_secret" if spec.client_secret else "client_auth"
        raise reading.error("is of no use without `client_id`", key, useless)
    needed = {"basic": spec.client_secret, "post": spec.client_secret, "private_key_jwt": spec.private_key}
    if spec.client_auth in needed and not needed[spec.client_auth]:
        missing = "private_key" if spec.client_auth == "private_key_jwt" else "client_secret"
        raise reading.error(f"{spec.client_auth} needs `{missing}`", key, "client_auth")
    for name, url in (("issuer", spec.issuer), ("client_metadata_url", spec.client_metadata_url)):
        parts = urlsplit(url)
        if url and (parts.scheme not in ("https", "http") or not parts.hostname):
            raise reading.error("a URL was expected", key, name)
    document = urlsplit(spec.client_metadata_url)
    if spec.client_metadata_url and (document.scheme != "https" or document.path in ("", "/")):
        raise reading.error("an https:// URL with a path was expected", key, "client_metadata_url")
