"""The SQLite file: how it is opened, kept private, brought to the current schema and shared with other processes.

A `Database` makes connections and holds none of its own. On disk it runs in WAL mode: readers never wait for the
writer, and a commit with `synchronous=FULL` is one fdatasync of the log. In memory it is a single connection.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

from ..errors import UsageError

__all__ = ["STORAGE_ERRORS", "Database", "Lease"]

STORAGE_ERRORS: Final = (sqlite3.DatabaseError, OSError)
"""What the disk, the file or its permissions can do to us; anything else is a bug."""

_BUSY_SECONDS: Final = 5.0
"""How long a writer waits for another process that holds the write lock."""

_CHECKPOINT_PAGES: Final = 4000
"""16 MiB of log between checkpoints: a checkpoint costs two more syncs, a commit touches about five pages."""


class Database:
    """One store file, or a private memory when `path` is None. Cheap to make; opens nothing until asked."""

    def __init__(self, path: Path | None, migrations: Mapping[int, str] | None = None) -> None:
        """`migrations` maps a number to its SQL; None takes those of the package."""
        self.path = path
        self._migrations = _packaged() if migrations is None else migrations

    def connect(self) -> sqlite3.Connection:
        """Open a connection that may write, creating file (0600) and folder (0700) when they are missing.

        Raises `STORAGE_ERRORS` when the place cannot be used.
        """
        if self.path is None:
            return _configured(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))
        if not self.path.parent.exists():
            self.path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if self.path.stat().st_mode & 0o077:
            self.path.chmod(0o600)
        connection = sqlite3.connect(
            self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        return _configured(connection)

    def connect_reader(self) -> sqlite3.Connection:
        """Open a connection that only reads. The file must exist; memory has no second connection."""
        if self.path is None:
            raise UsageError("a store in memory has one connection")
        uri = f"{self.path.absolute().as_uri()}?mode=ro"
        return sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)

    def migrate(self, connection: sqlite3.Connection) -> None:
        """Bring the file to the newest schema, in one transaction and after a copy of what was there.

        Raises `UsageError` when a newer Toolcrib wrote it.
        """
        newest = max(self._migrations)
        if (found := _version(connection)) == newest:
            return
        self._refuse_newer(found, newest)
        if found and self.path is not None:
            _back_up(connection, self.path.with_name(f"{self.path.name}.v{found}.bak"))
        connection.execute("BEGIN IMMEDIATE")
        try:
            found = _version(connection)
            self._refuse_newer(found, newest)
            for number in range(found + 1, newest + 1):
                for statement in _statements(self._migrations[number]):
                    connection.execute(statement)
                connection.execute("INSERT INTO schema_version VALUES (?, ?)", (number, time.time()))
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise

    def _refuse_newer(self, found: int, newest: int) -> None:
        if found > newest:
            raise UsageError(
                f"the store {self.path} has schema {found}, this Toolcrib knows schemas up to {newest}: "
                "upgrade Toolcrib, or set another data_dir"
            )


class Lease:
    """Says that one open store is alive. The system lets go of it when the process ends, however it ends.

    What an earlier store left unfinished may be settled only when its lease is free: two processes share a file.
    """

    def __init__(self, path: Path | None) -> None:
        self.id = secrets.token_hex(8)
        self._path = path
        self._descriptor = -1

    def take(self) -> None:
        """Lock the lease file of this store; again does nothing. Raises `OSError`."""
        if self._path is None or self._descriptor >= 0:
            return
        descriptor = os.open(self._file(self._path, self.id), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._descriptor = descriptor

    def release(self) -> None:
        """Let go and remove the file."""
        if self._path is None or self._descriptor < 0:
            return
        self._file(self._path, self.id).unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = -1

    def is_free(self, other: str) -> bool:
        """Whether the store with the id `other` is gone; clears away the lease it left."""
        if other == self.id:
            return False
        if self._path is None:
            return True
        file = self._file(self._path, other)
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        else:
            file.unlink(missing_ok=True)
            return True
        finally:
            os.close(descriptor)

    @staticmethod
    def _file(path: Path, lease: str) -> Path:
        return path.with_name(f"{path.name}.{lease}.live")


def _configured(connection: sqlite3.Connection) -> sqlite3.Connection:
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
        connection.execute("PRAGMA fullfsync=ON")  # only macOS knows it: there fsync alone does not reach the disk
        connection.execute("PRAGMA trusted_schema=OFF")
    except BaseException:
        connection.close()
        raise
    return connection


def _version(connection: sqlite3.Connection) -> int:
    known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_version'").fetchone()
    if known is None:
        return 0
    return int(connection.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchone()[0])


@cache
def _packaged() -> Mapping[int, str]:
    """Number → SQL of every `NNNN_name.sql` in the package."""
    folder = resources.files(__name__.rpartition(".")[0]).joinpath("migrations")
    files = (entry for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return {int(entry.name.split("_")[0]): entry.read_text(encoding="utf-8") for entry in files}


def _statements(script: str) -> Iterator[str]:
    """Split `script` at the ends of its statements; `executescript` would commit in between."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""


def _back_up(connection: sqlite3.Connection, target: Path) -> None:
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
    copy = sqlite3.connect(target)
    try:
        connection.backup(copy)
    finally:
        copy.close()
