"""Spellings of a known secret: the encodings in which a text may have it."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, quote_plus

__all__ = ["spellings"]

_SHORTEST: Final = 6
"""Characters. Shorter values (`1`, `true`, `dev`) occur in every text."""


def spellings(secret: str) -> frozenset[bytes]:
    """Return every form of `secret` to look for, UTF-8; none when it is too short to differ from other text."""
    secret = secret.strip()
    if len(secret) < _SHORTEST:
        return frozenset()
    raw = secret.encode("utf-8", "surrogatepass")
    forms = {raw, raw.hex().encode(), raw.hex().upper().encode(), *_base64(raw)}
    forms |= {form.encode("utf-8", "surrogatepass") for form in _escaped(secret)}
    return frozenset(form for form in forms if len(form) >= _SHORTEST)


def _escaped(secret: str) -> Iterator[str]:
    for written in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        yield written
        yield written.replace("/", "\\/")
        yield json.dumps(written)[1:-1]
    yield repr(secret)[1:-1]
    yield html.escape(secret)
    for part in (quote(secret, safe="", errors="replace"), quote(secret, errors="replace")):
        yield part
        yield _lower_percent(part)
    yield quote_plus(secret, errors="replace")
    yield quote(quote(secret, safe="", errors="replace"), safe="")


def _lower_percent(text: str) -> str:
    """RFC 3986 allows both cases in percent codes."""
    head, *codes = text.split("%")
    return head + "".join(f"%{code[:2].lower()}{code[2:]}" for code in codes)


def _base64(raw: bytes) -> Iterator[bytes]:
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
