"""Egress hosts: the hosts that sandboxed commands may connect to, by name and port.

A pattern says which names may be asked for. Where they lie is another question, which `guard` answers: a name that was
allowed and leads to this machine, or into the network around it, is refused all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ..errors import UsageError
from .guard import DEFAULT_PORTS, Guard, host_rule

__all__ = ["Allowed", "HostPattern", "host_pattern", "private_host"]

_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_PATTERN: Final = re.compile(rf"(\*|(?:\*\.)?{_LABEL}(?:\.{_LABEL})*)\.?(?::([0-9]{{1,5}}))?", re.IGNORECASE)
_NUMBER: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
"""What ends in a number is an address, however it is written (WHATWG URL, "ends in a number checker")."""
_PORTS: Final = frozenset(DEFAULT_PORTS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPattern:
    """Some names, at one port or at those of the web."""

    name: str
    """In lower case; `*` and `*.name` stand for what is below."""
    port: int | None = None
    """None: 80 and 443."""

    def fits(self, host: str, port: int) -> bool:
        """Whether it stands for this host, which is in lower case and has no dot at its end."""
        if port != self.port and not (self.port is None and port in _PORTS):
            return False
        if not self.name.startswith("*"):
            return host == self.name
        return not _is_address(host) and (self.name == "*" or host.endswith(self.name[1:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """What may be reached, and the guard for where it lies."""

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
    found = _PATTERN.fullmatch(text.strip())
    port = int(found[2]) if found and found[2] else None
    if found is None or _is_address(found[1]) or (port is not None and not 0 < port < 65536):
        raise UsageError(f"{text!r} is not a host: `name`, `name:port`, `*.name` or `*` was expected")
    return HostPattern(name=found[1].lower(), port=port)


def private_host(text: str) -> tuple[str, int]:
    """Read `host:port`; the host may be an address. Raises `UsageError` for anything else."""
    host, port = host_rule(text)
    if port is None or "://" in text:
        raise UsageError(f"{text!r} is no `host:port`: what is not public is named with its port")
    return host, port


def _is_address(host: str) -> bool:
    return ":" in host or _NUMBER.fullmatch(host) is not None
