"""Problems of a crib in one line each, for its operator; those that all tools of a server have share one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from ..core.events import Problem
from ..core.own_commands import with_files

_BY_SERVER: Final[Mapping[str, str]] = {
    "quarantined": "withheld, their definitions are unreviewed",
    "definition_changed": "withheld, their definitions have changed since they were reviewed",
    "unreviewed": "in use (guard is off), their definitions are unreviewed",
    "unreviewed_change": "in use (guard is off), their definitions have changed since they were reviewed",
}
"""Codes of problems that all tools of a server tend to have at once, and what they mean."""

_NAMED: Final = 3
"""So many of those tools are named."""


def summaries(problems: Iterable[Problem], file_options: str = "") -> Iterator[tuple[Problem, str]]:
    """Yield one line for each problem, with the problem; those that all tools of a server have share one line.

    `file_options` name the configuration files to the commands of a shared line.
    """
    alike: dict[tuple[str, str], list[Problem]] = {}
    for place, problem in enumerate(problems):
        kind = problem.code if problem.code in _BY_SERVER else f"{place}"
        alike.setdefault((problem.source, kind), []).append(problem)
    for found in alike.values():
        yield found[0], with_files(_problems_text(found), file_options if len(found) > 1 else "")


def _problems_text(problems: Sequence[Problem]) -> str:
    first, *others = problems
    if others:
        tools = ", ".join(problem.tool for problem in problems[:_NAMED])
        more = f" and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        reason = _BY_SERVER[first.code]
        look = f"`toolcrib show {first.source}/{first.tool}` shows one, `toolcrib accept {first.source}` takes all"
        return f"{first.source}: {len(problems)} tools are {reason}: {tools}{more} ({look})"
    where = f"{first.source}/{first.tool}" if first.tool else first.source
    return f"{where}: {first.message}" + (f" ({first.hint})" if first.hint else "")
