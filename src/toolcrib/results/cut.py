"""Cutting a text that is too long: its head, its tail, and what stands between them to say what is missing.

Everything shown is a piece of the original, byte for byte. Sizes are UTF-8 bytes, or characters where the room says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, cast

from .fit import Marker

__all__ = ["Cut", "Room", "cut_json", "cut_lines", "cut_text"]

_JSON_BYTES: Final = 1024 * 1024
"""Longer JSON is cut as text: proving that it can be rebuilt byte for byte would take too long."""

_LINE_ENDS: Final = ("\n", "\\n")
"""Where a text may be cut; the second is how JSON writes a line end in a string."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How much may be shown, marker included, and how it is shared out."""

    size: int
    unit: Literal["bytes", "characters"] = "bytes"
    head: float = 0.6
    note: int = 330
    """What the marker gets of `size`."""

    @property
    def text(self) -> int:
        """What is left for the text itself."""
        return max(0, self.size - self.note)

    def measure(self, text: str) -> int:
        """Return how long `text` is, in this unit."""
        return len(text) if self.unit == "characters" else len(text.encode("utf-8", "replace"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What of a text is shown. `render` puts the marker in its place."""

    head: str
    tail: str
    missing: int
    """How much is not shown, in `unit`."""
    size: int
    unit: str = "bytes"
    parts: str = ""
    """The same in a larger measure, where there is one: `812 of 900 items`."""
    advice: str = ""
    """What to do besides reading on."""
    head_bytes: int
    """Where in the original the missing part begins."""
    template: str = ""
    """JSON with a place for the marker between head and tail; empty for plain text."""

    @property
    def shown(self) -> int:
        """How much of the text is shown, in `unit`, the marker left out."""
        return self.size - self.missing

    def render(self, go_on: str, marker: Marker = "toolcrib", ref: str = "") -> str:
        """Return the text to show; `go_on` says how to read the rest, `ref` names where the whole is kept."""
        note = self._note(go_on, marker, ref)
        if self.template:
            return self.template.replace(_PLACE, json.dumps(note, ensure_ascii=False)[1:-1], 1)
        return "\n".join([piece for piece in (self.head, note, self.tail) if piece])

    def _note(self, go_on: str, marker: Marker, ref: str) -> str:
        end = " ".join(part for part in (self.advice, go_on) if part)
        if marker == "elided":
            count = f"{self.missing} {self.unit} elided"
            return f"[... {f'{self.parts}, ' if self.parts else ''}{count} of {self.size}. {end}]"
        if marker == "compressed":
            count = f"{self.missing} of {self.size} {self.unit}"
            sign = f"[COMPRESSED:{ref}] " if ref else ""
            return f"{sign}{f'{self.parts}, ' if self.parts else ''}{count} left out here. {end}"
        count = f"{self.missing} of {self.size} {self.unit}"
        if self.unit == "bytes":
            tokens = f"about {_tokens(self.missing)} of {_tokens(self.size)} tokens, estimated as bytes / 4"
            count = f"({tokens})" if self.template else f"{count} ({tokens})"
        joint = " " if self.template else ", "
        return f"[toolcrib: {f'{self.parts}{joint}' if self.parts else ''}{count} left out here. {end}]"


_PLACE: Final = "\ufdd0toolcrib\ufdd0"
"""Noncharacters: they stand in no text."""


def cut_text(text: str, room: Room, size: int, *, tail: str | None = None) -> Cut:
    """Cut `text` to `room`. `size` is the whole's; `tail` its end, when `text` is only its beginning."""
    share = int(room.text * room.head)
    head = _head(text, share, room)
    end = _tail(text if tail is None else tail, room.text - share, room)
    missing = max(0, size - room.measure(head) - room.measure(end))
    lines = text.count("\n", len(head), len(text) - len(end)) if tail is None else 0
    return Cut(
        head=head,
        tail=end,
        missing=missing,
        size=size,
        unit=room.unit,
        parts=f"{lines} lines" if lines > 1 else "",
        head_bytes=len(head.encode("utf-8", "replace")),
    )


def cut_lines(text: str, room: Room, size: int, *, whole: bool = True) -> Cut | None:
    """Keep the whole first lines of `text` that fit and drop the others; None when not even the first one fits.

    For lists of hits, whose end is worth no more than their middle. `whole` is false when `text` is only the
    beginning of what `size` counts.
    """
    piece = _piece(text, room.text, room)
    border = piece.rfind("\n")
    if border < 0:
        return None
    head = piece[:border]
    dropped = text.count("\n", border) + (not text.endswith("\n")) - 1
    kept = head.count("\n") + 1
    return Cut(
        head=head,
        tail="",
        missing=max(0, size - room.measure(head)),
        size=size,
        unit=room.unit,
        parts=f"{dropped} of {kept + dropped} lines dropped" if whole else f"all but the first {kept} lines dropped",
        advice="Narrow it down: a longer pattern, a path.",
        head_bytes=len(head.encode("utf-8", "replace")),
    )


def cut_json(text: str, room: Room) -> Cut | None:
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
    head, tail = _choose(items, write, room)
    if not head and not tail:
        return None
    template = write([*items[:head], _PLACE, *items[len(items) - tail :]]).replace(json.dumps(_PLACE)[1:-1], _PLACE)
    before = template.split(_PLACE)[0]
    size = room.measure(text)
    return Cut(
        head="",
        tail="",
        missing=size - room.measure(template),
        size=size,
        unit=room.unit,
        parts=f"{len(items) - head - tail} of {len(items)} items",
        head_bytes=len(before.rstrip().removesuffix('"').rstrip().encode("utf-8", "replace")),
        template=template,
    )


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


def _choose(items: Sequence[Any], write: Callable[[Any], str], room: Room) -> tuple[int, int]:
    """How many items of the beginning and of the end fit."""
    share = int(room.text * room.head)
    head = _fitting(items, write, share, room)
    tail = _fitting(items[head:][::-1], write, room.text - share, room)
    return head, tail


def _fitting(items: Sequence[Any], write: Callable[[Any], str], left: int, room: Room) -> int:
    for count, item in enumerate(items):
        left -= room.measure(write([item]))
        if left < 0:
            return count
    return len(items)


def _head(text: str, size: int, room: Room) -> str:
    """The beginning that fits, up to the end of a line when that gives up less than half of it."""
    piece = _piece(text, size, room)
    for end in _LINE_ENDS if len(piece) < len(text) else ():
        border = piece.rfind(end)
        if border > len(piece) // 2:
            return piece[:border]
    return piece


def _tail(text: str, size: int, room: Room) -> str:
    """The end that fits, from the beginning of a line when that gives up less than half of it."""
    piece = text[-size:] if size else ""
    if room.unit == "bytes" and size:
        piece = piece.encode("utf-8", "replace")[-size:].decode("utf-8", "ignore")
    for end in _LINE_ENDS if len(piece) < len(text) else ():
        border = piece.find(end)
        if 0 <= border < len(piece) // 2:
            return piece[border + len(end) :]
    return piece


def _piece(text: str, size: int, room: Room) -> str:
    piece = text[:size]
    return piece if room.unit == "characters" else piece.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")


def _tokens(size: int) -> int:
    return -(-size // 4)
