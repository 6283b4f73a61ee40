"""`requestState` is what we handed to a client and get back from it: attacker input (security.md T25).

A token is readable, not forgeable: HMAC-SHA256 under a random key of this process, bound to who asked for what with
which arguments, good for 10 minutes and for one use.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from ...core.json import canonical, dumps, loads

__all__ = ["InvalidState", "StateSigner", "binding"]

_SECONDS: Final = 600.0
_REMEMBERED: Final = 20_000
"""Tokens that were used and have not expired. Beyond it every token is refused until some expire."""


class InvalidState(Exception):
    """The token is not ours, not for this request, too old or used. The reason is for the log, not for the client."""


def binding(principal: str, name: str, arguments: Mapping[str, Any]) -> bytes:
    """Return 32 bytes that name the request a token belongs to."""
    return hashlib.blake2b(canonical([principal, "tools/call", name, arguments]), digest_size=32).digest()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


class StateSigner:
    """Makes and opens tokens. Lives as long as the process: its key is never written down."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._key = secrets.token_bytes(32)
        self._clock = clock
        self._used: dict[str, float] = {}

    def seal(self, kind: str, state: str, bound: bytes) -> str:
        """Return a token that carries `state`. `kind` tells the states of different makers apart."""
        claims = [kind, state, self._clock() + _SECONDS, secrets.token_hex(12)]
        body = _text(dumps(claims))
        return f"{body}.{self._mac(body, bound)}"

    def open(self, token: str, bound: bytes) -> tuple[str, str]:
        """Return kind and state, once. Raises `InvalidState`."""
        body, _, mac = token.partition(".")
        if not hmac.compare_digest(mac.encode("utf-8", "replace"), self._mac(body, bound).encode()):
            raise InvalidState("not sealed by us for this request")
        kind, state, expires, nonce = cast(
            "tuple[str, str, float, str]", loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        )
        if self._clock() >= expires:
            raise InvalidState("expired")
        self._use(nonce, expires)
        return kind, state

    def _mac(self, body: str, bound: bytes) -> str:
        return _text(hmac.digest(self._key, body.encode("utf-8", "replace") + b"." + bound, "sha256"))

    def _use(self, nonce: str, expires: float) -> None:
        if nonce in self._used:
            raise InvalidState("used before")
        if len(self._used) >= _REMEMBERED:
            now = self._clock()
            self._used = {known: until for known, until in self._used.items() if until > now}
            if len(self._used) >= _REMEMBERED:
                raise InvalidState("too many tokens in use")
        self._used[nonce] = expires
