"""Numbered lines as one page: as many whole lines as fit, and the start of the next page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Page", "fit_lines", "line_count", "page_of", "room_of", "shortened"]

_LEAST: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some lines of a text."""

    text: str
    first: int = 0
    """Number of the first line; 0 for a page without lines."""
    last: int = 0
    next: int = 0
    """Number of the line that the next page begins with; 0 where there is none."""
    cut: tuple[int, int] | None = None
    """A line that is longer than a page: its number and its characters. It is shown from its beginning."""


def line_count(content: bytes) -> int:
    """Return how many lines there are; the last one needs no line end."""
    return content.count(b"\n") + (not content.endswith(b"\n") and bool(content))


def room_of(result_bytes: int, note: int) -> int:
    """Return the bytes for lines in a result that also has a note; never less than a few lines."""
    return max(result_bytes - note, _LEAST)


def page_of(lines: Iterable[tuple[int, str, int]], *, limit: int, room: int, numbers: bool) -> Page:
    """Return at most `limit` lines that take at most `room` bytes of UTF-8.

    Each has its number, its text and its characters; the text of one that is longer than `room` may be its beginning.
    """
    shown: list[str] = []
    first = last = 0
    for number, line, characters in lines:
        if len(shown) == limit:
            return Page(text="\n".join(shown), first=first, last=last, next=number)
        text = f"{number}\t{line}" if numbers else line
        size = len(text.encode("utf-8", "replace")) + 1
        if size > room:
            if shown:
                return Page(text="\n".join(shown), first=first, last=last, next=number)
            cut = (number, characters)
            return Page(text=shortened(text, room), first=number, last=number, next=number + 1, cut=cut)
        room -= size
        shown.append(text)
        first, last = first or number, number
    return Page(text="\n".join(shown), first=first, last=last)


def shortened(text: str, room: int) -> str:
    """Return the beginning of a text that takes at most `room` bytes of UTF-8."""
    return text[:room].encode("utf-8", "replace")[:room].decode("utf-8", "ignore")


def fit_lines(lines: Sequence[str], room: int, notes: Sequence[str], *, hint: str) -> str:
    """Return the first lines that take at most `room` bytes, and the notes as a last line in brackets.

    `hint` follows the notes; it may be empty.
    """
    size = count = 0
    for line in lines:
        size += len(line.encode("utf-8", "replace")) + 1
        if size > room:
            break
        count += 1
    notes_shown = list(notes)
    if count < len(lines):
        notes_shown.append(f"{len(lines) - count} more lines left out")
    if notes_shown and hint:
        notes_shown.append(hint)
    return "\n".join([*lines[:count], *([f"[{'; '.join(notes_shown)}]"] if notes_shown else [])])
