"""Terminal output of a chat: permanent lines, and one live region at the bottom.

Text from outside is escaped before it gets here or by `plain`: nothing that a model, a tool or a server says moves the
cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import ClassVar, Final, TextIO

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.segment import Segment
from rich.text import Text
from rich.theme import Theme

from toolcrib.plugin import escape

_THEME: Final = Theme({"markdown.code": "cyan", "markdown.code_block": "", "markdown.h1": "bold underline"})
_CODE_THEME: Final = "ansi_dark"
"""The terminal's own colours: readable on dark and on light."""


def console_for(stream: TextIO | None = None, *, width: int | None = None) -> Console:
    """Return a console on `stream`, standard output unless another is given; only what we style has a style."""
    return Console(file=stream, width=width, highlight=False, theme=_THEME)


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


class Trimmed:
    """Renderable without blank lines and trailing blanks, indented."""

    def __init__(self, inner: RenderableType, *, indent: int = 0) -> None:
        """Set `inner` in by `indent` characters."""
        self._inner = inner
        self._indent = indent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render what is not empty."""
        inside = options.update_width(max(1, options.max_width - self._indent))
        lines = [_without_end(line) for line in console.render_lines(self._inner, inside, pad=False)]
        kept = [place for place, line in enumerate(lines) if line]
        for line in lines[kept[0] : kept[-1] + 1] if kept else ():
            if line:
                yield Segment(" " * self._indent)
            yield from line
            yield Segment.line()


def _without_end(line: list[Segment]) -> list[Segment]:
    """Return a line without trailing blanks, which would be copied with the text."""
    end = len(line)
    while end and not line[end - 1].text.strip():
        end -= 1
    if not end:
        return []
    text, style, control = line[end - 1]
    return [*line[: end - 1], Segment(text.rstrip(), style, control)]


class _Heading(Heading):
    """A heading where text begins, not in the middle of the screen."""

    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {**Heading.LEVEL_ALIGN, "h1": "left"}


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _Heading}


class Screen:
    """Console of a chat. Belongs to one event loop; text printed while the live region is on appears above it."""

    def __init__(self, console: Console) -> None:
        """Print on `console`."""
        self.console = console
        self._live: Live | None = None
        self._draw: Callable[[], RenderableType] = Text

    @property
    def is_terminal(self) -> bool:
        """True if output goes to a terminal, where lines can be redrawn."""
        return self.console.is_terminal and not self.console.is_dumb_terminal

    @property
    def height(self) -> int:
        """Lines that the region may have: half of the screen at most."""
        return max(4, self.console.size.height // 2)

    def say(self, *things: RenderableType, indent: int = 0) -> None:
        """Print what stays."""
        for thing in things:
            self.console.print(Trimmed(thing, indent=indent), end="")

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
        self.console.line()

    def markdown(self, text: str) -> RenderableType:
        """Return Markdown of a model, rendered."""
        return Trimmed(_Markdown(escape(text, lines=True), code_theme=_CODE_THEME))

    @contextmanager
    def moving(self, draw: Callable[[], RenderableType]) -> Generator[None]:
        """Show the result of `draw` at the bottom until the block ends; `redraw` refreshes it. No-op off a terminal."""
        if not self.is_terminal:
            yield
            return
        self._draw = draw
        self._live = self._region()
        self._live.start()
        try:
            yield
        finally:
            self._live.stop()
            self._live = None

    def redraw(self) -> None:
        """Show the region as it is now."""
        if self._live is not None and self._live.is_started:
            self._live.refresh()

    @contextmanager
    def still(self) -> Generator[None]:
        """Hide the live region while the user is asked: it and the prompt would draw over each other."""
        live = self._live
        if live is None or not live.is_started:
            yield
            return
        live.stop()
        try:
            yield
        finally:
            if self._live is live:
                self._live = self._region()  # a region that begins anew knows of no lines above it
                self._live.start()

    def _region(self) -> Live:
        return Live(
            get_renderable=self._draw,
            console=self.console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
