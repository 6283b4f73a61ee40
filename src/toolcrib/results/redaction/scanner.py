"""Patterns over bytes that are compiled by RE2 where it is installed, and sets of them that are matched in one pass."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from typing import Any, Final, Protocol, cast

from ...core.patterns import regex

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


Spans = Sequence[tuple[int, int]]
"""Positions of a match and of each of its groups."""


def compile_pattern(pattern: bytes) -> Pattern:
    """Compile one pattern."""
    if _re2 is None:
        return re.compile(pattern)
    return cast("Pattern", _re2.compile(pattern, _options(_re2)))


class Scanner:
    """Scanner that returns which of several patterns occur in a text, in one pass.

    Scans as bytes of Latin-1: patterns of UTF-8 text are written in its bytes.
    """

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


_LOOK: Final = regex(rb"\(\?<?[=!](?:[^()]|\([^()]*\))*\)")
"""A look-around, which RE2 does not have."""


class WordPattern:
    """A pattern of many words, for short texts: most have none of them, and RE2 sees that in a tenth of the time.

    Two stages: RE2 without the look-arounds, which passes more, then Python's own.
    """

    def __init__(self, pattern: bytes) -> None:
        """Compiled when first used."""
        self._pattern = regex(pattern)

    def occurs(self, text: bytes) -> bool:
        """Whether the pattern matches somewhere in `text`."""
        return bool(self._may_occur(text)) and self._pattern.search(text) is not None

    @cached_property
    def _may_occur(self) -> Callable[[bytes], list[int]]:
        return Scanner([_LOOK.sub(b"", self._pattern.pattern)]).match


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


@cache
def finder(pattern: bytes) -> Callable[[bytes, int], Spans | None]:
    """Return a function of a text and a position that returns the first match from there on, else None.

    The wrapper of RE2 takes as long for a match as RE2 itself, and dense lists of secrets have thousands in a page.
    """
    known = compiled(pattern)
    inner = getattr(known, "_regexp", None)
    if inner is None:
        return lambda text, position: getattr(known.search(text, position), "regs", None)
    match, anywhere = inner.Match, _re2._re2.RE2.Anchor.UNANCHORED

    def find(text: bytes, position: int) -> Spans | None:
        spans = match(anywhere, text, position, len(text))
        return spans if spans[0][0] >= 0 else None

    return find
