"""Tools with requirements, hidden until a session meets them.

Until then they are not in the catalog at all, so that they take no name from a mounted tool. After that they are in the
scope of the sessions that have what they need (`SessionState.admits`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..sources.combinators import innermost
from ..sources.python import PythonSource
from ..sources.source import Source


def provide(sources: Iterable[Source], there: frozenset[str]) -> None:
    """Let the sources list what needs no more than this, or than what was provided before."""
    for source in map(innermost, tuple(sources)):
        if isinstance(source, PythonSource):
            source.provide(there)


def held(sources: Iterable[Source]) -> Mapping[str, str]:
    """Return the category of each tool that no session can have yet, by its name."""
    found = (source for source in map(innermost, sources) if isinstance(source, PythonSource))
    return {name: source.category(name) for source in found for name in source.held}


def held_back(sources: Iterable[Source], name: str) -> tuple[str, frozenset[str]] | None:
    """Return the source of the tool of that name that no session can have yet, and what it needs."""
    found = ((source.name, source.held) for source in map(innermost, sources) if isinstance(source, PythonSource))
    return next(((source, frozenset(held[name])) for source, held in found if name in held), None)
