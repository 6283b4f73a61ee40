"""Records that tools keep for their owners, and their search index.

A record is plain JSON under an id. Its words are in a table of their own, so that both databases rank by the same
rules: a word of the query also matches words that it begins and its other English forms (`pages` finds `page`), rare
words count more than common ones, and short texts more than long ones (BM25).

With an embedder, vectors of a record's present text are stored beside its words.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import takewhile
from typing import Any, Final, NamedTuple, cast

from msgspec import Struct
from msgspec.structs import replace

from ..core.json import dumps, loads
from ..core.patterns import regex
from ..core.services.records import Record
from ..errors import ToolFailure
from .chain import Transaction, chunks, padded
from .database import Connection
from .readers import Reader
from .threads import Writer

MAX_RECORDS: Final = 100_000
"""Of one collection of one owner."""

_COLUMNS: Final = 'id, value, "group", revision, created, updated, tainted'
_OF: Final = "collection = (SELECT number FROM record_collections WHERE owner = ? AND name = ?)"
_PUT: Final = (
    'INSERT INTO records ("group", value, words, tainted, updated, revision, created, number, collection, id)'
    " VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?, ?)"
)
_CHANGE: Final = (
    'UPDATE records SET "group" = ?, value = ?, words = ?, tainted = ?, updated = ?, revision = ? WHERE number = ?'
)
_FIND: Final = f"SELECT number, collection, revision, created FROM records WHERE {_OF} AND id = ?"
_NEXT: Final = (
    "SELECT (SELECT COALESCE(max(number), 0) + 1 FROM records), number FROM record_collections"
    " WHERE owner = ? AND name = ?"
)
"""The number of the next record, and that of its collection."""
_PUT_WORDS: Final = "INSERT OR FAIL INTO record_words (collection, word, record, times) VALUES"
"""Without OR FAIL, SQLite keeps a copy of each page that the statement changes: half of the time of an import."""
_WORD: Final = regex(r"\w+")
_ACCENTS: Final = regex("[\u0300-\u036f]")
"""Marks of letters that words are found without; those of Indic and Japanese letters make other letters."""
_MAX_WORD_LENGTH: Final = 64
"""Characters of a word that count."""
_MAX_RECORD_WORDS: Final = 20_000
"""Maximum number of different words of one record; later words are stored but not indexed."""
_MAX_QUERY_WORDS: Final = 32
"""Different words of one query."""
_MAX_QUERY_LENGTH: Final = 10_000
"""Characters of a query that count."""
_SATURATION: Final = 1.2
_LENGTH_NORMALIZATION: Final = 0.75
"""The usual constants of BM25 (Robertson and Zaragoza 2009)."""
_PREFIX_WEIGHT: Final = 0.5
"""Weight of a word that a query word begins, and of another form of it."""
_MAX_CACHED_STEMS: Final = 10_000
"""Words whose stems are remembered."""

_Key = tuple[str, str]
"""Owner and collection."""


class SearchText(Struct, frozen=True, kw_only=True):
    """Searchable content of a record: its text and the vectors of its passages."""

    text: str
    model: str = ""
    """Model of the vectors; vectors of other models are not comparable."""
    vectors: bytes = b""
    """Of the passages of the text, one behind the other; empty without an embedder."""


class RecordContent(NamedTuple):
    """Content of a record, as it is written."""

    value: Mapping[str, Any]
    group: str
    text: SearchText
    tainted: str = ""
    """The tool that brought untrusted content into the session which stores it."""


class RecordRows:
    """The records of one store. Every method raises `ToolFailure("storage")` while it cannot be used.

    Numbers of `add` are not used again, also after the record is removed.
    """

    def __init__(self, writer: Writer, reader: Reader, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def add(
        self, key: _Key, value: Mapping[str, Any], *, group: str, text: str | SearchText, tainted: str = ""
    ) -> Record:
        """Add a record under the collection's next number. Durable on return.

        Raises `ToolFailure("too_large")` if there are `MAX_RECORDS`, as `put` does for a new one.
        """
        content = RecordContent(value, group, _search_text(text), tainted)
        return await self._writer.run(_add, key, content, self._clock(), durable=True)

    async def put(
        self,
        key: _Key,
        id: str,
        value: Mapping[str, Any],
        *,
        group: str,
        text: str | SearchText,
        revision: int | None,
        tainted: str = "",
    ) -> Record:
        """Write a record under its id, in place of any older one. Durable on return.

        Raises `ToolFailure("conflict")` when it is not in the state `revision`; 0 means that it must not exist.
        """
        content = RecordContent(value, group, _search_text(text), tainted)
        return await self._writer.run(put_record, key, id, content, revision, self._clock(), durable=True)

    async def get(self, key: _Key, id: str) -> Record | None:
        """Return one record; None when it does not exist."""
        return await self._reader.read(partial(_get, key=key, id=id))

    async def remove(self, key: _Key, id: str) -> bool:
        """Forget one; return whether there was one. Durable on return."""
        return await self._writer.run(remove_record, key, id, durable=True)

    async def list(self, key: _Key, *, group: str | None, limit: int) -> list[Record]:
        """Return those of a group, or all; the one changed last comes first."""
        of, parameters = _in(key, group)
        sql = f"SELECT {_COLUMNS} FROM records WHERE {of} ORDER BY updated DESC, id LIMIT ?"
        return await self._reader.rows(_record, sql, (*parameters, limit))

    async def search(self, key: _Key, text: str, *, group: str | None, limit: int) -> list[Record]:
        """Return records that share words with `text`, best first.

        A score of about 1.0 means that each word of the query occurs once.
        """
        words = list(dict.fromkeys(_words(text[:_MAX_QUERY_LENGTH])))[:_MAX_QUERY_WORDS]
        return await self._reader.read(partial(_search, key=key, words=words, group=group, limit=limit))

    async def some(self, key: _Key, ids: Sequence[str]) -> list[Record]:
        """Return the existing records with these ids, in their order."""

        def query(connection: Connection) -> list[Record]:
            found: dict[str, Record] = {}
            for part in padded(ids):
                sql = f"SELECT {_COLUMNS} FROM records WHERE {_OF} AND id IN ({', '.join('?' * len(part))})"
                records = map(_record, connection.execute(sql, (*key, *part)).fetchall())
                found |= {record.id: record for record in records}
            return [found[id] for id in ids if id in found]

        return await self._reader.read(query)

    async def vectors(self, key: _Key, *, group: str | None, model: str) -> list[tuple[str, bytes]]:
        """Return the vectors of a model that records of a group have, or all, by id."""
        of, parameters = _in(key, group)
        sql = f"SELECT id, vectors FROM records JOIN (SELECT * FROM record_vectors WHERE {of} AND model = ?) AS one"
        sql = f"{sql} ON number = record"
        return await self._reader.rows(lambda row: (row[0], bytes(row[1])), sql, (*parameters, model), apart=True)

    async def count_vectors(self, key: _Key, *, group: str | None, model: str) -> int:
        """Return the number of records of a group, or of all, with vectors of a model."""
        of, parameters = _in(key, group)
        sql = f"SELECT COUNT(*) FROM record_vectors WHERE {of} AND model = ?"
        return int((await self._reader.row(sql, (*parameters, model)))[0])


def _search_text(text: str | SearchText) -> SearchText:
    return SearchText(text=text) if isinstance(text, str) else text


def _in(key: _Key, group: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the condition for the records of a group, or all, and its values."""
    return (_OF, key) if group is None else (f'{_OF} AND "group" = ?', (*key, group))


def _add(transaction: Transaction, key: _Key, content: RecordContent, now: float) -> Record:
    _, collection = _next(transaction, key)
    sql = "SELECT last FROM record_collections WHERE number = ?"
    number = int(transaction.execute(sql, (collection,)).fetchone()[0]) + 1
    while transaction.execute(_FIND, (*key, str(number))).fetchone():  # a caller has `put` under a number
        number += 1
    transaction.execute("UPDATE record_collections SET last = ? WHERE number = ?", (number, collection))
    return put_record(transaction, key, str(number), content, 0, now, is_new=True)


def _next(transaction: Transaction, key: _Key) -> tuple[int, int]:
    """Return numbers for the next record: its own, and that of its collection, which is added where it is new."""
    found = transaction.execute(_NEXT, key).fetchone()
    if found is None:
        sql = "INSERT INTO record_collections (number, owner, name, last) SELECT COALESCE(max(number), 0) + 1, ?, ?, 0"
        transaction.execute(f"{sql} FROM record_collections", key)
        found = transaction.execute(_NEXT, key).fetchone()
    return int(found[0]), int(found[1])


def put_record(
    transaction: Transaction,
    key: _Key,
    id: str,
    content: RecordContent,
    revision: int | None,
    now: float,
    *,
    is_new: bool = False,
) -> Record:
    """Write a record in a transaction, as `RecordRows.put` does; `is_new` where there can be none with its id.

    Words that stay are not written again: an index entry costs more than the look at the old ones.
    """
    value, group, search_text, tainted = content
    before = None if is_new else transaction.execute(_FIND, (*key, id)).fetchone()
    found = int(before[2]) if before else 0
    if revision is not None and revision != found:
        raise ToolFailure(
            "conflict",
            f"{key[1]} {id} was changed meanwhile: it is at revision {found}, not {revision}",
            hint="read it again and change its present state",
        )
    counts = Counter(_indexed(search_text.text))
    words = dict(counts.most_common(_MAX_RECORD_WORDS))
    row = (group, dumps(value).decode(), counts.total(), tainted, now)
    if before is None:
        created, (number, collection) = now, _next(transaction, key)
        _check_room(transaction, key, collection)
        transaction.execute(_PUT, (*row, now, number, collection, id))
    else:
        number, collection, _, created = before
        transaction.execute(_CHANGE, (*row, found + 1, number))
        words = _without_kept(transaction, collection, number, words)
    for part in chunks([(collection, word, number, times) for word, times in words.items()]):
        marks = ", ".join(["(?, ?, ?, ?)"] * len(part))
        transaction.execute(f"{_PUT_WORDS} {marks}", [value for row in part for value in row])
    _add_vectors(transaction, collection, number, group, search_text)
    return Record(id=id, value=value, group=group, revision=found + 1, created=created, updated=now, tainted=tainted)


def _without_kept(transaction: Transaction, collection: int, number: int, words: dict[str, int]) -> dict[str, int]:
    """Remove the vectors of a record, and its words but those that stay; return the words that are to be added."""
    sql = "SELECT word, times FROM record_words WHERE record = ?"
    known = {word: int(times) for word, times in transaction.execute(sql, (number,)).fetchall()}
    for gone in padded([word for word, times in known.items() if words.get(word) != times]):
        sql = f"DELETE FROM record_words WHERE collection = ? AND record = ? AND word IN ({', '.join('?' * len(gone))})"
        transaction.execute(sql, (collection, number, *gone))
    transaction.execute("DELETE FROM record_vectors WHERE record = ?", (number,))
    return {word: times for word, times in words.items() if known.get(word) != times}


def put_vectors(transaction: Transaction, key: _Key, id: str, revision: int, search_text: SearchText) -> None:
    """Store the vectors of a record's text; without effect if the record has another revision by now."""
    sql = f'SELECT collection, number, "group" FROM records WHERE {_OF} AND id = ? AND revision = ?'
    found = transaction.execute(sql, (*key, id, revision)).fetchone()
    if found is not None:
        collection, number, group = found
        transaction.execute("DELETE FROM record_vectors WHERE record = ?", (number,))
        _add_vectors(transaction, collection, number, group, search_text)


def _add_vectors(transaction: Transaction, collection: int, number: int, group: str, search_text: SearchText) -> None:
    if search_text.vectors:
        transaction.execute(
            'INSERT INTO record_vectors (collection, "group", record, model, vectors) VALUES (?, ?, ?, ?, ?)',
            (collection, group, number, search_text.model, search_text.vectors),
        )


def _check_room(transaction: Transaction, key: _Key, collection: int) -> None:
    sql = "SELECT COUNT(*) FROM records WHERE collection = ?"
    if not transaction.has_room(key, MAX_RECORDS, lambda: int(transaction.execute(sql, (collection,)).fetchone()[0])):
        raise ToolFailure(
            "too_large", f"{key[1]} has {MAX_RECORDS:,} records, the maximum", hint="remove records first"
        )


def _get(connection: Connection | Transaction, *, key: _Key, id: str) -> Record | None:
    sql = f"SELECT {_COLUMNS} FROM records WHERE {_OF} AND id = ?"
    row = connection.execute(sql, (*key, id)).fetchone()
    return _record(row) if row else None


def remove_record(transaction: Transaction, key: _Key, id: str) -> bool:
    """Remove a record in a transaction; return whether it existed."""
    found = transaction.execute(_FIND, (*key, id)).fetchone()
    if found is None:
        return False
    for table, column in (("record_words", "record"), ("record_vectors", "record"), ("records", "number")):
        transaction.execute(f"DELETE FROM {table} WHERE {column} = ?", (found[0],))
    return True


def merge_collection(transaction: Transaction, key: _Key, into: _Key) -> None:
    """Give the records of one collection to another, which has none of the same ids."""
    _, wanted = _next(transaction, into)
    for table in ("records", "record_words", "record_vectors"):
        transaction.execute(f"UPDATE {table} SET collection = ? WHERE {_OF}", (wanted, *key))


def _search(connection: Connection, *, key: _Key, words: Sequence[str], group: str | None, limit: int) -> list[Record]:
    """Return the best records by BM25, scored in Python so that both databases rank alike."""
    sizes = _sizes(connection, key, group)
    if not words or not sizes:
        return []
    mean = max(1.0, sum(sizes.values()) / len(sizes))
    scores: dict[int, float] = defaultdict(float)
    asked = 0.0
    for word in words:
        times = {number: count for number, count in _times(connection, key, word).items() if number in sizes}
        weight = math.log(1 + (len(sizes) - len(times) + 0.5) / (len(times) + 0.5))
        asked += weight
        for number, count in times.items():
            norm = _SATURATION * (1 - _LENGTH_NORMALIZATION + _LENGTH_NORMALIZATION * sizes[number] / mean)
            scores[number] += weight * count * (_SATURATION + 1) / (count + norm)
    best = sorted(scores, key=lambda number: (-scores[number], number))[:limit]
    found: dict[int, Record] = {}
    for part in padded(best):
        sql = f"SELECT number, {_COLUMNS} FROM records WHERE number IN ({', '.join('?' * len(part))})"
        found |= {number: _record(row) for number, *row in connection.execute(sql, part).fetchall()}
    return [replace(found[number], score=scores[number] / asked) for number in best if number in found]


def _sizes(connection: Connection, key: _Key, group: str | None) -> dict[int, int]:
    """Number of words of each record of the group."""
    of, parameters = _in(key, group)
    return dict(connection.execute(f"SELECT number, words FROM records WHERE {of}", parameters).fetchall())


def _times(connection: Connection, key: _Key, word: str) -> dict[int, float]:
    """Occurrences in each record of a word, of words that it begins, and of its other forms.

    A range of the index: the words that begin as the word and its stem do. A stem ends in i for words in y.
    """
    stem = _stem(word)
    shared = takewhile(lambda pair: pair[0] == pair[1], zip(word, stem.rstrip("i"), strict=False))
    begins = "".join(letter for letter, _ in shared) or word
    sql = f"SELECT record, word, times FROM record_words WHERE {_OF} AND word >= ? AND word < ?"
    counts: dict[int, float] = defaultdict(float)
    for number, found_word, times in connection.execute(sql, (*key, begins, begins + "\U0010ffff")).fetchall():
        if found_word == word:
            counts[number] += times
        elif found_word.startswith(word) or _stem(found_word) == stem:
            counts[number] += times * _PREFIX_WEIGHT
    return counts


@lru_cache(maxsize=_MAX_CACHED_STEMS)
def _stem(word: str) -> str:
    """Return the English stem of a word; one that is not ASCII, or ends in a digit, is its own."""
    return _stemmer()(word) if word.isascii() and word[-1:].isalpha() else word


@cache
def _stemmer() -> Callable[[str], str]:
    import Stemmer  # only to search

    return cast("Any", Stemmer).Stemmer("english", 0).stemWord  # a cache of its own is not safe between threads


def _words(text: str) -> list[str]:
    """The words of a text, in one case; `createIssue` and `create_issue` are two words each."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).replace("_", " ").replace("\0", " ")
    return [word[:_MAX_WORD_LENGTH] for word in _WORD.findall(unicodedata.normalize("NFC", apart.casefold()))]


def _indexed(text: str) -> list[str]:
    """The words of a text, and each without its accents too: `uberprufung` and `Vertrag` find what has them."""
    words = _words(text)
    if text.isascii():
        return words
    plain = [unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", word))) for word in words]
    return words + [bare for word, bare in zip(words, plain, strict=True) if bare != word]


def _record(row: Sequence[Any]) -> Record:
    id, value, group, revision, created, updated, tainted = row
    return Record(
        id=id,
        value=loads(value),
        group=group,
        revision=int(revision),
        created=created,
        updated=updated,
        tainted=tainted,
    )
