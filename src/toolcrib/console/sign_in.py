"""Sign-in to the console: a token, or a code that is good for once, becomes a signed cookie.

Nothing is kept but the codes that are not used yet, and digests of the cookies of those who signed out. The key of
the signatures belongs to the tokens of the server: replicas with the same tokens take each other's cookies, and a new
token ends every session.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

SECONDS: Final = 12 * 3600
"""Lifetime of a sign-in, in seconds."""
_CODE_SECONDS: Final = 300
"""Lifetime of an unused code, in seconds."""


class SignIn:
    """Checks who signs in, and the cookies of those who have. Lives as long as the server."""

    def __init__(self, key: bytes) -> None:
        """`key` signs the cookies."""
        self._key = key
        self._codes: dict[str, tuple[str, float]] = {}
        self._ended: dict[str, float] = {}

    def new_code(self, principal: str, now: float) -> str:
        """Return a code by which `principal` signs in once, within five minutes of `now`."""
        code = secrets.token_urlsafe(32)
        self._codes = {digest: kept for digest, kept in self._codes.items() if now < kept[1]}
        self._codes[_digest(code)] = (principal, now + _CODE_SECONDS)
        return code

    def by_code(self, code: str, now: float) -> str:
        """Return whose unused code this is, and use it up; empty for any other."""
        principal, until = self._codes.pop(_digest(code), ("", 0.0))
        return principal if now < until else ""

    def cookie(self, principal: str, now: float) -> str:
        """Return the cookie of an operator who signs in `now`."""
        signed = f"{int(now) + SECONDS}.{secrets.token_urlsafe(12)}.{principal.encode().hex()}"
        return f"{signed}.{self._sign('cookie', signed)}"

    def operator(self, cookie: str, now: float) -> str:
        """Return whose cookie this is; empty for one that is not ours or too old."""
        signed, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign("cookie", signed).encode()):
            return ""
        until, _, name = signed.split(".")
        return bytes.fromhex(name).decode() if now < int(until) and _digest(cookie) not in self._ended else ""

    def end(self, cookie: str, now: float) -> None:
        """Take no request with this cookie any more."""
        if self.operator(cookie, now):
            self._ended = {digest: until for digest, until in self._ended.items() if now < until}
            self._ended[_digest(cookie)] = now + SECONDS

    def form_token(self, cookie: str) -> str:
        """Return the token in each form of this cookie's pages, which other sites do not have."""
        return self._sign("form", cookie)

    def is_of_form(self, given: str, cookie: str) -> bool:
        """Whether a form comes from a page of this cookie."""
        return hmac.compare_digest(given.encode(), self.form_token(cookie).encode())

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose}\0{text}".encode(), hashlib.sha256).hexdigest()


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
