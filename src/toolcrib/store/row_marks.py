"""Marks of guests' rows that were stored with untrusted content (`core.taint`).

A mark is a row of `tainted_rows`: the tables of guests have no column for it. A SELECT from one table with the ids of
its rows has read the rows whose ids it returned. Any other one may have computed its result from every row of its
tables, and has read a marked one if it says something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..core.json import dumps
from ..core.taint import StoredTaint
from .chain import Transaction
from .database import Connection

_MAX_WORD_LENGTH: Final = 64
"""Characters of a text without blanks that is a name or an id, and no sentence."""


class RowMarks:
    """The marks of one guest's rows, in one transaction of one principal."""

    def __init__(self, guest: str, principal: str, connection: Connection, taint: StoredTaint | None) -> None:
        """`taint` is that of the call which reads and writes; without it nothing is marked and nothing noted."""
        self._guest = guest
        self._principal = principal
        self._connection = connection
        self._taint = taint
        self._found: dict[str, Mapping[str, str]] = {}
        """The marks of the tables that were looked at, by table and id."""
        self._has_any: bool | None = None

    @property
    def mark(self) -> str:
        """The mark of what the call stores now; empty for none."""
        return "" if self._taint is None else self._taint.mark

    def put(self, transaction: Transaction, table: str, id: str, values: Mapping[str, Any]) -> None:
        """Mark a row that gets these values from an untrusted session; numbers, ids and names mark nothing."""
        mark = self.mark
        if mark and any(_says_something(value) for value in values.values()):
            sql = "INSERT INTO tainted_rows (guest, kind, id, source) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
            transaction.execute(sql, (self._guest, table, id, mark))

    def remove(self, transaction: Transaction, table: str, ids: Sequence[str]) -> None:
        """Forget the marks of rows that are deleted."""
        sql = f"DELETE FROM tainted_rows WHERE guest = ? AND kind = ? AND id IN ({', '.join('?' * len(ids))})"
        transaction.execute(sql, (self._guest, table, *ids))

    def note(self, tables: Mapping[str, str], columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Note the marks of what a SELECT returned; `tables` are those that it names, with their visible rows."""
        if self._taint is None or not rows or not self.has_any:
            return
        marks = {table: found for table, visible in tables.items() if (found := self._of(table, visible))}
        for of_table in marks.values():
            if len(tables) == 1 and "id" in columns:  # a joined row of the same table is named by a column of its own
                values = (value for row in rows for value in row if isinstance(value, str))
                self._taint.note(of_table.get(value, "") for value in values)
            elif any(_says_something(value) for row in rows for value in row):
                self._taint.note(of_table.values())

    @property
    def is_asked_along(self) -> bool:
        """Whether SELECTs shall return `has_any` in a last column: a statement of its own is a round trip."""
        return self._connection.is_remote and self._taint is not None and not self._has_any

    def answer(self, *, has_any: bool) -> None:
        """Take the answer of a SELECT that was asked along."""
        self._has_any = has_any

    @property
    def has_any(self) -> bool:
        """Whether a mark may have to be noted: some row of the guest has one, and the call notes marks."""
        if self._taint is None:
            return False
        if self._has_any is None:
            sql = "SELECT 1 FROM tainted_rows WHERE guest = ? LIMIT 1"
            self._has_any = self._connection.execute(sql, (self._guest,)).fetchone() is not None
        return self._has_any

    def _of(self, table: str, visible: str) -> Mapping[str, str]:
        """Return the marks of a table's visible rows, by id. A transaction knows those that it adds by its own mark."""
        if table not in self._found:
            sql = f"SELECT marked.id, marked.source FROM tainted_rows AS marked JOIN ({visible}) AS one"
            sql = f"{sql} ON one.id = marked.id WHERE marked.guest = ? AND marked.kind = ?"
            found = self._connection.execute(sql, (self._principal, self._guest, table)).fetchall()
            self._found[table] = {str(id): str(source) for id, source in found}
        return self._found[table]


def _says_something(value: Any) -> bool:
    """Whether a value of a row may be a sentence."""
    if value is None or isinstance(value, bool | int | float):
        return False
    text = value if isinstance(value, str) else dumps(value).decode()
    return len(text) > _MAX_WORD_LENGTH or len(text.split(None, 1)) > 1
