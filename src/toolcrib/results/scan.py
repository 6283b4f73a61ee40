"""Many patterns in one pass: an RE2 set, or one alternation of `re` where google-re2 cannot be installed.

Both work on bytes. RE2 is linear in the length of the text whatever the pattern; the patterns are written so that
`re` does not backtrack badly on them either.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, Final, Protocol, cast

__all__ = ["Pattern", "Scanner", "compile_pattern"]

try:
    _re2: ModuleType | None = importlib.import_module("re2")  # it has no type stubs
except ImportError:  # no wheel for this platform: the same patterns, slower
    _re2 = None

_MEMORY: Final = 64 << 20
"""Bytes for the automaton of a set: it starts anew when they are used up, and would report nothing if it could not."""


class Pattern(Protocol):
    """A compiled pattern over bytes."""

    def finditer(self, text: bytes, /) -> Iterator[Any]:
        """Yield matches with `span(group)`."""
        ...


def compile_pattern(pattern: bytes) -> Pattern:
    """Compile one pattern."""
    if _re2 is None:
        return re.compile(pattern)
    return cast("Pattern", _re2.compile(pattern, _options(_re2)))


class Scanner:
    """Says which of some patterns occur in a text, in one pass."""

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
        self.match = chosen.Match

    def _match_each(self, text: bytes) -> list[int]:
        return [index for index, pattern in enumerate(self._patterns) if pattern.search(text)]


def _options(re2: ModuleType) -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = _MEMORY
    options.log_errors = False
    return options
