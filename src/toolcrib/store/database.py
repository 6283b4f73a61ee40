"""Database interface of the store, and the schema that every database has: numbered migrations, one dialect.

SQL is written once, in what SQLite and PostgreSQL both understand: `?` for parameters, `INSERT … ON CONFLICT`, `INSERT
OR FAIL` (an error takes back the transaction, not the statement alone: SQLite does not copy what it changes), columns
TEXT, INTEGER (64 bit), REAL (double) and BLOB, 0 and 1 for no and yes, JSON as TEXT. Text compares and sorts by its
bytes and LIKE minds the case, on both.

A migration is a file `migrations/NNNN_name.sql`, run once in the order of its number. Numbers may have gaps. A file
that has run somewhere is not changed any more, as it would not run there again: a further one makes the change.

Two implementations: `sqlite.SqliteDatabase` and `postgres.PostgresDatabase`; the tests of the store run on both.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final, Literal, Protocol

from ..errors import UsageError

_logger = logging.getLogger(__name__)

VERSION_TABLE: Final = "schema_version"


class NewerStore(UsageError):
    """A newer Toolcrib has migrated the store.

    Raised before anything was changed. The store stays usable for the newer process.
    """


class Cursor(Protocol):
    """Rows of a statement. Read them before the next statement."""

    @property
    def rowcount(self) -> int:
        """Rows that the statement changed."""
        ...

    @property
    def description(self) -> Any:
        """The columns of the rows, each a sequence that begins with its name; None if there are no rows."""
        ...

    def fetchone(self) -> Any:
        """Return the next row, None after the last."""
        ...

    def fetchall(self) -> list[Any]:
        """Return all rows that are left."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Yield the rows that are left."""
        ...


class Connection(Protocol):
    """Connection of a query: it runs statements only."""

    array_of: str
    """Format of the expression that gathers a column of all rows in one JSON text, `[]` for no row."""
    is_remote: bool
    """Whether each statement is a round trip to a server."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Cursor:
        """Run one statement of the common dialect."""
        ...


class OwnConnection(Connection, Protocol):
    """A connection of the store's own, used by one thread at a time."""

    takes_bytes: bool
    """Whether a TEXT column takes bytes and returns them."""

    def begin(self, *, durable: bool) -> None:
        """Begin a write transaction, alone among all processes: values read from here on stay true until the end.

        `durable`: the commit returns when the disk has it. Without, a crash of the machine may lose the last moments,
        never part of a commit.
        """
        ...

    def begin_reading(self) -> None:
        """Begin a transaction that sees one state of the store. End it by `rollback`."""
        ...

    def commit(self) -> None:
        """End the transaction and keep it."""
        ...

    def rollback(self) -> None:
        """End the transaction, if one is open, as if it had not been."""
        ...

    def define(self, statement: str) -> None:
        """Run one statement of a migration."""
        ...

    def has_table(self, name: str) -> bool:
        """Whether a table of this name exists."""
        ...

    def damage(self, error: Exception | None = None) -> str:
        """Check the database files for damage, or return whether `error` shows it.

        Empty when intact, or when the database checks itself.
        """
        ...

    def is_current(self) -> bool:
        """Whether the opened file is still in place: neither removed nor replaced."""
        ...

    def tidy(self) -> None:
        """Do outside of any transaction what is put off while calls wait; every `upkeep_seconds` at most."""
        ...

    def close(self) -> None:
        """Close it; never raises."""
        ...


class Lease(Protocol):
    """Sign that one open store is alive. Lost when its process ends, in any way.

    The unfinished work of a store may be settled only when its lease is free: several processes share a database.
    """

    id: str

    def take(self, connection: Connection) -> None:
        """Hold it; again does nothing."""
        ...

    def give_up(self, connection: Connection) -> None:
        """Record with the last commit that this store is about to close."""
        ...

    def release(self) -> None:
        """Let go of it, after the connection was closed."""
        ...

    def is_free(self, connection: Connection, other: str) -> bool:
        """Whether the process of the store with the id `other` has ended. Asked inside a transaction that writes."""
        ...

    def sweep(self, connection: Connection) -> None:
        """Clear away leases of dead stores. Inside a transaction that writes."""
        ...


class Database(Protocol):
    """Location of the store. Makes connections, holds none of its own, opens nothing until asked.

    `is_failure` divides exceptions: failures of the place are retried and reported to callers as `storage`, everything
    else is a bug, is raised, and undoes only the work that caused it.
    """

    place: str
    """For people: a file or a URL without its password."""
    reads: Literal["writer", "inline", "thread"]
    """Thread of a query: in turn with the writes, at once (microseconds), or in a thread (a network may be slow)."""
    upkeep_seconds: float
    """Interval of maintenance: notices a lost connection, settles the work of dead processes."""

    def connect(self, *, make: bool = True) -> OwnConnection:
        """Open a connection that may write; `make` makes the place when it is missing, else that is a failure."""
        ...

    def connect_reader(self) -> OwnConnection:
        """Open a read-only connection."""
        ...

    def migrate(self, connection: OwnConnection) -> None:
        """Bring it to the newest schema. Raises `NewerStore` when a newer Toolcrib wrote it."""
        ...

    def lease(self) -> Lease:
        """Return a new lease, not yet taken."""
        ...

    def check(self) -> None:
        """Raise a failure for a place that takes no more writes though its connections are good: full, read-only."""
        ...

    def is_failure(self, error: BaseException) -> bool:
        """Whether `error` comes from disk, network, server or permissions; anything else is a bug."""
        ...

    def is_passing(self, error: BaseException) -> bool:
        """Whether the connection is as good as before this failure."""
        ...

    def cause(self, error: BaseException) -> str:
        """Return the cause of a failure for callers: names no host, user, database or folder, unlike its message."""
        ...


def bring_up_to_date(
    connection: OwnConnection, migrations: Mapping[int, str], *, place: str, before: Callable[[int], None]
) -> None:
    """Run the migrations that did not run yet, in the order of their numbers and in one transaction.

    `before` is called with the version found, ahead of changing one. Raises `NewerStore` when there is a newer one.

    Looks twice: without the lock, so that a store that is up to date is not locked, and again with it, because another
    process may have migrated meanwhile.
    """
    done = _applied(connection)
    _refuse_newer(done, migrations, place)
    if done >= migrations.keys():
        return
    if done:
        before(max(done))
    connection.begin(durable=True)
    try:
        done = _applied(connection)
        _refuse_newer(done, migrations, place)
        for number in sorted(migrations.keys() - done):
            for statement in _statements(migrations[number]):
                connection.define(statement)
            connection.execute(f"INSERT INTO {VERSION_TABLE} VALUES (?, ?)", (number, time.time()))
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    if 0 < max(done, default=0) < max(migrations):  # else another process did it meanwhile
        _logger.info("the store %s was migrated from schema %d to %d", place, max(done), max(migrations))


@cache
def packaged_migrations() -> Mapping[int, str]:
    """Number → SQL of every `NNNN_name.sql` in the package."""
    folder = resources.files(__name__.rpartition(".")[0]).joinpath("migrations")
    files = (entry for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return {int(entry.name.split("_")[0]): entry.read_text(encoding="utf-8") for entry in files}


def _applied(connection: OwnConnection) -> set[int]:
    if not connection.has_table(VERSION_TABLE):
        return set()
    return {int(number) for (number,) in connection.execute(f"SELECT version FROM {VERSION_TABLE}").fetchall()}


def _refuse_newer(done: set[int], migrations: Mapping[int, str], place: str) -> None:
    found, newest = max(done, default=0), max(migrations)
    if found > newest:
        raise NewerStore(
            f"the store {place} has schema {found}, this Toolcrib knows schemas up to {newest}: "
            "upgrade Toolcrib, or set another store (docs/how-to/install.md says how to go back to an older version)"
        )


@cache
def _statements(script: str) -> tuple[str, ...]:
    """Split a migration at the ends of its statements."""
    statements: list[str] = []
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    return tuple(statements)


def reason_of(error: BaseException) -> str:
    """Return the message of an error as one line: PostgreSQL's have several."""
    return " ".join(str(error).split())
