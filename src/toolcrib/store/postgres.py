"""Store in PostgreSQL, by URL: the same statements, translated; shared by several processes on several machines.

Every writer takes one lock of the schema for the length of a transaction, so that it sees the same as with SQLite:
nothing changes between its reads and its writes, and the chain of calls has one end. A durable commit returns when the
server has it on disk (`synchronous_commit`); others may lose their last moments to a crash of the server, never a part.
The lock is not held while the disk writes: a durable commit ends its transaction first, and waits for a second one that
follows it in the log. So another session may read a change that a crash of the server can still take back; what that
session writes itself follows the change in the log, and is lost with it.
Connect directly or through a pooler in session mode: leases are locks of a session.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, Literal, cast

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8Dumper, NumericLoader

from ..core.patterns import regex
from ..core.processes import is_alive
from ..errors import UsageError
from .database import VERSION_TABLE, Connection, Cursor, Lease, OwnConnection, bring_up_to_date, packaged_migrations

_SETTINGS: Final = {
    "lock_timeout": "5s",
    "statement_timeout": "30s",
    "idle_in_transaction_session_timeout": "30s",
    "default_transaction_isolation": "read committed",
    "extra_float_digits": "1",
    "enable_seqscan": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "row_security": "off",
}
"""Of our sessions: no statement waits for a stuck neighbour, and a stuck one loses its lock. Floats come back as they
went. A plan that was made while a table was small does not read all of it when it has grown. A statement is planned
once: to plan a list of 50 rows for its values takes longer than to run it, and all reads are by an index anyway. Where
a policy of the database would hide rows a statement fails: without them the chain is whole, and no tool is known."""

_CONNECTION_OPTIONS: Final = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    "application_name": "toolcrib",
}
"""Connection options for which the URL has no value; a silent server counts as gone after 20 s."""

_ANSWER_SECONDS: Final = 40.0
"""Seconds for a statement, more than the server gives it: one whose disk hangs cancels nothing, and stays connected."""

_COMMON_LOCK: Final = 0x7C21B
"""The first half of the key of the lock that writers take; the second is the schema."""

_BEGIN: Final = (
    "BEGIN; SET LOCAL synchronous_commit = off;"
    f" SELECT pg_advisory_xact_lock({_COMMON_LOCK}, hashtext(current_schema()))"
).encode()
_COMMIT_DURABLE: Final = b"COMMIT; SELECT pg_logical_emit_message(true, 'toolcrib', '')"
"""One round trip. The second statement is a transaction of its own, for which the server waits until the disk has its
log up to there; an empty one would not be waited for."""

_PROBES: Final = 8
"""Transactions that look for our session: some poolers give the one that was used last, others each in turn."""

_TRANSIENT_STATES: Final = ("53100", "55P03", "40001", "40P01", "57014")
"""Disk full, a lock or a statement that took too long, a transaction that gave way to another."""
_PLACE: Final = ("42501", "3D000", "3F000", "42P01")
"""No permission, database, schema or table (the role may not make them): errors of the statement, but the place's."""
_CAUSES: Final = {
    "25006": "PostgreSQL is read-only",
    "42501": "PostgreSQL denies the permission",
    "42P01": "PostgreSQL has no table of the store",
    "53100": "the disk of PostgreSQL is full",
    "55P03": "another session of PostgreSQL holds a lock",
    "57014": "a statement took PostgreSQL too long",
    "57P01": "PostgreSQL is shutting down",
}
_ABORTED: Final = "25P02"
_DAMAGED: Final = ("XX001", "XX002")

_RETURN_SECONDS: Final = 20.0
"""Seconds for the owner of a lease to return; one that lost its connection notices within `upkeep_seconds`."""

_VERSION_TABLES: Final = (
    "SELECT nspname, EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = found.oid AND attname = 'applied')"
    " FROM pg_class found JOIN pg_namespace ON pg_namespace.oid = relnamespace"
    " WHERE relname = ? AND nspname = ANY (current_schemas(false))"
)
"""The schemas of the search path that have a table of that name, each with whether it is ours."""

_TOKEN: Final = regex(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|\?")
_TYPE: Final = regex(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|\b(?:INTEGER|REAL|BLOB|TEXT)\b|\)\s*(WITHOUT\s+ROWID)\b",
    re.IGNORECASE,
)
_QUOTED: Final = regex(r'".*"', re.DOTALL)
_TYPES: Final = {"INTEGER": "BIGINT", "REAL": "DOUBLE PRECISION", "BLOB": "BYTEA", "TEXT": 'TEXT COLLATE "C"'}

_LEASE: Final = "lease:"
_PUT_OWNER: Final = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
_END_HOLDER: Final = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND CAST(classid AS bigint) = ? AND CAST(objid AS bigint) = ? AND pid <> pg_backend_pid()"
)


class PostgresDatabase:
    """One schema of one database: the first of the search path that exists."""

    reads: Literal["writer", "inline", "thread"] = "thread"
    upkeep_seconds: float = 10.0

    def __init__(
        self,
        url: str,
        migrations: Mapping[int, str] | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        answer_seconds: float = _ANSWER_SECONDS,
    ) -> None:
        """`migrations` maps a number to its SQL; None takes those of the package. Raises `UsageError` for a bad URL.

        `monotonic`, in seconds, measures the absence of a lease's owner. A connection on which a statement has no
        answer within `answer_seconds` is given up.
        """
        encode = "in a password @ is written %40, / %2F, % %25, a space %20"
        try:
            parts = conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            reason = _QUOTED.sub("…", str(error))  # it may hold the password
            raise UsageError(f"store: not a PostgreSQL URL: {reason.strip()} ({encode})") from None
        if "@" in f"{parts.get('host')}{parts.get('dbname')}":
            raise UsageError(f"store: not a PostgreSQL URL: it has a second @ ({encode})")
        user, host = parts.get("user", ""), parts.get("host") or "localhost"
        port = f":{parts['port']}" if parts.get("port") else ""
        self.place = f"postgresql://{f'{user}@' if user else ''}{host}{port}/{parts.get('dbname') or user}"
        self._url = url
        self._link = {key: value for key, value in _CONNECTION_OPTIONS.items() if key not in parts}
        self._migrations = packaged_migrations() if migrations is None else migrations
        self._monotonic = monotonic
        self._answer_seconds = answer_seconds
        self._has_own_sessions = False

    def connect(self, *, make: bool = True) -> OwnConnection:
        """Open a connection that may write; `make` has no effect: the operator creates the database.

        Raises `UsageError` when its schema is not there.
        """
        return self._connect(_SETTINGS)

    def connect_reader(self) -> OwnConnection:
        """Open a read-only connection, without a statement timeout."""
        return self._connect(
            {**_SETTINGS, "default_transaction_read_only": "on", "idle_in_transaction_session_timeout": "0"}
        )

    def migrate(self, connection: OwnConnection) -> None:
        """Bring the schema to the newest version, all or nothing. A copy before that is the operator's `pg_dump`."""
        _refuse_others(connection)
        timeout = "SELECT set_config('statement_timeout', ?, false)"
        connection.execute(timeout, ("0",))  # a large table may take its time
        try:
            with cast("_PostgresConnection", connection).unlimited():
                bring_up_to_date(connection, self._migrations, place=self.place, before=lambda version: None)
        except psycopg.errors.DuplicateTable as error:
            raise _not_ours(f"{error}, of another program") from error
        connection.execute(timeout, (_SETTINGS["statement_timeout"],))

    def lease(self) -> Lease:
        """Return a new lease: a lock of the writing session."""
        return _SessionLease(self._monotonic)

    def check(self) -> None:
        """Without effect: the server checks its disk and permissions."""

    def is_failure(self, error: BaseException) -> bool:
        """Whether network, server, disk or permissions did this."""
        state = getattr(error, "sqlstate", None)
        ours = psycopg.OperationalError | psycopg.InterfaceError | psycopg.InternalError | OSError
        return state in _PLACE or (isinstance(error, ours) and state != _ABORTED)

    def is_passing(self, error: BaseException) -> bool:
        """Whether the connection is as good as before."""
        return getattr(error, "sqlstate", None) in _TRANSIENT_STATES

    def cause(self, error: BaseException) -> str:
        """Return the cause without the server's message, which names host, user and database."""
        if isinstance(error, FileExistsError):
            return "the schema of PostgreSQL is not that of the store"
        state = getattr(error, "sqlstate", None)
        if state is None:  # an attempt to connect has no state
            return "PostgreSQL does not answer" if isinstance(error, _NoAnswer) else "PostgreSQL cannot be reached"
        return _CAUSES.get(state, f"PostgreSQL refuses (SQLSTATE {state}, {type(error).__name__})")

    def _connect(self, settings: Mapping[str, str]) -> _PostgresConnection:
        raw = _TimedConnection.connect(
            self._url, autocommit=True, cursor_factory=psycopg.RawCursor, **cast("Any", self._link)
        )
        raw.answer_seconds = self._answer_seconds
        try:
            if not self._has_own_sessions:
                self._refuse_shared_sessions(raw)
            raw.adapters.register_dumper(int, Int8Dumper)
            raw.adapters.register_loader("numeric", _Number)
            wanted = ", ".join(f"set_config('{key}', '{value}', false)" for key, value in settings.items())
            found = raw.execute(f"SELECT current_schema(), current_setting('synchronous_commit'), {wanted}".encode())
            schema, synchronous, *_ = found.fetchone() or ("", "")
            if not schema:
                raise UsageError(f"the store {self.place} has no schema: make the first one of its search_path")
            if synchronous == "off":
                raw.execute(b"SET synchronous_commit = on")
        except BaseException:
            raw.close()
            raise
        return _PostgresConnection(raw)

    def _refuse_shared_sessions(self, raw: _TimedConnection) -> None:
        """Raise `UsageError` behind a pooler in transaction mode, where others would get our settings and locks.

        A pooler has process ids of its own; one in transaction mode may give each transaction another session.
        """
        sql = b"SELECT pg_backend_pid()"
        own = raw.execute(sql).fetchone()
        if own != (raw.info.backend_pid,):
            with psycopg.connect(self._url, autocommit=True, **cast("Any", self._link)) as other:
                if any(other.execute(sql).fetchone() == own for _ in range(_PROBES)):
                    raise UsageError(
                        f"the store {self.place} is behind a pooler in transaction mode: leases are locks of a session,"
                        " so connect directly, or through a pooler in session mode"
                    )
        self._has_own_sessions = True


class _TimedConnection(psycopg.Connection[Any]):
    """A connection that is closed when the server does not answer a statement in time."""

    answer_seconds = _ANSWER_SECONDS

    def wait(self, gen: PQGen[Any], *args: Any, **options: Any) -> Any:
        try:
            return super().wait(_in_time(gen, self.answer_seconds), *args, **options)
        except _NoAnswer:
            self.pgconn.finish()
            raise


class _NoAnswer(psycopg.OperationalError):
    """The server took too long."""


def _in_time(waiting: PQGen[Any], seconds: float) -> PQGen[Any]:
    """Do what `waiting` does; raises `_NoAnswer` when it has waited for `seconds`.

    psycopg waits in a generator that is resumed every fraction of a second: each time, the clock is looked at.
    """
    deadline = time.monotonic() + seconds
    try:
        wanted = next(waiting)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() >= deadline:
                raise _NoAnswer(f"the server has not answered within {seconds:g} s")
            wanted = waiting.send(ready)
    except StopIteration as ended:
        return ended.value


class _PostgresConnection:
    """A session in autocommit: every transaction is begun and ended by hand."""

    is_remote = True
    array_of = "COALESCE(CAST(json_agg({}) AS TEXT), '[]')"
    takes_bytes = False

    def __init__(self, raw: _TimedConnection) -> None:
        self._raw = raw
        self._cursor = raw.cursor()
        """Runs every statement: one of its own takes a quarter of the CPU of a short statement."""
        self._commit = b"COMMIT"

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Cursor:
        return self._cursor.execute(_translated(sql), [_storable(value) for value in parameters])

    def begin(self, *, durable: bool) -> None:
        """Begin, and take the lock of all writers of the schema, which ends with the transaction: one round trip."""
        self._cursor.execute(_BEGIN)
        self._commit = _COMMIT_DURABLE if durable else b"COMMIT"

    def begin_reading(self) -> None:
        self._cursor.execute(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def commit(self) -> None:
        self._cursor.execute(self._commit)

    def rollback(self) -> None:
        if self._raw.info.transaction_status is not TransactionStatus.IDLE:
            self._cursor.execute(b"ROLLBACK")

    def define(self, statement: str) -> None:
        self._cursor.execute(_TYPE.sub(_defined, statement).encode())

    @contextlib.contextmanager
    def unlimited(self) -> Generator[None]:
        """Let statements take any time."""
        limit, self._raw.answer_seconds = self._raw.answer_seconds, math.inf
        try:
            yield
        finally:
            self._raw.answer_seconds = limit

    def has_table(self, name: str) -> bool:
        sql = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = ?"
        return self.execute(sql, (name,)).fetchone() is not None

    def damage(self, error: Exception | None = None) -> str:
        return f"the database is damaged: {error}" if getattr(error, "sqlstate", None) in _DAMAGED else ""

    def is_current(self) -> bool:
        return not self._raw.closed

    def tidy(self) -> None:
        """Without effect: the server looks after itself."""

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self._raw.close()


def _refuse_others(connection: Connection) -> None:
    """Raise `OSError` where a table of another program is in the place of ours, or a store would begin beside another.

    The second is so where the search path has got another first schema: `"$user"`, once there is a schema of this name.
    """
    found = dict(connection.execute(_VERSION_TABLES, (VERSION_TABLE,)).fetchall())
    (schema,) = connection.execute("SELECT current_schema()").fetchone()
    if schema in found and not found[schema]:
        raise _not_ours(f"the table {VERSION_TABLE} of the schema {schema} is of another program")
    if schema not in found and (others := [name for name, is_ours in found.items() if is_ours]):
        raise _not_ours(f"the store is in the schema {others[0]}, and {schema} is before it in the search_path")


def _not_ours(reason: str) -> OSError:
    return FileExistsError(errno.EEXIST, f"{reason}: name the schema in the URL (?options=-csearch_path%3DSCHEMA)")


class _SessionLease:
    """Lease as a lock of the writing session, with a note of the process that holds it.

    A session ends with its process, but also with a restart of the server or a broken connection, which the process
    outlives. So a free lock proves nothing yet: its owner counts as dead when it deregistered, when it ran on this
    machine and does so no longer, or when it has not returned for `_RETURN_SECONDS`.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.id = secrets.token_hex(8)
        self._monotonic = monotonic
        self._free_since: dict[str, float] = {}

    def take(self, connection: Connection) -> None:
        """Hold the lock in this session, the writing one."""
        key = _lock_key(self.id)
        try:
            connection.execute("SELECT pg_advisory_lock(?)", (key,))
        except psycopg.errors.LockNotAvailable:  # by our own earlier session, which the server still considers alive
            connection.execute(_END_HOLDER, (key >> 32 & 0xFFFFFFFF, key & 0xFFFFFFFF))
            connection.execute("SELECT pg_advisory_lock(?)", (key,))
        connection.execute(_PUT_OWNER, (_LEASE + self.id, json.dumps([_machine(), os.getpid()])))
        self._free_since.clear()  # locks seen before we lost the server prove nothing about stores that lost it too

    def give_up(self, connection: Connection) -> None:
        """Record that this store is about to close."""
        connection.execute("DELETE FROM meta WHERE key = ?", (_LEASE + self.id,))

    def release(self) -> None:
        """Without effect: the session is closed."""

    def is_free(self, connection: Connection, other: str) -> bool:
        """Whether the process of the store with the id `other` has ended."""
        if other == self.id:
            return False
        row = connection.execute("SELECT value FROM meta WHERE key = ?", (_LEASE + other,)).fetchone()
        machine, process = json.loads(row[0]) if row else ("", 0)
        if machine == _machine() and not is_alive(process):
            return True
        if not connection.execute("SELECT pg_try_advisory_xact_lock(?)", (_lock_key(other),)).fetchone()[0]:
            self._free_since.pop(other, None)
            return False
        now = self._monotonic()
        return row is None or now - self._free_since.setdefault(other, now) >= _RETURN_SECONDS

    def sweep(self, connection: Connection) -> None:
        """Forget the leases of dead stores."""
        rows = connection.execute("SELECT key FROM meta WHERE key LIKE ?", (_LEASE + "%",)).fetchall()
        for (key,) in rows:
            if self.is_free(connection, key.removeprefix(_LEASE)):
                connection.execute("DELETE FROM meta WHERE key = ?", (key,))
                self._free_since.pop(key.removeprefix(_LEASE), None)


class _Number(NumericLoader):
    """Sums and averages come back as whole numbers or floats, as from SQLite."""

    def load(self, data: Any) -> Any:
        number = super().load(data)
        return (
            int(number) if number == number.to_integral_value() and number.as_tuple().exponent == 0 else float(number)
        )


def _lock_key(lease: str) -> int:
    return int.from_bytes(bytes.fromhex(lease), "big", signed=True)


@cache
def _machine() -> str:
    """Name the machine, and on Linux the container, to which our process id belongs."""
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        name += f" {Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    return name


@lru_cache(maxsize=512)
def _translated(sql: str) -> bytes:
    """Number the parameters: `?` outside of literals, names and comments; `OR FAIL` is SQLite's affair."""
    count = 0

    def numbered(match: re.Match[str]) -> str:
        nonlocal count
        if match[0] != "?":
            return match[0]
        count += 1
        return f"${count}"

    return _TOKEN.sub(numbered, sql.replace("INSERT OR FAIL", "INSERT", 1)).encode()


def _defined(match: re.Match[str]) -> str:
    """The PostgreSQL name of a column type; `WITHOUT ROWID` is SQLite's affair."""
    if match[1]:
        return ")"
    return _TYPES.get(match[0].upper(), match[0])


def _storable(value: Any) -> Any:
    """Text without NUL, which PostgreSQL does not take; 0 and 1 for no and yes."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd") if "\0" in value else value
    return int(value) if isinstance(value, bool) else value
