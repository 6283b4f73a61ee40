"""Authentication over HTTP: the bearer token, its principal, and that principal's rights."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ..config.sections import Scope, TokenSpec
from ..core.session import LOCAL
from ..errors import UsageError

__all__ = ["Authority", "Caller", "is_loopback"]

_SCHEME: Final = b"bearer "
_ANY: Final = "*"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Sender of a request. Lives as long as the request."""

    principal: str
    scope: Scope = "call"
    instances: tuple[str, ...] = ()
    """The instances that they may work as."""

    def may_be(self, instance: str) -> bool:
        """Whether they may work as this instance."""
        return instance in self.instances or _ANY in self.instances

    @property
    def own(self) -> str:
        """The default instance of a caller: the only permitted one, else empty."""
        return self.instances[0] if len(self.instances) == 1 and self.instances[0] != _ANY else ""


class Authority:
    """Authentication of callers by their bearer tokens.

    Without a configured token every caller is the local user, and only loopback is served. Administration always needs
    a token of its own.
    """

    def __init__(self, token: str, *, host: str, admin_token: str = "", tokens: Iterable[TokenSpec] = ()) -> None:
        """Raise `UsageError` when `host` can be reached from elsewhere and calls need no token, or for a bad token.

        `token` is for calls without an instance, `admin_token` for administration; `tokens` are further ones.
        """
        specs = [
            *([TokenSpec(token=token)] if token else []),
            *([TokenSpec(token=admin_token, scope="admin")] if admin_token else []),
            *tokens,
        ]
        self._is_open = all(spec.scope == "admin" for spec in specs)
        if self._is_open and not is_loopback(host):
            raise UsageError(f"{host} can be reached from other machines: give --token, or bind 127.0.0.1")
        if any(not 0x21 <= ord(character) <= 0x7E for spec in specs for character in spec.token):
            raise UsageError("the token may hold visible ASCII characters only")
        if len({spec.token for spec in specs}) < len(specs):
            raise UsageError("two tokens are equal: each caller needs a token of its own")
        self._known = [(_digest(spec.token.encode()), _caller(spec)) for spec in specs]
        self._anybody = Caller(principal=LOCAL, instances=(_ANY,)) if self._is_open else None

    @property
    def is_open(self) -> bool:
        """Whether no token is asked for to call tools."""
        return self._is_open

    @property
    def principal(self) -> str:
        """The name of the first caller there is, the local user where no token is asked for."""
        return LOCAL if self._anybody else self._known[0][1].principal

    def caller_of(self, authorization: bytes | None) -> Caller | None:
        """Return the caller with this `Authorization` header, None for an unknown one.

        Without configured tokens, a header is ignored unless it has the form of one of ours.
        """
        if authorization is None or (self._anybody and not self._known):
            return self._anybody
        if authorization[: len(_SCHEME)].lower() != _SCHEME:
            return self._anybody
        given = _digest(authorization[len(_SCHEME) :].strip())
        found: Caller | None = None
        for digest, caller in self._known:  # all of them, so that the time taken reveals nothing
            if hmac.compare_digest(given, digest):
                found = caller
        return found


def _caller(spec: TokenSpec) -> Caller:
    name = f"token-{hashlib.sha256(spec.token.encode()).hexdigest()[:12]}"
    return Caller(principal=spec.principal or name, scope=spec.scope, instances=spec.instances)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(b"toolcrib bearer\0" + token).digest()
