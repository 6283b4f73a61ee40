"""What is known of an output that is kept, and how it is read: in pages, and by what stands in it."""

from __future__ import annotations

import base64
import mmap
import re
from dataclasses import dataclass
from typing import Final

from ..core.result import Trust

__all__ = ["URI_PREFIX", "Artifact", "Found", "Hit", "Page", "found_in", "page_of"]

URI_PREFIX: Final = "toolcrib://artifact/"
"""An artifact's URI is this and its id."""

_AROUND: Final = 120
"""Bytes before and behind what was found that a hit shows of a long line."""
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A stored output. `size` is in bytes, `created` in seconds since 1970."""

    id: str
    owner: str
    mime_type: str
    size: int
    created: float
    sha256: str = ""
    """Hexadecimal, over the bytes."""
    source: str = ""
    """The source of the tool that gave it."""
    trust: Trust = "local"

    @property
    def uri(self) -> str:
        """The name that MCP `resources/read` and `resource_link` use."""
        return URI_PREFIX + self.id

    @property
    def is_text(self) -> bool:
        """Whether a page is text as it is; other pages are base64."""
        return self.mime_type.startswith("text/") or self.mime_type in ("application/json", "application/xml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Part of an artifact. Offsets are bytes of the artifact; text is cut between characters."""

    id: str
    mime_type: str
    size: int
    offset: int
    next_offset: int | None
    """Where the next page begins; None after the last."""
    text: str
    """The text itself, or base64 when the artifact is no text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One place where a text was found."""

    line: int
    """Its number, from 1."""
    offset: int
    """Byte of the artifact at which `text` begins."""
    text: str
    """The line, or of a long line what stands around the place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search found: the first places, and how many there are."""

    hits: tuple[Hit, ...]
    total: int
    """Lines, or pieces of long lines, that hold the text."""


def found_in(pattern: re.Pattern[bytes], data: mmap.mmap, limit: int) -> Found:
    """Return the first `limit` places where `pattern` matches, one for each line or piece of a long line."""
    hits: list[Hit] = []
    total, line, counted, place = 0, 1, 0, 0
    while (match := pattern.search(data, place)) is not None:
        total += 1
        begin = max(data.rfind(b"\n", 0, match.start()) + 1, match.start() - _AROUND)
        end = data.find(b"\n", match.end(), match.end() + _AROUND)
        end = end if end >= 0 else min(len(data), match.end() + _AROUND)
        if len(hits) < limit:
            line += _lines(data, counted, match.start())
            counted = match.start()
            begin += _skip_continuation(data[begin : begin + 4])
            hits.append(Hit(line=line, offset=begin, text=data[begin:end].decode("utf-8", "ignore").rstrip("\r")))
        place = end
    return Found(hits=tuple(hits), total=total)


def _lines(data: mmap.mmap, start: int, end: int) -> int:
    return sum(data[place : min(end, place + _CHUNK)].count(b"\n") for place in range(start, end, _CHUNK))


def page_of(artifact: Artifact, start: int, raw: bytes, length: int) -> Page:
    """Return the page at byte `start` of at most `length` bytes; `raw` holds them and four more where there are."""
    piece = raw[:length]
    if artifact.is_text:
        begin = _skip_continuation(raw) if start else 0
        piece = raw[begin : _character_border(raw, max(length, begin + 1))]
        start += begin
        text = piece.decode("utf-8", "replace")
    else:
        text = base64.b64encode(piece).decode()
    after = start + len(piece)
    return Page(
        id=artifact.id,
        mime_type=artifact.mime_type,
        size=artifact.size,
        offset=start,
        next_offset=after if after < artifact.size and piece else None,
        text=text,
    )


def _skip_continuation(raw: bytes) -> int:
    """Bytes of a character that began before `raw`: at most three."""
    begin = 0
    while begin < min(3, len(raw)) and raw[begin] & 0xC0 == 0x80:
        begin += 1
    return begin


def _character_border(raw: bytes, end: int) -> int:
    """`end` moved back to the beginning of a character, or forward where that leaves nothing."""
    if end >= len(raw):
        return len(raw)
    back = end
    while back > 0 and raw[back] & 0xC0 == 0x80 and end - back < 4:
        back -= 1
    if back > 0:
        return back
    while end < len(raw) and raw[end] & 0xC0 == 0x80:
        end += 1
    return end
