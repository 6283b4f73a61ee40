"""Log of the problems that come up while a crib is served: the operator of a gateway sees no session's catalog."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ..core.events import CatalogChanged, Problem
from ..crib import Toolcrib

__all__ = ["log_new_problems"]

_logger = logging.getLogger(__name__)


def log_new_problems(crib: Toolcrib) -> Callable[[], None]:
    """Log problems that there are not yet, once for as long as they last; return what ends it.

    Those of one source that are alike share a line. A source that is down is left out: its connection logs that.
    """
    known = frozenset(crib.tools.failures)

    def look(_: CatalogChanged) -> None:
        nonlocal known
        found = crib.tools.failures
        for line in _lines(problem for problem in found if problem not in known and not problem.outage):
            _logger.warning("%s", line)
        known = frozenset(found)

    return crib.tools.on_change(look)


def _lines(problems: Iterable[Problem]) -> list[str]:
    alike: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        alike.setdefault((problem.source, problem.code), []).append(problem)
    return [_line(first, len(others)) for first, *others in alike.values()]


def _line(problem: Problem, others: int) -> str:
    more = f" (and {others} more of {problem.source})" if others else ""
    return "; ".join(filter(None, (f"{problem.source}: {problem.message}{more}", problem.hint)))
