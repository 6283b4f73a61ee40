"""URLs over HTTP: their parts, the origins by which they are compared, and steps of a path that lead out of it."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def is_url(text: str) -> bool:
    """Whether `text` is a URL and no path."""
    return text.lower().startswith(("http://", "https://"))


def is_loopback(host: str) -> bool:
    """Whether `host`, a name or an address, is this machine and reached from nowhere else."""
    if host.rstrip(".").lower() == "localhost":
        return True
    return is_address(host) and ipaddress.ip_address(host.strip("[]")).is_loopback


def is_address(host: str) -> bool:
    """Whether `host` is an address, not a name."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def url_parts(url: str) -> SplitResult:
    """Return the parts of a URL; raises `ValueError` for an invalid one."""
    try:
        parts = urlsplit(url)
        _ = parts.port, parts.hostname  # raise for invalid ones
    except ValueError as error:
        raise ValueError(f"not a URL: {error}") from None
    return parts


def origin(url: str) -> str:
    """Return scheme, host and port of `url` in one form, for comparing and for people; empty for an invalid one."""
    try:
        parts = url_parts(url)
    except ValueError:
        return ""
    host, port = (parts.hostname or "").lower(), parts.port
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + (f":{port}" if port and port != DEFAULT_PORTS.get(parts.scheme) else "")


def same_origin(one: str, other: str) -> bool:
    """Whether two URLs have the same scheme, host and port; an invalid one has none."""
    return origin(one) == origin(other) != ""


def is_dots(decoded: str) -> bool:
    """Whether some server takes a decoded step of a path for `.` or `..`, as others take it for a name.

    Some end a name at a NUL, and those in Java leave out what follows a `;`.
    """
    return "".join(one for one in decoded.partition(";")[0] if one > " ") in (".", "..")


def climbs(step: str) -> bool:
    """Whether some server takes a step of a path, or a part of it behind an escaped slash, for `.` or `..`."""
    return any(map(is_dots, unquoted(step).replace("\\", "/").split("/")))


def unquoted(step: str) -> str:
    """Return a step of a path without any escape, as servers have it that decode more than once."""
    while (decoded := unquote(step)) != step:
        step = decoded
    return step
