"""Retention of records. Too old or too many records are dropped from the beginning, never from the middle.

A drop is a record itself: a row with the last dropped row and its hash, from which the rest is proven. Rows that no
longer verify are not dropped: they are evidence.
"""

from __future__ import annotations

import logging
from typing import Annotated, Final

from ..core.settings import Count, Duration, Section, at_least
from .chain import Head, Transaction, broken, dropped_row, put_head, read_head, rows_from

__all__ = ["BATCH", "Retention", "drop_old"]

BATCH: Final = 1000
"""Rows that one commit drops: some 20 ms, checked first."""

_logger: Final = logging.getLogger(__name__)


class Retention(Section):
    """Limits of stored rows; 0 for both keeps everything."""

    replaced_whole = True

    keep: Annotated[Duration, at_least(86_400.0, "1d")] = 0.0
    """Time that a call is kept after its end; 0 keeps it for ever."""
    max_rows: Annotated[Count, at_least(1000, "1000 rows")] = 0
    """Rows that are kept, the record of the last drop included; 0 keeps all."""

    def __str__(self) -> str:
        """As the row of a drop names it."""
        limits = [f"keep {self.keep:g} s" if self.keep else "", f"max_rows {self.max_rows}" if self.max_rows else ""]
        return f"records: {', '.join(filter(None, limits))}"


def drop_old(transaction: Transaction, retention: Retention, now: float) -> int:
    """Drop at most `BATCH` of the oldest rows that `retention` lets go. Return how many."""
    head, floor = read_head(transaction), read_head(transaction, "floor")
    target = min(_last_to_go(transaction, retention, head, now), floor.seq + BATCH)
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


def _last_to_go(transaction: Transaction, retention: Retention, head: Head, now: float) -> int:
    """The last row that is too old or too much; the row of this drop counts already."""
    last = head.seq + 1 - retention.max_rows if retention.max_rows else 0
    if retention.keep:
        sql = "SELECT seq FROM calls WHERE finished >= ? ORDER BY seq LIMIT 1"
        first = transaction.execute(sql, (now - retention.keep,)).fetchone()
        last = max(last, first[0] - 1 if first else head.seq)
    return min(last, head.seq)
