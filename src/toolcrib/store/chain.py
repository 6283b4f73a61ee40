"""The chain of calls: every recorded row names the hash of the row before it, and the head is kept apart.

A row that was changed, cut out, inserted or moved no longer fits its neighbours; rows missing at the end no longer
reach the stored head. The chain shows tampering to whoever compares; it does not stop somebody who rewrites the
whole file and the head: keep `head()` elsewhere for that.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..core.json import canonical
from .db import STORAGE_ERRORS

__all__ = ["COLUMNS", "GENESIS", "Head", "Transaction", "Verification", "verify"]

COLUMNS: Final = (
    "id",
    "session",
    "principal",
    "origin",
    "tool",
    "requested",
    "decision",
    "rule",
    "arguments",
    "arguments_hash",
    "definition",
    "outcome",
    "started",
    "finished",
    "latency_ms",
    "result_bytes",
    "result_hash",
)
"""The columns of a call in the order in which they are hashed, between `seq` and `prev`."""

GENESIS: Final = "0" * 64
"""What the first row names as its predecessor."""

_ALL: Final = ", ".join(("seq", *COLUMNS, "prev", "hash"))
_ROW: Final = f"({', '.join('?' * (len(COLUMNS) + 3))})"
_INSERT: Final = f"INSERT OR IGNORE INTO calls ({_ALL}) VALUES {_ROW}"
_TOGETHER: Final = 32
"""Rows that one statement writes. At every statement Python's sqlite3 lets another thread have the interpreter; under
load the writer and the event loop would hand it to and fro at every row, which costs more than the row."""
_INSERT_TOGETHER: Final = f"INSERT INTO calls ({_ALL}) VALUES {', '.join([_ROW] * _TOGETHER)}"
_FIND_TOGETHER: Final = f"SELECT 1 FROM calls WHERE id IN ({', '.join('?' * _TOGETHER)}) LIMIT 1"
_SELECT: Final = f"SELECT {_ALL} FROM calls ORDER BY seq"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The last row: how many there are, and the hash that stands for all of them."""

    seq: int = 0
    hash: str = GENESIS


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a check of the whole chain found. `problem` is empty when every row is as it was recorded."""

    rows: int
    head: Head
    problem: str = ""
    seq: int = 0
    """The row where the problem shows."""


class Transaction:
    """One write transaction that may extend the chain. Lives between BEGIN and COMMIT, in the writer's thread.

    What `append` adds is written by `write_head`, which comes last before the COMMIT.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._rows: list[Sequence[Any]] = []

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run one statement."""
        return self.connection.execute(sql, parameters)

    def append(self, values: Sequence[Any]) -> None:
        """Add the call with these `COLUMNS`; one whose id is recorded already changes nothing."""
        self._rows.append(values)

    def write_head(self) -> None:
        """Write what was added and, once for all of it, the head; without this nothing was added."""
        if not self._rows:
            return
        before = head = _read_head(self.connection)
        for first in range(0, len(self._rows), _TOGETHER):
            rows = self._rows[first : first + _TOGETHER]
            head = self._write_together(head, rows) if self._are_new(rows) else self._write_singly(head, rows)
        self._rows = []
        if head != before:
            value = json.dumps({"seq": head.seq, "hash": head.hash})
            self.execute("INSERT OR REPLACE INTO meta VALUES ('head', ?)", (value,))

    def _are_new(self, rows: Sequence[Sequence[Any]]) -> bool:
        """Whether these are enough for one statement, and none of them is recorded already."""
        ids = {values[0] for values in rows}
        return len(ids) == _TOGETHER and self.execute(_FIND_TOGETHER, tuple(ids)).fetchone() is None

    def _write_together(self, head: Head, rows: Sequence[Sequence[Any]]) -> Head:
        seq, last = head.seq, head.hash
        parameters: list[Any] = []
        for values in rows:
            seq, prev = seq + 1, last
            last = _digest(prev, seq, values)
            parameters += (seq, *values, prev, last)
        self.execute(_INSERT_TOGETHER, parameters)
        return Head(seq=seq, hash=last)

    def _write_singly(self, head: Head, rows: Sequence[Sequence[Any]]) -> Head:
        for values in rows:
            seq = head.seq + 1
            digest = _digest(head.hash, seq, values)
            if self.execute(_INSERT, (seq, *values, head.hash, digest)).rowcount == 1:
                head = Head(seq=seq, hash=digest)
        return head


def verify(connection: sqlite3.Connection) -> Verification:
    """Check every row against its neighbours and the last one against the stored head. Reads the whole table."""
    last = Head()
    try:
        head = _read_head(connection)
        for seq, *values, prev, digest in connection.execute(_SELECT):
            if problem := _broken(last, seq, values, (prev, digest)):
                return Verification(rows=last.seq, head=head, problem=problem, seq=last.seq + 1)
            last = Head(seq=seq, hash=digest)
        if last != head:
            missing = f"the chain ends at row {last.seq}, its stored head is row {head.seq}"
            return Verification(rows=last.seq, head=head, problem=missing, seq=last.seq + 1)
        (integrity,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except (*STORAGE_ERRORS, ValueError, TypeError, KeyError) as error:
        return Verification(rows=last.seq, head=last, problem=f"the file is damaged: {error}", seq=last.seq + 1)
    problem = "" if integrity == "ok" else f"the file is damaged: {integrity}"
    return Verification(rows=last.seq, head=head, problem=problem)


def _broken(last: Head, seq: int, values: Sequence[Any], link: tuple[str, str]) -> str:
    prev, digest = link
    if seq != last.seq + 1:
        return f"row {last.seq + 1} is missing: row {seq} follows row {last.seq}"
    if prev != last.hash:
        return f"row {seq} does not follow row {last.seq}"
    if digest != _digest(prev, seq, values):
        return f"row {seq} was changed after it was recorded"
    return ""


def _digest(prev: str, seq: int, values: Sequence[Any]) -> str:
    return hashlib.sha256(prev.encode() + canonical([seq, *values])).hexdigest()


def _read_head(connection: sqlite3.Connection) -> Head:
    row = connection.execute("SELECT value FROM meta WHERE key = 'head'").fetchone()
    if row is None:
        return Head()
    value = json.loads(row[0])
    return Head(seq=int(value["seq"]), hash=str(value["hash"]))
