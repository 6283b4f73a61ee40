"""A terminal for programs that talk to a person: read what they show, type what the person would."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from rig.wait import PATIENCE

_pyte: Any = import_module("pyte")  # it has no types
_ROWS: Final = 50
_COLUMNS: Final = 160
_CHUNK: Final = 65536
_READING_SECONDS: Final = 1.0
"""What a person takes to read a question. Programs rely on it: they do not listen yet when they show one."""
_AGAIN_SECONDS: Final = 20.0
_COLOURS: Final = {
    b"\x1b]10;?": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
}
"""What programs ask a terminal about its colours, which the emulator does not know, and what one answers."""


class Screen:
    """What one program shows now, as its user sees it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._screen: Any = _pyte.Screen(_COLUMNS, _ROWS)
        self._screen.write_process_input = self._reply
        self._stream: Any = _pyte.ByteStream(self._screen)

    @property
    def text(self) -> str:
        """The lines that are not empty, with one space where there are several."""
        return "\n".join(" ".join(line.split()) for line in self._screen.display if line.strip())

    def until(self, words: str, seconds: float = PATIENCE) -> None:
        """Wait until `words` stand there. Raises TimeoutError, or EOFError when the program ends, with what does."""
        deadline = time.monotonic() + seconds
        while words not in self.text:
            if not self._read(deadline - time.monotonic()):
                raise EOFError(f"the program ended without {words!r}:\n{self.text}")

    def type(self, keys: str, then: str) -> None:
        """Type, and wait for what that brings, which must not stand there yet; again when nothing comes for long."""
        self._read_for(_READING_SECONDS)
        assert then not in self.text, f"{then!r} stands there already:\n{self.text}"
        for _ in range(int(PATIENCE / _AGAIN_SECONDS)):
            self._reply(keys)
            with suppress(TimeoutError):
                return self.until(then, _AGAIN_SECONDS)
        return self.until(then)

    def _read_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        with suppress(TimeoutError):
            while self._read(deadline - time.monotonic()):
                pass

    def _reply(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._descriptor], [], [], max(0.0, seconds))
        if not ready:
            raise TimeoutError(f"nothing more came:\n{self.text}")
        try:
            part = os.read(self._descriptor, _CHUNK)
        except OSError:  # Linux says so when nobody holds the other end any more
            return False
        for question, answer in _COLOURS.items():
            for _ in range(part.count(question)):
                os.write(self._descriptor, answer)
        self._stream.feed(part)
        return bool(part)


@contextmanager
def on_screen(command: Sequence[str | Path], *, env: Mapping[str, str], cwd: Path) -> Generator[Screen]:
    """Run `command` at a terminal of its own until the block ends, and kill it and its children then."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**env, "TERM": "xterm-256color"},
        cwd=cwd,
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    os.close(theirs)
    try:
        yield Screen(ours)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(ours)


def _take_terminal() -> None:
    """Make standard input the terminal that this session is controlled by, as a terminal emulator does."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
