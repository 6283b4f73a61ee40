"""Client authentication with a signed JWT (`private_key_jwt`, RFC 7523, RFC 7515), with the key types in use.

Imported where a configuration has a private key: cryptography is loaded here.
"""

from __future__ import annotations

import base64
import secrets
import time
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from ...core.json import dumps
from ...errors import UsageError

__all__ = ["signed_word"]

_SECONDS: Final = 120
"""How long a word is good: it is used at once."""
_P256_BYTES: Final = 32


def signed_word(pem: str, client_id: str, audience: str) -> str:
    """Return a JWT by which `client_id` shows `audience`, an issuer, that it holds the key.

    Raises `UsageError` for an unusable private key.
    """
    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError("auth: `private_key` is not a PEM private key without a password") from error
    now = int(time.time())
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "iat": now,
        "exp": now + _SECONDS,
        "jti": secrets.token_urlsafe(24),
    }
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        text = _unsigned("ES256", claims)
        numbers = decode_dss_signature(key.sign(text, ec.ECDSA(hashes.SHA256())))
        return _whole(text, b"".join(number.to_bytes(_P256_BYTES, "big") for number in numbers))
    if isinstance(key, rsa.RSAPrivateKey):
        text = _unsigned("RS256", claims)
        return _whole(text, key.sign(text, padding.PKCS1v15(), hashes.SHA256()))
    if isinstance(key, ed25519.Ed25519PrivateKey):
        text = _unsigned("EdDSA", claims)
        return _whole(text, key.sign(text))
    raise UsageError("auth: `private_key` must be an EC P-256, an RSA or an Ed25519 key")


def _unsigned(algorithm: str, claims: dict[str, Any]) -> bytes:
    return b".".join(_packed(dumps(part)) for part in ({"alg": algorithm, "typ": "JWT"}, claims))


def _whole(text: bytes, signature: bytes) -> str:
    return (text + b"." + _packed(signature)).decode("ascii")


def _packed(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
