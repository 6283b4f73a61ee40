"""The store: one SQLite file (or memory), one writing thread, and the four things that are remembered in it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .calls import Calls, settle_intents
from .chain import Transaction
from .db import Database, Lease
from .pins import Pins
from .reader import Reader
from .receipts import Receipts, settle_receipts
from .writer import Writer

__all__ = ["Store"]


class Store:
    """What Toolcrib remembers. Open from `open` to `close`; several processes may have the same file open."""

    calls: Calls
    pins: Pins
    receipts: Receipts

    def __init__(self, path: Path | None, *, redact: Callable[[Any], Any] | None, clock: Callable[[], float]) -> None:
        """Prefer `open`: this opens nothing."""
        self.path = path
        self._clock = clock
        self._lease = Lease(path)
        self._database = Database(path)
        self._writer = Writer(self._database)
        self._reader = Reader(self._database, self._writer)
        self.calls = Calls(self._writer, self._reader, self._lease, redact)
        self.pins = Pins(self._writer, self._reader)
        self.receipts = Receipts(self._writer, self._lease, clock)

    @classmethod
    def open(
        cls,
        path: Path | None,
        *,
        redact: Callable[[Any], Any] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Open the store at `path`, made when missing (file 0600, folder 0700); None keeps everything in memory.

        `redact` is applied to a call's arguments before they are stored, in the writer's thread. Intents that a
        crash left behind are settled as `outcome_unknown`. A place that cannot be written is no error here:
        side-effecting calls are refused until it can. Raises `UsageError` when a newer Toolcrib wrote the file.
        """
        store = cls(path, redact=redact, clock=clock)
        store._writer.start(store._prepare)
        return store

    @property
    def lost(self) -> int:
        """Rows of reads given up because the file could not be written for too long."""
        return self._writer.lost

    async def flush(self) -> None:
        """Return when everything noted until now is committed."""
        await self._writer.flush()

    async def close(self) -> None:
        """Write what waits, and close. A second time does nothing."""
        self._reader.close()  # first: the last connection to close folds the log into the file, and it must write
        await self._writer.close()
        self._lease.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Make a new connection ready: the schema, our lease, and what dead stores left unfinished."""
        self._database.migrate(connection)
        self._lease.take()
        connection.execute("BEGIN IMMEDIATE")
        try:
            transaction = Transaction(connection)
            unknown = settle_intents(transaction, self._lease, self._clock())
            settle_receipts(transaction, self._lease, unknown)
            transaction.write_head()
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
