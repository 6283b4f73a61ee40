"""Records as JSON lines: streamed out, and checked by whoever has the file and nothing else.

A line is one row: `seq`, the columns of a call, `prev` and `hash`, in this order. `hash` is the SHA-256 (hexadecimal)
of `prev` followed by the JSON array of `seq` and the columns' values (UTF-8, no white space).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, cast

from ..core.json import dumps, loads
from .chain import COLUMNS, GENESIS, Head, Verification, broken, departs, differs, read_head, rows_from
from .db import Connection

__all__ = ["Exported", "export", "verify_lines"]

_KEYS: Final = ("seq", *COLUMNS, "prev", "hash")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written: how many rows, from which, and the last one."""

    rows: int
    first: int
    head: Head


def export(connection: Connection, to: BinaryIO, since: float = 0.0) -> Exported:
    """Write every row from the first that ended at `since` (seconds since 1970) or later, in order."""
    sql = "SELECT seq FROM calls WHERE finished >= ? ORDER BY seq LIMIT 1"
    row = connection.execute(sql, (since,)).fetchone()
    if row is None:
        return Exported(rows=0, first=0, head=read_head(connection))
    first, count, head = row[0], 0, Head()
    for values in rows_from(connection, first):
        to.write(_line(values))
        count, head = count + 1, Head(seq=values[0], hash=values[-1])
    return Exported(rows=count, first=first, head=head)


def verify_lines(lines: BinaryIO, known: Head | None = None) -> Verification:
    """Check an export as `verify` checks a store; what was cut off at its end shows only against a `known` head.

    Raises nothing for a bad file: what is wrong with it is the `problem`.
    """
    floor = last = Head()
    count = 0
    for line in lines:
        values = _row(line)
        if values is None:
            problem = f"line {count + 1} is not as it was written"
        else:
            seq, *rest, prev, digest = values
            if not count:
                floor = last = Head(seq=seq - 1, hash=prev)
            problem = broken(last, seq, rest, (prev, digest)) or differs(known, Head(seq=seq, hash=digest))
            if seq == 1 and prev != GENESIS:
                problem = "row 1 follows a row"
        if problem or values is None:
            return Verification(rows=count, head=last, problem=problem, seq=last.seq + 1, dropped=floor.seq)
        count, last = count + 1, Head(seq=values[0], hash=values[-1])
    problem = departs(known, floor, last)
    return Verification(rows=count, head=last, problem=problem, seq=last.seq + 1 if problem else 0, dropped=floor.seq)


def _line(values: Sequence[Any]) -> bytes:
    return dumps(dict(zip(_KEYS, values, strict=True))) + b"\n"


def _row(line: bytes) -> Sequence[Any] | None:
    """The values of a line; None for one that we would have written in another way."""
    try:
        row = loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict):
        return None
    given = cast("dict[str, Any]", row)
    if tuple(given) != _KEYS or not isinstance(given["seq"], int) or not isinstance(given["prev"], str):
        return None
    values = tuple(given.values())
    return values if _line(values) == line else None
