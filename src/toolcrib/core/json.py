"""JSON as bytes: one fast reader, one fast writer, one canonical form.

Canonical means: keys sorted, no white space, UTF-8; equal values give equal bytes, so a hash of it names the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

import orjson

__all__ = ["canonical", "dumps", "loads"]


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
