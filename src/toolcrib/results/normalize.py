"""Normalisation: the return value of a Python function as MCP content.

    str            text                              None          empty text
    bytes          image, audio, text or a resource  ToolResult    itself
    picture        image (`library_values`)          array, table  lists and objects
    content blocks themselves, as they are           anything else structured content, and the same as JSON text

Structured content is plain JSON: models, dataclasses, enums, dates, paths, sets, decimals and named tuples are
rewritten; NaN and the infinities become their names; integers beyond 64 bits, bytes that are not text, and the like
become strings. What cannot be JSON is a `ToolFailure("tool_error")` that says what it is and where it stands.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import hashlib
import json
import math
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from typing import Any, Final, cast

import orjson
from msgspec.structs import replace

from ..core.json import MAX_DEPTH, dumps, encodable, is_writable, read_json
from ..core.result import ToolResult
from ..errors import ToolFailure
from .library_values import picture_or_none, plain_or_none

_FILE_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
)
_RIFF_TYPES: Final = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}

_BLOCK_FIELDS: Final = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource": ("resource",),
    "resource_link": ("uri", "name"),
}
"""Keys that make a dict a content block of MCP, by its `type`."""

_NOT_FINITE: Final = {math.inf: "Infinity", -math.inf: "-Infinity"}


def to_result(value: Any) -> ToolResult:
    """Return `value` as the result of a call. Raises `ToolFailure("tool_error")` for an unsupported value.

    For values of functions, commands and endpoints; results of MCP servers are content already.
    """
    if type(value) is str:
        return ToolResult.of_text(value)
    if value is None:
        return ToolResult.of_text("")
    if isinstance(value, ToolResult):
        return writable(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return ToolResult(content=(_bytes_block(bytes(cast("bytes", value))),))
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        return ToolResult.of_text(str(value))
    if isinstance(value, bool | int | float):
        plain = _plain_json(value)
        return ToolResult.of_text(plain if isinstance(plain, str) else dumps(plain).decode())
    if is_content(value):
        blocks = cast("Iterable[Mapping[str, Any]]", _plain_json(value))
        return ToolResult(content=tuple(blocks))
    return _structured(value)


def writable(result: ToolResult) -> ToolResult:
    """Return `result` with structured content that is plain JSON. Raises `ToolFailure("tool_error")` as above.

    Content that is a text, or that is not made of blocks, is refused too: it would break the steps after the call.
    """
    content = cast("object", result.content)
    if not isinstance(content, tuple | list):
        raise _no_blocks_failure(f"is {type(content).__name__}")
    for place, block in enumerate(cast("Iterable[object]", content)):
        if not isinstance(block, Mapping):
            raise _no_blocks_failure(f"has {type(block).__name__} at {place}")
        if isinstance(cast("Mapping[str, Any]", block).get("data"), bytes):
            raise _no_blocks_failure(f"has bytes as data at {place}, which must be base64 text")
    if result.structured_content is None or is_writable(result.structured_content):
        return result
    return replace(result, structured_content=_plain_json(result.structured_content))


def _no_blocks_failure(found: str) -> ToolFailure:
    hint = 'content is a list of blocks: {"type": "text", "text": …}; ToolResult.of_text(…) makes one of a text'
    return ToolFailure("tool_error", f"the tool ran, but the content of its result {found}", hint=hint)


def _structured(value: Any) -> ToolResult:
    """Try the fast writer first; a value that it rejects is walked, which is slower and names the position.

    The fast writer also decides what is unsupported; only then is the value walked, to name the place.
    """
    try:
        raw = orjson.dumps(value, default=_rewrite_level)
        plain = read_json(raw, limit=len(raw)) if b"null" not in raw or _is_finite(value) else _plain_json(value)
    except (TypeError, ValueError, RecursionError):
        if (picture := picture_or_none(value)) is not None:
            return to_result(picture)
        plain = _plain_json(value)
    if plain is None or isinstance(plain, str | int | float):
        return ToolResult.of_text(plain if isinstance(plain, str) else dumps(plain).decode())
    return ToolResult.of_json(plain)


def _is_finite(value: Any) -> bool:
    """Whether the nulls that the fast writer wrote can only be None: it writes them for NaN too. False when unsure."""
    try:
        json.dumps(value, allow_nan=False, check_circular=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def is_content(value: Any) -> bool:
    """Whether `value` is a list of content blocks of MCP."""
    if not isinstance(value, list | tuple) or not value:
        return False
    return all(isinstance(item, Mapping) and _is_block(cast("Any", item)) for item in cast("list[Any]", value))


def _is_block(item: Mapping[str, Any]) -> bool:
    kind = item.get("type")
    fields = _BLOCK_FIELDS.get(kind) if isinstance(kind, str) else None
    return fields is not None and all(field in item for field in fields)


def _bytes_block(data: bytes) -> Mapping[str, Any]:
    if b"\0" not in data and not data.startswith(b"%PDF-"):
        with suppress(UnicodeDecodeError):
            return {"type": "text", "text": data.decode("utf-8")}
    kind = _RIFF_TYPES.get(data[8:12]) if data[:4] == b"RIFF" else None
    kind = kind or next((mime for magic, mime in _FILE_SIGNATURES if data.startswith(magic)), None)
    encoded = base64.b64encode(data).decode()
    if kind and kind.startswith(("image/", "audio/")):
        return {"type": kind.split("/", 1)[0], "data": encoded, "mimeType": kind}
    uri = f"toolcrib://bytes/{hashlib.sha256(data).hexdigest()[:32]}"
    resource = {"uri": uri, "mimeType": kind or "application/octet-stream", "blob": encoded}
    return {"type": "resource", "resource": resource}


def _rewrite_level(value: Any) -> Any:
    """One level of a type that the fast writer does not know; `TypeError` sends the whole value to `_plain_json`."""
    if (dump := _model_dump(value)) is not None:
        return dump()
    if isinstance(value, Decimal | PurePath):
        return str(value)
    raise TypeError


def _plain_json(value: Any) -> Any:
    """Return `value` as plain JSON, or raise `ToolFailure` with the place that cannot be."""
    return _PlainCopy().walk(value, "$")


class _PlainCopy:
    """One pass over one value; remembers the containers on the way.

    `_open` holds the containers from the root to here: one that is met again contains itself.
    """

    def __init__(self) -> None:
        self._open: set[int] = set()

    def walk(self, value: Any, path: str) -> Any:
        if value is None or value is True or value is False:
            return value
        if isinstance(value, enum.Enum):
            return self.walk(value.value, path)
        if isinstance(value, str):
            return encodable(str(value))
        if isinstance(value, int):
            return int(value) if -(2**63) <= value < 2**64 else str(int(value))
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else _NOT_FINITE.get(value, "NaN")
        return self._container(value, path)

    def _container(self, value: Any, path: str) -> Any:
        if id(value) in self._open:
            raise _failure(value, path, "contains itself")
        if len(self._open) >= MAX_DEPTH:
            raise _failure(value, path, f"is nested deeper than {MAX_DEPTH} levels")
        self._open.add(id(value))
        try:
            return self._open_container(value, path)
        finally:
            self._open.discard(id(value))

    def _open_container(self, value: Any, path: str) -> Any:
        if isinstance(value, Mapping):
            return self._mapping(cast("Mapping[Any, Any]", value), path)
        if isinstance(value, tuple) and (names := getattr(cast("Any", value), "_fields", None)):
            pairs = zip(names, cast("tuple[Any, ...]", value), strict=True)
            return {name: self.walk(item, f"{path}.{name}") for name, item in pairs}
        if isinstance(value, set | frozenset):
            value = _sort_set(cast("set[Any]", value))
        if isinstance(value, list | tuple):
            return [self.walk(item, f"{path}[{index}]") for index, item in enumerate(cast("list[Any]", value))]
        if (dump := _model_dump(value)) is not None:
            return self.walk(dump(), path)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = dataclasses.fields(value)
            return {field.name: self.walk(getattr(value, field.name), f"{path}.{field.name}") for field in fields}
        return self._leaf(value, path)

    def _leaf(self, value: Any, path: str) -> Any:
        if isinstance(value, datetime | date | time):
            return value.isoformat()
        if isinstance(value, timedelta):
            return value.total_seconds()
        if isinstance(value, Decimal | Fraction | PurePath | uuid.UUID):
            return encodable(str(value))
        if isinstance(value, bytes | bytearray | memoryview):
            data = bytes(cast("bytes", value))
            try:
                return data.decode("utf-8")
            except UnicodeDecodeError:
                return base64.b64encode(data).decode()
        if (plain := plain_or_none(value)) is not None:
            return self.walk(plain, path)
        raise _failure(value, path, "cannot be turned into JSON")

    def _mapping(self, value: Mapping[Any, Any], path: str) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key, item in value.items():
            name = self._key(key, path)
            if name in plain:
                raise _failure(value, path, f"has two keys that are both written {name!r}")
            plain[name] = self.walk(item, f"{path}.{name}")
        return plain

    def _key(self, key: Any, path: str) -> str:
        if isinstance(key, str) and not isinstance(key, enum.Enum):
            return encodable(str(key))
        if isinstance(key, tuple | frozenset):
            raise _failure(key, path, "cannot be the key of a JSON object")
        plain = self.walk(key, path)
        if isinstance(plain, str):
            return plain
        if plain is None or isinstance(plain, bool | int | float):
            return dumps(plain).decode()
        raise _failure(key, path, "cannot be the key of a JSON object")


def _model_dump(value: Any) -> Callable[[], Any] | None:
    """The method by which a pydantic model writes itself; pydantic need not be loaded for others."""
    if not hasattr(value, "__pydantic_serializer__") or isinstance(value, type) or not hasattr(value, "model_dump"):
        return None
    return lambda: value.model_dump(mode="json", by_alias=True)


def _sort_set(values: set[Any]) -> list[Any]:
    """A set in an order that does not change from run to run, where its members have one."""
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=repr)


def _failure(value: Any, path: str, what: str) -> ToolFailure:
    where = "the returned value" if path == "$" else f"the returned value at {path}"
    return ToolFailure(
        "tool_error",
        f"{where} ({type(value).__name__}) {what}",
        hint="The tool's author must return text, JSON, bytes, content blocks or a ToolResult.",
        details={"path": path, "type": type(value).__name__},
    )
