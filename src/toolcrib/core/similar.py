"""Similar names: which of some a wrong one may have meant, and names without case and separators."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import chain
from string import punctuation
from typing import Final

from .patterns import regex

_ALIKE: Final = 0.7
"""Similarity of a name that may have been meant: `delete_note` is not a typing error of `delegate` (0.67)."""
_SHORT_ALIKE: Final = 0.6
"""The same for names with the first letter of the word, where one of both has at most `_SHORT` letters.

One exchange counts more there: `wbe` and `web` have 0.67; `weird` and `required`, of other beginnings, have 0.62.
"""
_SHORT: Final = 5
_COMPARED: Final = 40
"""Of many names, the ones that share the most pairs of letters are compared letter by letter, some 20 µs each."""
_LONGEST: Final = 128
"""Characters of a wrong name that are looked at: no tool has a longer one."""
_WORD_STARTS = regex(r"([a-z0-9])([A-Z])")
_SEPARATORS = regex(r"[\s!-/:-@\[-`{-~]+")
_FOLDED = {ord(char): None if char.isspace() or char in punctuation else char.lower() for char in map(chr, range(128))}
"""ASCII characters without case, None for a separator: `str.translate` is several times as fast as the expression."""
_FOLDED_LINES = _FOLDED | {ord("\n"): "\n"}
"""The same with the newline left as it is."""


def fold(name: str) -> str:
    """Return a name without case and separators: `readFile`, `read-file` → `readfile`."""
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


def nearest_of(name: str, by_fold: Mapping[str, str], n: int) -> list[str]:
    """Return `nearest` of the names in `by_fold`, each under its folded form."""
    folded = fold(name)
    pairs = {folded[at : at + 2] for at in range(len(folded))}
    alike = heapq.nlargest(_COMPARED, by_fold, key=lambda other: sum([pair in other for pair in pairs]))
    close = _similar(folded, alike, n)
    inside = [
        key for key, other in by_fold.items() if len(folded) >= 3 and key.endswith(folded) and _ends_with(other, folded)
    ]
    return [by_fold[key] for key in dict.fromkeys((*sorted(inside, key=len), *close))][:n]


def _similar(word: str, pool: Sequence[str], n: int) -> list[str]:
    short = [name for name in pool if name[:1] == word[:1] and min(len(name), len(word)) <= _SHORT]
    close = (get_close_matches(word, names, n, cutoff) for names, cutoff in ((pool, _ALIKE), (short, _SHORT_ALIKE)))
    return list(dict.fromkeys(chain.from_iterable(close)))[:n]
