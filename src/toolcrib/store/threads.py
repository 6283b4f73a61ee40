"""The one writer thread, with group commit.

    event loops ── run(work) ──► queue ──┐
                ── later(work) ► deque ──┴─► thread `toolcrib-store`: begin, all works, Transaction.write, commit
                ◄── futures, by call_soon_threadsafe ──┘

All that waits when a commit begins takes part in it (group commit): a sync of the disk serves many calls. A `work` is
run again when a neighbour in its commit failed, or its own commit did: it has no effect outside of its transaction.

    the disk refuses       callers of `run` get `storage`; `keep` and `later` are tried again each second
    a work raises          the commit is taken apart, and each work gets a commit of its own
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any, Final, TypeVar

import anyio
from msgspec import Struct

from ..errors import ToolcribError, ToolFailure, UsageError
from .chain import Transaction
from .database import Database, NewerStore, OwnConnection, reason_of

Work = Callable[..., Any]
"""Called in the writer's thread as `work(transaction, *args)`; may be called again when its commit failed."""

_LATER_SECONDS: Final = 0.25
_LATER_ROWS: Final = 256
_RETRY_SECONDS: Final = 1.0
_BACKLOG_ROWS: Final = 10_000
"""Rows kept in memory while nothing can be written; the oldest are given up first, and counted."""

_PROOF: Final = "INSERT INTO meta VALUES ('written', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
"""One small row that shows after a failure that the disk takes writes again."""

_logger = logging.getLogger(__name__)

T = TypeVar("T")


class _Signal(Enum):
    WAKE = 1
    """Signal that the backlog is not empty: it is written within `_LATER_SECONDS`."""
    FULL = 2
    """Write the backlog now."""
    STOP = 3


class _Job(Struct, frozen=True):
    work: Work
    args: tuple[Any, ...]
    durable: bool
    keep: bool
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class Writer:
    """Owns the writing connection and its thread, from `start` to `close`. Used from any event loop.

    The connection is used by the thread alone. Everything else may be called from any thread with an event loop (`run`)
    or from any thread at all (`later`).
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queue: queue.SimpleQueue[_Job | _Signal] = queue.SimpleQueue()
        self._later: deque[tuple[Work, tuple[Any, ...]]] = deque()
        self._connection: OwnConnection | None = None
        self._tidying: set[Work] = set()
        """Works that lose nothing when they are left undone."""
        self._uncounted: dict[tuple[str, str], int] = {}
        self._prepare: Callable[[OwnConnection], None] = database.migrate
        self._upkeep: Work = _nothing
        self._prepared = False
        self._thread = threading.Thread(target=self._run, name="toolcrib-store", daemon=True)
        self._had_place = False
        self._closed = False
        self.failure = ""
        """Reason of the last failed commit, for people; empty once one has succeeded since."""
        self.lost = 0
        """Rows given up because nothing could be written for too long."""

    def start(self, prepare: Callable[[OwnConnection], None], upkeep: Work) -> None:
        """Begin; `prepare` makes a new connection ready, now or once the database is reachable.

        `upkeep` runs periodically. Raises the deliberate errors of `prepare` (`ToolcribError`); an unreachable database
        is not an error.
        """
        self._prepare = prepare
        self._upkeep = upkeep
        self._tidying.add(upkeep)
        try:
            self._ready_connection()
        except Exception as error:
            self._disconnect()
            if not self._database.is_failure(error):
                raise
            self.failure = reason_of(error)
            _logger.warning("the store cannot be written, side effects are refused until it can: %s", self.failure)
            self._queue.put(_Signal.WAKE)
        self._thread.start()

    async def run(self, work: Callable[..., T], *args: Any, durable: bool = False, keep: bool = False) -> T:
        """Run `work(transaction, *args)` in the next commit and return its value once that commit is done.

        `durable` waits for the disk itself. `keep` retries the work later when the disk refuses it now; the caller
        gets `ToolFailure("storage")` all the same.

        A caller that is cancelled does not take its work back: it may be in a commit already.
        """
        if self._closed:
            raise UsageError("the store is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put(_Job(work, args, durable, keep, loop, future))
        return await future

    def later(self, work: Work, *args: Any) -> None:
        """Run `work(transaction, *args)` with one of the next commits. Never waits, never raises.

        At most `_BACKLOG_ROWS` are kept while nothing can be written; older ones are given up and counted in `lost`.
        """
        self._later.append((work, args))
        waiting = len(self._later)
        if waiting == 1:
            self._queue.put(_Signal.WAKE)
        elif waiting == _LATER_ROWS:
            self._queue.put(_Signal.FULL)

    def tidy(self, work: Work) -> None:
        """Run `work(transaction)` as `later` does; nothing is lost if the store is closed before."""
        self._tidying.add(work)
        self.later(work)

    async def flush(self) -> None:
        """Return when everything that was given to `later` until now is committed."""
        await self.run(_nothing)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    async def close(self) -> None:
        """Write the backlog, disconnect and end the thread. Unwritten items are lost, and counted."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(_Signal.STOP)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join)

    def _run(self) -> None:
        """Write until `close`; `due` is when the backlog has to be written, `tidy` when maintenance is."""
        due, tidy = math.inf, time.monotonic() + self._database.upkeep_seconds
        stopping = False
        while not stopping:
            jobs, signals = self._next(min(due, tidy))
            stopping = _Signal.STOP in signals
            if _Signal.WAKE in signals:
                due = min(due, time.monotonic() + _LATER_SECONDS)
            if time.monotonic() >= tidy and not stopping:
                tidy = time.monotonic() + self._database.upkeep_seconds
                if not jobs:
                    self._tidy_connection()
                if due == math.inf:  # otherwise a job is waiting already, and shows the state of the connection as well
                    self._later.append((self._upkeep, ()))
                    due = 0.0
            if jobs or stopping or _Signal.FULL in signals or time.monotonic() >= due:
                written = self._write(jobs)
                due = math.inf if written else time.monotonic() + _RETRY_SECONDS
        if lost := sum(work not in self._tidying for work, _ in self._later):
            self.lost += lost
            _logger.error("%d rows are lost: the store could not be written before it was closed", lost)
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
        """Commit the backlog and `jobs`, and notify the callers. Return whether nothing is left to retry."""
        backlog = self._take_backlog()
        try:
            values = self._commit(backlog, jobs)
        except Exception as error:
            if self._is_failure(error):
                self._refuse(backlog, jobs, error)
                return False
            if isinstance(error, ToolcribError) and len(jobs) == 1 and not backlog:
                values = [error]
            else:
                _logger.debug("a commit is taken apart", exc_info=True)  # one bad work must not undo its neighbours
                values = self._commit_singly(backlog, jobs)
        tell([(job.loop, job.future, value) for job, value in zip(jobs, values, strict=True)])
        return not self._later

    def _refuse(self, backlog: Sequence[tuple[Work, tuple[Any, ...]]], jobs: Sequence[_Job], error: Exception) -> None:
        """Keep jobs that can wait, and fail the others."""
        reason = reason_of(error)
        level = logging.DEBUG if reason == self.failure else logging.WARNING  # it is tried again every second
        _logger.log(level, "the store cannot be written: %s", reason)
        self.failure = reason
        if not self._database.is_passing(error):
            self._disconnect()
        self._put_back([*backlog, *((job.work, job.args) for job in jobs if job.keep)])
        tell([(job.loop, job.future, self._failure(error)) for job in jobs])

    def _is_failure(self, error: Exception) -> bool:
        """Whether the store is out of reach: also once a newer Toolcrib migrated it while this had no connection."""
        return self._database.is_failure(error) or (self._had_place and isinstance(error, NewerStore))

    def _failure(self, error: Exception) -> ToolFailure:
        """Return the failure for callers; the log and `failure` have the message of the database, with its address."""
        newer = isinstance(error, NewerStore)
        cause = "a newer Toolcrib has migrated the store" if newer else self._database.cause(error)
        return ToolFailure(
            "storage",
            f"the call could not be recorded: {cause}",
            hint="Nothing with side effects runs until the store can be written again; reads go on. "
            "`toolcrib doctor` reports the cause.",
        )

    def _commit(self, backlog: Sequence[tuple[Work, tuple[Any, ...]]], jobs: Sequence[_Job]) -> list[Any]:
        """Do all works in one transaction and return the values of `jobs`; a commit with a row clears `failure`."""
        connection = self._ready_connection()
        connection.begin(durable=any(job.durable for job in jobs))
        try:
            transaction = Transaction(connection, self._uncounted)
            for work, args in backlog:
                work(transaction, *args)
            values = [job.work(transaction, *job.args) for job in jobs]
            transaction.write()
            if self.failure:  # an empty commit succeeds on a full disk too
                transaction.execute(_PROOF, (str(time.time()),))
            connection.commit()
        except BaseException:
            _roll_back(connection)
            raise
        if self.failure:
            _logger.info("the store can be written again")
        self.failure = ""
        return values

    def _commit_singly(self, backlog: Sequence[tuple[Work, tuple[Any, ...]]], jobs: Sequence[_Job]) -> list[Any]:
        for item in backlog:
            try:
                self._commit([item], ())
            except Exception as error:
                if self._database.is_failure(error):
                    self._put_back([item])
                    continue
                self.lost += 1
                _logger.exception("a row could not be recorded")
        values: list[Any] = []
        for job in jobs:
            try:
                values += self._commit((), [job])
            except ToolcribError as error:
                values.append(error)
            except Exception as error:
                if self._database.is_failure(error):
                    values.append(self._failure(error))
                    self._put_back([(job.work, job.args)] if job.keep else [])
                    continue
                _logger.exception("the store could not do %s", job.work)
                values.append(error)
        return values

    def _take_backlog(self) -> list[tuple[Work, tuple[Any, ...]]]:
        taken: list[tuple[Work, tuple[Any, ...]]] = []
        with contextlib.suppress(IndexError):
            while True:  # until it is empty: an append to an empty one wakes the thread again
                taken.append(self._later.popleft())
        return taken

    def _put_back(self, rows: Sequence[tuple[Work, tuple[Any, ...]]]) -> None:
        excess = max(0, len(rows) - _BACKLOG_ROWS)
        self.lost += excess
        self._later.extendleft(reversed(rows[excess:]))

    def _ready_connection(self) -> OwnConnection:
        """Return the connection, a new one after a failure or where the file was replaced; each new one is prepared."""
        if self._connection is not None and not self._connection.is_current():
            self._disconnect()
        if self._connection is None:
            self._connection = self._database.connect(make=not self._had_place)
            self._prepared = False
        if not self._prepared:
            self._prepare(self._connection)
            self._prepared = self._had_place = True
        return self._connection

    def _tidy_connection(self) -> None:
        if self._connection is not None:
            try:
                self._connection.tidy()
            except Exception:  # the commit that follows meets the same error, and reports it
                _logger.debug("the database could not be tidied", exc_info=True)

    def _disconnect(self) -> None:
        """Drop the connection; the next commit opens another. A store in memory keeps the only one it has."""
        if self._connection is not None and (self._database.reads != "writer" or self._closed):
            self._connection.close()
            self._connection = None


def _nothing(transaction: Transaction) -> None:
    """Take part in a commit."""


def _roll_back(connection: OwnConnection) -> None:
    """End a transaction that failed; the error that matters is the one that made it fail."""
    try:
        connection.rollback()
    except Exception:
        _logger.debug("a transaction could not be rolled back", exc_info=True)


def tell(values: Iterable[tuple[asyncio.AbstractEventLoop, asyncio.Future[Any], Any]]) -> None:
    """Hand every value or exception to its caller: one wake-up a loop, however many calls."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for loop, future, value in values:
        by_loop.setdefault(loop, []).append((future, value))
    for loop, outcomes in by_loop.items():
        with contextlib.suppress(RuntimeError):  # that loop is closed: no caller waits any more
            loop.call_soon_threadsafe(_settle, outcomes)


def _settle(outcomes: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, value in outcomes:
        if future.done():
            continue
        if isinstance(value, Exception):
            future.set_exception(value)
        else:
            future.set_result(value)
