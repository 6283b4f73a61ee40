"""Names that every model API and client accepts, made so that the same tool always gets the same one.

The floor of all of them is `^[A-Za-z_][A-Za-z0-9_-]{0,63}$` with the client's own prefix included
(`mcp__toolcrib__` and the like), so a declared tool has at most 40 characters. Only a declaration is shortened: the
catalog, the arguments of meta-tools, the command line and the log have the whole name, and calls may use either.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Mapping
from string import punctuation
from typing import Final

from ..core.patterns import regex
from ..core.similar import similar

__all__ = [
    "LOOKED_AT",
    "MAX_NAME",
    "MAX_WHOLE",
    "SEPARATOR",
    "declared",
    "did_you_mean",
    "fold",
    "fold_all",
    "nearest",
    "nearest_of",
    "portable",
    "qualify",
    "shortened",
    "unknown_name",
]

MAX_NAME: Final = 40
"""Characters of the name of a declared tool, where the client puts its prefix before it."""
MAX_WHOLE: Final = 128
"""Characters of a name in MCP."""
SEPARATOR: Final = "__"
_DIGEST: Final = 8
LOOKED_AT: Final = 2000
"""Of more names than this only some that begin alike, or hold the wrong one, are looked at."""
_COMPARED: Final = 40
"""Of these, the ones that share the most pairs of letters are compared letter by letter, some 20 µs each."""
_LONGEST: Final = 128
"""Characters of a wrong name that are looked at: no tool has a longer one."""

_FORBIDDEN = regex(r"[^A-Za-z0-9_-]+")
_START = regex(r"^[^A-Za-z_]")
_WORD_STARTS = regex(r"([a-z0-9])([A-Z])")
_SEPARATORS = regex(r"[\s!-/:-@\[-`{-~]+")
_FOLDED = {ord(char): None if char.isspace() or char in punctuation else char.lower() for char in map(chr, range(128))}
"""ASCII characters without case, None for a separator: `str.translate` is several times as fast as the expression."""
_FOLDED_LINES = _FOLDED | {ord("\n"): "\n"}
"""The same with the newline left as it is."""


def portable(name: str) -> str:
    """Return `name` with characters replaced that an API may refuse: `issues/create` becomes `issues_create`."""
    clean = _FORBIDDEN.sub("_", name)
    return f"_{clean}" if not clean or _START.match(clean) else clean


def qualify(source: str, local: str, *, separator: str = SEPARATOR, prefix: bool = True) -> str:
    """Return the catalog's name of the tool `local` of `source`: whole, up to the length that MCP allows."""
    return shortened(f"{source}{separator}{local}" if prefix else local, source, local, MAX_WHOLE)


def declared(name: str, source: str, local: str) -> str:
    """Return the name under which a client declares the tool `local` of `source`, which the catalog calls `name`."""
    return name if len(name) <= MAX_NAME else shortened(name, source, local)


def shortened(name: str, source: str, local: str, most: int = MAX_NAME) -> str:
    """Return `name` made portable and short: the readable part, and 8 hex digits of a hash of source and name."""
    name = portable(name)
    if len(name) <= most:
        return name
    digest = hashlib.sha256(f"{source}\0{local}".encode()).hexdigest()[:_DIGEST]
    return f"{name[: most - _DIGEST - 1].rstrip('_-')}_{digest}"


def fold(name: str) -> str:
    """Return what stays of a name when case and separators are forgotten: `readFile`, `read-file` → `readfile`."""
    return name.translate(_FOLDED) if name.isascii() else _SEPARATORS.sub("", name.lower())


def fold_all(names: Iterable[str]) -> list[str]:
    """Return `fold` of each; faster than one after the other."""
    listed = list(names)
    text = "\n".join(listed)
    folded = text.translate(_FOLDED_LINES).split("\n") if text.isascii() else []
    return folded if len(folded) == len(listed) else [fold(name) for name in listed]


def _ends_with(name: str, folded: str) -> bool:
    """Whether the last words of `name` are `folded`: `read_file` ends with `file`, `view_profile` does not."""
    words = _WORD_STARTS.sub(r"\1 \2", name)
    key = fold(words)
    if not key.endswith(folded):
        return False
    start, seen = len(key) - len(folded), 0
    for word in _SEPARATORS.split(words):
        if seen == start:
            return True
        seen += len(word)
    return False


def nearest(name: str, names: Iterable[str], n: int = 3) -> list[str]:
    """Return up to `n` of `names` that `name` may have meant, best first; names that share nothing are not offered."""
    name = name[:_LONGEST]
    by_fold: dict[str, str] = {}
    pool = list(names)
    for form, other in zip(fold_all(pool), pool, strict=True):
        by_fold.setdefault(form, other)
    return nearest_of(name, by_fold, n)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?` for the closest of `known`; empty when none is close."""
    close = nearest(word, known, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """Return the message about a name that is not among `known`: the nearest ones, or else all."""
    close = nearest(name, known)
    message = f"did you mean {', '.join(close)}?" if close else f"there are {', '.join(sorted(known))}"
    return f"unknown {what} {name!r}; {message}"


def nearest_of(name: str, by_fold: Mapping[str, str], n: int = 3) -> list[str]:
    """Return `nearest` of the names in `by_fold`, each under its folded form."""
    folded = fold(name)
    pairs = {folded[at : at + 2] for at in range(len(folded))}
    alike = heapq.nlargest(_COMPARED, by_fold, key=lambda other: sum([pair in other for pair in pairs]))
    close = similar(folded, alike, n)
    inside = [
        key
        for key, other in by_fold.items()
        if len(folded) >= 3 and key.endswith(folded) and _ends_with(other, folded) and key not in close
    ]
    return [by_fold[key] for key in (*sorted(inside, key=len), *close)][:n]
