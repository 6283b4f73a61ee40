"""Who is calling over HTTP: the bearer token, and the principal that it makes."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from typing import Final

from ..core.session import LOCAL
from ..errors import UsageError

__all__ = ["Authority", "is_loopback"]

_SCHEME: Final = b"bearer "


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Authority:
    """Tells callers by one bearer token. Without a token everybody is the local user, and only loopback is served."""

    def __init__(self, token: str, *, host: str) -> None:
        """Raise `UsageError` when `host` can be reached from elsewhere and there is no token."""
        if not token and not is_loopback(host):
            raise UsageError(f"{host} can be reached from other machines: give --token, or bind 127.0.0.1")
        if any(not 0x21 <= ord(character) <= 0x7E for character in token):
            raise UsageError("the token may hold visible ASCII characters only")
        self._digest = _digest(token.encode()) if token else None
        self.principal = f"token-{hashlib.sha256(token.encode()).hexdigest()[:12]}" if token else LOCAL

    @property
    def is_open(self) -> bool:
        """Whether no token is asked for."""
        return self._digest is None

    def principal_of(self, authorization: bytes | None) -> str | None:
        """Return the name of the caller with this `Authorization` header, None for a stranger."""
        if self._digest is None:
            return self.principal
        if authorization is None or authorization[: len(_SCHEME)].lower() != _SCHEME:
            return None
        given = _digest(authorization[len(_SCHEME) :].strip())
        return self.principal if hmac.compare_digest(given, self._digest) else None


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(b"toolcrib bearer\0" + token).digest()
