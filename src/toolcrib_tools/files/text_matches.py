"""Occurrences of a piece of text in a file and, if it does not occur, the nearest similar lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

from msgspec import Struct

from toolcrib.plugin import ToolFailure

from .._workspace.file_text import Text

Span = tuple[int, int, str]
"""From, to, and what comes there instead."""

_SHOWN: Final = 10
"""Places of a piece of text that occurs several times."""
_CONTEXT: Final = 3
"""Unchanged lines around a change in a diff."""
_COMPARED: Final = 400
"""Lines of one hunk that are compared with one another."""
_MOST_LINES: Final = 50_000
"""Lines of a file in which the nearest region is searched."""
_CANDIDATES: Final = 8
_REGION: Final = 40
"""Lines of the nearest region that are shown."""
_WIDTH: Final = 200
_ALIKE: Final = 0.5
"""Below that a region is not worth showing."""
_NUMBERED: Final = re.compile(r"(?m)^\s*\d+(?:\t|: ?|\s*[|→] ?)")


class Edit(Struct, frozen=True, kw_only=True):
    """One replacement that a caller wants."""

    search: str
    replace: str
    every: bool = False
    """Replace all places, not only the one that there must be otherwise."""
    before: str = ""
    """Text right before the match, which stays."""
    after: str = ""
    """Text right after the match, which stays."""


def spans_of(text: Text, edit: Edit, path: str) -> list[Span]:
    """Return the spans to replace. Raises `ToolFailure` if there is no match, or several without `every`.

    The file's line ends do not matter: a newline stands for the line end of the file.
    """
    search = edit.search.replace("\r\n", "\n")
    if not search:
        raise ToolFailure("invalid_arguments", "search is empty", hint="write_file makes a file, or rewrites one")
    if search == edit.replace.replace("\r\n", "\n"):
        raise ToolFailure("invalid_arguments", "the text and its replacement are the same: nothing would change")
    places = list(_places(text.plain, search))
    if not places:
        raise _nowhere(text.plain, search, path)
    before, after = edit.before.replace("\r\n", "\n"), edit.after.replace("\r\n", "\n")
    meant = [place for place in places if _stands_between(text.plain, place, len(search), before, after)]
    if not meant:
        raise _elsewhere(text.plain, places, path)
    if len(meant) > 1 and not edit.every:
        raise _several(text.plain, meant, path)
    return [(start, start + len(search), edit.replace) for start in meant]


def line_of(text: str, offset: int) -> int:
    """Return the number of the line that an offset is in."""
    return text.count("\n", 0, offset) + 1


def hunks(text: str, spans: Sequence[Span], most: int) -> str:
    """Return the replacements as a unified diff of at most `most` characters, made of the spans themselves."""
    lines = text.removesuffix("\n").split("\n")
    groups = list(_grouped(text, spans))
    shown: list[str] = []
    shift = size = 0
    for place, (first, last, group) in enumerate(groups):
        top, bottom = max(0, first - _CONTEXT), min(len(lines), last + 1 + _CONTEXT)
        start = sum(map(len, lines[:top])) + top
        stop = start + sum(map(len, lines[top:bottom])) + bottom - top
        new = _applied(text[start:stop], [(begin - start, end - start, put) for begin, end, put in group])
        marked = _marked(lines[top:bottom], new.removesuffix("\n").split("\n") if new else [])
        added = sum(line.startswith("+") for line in marked) - sum(line.startswith("-") for line in marked)
        head = f"@@ -{top + 1},{bottom - top} +{top + 1 + shift},{bottom - top + added} @@"
        hunk = "\n".join([head, *marked])
        size += len(hunk)
        if size > most:
            shown.append(f"[{len(groups) - place} more parts of the diff are not shown]")
            break
        shown.append(hunk)
        shift += added
    return "\n".join(shown)


def _grouped(text: str, spans: Sequence[Span]) -> Iterator[tuple[int, int, list[Span]]]:
    """Yield first line, last line (from 0) and spans of what is replaced in lines that lie close together."""
    first = last = line = at = 0
    group: list[Span] = []
    for span in spans:
        line, at = line + text.count("\n", at, span[0]), span[0]
        if group and line > last + 2 * _CONTEXT:
            yield first, last, group
            group = []
        first = first if group else line
        last = line + text.count("\n", span[0], span[1])
        group.append(span)
    if group:
        yield first, last, group


def _marked(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return the lines of one hunk. A very long hunk is given as all old lines and all new ones."""
    if len(before) + len(after) > _COMPARED:
        return [f"-{line}" for line in before] + [f"+{line}" for line in after]
    marked: list[str] = []
    for tag, start, end, new_start, new_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            marked += [f" {line}" for line in before[start:end]]
            continue
        marked += [f"-{line}" for line in before[start:end]]
        marked += [f"+{line}" for line in after[new_start:new_end]]
    return marked


def _applied(text: str, spans: Sequence[Span]) -> str:
    pieces: list[str] = []
    at = 0
    for start, end, put in spans:
        pieces += [text[at:start], put.replace("\r\n", "\n")]
        at = end
    return "".join([*pieces, text[at:]])


def _places(text: str, wanted: str) -> Iterator[int]:
    at = text.find(wanted)
    while at >= 0:
        yield at
        at = text.find(wanted, at + len(wanted))


def _stands_between(text: str, place: int, length: int, before: str, after: str) -> bool:
    return text.endswith(before, 0, place) and text.startswith(after, place + length)


def _elsewhere(text: str, places: Sequence[int], path: str) -> ToolFailure:
    lines = [line_of(text, place) for place in places[:_SHOWN]]
    return ToolFailure(
        "tool_error",
        f"the text occurs in {path!r} at line {', '.join(map(str, lines))}, but not between before and after",
        hint="they must touch it, blanks and line ends included; where it occurs once, leave them out",
        details={"lines": lines, "count": len(places)},
    )


def _several(text: str, places: Sequence[int], path: str) -> ToolFailure:
    lines = [line_of(text, place) for place in places[:_SHOWN]]
    more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
    return ToolFailure(
        "tool_error",
        f"the text occurs {len(places)} times in {path!r}: at lines {', '.join(map(str, lines))}{more}",
        hint="take more of the lines around the one that is meant into the text, or set replace_all",
        details={"lines": lines, "count": len(places)},
    )


def _nowhere(text: str, wanted: str, path: str) -> ToolFailure:
    """Say that the text does not occur, what comes nearest to it, and what seems to be wrong with it."""
    region = _nearest(text, wanted)
    if region is None:
        return ToolFailure(
            "tool_error",
            f"the text does not occur in {path!r}, nor anything like it",
            hint="read the file: it may hold something else by now, or be another file",
        )
    first, last, reason = region
    lines = text.split("\n")[first - 1 : last]
    shown = "\n".join(f"{first + place}\t{line[:_WIDTH]}" for place, line in enumerate(lines[:_REGION]))
    where = f"is line {first}" if first == last else f"are lines {first} to {last}"
    return ToolFailure(
        "tool_error",
        f"the text does not occur in {path!r}. Nearest {where}:\n{shown}",
        hint=reason or "copy the lines as they stand there, without the numbers",
        details={"first": first, "last": last},
    )


def _nearest(text: str, wanted: str) -> tuple[int, int, str] | None:
    """Return first line, last line, and the difference if it is small; None if no lines are similar."""
    if _NUMBERED.match(wanted):
        bare = _NUMBERED.sub("", wanted)
        if bare in text:
            first = line_of(text, text.index(bare))
            return first, first + bare.count("\n"), "leave out the line numbers: they are not in the file"
    have, want = text.split("\n"), wanted.strip("\n").split("\n")
    squeezed, sought = [_squeezed(line) for line in have], [_squeezed(line) for line in want]
    for place in range(len(have) - len(want) + 1):
        if squeezed[place] == sought[0] and squeezed[place : place + len(want)] == sought:
            return place + 1, place + len(want), "only blanks differ: take indentation and tabs as they are in the file"
    if len(have) > _MOST_LINES:
        return None
    best = max((_likeness(squeezed, sought, place), -place) for place in _candidates(squeezed, sought))
    if best[0] < _ALIKE:
        return None
    first = -best[1] + 1
    return first, min(first + len(want) - 1, len(have)), ""


def _squeezed(line: str) -> str:
    return "".join(line.split())


def _candidates(have: Sequence[str], want: Sequence[str]) -> Sequence[int]:
    """Return possible starts of the region: windows that share most lines or, if none is shared, most letters."""
    wanted = Counter(line for line in want if line)
    shared = [1 if line in wanted else 0 for line in have]
    width = len(want)
    sums = [sum(shared[:width])]
    for place in range(1, max(1, len(have) - width + 1)):
        sums.append(sums[-1] - shared[place - 1] + (shared[place + width - 1] if place + width <= len(have) else 0))
    if any(sums):
        return sorted(range(len(sums)), key=lambda place: (-sums[place], place))[:_CANDIDATES]
    longest = max(want, key=len)
    matcher = SequenceMatcher(None, "", longest[:_WIDTH], autojunk=False)
    offset = list(want).index(longest)
    rated: list[tuple[float, int]] = []
    for place, line in enumerate(have):
        matcher.set_seq1(line[:_WIDTH])
        if line and matcher.real_quick_ratio() > _ALIKE and (ratio := matcher.quick_ratio()) > _ALIKE:
            rated.append((-ratio, max(0, place - offset)))
    return [place for _, place in sorted(rated)[:_CANDIDATES]] or [0]


def _likeness(have: Sequence[str], want: Sequence[str], place: int) -> float:
    there = [line[:_WIDTH] for line in have[place : place + len(want)]][:_REGION]
    ratios = [
        SequenceMatcher(None, one, other[:_WIDTH], autojunk=False).ratio()
        for one, other in zip(there, want[:_REGION], strict=False)
    ]
    return sum(ratios) / max(len(want[:_REGION]), 1)
