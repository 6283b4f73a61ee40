"""Log of the problems that come up while a crib is served: the operator of a gateway sees no session's catalog."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable

from ..core.events import CatalogChanged, Problem
from ..crib import Toolcrib

__all__ = ["log_new_problems"]

_logger = logging.getLogger(__name__)


def log_new_problems(crib: Toolcrib) -> Callable[[], None]:
    """Log problems that there are not yet, once for as long as they last; return what ends it.

    Those of one source that are alike share a line. A source that is down is left out: its connection logs that. Names
    that look alike are logged a moment later, and those that there are already, too: they are looked for meanwhile.
    """
    known, alike = frozenset(crib.tools.failures), frozenset[Problem]()
    seeking: asyncio.Task[None] | None = None

    def look(_: CatalogChanged) -> None:
        nonlocal known, seeking
        known = _log_new(crib.tools.failures, known)
        if seeking is None or seeking.done():
            seeking = asyncio.get_running_loop().create_task(seek())

    async def seek() -> None:
        nonlocal alike
        alike = _log_new(await crib.tools.find_look_alikes(), alike)

    def end() -> None:
        unsubscribe()
        if seeking is not None:
            seeking.cancel()

    unsubscribe = crib.tools.on_change(look)
    seeking = asyncio.get_running_loop().create_task(seek())
    return end


def _log_new(found: Collection[Problem], known: frozenset[Problem]) -> frozenset[Problem]:
    now = frozenset(found)
    for line in _lines(problem for problem in found if problem not in known and not problem.outage):
        _logger.warning("%s", line)
    return now


def _lines(problems: Iterable[Problem]) -> list[str]:
    alike: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        alike.setdefault((problem.source, problem.code), []).append(problem)
    return [_line(first, len(others)) for first, *others in alike.values()]


def _line(problem: Problem, others: int) -> str:
    more = f" (and {others} more of {problem.source})" if others else ""
    return "; ".join(filter(None, (f"{problem.source}: {problem.message}{more}", problem.hint)))
