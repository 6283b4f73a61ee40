"""A description is had from a file or a URL; and what one that came from there may decide."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urljoin, urlsplit

import anyio.to_thread

from ...errors import UsageError
from ...net.client import NetLimits, WebClient, WebRequest
from ...net.guard import DEFAULT_PORTS, Guard, Resolve, system_resolve
from .document import MAX_JSON_BYTES

__all__ = ["base_url_of", "fetch", "is_url", "placed", "same_origin", "shown"]

_LIMITS: Final = NetLimits(body_bytes=MAX_JSON_BYTES, seconds=60.0, idle_seconds=20.0, ratio=200)
_ACCEPTED: Final = {"accept": "application/json, application/yaml;q=0.9, */*;q=0.5"}


async def fetch(where: str, guard: Guard, resolve: Resolve = system_resolve) -> bytes:
    """Return what is at `where`, a path or a URL. Raises `UsageError` or `NetFailure` when that cannot be had."""
    if not is_url(where):
        try:
            return await anyio.to_thread.run_sync(_read, where)
        except OSError as error:
            raise UsageError(f"{where} cannot be read: {error.strerror or error}") from error
    client = WebClient(guard, _LIMITS, resolve=resolve)
    try:
        answer = await client.send(WebRequest(method="GET", url=where, headers=_ACCEPTED))
    finally:
        await client.aclose()
    if answer.status != 200:
        raise UsageError(f"{shown(where)} answers HTTP {answer.status}, not with a description")
    return answer.body


def base_url_of(servers: Sequence[str], where: str) -> str:
    """Return where the API is, as its description says that came from `where` (empty for data of our own).

    One that came over the net may not send our credentials somewhere else. Raises `UsageError` with what to configure.
    """
    written = servers[0] if servers else "/"
    if is_url(where):
        url = urljoin(where, written)
        if not same_origin(url, where):
            hint = f"say `base_url: {url}` if you trust it"
            raise UsageError(f"the description says that the API is at {url}, not where it came from: {hint}")
        return url
    if not is_url(written) or "{" in written:
        raise UsageError(f"the description does not say where the API is ({written!r}): say `base_url`")
    return written


def same_origin(one: str, other: str) -> bool:
    """Whether two URLs have the same scheme, host and port."""
    return _origin(one) == _origin(other)


def is_url(text: str) -> bool:
    """Whether `text` is a URL and no path."""
    return text.lower().startswith(("http://", "https://"))


def placed(where: str | Path) -> str:
    """Return a URL as it is, and a path with `~` written out."""
    return where if isinstance(where, str) and is_url(where) else os.path.expanduser(where)


def shown(where: str) -> str:
    """Return a path or a URL for people, without what may be secret in it."""
    if not is_url(where):
        return where
    parts = urlsplit(where)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _read(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(MAX_JSON_BYTES + 1)


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    return parts.scheme, (parts.hostname or "").lower(), port or DEFAULT_PORTS.get(parts.scheme)
