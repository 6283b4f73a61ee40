"""Where a chat gets its input from: what every keyboard can do, and the one that needs nothing installed.

`toolcrib_agent.chat.prompt_input.PromptInput` is the other one: keys, history, completion, several lines.
"""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Final, Protocol, TextIO

import anyio

__all__ = ["Keyboard", "Plain", "Pressed", "discard_typed", "typing_ahead"]

Pressed = Callable[[str], None]
"""Receives a key while no question is open: `c-c`, `escape`, `s-tab`, `enter`, `backspace`, or what was typed."""

_BLOCK: Final = 65536
_INPUT: Final = 0
_LOCAL: Final = 3
_CHARACTERS: Final = 6
"""Places of the flags in what `termios.tcgetattr` returns."""


class Keyboard(Protocol):
    """Reader of typed input. Both methods raise `EOFError` at the end, `KeyboardInterrupt` for Ctrl-C."""

    @property
    def has_keys(self) -> bool:
        """Whether keys such as Shift-Tab reach anybody."""
        ...

    async def command(self, default: str = "") -> str:
        """Return the next input of the chat; `default` is its initial text."""
        ...

    async def answer(self, prompt: str, *, default: str = "", keys: Mapping[str, str] | None = None) -> str:
        """Return the answer to a question. Keys that were typed before `prompt` is shown are no part of it.

        With `keys` one of them is enough, and its value is what is returned; anything else is returned as it is typed.
        """
        ...

    def watching(self, pressed: Pressed) -> AbstractContextManager[None]:
        """Tell `pressed` of keys until the block ends, where that is possible."""
        ...


@contextmanager
def typing_ahead(source: TextIO | None = None) -> Generator[None]:
    """Keep what is typed while no prompt is there as it is typed, and unseen, until the block ends. Interrupts work.

    A terminal as it comes shows it, swallows Ctrl-D, and makes Enter a line feed: to `PromptInput` that is a new line.
    """
    descriptor = (source or sys.stdin).fileno()
    before = termios.tcgetattr(descriptor)
    now = termios.tcgetattr(descriptor)
    now[_INPUT] &= ~termios.ICRNL
    now[_LOCAL] &= ~(termios.ECHO | termios.ICANON)
    now[_CHARACTERS][termios.VMIN], now[_CHARACTERS][termios.VTIME] = 1, 0
    termios.tcsetattr(descriptor, termios.TCSANOW, now)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def discard_typed(descriptor: int) -> None:
    """Empty the input queue of a terminal. What is not a terminal, such as a pipe with a script, keeps its input."""
    with suppress(termios.error):
        termios.tcflush(descriptor, termios.TCIFLUSH)


class Plain:
    """Lines from standard input, as the terminal edits them. Commands may be typed ahead, answers may not.

    No thread waits for a line: one that never comes would keep the process from ending.
    """

    def __init__(self, prompt: Callable[[], str], source: TextIO | None = None, target: TextIO | None = None) -> None:
        """`prompt` says what stands before a command."""
        self._prompt = prompt
        self._source = source or sys.stdin
        self._target = target or sys.stdout
        self._typed = bytearray()
        self._echoes = not self._source.isatty()
        """What comes out of a pipe is shown, so that the whole reads like a conversation."""

    @property
    def has_keys(self) -> bool:
        """Only whole lines do."""
        return False

    async def command(self, default: str = "") -> str:
        """Return the next line; one that ends in a backslash goes on with the next."""
        lines: list[str] = []
        while True:
            line = await self._line(f"{self._prompt()}> " if not lines else ". ", default if not lines else "")
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line[:-1])

    async def answer(self, prompt: str, *, default: str = "", keys: Mapping[str, str] | None = None) -> str:
        """Return the next line, or what the key that it consists of stands for.

        A terminal's input queue is emptied first; the lines of a pipe are a script and stay.
        """
        if self._source.isatty():
            self._typed.clear()
            discard_typed(self._source.fileno())
        line = (await self._line(f"{prompt} ", default)).strip()
        return (keys or {}).get(line.lower(), line)

    def watching(self, pressed: Pressed) -> AbstractContextManager[None]:
        """Keys are not reported before the end of their line; Ctrl-C comes as a signal."""
        return nullcontext()

    async def _line(self, prompt: str, default: str) -> str:
        self._target.write(prompt + (f"[{default}] " if default else ""))
        self._target.flush()
        while b"\n" not in self._typed:
            piece = await self._piece()
            if not piece and not self._typed:
                self._target.write("\n")
                raise EOFError
            if not piece:
                break
            self._typed.extend(piece)
        line, _, rest = bytes(self._typed).partition(b"\n")
        self._typed[:] = rest
        text = line.decode(errors="replace").rstrip("\r") or default
        if self._echoes:
            self._target.write(f"{text}\n")
            self._target.flush()
        return text

    async def _piece(self) -> bytes:
        try:
            await anyio.wait_readable(self._source)
        except PermissionError:  # a file, or /dev/null, always has something to say
            await anyio.lowlevel.checkpoint()
        return os.read(self._source.fileno(), _BLOCK)
