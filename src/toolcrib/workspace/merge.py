"""Three-way merge of text: the diffs of both sides, combined where they do not touch the same lines."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher, unified_diff
from typing import Final

__all__ = ["difference", "merged"]

_MAX_LINES: Final = 20_000
"""Lines up to which texts are compared: the work may grow with their square."""
_MAX_DIFF: Final = 400
"""Lines of a diff that are shown."""

_Edit = tuple[int, int, list[str]]


def difference(old: bytes | None, new: bytes | None, path: str, sides: tuple[str, str] = ("disk", "pending")) -> str:
    """Return a unified diff for people; None means no file. A binary side is described by its size."""
    if old == new:
        return ""
    try:
        before, after = ("" if side is None else side.decode() for side in (old, new))
    except UnicodeDecodeError:
        before = None
        after = ""
    if before is None or "\0" in before + after or max(before.count("\n"), after.count("\n")) > _MAX_LINES:
        sizes = ["nothing" if side is None else f"{len(side):,} bytes" for side in (old, new)]
        return f"{path}: {sizes[0]} on {sides[0]}, {sizes[1]} {sides[1]}\n"
    names = ["/dev/null" if side is None else f"{path} ({name})" for side, name in zip((old, new), sides, strict=True)]
    lines = list(unified_diff(before.splitlines(), after.splitlines(), names[0], names[1], lineterm=""))
    left_out = len(lines) - _MAX_DIFF
    if left_out > 0:
        lines = [*lines[:_MAX_DIFF], f"… {left_out} more lines"]
    return "\n".join(lines) + "\n"


def merged(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Return `base` with the changes of both sides; None where they touch the same lines, or it is binary."""
    if ours == theirs or theirs == base:
        return ours
    if ours == base:
        return theirs
    try:
        texts = [side.decode().splitlines(keepends=True) for side in (base, ours, theirs)]
    except UnicodeDecodeError:
        return None
    if any(len(lines) > _MAX_LINES for lines in texts):
        return None
    edits = _together(_edits(texts[0], texts[1]), _edits(texts[0], texts[2]))
    if edits is None:
        return None
    result: list[str] = []
    place = 0
    for start, end, lines in edits:
        result += [*texts[0][place:start], *lines]
        place = end
    return "".join([*result, *texts[0][place:]]).encode()


def _edits(base: Sequence[str], side: Sequence[str]) -> list[_Edit]:
    """Return the edits of one side: first and last line in the base, and the new lines."""
    codes = SequenceMatcher(None, base, side, autojunk=False).get_opcodes()
    return [(start, end, list(side[low:high])) for tag, start, end, low, high in codes if tag != "equal"]


def _together(ours: Sequence[_Edit], theirs: Sequence[_Edit]) -> list[_Edit] | None:
    """Return the edits of both in order; None where two that differ touch or overlap."""
    edits: list[_Edit] = []
    for edit in sorted((*ours, *theirs), key=lambda edit: edit[:2]):
        if edits and edit == edits[-1]:
            continue
        if edits and edit[0] <= edits[-1][1]:
            return None
        edits.append(edit)
    return edits
