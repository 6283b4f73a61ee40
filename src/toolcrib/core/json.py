"""JSON as bytes: one fast reader, one fast writer, one canonical form.

Canonical means: keys sorted, no white space, UTF-8; equal values give equal bytes, so a hash of it names the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

import orjson

__all__ = ["canonical", "dumps", "encodable", "loads"]


def _default(value: object) -> Any:
    if isinstance(value, MappingProxyType | Mapping):
        return dict(cast("Mapping[str, Any]", value))
    if isinstance(value, set | frozenset):
        return sorted(cast("set[str]", value))
    raise TypeError(f"{type(value).__name__} is not JSON")


def dumps(value: Any) -> bytes:
    """Return compact UTF-8 JSON. Raises `TypeError` for what JSON cannot hold (NaN becomes null)."""
    return orjson.dumps(value, default=_default)


def canonical(value: Any) -> bytes:
    """Return the canonical form of `value`."""
    return orjson.dumps(value, default=_default, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)


def loads(text: bytes | str) -> Any:
    """Parse JSON; raises `ValueError` (strict: no NaN, no trailing text, valid UTF-8)."""
    return orjson.loads(text)


def encodable(value: Any) -> Any:
    """Return text, or the JSON that holds it, without lone surrogates, which UTF-8 cannot carry: each becomes U+FFFD.

    The same object where there are none.
    """
    if type(value) is str and value.isascii():
        return value
    try:
        dumps(value)
    except TypeError:
        return _encodable(value)
    return value


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {_encodable(key): _encodable(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in cast("list[Any]", value)]
    return value
