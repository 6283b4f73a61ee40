"""Patterns over bytes, compiled by RE2, and sets of them that are matched in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any, Final

from ...core.patterns import regex

_AUTOMATON_BYTES: Final = 64 << 20
"""Bytes for the automaton of a set: it starts anew when they are used up, and would report nothing if it could not."""

Spans = Sequence[tuple[int, int]]
"""Positions of a match and of each of its groups."""


class Scanner:
    """Scanner that returns which of several patterns occur in a text, in one pass.

    Scans as bytes of Latin-1: patterns of UTF-8 text are written in its bytes.
    """

    def __init__(self, patterns: Sequence[bytes]) -> None:
        """Compile `patterns`; `match` reports their indices."""
        import re2  # here and below: 5 ms at each opening of a crib, and the first call is early enough

        chosen = re2.Set.SearchSet(_re2_options())
        for pattern in patterns:
            chosen.Add(pattern)
        chosen.Compile()
        self.match = getattr(chosen, "_set", chosen).Match  # the wrapper around it costs as much as a short match


_LOOK_AROUND: Final = regex(rb"\(\?<?[=!](?:[^()]|\([^()]*\))*\)")
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
        return Scanner([_LOOK_AROUND.sub(b"", self._pattern.pattern)]).match


def _re2_options() -> Any:
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = _AUTOMATON_BYTES
    options.log_errors = False
    return options


@cache
def compile_pattern(pattern: bytes) -> Any:
    """A pattern, compiled at the first text that needs it and shared by all redactors."""
    import re2

    return re2.compile(pattern, _re2_options())


@cache
def finder(pattern: bytes) -> Callable[[bytes, int], Spans | None]:
    """Return a function of a text and a position that returns the first match from there on, else None.

    The wrapper of RE2 takes as long for a match as RE2 itself, and dense lists of secrets have thousands in a page.
    """
    import re2

    match, anywhere = compile_pattern(pattern)._regexp.Match, re2._re2.RE2.Anchor.UNANCHORED

    def find(text: bytes, position: int) -> Spans | None:
        spans = match(anywhere, text, position, len(text))
        return spans if spans[0][0] >= 0 else None

    return find
