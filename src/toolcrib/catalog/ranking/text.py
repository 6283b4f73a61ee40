"""Text to terms, the same way for tools and for queries.

    "createIssue for ACME-Corp's repo"  ->  creat, issu, createissu, acm, corp, acmecorp, repo

NFKC and case folding; snake_case, kebab-case, camelCase and letter-digit borders are split *and* the joined form kept;
English stems (Snowball's Porter2); bigrams for Chinese, Japanese and Korean, which write no spaces. Words without
meaning go: those of `stop_words.txt` always, those of `asking_words.txt` only from queries. Lifetime: the terms of a
word are remembered for the process.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.resources import files
from itertools import chain, islice
from typing import Any, cast

import Stemmer

__all__ = ["MAX_WORDS", "is_asking", "normal", "read_lines", "squash", "stem", "terms", "terms_of_word", "words"]

MAX_WORDS = 400
"""Words read of one text: more than any honest description has, and a bound on the cost of a hostile one."""

_MAX_CHARACTERS = 8 * 1024
_MAX_WORD = 64
_LONG = 12
"""Joined forms longer than this take the stem of their last part for their own, which is known already."""
_REMEMBERED = 1 << 16
_WORD = re.compile(r"[\w-]+")
_ASCII_WORD = re.compile(r"[\w-]+", re.ASCII)
_CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_HAS_CJK = re.compile(f"[{_CJK}]")
_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_RUN = re.compile(rf"[{_CJK}]+|\d+|[^\W\d_{_CJK}]+")
_SQUASH = re.compile(r"[\W_]+")


def read_lines(file: str) -> list[str]:
    """Return the lines of a word list beside this module, without its comments."""
    lines = files("toolcrib.catalog.ranking").joinpath(file).read_text("utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


_STOP_WORDS = frozenset(" ".join(read_lines("stop_words.txt")).split())
_ASKING_WORDS = frozenset(" ".join(read_lines("asking_words.txt")).split())
# Without types. A cache of its own would not be safe between threads; `_terms_of_piece` has one.
_stem_word: Callable[[str], str] = cast("Any", Stemmer).Stemmer("english", 0).stemWord


def stem(word: str) -> str:
    """Return the stem of `word` (lower case); one that is not ASCII or ends in a digit is its own."""
    return _stem_word(word) if word.isascii() and word[-1:].isalpha() else word


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


@lru_cache(maxsize=_REMEMBERED)
def terms_of_word(word: str) -> tuple[str, ...]:
    """Return the terms of one word: those of its parts, then the joined form when there are several."""
    pieces = _pieces(word[:_MAX_WORD])
    found = chain.from_iterable(map(_terms_of_piece, pieces))
    return (*found, *_joined(pieces)) if len(pieces) > 1 else tuple(found)


@lru_cache(maxsize=_REMEMBERED)
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


@lru_cache(maxsize=_REMEMBERED)
def _terms_of_piece(piece: str) -> tuple[str, ...]:
    if _HAS_CJK.search(piece):
        return _bigrams(piece)
    folded = piece.casefold()
    return () if folded in _STOP_WORDS else (stem(folded),)


def _bigrams(run: str) -> tuple[str, ...]:
    return tuple(run[at : at + 2] for at in range(len(run) - 1)) or (run,)
