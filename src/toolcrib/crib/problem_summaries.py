"""Problems of a crib in one line each, for its operator, and the log of those that come up while it is served.

Problems that all tools of a server have share one line. The operator of a gateway sees no session's catalog: hence the
log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ..core.events import CatalogChanged, Problem
from ..core.own_commands import with_files

if TYPE_CHECKING:  # the whole library: commands that print problems may not need it
    from .toolcrib import Toolcrib

__all__ = ["log_new_problems", "summaries"]

_logger = logging.getLogger(__name__)


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


def log_new_problems(crib: Toolcrib) -> None:
    """Log problems that there are not yet, once for as long as they last.

    Those that all tools of a server have share a line. A source that is down is left out: its connection logs that.
    Names that look alike are logged a moment later, also those that there are already: they are looked for meanwhile.
    """
    known, alike = frozenset(crib.tools.failures), frozenset[Problem]()
    seeking: asyncio.Task[None] | None = None

    def look(_: CatalogChanged) -> None:
        nonlocal known, seeking
        known = _log_new(crib, crib.tools.failures, known)
        if seeking is None or seeking.done():
            seeking = asyncio.get_running_loop().create_task(seek())

    async def seek() -> None:
        nonlocal alike
        alike = _log_new(crib, await crib.tools.find_look_alikes(), alike)

    crib.tools.on_change(look)
    seeking = asyncio.get_running_loop().create_task(seek())


def _log_new(crib: Toolcrib, found: Collection[Problem], known: frozenset[Problem]) -> frozenset[Problem]:
    new = (problem for problem in found if problem not in known and not problem.outage)
    for _, line in summaries(new, crib.settings.file_options):
        _logger.warning("%s", line)
    return frozenset(found)
