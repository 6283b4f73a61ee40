"""Argument conditions of a rule: `arg=glob`, `arg!=glob`, `arg>100`, several of them with commas between.

A result is yes, no, or "undecidable": an argument that is missing or not a plain value. The rule interprets it: a deny
that cannot be ruled out asks, an allow that cannot be shown does not allow.

    parse_conditions("branch=main, n>3")  ──►  Conditions(parts)          None: the body has another syntax
    Conditions.matches(arguments, every=…)                                 every part must hold

An argument may be a list or reached through a list: then each item is a value, and `every` says how many must match.
"""

from __future__ import annotations

import math
import operator
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol, cast

from msgspec import Struct

from ..core.patterns import regex

PROCESS_FOLDER: Final = Path()
"""Default base of relative paths: the folder of the process."""

_CONDITION: Final = regex(
    r"\s*(?P<path>[A-Za-z_$][\w$-]*(?:\.[\w$-]+)*)\s*(?P<op>!=|>=|<=|=|>|<)\s*(?P<value>.*?)\s*", re.DOTALL
)
_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_MAX_VALUES: Final = 1_000
"""Items of a list argument that are examined; a longer list is undecidable."""
_PATH_DETOUR: Final = regex(r"//|(?:^|/)\.\.?(?:/|$)")


class ArgumentMatcher(Protocol):
    """Condition in the parentheses of a rule."""

    def matches(self, arguments: Mapping[str, Any], *, every: bool, cwd: Path = PROCESS_FOLDER) -> bool | None:
        """Whether the arguments match; None when undecidable. `cwd` is the base of relative paths.

        Where an argument has several values (a list, a path written in two ways), `every` requires all of them to
        match, as an allow does. Otherwise one is enough, as for a deny.
        """
        ...


class Conditions(Struct, frozen=True, kw_only=True):
    """All of several conditions, each on one argument.

    One failing part is a no, also beside an undecidable one: the rule as a whole cannot hold then.
    """

    parts: tuple[_Condition, ...]

    def matches(self, arguments: Mapping[str, Any], *, every: bool, cwd: Path = PROCESS_FOLDER) -> bool | None:
        """Return False when one condition fails, None when one is undecidable, else True."""
        answers = [part.matches(arguments, every=every) for part in self.parts]
        if False in answers:
            return False
        return None if None in answers else True


class _Condition(Struct, frozen=True, kw_only=True):
    path: tuple[str, ...]
    test: Callable[[Any], bool | None]
    """On one plain value."""

    def matches(self, arguments: Mapping[str, Any], *, every: bool) -> bool | None:
        values = _values(arguments, self.path)
        if values is None:
            return None
        if len(values) == 1:
            return self.test(values[0])
        answers = [self.test(value) for value in values]
        if (not every and True in answers) or (every and False in answers):
            return not every
        return None if None in answers else every


def parse_conditions(body: str) -> Conditions | None:
    """Read `a=x*, b.c>3`; None when `body` is not of that kind. Raises `ValueError` with a reason when it is broken."""
    parts = _split_at_commas(body)
    if not any(_CONDITION.fullmatch(part) for part in parts):
        return None
    return Conditions(parts=tuple(_parse_condition(part) for part in parts))


def _split_at_commas(body: str) -> list[str]:
    """Split at commas that are not inside quotes."""
    parts, quote = [""], ""
    for character in body:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == ",":
            parts.append("")
            continue
        parts[-1] += character
    if quote:
        raise ValueError(f"the quote {quote} is not closed")
    return parts


def _parse_condition(text: str) -> _Condition:
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text.strip()!r} is not a condition; write argument=glob or argument>number")
    value = found["value"]
    if not value:
        raise ValueError(f"{text.strip()!r} has no value; an empty text is written ''")
    path = tuple(found["path"].split("."))
    return _Condition(path=path, test=_parse_test(found["op"], value))


def _parse_test(op: str, value: str) -> Callable[[Any], bool | None]:
    if op in _COMPARISONS:
        return _number_test(_COMPARISONS[op], value)
    pattern = glob(_unquoted(value))
    return _text_test(pattern, wanted=op == "=")


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"" else value


def _number_test(compare: Callable[[float, float], bool], value: str) -> Callable[[Any], bool | None]:
    try:
        limit = float(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a number to compare with") from None
    if not math.isfinite(limit):
        raise ValueError(f"{value!r} is not a number to compare with")
    return lambda given: (
        compare(given, limit) if isinstance(given, int | float) and not isinstance(given, bool) else None
    )


def _text_test(pattern: re.Pattern[str], *, wanted: bool) -> Callable[[Any], bool | None]:
    matches = pattern.fullmatch

    def test(given: Any) -> bool:
        return (matches(given if isinstance(given, str) else _as_text(given)) is not None) is wanted

    return test


def _as_text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _values(arguments: Mapping[str, Any], path: Sequence[str]) -> list[Any] | None:
    """The plain values at `path`, in every way a path can be written; None when it has no plain value."""
    found: Any = arguments
    for place, name in enumerate(path):
        if isinstance(found, list | tuple):
            return _values_of_each(cast("Sequence[Any]", found), path[place:])
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = cast("Mapping[str, Any]", found)[name]
    if not isinstance(found, Mapping | list | tuple):
        return _spellings_of(found)
    items = [] if isinstance(found, Mapping) else list(cast("list[Any]", found))
    if not items or len(items) > _MAX_VALUES or any(isinstance(item, Mapping | list | tuple) for item in items):
        return None
    return [way for item in items for way in _spellings_of(item)]


def _values_of_each(items: Sequence[Any], path: Sequence[str]) -> list[Any] | None:
    """The values at `path` of every object in a list; None when one of them has none to judge."""
    if not items or len(items) > _MAX_VALUES:
        return None
    found: list[Any] = []
    for item in items:
        values = _values(cast("Mapping[str, Any]", item), path) if isinstance(item, Mapping) else None
        if values is None:
            return None
        found += values
    return found if len(found) <= _MAX_VALUES else None


def _spellings_of(value: Any) -> list[Any]:
    """A text, and the same without the detours of a path: `/tmp/../etc` is also `/etc`.

    A deny meets the path by either spelling; an allow needs both.
    """
    if isinstance(value, str) and ("/" in value or value == "..") and _PATH_DETOUR.search(value):
        straight = posixpath.normpath(value)
        return [value, straight.removeprefix("/") if straight.startswith("//") else straight]
    return [value]


@lru_cache(maxsize=1024)  # some are asked at each call, for every name of its tool
def glob(pattern: str) -> re.Pattern[str]:
    """Compile a glob: `*` is any text, `?` one character, a backslash takes the next character as it is.

    Each stretch between two stars is found once, leftmost, and never tried again: matching is linear in the text.

    `(?>…)` is an atomic group: no pattern of a rule can make a match take exponential time.
    """
    stretches = [""]
    rest = iter(pattern)
    for character in rest:
        if character == "*":
            stretches.append("")
        elif character == "\\":
            stretches[-1] += re.escape(next(rest, character))
        else:
            stretches[-1] += "." if character == "?" else re.escape(character)
    first, *middle = stretches
    if not middle:
        return re.compile(first, re.DOTALL)
    *between, last = middle
    found = "".join(f"(?>.*?{stretch})" for stretch in between if stretch)
    return re.compile(f"{first}{found}.*{last}", re.DOTALL)
