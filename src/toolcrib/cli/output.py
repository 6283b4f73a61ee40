"""What the commands print. Lists are tables on a terminal, aligned text elsewhere, and JSON when asked.

Text that came from outside (names, descriptions, results) may hold control characters that move a cursor or reorder
what is read; they are shown as escapes (security.md T33).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import orjson

from ..core.hidden_characters import escape, is_hidden
from ..core.json import dumps

__all__ = ["Column", "emit_json", "escape", "note", "out", "table"]

_MAX_CELL: Final = 60
_MAX_LAST_CELL: Final = 600
"""Characters of one cell, and of one in the last column; the whole text is in `--json` and `show`."""

Column = tuple[str, str]
"""The heading, and `<` or `>` for the side to which cells are aligned."""


def out(text: str) -> None:
    """Print `text`, already escaped, on standard output."""
    sys.stdout.write(f"{text}\n")


def note(text: str) -> None:
    """Tell the user something beside the result, on standard error."""
    sys.stderr.write(f"{escape(text, lines=True)}\n")
    sys.stderr.flush()


def emit_json(value: Any) -> None:
    """Print `value` as JSON that is safe to look at: what is invisible stands there as an escape."""
    text = orjson.dumps(orjson.loads(dumps(value)), option=orjson.OPT_INDENT_2).decode()
    out("".join(_json_escaped(char) if char != "\n" and is_hidden(char) else char for char in text))


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of cells under headings. The cells need no escaping."""
    cells = [[*(_cell(cell, _MAX_CELL) for cell in row[:-1]), _cell(row[-1], _MAX_LAST_CELL)] for row in rows]
    if sys.stdout.isatty():
        _pretty(columns, cells)
        return
    titles = [title for title, _ in columns]
    widths = [max(len(cell) for cell in column) for column in zip(titles, *cells, strict=True)]
    for row in (titles, *cells):
        sides = zip(row, columns, widths, strict=True)
        out("  ".join(f"{cell:{side}{width}}" for cell, (_, side), width in sides).rstrip())


def _pretty(columns: Sequence[Column], cells: Iterable[Sequence[str]]) -> None:
    """The same on a terminal. rich is loaded here, for only here it is needed."""
    rich: Mapping[str, Any] = {name: import_module(f"rich.{name}") for name in ("box", "console", "table", "text")}
    shown = rich["table"].Table(box=rich["box"].SIMPLE_HEAD, pad_edge=False)
    for title, side in columns:
        shown.add_column(title, justify="left" if side == "<" else "right", overflow="fold")
    for row in cells:
        shown.add_row(*(rich["text"].Text(cell) for cell in row))
    rich["console"].Console().print(shown)


def _cell(text: str, limit: int) -> str:
    line = escape(" ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _json_escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))
