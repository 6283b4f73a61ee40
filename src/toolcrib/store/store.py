"""Store: one database, one writer thread, and the tables of each feature.

Retention drops too old or too many records from the beginning, never from the middle. A drop is a record itself: a row
with the last dropped row and its hash, from which the rest is proven. Rows that no longer verify are not dropped: they
are evidence.

    Store
      ├─ Writer     one thread, one connection: every change                          (threads)
      ├─ Reader     queries                                                           (readers)
      ├─ Lease      the sign of life by which other processes know that this one works (database)
      ├─ Vault      seals what must not be readable in the database                   (vault)
      └─ calls, approvals, jobs, records, …    one class a feature: its SQL, on the four above
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

import anyio

from ..core.extras import install_extra
from ..errors import ToolcribError, ToolFailure, UsageError
from .approvals import ApprovalRows
from .budgets import BudgetRows
from .calls import Calls, Redact, settle_intents
from .chain import Head, Transaction, broken, dropped_row, put_head, read_head, rows_from
from .conversations import ConversationRows
from .database import Connection, Database, OwnConnection, reason_of
from .definitions import Pins, RegistrationRows
from .file_changes import PendingChanges
from .idempotency import Receipts, WorkflowRuns, forget_receipts, settle_receipts
from .jobs import JobRows
from .readers import Reader
from .records import RecordRows
from .schedules import ScheduleRows
from .services import ServiceRows
from .settings import Retention, is_url
from .shared.rows import SharedRows, forget_events
from .sqlite import SqliteDatabase
from .tainted_files import TaintedFileRows
from .threads import Writer
from .vault import Vault, purpose_of

BATCH: Final = 1000
"""Rows that one commit drops: some 20 ms, checked first."""

_logger = logging.getLogger(__name__)

_CHECK_SECONDS: Final = 2.0
"""The most that `Store.check` takes."""

_DROP_SECONDS: Final = 3600.0
"""Interval of retention sweeps."""

_SELECT_WAITING: Final[tuple[tuple[str, Literal["approval", "job", "schedule"], str], ...]] = (
    ("job", "job", "SELECT id, saved FROM jobs WHERE ended IS NULL"),
    ("schedule", "schedule", "SELECT id, saved FROM schedules WHERE status IN ('active', 'paused')"),
    ("message", "schedule", "SELECT id, saved FROM messages"),
    ("approval", "approval", "SELECT id, sealed FROM approvals WHERE sealed <> '' AND expires > ?"),
)
"""Rows that a key seals and that wait, by kind: for what they were sealed, and where they are."""


def _drop_old(transaction: Transaction, retention: Retention, now: float) -> int:
    """Drop at most `BATCH` of the oldest rows that `retention` lets go. Return how many.

    Checks each row against its neighbour before it is dropped. A drop moves `floor` and appends a row that says so, in
    the same commit.
    """
    head, floor = read_head(transaction), read_head(transaction, "floor")
    target = min(_last_to_go(transaction, retention, floor, head, now), floor.seq + BATCH)
    if target <= floor.seq:
        return 0
    reached = floor
    for seq, *values, prev, digest in rows_from(transaction, floor.seq + 1):
        if problem := broken(reached, seq, values, (prev, digest)):
            _logger.error("no records are dropped, the chain is broken: %s", problem)
            return 0
        reached = Head(seq=seq, hash=digest)
        if seq == target:
            break
    if reached.seq != target:
        _logger.error("no records are dropped, the chain ends at row %d before its head %d", reached.seq, head.seq)
        return 0
    transaction.execute("DELETE FROM calls WHERE seq <= ?", (target,))
    put_head(transaction, reached, "floor")
    transaction.append(dropped_row(reached, floor.seq + 1, str(retention), now))
    return target - floor.seq


def _last_to_go(transaction: Transaction, retention: Retention, floor: Head, head: Head, now: float) -> int:
    """The last row that is too old or too much; the row of this drop counts already."""
    is_more = 0 < retention.max_rows < head.seq - floor.seq
    last = head.seq + 1 - retention.max_rows if is_more else 0
    if retention.keep:
        sql = "SELECT seq FROM calls WHERE finished >= ? ORDER BY seq LIMIT 1"
        first = transaction.execute(sql, (now - retention.keep,)).fetchone()
        last = max(last, first[0] - 1 if first else head.seq)
    return min(last, head.seq)


def database_at(place: Path | str | None) -> Database:
    """Return the database at a path, at a `postgresql://` URL, or in memory for None.

    Raises `UsageError` for another URL, and when the extra `postgres` is not installed.
    """
    if place is None or isinstance(place, Path):
        return SqliteDatabase(place)
    if not is_url(place):
        scheme = place.partition(":")[0]
        raise UsageError(f"store: {scheme}:… is not a store; give postgresql://… or leave it out for a file of its own")
    try:
        from .postgres import PostgresDatabase  # needs psycopg, of the extra `postgres`

        database: Database = PostgresDatabase(place)
    except ModuleNotFoundError as error:
        raise UsageError(f"PostgreSQL cannot be used; {install_extra('postgres')}") from error
    except ImportError as error:  # psycopg is there and its C library is not
        raise UsageError(f"PostgreSQL cannot be used: {error}; {install_extra('postgres')}") from error
    return database


class Store:
    """Toolcrib's persistent state. Open from `open` to `close`; several processes may have the same place open.

    `start` opens the place, makes the tables and settles what dead processes left; it blocks meanwhile. The others are
    for event loops and block none, but for short queries of a SQLite file.
    """

    def __init__(
        self,
        place: Path | str | None,
        *,
        redact: Redact | None = None,
        clock: Callable[[], float] = time.time,
        vault: Vault | None = None,
        retention: Retention | None = None,
        must_record: bool = True,
    ) -> None:
        """Take a store that `start` opens: in a file, made when missing (0600, its folder 0700), or in PostgreSQL.

        None keeps everything in memory. `redact` is applied to the arguments of calls before they are stored, in the
        writer's thread. The default `vault` has its key in the file `key` beside the store; for other places its key
        ends with the process. Without `must_record` calls run also while they cannot be recorded: their rows wait.
        Raises `UsageError` for an unusable URL.
        """
        if vault is None:
            vault = Vault(file=place.with_name("key") if isinstance(place, Path) else None)
        self.vault = vault
        """Encrypts data that must be stored and not be readable."""
        self._clock = clock
        self._retention = retention or Retention.model_construct()
        self._drops_at_once = retention is not None
        self._drop_at = 0.0
        self._checks: anyio.CapacityLimiter | None = None
        self._database = database_at(place)
        self._lease = self._database.lease()
        self._writer = Writer(self._database)
        self._reader = Reader(self._database, self._writer)
        self.calls = Calls(self._writer, self._reader, self._lease, redact, must_record=must_record)
        self.conversations = ConversationRows(self._writer, self._reader)
        self.pins = Pins(self._writer, self._reader)
        self.receipts = Receipts(self._writer, self._lease, clock)
        self.registrations = RegistrationRows(self._writer, self._reader, vault)
        self.records = RecordRows(self._writer, self._reader, clock)
        self.shared = SharedRows(self._writer, self._reader, self._lease, clock)
        self.workflows = WorkflowRuns(self._writer, self._reader, vault, clock)
        self.budgets = BudgetRows(self._writer, self._reader)
        self.approvals = ApprovalRows(self._writer, self._reader, self._lease, vault, clock)
        self.jobs = JobRows(self._writer, self._reader, self._lease)
        self.pending = PendingChanges(self._writer, self._reader, vault, clock)
        self.services = ServiceRows(self._writer, self._lease)
        self.tainted_files = TaintedFileRows(self._writer, self._reader, is_private=place is None)
        self.schedules = ScheduleRows(self._writer, self._reader, self._lease, is_private=place is None)

    @classmethod
    def open(
        cls,
        place: Path | str | None,
        *,
        redact: Redact | None = None,
        clock: Callable[[], float] = time.time,
        vault: Vault | None = None,
        retention: Retention | None = None,
    ) -> Self:
        """Return the store with these arguments, started."""
        store = cls(place, redact=redact, clock=clock, vault=vault, retention=retention)
        store.start()
        return store

    def start(self) -> None:
        """Open the database. Intents that a crash left behind are settled as `outcome_unknown`.

        A place that cannot be written is not an error here: side-effecting calls are refused until it can. Raises
        `UsageError` when a newer Toolcrib wrote the store.
        """
        self._writer.start(self._prepare, self._upkeep)
        if self._drops_at_once:
            self._writer.tidy(self._drop)

    @property
    def place(self) -> str:
        """Location for display: a file, a URL without its password, or `memory`."""
        return self._database.place

    async def settle(self) -> set[str]:
        """Settle the unfinished work of dead stores, and return the ids of the calls that became unknown.

        Runs automatically when a store is opened, and then every minute (PostgreSQL: every 10 s).
        """
        return await self._writer.run(self._settle)

    @property
    def lost(self) -> int:
        """Rows of reads given up because the place could not be written for too long."""
        return self._writer.lost

    @property
    def failure(self) -> str:
        """Reason why the last commit failed, for people; empty while commits succeed."""
        return self._writer.failure

    async def check(self, seconds: float = _CHECK_SECONDS) -> str:
        """Return why no call can be recorded now, for people; empty while the store works.

        Takes at most `seconds` and writes nothing: an empty transaction shows whether the place answers and is still
        the one that was opened, the state of the last commit whether the disk took it.
        """
        if self._writer.is_closed:
            return "the store is closed"
        if self._writer.failure:
            return self._writer.failure
        with anyio.move_on_after(seconds):
            try:
                if self._checks is None:
                    self._checks = anyio.CapacityLimiter(1)  # a disk that hangs holds one thread, not one a check
                await anyio.to_thread.run_sync(self._database.check, limiter=self._checks, abandon_on_cancel=True)
                await self._writer.flush()
            except ToolcribError as error:
                return self._writer.failure or reason_of(error)
            except Exception as error:
                if not self._database.is_failure(error):
                    raise
                return reason_of(error)
            return ""
        return f"the store has not answered within {seconds:g} s"

    async def schema(self) -> int:
        """Return the number of the newest migration that ran."""
        return int((await self._reader.row("SELECT max(version) FROM schema_version"))[0])

    async def unreadable(self) -> Mapping[str, int]:
        """Count what waits here and cannot go on, by kind (`job`, `schedule`, `approval`): another key sealed it."""
        return await self._reader.read_apart(partial(_unreadable, vault=self.vault, now=self._clock()))

    async def flush(self) -> None:
        """Return when everything noted until now is committed."""
        await self._writer.flush()

    async def close(self) -> None:
        """Write the backlog, and close. A second call has no effect."""
        self._reader.close()  # first: the last connection to close folds the log into the file, and it must write
        with anyio.CancelScope(shield=True):
            if not self._writer.is_closed:
                with suppress(ToolFailure):  # a store that fails to sign off is detected as gone all the same
                    await self._writer.run(self._lease.give_up)
            await self._writer.close()
        self._lease.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _prepare(self, connection: OwnConnection) -> None:
        """Prepare a new connection: the schema, our lease, and the unfinished work of dead stores."""
        self._database.migrate(connection)
        self._lease.take(connection)
        connection.begin(durable=False)
        try:
            transaction = Transaction(connection)
            self._settle(transaction)
            transaction.write()
            connection.commit()
        except BaseException:
            connection.rollback()
            raise

    def _settle(self, transaction: Transaction) -> set[str]:
        """Record the outcome of calls and requests of dead stores; forget their projects, old receipts and events.

        Order: calls that may have run become `outcome_unknown` first, because the receipts of exactly these become
        unknown, while those of calls that never began are free again.
        """
        unknown = settle_intents(transaction, self._lease, self._clock())
        settle_receipts(transaction, self._lease, unknown)
        forget_receipts(transaction, self._clock())
        forget_events(transaction)
        self.shared.forget_unfinished(transaction)
        self._lease.sweep(transaction)
        return unknown

    def _upkeep(self, transaction: Transaction) -> None:
        """Periodic maintenance, in the writer's thread."""
        self._settle(transaction)
        if time.monotonic() >= self._drop_at:
            self._drop(transaction)

    def _drop(self, transaction: Transaction) -> None:
        """Drop records that are too old, in batches so that no caller waits long; the next batch follows at once."""
        self._drop_at = time.monotonic() + _DROP_SECONDS
        if _drop_old(transaction, self._retention, self._clock()) == BATCH:
            self._writer.tidy(self._drop)


def _unreadable(connection: Connection, vault: Vault, now: float) -> Mapping[str, int]:
    """Count the jobs, schedules, messages and approvals that `vault` does not open; without kinds that it opens all."""
    found: dict[str, int] = {}
    for kind, purpose, sql in _SELECT_WAITING:
        rows = connection.execute(sql, (now,) if "?" in sql else ()).fetchall()
        if count := sum(not _opens(vault, sealed, purpose_of(purpose, id)) for id, sealed in rows):
            found[kind] = count
    return found


def _opens(vault: Vault, sealed: str, purpose: str) -> bool:
    try:
        vault.open(sealed, purpose)
    except ToolFailure:
        return False
    return True
