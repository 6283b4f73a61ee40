"""Keyboard of a chat without keys of its own: lines, as the terminal edits them.

`prompt_input.PromptInput` is the other one: history, completion, several lines.
"""

from __future__ import annotations

import sys
import termios
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, Protocol, TextIO

from toolcrib.cli.prompts import LineReader

Pressed = Callable[[str], None]
"""Receives a key while no question is open: `c-c`, `escape`, `s-tab`, `enter`, `backspace`, or what was typed."""

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
        """Return the answer to a question. Keys that were typed before `prompt` is shown are not part of it.

        With `keys` one of them is enough, and its value is what is returned; anything else is returned as it is typed.
        """
        ...

    def watching(self, pressed: Pressed) -> AbstractContextManager[None]:
        """Pass keys to `pressed` until the block ends, if possible."""
        ...


@contextmanager
def typing_ahead() -> Generator[None]:
    """Keep what is typed while no prompt is there as it is typed, and unseen, until the block ends. Interrupts work.

    A terminal as it comes shows it, swallows Ctrl-D, and makes Enter a line feed: to `PromptInput` that is a new line.
    """
    descriptor = sys.stdin.fileno()
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


class Plain(LineReader):
    """Lines from standard input. Commands may be typed ahead, answers may not."""

    def __init__(self, prompt: Callable[[], str], source: TextIO | None = None, target: TextIO | None = None) -> None:
        """`prompt` returns the text before a command."""
        super().__init__(source, target)
        self._prompt = prompt

    @property
    def has_keys(self) -> bool:
        """Only whole lines do."""
        return False

    async def command(self, default: str = "") -> str:
        """Return the next line; one that ends in a backslash goes on with the next."""
        lines: list[str] = []
        while True:
            line = await self.read_line(f"{self._prompt()}> " if not lines else ". ", default if not lines else "")
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line[:-1])

    def watching(self, pressed: Pressed) -> AbstractContextManager[None]:
        """Keys are not reported before the end of their line; Ctrl-C comes as a signal."""
        return nullcontext()
