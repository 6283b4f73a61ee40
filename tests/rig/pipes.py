"""Hear what another process says on its pipes, without waiting for ever and without losing any of it."""

from __future__ import annotations

import os
import select
import time
from typing import IO, Any

from rig.wait import PATIENCE

_CHUNK = 65536


class Hearing:
    """The reading end of one pipe. Nobody else may read from it.

    It reads the descriptor itself and keeps what came behind a line. Never wait with `select` for what a buffered
    reader reads: `readline` takes all that has arrived and gives one line of it, so when two messages arrive together
    the second lies in the reader's buffer and `select` waits for a third.
    """

    def __init__(self, pipe: IO[Any] | None) -> None:
        """Take over the reading of `pipe`, which a `Popen` made and closes."""
        assert pipe is not None, "the process was started without this pipe"
        self._descriptor = pipe.fileno()
        self._rest = b""

    def line(self, seconds: float = PATIENCE) -> bytes:
        """Return the next line with its end; what came without one at the end of the pipe; empty after that.

        Raises TimeoutError, with what was heard, when nothing comes for `seconds` in all.
        """
        heard = self._until(b"\n", seconds)
        line, end, self._rest = heard.partition(b"\n")
        return line + end

    def until(self, wanted: bytes, seconds: float = PATIENCE) -> bytes:
        """Return everything up to and with the piece that brought `wanted`.

        Raises TimeoutError after `seconds`, EOFError when the pipe ends without it, both with what was heard.
        """
        heard, self._rest = self._until(wanted, seconds), b""
        if wanted not in heard:
            raise EOFError(f"the pipe ended without {wanted!r} after {heard!r}")
        return heard

    def rest(self, seconds: float = PATIENCE) -> bytes:
        """Return everything to the end of the pipe. Raises TimeoutError when it has no end within `seconds`."""
        heard, deadline = self._rest, time.monotonic() + seconds
        while part := self._read(heard, deadline):
            heard += part
        self._rest = b""
        return heard

    def _until(self, wanted: bytes, seconds: float) -> bytes:
        heard, deadline = self._rest, time.monotonic() + seconds
        while wanted not in heard and (part := self._read(heard, deadline)):
            heard += part
        return heard

    def _read(self, heard: bytes, deadline: float) -> bytes:
        """Return what is there; `heard` is kept for the next try when nothing comes."""
        ready, _, _ = select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            self._rest = heard
            raise TimeoutError(f"nothing came any more after {heard!r}")
        return os.read(self._descriptor, _CHUNK)
