"""The one thread that writes: what waits is committed together.

    loop ── run(work) ──► queue ──► thread: BEGIN IMMEDIATE, every waiting work, COMMIT ──► all callers at once
         ── later(work) ► backlog ─────┘ taken along by the next commit, at the latest after 250 ms

A commit is one sync of the disk however many calls stand in it, so concurrent callers share its price. Work given
to `later` costs its caller an append; it is kept over a full disk and written when there is room again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

import anyio

from ..errors import ToolcribError, ToolFailure, UsageError
from .chain import Transaction
from .db import STORAGE_ERRORS, Database

__all__ = ["Work", "Writer"]

T = TypeVar("T")

Work = Callable[..., Any]
"""Called in the writer's thread as `work(transaction, *args)`; may be called again when its commit failed."""

_LATER_SECONDS: Final = 0.25
_LATER_ROWS: Final = 256
_RETRY_SECONDS: Final = 1.0
_BACKLOG_ROWS: Final = 10_000
"""Rows kept in memory while nothing can be written; the oldest are given up first, and counted."""

_logger = logging.getLogger(__name__)


class _Signal(Enum):
    WAKE = 1
    """The backlog is no longer empty: write it within `_LATER_SECONDS`."""
    FULL = 2
    """Write the backlog now."""
    STOP = 3


@dataclass(frozen=True, slots=True)
class _Job:
    work: Work
    args: tuple[Any, ...]
    durable: bool
    keep: bool
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class Writer:
    """Owns the writing connection and its thread, from `start` to `close`. Used from any event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queue: queue.SimpleQueue[_Job | _Signal] = queue.SimpleQueue()
        self._later: deque[tuple[Work, tuple[Any, ...]]] = deque()
        self._connection: sqlite3.Connection | None = None
        self._prepare: Callable[[sqlite3.Connection], None] = database.migrate
        self._prepared = False
        self._synchronous = "NORMAL"
        self._thread = threading.Thread(target=self._run, name="toolcrib-store", daemon=True)
        self._closed = False
        self.lost = 0
        """Rows given up because nothing could be written for too long."""

    def start(self, prepare: Callable[[sqlite3.Connection], None]) -> None:
        """Begin; `prepare` makes a new connection ready, now or as soon as the file can be had.

        Raises what `prepare` raises on purpose (`ToolcribError`); a file that cannot be written now is not an error.
        """
        self._prepare = prepare
        try:
            self._ready_connection()
        except STORAGE_ERRORS as error:
            _logger.warning("the store cannot be written, side effects are refused until it can: %s", error)
            self._disconnect()
        except BaseException:
            self._disconnect()
            raise
        self._thread.start()

    async def run(self, work: Callable[..., T], *args: Any, durable: bool = False, keep: bool = False) -> T:
        """Run `work(transaction, *args)` in the next commit and return its value once that commit is done.

        `durable` waits for the disk itself. `keep` retries the work later when the disk refuses it now; the caller
        is told all the same, by `ToolFailure("storage")`.
        """
        if self._closed:
            raise UsageError("the store is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put(_Job(work, args, durable, keep, loop, future))
        return await future

    def later(self, work: Work, *args: Any) -> None:
        """Run `work(transaction, *args)` with one of the next commits. Never waits, never raises."""
        self._later.append((work, args))
        waiting = len(self._later)
        if waiting == 1:
            self._queue.put(_Signal.WAKE)
        elif waiting == _LATER_ROWS:
            self._queue.put(_Signal.FULL)

    async def flush(self) -> None:
        """Return when everything that was given to `later` until now is committed."""
        await self.run(_nothing)

    async def close(self) -> None:
        """Write what waits, close the file and end the thread."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(_Signal.STOP)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join)

    def _run(self) -> None:
        due = math.inf
        stopping = False
        while not stopping:
            jobs, signals = self._next(due)
            stopping = _Signal.STOP in signals
            if _Signal.WAKE in signals:
                due = min(due, time.monotonic() + _LATER_SECONDS)
            if jobs or stopping or _Signal.FULL in signals or time.monotonic() >= due:
                written = self._write(jobs)
                due = math.inf if written else time.monotonic() + _RETRY_SECONDS
        self._disconnect()

    def _next(self, due: float) -> tuple[list[_Job], set[_Signal]]:
        """Wait for something to do and take all that waits."""
        taken: list[_Job | _Signal] = []
        with contextlib.suppress(queue.Empty):
            taken.append(self._queue.get(timeout=None if due == math.inf else max(0.0, due - time.monotonic())))
            while True:
                taken.append(self._queue.get_nowait())
        return [item for item in taken if isinstance(item, _Job)], {x for x in taken if isinstance(x, _Signal)}

    def _write(self, jobs: Sequence[_Job]) -> bool:
        """Commit the backlog and `jobs`, and tell the callers. Return whether the backlog is empty now."""
        backlog = self._take_backlog()
        try:
            values = self._commit(backlog, jobs)
        except STORAGE_ERRORS as error:
            _logger.warning("the store cannot be written: %s", error)
            if not _is_passing(error):
                self._disconnect()
            self._put_back([*backlog, *((job.work, job.args) for job in jobs if job.keep)])
            _tell(jobs, [_storage_failure(error) for _ in jobs])
            return False
        except Exception:  # one bad work must not undo its neighbours: each gets a commit of its own
            _logger.debug("a commit is taken apart", exc_info=True)
            values = self._commit_singly(backlog, jobs)
        _tell(jobs, values)
        return True

    def _commit(self, backlog: Sequence[tuple[Work, tuple[Any, ...]]], jobs: Sequence[_Job]) -> list[Any]:
        connection = self._ready_connection()
        wanted = "FULL" if any(job.durable for job in jobs) else "NORMAL"
        if wanted != self._synchronous:
            connection.execute(f"PRAGMA synchronous={wanted}")
            self._synchronous = wanted
        transaction = Transaction(connection)
        connection.execute("BEGIN IMMEDIATE")
        try:
            for work, args in backlog:
                work(transaction, *args)
            values = [job.work(transaction, *job.args) for job in jobs]
            transaction.write_head()
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return values

    def _commit_singly(self, backlog: Sequence[tuple[Work, tuple[Any, ...]]], jobs: Sequence[_Job]) -> list[Any]:
        for item in backlog:
            try:
                self._commit([item], ())
            except Exception:
                self.lost += 1
                _logger.exception("a row could not be recorded")
        values: list[Any] = []
        for job in jobs:
            try:
                values += self._commit((), [job])
            except STORAGE_ERRORS as error:
                values.append(_storage_failure(error))
            except ToolcribError as error:
                values.append(error)
            except Exception as error:
                _logger.exception("the store could not do %s", job.work)
                values.append(error)
        return values

    def _take_backlog(self) -> list[tuple[Work, tuple[Any, ...]]]:
        taken: list[tuple[Work, tuple[Any, ...]]] = []
        with contextlib.suppress(IndexError):
            while True:  # until it is empty: whoever appends to an empty one wakes the thread again
                taken.append(self._later.popleft())
        return taken

    def _put_back(self, rows: Sequence[tuple[Work, tuple[Any, ...]]]) -> None:
        excess = max(0, len(rows) - _BACKLOG_ROWS)
        self.lost += excess
        self._later.extendleft(reversed(rows[excess:]))

    def _ready_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._database.connect()
            self._synchronous = "NORMAL"
            self._prepared = False
        if not self._prepared:
            self._prepare(self._connection)
            self._prepared = True
        return self._connection

    def _disconnect(self) -> None:
        """Drop the connection; the next commit opens another. A store in memory keeps the only one it has."""
        if self._connection is not None and (self._database.path is not None or self._closed):
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None


def _nothing(transaction: Transaction) -> None:
    """Take part in a commit."""


def _is_passing(error: Exception) -> bool:
    """Whether the connection is as good as before: no room, a busy neighbour, a failed write that was rolled back."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _storage_failure(error: Exception) -> ToolFailure:
    return ToolFailure(
        "storage",
        f"the call could not be recorded: {error}",
        hint="Nothing with side effects runs until the store can be written again; reads go on.",
    )


def _tell(jobs: Sequence[_Job], values: Sequence[Any]) -> None:
    """Hand every value or exception to its caller: one wake-up a loop, however many calls."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for job, value in zip(jobs, values, strict=True):
        by_loop.setdefault(job.loop, []).append((job.future, value))
    for loop, outcomes in by_loop.items():
        with contextlib.suppress(RuntimeError):  # that loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, outcomes)


def _settle(outcomes: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, value in outcomes:
        if future.done():
            continue
        if isinstance(value, Exception):
            future.set_exception(value)
        else:
            future.set_result(value)
