"""Names that are read as another source's: told to the operator, never a reason to withhold (security.md T3).

Two tools of different sources look alike when their names differ only in what an eye does not see: letters of other
scripts, accents, invisible characters, `0` and `o`, `1`, `i` and `l`, `rn` and `m`. That several servers call a tool
`search`, or one `createIssue` what another calls `create_issue`, is ordinary: their namespaces tell them apart. Names
without a namespace that differ in case and separators only are told as well, and so is a name that is one of Toolcrib's
own (a verb) or within two edits of it: a model would take one for the other.

Edits between the names of sources are not counted: `get_user` and `get_users` are two tools everywhere.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from ..core.events import Problem
from ..core.hidden import escape
from ..core.tool import Tool
from .naming import fold
from .preflight import skeleton

__all__ = ["look_alikes", "looks"]

_ALIKE: Final = str.maketrans("01i\u0131|", "ollll")
_PAIRS: Final = (("rn", "m"), ("vv", "w"))
_EDITS: Final = 2
"""Letters that may differ from one of our own names (security.md T3)."""
_LONG: Final = 8
"""Letters from which on a name that is nearly another one is no accident."""
_OURS: Final = "Toolcrib"


def looks(name: str) -> str:
    """Return what stays of `name` for an eye: equal for names that look alike."""
    plain = unicodedata.normalize("NFKD", skeleton(name)) if not name.isascii() else name
    seen = "".join(char for char in plain if not unicodedata.combining(char)) if not plain.isascii() else plain
    seen = fold(seen).translate(_ALIKE)
    for pair, one in _PAIRS:
        seen = seen.replace(pair, one)
    return seen


def look_alikes(tools: Iterable[Tool], own: Collection[str] = ()) -> Iterator[Problem]:
    """Yield a problem for each tool that looks like one of another source that comes before it, or like our `own`.

    `tools` come in the order of their sources. Takes time by the number of tools, not by that of pairs.
    """
    seen: dict[str, list[Tool]] = {}
    flat: dict[str, Tool] = {}
    ours = {fold(name): (name, looks(name)) for name in own}
    for tool in tools:
        like = _like_ours(tool, ours) or _like_another(tool, seen) or _like_flat(tool, flat)
        if like:
            yield _problem(tool, like)
        seen.setdefault(looks(tool.local_name), []).append(tool)
        flat.setdefault(fold(tool.name), tool)


def _like_ours(tool: Tool, ours: dict[str, tuple[str, str]]) -> str:
    folded = fold(tool.local_name)
    if len(folded) < _LONG - _EDITS:
        return ""
    look = looks(tool.local_name)
    for known, (name, look_of_it) in ours.items():
        if len(known) < _LONG or abs(len(known) - len(folded)) > _EDITS:
            continue
        if look == look_of_it or _edits(folded, known) <= _limit(known):
            return f"{_OURS}'s own {name}"
    return ""


def _like_another(tool: Tool, seen: dict[str, list[Tool]]) -> str:
    mine = fold(tool.local_name)
    for other in seen.get(looks(tool.local_name), ()):
        if other.source != tool.source and fold(other.local_name) != mine:
            return f"{other.local_name} of {other.source}"
    return ""


def _like_flat(tool: Tool, flat: dict[str, Tool]) -> str:
    other = flat.get(fold(tool.name))
    if other is None or other.source == tool.source or other.name == tool.name:
        return ""
    return f"{other.name} of {other.source}"


def _limit(name: str) -> int:
    """Short names are near to many a word: `call_room` is no `call_tool`."""
    return _EDITS if len(name) >= _LONG + _EDITS else 1


def _edits(one: str, other: str) -> int:
    """Return how many letters are put in, left out, changed or swapped; more than `_EDITS` is only that."""
    if len(set(one) - set(other)) > _EDITS or len(set(other) - set(one)) > _EDITS:
        return _EDITS + 1  # one edit brings one new letter at most, and takes one away
    before: list[int] = []
    row = list(range(len(other) + 1))
    for place, char in enumerate(one):
        older, before, row = before, row, [place + 1]
        for at, wanted in enumerate(other):
            cost = min(row[at] + 1, before[at + 1] + 1, before[at] + (char != wanted))
            if older and at and char == other[at - 1] and one[place - 1] == wanted:
                cost = min(cost, older[at - 1] + 1)
            row.append(cost)
        if min(row) > _EDITS:
            return _EDITS + 1
    return row[-1]


def _problem(tool: Tool, like: str) -> Problem:
    return Problem(
        source=tool.source,
        tool=tool.local_name,
        code="look_alike",
        message=f"its name {escape(tool.local_name)} looks like {escape(like)}; it is offered all the same",
        hint=f"look at it with `toolcrib show {tool.name}`; rename it, or leave it out, if it is not what you want",
    )
