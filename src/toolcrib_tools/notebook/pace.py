"""Startup code of a Python kernel that paces prints to the reader's speed and drops printed text.

A kernel keeps what it prints until it is sent, what is sent until it is read, and all of it again for an export that
is never made here; all in memory, so that a loop that prints would end it within seconds.
"""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any, Final

_PIECE: Final = 512 * 1024
"""Characters that are printed before they are sent."""
_SECONDS: Final = 0.025
"""Minimum seconds of a print: 20 million characters a second, a tenth of one core's rate."""


def pace(kind: Any) -> None:
    """Make the streams of a class wait until what they were given is sent, and take the time that readers need."""
    write, flush = kind.write, kind.flush
    sent: dict[int, tuple[int, float]] = {}
    """Characters since the last pause, and when it ended, by stream."""

    def paced(stream: Any, text: str) -> int:
        for start in range(0, len(text), _PIECE):
            write(stream, text[start : start + _PIECE])
            count, since = sent.get(id(stream), (0, time.monotonic()))
            count += len(text[start : start + _PIECE])
            if count >= _PIECE:
                flush(stream)
                time.sleep(max(0.0, since + _SECONDS - time.monotonic()))
                count, since = 0, time.monotonic()
            sent[id(stream)] = count, since
        return len(text)

    kind.write = paced


def install(shell: Any) -> None:
    """Install pacing in a kernel from its next cell on: around the current one IPython has its own `write`."""

    def keep_nothing(channel: str) -> AbstractContextManager[None]:
        return nullcontext()

    def settle() -> None:
        for stream in (sys.stdout, sys.stderr):
            vars(stream).pop("write", None)
        shell.events.unregister("pre_execute", settle)

    pace(type(sys.stdout))
    shell._tee = keep_nothing
    shell.events.register("pre_execute", settle)


if __name__ == "__main__":
    # By name: IPython belongs to the kernel that runs this file, not to this installation.
    install(import_module("IPython").get_ipython())
