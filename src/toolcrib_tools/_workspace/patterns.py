"""Path patterns and regular expressions with linear matching time: globs, .gitignore files, RE2."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import re2
from msgspec import Struct, field

from toolcrib.plugin import ToolFailure

_LONGEST: Final = 10_000
"""Characters of one pattern."""
_REASON_CHARACTERS: Final = 500
"""Characters of what RE2 says of a pattern, which it repeats."""
_STEPS: Final = 20_000
"""Steps of a compiled pattern: each may be tried at each character."""

_GLOBS_LONGEST: Final = 1_000
"""Characters of one pattern."""

IGNORE_FILES: Final = (".ignore", ".gitignore")
"""Names of the files that say what is left out, the stronger first."""
NEVER: Final = frozenset({".git", ".hg", ".jj", ".svn", ".toolcrib"})
"""Folders that are never searched: what version control and we ourselves keep beside the files."""
_MOST: Final = 10_000
"""Lines of one file that are read."""


def compile_regex(
    pattern: str | bytes, *, any_case: bool = False, literal: bool = False, within_lines: bool = False
) -> Any:
    """Compile a regular expression with the methods of `re.Pattern`.

    A pattern of bytes searches bytes that are UTF-8. `within_lines`: nothing in it matches a line end. Raises
    `ToolFailure` saying what is wrong with it.
    """
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not any_case
    options.literal = literal
    options.never_nl = within_lines
    try:
        if len(pattern) > _LONGEST:
            raise ToolFailure("invalid_arguments", f"the pattern has {len(pattern)} characters, {_LONGEST} at most")
        regex = re2.compile(pattern, options)
    except re2.error as error:
        text = error.args[0] if error.args else ""
        reason = (text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text))[:_REASON_CHARACTERS]
        reason = reason if reason.isprintable() else ascii(reason)
        raise ToolFailure(
            "invalid_arguments",
            f"the pattern is not a regular expression that is known here: {reason}",
            hint="there are no look-arounds and no backreferences; set literal to search for the text itself",
        ) from None
    if regex.programsize > _STEPS:
        raise ToolFailure("invalid_arguments", "the pattern repeats too much", hint="write smaller numbers in { }")
    return regex


def quoted(text: str) -> str:
    """Return the pattern that matches just this text."""
    escaped: str = re2.escape(text)
    return escaped


class Glob(Struct, frozen=True, kw_only=True):
    """One pattern, ready to match."""

    pattern: str
    excludes: bool
    """True if the pattern began with `!`: its matches are left out."""
    _regex: Any

    def takes(self, path: str) -> bool:
        """True if a path, relative to the searched folder, matches."""
        return (self._regex.fullmatch(path.encode()) is not None) != self.excludes


class AnyGlob(Struct, frozen=True, kw_only=True):
    """Several patterns, one of which has to match."""

    globs: tuple[Glob, ...]

    def takes(self, path: str) -> bool:
        """True if a path, relative to the searched folder, matches one of them."""
        return any(glob.takes(path) for glob in self.globs)


def parse_globs(patterns: Iterable[str]) -> list[Glob | AnyGlob]:
    """Return conditions for a path that one of the patterns takes, and none of those with `!` leaves out."""
    parsed = [parse_glob(pattern) for pattern in patterns if pattern]
    wanted = tuple(glob for glob in parsed if not glob.excludes)
    return [*([AnyGlob(globs=wanted)] if wanted else []), *(glob for glob in parsed if glob.excludes)]


def is_glob(text: str) -> bool:
    """True if `text` is a pattern and not a plain name."""
    return any(character in text for character in "*?[{")


@lru_cache(maxsize=256)
def parse_glob(pattern: str, *, any_case: bool = False) -> Glob:
    """Return the pattern ready to match; raises `ToolFailure` for one that has no end or no meaning."""
    excludes = pattern.startswith("!")
    body = pattern[1:] if excludes else pattern
    body = body.removeprefix("./") if "/" in body.removeprefix("./") else body
    if not body.strip("/") or len(body) > _GLOBS_LONGEST:
        raise ToolFailure("invalid_arguments", f"{pattern[:80]!r} is not a pattern of paths", hint='such as "**/*.py"')
    anchored = body.startswith(("/", "./"))
    inner = body.removeprefix("./").lstrip("/")
    if body.endswith("/"):
        inner += "**"
    regex = glob_regex(inner, braces=True)
    if not anchored and "/" not in inner:
        regex = f"(?:.*/)?{regex}"
    try:
        ready = compile_regex(f"(?s){regex}".encode(), any_case=any_case)
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
        """Return the expression for one star or more: `**` is special where it fills a whole step of the path."""
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
    return ToolFailure(
        "invalid_arguments", f"{pattern[:80]!r} is not a pattern of paths: {why}", hint='such as "**/*.py"'
    )


class _Rule(Struct, frozen=True, kw_only=True):
    """One line: what it matches, of folders only or of anything; whether it takes back what another one left out."""

    regex: Any
    folders: bool
    takes_back: bool


_Rules = Sequence[_Rule]


def _parse(text: str) -> _Rules:
    """Return the lines that mean something; a line that cannot be read is left alone, as git does."""
    rules = (_rule(line) for line in text.splitlines()[:_MOST])
    return tuple(rule for rule in rules if rule is not None)


class IgnoreRules(Struct, kw_only=True):
    """Ignore rules of one root, collected folder by folder; add a folder's rules before its entries are checked."""

    _rules: dict[str, _Rules] = field(default_factory=dict[str, _Rules])
    """Rules by folder (`""` is the root), those of the stronger file last."""

    def put(self, folder: str, files: Mapping[str, str]) -> None:
        """Take the text of the ignore files of a folder, by name."""
        rules = [rule for name in reversed(IGNORE_FILES) if name in files for rule in _parse(files[name])]
        if rules:
            self._rules[folder] = rules

    def leaves_out(self, path: str, *, is_folder: bool) -> bool:
        """True if a rule excludes this path itself, relative to the root; its parents were checked before.

        So what is searched because a caller named it is searched, though a line leaves its folder out.
        """
        name = path.rpartition("/")[2]
        if is_folder and name in NEVER:
            return True
        for folder in _above(path):
            relative = path[len(folder) + 1 :] if folder else path
            for rule in reversed(self._rules.get(folder, ())):
                if (is_folder or not rule.folders) and rule.regex.fullmatch(relative.encode()):
                    return not rule.takes_back
        return False


def _above(path: str) -> Iterator[str]:
    """Yield the folders that a path is in, the nearest first, the root last."""
    parent = path
    while parent:
        parent = parent.rpartition("/")[0]
        yield parent


def _rule(line: str) -> _Rule | None:
    pattern = _without_spaces(line)
    if not pattern or pattern.startswith("#"):
        return None
    takes_back = pattern.startswith("!")
    pattern = pattern[1:] if takes_back else pattern
    folders = pattern.endswith("/")
    pattern = pattern.rstrip("/") if folders else pattern
    anchored = "/" in pattern
    pattern = pattern.removeprefix("/")
    if not pattern:
        return None
    try:
        regex = glob_regex(pattern, braces=False)
        ready = compile_regex((f"(?s){regex}" if anchored else f"(?s)(?:.*/)?{regex}").encode())
    except ToolFailure:
        return None
    return _Rule(regex=ready, folders=folders, takes_back=takes_back)


def _without_spaces(line: str) -> str:
    """Return the line without spaces at its end, unless a backslash keeps them."""
    stripped = line.rstrip(" \t\r")
    kept = len(stripped) - len(stripped.rstrip("\\"))
    return stripped + line[len(stripped) : len(stripped) + 1] if kept % 2 else stripped
