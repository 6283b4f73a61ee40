"""Reading: inline on a connection of its own, which in WAL mode never waits for the writer.

A point read costs some ten microseconds, less than a hop to a thread. A store in memory has one connection only, so
its reads take their turn in the writer's thread.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from typing import TypeVar

from anyio import to_thread

from ..errors import ToolFailure
from .chain import Transaction
from .db import STORAGE_ERRORS, Database
from .writer import Writer

__all__ = ["Reader"]

T = TypeVar("T")


class Reader:
    """Runs queries; opened at the first one, closed with the store. May be used from several threads."""

    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Return `query(connection)`, for queries of microseconds. Raises `ToolFailure("storage")`."""
        if self._database.path is None:
            return await self._writer.run(_inside, query)
        try:
            with self._lock:
                if self._connection is None:
                    self._connection = self._database.connect_reader()
                return query(self._connection)
        except STORAGE_ERRORS as error:
            self.close()
            raise _failure(error) from error

    async def read_apart(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Return `query(connection)`, for long queries: in a thread, on a connection of their own."""
        if self._database.path is None:
            return await self._writer.run(_inside, query)
        try:
            return await to_thread.run_sync(self._query_apart, query)
        except STORAGE_ERRORS as error:
            raise _failure(error) from error

    def close(self) -> None:
        """Close the connection; the next read opens another."""
        with self._lock:
            if self._connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.close()
                self._connection = None

    def _query_apart(self, query: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._database.connect_reader()
        try:
            return query(connection)
        finally:
            connection.close()


def _inside(transaction: Transaction, query: Callable[[sqlite3.Connection], T]) -> T:
    return query(transaction.connection)


def _failure(error: Exception) -> ToolFailure:
    return ToolFailure("storage", f"the store cannot be read: {error}", hint="`toolcrib doctor` says what is wrong.")
