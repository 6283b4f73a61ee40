"""Hash chain of calls: the hash of every recorded row covers the hash of the row before it, and the head is kept apart.

That hash is not written again in the row itself (`prev` is empty, except in rows of earlier versions): it is an eighth
of a row, and a filter of the log without an index reads all of them. For the same reason the hashes in a row are bytes
in SQLite, half as long as their hexadecimal text. PostgreSQL and rows of earlier versions have the text: both are read,
and the chain and its exports are the same for both.

A row that was changed, cut out, inserted or moved no longer fits its neighbours; rows missing at the end no longer
reach the stored head. The chain shows tampering on comparison; it does not stop an attacker who rewrites the
whole file and the head: keep `head()` elsewhere for that.

    row n   = SHA-256(hash of row n-1 + canonical JSON of [seq, *COLUMNS])
    meta    "head": number and hash of the last row; "floor": those of the last row that retention dropped

`seq` has no gaps. Rows, intents and the head are written in the same commit, by one process at a time
(`OwnConnection.begin`): two processes cannot extend the chain at one place.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import repeat
from typing import Any, Final, TypeVar

from msgspec import Struct

from ..core.json import canonical, canonical_row, dumps, loads
from ..core.patterns import regex
from ..errors import ToolFailure
from .database import Connection, Cursor, OwnConnection

T = TypeVar("T")

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

EVENT_COLUMNS: Final = ("id", "type", "project_id", "actor", "payload", "time", "tainted")
"""The columns of an event."""

GENESIS: Final = "0" * 64
"""Predecessor hash of the first row."""

_ALL_COLUMNS: Final = ", ".join(("seq", *COLUMNS, "prev", "hash"))
_PLACEHOLDERS: Final = f"({', '.join('?' * (len(COLUMNS) + 3))})"
_TAKE_BACK: Final = "DELETE FROM calls WHERE seq > ? AND seq <= ?"
_BATCH_SIZES: Final = (256, 128, 64, 32, 16, 8, 4, 2, 1)
"""Rows that one statement writes: few sizes, so that each is prepared once. Every statement is a way to the server and
back; and at each Python's sqlite3 lets another thread have the interpreter, which under load costs more than a row.
Halves, so that the rest of a backlog takes at most one statement of each size."""
_CHAINED_TABLE: Final = regex(r"\b(?:FROM|INTO|JOIN|UPDATE)\s+(?:calls|intents|meta|events)\b", re.IGNORECASE)
_GATHERED_TABLE: Final = regex(r"\b(?:FROM|INTO|JOIN|UPDATE)\s+(?:receipts|jobs)\b", re.IGNORECASE)
_PAGE: Final = f"SELECT {_ALL_COLUMNS} FROM calls WHERE seq >= ? ORDER BY seq LIMIT ?"
_BEFORE: Final = "SELECT hash FROM calls WHERE seq < ? ORDER BY seq DESC LIMIT 1"
_PAGE_ROWS: Final = 200
"""Rows that stay in the cache of a processor: `verify` takes a seventh less CPU than with 1,000."""
_MIN_SEQUENCE: Final = -(2**63)
_PUT_HEAD: Final = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
_ADDITIONS_BETWEEN_COUNTS: Final = 100
"""Additions between two counts of the same things."""
_MAX_PROCESSES: Final = 100
"""Processes whose additions in that time the maximum allows for: near it each one is counted."""
_MAX_REMEMBERED_COUNTS: Final = 1000
"""Counts that are remembered."""
_RETENTION: Final = "retention"
_ORIGIN_INDEX: Final = COLUMNS.index("origin")
_ARGUMENTS_INDEX: Final = COLUMNS.index("arguments")


class Head(Struct, frozen=True, kw_only=True):
    """Head of the chain: the number of rows, and the hash that covers all of them."""

    seq: int = 0
    hash: str = GENESIS


class Verification(Struct, frozen=True, kw_only=True):
    """Result of a check of the whole chain. `problem` is empty when every row is as it was recorded.

    `rows` counts the rows up to the problem, `head` is the stored head.
    """

    rows: int
    head: Head
    problem: str = ""
    seq: int = 0
    """The row where the problem shows."""
    dropped: int = 0
    """The last row that retention dropped; the chain is proven from the next one on."""


class BegunBefore(ToolFailure):
    """A call with this id was begun by another process: its record is that one's."""

    def __init__(self, call: str) -> None:
        super().__init__("conflict", f"call {call} was begun before, and is not begun again")


class Transaction:
    """One write transaction that may extend the chain. Lives between begin and commit, in the writer's thread.

    Calls, intents, events and what `gather` gets are written many at once: before the next statement that names their
    tables, which so sees them, and by `write`, which comes last before the commit.

    Statements in between still see what was gathered, because `execute` writes it before a statement on those tables; a
    statement that is run on `connection` itself does not.
    """

    def __init__(self, connection: OwnConnection, uncounted: dict[tuple[str, str], int] | None = None) -> None:
        """`uncounted` is kept from one transaction to the next: additions before the next count, see `has_room`."""
        self.connection = connection
        self._uncounted = {} if uncounted is None else uncounted
        self.array_of = connection.array_of
        self.is_remote = connection.is_remote
        self._rows: list[Sequence[Any]] = []
        self._intents: dict[str, Sequence[Any]] = {}
        self._done: dict[str, None] = {}
        self._events: list[Sequence[Any]] = []
        self._gathered: dict[Callable[[Transaction, Sequence[Any]], None], list[Any]] = {}

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Cursor:
        """Run one statement of the common dialect."""
        if _names(_CHAINED_TABLE, sql):
            self.write()
        elif self._gathered and _names(_GATHERED_TABLE, sql):
            self.write_gathered()
        return self.connection.execute(sql, parameters)

    def has_room(self, key: tuple[str, str], most: int, count: Callable[[], int]) -> bool:
        """Whether one more fits below `most` of what `count` counts, for the caller to add.

        Few additions under the same key are counted: that takes a millisecond for 10,000.

        Near the maximum each addition is counted. Far from it up to `_ADDITIONS_BETWEEN_COUNTS` are not, and at most a
        hundredth of the room, so that a hundred processes together stay below the maximum.
        """
        if left := self._uncounted.pop(key, 0):
            if left > 1:
                self._uncounted[key] = left - 1
            return True
        room = most - count()
        if (ahead := min(_ADDITIONS_BETWEEN_COUNTS, room // _MAX_PROCESSES)) > 0:
            if len(self._uncounted) >= _MAX_REMEMBERED_COUNTS:
                self._uncounted.clear()
            self._uncounted[key] = ahead
        return room > 0

    def append(self, values: Sequence[Any]) -> None:
        """Add the call with these `COLUMNS`, hashes as bytes or text; an already recorded id has no effect.

        The id is unique: a row that a commit has written although its answer was lost is not written twice.
        """
        self._rows.append(values)

    def intend(self, call: str, writer: str, text: str) -> None:
        """Note that the call with this id is about to run; `writer` owns the note.

        Where the call was begun before, `write` raises `BegunBefore`, a conflict: of two processes that both claimed a
        saved call, the second must not run it.
        """
        if call in self._done:
            self.write()
        self._intents[call] = (call, writer, text)

    def forget(self, call: str) -> None:
        """Remove the intent of a call, if it exists."""
        self._done[call] = None

    def publish(self, values: Sequence[Any]) -> None:
        """Add the event with these `EVENT_COLUMNS`, the number of the event left out; the oldest ones go."""
        self._events.append(values)

    def gather(self, put: Callable[[Transaction, Sequence[T]], None], row: T) -> None:
        """Have `put(transaction, rows)` write a row of receipts, jobs or calls together with the others it is given."""
        self._gathered.setdefault(put, []).append(row)

    def write_gathered(self) -> None:
        """Write what `gather` was given."""
        gathered, self._gathered = self._gathered, {}
        for put, rows in gathered.items():
            put(self, rows)

    def write(self) -> None:
        """Write all that was gathered and, once for all calls, the head; without this call nothing is added.

        Intents first, then rows, then the intents that are over: a call that begins and ends in one commit leaves its
        row.
        """
        self.write_gathered()
        if self._intents:
            for rows in chunks(list(self._intents.values())):
                self._write_intents(rows)
            self._intents = {}
        if self._rows:
            self._write_rows()
        if self._done:
            for ids in padded(list(self._done)):
                self.connection.execute(f"DELETE FROM intents WHERE id IN ({_marks(len(ids))})", ids)
            self._done = {}
        if self._events:
            self._write_events()

    def _write_events(self) -> None:
        for rows in chunks(self._events):
            self.connection.execute(_insert_events(len(rows)), [value for row in rows for value in row])
        self._events = []

    def _write_intents(self, rows: Sequence[Sequence[Any]]) -> None:
        values = [value for row in rows for value in row]
        if self.connection.execute(_put_intents(len(rows)), values).rowcount != len(rows):
            ids = [row[0] for row in rows]
            raise BegunBefore(self.connection.execute(_find_begun(len(ids)), [*ids, *ids, rows[0][1]]).fetchone()[0])

    def _write_rows(self) -> None:
        before = head = read_head(self.connection)
        for rows in chunks(self._rows):
            head = self._write_singly(head, rows) if len(rows) == 1 else self._write_together(head, rows)
        self._rows = []
        if head != before:
            put_head(self.connection, head)

    def _write_together(self, head: Head, rows: Sequence[Sequence[Any]]) -> Head:
        """Add rows in one statement and return the new head.

        Where some ids were recorded before, the rows behind them name a wrong predecessor: all of this statement are
        taken back, and written one by one.
        """
        seq, last = head.seq, head.hash
        parameters: list[Any] = []
        for values in rows:
            seq += 1
            digest = _digest(last, seq, values)
            parameters += self._stored(seq, values, digest)
            last = digest.hex()
        if self.connection.execute(_insert(len(rows)), parameters).rowcount == len(rows):
            return Head(seq=seq, hash=last)
        # Some were recorded already, and those behind them name a predecessor that is not there. A row of another one
        # with such a number would have failed the statement, so that these are ours.
        self.connection.execute(_TAKE_BACK, (head.seq, seq))
        return self._write_singly(head, rows)

    def _write_singly(self, head: Head, rows: Sequence[Sequence[Any]]) -> Head:
        for values in rows:
            seq = head.seq + 1
            digest = _digest(head.hash, seq, values)
            if self.connection.execute(_insert(1), self._stored(seq, values, digest)).rowcount == 1:
                head = Head(seq=seq, hash=digest.hex())
        return head

    def _stored(self, seq: int, values: Sequence[Any], digest: bytes) -> Sequence[Any]:
        row = (seq, *values, "", digest)
        return row if self.connection.takes_bytes else readable(row)


def verify(connection: OwnConnection, known: Head | None = None) -> Verification:
    """Check every row against its neighbours, the last against the stored head, the first against the dropped rows.

    `known` is a head that was stored elsewhere: the chain must contain it. Reads the whole table, a page at a time.
    Damage that no row shows is left to the caller.
    """
    try:
        return _verify(connection, known)
    except (ValueError, TypeError, KeyError) as error:
        return Verification(rows=0, head=Head(), problem=f"the head of the chain is damaged: {error}", seq=1)
    except Exception as error:
        if problem := connection.damage(error):
            return Verification(rows=0, head=Head(), problem=problem, seq=1)
        raise


def rows_from(connection: Connection, seq: int) -> Iterator[Sequence[Any]]:
    """Yield the rows from `seq` on, in order: seq, `COLUMNS`, the hash of the row before, hash."""
    before = connection.execute(_BEFORE, (seq,)).fetchone()
    last = readable(before)[0] if before is not None else read_head(connection, "floor").hash
    for row in map(readable, _stored_from(connection, seq)):
        yield (*row[:-2], last if row[-2] == "" else row[-2], row[-1])
        last = row[-1]


def readable(row: Sequence[Any]) -> Sequence[Any]:
    """Return a stored row with its hashes as text."""
    return [value.hex() if isinstance(value, bytes) else value for value in row]


def _stored_from(connection: Connection, seq: int) -> Iterator[Sequence[Any]]:
    """Yield the rows from `seq` on as they are stored. A page is in memory, never the whole."""
    while page := connection.execute(_PAGE, (seq, _PAGE_ROWS)).fetchall():
        yield from page
        seq = page[-1][0] + 1


def read_head(connection: Connection, key: str = "head") -> Head:
    """Return the stored head, or with `floor` the last row that retention dropped."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    if row is None:
        return Head()
    value = loads(row[0])
    return Head(seq=int(value["seq"]), hash=str(value["hash"]))


def put_head(connection: Connection, head: Head, key: str = "head") -> None:
    """Store the head, or with `floor` the last dropped row.

    Written with each commit that adds rows, in the same transaction.
    """
    connection.execute(_PUT_HEAD, (key, dumps({"seq": head.seq, "hash": head.hash}).decode()))


def broken(last: Head, seq: int, values: Sequence[Any], link: tuple[str, str]) -> str:
    """Return why this row, with `link` its prev and hash, cannot follow `last`; empty when it can."""
    prev, digest = link
    if seq != last.seq + 1:
        return f"row {last.seq + 1} is missing: row {seq} follows row {last.seq}"
    if prev != last.hash:
        return f"row {seq} does not follow row {last.seq}"
    if digest != _digest(prev, seq, values).hex():
        return f"row {seq} was changed after it was recorded"
    return ""


def differs(known: Head | None, row: Head) -> str:
    """Describe how `row` differs from the known row of its number; empty when it does not, or has another number."""
    is_other = known is not None and known.seq == row.seq and known.hash != row.hash
    return f"row {row.seq} is not the one that you know" if is_other else ""


def departs(known: Head | None, floor: Head, last: Head) -> str:
    """Return why a chain from after `floor` to `last` cannot contain `known`; rows between are left to the reader."""
    if known is None:
        return ""
    if known.seq < floor.seq:
        return f"row {known.seq} was dropped since, with all up to row {floor.seq}: compare with a newer head"
    if known.seq > last.seq:
        return f"the chain ends at row {last.seq}, the head that you know is row {known.seq}: rows are missing"
    return differs(known, floor)


def dropped_row(floor: Head, first: int, rule: str, now: float) -> tuple[Any, ...]:
    """Return the `COLUMNS` of the row that records a drop: rows `first` to `floor`, by the retention `rule`."""
    record = {"first": first, "last": floor.seq, "hash": floor.hash}
    digest = hashlib.sha256(canonical(record)).hexdigest()
    head = (f"drop-{floor.seq}-{floor.hash[:16]}", "", "", _RETENTION, f"({_RETENTION})", "", "", rule)
    return (*head, json.dumps(record), digest, "", "ok", now, now, 0.0, 0, "")


def _verify(connection: OwnConnection, known: Head | None) -> Verification:
    head, floor = read_head(connection), read_head(connection, "floor")
    signed, known_seq = floor.seq == 0, None if known is None else known.seq
    seq, digest = floor.seq, floor.hash
    for row in _stored_from(connection, _MIN_SEQUENCE):
        # Written out, since a call or an object for each of a million rows costs as much as its hash.
        found = hashlib.sha256(digest.encode() + canonical_row(row[:-2])).digest()  # `hexdigest` takes 150 ns more
        own = row[-1].hex() if isinstance(row[-1], bytes) else row[-1]
        fits = row[0] == seq + 1 and (row[-2] == "" or row[-2] == digest) and (found == row[-1] or found.hex() == own)
        if not fits or row[0] == known_seq:
            number, *values, prev, _ = row
            last, this = Head(seq=seq, hash=digest), Head(seq=number, hash=own)
            if problem := broken(last, number, values, (digest if prev == "" else prev, own)) or differs(known, this):
                return Verification(rows=seq - floor.seq, head=head, problem=problem, seq=seq + 1)
        seq, digest = row[0], own
        signed = signed or _signs(row[1:], floor)
    last = Head(seq=seq, hash=digest)
    problem = departs(known, floor, last)
    if last != head:
        problem = f"the chain ends at row {last.seq}, its stored head is row {head.seq}"
    elif not signed:
        problem = f"the rows up to {floor.seq} are missing, and no row records that they were dropped"
    rows = last.seq - floor.seq
    if problem:
        return Verification(rows=rows, head=head, problem=problem, seq=last.seq + 1)
    return Verification(rows=rows, head=head, dropped=floor.seq)


def _signs(values: Sequence[Any], floor: Head) -> bool:
    """Whether this row records that retention dropped everything up to `floor`."""
    if values[_ORIGIN_INDEX] != _RETENTION:
        return False
    record = json.loads(values[_ARGUMENTS_INDEX])
    return record["last"] == floor.seq and record["hash"] == floor.hash


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut `items` into pieces of the sizes in `_BATCH_SIZES`, the largest first."""
    if len(items) == 1:  # as a call alone has it
        yield items
        return
    first = 0
    for size in _BATCH_SIZES:
        while len(items) - first >= size:
            yield items[first : first + size]
            first += size


def padded(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut `items` into pieces of one size in `_BATCH_SIZES` each, the last item repeated where one is too short.

    For statements to which a repeated row means nothing: half as many as with `chunks`.
    """
    for first in range(0, len(items), _BATCH_SIZES[0]):
        part = items[first : first + _BATCH_SIZES[0]]
        size = min(size for size in _BATCH_SIZES if size >= len(part))
        yield [*part, *repeat(part[-1], size - len(part))]


@lru_cache(maxsize=1024)
def _names(tables: re.Pattern[str], sql: str) -> bool:
    return tables.search(sql) is not None


@cache
def _marks(count: int) -> str:
    return ", ".join("?" * count)


@cache
def _insert(count: int) -> str:
    return f"INSERT INTO calls ({_ALL_COLUMNS}) VALUES {', '.join([_PLACEHOLDERS] * count)} ON CONFLICT (id) DO NOTHING"


@cache
def _insert_events(count: int) -> str:
    names = ", ".join(EVENT_COLUMNS[1:])
    given = ", ".join(f"column{number}" for number in range(2, len(EVENT_COLUMNS) + 1))
    rows = ", ".join(f"({number}, {_marks(len(EVENT_COLUMNS) - 1)})" for number in range(1, count + 1))
    return (
        f"INSERT INTO events (id, {names}) SELECT newest.id + column1, {given}"
        f" FROM (SELECT COALESCE(max(id), 0) AS id FROM events) AS newest, (VALUES {rows}) AS added"
    )


@cache
def _find_begun(count: int) -> str:
    given = f"WHERE id IN ({_marks(count)})"
    return f"SELECT id FROM calls {given} UNION ALL SELECT id FROM intents {given} AND writer <> ?"


@cache
def _put_intents(count: int) -> str:
    """All but those of recorded calls, and of those that another writer has begun."""
    rows = ", ".join(["(?, ?, ?)"] * count)
    return (
        f"INSERT INTO intents (id, writer, call) SELECT column1, column2, column3 FROM (VALUES {rows}) AS given"
        " WHERE NOT EXISTS (SELECT 1 FROM calls WHERE id = column1)"
        " ON CONFLICT (id) DO UPDATE SET call = excluded.call WHERE intents.writer = excluded.writer"
    )


def _digest(prev: str, seq: int, values: Sequence[Any]) -> bytes:
    return hashlib.sha256(prev.encode() + canonical_row([seq, *values])).digest()
