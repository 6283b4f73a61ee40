"""English stems: the Porter2 algorithm (Snowball "english"), in plain Python.

    create, creates, created, creating  ->  creat

Written from the published description (https://snowballstem.org/algorithms/english/stemmer.html), so that the core
needs no dependency and a word costs about 10 µs. Words are lower case; text that is not ASCII comes back unchanged.
Lifetime: results are remembered for the process, at most `_REMEMBERED` words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

__all__ = ["stem"]

_REMEMBERED = 1 << 15
_VOWELS = frozenset("aeiouy")
_DOUBLES = frozenset(("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt"))
_LI_ENDINGS = frozenset("cdeghkmnrt")
_REGION = re.compile(r"[aeiouy][^aeiouy]")
_EXCEPTIONS = {
    "skis": "ski", "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "idly": "idl", "gently": "gentl",
    "ugly": "ugli", "early": "earli", "only": "onli", "singly": "singl", "sky": "sky", "news": "news",
    "howe": "howe", "atlas": "atlas", "cosmos": "cosmos", "bias": "bias", "andes": "andes",
}  # fmt: skip
_AFTER_PLURAL = frozenset(
    ("inning", "outing", "canning", "herring", "earring", "evening", "proceed", "exceed", "succeed")
)
_LONGEST = 7
_PREFIXES = ("gener", "commun", "arsen", "univers", "organ", "inter", "emerg", "later", "past")
_STEP_2 = {
    "ization": "ize", "ational": "ate", "fulness": "ful", "ousness": "ous", "iveness": "ive", "tional": "tion",
    "biliti": "ble", "lessli": "less", "entli": "ent", "ation": "ate", "alism": "al", "aliti": "al", "ousli": "ous",
    "iviti": "ive", "fulli": "ful", "ogist": "og", "enci": "ence", "anci": "ance", "abli": "able", "izer": "ize",
    "ator": "ate", "alli": "al", "bli": "ble",
}  # fmt: skip
_STEP_3 = {
    "ational": "ate", "tional": "tion", "alize": "al", "icate": "ic", "iciti": "ic", "ical": "ic", "ful": "",
    "ness": "",
}  # fmt: skip
_STEP_4: dict[str, str] = dict.fromkeys(
    ("ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous", "ive", "ize", "al",
     "er", "ic"), "",
)  # fmt: skip


@lru_cache(maxsize=_REMEMBERED)
def stem(word: str) -> str:
    """Return the stem of `word` (lower case); one that is short, not ASCII or ends in a digit is its own."""
    if len(word) < 3 or word[-1].isdecimal() or not word.isascii():
        return word
    if word in _EXCEPTIONS:
        return _EXCEPTIONS[word]
    word = _mark_consonant_y(word)
    first, second = _regions(word)
    word = _plural(word)
    if word in _AFTER_PLURAL:
        return word
    word = _past(word, first)
    if len(word) > 2 and word[-1] in "yY" and word[-2] not in _VOWELS:
        word = word[:-1] + "i"
    word = _suffixes(word, first, second)
    return _final(word, first, second).lower()


def _mark_consonant_y(word: str) -> str:
    """Write a `y` that acts as a consonant (at the start, or after a vowel) as `Y`."""
    if "y" not in word:
        return word
    letters = list(word)
    for at, letter in enumerate(letters):
        if letter == "y" and (at == 0 or letters[at - 1] in _VOWELS):
            letters[at] = "Y"
    return "".join(letters)


def _regions(word: str) -> tuple[int, int]:
    """Return where R1 and R2 begin: after the first consonant that follows a vowel, and the same again inside R1."""
    first = 0
    for prefix in _PREFIXES:
        if word.startswith(prefix):
            first = len(prefix)
            break
    if not first:
        found = _REGION.search(word)
        first = found.end() if found else len(word)
    found = _REGION.search(word, first)
    return first, found.end() if found else len(word)


def _plural(word: str) -> str:
    if not word.endswith("s"):
        if word.endswith("ied"):
            return word[:-2] if len(word) > 4 else word[:-1]
        return word
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith("ies"):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith(("us", "ss")):
        return word
    return word[:-1] if any(letter in _VOWELS for letter in word[:-2]) else word


def _past(word: str, first: int) -> str:
    if word.endswith(("eed", "eedly")):
        cut = len(word) - (5 if word.endswith("eedly") else 3)
        return word[:cut] + "ee" if cut >= first else word
    for suffix in ("ingly", "edly", "ing", "ed"):
        if word.endswith(suffix):
            head = word[: -len(suffix)]
            return _repair(head, first) if any(letter in _VOWELS for letter in head) else word
    return word


def _repair(head: str, first: int) -> str:
    """Undo what `-ed` and `-ing` did to the end of a word: creat(e), hop(p)ing, hop(e)."""
    if head.endswith(("at", "bl", "iz")):
        return head + "e"
    if head[-2:] in _DOUBLES:
        return head if len(head) == 3 and head[0] in "aeo" else head[:-1]
    return head + "e" if first >= len(head) and _ends_short(head) else head


def _ends_short(word: str) -> bool:
    """Whether `word` ends in a short syllable: `hop` and `at`, but not `hoop`, `show` or `y`."""
    if len(word) == 2:
        return word[0] in _VOWELS and word[1] not in _VOWELS
    if len(word) < 2 or word[-1] in "aeiouywxY" or word[-2] not in _VOWELS:
        return False
    return word[-3] not in _VOWELS


def _suffixes(word: str, first: int, second: int) -> str:
    """Steps 2 to 4: derivational endings, longest first, only where the region allows it."""
    word = _swap(word, _STEP_2, first)
    if word.endswith("ogi") and len(word) - 3 >= first and word[-4] == "l":
        word = word[:-1]
    elif word.endswith("li") and len(word) - 2 >= first and word[-3:-2] in _LI_ENDINGS:
        word = word[:-2]
    word = _swap(word, _STEP_3, first)
    if word.endswith("ative") and len(word) - 5 >= second:
        word = word[:-5]
    shorter = _swap(word, _STEP_4, second)
    if shorter != word:
        return shorter
    if word.endswith("ion") and len(word) - 3 >= second and word[-4] in "st":
        return word[:-3]
    return word


def _swap(word: str, table: Mapping[str, str], region: int) -> str:
    """Replace the longest ending that the table has, if it lies in the region."""
    for length in range(_LONGEST, 1, -1):
        replacement = table.get(word[-length:])
        if replacement is not None:
            cut = max(0, len(word) - length)
            return word[:cut] + replacement if cut >= region else word
    return word


def _final(word: str, first: int, second: int) -> str:
    """Step 5: a last `e`, or one of two `l`."""
    if word.endswith("e"):
        cut = len(word) - 1
        if cut >= second or (cut >= first and not _ends_short(word[:-1])):
            return word[:-1]
    elif word.endswith("ll") and len(word) - 1 >= second:
        return word[:-1]
    return word
