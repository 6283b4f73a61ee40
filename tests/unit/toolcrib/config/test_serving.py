"""Tokens and registration, as the configuration file says them."""

from pathlib import Path

import pytest

from toolcrib.cli.processes.server import http_options
from toolcrib.config.settings import RegistrationSettings, TokenSpec
from toolcrib.errors import ConfigError
from toolcrib.mcp.server.service import ServiceLimits
from unit.toolcrib.config.written import read


def test_tokens_have_a_scope_a_principal_and_instances_and_are_masked(tmp_path: Path) -> None:
    tokens = "[{token: ada-token, principal: ada, instances: [shop]}, {token: b, scope: admin}]"
    text = f"admin_token: ${{ROOT}}\ntokens: {tokens}\n"
    settings = read(tmp_path, text, ROOT="root-token")

    assert settings.http.admin_token == "root-token"
    assert settings.http.tokens == (
        TokenSpec(token="ada-token", principal="ada", instances=("shop",)),
        TokenSpec(token="b", scope="admin"),
    )
    assert {"root-token", "ada-token"} <= set(settings.secrets)
    assert "-token'" not in repr(settings)


def test_hosts_origins_and_drain_reach_the_server(tmp_path: Path) -> None:
    settings = read(
        tmp_path, "hosts: [Crib.example.org, '[::1]']\norigins: ['https://chat.example.org:8443']\ndrain: 30s\n"
    )

    options = http_options(settings)
    assert (options.hosts, options.origins) == (("Crib.example.org", "[::1]"), ("https://chat.example.org:8443",))
    assert (options.limits.drain, http_options(read(tmp_path, "{}\n")).limits.drain) == (30.0, ServiceLimits().drain)


def test_registration_says_what_may_be_registered(tmp_path: Path) -> None:
    settings = read(tmp_path, "registration: {accept: true, commands: true, private_hosts: ['10.0.0.7:8080']}\n")

    assert settings.http.registration == RegistrationSettings(
        accept=True, commands=True, private_hosts=("10.0.0.7:8080",)
    )
    assert read(tmp_path, "mode: manual\n").http.registration == RegistrationSettings()


def test_what_is_served_differs_with_each_of_them(tmp_path: Path) -> None:
    texts = [
        "{}\n",
        "hosts: [a]\n",
        "origins: ['http://a']\n",
        "admin_token: a\n",
        "tokens: [{token: a}]\n",
        "registration: {accept: true}\n",
    ]

    assert len({read(tmp_path, text).digest() for text in texts}) == len(texts)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tokens: x\n", "0.yaml:1: tokens: a list of tokens was expected"),
        ("tokens: [{scope: admin}]\n", "0.yaml:1: tokens.0.token: is required"),
        ("tokens: [{token: a, scope: root}]\n", "0.yaml:1: tokens.0.scope: one of call, admin was expected"),
        ("tokens: [{token: a, instance: b}]\n", "tokens.0.instance: unknown key; did you mean 'instances'?"),
        ("hosts: ['https://a.example']\n", "0.yaml:1: hosts.0: 'https://a.example' is not the name of a host"),
        ("hosts: ['a.example:8443']\n", "0.yaml:1: hosts.0: 'a.example:8443' is not the name of a host"),
        ("origins: [a.example]\n", "0.yaml:1: origins.0: 'a.example' is not a web origin"),
        ("registration: {accept: maybe}\n", "0.yaml:1: registration.accept: true or false was expected"),
        ("registration:\n  private_hosts: ['a/b']\n", "0.yaml:2: registration.private_hosts.0: 'a/b' is not a host"),
    ],
)
def test_what_cannot_be_taken_is_told_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)

    assert says in str(caught.value)
