"""Judgement of one short value: whether it looks generated, or is a placeholder, a reference, a word.

The figures were fitted on the examples and counter-examples of public scanners' rules and on the standard library's own
source (see `tests/unit/toolcrib/results/test_redact.py`).
"""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Final

from ...core.patterns import regex
from .scanner import WordPattern

_PLACEHOLDER: Final = WordPattern(
    rb"(?i)example|sample|placeholder|change.?me|your|xxxx|dummy|redact|insert|replace|\*\*\*|\.\.\.|todo|undefined|fake"
    rb"|process\.env|environ|getenv|\{\{|\$\{|\$\(|<[a-z]|%\(|secrets\.|12345678(?:9|$)|abcdefg|qwert[yz]?(?![yz\d])|foobar|lorem",
)
"""Words of documentation, and references to another place."""

_FILLER: Final = WordPattern(
    rb"x{5}|X{5}|\.{3}|\*{3}|EXAMPLE|#{5}|PLACEHOLDER|placeholder|REDACTED|\[redacted|0{12}|1{12}|1234567890123"
)
"""Placeholders for the rest of a token in documentation."""

_KEPT_PLACEHOLDER: Final = regex(rb"\xe2\x9f\xa6secret:[a-z]{10}\xe2\x9f\xa7[^\w]{0,4}")
"""The placeholder of a value that the process keeps (`core.kept_secrets`), and punctuation behind it."""

_NOT_PASSWORDS: Final = frozenset(
    b"password passwd pass pwd pw token test user username xxx xxxx value string required".split()
)

_NOT_SECRETS: Final = frozenset(
    b"password passwd pass pwd secret token key none null nil true false string required optional text hidden user"
    b" username admin root test testing str int bytes bool any number boolean object default value invalid forgot reset"
    b" login empty unknown disabled enabled basic bearer type name postgres mysql localhost".split()
)

_TAG: Final = regex(rb"![a-z_/]+")
"""A tag in YAML: what stands behind it is looked up."""

_IS_UUID: Final = regex(rb"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")

HEX: Final = regex(rb"(?:[0-9a-f]+|[0-9A-F]+)")

_PARTS: Final = regex(rb"[A-Za-z0-9]+")

_LETTERS: Final = regex(rb"[A-Za-z]+")

_DIGITS: Final = regex(rb"\d+")

_CHUNKS: Final = regex(rb"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
"""Words, acronyms and numbers of an identifier: of three letters and more in the mean, of two in random text."""

_SIGNS: Final = regex(rb"[!@#$%^&*+?~]")

_COMMON_PAIRS: Final = frozenset(
    b"ab ac ad ag ai al am an ap ar as at au ba be bi bl bo bu ca ce ch ci ck cl co cr ct cu da de di do ds ea ec ed"
    b" ee ef eg el em en ep er es et ev ew ex fa fe ff fi fo fr ge gi gr ha he hi ho ia ib ic id ie if ig il im in io"
    b" ip ir is it iv iz ke la ld le li ll lo ls lt lu ly ma me mi mo mp na nc nd ne nf ng ni no ns nt oc od ol om on"
    b" oo op or os ot ou ow pa pe pi pl po pp pr pt py qu ra rc rd re ri rm ro rr rs rt ru ry sa sc se sh si so sp ss"
    b" st su ta tc te th ti tl to tp tr ts tt tu ty ub ue ul um un up ur us ut va ve vi wa wi xt yp ze".split()
)
_COMMON_PAIR_TUPLES: Final = frozenset(map(tuple, _COMMON_PAIRS))
"""The 180 commonest letter pairs of English and of identifiers: 85 % of the pairs in words, 27 % in random letters."""

_PATH: Final = regex(rb"[a-z_][\w]*(?:\.[a-z_]\w*)+|(?:\.{0,2}|~)/[\w./-]*", re.IGNORECASE)

NUMBER: Final = regex(rb"[-+]?\d+(?:[.:/_-]\d+)*(?:[a-z%]{0,3}|e[-+]?\d+)\.?", re.IGNORECASE)

_VERSION: Final = regex(rb"(?:[A-Za-z][\w-]*[-_:])?v?\d+(?:\.\d+){1,3}(?:[-+.]\w+)*|\d{4}-\d\d-\d\d.*|\d{1,2}:\d\d.*")


def entropy(value: bytes) -> float:
    """Shannon entropy in bits per byte."""
    total = len(value)
    if not total:
        return 0.0
    return math.log2(total) - sum(count * math.log2(count) for count in map(value.count, set(value))) / total


def _has_entropy(value: bytes, bits: float) -> bool:
    """Whether the entropy is `bits` or more; mostly the number of distinct bytes tells."""
    total = len(value)
    commonest = total - len(set(value)) + 1
    if total and math.log2(total) - commonest * math.log2(commonest) / total >= bits:
        return True
    return entropy(value) >= bits


def is_placeholder(value: bytes) -> bool:
    """Whether `value` is a placeholder for a secret."""
    if len(set(value)) <= 3 or _begins_reference(value) or value.lower() in _NOT_SECRETS:
        return True
    return _PLACEHOLDER.occurs(value) or _is_kept_placeholder(value)


def _is_kept_placeholder(value: bytes) -> bool:
    return value[:1] == b"\xe2" and _KEPT_PLACEHOLDER.fullmatch(value) is not None


def _begins_reference(value: bytes) -> bool:
    """Whether `value` begins as a reference to another place does; `%` and `*` may begin a password of many kinds."""
    if value[:1] in b"%*":
        return value[-1:] in b"%*)" or kinds(value) < 3
    return value[:1] in b"$<{[" or (value[:1] == b"!" and _TAG.fullmatch(value) is not None)


def kinds(value: bytes) -> int:
    """Number of character classes (upper case, lower case, digits, signs) in a value."""
    found = (value.lower() != value, value.upper() != value, _DIGITS.search(value), _SIGNS.search(value))
    return sum(map(bool, found))


def is_reference(value: bytes) -> bool:
    """Whether `value` is a version, a number, a time, an id or a path."""
    return is_uuid(value) or is_version(value) or NUMBER.fullmatch(value) is not None or is_path(value)


def is_version(value: bytes) -> bool:
    """Whether `value` is a version, a date or a time."""
    return (b"." in value or b"-" in value or b":" in value) and _VERSION.fullmatch(value) is not None


def is_path(value: bytes) -> bool:
    """Whether `value` is a path, or names with points between."""
    return (b"." in value or b"/" in value) and _PATH.fullmatch(value) is not None


def not_example(value: bytes) -> bool:
    """Whether `value` is not a placeholder; for formats that nothing else has."""
    return not is_placeholder(value)


def is_uuid(value: bytes) -> bool:
    """Whether `value` is one UUID: far more often a name than a secret."""
    return _IS_UUID.fullmatch(value) is not None


def is_generated(value: bytes) -> bool:
    """Whether a value in a format that only its issuer uses can be real: not the same few characters over and over.

    For formats with an issuer's prefix, where the value need only not be a filler of documentation.
    """
    return _has_entropy(value, 2.9) and not _FILLER.occurs(value)


def is_password(value: bytes) -> bool:
    """Whether `value`, in the place of a password, is one: anything but a word for it.

    The loosest: behind the word password nearly everything counts.
    """
    return (
        len(set(value)) > 1
        and value.lower() not in _NOT_PASSWORDS
        and not _begins_reference(value)
        and not _FILLER.occurs(value)
        and not _is_kept_placeholder(value)
    )


def is_mixed(value: bytes) -> bool:
    """Whether a value in a rather common format looks generated: digits among letters, no placeholder."""
    return _count_digits(value) >= 2 and len(set(value)) >= 8 and not is_placeholder(value)


def is_credential(value: bytes) -> bool:
    """Whether `value`, standing after the word bearer or authorization, is one."""
    return is_random(value) and not is_uuid(value)


def is_random(value: bytes) -> bool:
    """Whether `value` looks generated rather than written: no word, no path, no version, no identifier.

    The decision for values without a format: digits, distinct characters, and how many pairs of letters are those of
    words.
    """
    if len(value) < 8 or is_placeholder(value):
        return False
    if HEX.fullmatch(value):
        return len(value) >= 12 and len(set(value)) >= 6
    longest = max(_PARTS.findall(value), key=len, default=b"")
    if 16 <= len(longest) < len(value) and is_random(longest):
        return True
    if len(longest) >= 16 and len(_CHUNKS.findall(longest)) * 2.5 > len(longest):
        return True
    if _count_digits(value) == 0:
        return len(value) >= 16 and _has_entropy(value, 3.2) and _wordiness(value) < 0.45
    if not _has_entropy(value, 2.6):
        return False
    groups = len(_DIGITS.findall(value))
    return _wordiness(value) < (0.7 if groups >= 3 else 0.56)


def _count_digits(value: bytes) -> int:
    return len(value) - len(value.translate(None, b"0123456789"))


def _wordiness(value: bytes) -> float:
    """The share of letter pairs that are common in words; 0 when there are too few letters."""
    runs = _LETTERS.findall(value.lower())
    pairs = sum(map(len, runs)) - len(runs)
    if pairs < 3:
        return 0.0
    return sum(sum(map(_COMMON_PAIR_TUPLES.__contains__, pairwise(run))) for run in runs) / pairs
