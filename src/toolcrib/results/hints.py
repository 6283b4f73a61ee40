"""What a result says of its own shortening, and the short form of a list of hits.

A tool may put `_compression_hint` (seed 004) into its structured result: it is read here and taken out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from ..core.json import dumps, read_json
from ..core.result import ToolResult
from .cut import Cut, Room
from .fit import HINTS, Fit, Hint

__all__ = ["HINT_KEY", "cut_search", "is_list", "take_hint"]

HINT_KEY: Final = "_compression_hint"

_PARSED: Final = 8 * 1024 * 1024
"""Characters of text that is looked into."""


def take_hint(result: ToolResult) -> tuple[ToolResult, Hint | None]:
    """Return the result without the hint that its tool put into it, and the hint; an unknown one is dropped."""
    structured = result.structured_content
    if not isinstance(structured, dict) or HINT_KEY not in structured:
        return result, None
    given = cast("dict[str, Any]", structured)
    hint = given[HINT_KEY] if given[HINT_KEY] in HINTS else None
    rest = {key: value for key, value in given.items() if key != HINT_KEY}
    content = tuple(_without(block, given, rest) for block in result.content)
    return replace(result, content=content, structured_content=rest), hint


def is_list(result: ToolResult) -> bool:
    """Whether the result is a list: its structured content, or else its text, as JSON."""
    if result.structured_content is not None:
        return isinstance(result.structured_content, list)
    text = result.text
    if result.spill is not None or not text.lstrip().startswith("[") or len(text) > _PARSED:
        return False
    return isinstance(_parsed(text), list)


def cut_search(text: str, room: Room, fit: Fit) -> Cut | None:
    """Keep the first hits of a search, each text in them cut to a snippet; None where there are no hits to be seen."""
    value = _parsed(text) if len(text) <= _PARSED else None
    found = _hits(value)
    if found is None:
        return None
    key, hits = found
    shown = [_snipped(hit, fit.snippet) for hit in hits[: fit.items]]
    given = cast("dict[str, Any]", value) if key else {}
    rest = {name: _snipped(other, fit.snippet) for name, other in given.items() if name != key}
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


def _hits(value: Any) -> tuple[str, Sequence[Any]] | None:
    """Return the list that matters and the key it stands under: the value itself, or the longest list in it."""
    if isinstance(value, list):
        return "", cast("list[Any]", value)
    if not isinstance(value, dict):
        return None
    lists = [
        (key, cast("list[Any]", item)) for key, item in cast("dict[str, Any]", value).items() if isinstance(item, list)
    ]
    return max(lists, key=lambda entry: len(entry[1]), default=None)


def _snipped(value: Any, longest: int) -> Any:
    """Return `value` with every text in it at most `longest` characters."""
    if isinstance(value, str):
        return value if len(value) <= longest else f"{value[: longest - 1]}…"
    if isinstance(value, Mapping):
        return {key: _snipped(item, longest) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [_snipped(item, longest) for item in cast("list[Any]", value)]
    return value


def _without(block: Mapping[str, Any], given: Mapping[str, Any], rest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the block that repeats `given` as text with `rest` in its place; any other as it is."""
    text = block.get("text")
    if not isinstance(text, str) or HINT_KEY not in text or _parsed(text) != given:
        return block
    return {**block, "text": dumps(rest).decode()}


def _parsed(text: str) -> Any:
    try:
        return read_json(text, limit=len(text))
    except ValueError:
        return None
