"""The `auth` of a remote server: what it says becomes how we log in, and what cannot be is told with its place."""

from typing import Any

import pytest

from toolcrib.config.loader import servers_in
from toolcrib.config.servers import ConfiguredEntry, specs_of
from toolcrib.net.oauth.spec import OAuthSpec

URL = "https://mcp.example/mcp"


def read(auth: Any, *, key: str = "auth", **more: Any) -> OAuthSpec | str | None:
    """Return what the entry means, or the problem that it is."""
    value = {"url": URL, **({} if auth is ... else {key: auth}), **more}
    specs, problems = specs_of([ConfiguredEntry(name="it", value=value)], {"SECRET": "s3cret"})
    return problems[0].message if problems else specs[0].oauth


@pytest.mark.parametrize(
    ("auth", "meant"),
    [
        (..., OAuthSpec()),
        ("oauth", OAuthSpec()),
        ({}, OAuthSpec()),
        ("none", None),
        ({"type": "none"}, None),
        (
            {"client_id": "us", "client_secret": "${SECRET}", "scopes": ["a", "b"], "redirect_port": 8123},
            OAuthSpec(client_id="us", client_secret="s3cret", scopes=("a", "b"), redirect_port=8123),
        ),
        (
            {"type": "oauth", "grant": "client_credentials", "client_id": "us", "private_key": "PEM"},
            OAuthSpec(grant="client_credentials", client_id="us", private_key="PEM"),
        ),
        (
            {"issuer": "https://sso.example", "scopes": "a b"},
            OAuthSpec(issuer="https://sso.example", scopes=("a", "b")),
        ),
    ],
)
def test_auth_says_how_to_log_in(auth: Any, meant: OAuthSpec | None) -> None:
    assert read(auth) == meant


@pytest.mark.parametrize(
    ("auth", "told"),
    [
        (5, "auth: a mapping with `type: oauth` or `type: none` was expected"),
        ({"type": "bearer"}, "auth.type: one of oauth, none was expected"),
        ({"type": "none", "client_id": "us"}, "auth.client_id: has no effect with `type: none`"),
        ({"cliant_id": "us"}, "auth.cliant_id: unknown key; did you mean 'client_id'?"),
        ({"client_id": "us", "clientId": "us"}, "repeats another key"),
        ({"client_secret": "x"}, "auth.client_secret: has no effect without `client_id`"),
        ({"client_id": "us", "client_auth": "post"}, "auth.client_auth: post needs `client_secret`"),
        ({"client_id": "us", "client_auth": "magic"}, "auth.client_auth: one of none, basic, post"),
        ({"grant": "client_credentials", "client_id": "us"}, "client_credentials needs `client_id`, with"),
        ({"grant": "password"}, "auth.grant: one of authorization_code, client_credentials was expected"),
        ({"scopes": ["a b"]}, "auth.scopes.0: a scope of one word"),
        ({"redirect_port": 70000}, "auth.redirect_port: a port from 0"),
        ({"issuer": "sso"}, "auth.issuer: a URL was expected"),
        ({"client_metadata_url": "http://a.example/x"}, "auth.client_metadata_url: an https:// URL with a path"),
        ({"client_id": "us", "client_secret": "${NOT_THERE}"}, "NOT_THERE is not set"),
    ],
)
def test_what_cannot_be_is_told_with_its_key(auth: Any, told: str) -> None:
    problem = read(auth)

    assert isinstance(problem, str) and told in problem, problem


def test_a_credential_among_the_headers_stands_alone() -> None:
    headers = {"Authorization": "Bearer x"}

    assert read(..., headers=headers) is None
    assert "leave one of them out" in str(read({"client_id": "us"}, headers=headers))


def test_what_other_clients_write_is_understood_and_what_nobody_writes_stops_the_entry() -> None:
    logins = {
        "claude": {"oauth": {"clientId": "us", "callbackPort": 8123}},
        "cursor": {"auth": {"CLIENT_ID": "us", "CLIENT_SECRET": "x"}},
        "gemini": {"oauth": {"enabled": True, "clientId": "us", "authorizationUrl": "https://a", "scopes": ["r"]}},
        "off": {"oauth": False},
        "fastmcp": {"auth": "some-token"},
        "wrong": {"oauth": {"clientld": "us"}},
    }
    servers = {name: {"url": URL, **login} for name, login in logins.items()}

    specs, problems = servers_in({"mcpServers": servers}, {})

    assert {spec.name: (spec.oauth, dict(spec.headers)) for spec in specs} == {
        "claude": (OAuthSpec(client_id="us", redirect_port=8123), {}),
        "cursor": (OAuthSpec(client_id="us", client_secret="x"), {}),
        "gemini": (OAuthSpec(client_id="us", scopes=("r",)), {}),
        "off": (None, {}),
        "fastmcp": (None, {"Authorization": "Bearer some-token"}),
    }
    assert [(problem.source, problem.code) for problem in problems] == [
        ("wrong", "bad_config"),
        ("mcpServers", "notice"),
    ]
    assert "mcpServers.wrong.oauth.clientld: unknown key" in problems[0].message
    assert "`oauth.authorizationUrl` (gemini)" in problems[1].message


def test_a_program_has_no_login() -> None:
    specs, problems = specs_of([ConfiguredEntry(name="it", value={"command": "cat", "auth": "oauth"})], {})

    assert specs == []
    assert "auth: is for a server with a `url`" in problems[0].message
