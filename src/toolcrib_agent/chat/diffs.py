"""Unified diffs on a terminal: removed lines red, added lines green, long ones cut in the middle."""

from __future__ import annotations

from difflib import unified_diff
from typing import Final

from rich.text import Text

from toolcrib.cli.output import escape

__all__ = ["between", "changes_of", "colored"]

_LONGEST: Final = 60
"""Lines that are shown of a diff unless more are asked for."""
_COMPARED: Final = 5000
"""Lines of both sides up to which they are compared: the time for it grows with the square."""


def colored(diff: str, *, limit: int = _LONGEST) -> Text:
    """Return `diff` in colours, at most `limit` lines of it; 0 is all of it."""
    lines = escape(diff.rstrip("\n"), lines=True).split("\n")
    shown = Text()
    if limit and len(lines) > limit:
        head, tail = limit * 2 // 3, limit - limit * 2 // 3
        lines = [*lines[:head], f"… {len(lines) - limit} lines more …", *lines[-tail:]]
    for number, line in enumerate(lines):
        shown.append(("\n" if number else "") + line, style=_style(line))
    return shown


def changes_of(diff: str) -> tuple[int, int]:
    """Return how many lines a diff adds and removes."""
    lines = diff.splitlines()
    added = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("---") for line in lines)
    return added, removed


def between(path: str, before: str | None, after: str) -> str:
    """Return the unified diff of two versions of a file; empty if they are equal or too large."""
    old, new = (before or "").splitlines(), after.splitlines()
    if len(old) + len(new) > _COMPARED:
        return ""
    name = "/dev/null" if before is None else f"a/{path}"
    return "".join(f"{line}\n" for line in unified_diff(old, new, name, f"b/{path}", lineterm=""))


def _style(line: str) -> str:
    if line.startswith(("+++", "---")):
        return "bold"
    if line.startswith("@@"):
        return "cyan"
    if line.startswith("+"):
        return "green"
    if line.startswith("-"):
        return "red"
    return "dim"
