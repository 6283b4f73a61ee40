"""Text positions of the Language Server Protocol: line and character from 0, characters in UTF-16 units.

A character beyond the basic plane (an emoji) counts two there, and one here.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final

__all__ = ["Lines", "wide"]

_ENDS: Final = re.compile(r"\r\n|\n|\r")
_BASIC: Final = 0xFFFF


def wide(text: str) -> int:
    """Return how many UTF-16 units a text takes."""
    return len(text) + sum(ord(one) > _BASIC for one in text) if not text.isascii() else len(text)


class Lines:
    """A text with its line ends as they are. What lies beyond an end is taken for the end, as the protocol says."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0]
        self._stops: list[int] = []
        for end in _ENDS.finditer(text):
            self._stops.append(end.start())
            self._starts.append(end.end())
        self._stops.append(len(text))

    def __len__(self) -> int:
        return len(self._starts)

    def line(self, number: int) -> str:
        """Return a line, counted from 0, without its end; empty for one that there is not."""
        return self.text[self._starts[number] : self._stops[number]] if 0 <= number < len(self) else ""

    def start(self, number: int) -> int:
        """Return where a line begins."""
        return self._starts[number] if number < len(self) else len(self.text)

    def offset(self, line: int, character: int) -> int:
        """Return the place in the text of a line and a UTF-16 character."""
        if line >= len(self):
            return len(self.text)
        text = self.line(line)
        if text.isascii():
            return self._starts[line] + min(character, len(text))
        units = count = 0
        for one in text:
            units += 2 if ord(one) > _BASIC else 1
            if units > character:
                break
            count += 1
        return self._starts[line] + count

    def position(self, offset: int) -> dict[str, int]:
        """Return a place of the text as the protocol's position."""
        line = bisect_right(self._starts, offset) - 1
        end = min(offset, self._stops[line])
        return {"line": line, "character": wide(self.text[self._starts[line] : end])}

    def column(self, line: int, character: int) -> int:
        """Return the column, in characters from 1, of a UTF-16 character."""
        return self.offset(line, character) - self.start(line) + 1
