"""Client authentication with a signed JWT, verified by another library."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from toolcrib.errors import UsageError
from toolcrib.net.oauth.tokens import client_assertion


def _pem(key: Any) -> str:
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem.decode()


@pytest.mark.parametrize(
    ("algorithm", "key", "kind"),
    [
        ("ES256", ec.generate_private_key(ec.SECP256R1()), ECKey),
        ("RS256", rsa.generate_private_key(65537, 2048), RSAKey),
        ("EdDSA", ed25519.Ed25519PrivateKey.generate(), OKPKey),
    ],
    ids=["ES256", "RS256", "EdDSA"],
)
@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
def test_an_assertion_is_signed_with_the_key_and_names_both_sides(algorithm: str, key: Any, kind: Any) -> None:
    assertion = client_assertion(_pem(key), "toolcrib", "https://issuer.example")

    claims = jwt.decode(assertion, kind.import_key(_pem(key)), algorithms=[algorithm]).claims
    assert (claims["iss"], claims["sub"], claims["aud"]) == ("toolcrib", "toolcrib", "https://issuer.example")
    assert claims["exp"] - claims["iat"] == 120
    assert client_assertion(_pem(key), "toolcrib", "https://issuer.example") != assertion


@pytest.mark.parametrize(
    "pem", ["", "no key", _pem(ec.generate_private_key(ec.SECP384R1()))], ids=["empty", "text", "another curve"]
)
def test_an_unusable_key_is_an_error_that_does_not_show_it(pem: str) -> None:
    with pytest.raises(UsageError) as refused:
        client_assertion(pem, "toolcrib", "https://issuer.example")
    assert "BEGIN" not in str(refused.value)
