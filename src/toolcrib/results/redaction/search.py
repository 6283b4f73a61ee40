"""Search for secrets in a text: known formats, names of secrets, and secrets of our own."""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property
from itertools import accumulate
from typing import Final
from urllib.parse import quote, quote_plus

from msgspec import Struct
from msgspec.structs import replace

from ...core.patterns import regex
from .formats import ISSUER_FORMATS, Format
from .names import ASSIGNMENT, PREFILTER, SecretName
from .passwords import PASSWORD_FORMATS
from .scanner import Scanner, compile_pattern, finder

_FORMATS: Final = (*ISSUER_FORMATS, *PASSWORD_FORMATS)
"""Every format, most specific first: where two overlap, the first names the kind."""
_HIDDEN: Final = (
    rb"(?:(?:\x1b|\\u001[bB])\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]{0,400}(?:\x07|\x1b\\)|\x1b[ -/]*[0-Z\\^-~]?"
    rb"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]|\xc2\xad|\xcd\x8f|\xe2\x80[\x8b-\x8f\xaa-\xae]|\xe2\x81[\xa0-\xaf]"
    rb"|\xef\xbb\xbf|\xf3\xa0[\x80\x81][\x80-\xbf]|\\u(?:00[01][0-9a-fA-F]|(?i:00ad|200[b-f]|202[a-e]|206[0-9a-f]|feff)))"
)
"""What a text may have in the middle of a secret without showing it: terminal escapes, controls, zero width."""
_HIDDEN_PART: Final = regex(rb"(?=[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\\\xc2\xcd\xe2\xef\xf3])" + _HIDDEN)
"""The first bytes of `_HIDDEN`, then the whole: half the time."""
_HIDDEN_INDEX: Final = len(_FORMATS) + 1
"""Index of texts with `_HIDDEN` before something that is seen; those of our own secrets follow."""
_OWN_KIND: Final = "secret"
_MAX_NESTED_BYTES: Final = 200
"""Bytes of a value that is not a secret and is searched for a further name."""
_NAME_BEFORE: Final = regex(rb"([\w.-]*)(?:[ (?/]([A-Za-z]+))?")
"""Read backwards: an end cannot be sought, only a beginning."""


class Find(Struct, frozen=True):
    """A secret in a text: start and end, in bytes, and its kind."""

    start: int
    end: int
    kind: str
    is_certain: bool = True
    """Whether it is a secret for sure; else the words around it, or how random it looks, suggest so."""


class SecretSearch:
    """Search for every format, and for secrets of our own in any spelling. May be used from several threads."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """Prepare; what is searched for is compiled at the first text."""
        forms = {form for secret in secrets for form in encoded_forms(secret)}
        self._own = tuple(sorted(forms, key=len, reverse=True))
        self._find_own = re.compile(b"|".join(map(re.escape, self._own))) if self._own else None

    @cached_property
    def match(self) -> Callable[[bytes], list[int]]:
        """Return which formats may occur in UTF-8 text, none in most: a function, compiled in some milliseconds."""
        scanner = _scanner_with(re.escape(form) for form in self._own) if self._own else _scanner()
        return scanner.match

    def finds(self, raw: bytes) -> list[Find]:
        """Return the secrets in UTF-8 text, in order and without overlap."""
        hits = self.match(raw)
        return self.look(raw, hits) if hits else []

    def look(self, raw: bytes, hits: list[int]) -> list[Find]:
        """Run the patterns that can match, and return their matches, in order and without overlap.

        Own secrets first, then formats by how specific they are, then assignments; of overlapping finds the first gives
        the kind. A secret that is parted by what is not seen is found whole, as its reader or a later step sees it.
        """
        finds: list[Find] = []
        wanted = set(hits)
        if _HIDDEN_INDEX in wanted:
            finds += self._find_hidden(raw)
        if self._find_own is not None and max(wanted) > _HIDDEN_INDEX:
            finds += [Find(found.start(), found.end(), _OWN_KIND) for found in self._find_own.finditer(raw)]
        for index in sorted(hit for hit in wanted if hit < len(_FORMATS)):
            form = _FORMATS[index]
            judged = _JudgementCache(form.judge)
            spans = _spans(form, raw)
            finds += [Find(*span, form.kind, form.is_certain) for span in spans if judged[raw[slice(*span)]]]
        if len(_FORMATS) in wanted:
            finds += self._find_assignments(raw)
        return _merge_overlapping(finds)

    def _find_hidden(self, raw: bytes) -> list[Find]:
        """Return the secrets of the text that is seen, by their places in `raw`."""
        seen, place = visible_bytes(raw)
        hits = [hit for hit in self.match(seen) if hit != _HIDDEN_INDEX]
        finds = self.look(seen, hits) if hits else []
        return [replace(find, start=place(find.start), end=place(find.end - 1) + 1) for find in finds]

    def _find_assignments(self, raw: bytes) -> list[Find]:
        finds: list[Find] = []
        names: dict[tuple[bytes, bytes], SecretName] = {}  # tables repeat their fields and values
        judged: dict[tuple[bytes, ...], bool] = {}
        position, find = 0, finder(ASSIGNMENT)
        while (spans := find(raw, position)) is not None:
            _, (begin, middle), _, (start, position) = spans
            end = _closing_quote(raw, start, position)
            word, before = _context_before(raw, begin)
            key = _without_number(before + raw[begin:middle]), word
            name = names.get(key)
            if name is None:
                name = names[key] = SecretName(*key)
            parts = *key, raw[middle:start], raw[start:end], raw[end : end + 1]
            is_secret = judged.get(parts)
            if is_secret is None:
                is_secret = judged[parts] = name.has_secret(*parts[2:])
            if is_secret:
                finds.append(Find(start, end, name.kind, name.is_certain))
            elif position - start <= _MAX_NESTED_BYTES:
                position = start  # `auth: password=VALUE`: the value of one name may begin with the next one
        return finds

    def has_format(self, hits: Iterable[int], texts: Iterable[bytes]) -> bool:
        """Whether more than an assignment is in the texts. The scanner's patterns are weaker: an id may hit some."""
        return any(
            hit >= _HIDDEN_INDEX
            or (
                hit < len(_FORMATS)
                and any(compile_pattern(_FORMATS[hit].pattern).search(text) is not None for text in texts)
            )
            for hit in hits
        )

    def begun(self, raw: bytes) -> int:
        """Return the number of bytes at the end of `raw` that may begin a secret of our own, in any spelling."""
        longest = self._beginnings.longest
        for size in range(min(longest, len(raw)), 0, -1):
            if self._beginnings.has(raw[-size:]):
                return size
        return 0

    @cached_property
    def _beginnings(self) -> _Beginnings:
        return _Beginnings(self._own)


class _Beginnings:
    """Answers whether a text is the beginning of one of some forms, in a look-up."""

    def __init__(self, forms: Iterable[bytes]) -> None:
        self._sorted = sorted(forms)
        self.longest = max(map(len, self._sorted), default=1) - 1

    def has(self, text: bytes) -> bool:
        """Whether a form begins with `text` and is longer."""
        place = bisect_right(self._sorted, text)
        return place < len(self._sorted) and self._sorted[place].startswith(text)


class _JudgementCache(dict[bytes, bool]):
    """Judgements of one look: lists repeat their values."""

    def __init__(self, judge: Callable[[bytes], bool] | None) -> None:
        super().__init__()
        self._judge = judge

    def __missing__(self, value: bytes) -> bool:
        is_secret = self[value] = self._judge is None or self._judge(value)
        return is_secret


@cache
def _scanner() -> Scanner:
    """Return the scanner for every format, without our own secrets: immutable, and shared by the process."""
    return _scanner_with(())


def visible_bytes(raw: bytes) -> tuple[bytes, Callable[[int], int]]:
    """Return the text of `raw` that is seen, and a function that returns where a byte of that stands in `raw`."""
    parts = _HIDDEN_PART.split(raw)  # a match of RE2 takes longer, and coloured output has thousands

    @cache
    def borders() -> tuple[list[int], list[int]]:
        hidden = (len(found.group()) for found in _HIDDEN_PART.finditer(raw))
        return list(accumulate(map(len, parts), initial=0)), list(accumulate(hidden, initial=0))

    def place(offset: int) -> int:
        starts, shifts = borders()
        return offset + shifts[bisect_right(starts, offset, hi=len(parts)) - 1]

    return b"".join(parts), place


def _scanner_with(own: Iterable[bytes]) -> Scanner:
    return Scanner(
        [*(_weaker_pattern(form.pattern) for form in _FORMATS), PREFILTER, _weaker_pattern(_HIDDEN + b"[^\n]"), *own]
    )


def _spans(form: Format, raw: bytes) -> Iterator[tuple[int, int]]:
    """Yield where values of a format may be. Rows below a heading are not headings: each row is read once."""
    find, position = finder(form.pattern), 0
    while (found := find(raw, position)) is not None:
        position = found[0][1]
        for span in (found[1],) if form.below is None else form.below(raw, *found[1]):
            yield span
            position = max(position, span[1])


def _weaker_pattern(pattern: bytes) -> bytes:
    """Return a weaker pattern that every match of `pattern` matches, with a small automaton: counts become `+`, `*`."""
    weaker = re.sub(rb"\{0(?:,\d*)?\}|\{,\d+\}", b"*", pattern)
    return re.sub(rb"\{[1-9]\d*(?:,\d*)?\}", b"+", weaker)


def _closing_quote(raw: bytes, start: int, end: int) -> int:
    """End of the value that begins at `start`: its closing quote, if it has quotes and no space in them."""
    quote = raw[start - 1 : start]
    if quote not in (b'"', b"'", b"`"):
        return end
    closing = raw.find(quote, end, end + 200)
    if closing < 0 or any(space in raw[end:closing] for space in (b" ", b"\n", b"\t")):
        return end
    return closing - 1 if raw[closing - 1 : closing] == b"\\" else closing


def _context_before(raw: bytes, begin: int) -> tuple[bytes, bytes]:
    """The word before the name that goes on at `begin`, with its space, and the beginning of that name.

    Names are matched from their telling word on; what stands before it, and the word before that, may make it harmless
    (`page_token`).
    """
    found = _NAME_BEFORE.match(raw[max(0, begin - 40) : begin][::-1])
    return (found[2][::-1] + b" " if found and found[2] else b"", found[1][::-1] if found else b"")


def _without_number(name: bytes) -> bytes:
    """Return a name of a numbered list (`PASSWORD_17`) with the number 0: each tells the same."""
    stem = name.rstrip(b"0123456789")
    return stem + b"0" if len(stem) < len(name) and not stem[-1:].isalpha() else name


def _merge_overlapping(finds: list[Find]) -> list[Find]:
    """Merge finds that overlap; the one that was found first (the more specific one) keeps its name."""
    merged: list[Find] = []
    for find in sorted(finds, key=lambda found: found.start):
        if merged and find.start < merged[-1].end:
            last = merged[-1]
            is_certain = last.is_certain or find.is_certain
            merged[-1] = Find(last.start, max(last.end, find.end), last.kind, is_certain)
        else:
            merged.append(find)
    return merged


_MIN_SECRET_LENGTH: Final = 6
"""Characters. Shorter values (`1`, `true`, `dev`) occur in every text."""


def encoded_forms(secret: str) -> frozenset[bytes]:
    """Return every form of `secret` to look for, UTF-8; none when it is too short to differ from other text."""
    secret = secret.strip()
    if len(secret) < _MIN_SECRET_LENGTH:
        return frozenset()
    raw = secret.encode("utf-8", "surrogatepass")
    forms = {raw, raw.hex().encode(), raw.hex().upper().encode(), *_base64_forms(raw)}
    forms |= {form.encode("utf-8", "surrogatepass") for form in _escaped_forms(secret)}
    return frozenset(form for form in forms if len(form) >= _MIN_SECRET_LENGTH)


def _escaped_forms(secret: str) -> Iterator[str]:
    from html import escape  # its table of names takes 2 ms, and an opening of a crib without secrets needs none

    for written in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        yield written
        yield written.replace("/", "\\/")
        yield json.dumps(written)[1:-1]
    yield repr(secret)[1:-1]
    yield escape(secret)
    for part in (quote(secret, safe="", errors="replace"), quote(secret, errors="replace")):
        yield part
        yield _lower_percent_codes(part)
    yield quote_plus(secret, errors="replace")
    yield quote(quote(secret, safe="", errors="replace"), safe="")


def _lower_percent_codes(text: str) -> str:
    """RFC 3986 allows both cases in percent codes."""
    head, *codes = text.split("%")
    return head + "".join(f"%{code[:2].lower()}{code[2:]}" for code in codes)


def _base64_forms(raw: bytes) -> Iterator[bytes]:
    """The base64 characters that depend on `raw` alone, for each alignment in the encoded text.

    A secret in a longer text begins at one of three places in the groups of three bytes that base64 encodes; the
    characters at the edges depend on its neighbours and are left out.
    """
    for before in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(b"\0" * before + raw).rstrip(b"=")
            start = (0, 2, 3)[before]
            whole = (before + len(raw)) // 3 * 4
            yield text[start:whole]
