"""Sessions of programs in the sandbox: what one asks for, and the package that serves it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from ..core.context import Context
from ..core.entry_points import PROGRAM_SESSIONS, installed
from ..core.host import ServedTools

if TYPE_CHECKING:
    from .assembly import Parts

__all__ = ["ProgramRequest", "ProgramSessions", "program_sessions"]

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRequest:
    """Session that a program is to have; see `core.context.CallHost.serve`."""

    folder: Path
    categories: frozenset[str]
    read_only: frozenset[str]
    mode: str


ProgramSessions = Callable[["Parts", Context, ProgramRequest], AbstractAsyncContextManager[ServedTools | None]]
"""Serves the session of a program; the context is the call that starts the program."""


def program_sessions() -> ProgramSessions | None:
    """Return the target of the entry point; None where there is none, or it cannot be loaded."""
    for point in installed(PROGRAM_SESSIONS):
        try:
            return cast("ProgramSessions", point.load())
        except Exception:  # noqa: BLE001 - the code of another package
            _LOG.warning("sessions of programs cannot be served by %s", point.value, exc_info=True)
    return None
