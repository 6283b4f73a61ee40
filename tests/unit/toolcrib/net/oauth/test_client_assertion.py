"""Client authentication with a signed JWT, verified by another library."""

import time
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qsl

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from peers.serving import serving
from toolcrib.errors import UsageError
from toolcrib.net.oauth.flow import make_http
from toolcrib.net.oauth.login import Login, RegisteredClient
from toolcrib.net.oauth.spec import OAuthSpec
from toolcrib.net.oauth.tokens import client_assertion, get_tokens


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


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
@pytest.mark.parametrize(("ahead", "asked"), [(0, 1), (7_200, 2), (-7_200, 2)])
async def test_an_issuer_with_another_clock_gets_an_assertion_of_its_own_time(ahead: int, asked: int) -> None:
    key = _pem(ed25519.Ed25519PrivateKey.generate())
    received: list[dict[str, Any]] = []

    async def token(request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode()))
        claims = jwt.decode(form["client_assertion"], OKPKey.import_key(key), algorithms=["EdDSA"]).claims
        received.append(claims)
        now = time.time() + ahead
        good = claims["iat"] - 5 <= now <= claims["exp"]
        body = {"access_token": "a", "token_type": "Bearer"} if good else {"error": "invalid_client"}
        return JSONResponse(body, 200 if good else 401, headers={"Date": formatdate(now, usegmt=True)})

    async with serving(Starlette(routes=[Route("/token", token, methods=["POST"])])) as origin:
        client = RegisteredClient(id="toolcrib", auth="private_key_jwt")
        login = Login(resource="r", issuer=origin, token_endpoint=f"{origin}/token", client=client)
        spec = OAuthSpec(private_key=key)
        http = make_http(f"{origin}/mcp", spec)
        assert (await get_tokens(http, spec, login, {"grant_type": "client_credentials"})).access == "a"
        await http.aclose()

    assert len(received) == asked
