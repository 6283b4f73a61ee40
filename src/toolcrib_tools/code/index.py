"""Symbol index of a folder: SQLite rows, updated with the files before every query."""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Final, TypeVar

from anyio import to_thread
from msgspec import Struct

from toolcrib.plugin import Context, ToolFailure, unshown

from .._workspace.file_search import Base, FileFilter, base_at, files_below, stamp_of
from .._workspace.place import workspace_of
from .analysis import Symbol, is_read, symbols_of

_VERSION: Final = 1
"""Version of the tables and their content: a file of another version is rebuilt."""
_SECONDS: Final = 60.0
"""Seconds to wait for another process's lock."""
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
"""Words of a query."""
_GROUP: Final = 500
"""Values in one statement."""

T = TypeVar("T")

FILE_BYTES: Final = 1024 * 1024
"""Larger files are data, or were made by programs."""
INDEXING_SECONDS: Final = 600
"""Time limit of a tool that uses the index: the first query of a large project reads all of it."""
_BATCH: Final = 200
"""Files that are read and kept in one go: what was done is not lost when a call is cancelled."""


class SymbolRow(Struct, frozen=True, kw_only=True):
    """A symbol, and where it is."""

    id: int
    path: str
    symbol: Symbol
    """The symbol, without its uses."""


class Filter(Struct, frozen=True, kw_only=True):
    """Conditions on symbols."""

    kinds: Sequence[str] = ()
    """Empty: all but sections of documents."""
    prefix: str = ""
    """The folder; empty is everywhere."""
    suffix: str = ""
    """Ending of the path, lower case."""

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
def open_index(path: Path) -> Generator[Rows]:
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
    """Create missing tables. Raises `sqlite3.DatabaseError` for a file of another format."""
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

    def by_names(self, names: Iterable[str], wanted: Filter, limit: int) -> list[SymbolRow]:
        """Return the symbols of these names."""
        condition, values = wanted.sql()
        given, found = list(names), list[SymbolRow]()
        for at in range(0, len(given), _GROUP):
            some = given[at : at + _GROUP]
            where = f"name IN ({', '.join('?' * len(some))}) AND {condition}"
            found += _to_rows(
                self._connection.execute(
                    f"{_SELECT} WHERE {where} ORDER BY path, line LIMIT ?", (*some, *values, limit)
                )
            )
        return found[:limit]

    def like(self, part: str, container: str, wanted: Filter, limit: int) -> list[SymbolRow]:
        """Return the symbols with `part` in their name, and `container` in what they are in, in any case.

        Equal names come first, then those that begin so.
        """
        condition, values = wanted.sql()
        escaped, around = _escaped(part), _escaped(container)
        order = "name <> ?, lower(name) <> lower(?), name NOT LIKE ? ESCAPE '\\', length(name), path, line"
        return _to_rows(
            self._connection.execute(
                f"{_SELECT} WHERE name LIKE ? ESCAPE '\\' AND container LIKE ? ESCAPE '\\' AND {condition}"
                f" ORDER BY {order} LIMIT ?",
                (f"%{escaped}%", f"%{around}%", *values, part, part, f"{escaped}%", limit),
            )
        )

    def matching(self, query: str, wanted: Filter, limit: int) -> list[SymbolRow]:
        """Return the symbols that share words, or their beginnings, with a query; the nearest first."""
        words = dict.fromkeys(words_of(query))
        if not words:
            return []
        match = " OR ".join(f'"{word}"*' for word in list(words)[:_MOST_WORDS])
        condition, values = wanted.sql()
        return _to_rows(
            self._connection.execute(
                f"{_SELECT} JOIN words ON words.rowid = symbols.id WHERE words MATCH ? AND {condition}"
                " ORDER BY bm25(words, 4.0, 1.0, 0.0), path, line LIMIT ?",
                (f"{{terms doc}} : ({match})", *values, limit),
            )
        )

    def every(self, wanted: Filter, limit: int) -> list[SymbolRow]:
        """Return all symbols that are wanted, by path and line."""
        condition, values = wanted.sql()
        return _to_rows(
            self._connection.execute(f"{_SELECT} WHERE {condition} ORDER BY path, line LIMIT ?", (*values, limit))
        )

    def uses(self, numbers: Iterable[int]) -> Mapping[int, Sequence[str]]:
        """Return the names in the bodies of symbols."""
        found: dict[int, Sequence[str]] = {}
        for number in numbers:
            row = self._connection.execute("SELECT uses FROM words WHERE rowid = ?", (number,)).fetchone()
            found[number] = row[0].split() if row is not None else ()
        return found

    def users(self, name: str, wanted: Filter, limit: int) -> list[SymbolRow]:
        """Return the symbols in whose body a name stands."""
        condition, values = wanted.sql()
        quoted = name.replace('"', '""')
        found = _to_rows(
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


def _to_rows(rows: Iterable[tuple[int, str, str, str, int, int, str, str, str]]) -> list[SymbolRow]:
    return [
        SymbolRow(
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


class Project(Struct, frozen=True, kw_only=True):
    """An index that is up to date, and the question's part of it."""

    prefix: str
    """Folder of the query, for paths of the index; empty for all."""
    is_whole: bool
    """False: the folder has more files than one walk goes through."""
    _base: Base
    _file: Path
    _names: frozenset[str]
    _waiting: Mapping[str, bytes]

    def display(self, name: str) -> str:
        """Return the path that tools give a file of the index."""
        return self._base.display(name)

    async def ask(self, work: Callable[[Rows], T]) -> T:
        """Return the result of `work`, run in a thread. Raises `ToolFailure` when the index cannot be used."""
        return await to_thread.run_sync(self._query, work)

    def has(self, name: str) -> bool:
        """True if this session sees an indexed file."""
        return name in self._names

    def _query(self, work: Callable[[Rows], T]) -> T:
        try:
            with open_index(self._file) as rows, rows.change(keep=False) if self._waiting else nullcontext():
                for name, content in self._waiting.items():
                    rows.put(name, (0, 0), symbols_of(name, content) if content else ())
                return work(rows)
        except sqlite3.Error as error:
            raise _broken(error) from error


async def project_at(ctx: Context, path: str) -> Project:
    """Return the index of the root that contains the folder `path`, up to date.

    Raises `ToolFailure`: for a path that is not a folder, and `timeout` if one call is too short to read the
    project; the rows read so far are kept, and the next call continues from there.
    """
    workspace = workspace_of(ctx)
    near = await base_at(workspace, path)
    base = Base(root=near.root, inner="", begin=near.begin)
    found = await files_below(workspace, base, FileFilter())
    names = await to_thread.run_sync(_code_files, base, found.paths)
    overlay = await workspace.overlay(base.display(""))
    changes = {name: content for shown, content in overlay.items() if (name := base.name(shown)) is not None}
    there = set(names)
    waiting = {name: content if content and name in there else b"" for name, content in changes.items()}
    digest = hashlib.blake2b(os.fsencode(base.root), digest_size=16).hexdigest()
    file = ctx.lent.folder("code") / f"{digest}.sqlite"
    await _refreshed(ctx, base, file, [name for name in names if name not in waiting], frozenset(waiting))
    return Project(
        prefix=near.inner,
        is_whole=found.is_whole,
        _base=base,
        _file=file,
        _names=frozenset(names),
        _waiting=waiting,
    )


def _code_files(base: Base, paths: Sequence[str]) -> list[str]:
    """Return the paths of the indexed files in the root."""
    root = f"{base.root.as_posix().rstrip('/')}/"
    inside = base.begin.is_relative_to(base.root)
    begin = f"{base.begin.relative_to(base.root).as_posix()}/".removeprefix("./") if inside else ""
    whole = (shown.removeprefix(root) if shown.startswith("/") else f"{begin}{shown}" for shown in paths)
    return [name for name in whole if is_read(name)]


async def _refreshed(ctx: Context, base: Base, file: Path, names: Sequence[str], waiting: frozenset[str]) -> None:
    """Read what has changed since it was last read, and forget what is gone."""
    workspace = workspace_of(ctx)
    stale = await to_thread.run_sync(_stale, base, file, names, waiting)
    for at in range(0, len(stale), _BATCH):
        if ctx.signal.aborted:
            raise ToolFailure(
                "timeout",
                f"the project has {len(stale)} new or changed files, and the time was up after {at}",
                hint="ask again: what was read is kept",
            )
        some = stale[at : at + _BATCH]
        names_of_some = [base.display(name) for name, _ in some]
        contents = await unshown(workspace).read_many(names_of_some, limit=FILE_BYTES)  # results show names of symbols
        await to_thread.run_sync(_store, file, some, contents)
        if len(stale) > _BATCH:
            await ctx.report(at + len(some), len(stale), "reading the project")


def _stale(base: Base, file: Path, names: Sequence[str], waiting: frozenset[str]) -> list[tuple[str, tuple[int, int]]]:
    """Return the files that are not known as they are now. What the disk says of them is only when to look again."""
    try:
        with open_index(file) as rows:
            known = rows.stamps()
            stale: list[tuple[str, tuple[int, int]]] = []
            for name in names:
                stamp = stamp_of(Path(base.root, name))
                if stamp is not None and known.get(name) != stamp:
                    stale.append((name, stamp))
            gone = known.keys() - set(names) - waiting
            if gone:
                with rows.change(keep=True):
                    rows.remove(gone)
            return stale
    except sqlite3.Error as error:
        raise _broken(error) from error


def _store(file: Path, stale: Sequence[tuple[str, tuple[int, int]]], contents: Sequence[bytes | ToolFailure]) -> None:
    try:
        with open_index(file) as rows, rows.change(keep=True):
            for (name, stamp), content in zip(stale, contents, strict=True):
                if not isinstance(content, ToolFailure):
                    rows.put(name, stamp, symbols_of(name, content))
                elif content.code == "too_large":
                    rows.put(name, stamp, ())
                # what may not be read is asked for again: another session may
    except sqlite3.Error as error:
        raise _broken(error) from error


def _broken(error: sqlite3.Error) -> ToolFailure:
    return ToolFailure("unavailable", f"the project index cannot be used: {error}", hint="grep finds words without it")
