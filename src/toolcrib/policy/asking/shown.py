"""What a person sees of the arguments that will run: all of them, and nothing that the eye would miss.

Keys are sorted; secrets are masked by whoever calls; controls, formats that hide or reorder, and letters that look like
others inside a word of plain letters (`pаypal` with a Cyrillic `а`) are written as escapes, so that they stand out.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

from ...core.hidden import escape, is_hidden
from ...core.json import canonical, dumps, loads

__all__ = ["binding", "shown_arguments", "shown_text"]

_WORD: Final = re.compile(r"[^\W_]{2,}")
_LOOKALIKE: Final = ("ARMENIAN", "CHEROKEE", "COPTIC", "CYRILLIC", "FULLWIDTH", "GREEK", "LISU", "MATHEMATICAL")
"""First words of the names of letters that stand for a Latin one where somebody wants to deceive."""


def binding(definition: str, arguments: Mapping[str, Any], principal: str) -> str:
    """Return what an approval is bound to: a hash (hexadecimal) over tool, arguments and principal.

    `definition` is the digest of the tool's definition.
    """
    return hashlib.sha256(canonical([definition, arguments, principal])).hexdigest()


def shown_arguments(arguments: Mapping[str, Any]) -> str:
    """Return `arguments` as indented JSON, whole, sorted and escaped."""
    plain = loads(dumps(arguments))
    return shown_text(json.dumps(plain, ensure_ascii=False, sort_keys=True, indent=1), json_escapes=True)


def shown_text(text: str, *, json_escapes: bool = False) -> str:
    """Return `text` with everything that hides or deceives as an escape; line ends and tabs stay.

    `json_escapes` writes them as JSON does, for a text that is JSON.
    """
    if text.isascii() and not any(map(is_hidden, text.replace("\n", "").replace("\t", ""))):
        return text
    plain = _WORD.sub(_without_lookalikes, text)
    if not json_escapes:
        return escape(plain, lines=True)
    return "".join(char if char in "\n\t" or not is_hidden(char) else _escaped(char) for char in plain)


def _without_lookalikes(word: re.Match[str]) -> str:
    """Escape the letters of other scripts in a word that also holds plain ones."""
    letters = word.group()
    if letters.isascii() or not any(map(str.isascii, letters)):
        return letters
    return "".join(char if not _is_lookalike(char) else _escaped(char) for char in letters)


def _is_lookalike(char: str) -> bool:
    return not char.isascii() and unicodedata.name(char, "").startswith(_LOOKALIKE)


def _escaped(char: str) -> str:
    """Return `char` as JSON escapes it: UTF-16 units."""
    return json.dumps(char)[1:-1] if not char.isascii() else f"\\u{ord(char):04x}"
