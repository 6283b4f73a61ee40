"""What a definition gives cause to look at before anybody accepts it: hidden characters, look-alikes, orders.

A description is for a model to know what a tool does. One that tells the model what else to do, or holds what a reader
does not see, is held for a person, whoever accepts new tools unseen (security.md T1, T3). Pure. It finds the blunt
attacks only: a definition without a finding was not proven harmless, and a pin is what holds it to what it was.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from ..core.hidden import escape, is_hidden
from ..core.tool import Tool

__all__ = ["findings", "skeleton", "text_findings"]

_LOOKS_LIKE: Final = str.maketrans(
    "аеорсухіјѕԁһӏԛԝвнкмтΑΒΕΖΗΙΚΜΝΟΡΤΥΧАВЕКМНОРСТУХІЈЅοανρυιɡɑℓ",
    "aeopcyxijsdhlqwbhkmtABEZHIKMNOPTYXABEKMHOPCTYXIJSoavpuigal",
)
"""Cyrillic, Greek and other letters that look like a Latin one (a few of Unicode's confusables.txt)."""

_JOINER: Final = "\u200d"
_SPACES: Final = "\n\r\t"

_SHOWN: Final = 80
"""Characters of a text that a finding quotes."""
_LONGEST: Final = 100_000
"""Characters of one text that are read; what is longer is cut by the sources long before."""

_EARLIER: Final = r"(?:previous|prior|earlier|preceding|above|other|existing|system|your)"
_SAID: Final = r"(?:instructions?|prompts?|rules|guidelines|directions|directives)"
_USING: Final = r"(?:using|calling|invoking|running)"
_NEAR: Final = r"[^.\n]{0,80}"
_SECRET: Final = r"(?:\.ssh/|id_rsa|id_ed25519|\.aws/credentials|\.cursor/mcp\.json|/etc/(?:passwd|shadow))"
_ORDERS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?:ignore|disregard|forget|override|bypass)\s+(?:(?:all|any|the|of)\s+){{0,3}}{_EARLIER}\s+{_SAID}\b",
        r"\b(?:do\s+not|don'?t|never)\s+(?:ever\s+)?(?:tell|inform|notify|alert|warn)\s+(?:this\s+to\s+)?the\s+(?:user|human)\b",
        r"\b(?:do\s+not|don'?t|never)\s+(?:mention|reveal|disclose)\s[^.\n]{0,60}\bto\s+the\s+(?:user|human)\b",
        r"\bwithout\s+(?:telling|informing|notifying|alerting|asking)\s+the\s+(?:user|human)\b",
        r"<\s*/?\s*(?:important|system|secret|hidden|critical)\s*>",
        rf"\b(?:before|prior\s+to|after)\s+{_USING}\s+(?:any|every|each)\s+(?:other\s+)?tools?\b{_NEAR}\b(?:must|always|first)\b",
        rf"\b(?:read|open|cat|send|upload|include)\b[^.\n]{{0,60}}{_SECRET}",
    )
)
"""Sentences that are addressed to the model and are about something else than the tool."""


def findings(tool: Tool) -> tuple[str, ...]:
    """Return what there is to look at, one sentence each, safe to print; none for an ordinary definition."""
    found = dict.fromkeys(_of_name(tool.local_name))
    said = {"title": tool.title, "description": tool.description, "inputSchema": tool.input_schema}
    for place, text in _texts({**said, "outputSchema": tool.output_schema, "_meta": tool.meta}, ""):
        found.update(dict.fromkeys(_of_text(place, text[:_LONGEST])))
    return tuple(found)


def text_findings(place: str, text: str) -> tuple[str, ...]:
    """Return what there is to look at in one text, such as a server's instructions; `place` says where it stands."""
    return tuple(_of_text(place, text[:_LONGEST]))


def skeleton(name: str) -> str:
    """Return what `name` looks like in Latin letters, without what is invisible."""
    seen = "".join(char for char in unicodedata.normalize("NFKC", name) if not is_hidden(char))
    return seen.translate(_LOOKS_LIKE)


def _of_name(name: str) -> Iterator[str]:
    """A word all in letters of another script is a name like any; one that mixes them in is no accident."""
    looks = skeleton(name)
    is_mixed = any(char.isascii() and char.isalpha() for char in name) or unicodedata.normalize("NFKC", name) != name
    if looks != name and looks.isascii() and is_mixed:
        yield f"its name only looks like {escape(looks)!r}: it is written {name!a}"


def _of_text(place: str, text: str) -> Iterator[str]:
    hidden = {char for char in text if is_hidden(char) and char not in _SPACES} if not text.isascii() else set[str]()
    hidden |= {char for char in text if char < " " and char not in _SPACES}
    if _JOINER in hidden and _only_joins(text):
        hidden.discard(_JOINER)
    if hidden:
        shown = ", ".join(f"U+{ord(char):04X}" for char in sorted(hidden)[:5])
        yield f"{place} holds characters that nobody sees: {shown}"
    seen = "".join(char for char in text if char in _SPACES or not is_hidden(char)) if hidden else text
    for pattern in _ORDERS:
        match = pattern.search(seen)
        if match is not None:
            yield f"{place} gives the model an order: {escape(match.group()[:_SHOWN])!r}"


def _only_joins(text: str) -> bool:
    """Whether every joiner stands between symbols or letters that it joins: in an emoji, or in an Indic word."""
    places = [place for place, char in enumerate(text) if char == _JOINER]
    return all(
        0 < place < len(text) - 1 and not text[place - 1].isascii() and not text[place + 1].isascii()
        for place in places
    )


def _texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield every text of JSON, keys too, with the place where it stands."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, Any]", value).items():
            here = f"{place}.{escape(key)}" if place else key
            yield here, key
            yield from _texts(inner, here)
    elif isinstance(value, list | tuple):
        for inner in cast("list[Any]", value):
            yield from _texts(inner, place)
