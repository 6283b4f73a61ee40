"""What a process says: decoded piece by piece, and kept as far as there is room."""

from __future__ import annotations

import codecs
import re
from collections import deque
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Captured", "plain"]

_ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])"
)
"""Escape sequences of terminals (ECMA-48): colours, cursor, titles."""


@dataclass(slots=True)
class Captured:
    """One stream: its first half and its last half, and how much is missing between them."""

    most: int
    """Characters that are kept."""
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"), repr=False
    )
    _head: list[str] = field(default_factory=list[str])
    _tail: deque[str] = field(default_factory=deque[str])
    _held: int = 0
    _held_in_tail: int = 0
    _lost: int = 0

    def add(self, piece: bytes) -> str:
        """Keep a piece; return what is new as text. Half a character waits for the other half."""
        text = self._decoder.decode(piece)
        room = self.most // 2 - self._held
        if room > 0:
            self._head.append(text[:room])
            self._held += len(text[:room])
        if rest := text[max(room, 0) :]:
            self._tail.append(rest)
            self._held_in_tail += len(rest)
        while self._held_in_tail > self.most // 2:
            gone = self._held_in_tail - self.most // 2
            first = self._tail.popleft()
            if len(first) > gone:
                self._tail.appendleft(first[gone:])
            self._lost += min(gone, len(first))
            self._held_in_tail -= min(gone, len(first))
        return text

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to take."""
        return self._held > 0

    def take(self) -> str:
        """Return what was kept since the last time, and forget it."""
        missing = f"\n[… {self._lost} characters left out …]\n" if self._lost else ""
        text = "".join((*self._head, missing, *self._tail))
        self._head.clear()
        self._tail.clear()
        self._held = self._held_in_tail = self._lost = 0
        return text


def plain(text: str) -> str:
    """Return what a terminal would show of a text, line by line: no colours, and only the last of overwritten lines."""
    lines = _ESCAPES.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
