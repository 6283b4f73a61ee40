"""Words that no tool has, and the words that look like them: what inflection leaves of a word in any language.

    Rechnungen  ->  rechnung          отмена  ->  отменить          creer  ->  créer

Stems are English ones. A word of another language that stands in a query in another form than in the tools would find
nothing: such a word, and only such a one, is taken for the words that begin alike, accents aside. Lifetime: until a
term comes or goes; made at the first word that no tool has.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from heapq import nlargest

__all__ = ["Alikes"]

_BEGINNING = 4
"""Letters that must be the same."""
_LEAST_SHARE = 0.6
"""How much of the longer word the common beginning is."""
_MOST = 4


class Alikes:
    """The words of one vocabulary, by how they begin; made in one pass over it."""

    def __init__(self, vocabulary: Iterable[str]) -> None:
        self._words: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for word in vocabulary:
            folded = _folded(word)
            if len(folded) >= _BEGINNING and folded.isalpha():
                self._words[folded[:_BEGINNING]].append((folded, word))

    def of(self, word: str) -> dict[str, float]:
        """Return the words that begin as `word` does, a few at most, and how much of the longer one that is."""
        folded = _folded(word)
        if len(folded) < _BEGINNING:
            return {}
        found = [(_share(folded, other), known) for other, known in self._words.get(folded[:_BEGINNING], ())]
        return {known: share for share, known in nlargest(_MOST, found) if share >= _LEAST_SHARE}


def _folded(word: str) -> str:
    """Return `word` without accents."""
    if word.isascii():
        return word
    return "".join(char for char in unicodedata.normalize("NFD", word) if unicodedata.category(char) != "Mn")


def _share(one: str, other: str) -> float:
    same = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        same += 1
    return same / max(len(one), len(other))
