"""Shell text as values: its words as far as they are known before it runs, its commands, and what is undecidable.

Words are as after quote removal. A part that only the running shell knows (`$X`, `$(…)`, the result of a glob) is a
hole: the character NUL, which an argument of a program cannot contain.

    ls *.py $X "$X y"     →  words     text      loose
                             ls        ls        ls
                             *.py      *.py      HOLE.py     a glob may find anything
                             $X        HOLE      HOLE
                             "$X y"    HOLE y    HOLE y

Patterns are matched against `text`; whether something is known is asked of `loose`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from ...core.patterns import regex

HOLE: Final = "\0"
"""Stands for a part that only the running shell knows."""
_MAX_BRACE_WORDS: Final = 256
"""Words that the braces of one word may become."""
_MAX_BRACED_LENGTH: Final = 1_000
"""Characters of a word with braces."""
_GLOB: Final = regex(r"[*?\[]")
_SEQUENCE: Final = regex(r"[^{},]+\.\.[^{},]+")
_ESCAPE: Final = regex(
    r"\\(?:(?P<plain>[abeEfnrtv\\'\"?])|(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9A-Fa-f]{1,2})"
    r"|u(?P<short>[0-9A-Fa-f]{1,4})|U(?P<long>[0-9A-Fa-f]{1,8})|c(?P<control>.))",
    re.DOTALL,
)
_ANSI_C_CHARACTERS: Final = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "?": "?",
}

UNREAD: Final = ("a command of ", "commands inside ")
"""Beginnings of a doubt about a text that is too large or too deep to be parsed."""

Piece = tuple[str, bool]
"""Text, and whether it was quoted."""


class TooManyWords(ValueError):
    """Braces that would expand to too many words."""


class Word(Struct, frozen=True):
    """One word. `text` has globs as they are written, `loose` a hole wherever a glob could find anything.

    `known` is False for a glob as well, whose `text` is known and whose result is not.
    """

    text: str
    loose: str
    source: str = ""
    """Source text, with quotes; empty for a word built by us."""

    @property
    def known(self) -> bool:
        """Whether the shell can make nothing else of it."""
        return HOLE not in self.loose

    def splits(self) -> bool:
        """Whether a second shell would take the text for something else than this word."""
        return re.search(r"[\s;&|<>()$`\\'\"{]", self.text) is not None


def literal(text: str) -> Word:
    """Return the word that is exactly `text`."""
    return Word(text, text)


def expand(pieces: Sequence[Piece]) -> Iterator[Word]:
    """Yield the words that the pieces of one word become; raises `TooManyWords`.

    Braces are expanded here, as bash does it before globs and variables; `{1..9}` is a hole.
    """
    bare = "".join(text for text, quoted in pieces if not quoted)
    if "{" not in bare or ("," not in bare and ".." not in bare):
        yield _word(pieces)
        return
    marked = [(character, quoted) for text, quoted in pieces for character in text]
    if len(marked) > _MAX_BRACED_LENGTH:
        raise TooManyWords
    for count, found in enumerate(_expand_braces(marked), start=1):
        if count > _MAX_BRACE_WORDS:
            raise TooManyWords
        if found:
            yield _word(found)


def _word(pieces: Iterable[Piece]) -> Word:
    text, loose = "", ""
    for part, quoted in pieces:
        text += part
        loose += part if quoted else _GLOB.sub(HOLE, part)
    return Word(text, loose if text not in ("[", "[[") else text)


def _expand_braces(marked: Sequence[Piece]) -> Iterator[Sequence[Piece]]:
    """Yield the expansions of `a{b,c}d` as in bash, leftmost braces first; braces without a comma stay."""
    for start, piece in enumerate(marked):
        if piece != ("{", False):
            continue
        closed = _closing_brace(marked, start)
        if closed is None:
            continue
        end, commas = closed
        before, after = marked[:start], marked[end + 1 :]
        inside = "".join(character for character, quoted in marked[start + 1 : end] if not quoted)
        if commas:
            edges = [start, *commas, end]
            for left, right in pairwise(edges):
                yield from _expand_braces([*before, *marked[left + 1 : right], *after])
            return
        if _SEQUENCE.fullmatch(inside):
            yield from _expand_braces([*before, (HOLE, True), *after])
            return
    yield marked


def _closing_brace(marked: Sequence[Piece], start: int) -> tuple[int, list[int]] | None:
    """Return the position of the closing brace, and those of the commas between."""
    depth, commas = 0, list[int]()
    for place in range(start, len(marked)):
        character, quoted = marked[place]
        if quoted:
            continue
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if not depth:
                return place, commas
        elif character == "," and depth == 1:
            commas.append(place)
    return None


def unescaped(text: str, *, quoted: bool) -> Iterator[Piece]:
    """Yield `text` without its backslashes: outside of quotes, or inside double ones where few characters have one."""
    place, plain = 0, ""
    while place < len(text):
        character = text[place]
        following = text[place + 1 : place + 2]
        if character != "\\" or not following or (quoted and following not in '$`"\\\n'):
            plain += character
            place += 1
            continue
        if plain:
            yield plain, quoted
        plain = ""
        if following != "\n":
            yield following, True
        place += 2
    if plain:
        yield plain, quoted


def ansi_c(text: str) -> str:
    r"""Return the value of `$'…'`; `text` is the part between the quotes. `\0` ends it, as in bash."""

    def replace(found: re.Match[str]) -> str:
        kind = found.lastgroup or ""
        value = found[kind]
        if kind == "plain":
            return _ANSI_C_CHARACTERS[value]
        if kind == "control":
            return chr(ord(value.upper()) & 0x1F)
        code = int(value, 8 if kind == "octal" else 16)
        return chr(code & 0xFF if kind == "octal" else code) if code <= 0x10FFFF else ""

    return _ESCAPE.sub(replace, text).partition("\0")[0]


class Script(Struct, frozen=True, kw_only=True):
    """A parsed shell text. Nothing is dropped: each part that was not understood is a doubt.

    `commands` are those of the text itself; `every` adds those that they run. An allow asks the first, a deny the
    second.
    """

    commands: tuple[ShellCommand, ...] = ()
    """Every command that the text itself names, in substitutions, functions and branches, too."""
    doubts: tuple[str, ...] = ()
    """Reasons why other commands than these could run."""
    effects: tuple[str, ...] = ()
    """Effects of the text besides running commands: it writes a file, sets a variable, defines a function."""
    files: tuple[Word, ...] = ()
    """Files of its redirections."""
    inputs: tuple[Word, ...] = ()
    """Words among them that are read."""
    values: tuple[str, ...] = ()
    """Values of the variables that it sets."""
    given: tuple[Word, ...] = ()
    """Words that variables get: values, elements of arrays, words of loops, defaults, here-strings; split at blanks."""

    def every(self) -> Iterator[ShellCommand]:
        """Yield every command and everything that each is known to run."""
        for command in self.commands:
            yield from command.every()

    def words(self) -> Iterator[Word]:
        """Yield every word of every command, every file of a redirection, and every word that a variable gets."""
        yield from self.files
        yield from self.given
        for command in self.every():
            yield from command.words
            yield from command.files
            yield from command.given

    def every_doubt(self) -> Iterator[str]:
        """Yield the doubts of the text and of everything that it runs."""
        yield from self.doubts
        for command in self.every():
            yield from command.doubts


class ShellCommand(Struct, frozen=True, kw_only=True):
    """One command with its arguments, as the shell would run it.

    A tree: `runs` of `sudo sh -c 'rm x'` has `sh -c 'rm x'`, which runs `rm x`.
    """

    words: tuple[Word, ...]
    source: str = ""
    """Source text; empty for a command built from words."""
    stdin: str = ""
    """The here-document or here-string that it reads."""
    runs: tuple[ShellCommand, ...] = ()
    """Commands that it runs in turn: behind `sudo`, in `bash -c`, for `find -exec`.

    In doubt, more rather than fewer.
    """
    doubts: tuple[str, ...] = ()
    """Reasons why it could run other commands than these."""
    files: tuple[Word, ...] = ()
    """Files of the redirections in the texts that it runs."""
    given: tuple[Word, ...] = ()
    """Words that variables get in the texts that it runs."""
    same_as: ShellCommand | None = None
    """The command that it is but for a harmless wrapper such as `timeout 5`."""

    @property
    def name(self) -> str:
        """The program without its folder; empty when only the shell will know."""
        first = self.words[0] if self.words else None
        return first.text.rpartition("/")[2] if first is not None and first.known else ""

    def every(self) -> Iterator[ShellCommand]:
        """Yield the command and everything that it is known to run."""
        yield self
        for command in self.runs:
            yield from command.every()

    def text(self) -> str:
        """The words with one blank between: how people write rules about it. Holes are in it."""
        return " ".join(word.text for word in self.words)

    def shown(self) -> str:
        """The words for people: a hole is `…`."""
        return self.text().replace(HOLE, "…")
