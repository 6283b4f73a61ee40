"""Output of the commands. Lists are tables on a terminal, aligned text elsewhere, and JSON when asked.

Text that came from outside (names, descriptions, results) may hold control characters that move a cursor or reorder
what is read; they are shown as escapes (security.md T33).
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import accumulate, zip_longest
from shutil import get_terminal_size
from typing import Any, Final, TextIO

import orjson

from ..core.json import dumps, encodable
from ..core.sanitize import clip, escape
from ..daemon.caller import Part, current_caller

__all__ = [
    "INPUTS",
    "Column",
    "confirm",
    "counted",
    "emit_json",
    "escape",
    "fitted",
    "local_time",
    "note",
    "out",
    "print_part",
    "print_raw",
    "read_input",
    "read_secret",
    "table",
    "width_of",
]

_MAX_CELL: Final = 60
_MAX_LAST_CELL: Final = 600
"""Characters of one cell, and of one in the last column; the whole text is in `--json` and `show`."""

_GAP: Final = "  "
_INDENT: Final = "    "
_LAST_COLUMN: Final = 24
"""Characters that a last column needs to fold in its place; with fewer, it follows on lines of its own."""

Column = tuple[str, str]
"""The heading, and `<` or `>` for the side to which cells are aligned."""


def print_part(part: Part) -> None:
    """Print what a command printed for this caller, at the width of this process's terminal."""
    _PRINTERS[part[0]](*part[1:])


def _put(kind: str, *arguments: Any) -> None:
    caller = current_caller()
    if caller is None:
        _PRINTERS[kind](*arguments)
    else:
        caller.put([kind, *arguments])


def out(text: str, *, verbatim: bool = False) -> None:
    """Print `text`, already escaped, on standard output: folded to its width, or `verbatim` where it is content."""
    _put("out", text, verbatim)


def _out(text: str, verbatim: bool) -> None:
    sys.stdout.write(f"{text if verbatim else fitted(text, width_of(sys.stdout))}\n")


def print_raw(text: str, *, is_error: bool = False) -> None:
    """Print `text` as it is, without a line's end, on standard output or standard error."""
    _put("raw", text, is_error)


def _raw(text: str, is_error: bool) -> None:
    (sys.stderr if is_error else sys.stdout).write(text)


def read_input(limit: int) -> str:
    """Return standard input to its end, or its first `limit` characters."""
    return _input("input", limit)


def read_secret(name: str) -> str:
    """Ask for a secret at the terminal, without showing it; without a terminal return standard input."""
    return _input("secret", name)


def confirm(question: str) -> bool:
    """Ask a person a question whose answer is no by default."""
    return _input("confirm", question) is True


def _input(kind: str, argument: Any) -> Any:
    caller = current_caller()
    return INPUTS[kind](argument) if caller is None else caller.ask(kind, argument)


def _confirm(question: str) -> bool:
    import typer  # for the few commands that ask

    try:
        return typer.confirm(question, default=False)
    except typer.Abort:  # an interrupt, or the end of the input
        sys.stderr.write("\n")
        raise KeyboardInterrupt from None


def _stdin(limit: int) -> str:
    return sys.stdin.read(limit)


def _secret(name: str) -> str:
    if sys.stdin.isatty():
        import getpass  # for the few commands that ask for a secret

        try:
            return getpass.getpass(f"{name}: ")
        except EOFError:
            sys.stderr.write("\n")
            raise KeyboardInterrupt from None
    return sys.stdin.read().rstrip("\r\n")


INPUTS: Final[Mapping[str, Callable[[Any], Any]]] = {"confirm": _confirm, "input": _stdin, "secret": _secret}
"""Questions of a command in a process of its own, by the kind of the message that asks them through a daemon."""


def fitted(text: str, width: int | None) -> str:
    """Return `text` with lines of at most `width` columns, folded at spaces, and `~` for the home directory.

    None for `width` leaves it as it is. A word that is longer than a line stays whole.
    """
    if width is None:
        return text
    home = os.path.expanduser("~").rstrip("/")
    if len(home) > 1:
        text = re.sub(rf"(?<![\w./~-]){re.escape(home)}/", "~/", text)  # not at the end of a longer path
    return "\n".join(folded for line in text.split("\n") for folded in _fold(line, width))


def _fold(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    margin = line[: len(line) - len(line.lstrip(" "))]
    lines = textwrap.wrap(
        line.lstrip(" "),
        max(width, 2 * len(_INDENT)),
        initial_indent=margin,
        subsequent_indent=margin + _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
        drop_whitespace=True,
    )
    return lines or [line]


def width_of(stream: TextIO) -> int | None:
    """Return the columns of a terminal; None elsewhere, where a line has any length."""
    return get_terminal_size().columns if stream.isatty() else None


def local_time(moment: float) -> str:
    """Return a time in seconds since 1970 as date and time of this machine's zone."""
    return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def note(text: str) -> None:
    """Print a note beside the result, on standard error."""
    _put("note", text)


def _note(text: str) -> None:
    with suppress(OSError):  # its reader has ended, or its disk is full: no reason to end a server
        sys.stderr.write(f"{fitted(escape(text, lines=True), width_of(sys.stderr))}\n")
        sys.stderr.flush()


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 server, 2 servers."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def emit_json(value: Any) -> None:
    """Print `value` as JSON that is safe to look at: what is invisible stands there as an escape."""
    text = orjson.dumps(orjson.loads(dumps(encodable(value))), option=orjson.OPT_INDENT_2).decode()
    out(escape(text, lines=True, written=_json_escaped), verbatim=True)


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, width: int | None = None) -> None:
    """Print rows of cells under headings, the most important column first; without rows print nothing.

    Cells need no escaping. Elsewhere than on a terminal a row is one line of any length. On a terminal (or at `width`)
    nothing is wider than it: the last column folds; columns that do not fit follow on indented lines, as
    `HEADING value`.
    """
    listed = [list(row) for row in rows]
    if listed:
        _put("table", columns, listed, width)


def _table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> None:
    width = width or width_of(sys.stdout)
    rows = [[fitted(cell, None if width is None else sys.maxsize) for cell in row] for row in rows]
    cells = [[*(_cell(cell, _MAX_CELL) for cell in row[:-1]), _cell(row[-1], _MAX_LAST_CELL)] for row in rows]
    for line in _one_line_each(columns, cells) if width is None else _folded(columns, cells, width):
        _out(line, True)


_PRINTERS: Final[Mapping[str, Callable[..., None]]] = {"out": _out, "note": _note, "raw": _raw, "table": _table}


def _one_line_each(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> Iterator[str]:
    titles = [title for title, _ in columns]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    for row in (titles, *cells):
        sides = zip(row, columns, widths, strict=True)
        yield _GAP.join(f"{cell:{side}{width}}" for cell, (_, side), width in sides).rstrip()


def _folded(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield the lines of a table at most `width` wide."""
    from rich.cells import cell_len  # rich is slow to load, and only a terminal needs it

    titles = [title for title, _ in columns]
    widths = [max(map(cell_len, column)) for column in zip(titles, *cells, strict=True)]
    ends = [end - len(_GAP) for end in accumulate(wide + len(_GAP) for wide in widths)]
    fitting = sum(end <= width for end in ends)
    if fitting == len(columns) - 1 and width - ends[fitting - 1] - len(_GAP) >= _LAST_COLUMN:
        fitting, widths[-1] = len(columns), width - ends[fitting - 1] - len(_GAP)
    for row in (titles, *cells):
        columns_of = zip(row[:fitting], columns, widths, strict=False)
        blocks = [_block(cell, side, wide) for cell, (_, side), wide in columns_of]
        for line in zip_longest(*blocks):
            parts = (part if part is not None else " " * wide for part, wide in zip(line, widths, strict=False))
            yield _GAP.join(parts).rstrip()
        rest = zip(titles[fitting:], row[fitting:], strict=True)
        more = "  ".join(f"{title} {cell}" for title, cell in rest if cell and row is not titles)
        yield from (f"{_INDENT}{line}" for line in _wrap(more, width - len(_INDENT)))


def _block(cell: str, side: str, width: int) -> list[str]:
    """Return the lines of one cell, each `width` wide."""
    from rich.cells import cell_len  # as in `_folded`

    lines = _wrap(cell, width) or [""]
    pads = [" " * (width - cell_len(line)) for line in lines]
    return [pad + line if side == ">" else line + pad for line, pad in zip(lines, pads, strict=True)]


def _wrap(text: str, width: int) -> list[str]:
    from rich.console import Console  # as in `_folded`
    from rich.text import Text

    lines = Text(text).wrap(Console(width=max(width, 1)), max(width, 1)) if text else ()
    return [line.plain.rstrip() for line in lines]


def _cell(text: str, limit: int) -> str:
    return clip(escape(" ".join(text.split())), limit)


def _json_escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))
