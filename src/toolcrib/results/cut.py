"""Cutting a text that is too long: its head, its tail, and what stands between them to say what is missing.

Everything shown is a piece of the original, byte for byte. Sizes are UTF-8 bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

__all__ = ["Cut", "cut_json", "cut_text"]

_HEAD_SHARE: Final = 0.6
_NOTE_BYTES: Final = 330
"""Room for the marker."""
_JSON_BYTES: Final = 1024 * 1024
"""Longer JSON is cut as text: proving that it can be rebuilt byte for byte would take too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What of a text is shown. `render` puts the marker in its place."""

    head: str
    tail: str
    left_out: str
    """What is missing, counted: `12345 of 20000 bytes (812 of 900 items)`."""
    head_bytes: int
    """Where in the original the missing part begins."""
    template: str = ""
    """JSON with a place for the marker between head and tail; empty for plain text."""

    def render(self, go_on: str) -> str:
        """Return the text to show; `go_on` says how to read the rest."""
        note = f"[toolcrib: {self.left_out} left out here. {go_on}]"
        if self.template:
            return self.template.replace(_PLACE, json.dumps(note, ensure_ascii=False)[1:-1], 1)
        return f"{self.head}\n{note}\n{self.tail}"


_PLACE: Final = "\ufdd0toolcrib\ufdd0"
"""Noncharacters: they stand in no text."""


def cut_text(text: str, budget: int, size: int, *, tail: str | None = None) -> Cut:
    """Cut `text` to `budget` bytes. `size` is the whole's; `tail` its end, when `text` is only its beginning."""
    room = max(0, budget - _NOTE_BYTES)
    head = _head(text, int(room * _HEAD_SHARE))
    end = _tail(text if tail is None else tail, room - int(room * _HEAD_SHARE))
    shown = len(head.encode("utf-8", "replace")) + len(end.encode("utf-8", "replace"))
    missing = max(0, size - shown)
    left_out = f"{missing} of {size} bytes (about {-(-missing // 4)} of {-(-size // 4)} tokens, estimated as bytes / 4)"
    if tail is None:
        lines = text.count("\n", len(head), len(text) - len(end))
        left_out = f"{lines} lines, {left_out}" if lines > 1 else left_out
    return Cut(head=head, tail=end, left_out=left_out, head_bytes=len(head.encode("utf-8", "replace")))


def cut_json(text: str, budget: int) -> Cut | None:
    """Cut a JSON array between its items, so that it stays JSON; None when it is no array or cannot be rebuilt."""
    if not text.lstrip().startswith("[") or len(text) > _JSON_BYTES:
        return None
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        return None
    write = _writer(items, text)
    if write is None or len(items) < 3:
        return None
    size = len(text.encode("utf-8", "replace"))
    head, tail = _choose(items, write, max(0, budget - _NOTE_BYTES))
    if not head and not tail:
        return None
    template = write([*items[:head], _PLACE, *items[len(items) - tail :]]).replace(json.dumps(_PLACE)[1:-1], _PLACE)
    before = template.split(_PLACE)[0]
    missing = size - len(template.encode("utf-8", "replace"))
    left_out = (
        f"{len(items) - head - tail} of {len(items)} items (about {-(-missing // 4)} of {-(-size // 4)} tokens, "
        "estimated as bytes / 4)"
    )
    head_bytes = len(before.rstrip().removesuffix('"').rstrip().encode("utf-8", "replace"))
    return Cut(head="", tail="", left_out=left_out, head_bytes=head_bytes, template=template)


def _writer(value: Any, text: str) -> Callable[[Any], str] | None:
    """The way of writing JSON that gives exactly `text` for `value`; None when there is no such way."""
    if not isinstance(value, list):
        return None
    body = text.strip()
    indent = len(body) - len(body[1:].lstrip(" \n")) - 2 if body.startswith("[\n") else None
    compact = indent is None and ": " not in body[:2000] and ", " not in body[:2000]
    separators = (",", ":") if compact else None
    write = partial(json.dumps, ensure_ascii=text.isascii(), indent=indent, separators=separators)
    return write if write(cast("list[Any]", value)) == body else None


def _choose(items: Sequence[Any], write: Callable[[Any], str], room: int) -> tuple[int, int]:
    """How many items of the beginning and of the end fit."""
    head_room = int(room * _HEAD_SHARE)
    head = _fitting(items, write, head_room)
    tail = _fitting(items[head:][::-1], write, room - head_room)
    return head, tail


def _fitting(items: Sequence[Any], write: Callable[[Any], str], room: int) -> int:
    for count, item in enumerate(items):
        room -= len(write([item]).encode("utf-8", "replace"))
        if room < 0:
            return count
    return len(items)


def _head(text: str, room: int) -> str:
    """The beginning that fits, up to the end of a line when that gives up less than half of it."""
    piece = text[:room].encode("utf-8", "replace")[:room].decode("utf-8", "ignore")
    border = -1 if len(piece) == len(text) else piece.rfind("\n")
    return piece[:border] if border > len(piece) // 2 else piece


def _tail(text: str, room: int) -> str:
    """The end that fits, from the beginning of a line when that gives up less than half of it."""
    piece = text[-room:].encode("utf-8", "replace")[-room:].decode("utf-8", "ignore") if room else ""
    border = -1 if len(piece) == len(text) else piece.find("\n")
    return piece[border + 1 :] if 0 <= border < len(piece) // 2 else piece
