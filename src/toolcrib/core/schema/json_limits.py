"""Limits of JSON: values that it cannot hold, and the size and depth of arguments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from ..patterns import regex
from .errors import FieldError, join_path

MAX_ARGUMENT_BYTES: Final = 1 << 20
MAX_ARGUMENT_DEPTH: Final = 64
"""Objects and arrays inside one another, the arguments themselves included (security.md T4, both)."""
_TEXT: Final = regex(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_BETWEEN: Final = bytes(set(range(256)) - set(b"{}[]"))
"""Bytes other than brackets."""


def limit_error(message: str, path: Sequence[str | int] = ()) -> FieldError:
    """Return the error of a limit that arguments exceed."""
    return FieldError(path=join_path(path), keyword="limit", message=message)


def may_be_deep(text: bytes) -> bool:
    """Whether JSON may have more than `MAX_ARGUMENT_DEPTH` levels; false for most, without a walk over all values.

    Texts are cut out first, whose brackets do not count. A `false` is certain.
    """
    left = _TEXT.sub(b"", text).translate(None, _BETWEEN)
    for _ in range(MAX_ARGUMENT_DEPTH // 2):  # each takes the innermost level away, or two
        left = left.replace(b"{}", b"").replace(b"[]", b"")
    return bool(left)


def json_errors(root: Any) -> Iterator[FieldError]:
    """Yield values that JSON cannot hold, and those nested too deeply or too large.

    In the order of the value, by a stack of its own: arguments may be deeper than Python's recursion allows.
    """
    stack: list[tuple[Any, tuple[str | int, ...]]] = [(root, ())]
    size = 0
    while stack:
        value, path = stack.pop()
        if isinstance(value, Mapping | list | tuple):
            if len(path) >= MAX_ARGUMENT_DEPTH:
                yield limit_error(f"is nested deeper than {MAX_ARGUMENT_DEPTH} levels", path[:1])
                return
            yield from _odd_names(cast("Any", value), path)
            stack.extend(reversed(list(_entries(cast("Any", value), path))))
        elif problem := _odd_scalar(value):
            yield FieldError(path=join_path(path), keyword="json", message=problem)
        size += len(cast("Any", value)) if isinstance(value, str | Mapping | list | tuple) else 1
        if size > MAX_ARGUMENT_BYTES:
            yield limit_error(f"the arguments have more than {MAX_ARGUMENT_BYTES:,} bytes")
            return


def _odd_names(value: Any, path: tuple[str | int, ...]) -> Iterator[FieldError]:
    if isinstance(value, Mapping):
        for name in cast("Mapping[Any, Any]", value):
            if not isinstance(name, str):
                message = f"has a name that is {type(name).__name__}, not text"
                yield FieldError(path=join_path(path), keyword="json", message=message)


def _entries(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[Any, tuple[str | int, ...]]]:
    if isinstance(value, Mapping):
        for name, item in cast("Mapping[Any, Any]", value).items():
            yield item, (*path, str(name))
    else:
        for position, item in enumerate(cast("Sequence[Any]", value)):
            yield item, (*path, position)


def _odd_scalar(value: Any) -> str:
    match value:
        case None | bool():
            return ""
        case int():
            return (
                ""
                if -(1 << 63) <= value < 1 << 64
                else "must be a number of at most 64 bits; send it as text if you can"
            )
        case float():
            return "" if math.isfinite(value) else "must be a finite number"
        case str():
            return "" if value.isascii() or not _has_surrogate(value) else "is not valid Unicode"
        case _:
            return f"is {type(value).__name__}, which JSON does not know"


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
