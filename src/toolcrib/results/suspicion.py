"""What in a text looks as if it wanted to command the model that reads it. Advice, never a gate.

Attacks that take trouble are not found, and a text about attacks is: the guarantee is that a session which has read
untrusted content asks before it acts (`policy.taint`), whatever this module says (security.md C9, threat T6).

Patterns work on text without hidden characters, folded to plain lower case, its white space to single blanks. They are
one automaton (`scan.Scanner`), linear in the text: 0.1 ms for 32 KiB.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Final

from .scan import Scanner
from .visible import visible_text

__all__ = ["suspicions"]

_SCANNED: Final = 128 * 1024
"""Characters that are looked at: more than any result that is shown whole."""

_PART: Final = re.compile(r"<<(\w+)>>")
_FOLDS: Final = re.compile(r"[ \t\r\f\v\u00a0]{2,}|[\t\r\f\v\u00a0]")


def suspicions(text: str) -> tuple[str, ...]:
    """Return which kinds of injection `text` looks like; none for an ordinary text.

    `override` of earlier instructions · `mark` of a role or a fence · `addressed` to a model · `precedence` over the
    task · `secrecy` from the user · `order` to act with data, money or rights · `smuggled` calls and links · `hidden`
    text in characters that nobody sees.
    """
    seen, hidden = visible_text(text[:_SCANNED])
    found = ["hidden"] if hidden and _has_message(text) else []
    folded = _FOLDS.sub(" ", unicodedata.normalize("NFKC", seen)).lower()
    kinds, scanner = _scanner()
    matched = scanner.match(folded.encode("utf-8", "replace")) or ()
    return tuple(dict.fromkeys([*found, *(kinds[index] for index in sorted(matched))]))


@cache
def _scanner() -> tuple[tuple[str, ...], Scanner]:
    """Read and compile the patterns when the first untrusted result comes: 10 ms."""
    text = resources.files("toolcrib.results").joinpath("suspicion.txt").read_text("utf-8")
    patterns = tuple(_patterns(text.splitlines()))
    return tuple(kind for kind, _ in patterns), Scanner([pattern.encode() for _, pattern in patterns])


def _patterns(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield kind and pattern of every line that is one."""
    parts: dict[str, str] = {}
    kind = ""
    for line in filter(None, lines):
        if line.startswith("# "):
            continue
        if re.fullmatch(r"\[[a-z]+\]", line):
            kind = line[1:-1]
            continue
        whole = _PART.sub(lambda found: parts[found[1]], line)
        if kind:
            yield kind, whole
        else:
            name, _, part = whole.partition(" = ")
            parts[name] = part


def _has_message(text: str) -> bool:
    """Whether tag characters or direction overrides are among what is hidden: they have no innocent use in results."""
    return any("\U000e0020" <= char <= "\U000e007f" or char in "\u202d\u202e" for char in text[:_SCANNED])
