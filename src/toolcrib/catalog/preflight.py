"""Preflight of definitions: hidden characters, look-alike names, and instructions to the model.

Findings are about text that a person who reads the definition would not see or expect. They withhold a tool until it is
reviewed (`pins`); names that merely look alike are reported and withhold nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, cast

from ..core.events import Problem
from ..core.json import dumps
from ..core.patterns import regex
from ..core.sanitize import escape, is_hidden
from ..core.similar import fold
from ..core.tool import Tool

_LATIN_LOOK_ALIKES: Final = str.maketrans(
    "аеорсухіјѕԁһӏԛԝвнкмтΑΒΕΖΗΙΚΜΝΟΡΤΥΧАВЕКМНОРСТУХІЈЅοανρυιɡɑℓ",
    "aeopcyxijsdhlqwbhkmtABEZHIKMNOPTYXABEKMHOPCTYXIJSoavpuigal",
)
"""Cyrillic, Greek and other letters that look like a Latin one (a few of Unicode's confusables.txt)."""

_JOINER: Final = "\u200d"
_SPACES: Final = "\n\r\t"

_MAX_QUOTED_LENGTH: Final = 80
"""Characters of a text that a finding quotes."""
_MAX_TEXT_LENGTH: Final = 100_000
"""Characters of one text that are read; the sources cut longer ones before."""

_EARLIER: Final = r"(?:previous|prior|earlier|preceding|above|other|existing|system|your)"
_INSTRUCTIONS: Final = r"(?:instructions?|prompts?|rules|guidelines|directions|directives)"
_USING: Final = r"(?:using|calling|invoking|running)"
_SAME_SENTENCE: Final = r"[^.\n]{0,80}"
_SECRET_FILE: Final = r"(?:\.ssh/|id_rsa|id_ed25519|\.aws/credentials|\.cursor/mcp\.json|/etc/(?:passwd|shadow))"
_ORDERS: Final = tuple(
    regex(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?:ignore|disregard|forget|override|bypass)\s+(?:(?:all|any|the|of)\s+){{0,3}}{_EARLIER}\s+{_INSTRUCTIONS}\b",
        r"\b(?:do\s+not|don'?t|never)\s+(?:ever\s+)?(?:tell|inform|notify|alert|warn)\s+(?:this\s+to\s+)?the\s+(?:user|human)\b",
        r"\b(?:do\s+not|don'?t|never)\s+(?:mention|reveal|disclose)\s[^.\n]{0,60}\bto\s+the\s+(?:user|human)\b",
        r"\bwithout\s+(?:telling|informing|notifying|alerting|asking)\s+the\s+(?:user|human)\b",
        r"<\s*/?\s*(?:important|system|secret|hidden|critical)\s*>",
        rf"\b(?:before|prior\s+to|after)\s+{_USING}\s+(?:any|every|each)\s+(?:other\s+)?tools?\b{_SAME_SENTENCE}\b(?:must|always|first)\b",
        rf"\b(?:read|open|cat|send|upload|include)\b[^.\n]{{0,60}}{_SECRET_FILE}",
    )
)
"""Sentences that are addressed to the model and are about something else than the tool."""
_PERSON: Final = ("user", "human")
_WORDS_OF_ORDERS: Final = (
    ("ignore", "disregard", "forget", "override", "bypass"),
    *(_PERSON,) * 3,
    ("<",),
    ("tool",),
    (".ssh/", "id_rsa", "id_ed25519", ".aws/", ".cursor/", "/etc/"),
)
"""Words of which each order has at least one."""
_ESCAPES: Final = ("\\u", "\\b", "\\f")
"""JSON escapes of the invisible ASCII characters."""

_LOOK_ALIKE_SIGNS: Final = str.maketrans("01i\u0131|", "ollll")
_LOOK_ALIKE_PAIRS: Final = (("rn", "m"), ("vv", "w"))
_MAX_EDITS: Final = 2
"""Letters that may differ from one of our own names (security.md T3)."""
_MIN_LONG_NAME: Final = 8
"""Length from which a name that nearly equals another one looks deliberate."""
_PRODUCT: Final = "Toolcrib"
_MAX_CACHED_NAMES: Final = 16_384
"""Names whose looks are remembered: a catalog that changes has nearly the same ones."""


def findings(tool: Tool) -> tuple[str, ...]:
    """Return the findings of a definition, one sentence each, safe to print; none for an ordinary one.

    Ordinary definitions, nearly all, are known from one look at their JSON (`_is_ordinary`).
    """
    found = dict.fromkeys(_name_findings(tool.local_name))
    parts = {"title": tool.title, "description": tool.description, "inputSchema": tool.input_schema}
    parts = {**parts, "outputSchema": tool.output_schema, "_meta": tool.meta}
    if _is_ordinary(parts):
        return tuple(found)
    for place, text in _texts_with_places(parts, ""):
        found.update(dict.fromkeys(_text_findings(place, text[:_MAX_TEXT_LENGTH])))
    return tuple(found)


def _is_ordinary(parts: Mapping[str, Any]) -> bool:
    """Whether the texts of a definition have no finding, as far as that shows at once: 0.2 ms less for a tool."""
    try:
        written = dumps(parts).decode().lower()
    except (TypeError, ValueError, RecursionError):
        return False
    if not written.isascii() or any(map(written.__contains__, _ESCAPES)):
        return False
    orders = [
        order for order, words in zip(_ORDERS, _WORDS_OF_ORDERS, strict=True) if any(map(written.__contains__, words))
    ]
    if not orders:
        return True
    whole = "\n.\n".join(
        [text for _, text in _texts_with_places(parts, "")]
    )  # no order goes on behind a stop and a line
    return not any(order.search(whole) for order in orders)


def text_findings(place: str, text: str) -> tuple[str, ...]:
    """Return the findings of one text, such as a server's instructions; `place` names its location."""
    return tuple(_text_findings(place, text[:_MAX_TEXT_LENGTH]))


def _skeleton(name: str) -> str:
    """Return `name` as it looks in Latin letters, without invisible characters."""
    seen = "".join(char for char in unicodedata.normalize("NFKC", name) if not is_hidden(char))
    return seen.translate(_LATIN_LOOK_ALIKES)


def _name_findings(name: str) -> Iterator[str]:
    """A name entirely in letters of another script is ordinary; one that mixes them in looks deliberate."""
    if name.isascii() and name.isprintable():
        return
    looks = _skeleton(name)
    is_mixed = any(char.isascii() and char.isalpha() for char in name) or unicodedata.normalize("NFKC", name) != name
    if looks != name and looks.isascii() and is_mixed:
        yield f"its name only looks like {escape(looks)!r}: it is written {name!a}"


def _text_findings(place: str, text: str) -> Iterator[str]:
    hidden = {char for char in text if is_hidden(char) and char not in _SPACES} if not text.isascii() else set[str]()
    hidden |= {char for char in text if char < " " and char not in _SPACES}
    if _JOINER in hidden and _only_joins(text):
        hidden.discard(_JOINER)
    if hidden:
        shown = ", ".join(f"U+{ord(char):04X}" for char in sorted(hidden)[:5])
        yield f"{place} holds invisible characters: {shown}"
    seen = "".join(char for char in text if char in _SPACES or not is_hidden(char)) if hidden else text
    for pattern in _ORDERS:
        match = pattern.search(seen)
        if match is not None:
            yield f"{place} gives the model an order: {escape(match.group()[:_MAX_QUOTED_LENGTH])!r}"


def _only_joins(text: str) -> bool:
    """Whether every joiner stands between symbols or letters that it joins: in an emoji, or in an Indic word."""
    places = [place for place, char in enumerate(text) if char == _JOINER]
    return all(
        0 < place < len(text) - 1 and not text[place - 1].isascii() and not text[place + 1].isascii()
        for place in places
    )


def _texts_with_places(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield every text of JSON, keys too, with its position."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, Any]", value).items():
            here = f"{place}.{escape(key)}" if place else key
            yield here, key
            yield from _texts_with_places(inner, here)
    elif isinstance(value, list | tuple):
        for inner in cast("list[Any]", value):
            yield from _texts_with_places(inner, place)


@lru_cache(maxsize=_MAX_CACHED_NAMES)
def looks(name: str) -> str:
    """Return the visual skeleton of `name`: equal for names that look alike.

    Not for display: it exists to be compared.
    """
    plain = unicodedata.normalize("NFKD", _skeleton(name)) if not name.isascii() else name
    seen = "".join(char for char in plain if not unicodedata.combining(char)) if not plain.isascii() else plain
    seen = fold(seen).translate(_LOOK_ALIKE_SIGNS)
    for pair, one in _LOOK_ALIKE_PAIRS:
        seen = seen.replace(pair, one)
    return seen


def compared(tools: Iterable[Tool], own: Collection[str] = ()) -> Iterator[Problem | None]:
    """Yield for each tool a problem if it looks like an earlier one of another source, or like our `own`; else None.

    `tools` come in the order of their sources. Takes time by the number of tools, not by that of pairs: 12 us for a
    name, 1 us for one that was looked at before.

    A tool is compared with earlier ones of other sources only: within a source, similar names are its own affair.
    """
    seen: dict[str, list[Tool]] = {}
    flat: dict[str, Tool] = {}
    ours = frozenset(own)
    for tool in tools:
        look = looks(tool.local_name)
        same, whole = seen.setdefault(look, []), _whole_name_like(tool, flat)
        like = _own_name_like(tool.local_name, ours) or _other_name_like(tool, same) or whole
        yield _problem(tool, like) if like else None
        same.append(tool)


@lru_cache(maxsize=_MAX_CACHED_NAMES)
def _own_name_like(name: str, ours: frozenset[str]) -> str:
    folded = fold(name)
    if len(folded) < _MIN_LONG_NAME - _MAX_EDITS:
        return ""
    look = looks(name)
    for known, own, look_of_it in _name_forms(ours):
        if len(known) < _MIN_LONG_NAME or abs(len(known) - len(folded)) > _MAX_EDITS:
            continue
        if look == look_of_it or _edit_distance(folded, known) <= _max_edits(known):
            return f"{_PRODUCT}'s own {own}"
    return ""


@lru_cache(maxsize=8)
def _name_forms(names: frozenset[str]) -> tuple[tuple[str, str, str], ...]:
    return tuple((fold(name), name, looks(name)) for name in sorted(names))


def _other_name_like(tool: Tool, others: Iterable[Tool]) -> str:
    mine = fold(tool.local_name)
    for other in others:
        if other.source != tool.source and fold(other.local_name) != mine:
            return f"{other.local_name} of {other.source}"
    return ""


def _whole_name_like(tool: Tool, flat: dict[str, Tool]) -> str:
    other = flat.setdefault(fold(tool.name), tool)
    if other is tool or other.source == tool.source or other.name == tool.name:
        return ""
    return f"{other.name} of {other.source}"


def _max_edits(name: str) -> int:
    """Short names are near to many a word: `call_room` is no `call_tool`."""
    return _MAX_EDITS if len(name) >= _MIN_LONG_NAME + _MAX_EDITS else 1


def _edit_distance(one: str, other: str) -> int:
    """Return the number of inserted, deleted, changed or swapped letters; above `_MAX_EDITS` it is not exact."""
    if len(set(one) - set(other)) > _MAX_EDITS or len(set(other) - set(one)) > _MAX_EDITS:
        return _MAX_EDITS + 1  # one edit brings one new letter at most, and takes one away
    before: list[int] = []
    row = list(range(len(other) + 1))
    for place, char in enumerate(one):
        older, before, row = before, row, [place + 1]
        for at, wanted in enumerate(other):
            cost = min(row[at] + 1, before[at + 1] + 1, before[at] + (char != wanted))
            if older and at and char == other[at - 1] and one[place - 1] == wanted:
                cost = min(cost, older[at - 1] + 1)
            row.append(cost)
        if min(row) > _MAX_EDITS:
            return _MAX_EDITS + 1
    return row[-1]


def _problem(tool: Tool, like: str) -> Problem:
    return Problem(
        source=tool.source,
        tool=tool.local_name,
        code="look_alike",
        message=f"its name {escape(tool.local_name)} looks like {escape(like)}; it is offered all the same",
        hint=f"look at it with `toolcrib show {tool.name}`; rename it, or leave it out, if it is not what you want",
    )
