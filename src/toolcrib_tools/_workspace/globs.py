"""Patterns of paths, as ripgrep and .gitignore write them, matched in linear time.

`*` and `?` stop at a `/`, `**` does not; `[a-z]` is one character of a set, `{py,pyi}` one of some patterns. A pattern
without a `/` means a name at any depth; one with a `/` begins at the folder that is searched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from toolcrib.plugin import ToolFailure

from .linear import compiled, quoted

__all__ = ["Glob", "glob_regex", "is_glob", "parse_glob"]

_LONGEST: Final = 1_000
"""Characters of one pattern."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Glob:
    """One pattern, ready to match."""

    pattern: str
    excludes: bool
    """Whether it began with `!`: what it matches is left out."""
    _regex: Any

    def takes(self, path: str) -> bool:
        """Whether a path, relative to the folder that is searched, is wanted."""
        return (self._regex.fullmatch(path.encode()) is not None) != self.excludes


def is_glob(text: str) -> bool:
    """Whether `text` is a pattern and not a plain name."""
    return any(character in text for character in "*?[{")


@lru_cache(maxsize=256)
def parse_glob(pattern: str, *, any_case: bool = False) -> Glob:
    """Return the pattern ready to match; raises `ToolFailure` for one that has no end or no meaning."""
    excludes = pattern.startswith("!")
    body = pattern[1:] if excludes else pattern
    body = body.removeprefix("./") if "/" in body.removeprefix("./") else body
    if not body.strip("/") or len(body) > _LONGEST:
        raise ToolFailure("invalid_arguments", f"{pattern[:80]!r} is no pattern of paths", hint='such as "**/*.py"')
    anchored = body.startswith(("/", "./"))
    inner = body.removeprefix("./").lstrip("/")
    if body.endswith("/"):
        inner += "**"
    regex = glob_regex(inner, braces=True)
    if not anchored and "/" not in inner:
        regex = f"(?:.*/)?{regex}"
    try:
        ready = compiled(f"(?s){regex}".encode(), any_case=any_case)
    except ToolFailure:
        raise _refused(pattern, "a set of characters in it means nothing") from None
    return Glob(pattern=pattern, excludes=excludes, _regex=ready)


def glob_regex(pattern: str, *, braces: bool) -> str:
    """Return the regular expression of a pattern; raises `ToolFailure` for one that does not end."""
    return _Reader(pattern, braces=braces).read()


class _Reader:
    """Reads one pattern from left to right."""

    def __init__(self, pattern: str, *, braces: bool) -> None:
        self._pattern = pattern
        self._braces = braces
        self._at = 0
        self._depth = 0

    def read(self) -> str:
        pieces: list[str] = []
        while self._at < len(self._pattern):
            pieces.append(self._next())
        if self._depth:
            raise _refused(self._pattern, "a { is never closed")
        return "".join(pieces)

    def _next(self) -> str:
        character = self._pattern[self._at]
        self._at += 1
        match character:
            case "*":
                return self._stars()
            case "?":
                return "[^/]"
            case "[":
                return self._set()
            case "\\":
                return self._escaped()
            case "{" | "}" | "," if self._braces:
                return self._brace(character)
            case _:
                return quoted(character)

    def _stars(self) -> str:
        """Return what one star or more stand for: `**` is special where it fills a whole step of the path."""
        start = self._at - 1
        while self._pattern.startswith("*", self._at):
            self._at += 1
        before = self._pattern[start - 1 : start]
        after = self._pattern[self._at : self._at + 1]
        if self._at - start != 2 or before not in ("", "/", "{", ",") or after not in ("", "/", "}", ","):
            return "[^/]*"
        if after != "/":
            return ".+" if before == "/" else ".*"
        self._at += 1
        return "(?:.*/)?"

    def _set(self) -> str:
        end = self._at + 1 if self._pattern[self._at : self._at + 1] in ("!", "^") else self._at
        end = self._pattern.find("]", end + 1)
        if end < 0:
            return quoted("[")
        inner, self._at = self._pattern[self._at : end], end + 1
        negated = inner[:1] in ("!", "^")
        body = inner[1:] if negated else inner
        escaped = "".join(f"\\{one}" if one in "[]^&~|" else one for one in body.replace("\\", "\\\\"))
        return f"[^/{escaped}]" if negated else f"[{escaped}]"

    def _escaped(self) -> str:
        if self._at == len(self._pattern):
            raise _refused(self._pattern, "it ends in a backslash")
        self._at += 1
        return quoted(self._pattern[self._at - 1])

    def _brace(self, character: str) -> str:
        if character == "{":
            self._depth += 1
            return "(?:"
        if not self._depth:
            return quoted(character)
        if character == ",":
            return "|"
        self._depth -= 1
        return ")"


def _refused(pattern: str, why: str) -> ToolFailure:
    return ToolFailure("invalid_arguments", f"{pattern[:80]!r} is no pattern of paths: {why}", hint='such as "**/*.py"')
