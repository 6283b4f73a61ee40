"""Standard error of a server: the end is kept, a little is logged, the rest is counted. It never blocks."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import Final

__all__ = ["Stderr"]

_LINES_PER_SECOND: Final = 20
_LINE_CHARACTERS: Final = 500


class Stderr:
    """The end of one stream, in memory. Lives as long as its link, which gives the last words of a dead server."""

    def __init__(self, server: str, limit: int) -> None:
        """`limit` is in bytes."""
        self._log = logging.getLogger(f"toolcrib.server.{server}")
        self._limit = limit
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._second = 0
        self._said = 0
        self.suppressed = 0
        """Lines that were not logged."""

    def feed(self, data: bytes) -> None:
        """Take a chunk in."""
        self._chunks.append(data)
        self._size += len(data)
        while self._size > self._limit and len(self._chunks) > 1:
            self._size -= len(self._chunks.popleft())
        self._tell(data)

    def tail(self) -> str:
        """The last of it, at most the limit."""
        return b"".join(self._chunks)[-self._limit :].decode("utf-8", "replace")

    def last_line(self) -> str:
        """The last line that says something, cut to a readable length."""
        lines = [line for line in self.tail()[-4096:].splitlines() if line.strip()]
        return _shown(lines[-1]) if lines else ""

    def _tell(self, data: bytes) -> None:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._said = second, 0
        room = _LINES_PER_SECOND - self._said
        if room <= 0 or not self._log.isEnabledFor(logging.DEBUG):
            self.suppressed += data.count(b"\n")
            return
        *lines, rest = data.split(b"\n", room)
        self.suppressed += rest.count(b"\n")
        self._said += len(lines)
        for line in lines:
            self._log.debug("%s", _shown(line[: _LINE_CHARACTERS * 4].decode("utf-8", "replace")))


def _shown(line: str) -> str:
    """Make a line of a stranger safe for a log and a terminal."""
    cut = line if len(line) <= _LINE_CHARACTERS else line[:_LINE_CHARACTERS] + "…"
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in cut)
