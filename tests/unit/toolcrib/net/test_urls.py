"""Two URLs have one origin if scheme, host and port are the same, however they are written."""

import pytest

from toolcrib.net.urls import same_origin


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("https://API.example/a", "https://api.example:443/b?c", True),
        ("http://[::1]:80/", "http://[::1]", True),
        ("https://api.example", "http://api.example", False),
        ("https://api.example", "https://api.example:8443", False),
        ("https://api.example", "https://api.example.org", False),
        ("https://api.example:x", "https://api.example:x", False),
    ],
)
def test_origins_are_the_same_by_scheme_host_and_port_and_an_invalid_url_has_none(
    one: str, other: str, expected: bool
) -> None:
    assert same_origin(one, other) is expected
