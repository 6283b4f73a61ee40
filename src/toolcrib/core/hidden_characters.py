"""Invisible characters: controls, and formats that reorder, join or hide the text around them.

Text from outside (names, descriptions, results) may hold them; a person is shown escapes instead (security.md T33).
"""

from __future__ import annotations

import unicodedata
from typing import Final

__all__ = ["escape", "is_hidden"]

_HIDDEN: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
"""Unicode categories that are never printed raw: controls, formats (bidi, zero width, tags), unassigned, separators."""


def is_hidden(char: str) -> bool:
    """Whether `char` shows nothing of its own."""
    return unicodedata.category(char) in _HIDDEN


def escape(text: str, *, lines: bool = False) -> str:
    """Return `text` with everything invisible written as an escape; `lines` keeps newlines and tabs."""
    if text.isprintable() and text.isascii():
        return text
    kept = "\n\t" if lines else ""
    return "".join(char if char in kept or not is_hidden(char) else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
