"""JSON paths (RFC 9535) that a model may write: what one looks at is counted, so that none holds up the event loop.

`..*..*..*` looks at a value of 200 members ten million times, and a pattern in a filter may take a time that doubles
with each character. Paths look at copies of objects and arrays that count, at any depth and in filters, too; patterns
are matched by RE2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, cast

import re2
from iregexp_check import check
from jsonpath_rfc9535 import JSONPathEnvironment, JSONPathQuery
from jsonpath_rfc9535.exceptions import JSONPathError
from jsonpath_rfc9535.function_extensions import Match, Search
from jsonpath_rfc9535.function_extensions._pattern import map_re

from ..core.json import dumps, loads
from ..errors import ToolFailure, UsageError

_MAX_PATH_LENGTH: Final = 1_000
"""Of one path."""
_MAX_VISITED_MEMBERS: Final = 100_000
"""Members and items that the paths of one template look at: up to a quarter of a second."""
_ANY_CHARACTER: Final = map_re(".")


class _Object(dict[str, Any]):
    """An object that counts when its members are looked at."""

    __slots__ = ("looked",)

    looked: Callable[[int], None]

    def items(self) -> Any:
        self.looked(len(self))
        return super().items()


class _Array(list[Any]):
    """An array that counts when its items are looked at."""

    __slots__ = ("looked",)

    looked: Callable[[int], None]

    def __iter__(self) -> Iterator[Any]:
        self.looked(len(self))
        return super().__iter__()

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, int):
            self.looked(len(self))
        return super().__getitem__(key)


class Document:
    """Value in which the paths of one template are evaluated. Used once.

    Its methods raise `ToolFailure` where the values have too many bytes, or where too many are looked at.
    """

    def __init__(self, value: Mapping[str, Any], room: int) -> None:
        """`room`: bytes of all values together, as JSON."""
        self._value = value
        self._counting: Any = None
        self._looks = _MAX_VISITED_MEMBERS
        self._room = room

    def first(self, query: JSONPathQuery) -> list[Any]:
        """Return the value of a path to one place, in a list; an empty one if there is none."""
        found = query.find_one(cast("Any", self._value))
        if found is None:
            return []
        self._json_of(found.value)
        return [found.value]

    def all(self, query: JSONPathQuery) -> list[Any]:
        """Return the values of a path to many places."""
        if self._counting is None:
            self._counting = self._copy(self._value)
        try:
            return [loads(self._json_of(node.value)) for node in query.finditer(self._counting)]
        except (JSONPathError, RecursionError) as error:
            raise ToolFailure("invalid_arguments", f"the path {query} cannot be followed: {error}") from None

    def _json_of(self, value: Any) -> bytes:
        text = dumps(value)
        self._room -= len(text)
        if self._room < 0:
            raise ToolFailure("too_large", "the values that the paths lead to are too large together")
        return text

    def _copy(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            copy = _Object({key: self._copy(member) for key, member in cast("Mapping[str, Any]", value).items()})
        elif isinstance(value, list | tuple):
            copy = _Array([self._copy(item) for item in cast("list[Any]", value)])
        else:
            return value
        copy.looked = self._count
        return copy

    def _count(self, looks: int) -> None:
        self._looks -= looks
        if self._looks < 0:
            message = f"the paths look at more than {_MAX_VISITED_MEMBERS:,} values"
            raise ToolFailure("too_large", message, hint="name the way to the values; each `..` looks at all below")


def compile_path(path: str) -> JSONPathQuery:
    """Return the path, read. Raises `UsageError`."""
    if len(path) > _MAX_PATH_LENGTH:
        raise UsageError(f"a JSON path has {_MAX_PATH_LENGTH} characters at most")
    try:
        return _ENVIRONMENT.compile(path)
    except (JSONPathError, RecursionError) as error:
        raise UsageError(f"{path!r} is not a JSON path: {error}") from None


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> Any:
    """Return an I-Regexp (RFC 9485) as RE2 has it, None for anything else."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(map_re(pattern).replace(_ANY_CHARACTER, r"[^\n\r]"), options) if check(pattern) else None
    except re2.error:
        return None


class _Match(Match):
    def __call__(self, string: object, pattern: object) -> bool:
        compiled = _compiled(pattern) if isinstance(pattern, str) and isinstance(string, str) else None
        return compiled is not None and bool(compiled.fullmatch(string))


class _Search(Search):
    def __call__(self, string: object, pattern: object) -> bool:
        compiled = _compiled(pattern) if isinstance(pattern, str) and isinstance(string, str) else None
        return compiled is not None and bool(compiled.search(string))


_ENVIRONMENT: Final = JSONPathEnvironment()
_ENVIRONMENT.function_extensions |= {"match": _Match(), "search": _Search()}
