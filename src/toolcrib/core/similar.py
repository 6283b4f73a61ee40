"""Similar words: which of some names a wrong one may have meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

__all__ = ["similar"]

_ALIKE: Final = 0.7
"""Similarity of a name that may have been meant: `delete_note` is not a typing error of `delegate` (0.67)."""
_SHORT_ALIKE: Final = 0.6
"""The same for a word of at most `_SHORT` letters and names with its first letter.

One exchange counts more there: `wbe` and `web` have 0.67; `weird` and `required`, of other beginnings, have 0.62.
"""
_SHORT: Final = 5


def similar(word: str, names: Iterable[str], n: int = 3) -> list[str]:
    """Return up to `n` of `names` that `word` may have meant, best first. Some 20 µs a name."""
    pool = list(names)
    close = get_close_matches(word, pool, n=n, cutoff=_ALIKE)
    if len(word) <= _SHORT:
        close += get_close_matches(word, [name for name in pool if name[:1] == word[:1]], n=n, cutoff=_SHORT_ALIKE)
    return list(dict.fromkeys(close))[:n]
