"""Asking a person: the address for the browser, and whether what comes back answers exactly that question.

PKCE with S256 (RFC 7636), `state`, and `iss` (RFC 9207): an answer that somebody else made, or that was meant for
another authorization server, never gets to a token endpoint.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

from ...errors import ToolFailure
from .metadata import AuthorizationServer
from .tokens import refusal_in

__all__ = ["Question", "ask"]

_OFFLINE: Final = "offline_access"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One request for authorization, until its answer comes. Used once."""

    url: str = field(repr=False)
    """For the browser."""
    issuer: str
    """Who was asked."""
    redirect_uri: str
    state: str = field(repr=False)
    verifier: str = field(repr=False)
    needs_issuer: bool
    """Whether an answer that does not say who it comes from is none."""

    def is_answered_by(self, answer: Mapping[str, str]) -> bool:
        """Whether `answer` is to this question and to no other; what is not is ignored."""
        return hmac.compare_digest(answer.get("state", "").encode(), self.state.encode())

    def code(self, answer: Mapping[str, str]) -> str:
        """Return the authorization code of an answer to this question. Raises `ToolFailure` `denied`."""
        issuer = answer.get("iss")
        if issuer is None and self.needs_issuer:
            raise ToolFailure(
                "denied", f"the answer does not say that it comes from {self.issuer[:200]}; it is not used"
            )
        if issuer is not None and issuer != self.issuer:
            raise ToolFailure(
                "denied", f"the answer comes from another server than {self.issuer[:200]}; it is not used"
            )
        if "error" in answer:
            raise refusal_in(answer, 400, self.issuer)
        code = answer.get("code", "")
        if not code:
            raise ToolFailure("denied", f"the answer of {self.issuer[:200]} holds no code")
        return code


def ask(
    server: AuthorizationServer, client_id: str, redirect_uri: str, scopes: tuple[str, ...], resource: str
) -> Question:
    """Return the question. Raises `ToolFailure` `denied` for a server that does not say that it takes PKCE (S256)."""
    if not server.authorization_endpoint:
        raise ToolFailure("denied", f"{server.issuer[:200]} asks no people: it names no authorization endpoint")
    if "S256" not in server.challenge_methods:
        raise ToolFailure(
            "denied",
            f"{server.issuer[:200]} does not say that it takes PKCE with S256: who overhears the answer could use it",
        )
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    asked = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "resource": resource,
    }
    if scopes:
        asked["scope"] = " ".join(scopes)
    if _OFFLINE in scopes:
        asked["prompt"] = "consent"  # OpenID Connect Core, section 11
    mark = "&" if "?" in server.authorization_endpoint else "?"
    return Question(
        url=f"{server.authorization_endpoint}{mark}{urlencode(asked)}",
        issuer=server.issuer,
        redirect_uri=redirect_uri,
        state=state,
        verifier=verifier,
        needs_issuer=server.names_itself,
    )
