"""A text that does not parse, read word by word: for a deny, and for what cannot be taken back, a guess is enough."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Final

from .words import HOLE, TooManyWords, Word, expand

__all__ = ["commands_of_broken"]

_SEPARATORS: Final = re.compile(r"(?:&&|\|\|?|;|&(?!>)|\n|\$\(|\(|\)|`|\{(?=\s)|(?<=\s)\}|<\()")
_PUNCTUATION: Final = frozenset(";&|()\n`")
_SKIPPED: Final = frozenset("{ } $ ! if then elif else fi while until do done for case esac in select".split())
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=.*", re.DOTALL)


def commands_of_broken(text: str) -> Iterator[tuple[Word, ...]]:
    """Yield the probable commands in a text that does not parse; closed quotes are removed."""
    for words in _split(text.replace("\\\n", " ")):
        rest = [word for word in words if word not in _SKIPPED]
        while rest and _ASSIGNMENT.fullmatch(rest[0]):
            del rest[0]
        found = tuple(inner for word in rest for inner in _word(word))
        if found:
            yield found


def _split(text: str) -> Iterator[list[str]]:
    try:
        lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()\n`")
        lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
        words = list(lexer)
    except ValueError:
        for part in _SEPARATORS.split(text):
            yield part.replace('"', " ").replace("'", " ").split()
        return
    command: list[str] = []
    for word in words:
        if word and set(word) <= _PUNCTUATION:
            yield command
            command = []
        else:
            command.append(word)
    yield command


def _word(text: str) -> Iterator[Word]:
    loose = HOLE.join(re.split(r"\$\w+|\$\{[^}]*\}|\$", text))
    try:
        yield from expand([(loose, False)])
    except TooManyWords:
        yield Word(HOLE, HOLE)
