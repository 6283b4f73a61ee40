"""From the bytes of a description to its data, checked as far as everything else relies on it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from ...core.json import canonical, read_json
from ...errors import UsageError
from .swagger import upgraded
from .yamltext import read_yaml

__all__ = ["MAX_JSON_BYTES", "Document", "digest_of", "is_openapi", "mapping", "parse"]

MAX_JSON_BYTES: Final = 64 << 20
"""The largest public description has 14 MB."""
_MAX_YAML_BYTES: Final = 16 << 20
_VERSION: Final = re.compile(r"3\.(\d+)(?:\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A description. `root` is as it was written and must not be changed."""

    root: Mapping[str, Any]
    is_old: bool
    """Version 3.0, whose schemas are a dialect of their own."""


def is_openapi(value: object) -> bool:
    """Whether `value`, the data of some file, is meant as an API description; `parse` says if it can be taken."""
    return isinstance(value, Mapping) and ("openapi" in value or "swagger" in value)


def parse(given: bytes | Mapping[str, Any], where: str) -> Document:
    """Return the description in `given`. Raises `UsageError` that names `where` for what is none."""
    try:
        root = given if isinstance(given, Mapping) else _read(given)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: {error}") from error
    if not is_openapi(root):
        raise UsageError(f"{where}: this is no OpenAPI description: it has no key `openapi`")
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


def mapping(value: object) -> Mapping[str, Any]:
    """Return `value` when it is an object; anything else counts as an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _read(data: bytes) -> Any:
    data = data.removeprefix(b"\xef\xbb\xbf")
    is_json = data[:64].lstrip()[:1] == b"{"
    limit = MAX_JSON_BYTES if is_json else _MAX_YAML_BYTES
    if len(data) > limit:
        raise ValueError(f"the description has {len(data):,} bytes; {limit:,} are read")
    if is_json:
        return read_json(data, limit=limit)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from error
    return read_yaml(text)
