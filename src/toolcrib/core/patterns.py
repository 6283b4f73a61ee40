"""Regular expressions of modules, compiled when they are first used.

A module is imported with all of its patterns, and a program uses few of them: to compile the 340 of our modules took a
fifth of the CPU of `from toolcrib import Toolcrib`.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, Final, cast

_ATTRIBUTES: Final = (
    *("match", "fullmatch", "search", "finditer", "findall", "sub", "subn", "split", "scanner"),
    *("flags", "groups", "groupindex"),
)


class _Pattern:
    """Stands for a compiled pattern. After the first use it holds the methods of that, which are called directly."""

    __slots__ = ("_flags", "pattern", *_ATTRIBUTES)

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:  # only for what is not set yet
        compiled = re.compile(self.pattern, self._flags)
        for each in _ATTRIBUTES:
            setattr(self, each, getattr(compiled, each))
        return getattr(compiled, name)

    def __repr__(self) -> str:
        return f"regex({self.pattern!r}, {self._flags!r})"


def regex(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return the pattern that `re.compile` would return, for a constant of a module; it is compiled at its first use.

    A pattern that is not valid raises `re.error` there.
    """
    return cast("re.Pattern[AnyStr]", _Pattern(pattern, flags))
