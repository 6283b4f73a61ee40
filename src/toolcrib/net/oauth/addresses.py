"""Where credentials may go: over TLS, or to this machine; and which addresses mean the same server."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import SplitResult, urlsplit

from ...errors import ToolFailure
from ..guard import DEFAULT_PORTS, Guard

__all__ = ["canonical", "covers", "guard_for", "is_loopback", "origin", "safe_url"]

_LONGEST: Final = 2048
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


def safe_url(url: str, what: str) -> str:
    """Return `url`. Raises `ToolFailure` `denied` unless it is `https`, or `http` on this machine, and plain."""
    parts = _split(url)
    plain = url.isascii() and url.isprintable() and " " not in url and len(url) <= _LONGEST
    if parts is None or not parts.hostname or not plain or parts.fragment or "@" in parts.netloc:
        raise ToolFailure("denied", f"{what} is no URL that can be used")
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname)):
        return url
    raise ToolFailure("denied", f"{what} ({origin(url)}) is not https: credentials are never sent in clear")


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine by its name or its address."""
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def origin(url: str) -> str:
    """Return scheme, host and port of `url` in one form: for comparing, and for people."""
    parts = _split(url)
    if parts is None:
        return ""
    host = (parts.hostname or "").lower()
    shown = f"[{host}]" if ":" in host else host
    port = parts.port
    return f"{parts.scheme}://{shown}" + (f":{port}" if port and port != DEFAULT_PORTS.get(parts.scheme) else "")


def canonical(url: str) -> str:
    """Return the resource identifier of a server at `url` (RFC 8707): no fragment, no lone slash, small host."""
    parts = urlsplit(url)
    path = "" if parts.path == "/" else parts.path
    return origin(url) + path + (f"?{parts.query}" if parts.query else "")


def covers(resource: str, url: str) -> bool:
    """Whether the resource identifier names the server at `url`, or a part of its origin that the server is in."""
    if _split(resource) is None or origin(resource) != origin(url):
        return False
    named, asked = (urlsplit(one).path.rstrip("/") + "/" for one in (resource, url))
    return asked.startswith(named)


def guard_for(url: str, issuer: str) -> Guard:
    """Return what may be asked on behalf of the server at `url`: public addresses, and what is configured.

    For a server on this machine that is the whole machine: whoever listens there can reach it anyway.
    """
    allow: list[tuple[str, int | None]] = []
    for configured in (url, issuer):
        parts = _split(configured)
        if parts is not None and parts.hostname:
            allow.append((parts.hostname.rstrip(".").lower(), parts.port or DEFAULT_PORTS.get(parts.scheme)))
    if allow and is_loopback(allow[0][0]):
        allow += [(host, None) for host in _LOOPBACK]
    return Guard(allow=frozenset(allow))


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port, parts.hostname  # raise for what is none
    except ValueError:
        return None
    return parts
