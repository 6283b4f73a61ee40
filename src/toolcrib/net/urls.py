"""URLs over HTTP: their parts, the origins by which they are compared, and steps of a path that lead out of it."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, urlsplit

__all__ = ["DEFAULT_PORTS", "is_dots", "is_url", "origin", "same_origin", "url_parts"]

DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def is_url(text: str) -> bool:
    """Whether `text` is a URL and no path."""
    return text.lower().startswith(("http://", "https://"))


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
