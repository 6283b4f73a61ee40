"""What a server says when it refuses is read as RFC 9110 writes it, whatever stands beside it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.net.oauth.metadata import Challenge, bearer_challenge

PLACE = "https://a.example/.well-known/oauth-protected-resource"


@pytest.mark.parametrize(
    ("header", "meant"),
    [
        ("", None),
        ("Basic realm=x", None),
        ("Bearer", Challenge()),
        ("bearer realm=x", Challenge()),
        (f'Bearer resource_metadata="{PLACE}"', Challenge(resource_metadata=PLACE)),
        (f"Bearer resource_metadata={PLACE}, scope=read", Challenge(resource_metadata=PLACE, scopes=("read",))),
        ('Bearer scope="a b a", error="insufficient_scope"', Challenge(scopes=("a", "b"), error="insufficient_scope")),
        ('Negotiate abc==, Basic realm="x, Bearer scope=no", Bearer scope="yes"', Challenge(scopes=("yes",))),
        ('Bearer scope="a", DPoP scope="b", algs="ES256"', Challenge(scopes=("a",))),
        (r'Bearer error="a\"b", scope="c"', Challenge(error='a"b', scopes=("c",))),
        ('Bearer scope="a\\\\ b"', Challenge(scopes=("b",))),
    ],
)
def test_the_bearer_challenge_of_a_header_is_found(header: str, meant: Challenge | None) -> None:
    assert bearer_challenge(header) == meant


@given(
    st.lists(st.sampled_from([*'Bearer scope="a\\,=\t\0é', "Bearer", "DPoP", "error", "="]), max_size=40).map("".join)
)
def test_no_header_breaks_the_reading(text: str) -> None:
    found = bearer_challenge(text)

    assert found is None or isinstance(found, Challenge)
