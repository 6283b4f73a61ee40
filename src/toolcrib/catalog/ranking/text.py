"""English stems: the Porter2 algorithm (Snowball "english"), in plain Python.

    create, creates, created, creating  ->  creat

Written from the published description (https://snowballstem.org/algorithms/english/stemmer.html), so that the core
needs no dependency and a word costs about 10 µs. Words are lower case; text that is not ASCII comes back unchanged.
Lifetime: results are remembered for the process, at most `_REMEMBERED` words.

Text to terms, the same way for tools and for queries.

    "createIssue for ACME-Corp's repo"  ->  creat, issu, createissu, acm, corp, acmecorp, repo

NFKC and case folding; snake_case, kebab-case, camelCase and letter-digit borders are split *and* the joined form kept;
English stems; bigrams for Chinese, Japanese and Korean, which write no spaces. Stop words go: function words always,
words of asking ("please", "help me") only from queries. Lifetime: what a word becomes is remembered for the process.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain, islice

__all__ = ["MAX_WORDS", "is_asking", "normal", "squash", "stem", "terms", "terms_of_word", "words"]

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


MAX_WORDS = 400
"""Words read of one text: more than any honest description has, and a bound on the cost of a hostile one."""

_MAX_CHARACTERS = 8 * 1024
_MAX_WORD = 64
_LONG = 12
"""Joined forms longer than this take the stem of their last part for their own, which is known already."""
_text_REMEMBERED = 1 << 16
_WORD = re.compile(r"[\w-]+")
_ASCII_WORD = re.compile(r"[\w-]+", re.ASCII)
_CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_HAS_CJK = re.compile(f"[{_CJK}]")
_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_RUN = re.compile(rf"[{_CJK}]+|\d+|[^\W\d_{_CJK}]+")
_SQUASH = re.compile(r"[\W_]+")
_FUNCTION_TEXT = """
    a about all also am an and any are as at be been being between both but by can could did do does doing each
    either else etc even ever every few for from had has have having he her here hers him his how however i if in into
    is it its itself just me might more most much must my myself no nor not now of off on once one only onto or other
    our ours out over own per quite rather she should since so some such than that the their theirs them then there
    these they this those though through thus to too toward under until unto up upon us very via was we were what
    whatever when where whether which while who whom whose why will with within without would you your yours yourself
    s t d m ll re ve don isn doesn didn won aren couldn wouldn shouldn e g ie eg
"""
_ASKING_TEXT = """
    please want wants wanted need needs needed like would help helps assist assistance kindly let lets tell
    wish hope hoping trying try wondering wonder hey hi hello thanks thank appreciate appreciated appreciates able
    using use used looking make provide provided give given gives interested currently curious really going got im id
    ill ive gonna something someone anything everything
"""
_FUNCTION_WORDS = frozenset(_FUNCTION_TEXT.split())
_ASKING_WORDS = frozenset(_ASKING_TEXT.split())


def terms(text: str, limit: int = MAX_WORDS, *, joined: bool = True) -> list[str]:
    """Return the terms of at most `limit` words of `text`, in order, without function words.

    Without `joined`, a word of several parts gives its parts only.
    """
    if not text:
        return []
    found = _ASCII_WORD.findall(text[:_MAX_CHARACTERS]) if text.isascii() else _WORD.findall(normal(text))
    return list(chain.from_iterable(map(terms_of_word if joined else _parts_of_word, found[:limit])))


def normal(text: str) -> str:
    """Return the beginning of `text`, in the form in which it is read (NFKC)."""
    return unicodedata.normalize("NFKC", text[:_MAX_CHARACTERS])


def words(text: str, limit: int) -> Iterator[re.Match[str]]:
    """Yield at most `limit` words of normal text, in order."""
    return islice(_WORD.finditer(text), limit)


def is_asking(word: str) -> bool:
    """Whether the word only expresses a request: `please`, `help`, `need`."""
    return word.lower() in _ASKING_WORDS


def squash(text: str) -> str:
    """Return `text` as names are compared: without case, separators and signs (`Create-Issue` is `create_issue`)."""
    return _SQUASH.sub("", text.lower() if text.isascii() else normal(text).casefold())


@lru_cache(maxsize=_text_REMEMBERED)
def terms_of_word(word: str) -> tuple[str, ...]:
    """Return the terms of one word: those of its parts, then the joined form when there are several."""
    pieces = _pieces(word[:_MAX_WORD])
    found = chain.from_iterable(map(_terms_of_piece, pieces))
    return (*found, *_joined(pieces)) if len(pieces) > 1 else tuple(found)


@lru_cache(maxsize=_text_REMEMBERED)
def _parts_of_word(word: str) -> tuple[str, ...]:
    return tuple(chain.from_iterable(map(_terms_of_piece, _pieces(word[:_MAX_WORD]))))


def _pieces(word: str) -> list[str]:
    if word.isascii():
        return _PIECE.findall(word)
    runs = _RUN.findall(word)
    return [piece for run in runs for piece in (_PIECE.findall(run) if run.isascii() else (run,))]


def _joined(pieces: list[str]) -> tuple[str, ...]:
    """Return the term of all pieces written as one word; scripts without spaces have no such form."""
    joined = "".join(pieces)
    if _HAS_CJK.search(joined):
        return ()
    if len(joined) > _LONG and (last := _terms_of_piece(pieces[-1])):
        return ("".join(pieces[:-1]).casefold() + last[-1],)
    return _terms_of_piece(joined)


@lru_cache(maxsize=_text_REMEMBERED)
def _terms_of_piece(piece: str) -> tuple[str, ...]:
    if _HAS_CJK.search(piece):
        return _bigrams(piece)
    folded = piece.casefold()
    return () if folded in _FUNCTION_WORDS else (stem(folded),)


def _bigrams(run: str) -> tuple[str, ...]:
    return tuple(run[at : at + 2] for at in range(len(run) - 1)) or (run,)
