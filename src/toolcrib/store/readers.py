"""Readers: the connections of queries, and the threads that run them where a network may be slow.

    reads     where a query runs                            database
    writer    in the writer's thread, behind the writes     memory: it has one connection
    inline    at once, on the event loop                    SQLite file: microseconds
    thread    in one of `_MAX_THREADS` threads of the reader    PostgreSQL: a network may be slow

A query sees what was committed; what `Writer.later` was given may not be there yet (`Writer.flush`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, TypeVar

from anyio import to_thread
from msgspec import Struct

from ..errors import ToolFailure
from .chain import Transaction
from .database import Connection, Database, OwnConnection, reason_of
from .threads import Writer, tell

_logger = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_THREADS: Final = 4
"""Threads that read at the same time, where reads have threads, and the most connections that stay open unused."""
_REST_SECONDS: Final = 10.0
"""A thread without a query for so long ends."""


class _Query(Struct):
    """A query that waits for a thread, with all that wait for its value."""

    query: Callable[[Connection], Any]
    shared: Hashable
    callers: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[Any]]]


class Reader:
    """Runs queries; connects at the first one, closed with the store. May be used from several threads.

    Connections are opened as they are needed, and at most `_MAX_THREADS` stay open unused.
    """

    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer
        self._idle: list[OwnConnection] = []
        self._lock = threading.Lock()
        """Guards what follows, and `_idle`."""
        self._queue: queue.SimpleQueue[_Query] = queue.SimpleQueue()
        self._shared: dict[Hashable, _Query] = {}
        """Of the queue, what further callers may share."""
        self._threads = self._resting = 0
        self._is_closed = False
        self._failed = ""
        """Reason of the last failure, which is logged once."""

    async def read(self, query: Callable[[Connection], T], *, shared: Hashable = None) -> T:
        """Return `query(connection)`, for short queries. Raises `ToolFailure("storage")`.

        Queries with an equal `shared`, of callers that wait at the same time, are one: it begins after all have asked.
        """
        if self._database.reads == "writer":
            return await self._writer.run(_inside, query)
        try:
            return self._query(query) if self._database.reads == "inline" else await self._ask(query, shared)
        except Exception as error:
            if not self._database.is_failure(error):
                raise
            raise self._failure(error) from error

    async def rows(
        self, make: Callable[[Sequence[Any]], T], sql: str, parameters: Sequence[Any] = (), *, apart: bool = False
    ) -> list[T]:
        """Return `make` of each row of one statement, of `read` or of `read_apart`."""

        def query(connection: Connection) -> list[T]:
            return [make(row) for row in connection.execute(sql, parameters).fetchall()]

        return await (self.read_apart(query) if apart else self.read(query))

    async def row(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Return the first row of one statement, None if it has none."""
        return await self.read(lambda connection: connection.execute(sql, parameters).fetchone())

    async def read_apart(self, query: Callable[[OwnConnection], T]) -> T:
        """Return `query(connection)`, for long queries: in a thread, alone on a connection, of one moment.

        In a thread of the pool on every kind of database, but memory; the transaction makes several statements see one
        state.
        """
        if self._database.reads == "writer":
            return await self._writer.run(_inside, query)
        try:
            return await to_thread.run_sync(self._query_apart, query)
        except Exception as error:
            if not self._database.is_failure(error):
                raise
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> ToolFailure:
        """Return the failure for callers, and log the message of the database, which has its address."""
        reason = reason_of(error)
        level = logging.DEBUG if reason in (self._failed, self._writer.failure) else logging.WARNING
        self._failed = reason
        _logger.log(level, "the store cannot be read: %s", reason)
        message = f"the store cannot be read: {self._database.cause(error)}"
        return ToolFailure("storage", message, hint="`toolcrib doctor` reports the cause.")

    def close(self) -> None:
        """Close the connections, those of queries that still run when they end."""
        self._is_closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def _take(self) -> OwnConnection:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is not None and not connection.is_current():
            connection.close()
            connection = None
        return connection or self._database.connect_reader()

    def _give_back(self, connection: OwnConnection) -> None:
        with self._lock:
            is_kept = len(self._idle) < _MAX_THREADS and not self._is_closed
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()

    def _ask(self, query: Callable[[Connection], T], shared: Hashable) -> asyncio.Future[T]:
        """Have a thread run the query, or wait for the one that is shared.

        A thread is started only if more queries wait than threads rest.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            item = self._shared.get(shared)
            if item is None:
                item = _Query(query, shared, [])
                self._queue.put(item)
                if shared is not None:
                    self._shared[shared] = item
            item.callers.append((loop, future))
            is_thread_missing = self._queue.qsize() > self._resting and self._threads < _MAX_THREADS
            self._threads += is_thread_missing
        if is_thread_missing:
            threading.Thread(target=self._answer, name="toolcrib-read", daemon=True).start()
        return future

    def _answer(self) -> None:
        """Run queries, until none has come for a while."""
        while items := self._next():
            values = [(item, self._outcome(item.query)) for item in items]
            tell((*caller, value) for item, value in values for caller in item.callers)

    def _next(self) -> list[_Query]:
        """Wait for a query, and take with it the share of this thread in those that wait; none where none has come.

        Ends the thread when none came for `_REST_SECONDS`.
        """
        with self._lock:
            self._resting += 1
        found: list[_Query] = []
        with contextlib.suppress(queue.Empty):
            found.append(self._queue.get(timeout=_REST_SECONDS))
        with self._lock:
            self._resting -= 1
            with contextlib.suppress(queue.Empty):  # a query may have come just after the wait
                while self._queue.qsize() >= _MAX_THREADS * len(found):
                    found.append(self._queue.get_nowait())
            for item in found:
                self._shared.pop(item.shared, None)
            self._threads -= not found
        return found

    def _outcome(self, query: Callable[[Connection], Any]) -> Any:
        """Return the value of a query, or its exception."""
        try:
            return self._query_again(query)
        except Exception as error:  # noqa: BLE001 - the caller raises it
            return error

    def _query(self, query: Callable[[Connection], T]) -> T:
        connection = self._take()
        try:
            value = query(connection)
        except BaseException:
            connection.close()
            raise
        self._give_back(connection)
        return value

    def _query_again(self, query: Callable[[Connection], T]) -> T:
        """Retry on a new connection if the query fails on an idle one, which may be dead."""
        fresh = not self._idle
        try:
            return self._query(query)
        except Exception as error:
            if fresh or not self._database.is_failure(error):
                raise
            self._close_idle()
            return self._query(query)

    def _query_apart(self, query: Callable[[OwnConnection], T]) -> T:
        connection = self._begin_reading()
        try:
            value = query(connection)
            connection.rollback()
        except BaseException:
            connection.close()
            raise
        self._give_back(connection)
        return value

    def _begin_reading(self) -> OwnConnection:
        """Return a connection in a transaction. An idle one may be dead: this shows it before the query runs at all."""
        fresh = not self._idle
        connection = self._take()
        try:
            connection.begin_reading()
        except BaseException as error:
            connection.close()
            if fresh or not self._database.is_failure(error):
                raise
            self._close_idle()
            return self._begin_reading()
        return connection


def _inside(transaction: Transaction, query: Callable[[OwnConnection], T]) -> T:
    transaction.write()  # the query names its tables to the connection, which knows nothing of gathered rows
    return query(transaction.connection)
