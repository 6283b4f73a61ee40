"""Sanitizer of foreign text: removes characters that a person cannot see, so that no model reads them either.

Removed are terminal escapes, control characters, zero-width and filler characters, bidirectional overrides, invisible
operators, variation selectors but the two for emoji, and the tag characters U+E0000 to U+E007F.

Invisible characters: controls, and formats that reorder, join or hide the text around them.

Text from outside (names, descriptions, results) may hold them; a person is shown escapes instead (security.md T33).
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from .json import as_list, as_mapping, dumps
from .patterns import regex

_HIDDEN: Final = regex(
    r"\x1b\[[0-?]*[ -/]*[@-~]?"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff9-\ufffb"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)

_PROSE: Final = ("description", "title", "$comment")
_DEPTH: Final = 64
_ICON_SOURCE: Final = regex(r"https?://|data:image/", re.IGNORECASE)
"""A client that loads another kind of URI could be made to run or to reveal something."""

_ICON_MEMBERS: Final[Mapping[str, type]] = {"mimeType": str, "sizes": list, "theme": str}
"""SDKs refuse a list of all servers for one member of another type."""

_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
"""Unicode categories that are never printed raw: controls, formats (bidi, zero width, tags), unassigned, separators."""
_NOTHING: Final = regex(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0d\uffa0\ufff0-\ufff8"
    "\U00016fe4\U0001d159\U000e0000-\U000e0fff]"
)
"""Letters, marks and symbols by category that show nothing: Hangul and Khmer fillers, empty patterns, variation
selectors that only ideographs use, and what Unicode keeps for such characters."""
_SELECTORS: Final = "\ufe0e\ufe0f"
"""Variation selectors of emoji; behind anything else they show nothing."""
_KEYCAP: Final = "\u20e3"
_PILE: Final = 8
"""Marks on one letter, more than any script writes: further ones would cover the lines around."""


def clean_text(text: str) -> tuple[str, int]:
    """Return `text` without invisible characters, and their number."""
    if text.isascii() and text.isprintable():
        return text, 0
    shown = _HIDDEN.sub("", text)
    return shown, len(text) - len(shown)


class Icons:
    """Icons of one server, without members of a wrong type, until their size limit. Counts the omitted ones."""

    def __init__(self, each: int, all_together: int) -> None:
        """`each` and `all_together` are bytes of JSON."""
        self._each = each
        self._left = all_together
        self.dropped = 0

    def take(self, value: Any) -> tuple[Mapping[str, Any], ...]:
        """Return those of MCP `icons` that a client can be handed: their `src` is an https:, http: or data: URI."""
        taken: list[Mapping[str, Any]] = []
        for icon in as_list(value):
            size = self._size(icon)
            if size <= min(self._each, self._left):
                self._left -= size
                taken.append(
                    {name: one for name, one in icon.items() if isinstance(one, _ICON_MEMBERS.get(name, object))}
                )
            else:
                self.dropped += 1
        return tuple(taken)

    def _size(self, icon: Any) -> float:
        source = as_mapping(icon).get("src")
        if not isinstance(source, str) or not source.isprintable() or not _ICON_SOURCE.match(source):
            return math.inf
        try:
            return len(dumps(icon))
        except (TypeError, ValueError, RecursionError):
            return math.inf


def clip(text: str, limit: int) -> str:
    """Return `text` with at most `limit` characters, marked where it was cut."""
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def cut(text: str, limit: int) -> str:
    """Return `text` with at most `limit` bytes of UTF-8, marked where it was cut."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    return data[: limit - 3].decode("utf-8", "ignore") + "…"


def clean_schema(schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], int]:
    """Return `schema` with clean prose, the same object when it was clean, and the number of removed characters.

    Raises `ValueError` for hidden characters in a name or a value, or for excessive depth.
    """
    hidden = [0]
    cleaned = _clean(schema, hidden, 0)
    return (cleaned, hidden[0]) if hidden[0] else (schema, 0)


def _clean(node: Any, hidden: list[int], depth: int) -> Any:
    if depth > _DEPTH:
        raise ValueError(f"the schema is nested deeper than {_DEPTH} levels")
    if isinstance(node, dict):
        return {_visible(key): _entry(key, value, hidden, depth) for key, value in cast("dict[str, Any]", node).items()}
    if isinstance(node, list):
        return [_clean(item, hidden, depth + 1) for item in cast("list[Any]", node)]
    return _visible(node) if isinstance(node, str) else node


def _entry(key: str, value: Any, hidden: list[int], depth: int) -> Any:
    if key in _PROSE and isinstance(value, str):
        text, count = clean_text(value)
        hidden[0] += count
        return text
    return _clean(value, hidden, depth + 1)


def _visible(text: str) -> str:
    if not (text.isascii() and text.isprintable()) and _HIDDEN.search(text):
        raise ValueError("a name or a value in the schema has invisible characters")
    return text


def is_hidden(char: str) -> bool:
    """Whether `char` shows nothing of its own."""
    return unicodedata.category(char) in _HIDDEN_CATEGORIES or shows_nothing(char)


def shows_nothing(char: str) -> bool:
    """Whether `char` is empty although its category is that of letters, marks or symbols."""
    return _NOTHING.match(char) is not None


def _escaped(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def escape(text: str, *, lines: bool = False, written: Callable[[str], str] = _escaped) -> str:
    """Return `text` with everything invisible, and marks piled on one letter, written as escapes.

    `lines` keeps newlines and tabs; `written` returns the escape of a character.
    """
    if text.isprintable() and text.isascii():
        return text
    kept, characters = "\n\t" if lines else "", set(text)
    if any(map(_is_mark, characters)):
        text = "".join(written(char) if _misleads(text, place, char) else char for place, char in enumerate(text))
    hidden = {ord(char): written(char) for char in characters if char not in kept and is_hidden(char)}
    return text.translate(hidden) if hidden else text


def _misleads(text: str, place: int, char: str) -> bool:
    """Whether a mark is one of a pile, or a selector that has nothing to select."""
    if not _is_mark(char):
        return False
    before = text[place - 1 : place]
    is_alone = before.isascii() or before in _SELECTORS
    if char in _SELECTORS and is_alone and text[place + 1 : place + 2] != _KEYCAP:
        return True
    return place >= _PILE and all(map(_is_mark, text[place - _PILE : place]))


def _is_mark(char: str) -> bool:
    return not char.isascii() and unicodedata.category(char) in ("Mn", "Me")
