"""Egress policy: addresses and hosts that a request or a sandboxed command may reach.

Addresses are checked below the connection pool (security.md T19). A host pattern permits names only: a permitted name
that leads to this machine, or into its network, is refused by its address.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

import anyio
from msgspec import Struct
from msgspec.structs import replace

from ..core.patterns import regex
from ..errors import ToolFailure, UsageError
from .urls import DEFAULT_PORTS

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Looks up a host: all its addresses, in the order to try them. Raises `OSError` when there are none."""

_V4 = ipaddress.IPv4Network
_V6 = ipaddress.IPv6Network

_NOT_PUBLIC_V4: Final = tuple(
    map(
        _V4,
        # IANA's special-purpose registry, without the three blocks inside 192.0.0.0/24 that have no use from here.
        """0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24
        192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24
        203.0.113.0/24 224.0.0.0/4 240.0.0.0/4""".split(),
    )
)
_UNICAST_V6: Final = _V6("2000::/3")
_NOT_PUBLIC_V6: Final = tuple(map(_V6, "2001::/23 2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20".split()))
"""Inside the global unicast block; 2001::/23 and 2002::/16 are tunnels that carry any IPv4 address."""
_NAT64: Final = _V6("64:ff9b::/96")

_METADATA_NAMES: Final = frozenset(
    "metadata metadata.google.internal metadata.goog instance-data instance-data.ec2.internal".split()
)
_METADATA: Final = frozenset(map(ipaddress.ip_address, ("100.100.100.200", "192.0.0.192", "fd00:ec2::254")))
"""Addresses at which clouds hand out credentials without authentication, beside the link-local block."""

_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST_PATTERN: Final = regex(rf"(\*|(?:\*\.)?{_LABEL}(?:\.{_LABEL})*)\.?(?::([0-9]{{1,5}}))?", re.IGNORECASE)
_NUMERIC_HOST: Final = regex(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
"""Host that ends in a number, and so is an address in any spelling (WHATWG URL, "ends in a number checker")."""
_DEFAULT_PORT_NUMBERS: Final = frozenset(DEFAULT_PORTS.values())


class NetFailure(ToolFailure):
    """A request that brought no answer. Codes: `denied`, `unavailable`, `timeout`, `too_large`."""

    def __init__(self, code: str, message: str, *, sent: bool = False, hint: str = "") -> None:
        """`sent`: the far end may have received the request, and acted on it."""
        super().__init__(code, message, hint=hint)
        self.sent = sent


class Guard(Struct, frozen=True, kw_only=True):
    """Addresses that may be reached. Frozen; one for each purpose, for a rule of one says nothing about another."""

    allow: frozenset[tuple[str, int | None]] = frozenset()
    """Hosts that may have any address, with their port; None stands for every port. See `host_rule`."""
    schemes: frozenset[str] = frozenset(DEFAULT_PORTS)
    remedy: str = "`allow_private: true` in its entry of the configuration"
    """Setting by which the operator allows a host; HOST stands for the host and its port."""

    @classmethod
    def of(cls, allow: Iterable[str] = ()) -> Guard:
        """Return the guard that lets `host` and `host:port` of `allow` be anywhere. Raises `UsageError`."""
        return cls(allow=frozenset(map(host_rule, allow)))

    @classmethod
    def for_tools(cls, allow: Iterable[str]) -> Guard:
        """Return the guard of what tools send: hosts that are meant stand in the configuration of the tools."""
        return replace(cls.of(allow), remedy="`tools: {web: {private_hosts: [HOST]}}` in the configuration")

    def check(self, scheme: str, host: str, port: int) -> None:
        """Raise `NetFailure("denied")` for what need not even be looked up."""
        if scheme not in self.schemes:
            raise NetFailure("denied", f"{scheme or 'no scheme'!r} is not {' or '.join(sorted(self.schemes))}")
        if not host:
            raise NetFailure("denied", "the URL names no host")
        if _fold_host(host) in _METADATA_NAMES and not self._allows(host, port):
            raise NetFailure("denied", f"{host} is where a cloud keeps credentials; it is never asked")

    async def addresses(self, host: str, port: int, resolve: Resolve) -> list[str]:
        """Return the addresses of `host`, all of them checked. Raises `NetFailure`: `denied` or `unavailable`."""
        try:
            found = list(dict.fromkeys(await resolve(host, port)))
        except (OSError, UnicodeError) as error:
            raise NetFailure("unavailable", f"{host} cannot be found: {error}") from error
        is_allowed = self._allows(host, port)
        for address in found:
            if is_public(address) or (is_allowed and not _is_credential_store(address, host)):
                continue
            where = host if host == address else f"{host} ({address})"
            there = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            raise NetFailure(
                "denied",
                f"{where} is not a public address",
                hint=f"If {there} is meant, the operator writes {self.remedy.replace('HOST', there)}.",
            )
        return found

    def _allows(self, host: str, port: int) -> bool:
        folded = _fold_host(host)
        return (folded, port) in self.allow or (folded, None) in self.allow


def host_rule(text: str) -> tuple[str, int | None]:
    """Read `host`, `host:port`, `[::1]:port` or a whole URL, which stands for its host and port.

    Raises `UsageError` for anything else.
    """
    written = text.strip()
    try:
        parts = urlsplit(written if "://" in written else f"//{written}")
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        scheme, host, port = "", "", None
    if not host or ("://" not in written and any(mark in written for mark in "/?#@*")):
        raise UsageError(f"{text!r} is not a host: `name`, `name:port` or `[address]:port` was expected")
    return _fold_host(host), port if port is not None else DEFAULT_PORTS.get(scheme)


def is_public(address: str) -> bool:
    """Whether `address` means the same host to everybody in the internet. False for an invalid one."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv4Address):
        return not any(parsed in network for network in _NOT_PUBLIC_V4)
    if "%" in address:
        return False
    if (embedded := _embedded(parsed)) is not None:
        return is_public(str(embedded))
    return parsed in _UNICAST_V6 and not any(parsed in network for network in _NOT_PUBLIC_V6)


async def system_resolve(host: str, port: int) -> Sequence[str]:
    """Ask the operating system."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that is reached through this one."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None


def _is_credential_store(address: str, host: str) -> bool:
    """Link-local or a cloud's metadata: an allowed *name* must not lead there, only the address itself may be meant."""
    if host == address:
        return False
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        parsed = _embedded(parsed) or parsed
    return parsed.is_link_local or parsed in _METADATA


def _fold_host(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()


class HostPattern(Struct, frozen=True, kw_only=True):
    """Some names, at one port or at those of the web."""

    name: str
    """In lower case; `*` and `*.name` stand for what is below."""
    port: int | None = None
    """None: 80 and 443."""

    def fits(self, host: str, port: int) -> bool:
        """Whether it stands for this host, which is in lower case and has no dot at its end."""
        if port != self.port and not (self.port is None and port in _DEFAULT_PORT_NUMBERS):
            return False
        if not self.name.startswith("*"):
            return host == self.name
        return not _is_address(host) and (self.name == "*" or host.endswith(self.name[1:]))


class Allowed(Struct, frozen=True, kw_only=True):
    """Hosts that may be reached, and the guard of their addresses."""

    patterns: tuple[HostPattern, ...]
    guard: Guard

    @classmethod
    def of(cls, hosts: Iterable[str], private: Iterable[str]) -> Allowed:
        """Read both lists. Raises `UsageError` for an invalid host."""
        return cls(patterns=tuple(map(host_pattern, hosts)), guard=Guard(allow=frozenset(map(private_host, private))))

    def names(self, host: str, port: int) -> bool:
        """Whether a host may be asked for."""
        return (host, port) in self.guard.allow or any(pattern.fits(host, port) for pattern in self.patterns)


def host_pattern(text: str) -> HostPattern:
    """Read `name`, `name:port`, `*.name` or `*`. Raises `UsageError` for anything else, addresses included."""
    found = _HOST_PATTERN.fullmatch(text.strip())
    port = int(found[2]) if found and found[2] else None
    if found is None or _is_address(found[1]) or (port is not None and not 0 < port < 65536):
        raise UsageError(f"{text!r} is not a host: `name`, `name:port`, `*.name` or `*` was expected")
    return HostPattern(name=found[1].lower(), port=port)


def private_host(text: str) -> tuple[str, int]:
    """Read `host:port`; the host may be an address. Raises `UsageError` for anything else."""
    host, port = host_rule(text)
    if port is None or "://" in text:
        raise UsageError(f"{text!r} is not `host:port`: what is not public is named with its port")
    return host, port


def _is_address(host: str) -> bool:
    return ":" in host or _NUMERIC_HOST.fullmatch(host) is not None
