"""Log of the problems that come up while a crib is served: the operator of a gateway sees no session's catalog."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from ..core.events import CatalogChanged, Problem
from ..crib import Toolcrib
from ..crib.problem_summaries import summaries

_logger = logging.getLogger(__name__)


def log_new_problems(crib: Toolcrib, known: Collection[Problem] = ()) -> None:
    """Log problems that are not `known`, now and as they come up, once for as long as they last.

    Those that all tools of a server have share a line. A source that is down is left out: its connection logs that.
    Names that look alike are logged a moment later, also those that there are already: they are looked for meanwhile.
    """
    logged, alike = frozenset(known), frozenset[Problem]()
    seeking: asyncio.Task[None] | None = None

    def look(_: CatalogChanged | None) -> None:
        nonlocal logged, seeking
        logged = _log_new(crib, crib.tools.failures, logged)
        if seeking is None or seeking.done():
            seeking = asyncio.get_running_loop().create_task(seek())

    async def seek() -> None:
        nonlocal alike
        alike = _log_new(crib, await crib.tools.find_look_alikes(), alike)

    crib.tools.on_change(look)
    look(None)


def _log_new(crib: Toolcrib, found: Collection[Problem], known: frozenset[Problem]) -> frozenset[Problem]:
    new = (problem for problem in found if problem not in known and not problem.outage)
    for _, line in summaries(new, crib.settings.file_options):
        _logger.warning("%s", line)
    return frozenset(found)
