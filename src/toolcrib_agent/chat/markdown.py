"""Incremental Markdown: finished blocks are printed for good, and only the last block still changes."""

from __future__ import annotations

from typing import Final

from markdown_it import MarkdownIt

__all__ = ["MarkdownStream", "finished"]

_PARSER: Final = MarkdownIt().enable("strikethrough").enable("table")
"""Configured like rich's parser: both must see the same ends of blocks."""


class MarkdownStream:
    """Markdown that arrives in pieces. `rest` is the last block, whose layout may still change."""

    def __init__(self) -> None:
        """Start with empty text."""
        self.rest = ""

    def add(self, piece: str) -> str:
        """Take a piece of text; return the blocks that it finished, as Markdown, mostly none."""
        self.rest += piece
        if "\n" not in piece:
            return ""
        done, self.rest = finished(self.rest)
        return done

    def end(self) -> str:
        """Return what is left, finished or not."""
        left, self.rest = self.rest, ""
        return left


def finished(text: str) -> tuple[str, str]:
    """Split `text` into blocks that later text cannot change, and the rest.

    The last block may always go on; a list or a fence is one block, however long it is.
    """
    starts = [token.map[0] for token in _PARSER.parse(text) if token.level == 0 and token.nesting >= 0 and token.map]
    if len(starts) < 2:
        return "", text
    lines = text.splitlines(keepends=True)
    return "".join(lines[: starts[-1]]), "".join(lines[starts[-1] :])
