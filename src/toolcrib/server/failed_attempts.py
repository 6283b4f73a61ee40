"""Failed attempts to authenticate, by address.

Addresses are those of the connections: behind a proxy all clients share one. So the limit never refuses a token that
is too long to be guessed; see `Authority.caller_of`.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["FailedAttempts"]

_AT_ONCE: Final = 20
_SECONDS: Final = 6.0
"""After so many seconds an address has one attempt more."""
_ADDRESSES: Final = 4096
"""Addresses that are remembered, those of the latest failures."""


class FailedAttempts:
    """Counts failures: 20 at once are free, then ten a minute. Lives as long as the server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counted: OrderedDict[str, float] = OrderedDict()
        """Time at which the failures of an address expire."""

    def wait(self, scope: Mapping[str, Any]) -> float:
        """Return for how many seconds the sender of an ASGI request has no attempt left; 0 in most cases."""
        if not self._counted:
            return 0.0
        counted = self._counted.get(_address(scope), 0.0)
        return max(0.0, counted - self._clock() - (_AT_ONCE - 1) * _SECONDS)

    def add(self, scope: Mapping[str, Any]) -> None:
        """Count a failure of the sender."""
        address, now = _address(scope), self._clock()
        self._counted[address] = max(now, self._counted.pop(address, now)) + _SECONDS
        if len(self._counted) > _ADDRESSES:
            self._counted.popitem(last=False)


def _address(scope: Mapping[str, Any]) -> str:
    """Return the address of the sender; of IPv6 the network that one subscriber has."""
    host = str((scope.get("client") or ("",))[0])
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    return str(address.ipv4_mapped or ipaddress.ip_network((int(address), 64), strict=False))
