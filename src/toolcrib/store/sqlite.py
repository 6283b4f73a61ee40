"""The store in one SQLite file, or in memory: how it is opened, kept private and shared with other processes.

On disk it runs in WAL mode: readers never wait for the writer, and a durable commit (`synchronous=FULL`) is one
fdatasync of the log before it returns. In memory it is a single connection.

    NAME                       the database; NAME-wal and NAME-shm beside it are SQLite's
    NAME.ID.live               the lease of an open store: locked as long as its process lives
    NAME.vN.bak                the copy before a migration from schema N
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, Literal

from ..core.files import make_private_folder
from ..errors import UsageError
from .database import VERSION_TABLE, Connection, Lease, OwnConnection, bring_up_to_date, packaged_migrations, reason_of

_BUSY_SECONDS: Final = 5.0
"""Maximum wait for another process that holds the write lock."""

_CHECKPOINT_PAGES: Final = 4000
"""16 MiB of log between checkpoints: a checkpoint costs two more syncs, a commit touches about five pages."""

_CACHE_KIB: Final = 8_000
"""With the 2 MB of SQLite, 10,000 texts are indexed in twice the time: their words are all over the index."""

_CASE: Final = "PRAGMA case_sensitive_like=ON"
"""LIKE as PostgreSQL has it."""

_MIN_FREE_BYTES: Final = 1 << 20
"""Bytes free on the disk: with less the next commits fail (a call with side effects writes about 20 KiB)."""

_TRANSIENT_ERRORS: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
"""No room, a failed write that was rolled back, a busy neighbour."""

_STATEMENT_ERRORS: Final = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError)
"""Errors of a statement or its values, not of the place."""


class SqliteDatabase:
    """One file, or a private in-memory database when `path` is None."""

    reads: Literal["writer", "inline", "thread"]
    upkeep_seconds: float = 60.0

    def __init__(self, path: Path | None, migrations: Mapping[int, str] | None = None) -> None:
        """`migrations` maps a number to its SQL; None takes those of the package."""
        self.place = str(path) if path else "memory"
        self.reads = "inline" if path else "writer"
        self._path = path
        self._migrations = packaged_migrations() if migrations is None else migrations

    def connect(self, *, make: bool = True) -> OwnConnection:
        """Open a connection that may write; `make` creates file (0600) and folder (0700) when they are missing.

        Refuses a folder and another program's database before it changes anything.
        """
        path = self._path
        if path is None:
            raw = _memory()
            if self._migrations is packaged_migrations():
                _copy_migrated(raw)
            return _configured(raw, None)
        if not make and not path.exists():
            reason = "the file was removed while it was open; put it back, or restart Toolcrib to begin a new one"
            raise FileNotFoundError(errno.ENOENT, reason, str(path))
        _refuse_folder(path)  # before its permissions are taken for those of a file
        if not path.parent.exists():
            make_private_folder(path.parent)
        with contextlib.suppress(FileExistsError):
            # Never an existing file: when any descriptor of it closes, POSIX drops the locks that SQLite holds.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        return _configured(connection, path)

    def connect_reader(self) -> OwnConnection:
        """Open a connection that only reads. The file must exist; memory has no second connection."""
        if self._path is None:
            raise UsageError("a store in memory has one connection")
        if not self._path.exists():  # SQLite says no more than that it is unable to open it
            above = next(folder for folder in self._path.absolute().parents if folder.exists())
            why = "" if os.access(above, os.W_OK) else ", and its folder cannot be written"
            raise FileNotFoundError(errno.ENOENT, f"there is no file{why}", str(self._path))
        _refuse_folder(self._path)
        uri = f"{self._path.absolute().as_uri()}?mode=ro"
        raw = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            raw.execute(_CASE)
            _refuse_others(raw, self._path)
        except BaseException:
            raw.close()
            raise
        return _SqliteConnection(raw, self._path)

    def migrate(self, connection: OwnConnection) -> None:
        """Migrate the file to the newest schema, after a copy of it beside it (`….vN.bak`)."""
        bring_up_to_date(connection, self._migrations, place=self.place, before=self._back_up)

    def lease(self) -> Lease:
        """Return a new lease: a locked file beside the store."""
        return _FileLease(self._path)

    def check(self) -> None:
        """Raise `OSError` where the file system is full or read-only."""
        if self._path is None:
            return
        if hasattr(os, "statvfs"):
            found = os.statvfs(self._path.parent)
            if found.f_flag & os.ST_RDONLY:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), self.place)
            blocks = found.f_bavail if os.geteuid() else found.f_bfree  # some are kept for root
            total, free = found.f_blocks, blocks * found.f_frsize
        else:
            usage = shutil.disk_usage(self._path.parent)
            total, free = usage.total, usage.free
        if total and free < _MIN_FREE_BYTES:  # a total of 0: this file system does not report its size
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.place)

    def refusal(self) -> str:
        """Return why the file cannot be opened and written, for people; empty when it can, or is busy.

        Makes and migrates it. Raises `NewerStore`.
        """
        try:
            with contextlib.closing(self.connect()) as connection:
                self.migrate(connection)
            self.check()
        except Exception as error:
            if not self.is_failure(error):
                raise
            is_busy = getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            return "" if is_busy else f"{self.place}: {self.cause(error)}"
        return ""

    def is_failure(self, error: BaseException) -> bool:
        """Whether the disk, the file or its permissions did this."""
        return isinstance(error, sqlite3.DatabaseError | OSError) and not isinstance(error, _STATEMENT_ERRORS)

    def is_passing(self, error: BaseException) -> bool:
        """Whether the connection is as good as before."""
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _TRANSIENT_ERRORS

    def cause(self, error: BaseException) -> str:
        """Return the cause without the path: SQLite's own messages have none."""
        if isinstance(error, OSError):
            return error.strerror or "the file cannot be used"
        return reason_of(error)

    def _back_up(self, version: int) -> None:
        if self._path is None:
            return
        target = self._path.with_name(f"{self._path.name}.v{version}.bak")
        descriptor, name = tempfile.mkstemp(prefix=f"{target.name}.", dir=target.parent)
        os.close(descriptor)
        copy = Path(name)
        try:
            with (
                contextlib.closing(sqlite3.connect(self._path)) as source,
                contextlib.closing(sqlite3.connect(copy)) as to,
            ):
                source.backup(to)
                (copied,) = to.execute("SELECT max(version) FROM schema_version").fetchone()
            if copied == version:  # else another process has migrated it meanwhile, after a copy of its own
                copy.replace(target)
        finally:
            copy.unlink(missing_ok=True)


def _refuse_folder(path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder; name a file in it", str(path))


def _refuse_others(raw: sqlite3.Connection, path: Path) -> None:
    tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if tables and VERSION_TABLE not in tables:
        raise OSError(errno.EEXIST, "it is the database of another program; name another file", str(path))


def _make_private(path: Path) -> None:
    for file in (path, *(path.with_name(f"{path.name}-{part}") for part in ("wal", "shm"))):
        with contextlib.suppress(FileNotFoundError):
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


def _memory() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


@cache
def _migrated() -> sqlite3.Connection:
    """Return an empty store of the newest schema: a copy is ten times cheaper than to migrate each store in memory."""
    raw = _memory()
    atexit.register(raw.close)  # from Python 3.13 on, one that is still open at the end is a warning
    bring_up_to_date(_configured(raw, None), packaged_migrations(), place="memory", before=lambda _: None)
    return raw


def _copy_migrated(raw: sqlite3.Connection) -> None:
    with _copying:
        _migrated().backup(raw)


_copying: Final = threading.Lock()


class _SqliteConnection:
    """A connection without a will of its own: every transaction is begun and ended by hand.

    `check_same_thread` is off because a reader's connection may be used by several threads, one after another.
    """

    is_remote = False
    array_of = "json_group_array({})"
    takes_bytes = True

    def __init__(self, raw: sqlite3.Connection, path: Path | None) -> None:
        self.execute = raw.execute
        self._raw = raw
        self._path = path
        self._file = _identity(path) if path is not None else None
        self._durable = False

    def begin(self, *, durable: bool) -> None:
        """Begin with the write lock: a transaction that reads first and then writes could fail in between."""
        if durable is not self._durable:
            self.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._durable = durable
        self.execute("BEGIN IMMEDIATE")

    def begin_reading(self) -> None:
        self.execute("BEGIN")

    def commit(self) -> None:
        self.execute("COMMIT")

    def rollback(self) -> None:
        if self._raw.in_transaction:
            self.execute("ROLLBACK")

    def define(self, statement: str) -> None:
        self.execute(statement)

    def has_table(self, name: str) -> bool:
        return self.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone() is not None

    def damage(self, error: Exception | None = None) -> str:
        if error is not None:
            return f"the file is damaged: {error}" if isinstance(error, sqlite3.DatabaseError | OSError) else ""
        (found,) = self.execute("PRAGMA integrity_check(1)").fetchone()
        return "" if found == "ok" else f"the file is damaged: {found}"

    def is_current(self) -> bool:
        """Whether the file has the same device and inode: writes to a removed or replaced one are lost silently."""
        return self._path is None or (self._file is not None and _identity(self._path) == self._file)

    def tidy(self) -> None:
        """Fold the log into the file: the next commits overwrite the log, and a log that grows takes longer to sync.

        A commit takes .13 ms less where it takes .6; the automatic checkpoint comes after some 760 calls.
        """
        self.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._raw.close()


class _FileLease:
    """A file that is locked as long as its process lives.

    The kernel drops the lock with the process, in any way that it ends. A store in memory needs none.
    """

    def __init__(self, path: Path | None) -> None:
        self.id = secrets.token_hex(8)
        self._path = path
        self._descriptor = -1

    def take(self, connection: Connection) -> None:
        """Lock the lease file of this store; again does nothing. Raises `OSError`."""
        if self._path is None:
            return
        file = self._file(self._path, self.id)
        if self._descriptor >= 0:
            if _names_it(file, self._descriptor):
                return
            os.close(self._descriptor)  # its folder was restored from elsewhere: others would consider this store dead
            self._descriptor = -1
        while self._descriptor < 0:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _names_it(file, descriptor):  # else another store removed it between the two lines above
                self._descriptor = descriptor
            else:
                os.close(descriptor)

    def give_up(self, connection: Connection) -> None:
        """Without effect: `release` removes the file."""

    def release(self) -> None:
        """Let go and remove the file."""
        if self._path is None or self._descriptor < 0:
            return
        self._file(self._path, self.id).unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = -1

    def is_free(self, connection: Connection, other: str) -> bool:
        """Whether the process of the store with the id `other` has ended; removes its lease file."""
        if other == self.id:
            return False
        return self._path is None or _is_unlocked(self._file(self._path, other))

    def sweep(self, connection: Connection) -> None:
        """Remove the files of stores that ended without a word and left nothing to settle."""
        if self._path is None:
            return
        for file in self._path.parent.glob(f"{self._path.name}.*.live"):
            if file != self._file(self._path, self.id):
                _is_unlocked(file)

    @staticmethod
    def _file(path: Path, lease: str) -> Path:
        return path.with_name(f"{path.name}.{lease}.live")


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of the file with this name; None when it is missing or unreachable."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _names_it(file: Path, descriptor: int) -> bool:
    """Whether the open file is still the one with this name."""
    try:
        return os.path.samestat(os.stat(file), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _is_unlocked(file: Path) -> bool:
    """Whether this lease is free; it is removed then.

    Locks the file itself for a moment, which the holder's `take` waits for.
    """
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


def _configured(raw: sqlite3.Connection, path: Path | None) -> _SqliteConnection:
    try:
        if path is not None:
            _refuse_others(raw, path)  # before anything of it changes
            _make_private(path)
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute("PRAGMA synchronous=NORMAL")
        raw.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
        raw.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        raw.execute("PRAGMA fullfsync=ON")  # only macOS knows it: there fsync alone does not reach the disk
        raw.execute("PRAGMA trusted_schema=OFF")
        raw.execute(_CASE)
    except BaseException:
        raw.close()
        raise
    return _SqliteConnection(raw, path)
