"""Patterns over bytes that are compiled by RE2 where it is installed, and sets of them that are matched in one pass."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, Protocol, cast

__all__ = ["Pattern", "Scanner", "compile_pattern", "compiled"]

try:
    import re2

    _re2: Any = re2
except ImportError:  # no wheel for this platform: the same patterns, slower
    _re2 = None

_MEMORY: Final = 64 << 20
"""Bytes for the automaton of a set: it starts anew when they are used up, and would report nothing if it could not."""


class Pattern(Protocol):
    """A compiled pattern over bytes."""

    def finditer(self, text: bytes, /) -> Iterator[Any]:
        """Yield matches with `span(group)`."""
        ...

    def search(self, text: bytes, position: int = 0, /) -> Any:
        """Return the first match from `position` on, else None."""
        ...


def compile_pattern(pattern: bytes) -> Pattern:
    """Compile one pattern."""
    if _re2 is None:
        return re.compile(pattern)
    return cast("Pattern", _re2.compile(pattern, _options(_re2)))


class Scanner:
    """Scanner that returns which of several patterns occur in a text, in one pass."""

    def __init__(self, patterns: Sequence[bytes]) -> None:
        """Compile `patterns`; `match` reports their indices."""
        if _re2 is None:
            self._patterns = [re.compile(pattern) for pattern in patterns]
            self.match = self._match_each
            return
        chosen = _re2.Set.SearchSet(_options(_re2))
        for pattern in patterns:
            chosen.Add(pattern)
        chosen.Compile()
        self.match = getattr(chosen, "_set", chosen).Match  # the wrapper around it costs as much as a short match

    def _match_each(self, text: bytes) -> list[int]:
        return [index for index, pattern in enumerate(self._patterns) if pattern.search(text)]


def _options(re2: Any) -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = _MEMORY
    options.log_errors = False
    return options


@cache
def compiled(pattern: bytes) -> Pattern:
    """A pattern, compiled at the first text that needs it and shared by all redactors."""
    return compile_pattern(pattern)
