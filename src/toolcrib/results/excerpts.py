"""Excerpts of long results: head and tail of a text, whole lines, items of a list, hits of a search.

Each `cut_…` returns a `Cut` or, where its form does not apply, None; `results.limit` then tries the next one, and
`cut_text` at last, which takes any text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, cast, get_args

from msgspec import Struct

from ..core.json import dumps, read_json, with_texts
from ..core.sanitize import clip

Marker = Literal["toolcrib", "elided", "compressed"]
Spared = Literal["errors", "lists"]

_MAX_JSON_BYTES: Final = 1024 * 1024
"""Longer JSON is cut as text: proving that it can be rebuilt byte for byte would take too long."""

_LINE_ENDS: Final = ("\n", "\\n")
"""Line ends at which a text may be cut; the second is a line end inside a JSON string."""

_MARKER_PLACE: Final = "\ufdd0toolcrib\ufdd0"
"""Noncharacters, which do not occur in text."""

MAX_PARSED_LENGTH: Final = 8 * 1024 * 1024
"""Characters of text that is looked into."""


class ExcerptStyle(Struct, frozen=True, kw_only=True):
    """The style of one profile."""

    tokens: int | None = None
    """Estimated tokens (UTF-8 bytes / 4) of one result; None leaves the session's limit."""
    characters: int | None = None
    """The same in characters; it overrides `tokens`."""
    head: float = 0.6
    """Share of the room that the beginning gets; the end gets the rest."""
    note: int = 330
    """Bytes or characters of the budget that the marker may take."""
    marker: Marker = "toolcrib"
    hints: bool = False
    spare: tuple[Spared, ...] = ()
    force: int = 500
    """Characters of a result whose hint is `force`."""
    items: int = 5
    """Items that `search` shows."""
    snippet: int = 200
    """Characters of each text that `search` shows."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> ExcerptStyle:
        """Build the limits from `given`, as it stands in a profile; raises `ValueError` with key and reason."""
        known = cls.__struct_fields__
        for key, value in given.items():
            if key not in known:
                raise ValueError(f"{key}: unknown key (known: {', '.join(known)})")
            _check(key, value)
        values: dict[str, Any] = {**given, **({"spare": tuple(given["spare"])} if "spare" in given else {})}
        made = cls(**values)
        for size in (made.characters, made.force if made.hints else None):
            if size is not None and size <= made.note:
                raise ValueError(f"note: {made.note} leaves nothing of {size} characters")
        return made

    @property
    def is_sized(self) -> bool:
        """Whether the profile has a budget of its own, which holds for every session."""
        return self.tokens is not None or self.characters is not None

    @property
    def least(self) -> float:
        """Bytes within which a result always fits."""
        least = math.inf if self.characters is None else self.characters
        if self.tokens is not None:
            least = min(least, self.tokens * 4)
        return min(least, self.force) if self.hints else least


DEFAULT_STYLE: Final = ExcerptStyle()


def _check(key: str, value: Any) -> None:
    if key == "hints":
        expected, is_right = "true or false", isinstance(value, bool)
    elif key == "head":
        expected, is_right = "a share from 0 to 1", _is_number(value) and 0 <= value <= 1
    elif key == "marker":
        expected, is_right = f"one of {', '.join(get_args(Marker))}", value in get_args(Marker)
    elif key == "spare":
        words = get_args(Spared)
        expected = f"a list of {', '.join(words)}"
        is_right = isinstance(value, list) and all(word in words for word in cast("list[Any]", value))
    else:
        expected, is_right = "a number above 0", _is_number(value) and isinstance(value, int) and value > 0
    if not is_right:
        raise ValueError(f"{key}: takes {expected}, not {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class TextBudget(Struct, frozen=True, kw_only=True):
    """Room for the shown text, marker included, and its division.

    `size` is what the shown text may take with its marker, `note` the part of it that is kept for the marker.
    """

    size: int
    unit: Literal["bytes", "characters"] = "bytes"
    head: float = 0.6
    note: int = 330
    """Bytes of `size` reserved for the marker."""

    @property
    def text(self) -> int:
        """Bytes left for the text itself."""
        return max(0, self.size - self.note)

    def measure(self, text: str) -> int:
        """Return the length of `text`, in this unit."""
        return len(text) if self.unit == "characters" else len(text.encode("utf-8", "replace"))


class Cut(Struct, frozen=True, kw_only=True):
    """Shown part of a text. `render` puts the marker in its place.

    Made without the marker, because the artifact that the marker names is stored only when something was cut.
    """

    head: str
    tail: str
    missing: int
    """Size of the omitted part, in `unit`."""
    size: int
    unit: str = "bytes"
    parts: str = ""
    """The same in a larger measure, if it applies: `812 of 900 items`."""
    advice: str = ""
    """Advice besides reading on."""
    head_bytes: int
    """Offset in the original at which the omitted part begins."""
    template: str = ""
    """JSON with a place for the marker between head and tail; empty for plain text."""

    @property
    def shown(self) -> int:
        """Size of the shown text, in `unit`, without the marker."""
        return self.size - self.missing

    def render(self, go_on: str, marker: Marker = "toolcrib", ref: str = "") -> str:
        """Return the text to show; `go_on` explains how to read the rest, `ref` names the stored whole."""
        note = self._note(go_on, marker, ref)
        if self.template:
            return self.template.replace(_MARKER_PLACE, json.dumps(note, ensure_ascii=False)[1:-1], 1)
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
            missing, size = _estimate_tokens(self.missing), _estimate_tokens(self.size)
            tokens = f"about {missing} of {size} tokens, estimated as bytes / 4"
            count = f"({tokens})" if self.template else f"{count} ({tokens})"
        joint = " " if self.template else ", "
        return f"[toolcrib: {f'{self.parts}{joint}' if self.parts else ''}{count} left out here. {end}]"


def cut_text(text: str, room: TextBudget, size: int, *, tail: str | None = None) -> Cut:
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


def cut_lines(text: str, room: TextBudget, size: int, *, whole: bool = True) -> Cut | None:
    """Keep the whole first lines of `text` that fit and drop the others; None when not even the first one fits.

    For lists of hits, whose end is worth no more than their middle. `whole` is false when `text` is only the
    beginning of what `size` counts.
    """
    piece = _beginning(text, room.text, room)
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


def cut_json(text: str, room: TextBudget) -> Cut | None:
    """Cut a JSON array between its items, so that it stays JSON; None for anything but an array that can be rebuilt.

    The marker takes the place of the items left out, as a string, so that the text is still a JSON list.
    """
    if not text.lstrip().startswith("[") or len(text) > _MAX_JSON_BYTES:
        return None
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        return None
    write = _json_writer(items, text)
    if write is None or len(items) < 3:
        return None
    head, tail = _count_ends(items, write, room)
    if not head and not tail:
        return None
    template = write([*items[:head], _MARKER_PLACE, *items[len(items) - tail :]]).replace(
        json.dumps(_MARKER_PLACE)[1:-1], _MARKER_PLACE
    )
    before = template.split(_MARKER_PLACE)[0]
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


def _json_writer(value: Any, text: str) -> Callable[[Any], str] | None:
    """The JSON writer that gives exactly `text` for `value`; None without one.

    JSON is cut between items only where writing the parsed list again gives the same bytes: then offsets are true.
    """
    if not isinstance(value, list):
        return None
    body = text.strip()
    indent = len(body) - len(body[1:].lstrip(" \n")) - 2 if body.startswith("[\n") else None
    compact = indent is None and ": " not in body[:2000] and ", " not in body[:2000]
    separators = (",", ":") if compact else None
    write = partial(json.dumps, ensure_ascii=text.isascii(), indent=indent, separators=separators)
    return write if write(cast("list[Any]", value)) == body else None


def _count_ends(items: Sequence[Any], write: Callable[[Any], str], room: TextBudget) -> tuple[int, int]:
    """Numbers of items from the beginning and from the end that fit."""
    share = int(room.text * room.head)
    head = _count_fitting(items, write, share, room)
    tail = _count_fitting(items[head:][::-1], write, room.text - share, room)
    return head, tail


def _count_fitting(items: Sequence[Any], write: Callable[[Any], str], left: int, room: TextBudget) -> int:
    """Return how many of the first items fit, by the length of each as a list of its own, which is never too short."""
    for count, item in enumerate(items):
        left -= room.measure(write([item]))
        if left < 0:
            return count
    return len(items)


def _head(text: str, size: int, room: TextBudget) -> str:
    """The beginning that fits, up to the end of a line when that costs less than half of it."""
    piece = _beginning(text, size, room)
    for end in _LINE_ENDS if len(piece) < len(text) else ():
        border = piece.rfind(end)
        if border > len(piece) // 2:
            return piece[:border]
    return piece


def _tail(text: str, size: int, room: TextBudget) -> str:
    """The end that fits, from the beginning of a line when that costs less than half of it."""
    piece = text[-size:] if size else ""
    if room.unit == "bytes" and size:
        piece = piece.encode("utf-8", "replace")[-size:].decode("utf-8", "ignore")
    for end in _LINE_ENDS if len(piece) < len(text) else ():
        border = piece.find(end)
        if 0 <= border < len(piece) // 2:
            return piece[border + len(end) :]
    return piece


def _beginning(text: str, size: int, room: TextBudget) -> str:
    """Return the beginning of a text; a character that would be cut in two is left out."""
    piece = text[:size]
    return piece if room.unit == "characters" else piece.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")


def _estimate_tokens(size: int) -> int:
    return -(-size // 4)


def cut_search(text: str, room: TextBudget, fit: ExcerptStyle) -> Cut | None:
    """Keep the first hits of a search, each text in them cut to a snippet; None for a text without hits."""
    value = parse_or_none(text) if len(text) <= MAX_PARSED_LENGTH else None
    found = _main_list(value)
    if found is None:
        return None
    key, hits = found

    def snip(text: str) -> str:
        return clip(text, fit.snippet)

    shown = [with_texts(hit, snip) for hit in hits[: fit.items]]
    given = cast("dict[str, Any]", value) if key else {}
    rest = {name: with_texts(other, snip) for name, other in given.items() if name != key}
    body = dumps({**rest, key: shown} if key else shown).decode()
    if room.measure(body) + room.note >= room.measure(text):
        return None
    return Cut(
        head=body,
        tail="",
        missing=max(0, room.measure(text) - room.measure(body)),
        size=room.measure(text),
        unit=room.unit,
        parts=f"{max(0, len(hits) - fit.items)} of {len(hits)} items",
        head_bytes=0,
    )


def _main_list(value: Any) -> tuple[str, Sequence[Any]] | None:
    """Return the main list of a result and its key: the value itself, or the longest list in it."""
    if isinstance(value, list):
        return "", cast("list[Any]", value)
    if not isinstance(value, dict):
        return None
    lists = [
        (key, cast("list[Any]", item)) for key, item in cast("dict[str, Any]", value).items() if isinstance(item, list)
    ]
    return max(lists, key=lambda entry: len(entry[1]), default=None)


def parse_or_none(text: str) -> Any:
    """Return the JSON value of a text; None for a text that is not JSON."""
    try:
        return read_json(text, limit=len(text))
    except ValueError:
        return None
