"""The index of a folder's symbols on the disk: SQLite, one file a folder, made anew when it cannot be read.

Everything here blocks and is for threads. A connection is opened for each piece of work; several processes may share
the file.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .analysis import Symbol

__all__ = ["Filter", "Found", "Rows", "opened", "words_of"]

_VERSION: Final = 1
"""Of the tables and of what is put in them: with another one the file is made anew."""
_SECONDS: Final = 60.0
"""How long another process is waited for."""
_TABLES: Final = """
CREATE TABLE files (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, modified INTEGER NOT NULL, size INTEGER NOT NULL
);
CREATE TABLE symbols (
    id INTEGER PRIMARY KEY, file INTEGER NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, line INTEGER NOT NULL,
    last_line INTEGER NOT NULL, signature TEXT NOT NULL, container TEXT NOT NULL, doc TEXT NOT NULL
);
CREATE INDEX symbols_of_file ON symbols (file);
CREATE INDEX symbols_by_name ON symbols (name);
CREATE VIRTUAL TABLE words USING fts5 (terms, doc, uses, tokenize = "unicode61 tokenchars '_$'");
"""
_SELECT: Final = (
    "SELECT symbols.id, path, name, kind, line, last_line, signature, container, symbols.doc"
    " FROM symbols JOIN files ON files.id = symbols.file"
)
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_MOST_WORDS: Final = 24
"""Of a query."""
_GROUP: Final = 500
"""Values in one statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A symbol, and where it is."""

    id: int
    path: str
    symbol: Symbol
    """Without its uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which symbols are wanted."""

    kinds: Sequence[str] = ()
    """Empty: all but sections of documents."""
    prefix: str = ""
    """The folder; empty is everywhere."""
    suffix: str = ""
    """What the path ends in, lower case."""

    def sql(self) -> tuple[str, list[str]]:
        """Return a condition and its values."""
        marks = ", ".join("?" * len(self.kinds))
        parts, values = ([f"kind IN ({marks})"], list(self.kinds)) if self.kinds else (["kind <> 'section'"], [])
        if self.prefix:
            parts.append("substr(path, 1, CAST(? AS INTEGER)) = ?")
            values += [str(len(self.prefix) + 1), f"{self.prefix}/"]
        if self.suffix:
            parts.append("lower(substr(path, CAST(? AS INTEGER))) = ?")
            values += [str(-len(self.suffix)), self.suffix]
        return " AND ".join(parts), values


def words_of(text: str) -> list[str]:
    """Return the words of names and sentences, lower case: `getUserName` is get, user, name."""
    return [word.lower() for word in _WORD.findall(text)]


@contextmanager
def opened(path: Path) -> Generator[Rows]:
    """Open the index at `path`; one that is broken or of another version is begun anew."""
    for is_last in (False, True):
        connection = sqlite3.connect(path, timeout=_SECONDS, isolation_level=None)
        try:
            _prepare(connection)
            break
        except sqlite3.OperationalError:
            connection.close()
            raise
        except sqlite3.DatabaseError:
            connection.close()
            if is_last:
                raise
            path.unlink(missing_ok=True)
    with closing(connection):
        yield Rows(connection)


def _prepare(connection: sqlite3.Connection) -> None:
    """Make the tables when they are missing. Raises `sqlite3.DatabaseError` for what is no index of ours."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")
    if connection.execute("PRAGMA user_version").fetchone()[0] == _VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version not in (0, _VERSION):
        connection.execute("ROLLBACK")
        raise sqlite3.DatabaseError("an index of another version")
    if not version:
        for statement in filter(str.strip, _TABLES.split(";\n")):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {_VERSION}")
    connection.execute("COMMIT")


class Rows:
    """An open index. For one thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @contextmanager
    def change(self, *, keep: bool) -> Generator[None]:
        """Change several things at once; with `keep` false everything is as before afterwards."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT" if keep else "ROLLBACK")

    def stamps(self) -> dict[str, tuple[int, int]]:
        """Return when each file was changed, in nanoseconds, and its size."""
        rows = self._connection.execute("SELECT path, modified, size FROM files")
        return {path: (modified, size) for path, modified, size in rows}

    def remove(self, paths: Iterable[str]) -> None:
        """Forget files; those that are not known too."""
        for path in paths:
            row = self._connection.execute("SELECT id FROM files WHERE path = ?", (path,)).fetchone()
            if row is None:
                continue
            self._connection.execute("DELETE FROM words WHERE rowid IN (SELECT id FROM symbols WHERE file = ?)", row)
            self._connection.execute("DELETE FROM symbols WHERE file = ?", row)
            self._connection.execute("DELETE FROM files WHERE id = ?", row)

    def put(self, path: str, stamp: tuple[int, int], symbols: Iterable[Symbol]) -> None:
        """Keep what a file declares in the place of what was known of it."""
        self.remove([path])
        file = self._connection.execute("INSERT INTO files (path, modified, size) VALUES (?, ?, ?)", (path, *stamp))
        place = words_of(path)
        for one in symbols:
            values = (one.name, one.kind, one.line, one.last_line, one.signature, one.container, one.doc)
            number = self._connection.execute(
                "INSERT INTO symbols (file, name, kind, line, last_line, signature, container, doc)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (file.lastrowid, *values),
            ).lastrowid
            terms = " ".join(dict.fromkeys([one.name, *words_of(f"{one.whole} {one.signature}"), *place]))
            self._connection.execute(
                "INSERT INTO words (rowid, terms, doc, uses) VALUES (?, ?, ?, ?)",
                (number, terms, " ".join(words_of(one.doc)), " ".join(one.uses)),
            )

    def named(self, names: Iterable[str], wanted: Filter, limit: int) -> list[Found]:
        """Return the symbols of these names."""
        condition, values = wanted.sql()
        given, found = list(names), list[Found]()
        for at in range(0, len(given), _GROUP):
            some = given[at : at + _GROUP]
            where = f"name IN ({', '.join('?' * len(some))}) AND {condition}"
            found += _found(
                self._connection.execute(
                    f"{_SELECT} WHERE {where} ORDER BY path, line LIMIT ?", (*some, *values, limit)
                )
            )
        return found[:limit]

    def like(self, part: str, container: str, wanted: Filter, limit: int) -> list[Found]:
        """Return the symbols with `part` in their name, and `container` in what they are in, in any case.

        Equal names come first, then those that begin so.
        """
        condition, values = wanted.sql()
        escaped, around = _escaped(part), _escaped(container)
        order = "name <> ?, lower(name) <> lower(?), name NOT LIKE ? ESCAPE '\\', length(name), path, line"
        return _found(
            self._connection.execute(
                f"{_SELECT} WHERE name LIKE ? ESCAPE '\\' AND container LIKE ? ESCAPE '\\' AND {condition}"
                f" ORDER BY {order} LIMIT ?",
                (f"%{escaped}%", f"%{around}%", *values, part, part, f"{escaped}%", limit),
            )
        )

    def matching(self, query: str, wanted: Filter, limit: int) -> list[Found]:
        """Return the symbols that share words, or their beginnings, with a query; the nearest first."""
        words = dict.fromkeys(words_of(query))
        if not words:
            return []
        match = " OR ".join(f'"{word}"*' for word in list(words)[:_MOST_WORDS])
        condition, values = wanted.sql()
        return _found(
            self._connection.execute(
                f"{_SELECT} JOIN words ON words.rowid = symbols.id WHERE words MATCH ? AND {condition}"
                " ORDER BY bm25(words, 4.0, 1.0, 0.0), path, line LIMIT ?",
                (f"{{terms doc}} : ({match})", *values, limit),
            )
        )

    def every(self, wanted: Filter, limit: int) -> list[Found]:
        """Return all symbols that are wanted, by path and line."""
        condition, values = wanted.sql()
        return _found(
            self._connection.execute(f"{_SELECT} WHERE {condition} ORDER BY path, line LIMIT ?", (*values, limit))
        )

    def uses(self, numbers: Iterable[int]) -> Mapping[int, Sequence[str]]:
        """Return the names in the bodies of symbols."""
        found: dict[int, Sequence[str]] = {}
        for number in numbers:
            row = self._connection.execute("SELECT uses FROM words WHERE rowid = ?", (number,)).fetchone()
            found[number] = row[0].split() if row is not None else ()
        return found

    def users(self, name: str, wanted: Filter, limit: int) -> list[Found]:
        """Return the symbols in whose body a name stands."""
        condition, values = wanted.sql()
        quoted = name.replace('"', '""')
        found = _found(
            self._connection.execute(
                f"{_SELECT} JOIN words ON words.rowid = symbols.id WHERE words MATCH ? AND {condition}"
                " ORDER BY path, line LIMIT ?",
                (f'uses : "{quoted}"', *values, limit * 4),
            )
        )
        uses = self.uses(one.id for one in found)
        return [one for one in found if name in uses[one.id]][:limit]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _found(rows: Iterable[tuple[int, str, str, str, int, int, str, str, str]]) -> list[Found]:
    return [
        Found(
            id=number,
            path=path,
            symbol=Symbol(
                name=name,
                kind=kind,
                line=line,
                last_line=last_line,
                signature=signature,
                container=container,
                doc=doc,
            ),
        )
        for number, path, name, kind, line, last_line, signature, container, doc in rows
    ]
