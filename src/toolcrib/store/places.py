"""Where a store is kept: a file, a memory, or PostgreSQL by URL."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Final

from ..errors import UsageError
from .db import Database
from .sqlite import SqliteDatabase

__all__ = ["database_at", "is_url"]

_SCHEMES: Final = ("postgresql://", "postgres://")


def is_url(place: str) -> bool:
    """Whether `place` names a PostgreSQL database."""
    return place.startswith(_SCHEMES)


def database_at(place: Path | str | None) -> Database:
    """Return the database at a path, at a `postgresql://` URL, or in memory for None.

    Raises `UsageError` for another URL, and when the extra `postgres` is not installed.
    """
    if place is None or isinstance(place, Path):
        return SqliteDatabase(place)
    if not is_url(place):
        scheme = place.partition(":")[0]
        raise UsageError(f"store: {scheme}:… is no store; give postgresql://… or leave it out for a file of its own")
    try:
        database: Database = import_module(".postgres", __package__).PostgresDatabase(place)
    except ModuleNotFoundError as error:
        raise UsageError("a store in PostgreSQL needs the extra: pip install 'toolcrib[postgres]'") from error
    except ImportError as error:  # psycopg is there and its C library is not
        raise UsageError(f"PostgreSQL cannot be used: {error}; pip install 'toolcrib[postgres]'") from error
    return database
