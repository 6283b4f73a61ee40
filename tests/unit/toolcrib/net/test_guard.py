"""The guard lets requests go to public addresses, and to those that the operator named."""

from collections.abc import Sequence

import pytest

from toolcrib.errors import UsageError
from toolcrib.net.guard import Guard, NetFailure, host_rule, is_public, system_resolve

PRIVATE = """
127.0.0.1 127.255.0.1 0.0.0.0 10.1.2.3 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254 169.254.170.2
100.64.0.1 100.100.100.200 192.0.0.192 192.0.2.1 198.18.0.1 198.51.100.7 203.0.113.9 224.0.0.1 239.255.255.250
240.0.0.1 255.255.255.255
:: ::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:a9fe:a9fe fe80::1 fe80::1%eth0 fec0::1 fc00::1
fd00:ec2::254 ff02::1 2001::1 2001:db8::1 2002:7f00:1:: 3fff::1 64:ff9b::7f00:1 64:ff9b::a00:1 100::1
localhost example.org 127.1 0x7f000001 2130706433
""".split()
PUBLIC = """
1.1.1.1 8.8.8.8 93.184.216.34 172.15.0.1 172.32.0.1 100.63.0.1 100.128.0.1 223.255.255.1
2606:4700:4700::1111 2a00:1450:4001:80b::200e ::ffff:8.8.8.8 64:ff9b::808:808
""".split()


def fixed(*answers: Sequence[str]) -> tuple[list[str], "Resolver"]:
    resolver = Resolver(list(answers))
    return resolver.asked, resolver


class Resolver:
    """Gives the prepared answers one after the other, the last one for ever."""

    def __init__(self, answers: list[Sequence[str]]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(f"{host}:{port}")
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.mark.parametrize("address", PRIVATE)
def test_no_special_address_counts_as_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_ordinary_addresses_are_public(address: str) -> None:
    assert is_public(address)


async def test_a_name_is_refused_when_any_of_its_addresses_is_private() -> None:
    _, resolver = fixed(["93.184.216.34", "10.0.0.7"])

    with pytest.raises(NetFailure, match=r"two\.example \(10\.0\.0\.7\) is not a public address") as caught:
        await Guard().addresses("two.example", 443, resolver)

    assert (caught.value.code, caught.value.sent) == ("denied", False)
    assert "two.example:443" in caught.value.hint


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "0x7f.1", "2130706433", "017700000001", "::1", "::ffff:127.0.0.1"]
)
async def test_every_spelling_of_loopback_is_refused(host: str) -> None:
    with pytest.raises(NetFailure):
        await Guard().addresses(host, 80, system_resolve)


async def test_an_allowed_host_may_be_private_on_its_port_only() -> None:
    guard = Guard.of(["https://API.internal.", "localhost:8080", "[::1]:9"])
    _, resolver = fixed(["10.0.0.7"])

    assert await guard.addresses("api.internal", 443, resolver) == ["10.0.0.7"]
    assert await guard.addresses("localhost", 8080, resolver) == ["10.0.0.7"]
    for host, port in (("api.internal", 80), ("localhost", 8081), ("other.internal", 443)):
        with pytest.raises(NetFailure):
            await guard.addresses(host, port, resolver)


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1", "100.100.100.200", "fd00:ec2::254", "::ffff:a9fe:1"])
async def test_an_allowed_name_never_leads_to_a_clouds_credentials(address: str) -> None:
    _, resolver = fixed([address])

    with pytest.raises(NetFailure):
        await Guard.of(["api.internal"]).addresses("api.internal", 80, resolver)


@pytest.mark.parametrize("host", ["metadata.google.internal", "METADATA.google.internal.", "metadata", "instance-data"])
def test_a_metadata_name_is_not_even_looked_up(host: str) -> None:
    with pytest.raises(NetFailure, match="cloud keeps credentials"):
        Guard().check("http", host, 80)


@pytest.mark.parametrize("scheme", ["file", "ftp", "gopher", "", "data"])
def test_only_http_is_spoken(scheme: str) -> None:
    with pytest.raises(NetFailure, match="is not http or https"):
        Guard().check(scheme, "example.org", 80)


async def test_a_name_that_does_not_exist_is_unavailable() -> None:
    async def nobody(host: str, port: int) -> Sequence[str]:
        raise OSError("no such name")

    with pytest.raises(NetFailure) as caught:
        await Guard().addresses("nobody.example", 80, nobody)

    assert (caught.value.code, caught.value.message) == ("unavailable", "nobody.example cannot be found: no such name")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("example.org", ("example.org", None)),
        ("Example.org:81", ("example.org", 81)),
        ("[::1]:81", ("::1", 81)),
        ("http://host/path", ("host", 80)),
        ("https://host:8443/x", ("host", 8443)),
    ],
)
def test_a_rule_is_a_host_a_host_with_its_port_or_a_url(text: str, rule: tuple[str, int | None]) -> None:
    assert host_rule(text) == rule


@pytest.mark.parametrize("text", ["", "*", "*.example.org", "user@host", "host:port", "host/path", "10.0.0.0/8"])
def test_what_is_no_host_is_no_rule(text: str) -> None:
    with pytest.raises(UsageError, match="is not a host"):
        host_rule(text)
