"""Taking secrets out of text that comes in pieces, which may part a secret anywhere.

A piece is given on at once, but for an end that may be the beginning of a secret: of one of our own in any spelling,
of a token of a known format, of a value behind a telling name, of a private key. That waits for the next piece, or for
the end. What was given on before is remembered a little, for the name or the prefix in it.

Limit: of a secret that has no known beginning and stands behind no telling name, up to eleven characters may be given
on before it can be told from a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from .names import NAMED
from .redact import Find, Redactor, compiled

__all__ = ["Cleaning", "Pieces"]

_BEFORE: Final = 256
"""Bytes of what was given on that are looked at again: longer than a name and what stands before its value."""
_WORD: Final = 512
"""Bytes of one word that wait at most: longer than any token but some JWTs, which are known by their beginning."""
_MOST: Final = 32 * 1024
"""Bytes that wait at most: longer than any private key."""

_WORDS: Final = bytes.maketrans(b"\t\n\r\f\v\"'`<>(){}[],;|", b" " * 19)
"""What stands between words becomes a space."""
_BEGUN: Final = re.compile(
    rb"(?i:gh[pousr]_|github_|gl[a-z]{2,5}-|sk-|[srp]k_|xox[a-z]|xapp|akia|asia|aiza|ya29|gocspx|npm_|pypi-|hf_|ey[a-z]"
    rb"|do[opr]_v1|dapi|shp[a-z]{2}_|hv[sbr]\.|sg\.|key-|lin_|dp\.|gls?[ac]_|whsec_|age-secret|://)"
)
"""Beginnings of the commonest tokens, and of URLs, which may have a password in them."""
_LONG: Final = 12
"""Bytes from which on a word with digits and letters in it may be a token without a known beginning."""
_TELLING: Final = (
    rb"(?i)(?:"
    + NAMED
    + rb"[\w.\t -]{0,24}[\s\"'\\\]]{0,12}(?:=>|:{1,3}=|[?.+]?==?|[:=>,])(?:\\[nrt]|[\s\"'`=>\\@]){0,20}[^\s\"'`<>;,&|]*"
    + rb"|\b(?:authorization|bearer|basic|token|digest|password(?: is)?):?\s+[\"'`]?\S*)"
)
"""A name of secrets, with as much of its value as there is."""
_TELLING_REACH: Final = 1024
_KEY_BLOCK: Final = re.compile(rb"-----BEGIN[ A-Z0-9_-]*PRIVATE KEY|-----BEGIN[ A-Z0-9_-]{0,40}\Z|\n-{1,5}\Z")
_KEY_END: Final = re.compile(rb"-----END[ A-Z0-9_-]*-----")


class Cleaning:
    """What running calls clean their words with; see `core.context.Cleaner`. One for a crib."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def value(self, value: Any) -> Any:
        """Return text or JSON-like `value` without secrets: the same object when there are none."""
        return self._redactor.text(value) if isinstance(value, str) else self._redactor.value(value)

    def pieces(self) -> Pieces:
        """Begin a stream."""
        return Pieces(self._redactor)


class Pieces:
    """One stream of text. `add` every piece, then `end` once."""

    def __init__(self, redactor: Redactor) -> None:
        """`redactor` knows the formats, and our own secrets."""
        self._redactor = redactor
        self._before = b""
        self._waiting = b""

    def add(self, piece: str) -> str:
        """Return what can be given on now; may be empty."""
        self._waiting += piece.encode("utf-8", "surrogatepass")
        return self._give(len(self._waiting) - self._doubtful())

    def end(self) -> str:
        """Return the rest."""
        return self._give(len(self._waiting))

    def _give(self, count: int) -> str:
        """Give on the first `count` bytes that wait, but not a part of a secret that reaches over them."""
        if count <= 0:
            return ""
        raw, start = self._before + self._waiting, len(self._before)
        stop, finds = start + count, self._redactor.finds(raw)
        for find in finds:
            if find.start < stop < find.end:
                stop = max(start, find.start)
        clean = _masked(raw, start, stop, finds)
        self._waiting = raw[stop:]
        self._before = raw[max(0, stop - _BEFORE) : stop]
        return clean.decode("utf-8", "surrogatepass")

    def _doubtful(self) -> int:
        """Return how many bytes at the end have to wait."""
        raw, waiting = self._before + self._waiting, len(self._waiting)
        least = min(_key_block(raw), _telling(raw), _word(raw), len(raw) - self._redactor.begun(raw))
        doubtful = min(len(raw) - least, waiting, _MOST)
        while 0 < doubtful < waiting and raw[len(raw) - doubtful] & 0xC0 == 0x80:  # in the middle of a character
            doubtful += 1
        return doubtful


def _key_block(raw: bytes) -> int:
    """Where a private key begins that has not ended; the end of `raw` where there is none."""
    begun = list(_KEY_BLOCK.finditer(raw))
    return begun[-1].start() if begun and not _KEY_END.search(raw, begun[-1].end()) else len(raw)


def _telling(raw: bytes) -> int:
    """Where a name stands whose value reaches the end."""
    start = max(0, len(raw) - _TELLING_REACH)
    for found in compiled(_TELLING).finditer(raw[start:]):
        if found.end() == len(raw) - start:
            return start + found.start()
    return len(raw)


def _word(raw: bytes) -> int:
    """Where the last word begins, when it may be the beginning of a token."""
    word = raw[-_WORD:].translate(_WORDS).rpartition(b" ")[2]
    is_long = len(word) >= _LONG and any(48 <= byte <= 57 for byte in word) and not word.isdigit()
    return len(raw) - len(word) if is_long or _BEGUN.search(word) else len(raw)


def _masked(raw: bytes, start: int, stop: int, finds: Iterable[Find]) -> bytes:
    """Return `raw[start:stop]` without the secrets in it; of one that began before `start` the rest is masked."""
    parts: list[bytes] = []
    position = start
    for find in finds:
        if find.end > position and find.start < stop:
            parts += (raw[position : max(position, find.start)], f"[redacted:{find.kind}]".encode())
            position = find.end
    return b"".join((*parts, raw[position:stop]))
