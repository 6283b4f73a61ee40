"""Sessions of programs in the sandbox, which the package of an entry point serves."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import cast

from anyio import to_thread

from ..core.context import Context
from ..core.entry_points import PROGRAM_SESSIONS, installed
from ..core.host import ProgramRequest, ServedTools
from .assembly import Parts

__all__ = ["ProgramSessions", "programs_of"]

_logger = logging.getLogger(__name__)

ProgramSessions = Callable[[Parts, Context, ProgramRequest], AbstractAsyncContextManager[ServedTools | None]]
"""Target of the entry point: serves the session of a program; the context is the call that starts the program."""


def programs_of(parts: Parts) -> Callable[[Context, ProgramRequest], AbstractAsyncContextManager[ServedTools | None]]:
    """Return what serves sessions of a crib to programs; it gives None where no package does."""

    @asynccontextmanager
    async def serve(context: Context, request: ProgramRequest) -> AsyncGenerator[ServedTools | None]:
        sessions = await to_thread.run_sync(_loaded)  # it brings the MCP server
        if sessions is None:
            yield None
            return
        async with sessions(parts, context, request) as served:
            yield served

    return serve


def _loaded() -> ProgramSessions | None:
    """Return the target of the entry point; None where there is none, or it cannot be loaded."""
    for point in installed(PROGRAM_SESSIONS):
        try:
            return cast("ProgramSessions", point.load())
        except Exception:  # the code of another package
            _logger.warning("sessions of programs cannot be served by %s", point.value, exc_info=True)
    return None
