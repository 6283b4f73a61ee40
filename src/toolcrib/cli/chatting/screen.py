"""What a chat prints: lines that stay, and one region at the bottom that changes while something is on its way.

Text from outside is escaped before it gets here or by `plain`: nothing that a model, a tool or a server says moves the
cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text

from ..output import escape

__all__ = ["Screen", "Tail", "plain"]

_CODE_THEME: Final = "ansi_dark"
"""The terminal's own colours: readable on dark and on light."""


def plain(text: str, style: str = "") -> Text:
    """Return text from outside: no markup in it counts, and what is invisible stands there as an escape."""
    return Text(escape(text, lines=True), style=style)


class Tail:
    """A renderable cut to its last lines, so that a region never grows beyond the screen."""

    def __init__(self, inner: RenderableType, lines: int) -> None:
        """Show at most `lines` of `inner`."""
        self._inner = inner
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the end."""
        lines = console.render_lines(self._inner, options, pad=False)
        for line in lines[-self._lines :]:
            yield from line
            yield Segment.line()


class Screen:
    """One console. Belongs to one event loop; whoever prints while the region moves prints above it."""

    def __init__(self, console: Console) -> None:
        """Print on `console`."""
        self.console = console
        self._live: Live | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether somebody looks at it, and lines can be drawn anew."""
        return self.console.is_terminal and not self.console.is_dumb_terminal

    @property
    def height(self) -> int:
        """Lines that the region may have: half of the screen at most."""
        return max(4, self.console.size.height // 2)

    def say(self, *things: RenderableType, indent: int = 0) -> None:
        """Print what stays."""
        for thing in things:
            self.console.print(Padding(thing, (0, 0, 0, indent)) if indent else thing, soft_wrap=False)

    def note(self, text: str, style: str = "dim") -> None:
        """Print a line of ours beside the conversation."""
        self.say(plain(text, style))

    def fail(self, text: str, hint: str = "") -> None:
        """Print what did not work, and what to do next."""
        self.say(Text.assemble(("✗ ", "bold red"), plain(text)))
        if hint:
            self.say(plain(hint, "dim"), indent=2)

    def gap(self) -> None:
        """Print an empty line."""
        self.console.print()

    def markdown(self, text: str) -> RenderableType:
        """Return what a model wrote, as it looks."""
        return Markdown(escape(text, lines=True), code_theme=_CODE_THEME)

    @contextmanager
    def moving(self, draw: Callable[[], RenderableType]) -> Generator[None]:
        """Show what `draw` returns at the bottom until the block ends; `redraw` shows it anew. Nothing elsewhere."""
        if not self.is_terminal:
            yield
            return
        self._live = self._region(draw)
        self._live.start()
        try:
            yield
        finally:
            live, self._live = self._live, None
            live.stop()

    def redraw(self) -> None:
        """Show the region as it is now."""
        if self._live is not None and self._live.is_started:
            self._live.refresh()

    @contextmanager
    def still(self) -> Generator[None]:
        """Take the region away while somebody is asked."""
        live = self._live
        if live is None or not live.is_started:
            yield
            return
        live.stop()
        try:
            yield
        finally:
            if self._live is live:
                live.start()

    def _region(self, draw: Callable[[], RenderableType]) -> Live:
        return Live(
            get_renderable=draw,
            console=self.console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
