"""Marks of files that tainted sessions wrote (`core.taint`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import astuple, replace

from ..core.taint import TaintedFile, fold, top_of
from .chain import Transaction
from .database import Connection
from .readers import Reader
from .threads import Writer

MAX_MARKS: Final = 20_000
"""Marks of one store: some 5 MB in each process, and more files than sessions write by tools."""
_NAMES: Final = TaintedFile.__struct_fields__
_COLUMNS: Final = ", ".join(_NAMES)
_PUT: Final = (
    f"INSERT INTO tainted_files ({_COLUMNS}) VALUES ({', '.join('?' * len(_NAMES))})"
    " ON CONFLICT (root, digest, path) DO UPDATE SET size = excluded.size, source = excluded.source,"
    " session = excluded.session, noted = excluded.noted"
)
_REMOVE: Final = "DELETE FROM tainted_files WHERE root = ? AND digest = ? AND path = ?"
_GROW: Final = "UPDATE tainted_files_revision SET revision = revision + 1"
_ALL: Final = f"SELECT {_COLUMNS} FROM tainted_files ORDER BY noted, path"


class TaintedFileRows:
    """The marks of one store. Every method raises `ToolFailure("storage")` while the store cannot be used."""

    def __init__(self, writer: Writer, reader: Reader, *, is_private: bool) -> None:
        """`is_private`: the store is memory."""
        self._writer = writer
        self._reader = reader
        self.is_private = is_private

    async def state(self) -> object:
        """Return the number of changes so far."""
        return await self._reader.read(_revision)

    async def all(self) -> list[TaintedFile]:
        """Return all marks, the oldest first."""
        return await self._reader.read(_all)

    async def put(self, files: Sequence[TaintedFile]) -> tuple[object, object]:
        """Store marks, and return the state before and after. Beyond `MAX_MARKS` the largest folders get one each.

        The two states let a caller that has all marks in memory see whether another process changed them in between.
        """
        return await self._writer.run(_put, files)

    async def remove(self, files: Sequence[TaintedFile]) -> None:
        """Remove marks."""
        await self._writer.run(_remove, files)


def _all(connection: Connection) -> list[TaintedFile]:
    found = connection.execute(_ALL).fetchall()
    return [TaintedFile(**dict(zip(_NAMES, row, strict=True))) for row in found]


def _revision(connection: Connection) -> int:
    return int(connection.execute("SELECT revision FROM tainted_files_revision").fetchone()[0])


def _put(transaction: Transaction, files: Sequence[TaintedFile]) -> tuple[object, object]:
    before = _revision(transaction.connection)
    for file in files:
        transaction.execute(_PUT, astuple(file))
    transaction.execute(_GROW)
    if int(transaction.execute("SELECT count(*) FROM tainted_files").fetchone()[0]) <= MAX_MARKS:
        return before, before + 1
    _fold(transaction)
    return before, None


def _fold(transaction: Transaction) -> None:
    """Halve the marks: the largest folders get one each, then the oldest ones go.

    A folder's mark has the time of the newest one, because it stands for files that were changed before it.
    """
    marks = _all(transaction.connection)
    newest = marks[-1]
    for top in fold(((mark.root, mark.path) for mark in marks), MAX_MARKS // 2):
        inside = [mark for mark in marks if top_of(mark.root, mark.path) == top]
        _remove(transaction, inside)
        transaction.execute(_PUT, astuple(replace(inside[-1], path=top, digest="", size=0, noted=newest.noted)))
    _remove(transaction, _all(transaction.connection)[: -MAX_MARKS // 2])


def _remove(transaction: Transaction, files: Sequence[TaintedFile]) -> None:
    transaction.execute(_GROW)
    for file in files:
        transaction.execute(_REMOVE, (file.root, file.digest, file.path))
