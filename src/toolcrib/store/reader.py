"""Reading: on connections of its own, which never wait for the writer.

SQLite: inline, a point read costs some ten microseconds, less than a hop to a thread. PostgreSQL: in a thread, since a
network may make it wait. A store in memory has one connection only, so its reads take their turn with the writes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

import anyio
from anyio import to_thread

from ..errors import ToolFailure
from .chain import Transaction
from .db import Connection, Database, OwnConnection
from .writer import Writer

__all__ = ["Reader"]

T = TypeVar("T")

_AT_ONCE: Final = 4
"""Connections that read at the same time, where reads have threads."""


class Reader:
    """Runs queries; connects at the first one, closed with the store. May be used from several threads."""

    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer
        self._idle: list[OwnConnection] = []
        self._lock = threading.Lock()
        self._limiter: anyio.CapacityLimiter | None = None

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Return `query(connection)`, for short queries. Raises `ToolFailure("storage")`."""
        if self._database.reads == "writer":
            return await self._writer.run(_inside, query)
        try:
            if self._database.reads == "inline":
                return self._query(query)
            self._limiter = self._limiter or anyio.CapacityLimiter(_AT_ONCE)
            return await to_thread.run_sync(self._query_again, query, limiter=self._limiter)
        except Exception as error:
            if not self._database.is_failure(error):
                raise
            raise _failure(error) from error

    async def read_apart(self, query: Callable[[OwnConnection], T]) -> T:
        """Return `query(connection)`, for long queries: in a thread, on a connection of their own, of one moment."""
        if self._database.reads == "writer":
            return await self._writer.run(_inside, query)
        try:
            return await to_thread.run_sync(self._query_apart, query)
        except Exception as error:
            if not self._database.is_failure(error):
                raise
            raise _failure(error) from error

    def close(self) -> None:
        """Close the connections; the next read opens another."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def _query(self, query: Callable[[Connection], T]) -> T:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is not None and not connection.is_current():
            connection.close()
            connection = None
        connection = connection or self._database.connect_reader()
        try:
            value = query(connection)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._idle.append(connection)
        return value

    def _query_again(self, query: Callable[[Connection], T]) -> T:
        """A connection that idled may be dead: what fails on one is tried on a new one."""
        fresh = not self._idle
        try:
            return self._query(query)
        except Exception as error:
            if fresh or not self._database.is_failure(error):
                raise
            self.close()
            return self._query(query)

    def _query_apart(self, query: Callable[[OwnConnection], T]) -> T:
        connection = self._database.connect_reader()
        try:
            connection.begin_reading()
            return query(connection)
        finally:
            connection.close()


def _inside(transaction: Transaction, query: Callable[[OwnConnection], T]) -> T:
    return query(transaction.connection)


def _failure(error: Exception) -> ToolFailure:
    return ToolFailure("storage", f"the store cannot be read: {error}", hint="`toolcrib doctor` says what is wrong.")
