"""Text of strangers, made so that what a model reads is what a person would see (security.md C9).

Removed are terminal escapes, control characters, bidirectional overrides, zero-width and filler characters, tag
characters, private and unassigned ones. Joiners, direction marks and variation selectors stay where they do their
work: beside a letter or a symbol that is not ASCII.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Final, cast

from ..core.hidden import is_hidden

__all__ = ["visible_json", "visible_text"]

_ESCAPES: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]{0,4000}(?:\x07|\x1b\\|\x9c)"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SPACES: Final = "\n\r\t"
_JOINS: Final = frozenset("\u200c\u200d\u200e\u200f\ufe0e\ufe0f")
"""Joiners, direction marks, the two variation selectors of emoji."""
_SEEN_AS_NOTHING: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and marks by category that show nothing: joiner, Hangul and Khmer fillers, the empty Braille pattern."""
_NOTHING: Final = (("\ufe00", "\ufe0d"), ("\u180b", "\u180f"), ("\ufff0", "\ufff8"), ("\U000e0000", "\U000e0fff"))
"""Variation selectors that only ideographs use, and what Unicode keeps for characters that show nothing."""
_DEPTH: Final = 64


def visible_text(text: str) -> tuple[str, int]:
    """Return `text` without what is not seen, and how many characters that were."""
    if text.isascii():
        if text.isprintable() or not _CONTROLS.search(text):
            return text, 0
        shown = _CONTROLS.sub("", _ESCAPES.sub("", text))
        return shown, len(text) - len(shown)
    plain = _ESCAPES.sub("", text)
    shown = "".join(char for place, char in enumerate(plain) if char.isascii() or _is_seen(plain, place, char))
    shown = _CONTROLS.sub("", shown)
    return shown, len(text) - len(shown)


def visible_json(value: Any) -> tuple[Any, int]:
    """Return JSON with every text in it seen, keys too; the same object when nothing was hidden, and the count."""
    removed = [0]
    shown = _walk(value, removed, 0)
    return (shown, removed[0]) if removed[0] else (value, 0)


def _walk(value: Any, removed: list[int], depth: int) -> Any:
    if isinstance(value, str):
        text, count = visible_text(value)
        removed[0] += count
        return text
    if depth > _DEPTH:
        return value
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, Any]", value).items()
        return {_walk(key, removed, depth): _walk(inner, removed, depth + 1) for key, inner in entries}
    if isinstance(value, list | tuple):
        return [_walk(inner, removed, depth + 1) for inner in cast("list[Any]", value)]
    return value


def _is_seen(text: str, place: int, char: str) -> bool:
    if char in _JOINS:
        return _does_work(text, place)
    if char in _SEEN_AS_NOTHING or any(first <= char <= last for first, last in _NOTHING):
        return False
    return unicodedata.category(char) == "Cn" or not is_hidden(char)  # Cn: an emoji newer than our tables


def _does_work(text: str, place: int) -> bool:
    """Whether a joiner or mark stands alone after a letter or symbol that is not ASCII."""
    before = text[place - 1] if place else " "
    if text[place] == "\ufe0f" and before in "0123456789#*":
        return True  # keycaps
    is_selected = before == "\ufe0f" and text[place] == "\u200d" and place > 1
    return is_selected or (not before.isascii() and before not in _JOINS and not is_hidden(before))
