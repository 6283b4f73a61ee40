"""Daily use of each principal, over all sessions and processes of one store."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from ..errors import ToolFailure
from .chain import Transaction
from .readers import Reader
from .threads import Writer

_KEPT_DAYS: Final = 7
"""Days that are remembered."""

_ADD: Final = (
    "INSERT INTO budgets (principal, day, calls, tokens) VALUES (?, ?, ?, ?) ON CONFLICT (principal, day)"
    " DO UPDATE SET calls = budgets.calls + excluded.calls, tokens = budgets.tokens + excluded.tokens"
)


class BudgetRows:
    """One row for a principal and a day (days since 1970, UTC)."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    def add(self, principal: str, day: int, calls: int, tokens: int) -> None:
        """Add usage, with one of the next commits, within 250 ms. Never waits, never raises."""
        self._writer.later(_add, principal, day, calls, tokens)

    async def used(self, principal: str, day: int) -> tuple[int, int]:
        """Return the calls and the tokens of that day, those of other processes too.

        Raises `ToolFailure("storage")` when the store cannot be read.

        Flushes first, so that what this process has added is counted.
        """
        with suppress(ToolFailure):
            await self._writer.flush()
        sql = "SELECT calls, tokens FROM budgets WHERE principal = ? AND day = ?"
        row = await self._reader.row(sql, (principal, day))
        return (int(row[0]), int(row[1])) if row is not None else (0, 0)


def _add(transaction: Transaction, principal: str, day: int, calls: int, tokens: int) -> None:
    transaction.execute("DELETE FROM budgets WHERE day < ?", (day - _KEPT_DAYS,))
    transaction.execute(_ADD, (principal, day, calls, tokens))
