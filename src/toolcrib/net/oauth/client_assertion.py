"""Client authentication with a signed JWT (`private_key_jwt`, RFC 7523), with the key types in use.

Imported where a configuration has a private key: PyJWT and cryptography are loaded here.
"""

from __future__ import annotations

import secrets
import time
from typing import Final

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from ...errors import UsageError

__all__ = ["client_assertion"]

_SECONDS: Final = 120
"""Lifetime of an assertion: it is used at once."""


def client_assertion(pem: str, client_id: str, audience: str) -> str:
    """Return a JWT by which `client_id` proves to `audience`, an issuer, that it holds the key.

    Raises `UsageError` for an unusable private key.
    """
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
    now = int(time.time())
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "iat": now,
        "exp": now + _SECONDS,
        "jti": secrets.token_urlsafe(24),
    }
    return jwt.encode(claims, key, algorithm)
