"""Text tools for tasks that models do badly: counting, and exact differences between two versions."""

from __future__ import annotations

import difflib
from typing import Annotated, Final

from pydantic import Field

from toolcrib.plugin import ToolFailure, tool

__all__ = ["count_text", "diff_text"]

_MAX_LENGTH: Final = 500_000
_MAX_LINES: Final = 5_000
"""Lines of each text to compare: the comparison is quadratic at worst."""

_Text = Annotated[str, Field(max_length=_MAX_LENGTH)]


@tool(
    op="x.text.count",
    category="text",
    kind="read",
    open_world=False,
    examples=[{"text": "strawberry", "find": "r"}, {"text": "One two."}],
)
async def count_text(text: _Text, find: str = "") -> dict[str, int]:
    """Count the characters, words and lines of a text, and how often another text occurs in it.

    Args:
        text: The text to count.
        find: Also count the places where this occurs, upper and lower case alike, without overlaps.
    """
    counts = {"characters": len(text), "words": len(text.split()), "lines": len(text.splitlines())}
    if find:
        counts["found"] = text.casefold().count(find.casefold())
    return counts


@tool(
    op="x.text.diff",
    category="text",
    kind="read",
    open_world=False,
    examples=[{"old": "one\ntwo\n", "new": "one\nthree\n"}],
)
def diff_text(old: _Text, new: _Text, context_lines: Annotated[int, Field(ge=0, le=100)] = 3) -> str:
    """Show how two versions of a text differ, line by line, as a unified diff.

    Args:
        old: The text before.
        new: The text after.
        context_lines: Unchanged lines to show around each change.
    """
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > _MAX_LINES:
        raise ToolFailure("tool_error", f"texts of more than {_MAX_LINES} lines are not compared; split them")
    found = difflib.unified_diff(before, after, "old", "new", n=context_lines, lineterm="")
    return "\n".join(found) or ("the texts are equal" if old == new else "only line ends differ")
