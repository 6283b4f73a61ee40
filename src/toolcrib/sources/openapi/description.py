"""API descriptions from a file or a URL: read and checked, whichever version they have."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote, urljoin, urlsplit

import anyio.to_thread
from msgspec import Struct

from ...core.json import as_mapping, canonical, read_json, value_at
from ...core.patterns import regex
from ...errors import UsageError
from ...net.client import NetLimits, WebClient, WebRequest
from ...net.guard import Guard
from ...net.urls import is_url, same_origin
from .swagger import upgraded
from .yaml_reader import read_yaml

_MAX_JSON_BYTES: Final = 64 << 20
"""The largest public description has 14 MB."""
_MAX_YAML_BYTES: Final = 16 << 20
_VERSION: Final = regex(r"3\.(\d+)(?:\.\d+)?")

_MAX_HOPS: Final = 32
_SAY_WHERE: Final = "say it by `base_url` in the configuration, by `--base-url` on the command line"

_LIMITS: Final = NetLimits(body_bytes=_MAX_JSON_BYTES, seconds=60.0, idle_seconds=20.0, ratio=200)
_ACCEPTED: Final = {"accept": "application/json, application/yaml;q=0.9, */*;q=0.5"}


class Document(Struct, frozen=True, kw_only=True):
    """A description. `root` is as it was written and must not be changed."""

    root: Mapping[str, Any]
    is_old: bool
    """Version 3.0, whose schemas are a dialect of their own."""


def is_openapi(value: object) -> bool:
    """Whether `value`, the data of a file, is meant as an API description; `parse` validates it."""
    return isinstance(value, Mapping) and ("openapi" in value or "swagger" in value)


def parse(given: bytes | Mapping[str, Any], where: str) -> Document:
    """Return the description in `given`. Raises `UsageError` that names `where` for any other data."""
    try:
        root = given if isinstance(given, Mapping) else _read(given)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: {error}") from error
    if not is_openapi(root):
        raise UsageError(f"{where}: not an OpenAPI description: it has no key `openapi`")
    described = cast("Mapping[str, Any]", root)
    if str(described.get("swagger")) == "2.0":
        described = upgraded(described)
    version = str(described.get("openapi", described.get("swagger")))
    found = _VERSION.fullmatch(version)
    if "swagger" in described or found is None or int(found[1]) > 2:
        hint = "; convert it to OpenAPI 3 first" if "swagger" in described else ""
        raise UsageError(f"{where}: OpenAPI 3.0, 3.1 and 3.2 are read, not version {version[:20]}{hint}")
    if not isinstance(described.get("paths", {}), Mapping):
        raise UsageError(f"{where}: `paths` must be a mapping from path to operations")
    return Document(root=described, is_old=found[1] == "0")


def digest_of(given: bytes | Mapping[str, Any]) -> str:
    """Return 64 hex digits that name the content."""
    return hashlib.sha256(canonical(given) if isinstance(given, Mapping) else given).hexdigest()


def _read(data: bytes) -> Any:
    data = data.removeprefix(b"\xef\xbb\xbf")
    is_json = data[:64].lstrip()[:1] == b"{"
    limit = _MAX_JSON_BYTES if is_json else _MAX_YAML_BYTES
    if len(data) > limit:
        raise ValueError(f"the description has {len(data):,} bytes; {limit:,} are read")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from error
    return read_json(data, limit=limit) if is_json else read_yaml(text)


class Refs:
    """The places that references of one description point to."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._found: dict[str, Any] = {}

    def find(self, reference: str) -> Any:
        """Return the node at `reference`. Raises `ValueError` for an external or dangling one."""
        if reference not in self._found:
            self._found[reference] = self._look(reference)
        return self._found[reference]

    def resolve(self, node: object) -> Mapping[str, Any]:
        """Return `node`, or the final target of its `$ref`. Raises `ValueError`."""
        found = as_mapping(node)
        for _ in range(_MAX_HOPS):
            reference = found.get("$ref")
            if not isinstance(reference, str):
                return found
            found = as_mapping(self.find(reference))
        raise ValueError(f"{found.get('$ref')} leads from one reference to the next without end")

    def _look(self, reference: str) -> Any:
        if not reference.startswith("#"):
            raise ValueError(f"{reference[:200]} is outside of the description, which is not followed")
        try:
            return value_at(self._root, unquote(reference[1:]))
        except KeyError:
            raise ValueError(f"{reference[:200]} points to nothing") from None


async def fetch(where: str, guard: Guard) -> bytes:
    """Return the content at `where`, a path or a URL. Raises `UsageError` or `NetFailure`."""
    if not is_url(where):
        try:
            return await anyio.to_thread.run_sync(_fetch_read, where)
        except OSError as error:
            raise UsageError(f"{where} cannot be read: {error.strerror or error}") from error
    client = WebClient(guard, _LIMITS)
    try:
        answer = await client.send(WebRequest(method="GET", url=where, headers=_ACCEPTED))
    finally:
        await client.aclose()
    if answer.status != 200:
        raise UsageError(f"{shown(where)} answers HTTP {answer.status}, not with a description")
    return answer.body


def base_url_of(servers: Sequence[str], where: str) -> str:
    """Return the base URL of the API from a description that came from `where` (empty for data of our own).

    A downloaded description may not send our credentials to another origin. Raises `UsageError` with what to say
    instead, in a configuration and on the command line.
    """
    written = servers[0] if servers else "/"
    try:
        url = urljoin(where, written)
        urlsplit(url)
    except ValueError:
        raise UsageError(f"the description has no usable address of the API ({written!r}): {_SAY_WHERE}") from None
    if is_url(where):
        if not same_origin(url, where):
            hint = f"say `base_url: {url}` (`--base-url {url}` of `toolcrib add`) if you trust it"
            raise UsageError(f"the description places the API at {url}, not at its own origin: {hint}")
        return url
    if not is_url(written) or "{" in written:
        raise UsageError(f"the description has no usable address of the API ({written!r}): {_SAY_WHERE}")
    return written


def placed(where: str | Path) -> str:
    """Return a URL as it is, and a path with `~` written out."""
    return where if isinstance(where, str) and is_url(where) else os.path.expanduser(where)


def shown(where: str) -> str:
    """Return a path or a URL for display, without parts that may be secret."""
    if not is_url(where):
        return where
    parts = urlsplit(where)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _fetch_read(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(_MAX_JSON_BYTES + 1)
