"""SELECT statements of guests over shared tables, with the membership filter in place of each table that they name.

A guest writes `SELECT * FROM {tasks} AS one WHERE id = ?`. `{tasks}` becomes a subquery of the rows that are not
deleted and belong to a project of the principal, who is the first parameter; a table without braces is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Final

from msgspec import Struct

from ..core.patterns import regex
from ..core.services.shared_storage import ROW_COLUMNS, Schema
from ..errors import UsageError

MINE: Final = "SELECT project_id FROM members WHERE principal = ?"
"""The projects of a principal."""
TABLE_NAME: Final = regex(r"\{(\w+)\}")
_VISIBLE: Final = (
    "(SELECT * FROM {table} WHERE deleted_at IS NULL AND project_id IN (SELECT project_id FROM my_projects))"
)
_VISIBLE_IDS: Final = f"SELECT id FROM {{table}} WHERE deleted_at IS NULL AND project_id IN ({MINE})"
_WITH: Final = regex(r"\s*WITH\s+(RECURSIVE\s+)?", re.IGNORECASE)
_SELECT: Final = regex(r"\s*(SELECT|WITH)\b", re.IGNORECASE)
_CHANGE: Final = regex(r"\b(?:(?:INSERT|REPLACE)\s+INTO|UPDATE|DELETE\s+FROM)\b", re.IGNORECASE)
_SUBQUERY: Final = regex(r"\b(\w+)\s*(?:\([^()]*\)\s*)?AS\s*\(", re.IGNORECASE)
"""Names that a statement gives to its own subqueries after WITH."""
_SOURCE: Final = regex(r"(?:(?<!DISTINCT )\bFROM|\bJOIN|\}(?:\s+AS)?\s+\w+\s*,)\s+(\w+)", re.IGNORECASE)
"""Names that a statement reads from; not those in braces."""
_JSON: Final = regex(r"\bJSON\b")
_MAX_CACHED_STATEMENTS: Final = 512
"""Statements of a guest that are remembered: a guest has a few dozen, a list of ids makes some more of each."""


class Statement(Struct, frozen=True, kw_only=True):
    """A SELECT as it runs: its first parameter is the principal, those of the guest follow."""

    sql: str
    with_marks: str
    """The same, for PostgreSQL, with a last column: whether any row of the guest is marked as untrusted.

    PostgreSQL keeps the order of a subquery, and takes two columns of one name in it; SQLite does neither."""
    json: Mapping[str, None]
    """Names of the JSON columns of its tables."""
    tables: Mapping[str, str]
    """Each table that it names, with the SELECT of the ids of its visible rows, for the principal as parameter."""


class Statements:
    """The statements of one guest. May be used from several threads."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.select = lru_cache(maxsize=_MAX_CACHED_STATEMENTS)(self._select)
        """Returns the `Statement` of a SELECT; to check and to filter it takes longer than most run.

        Raises `UsageError` for one that changes rows, or reads a table without the filter."""
        self.insert = cache(self._insert)
        """Returns the INSERT of one row of a table, by its name."""
        self.names = cache(self._names)
        """Returns all columns of a table, by its name."""
        self.json = cache(self._json)
        """Returns the JSON columns of a table, by its name."""

    def full_name(self, table: str) -> str:
        """Return the name of a table in the database."""
        return f"{self.schema.name}_{table}"

    def _select(self, sql: str) -> Statement:
        _check(sql)
        json = dict[str, None]()
        tables = dict[str, str]()

        def visible(match: re.Match[str]) -> str:
            table = self.schema.table(match[1])
            full = self.full_name(table.name)
            tables[table.name] = _VISIBLE_IDS.format(table=full)
            json.update(self.json(table.name))
            return _VISIBLE.format(table=full)

        body = TABLE_NAME.sub(visible, sql)
        own = _WITH.match(body)
        mine = f"my_projects AS ({MINE})"
        body = f"WITH RECURSIVE {mine}, {body[own.end() :]}" if own else f"WITH {mine} {body}"
        has_marks = f"EXISTS (SELECT 1 FROM tainted_rows WHERE guest = '{self.schema.name}')"
        with_marks = f"SELECT found.*, {has_marks} FROM ({body}) AS found"
        return Statement(sql=body, with_marks=with_marks, json=json, tables=tables)

    def _insert(self, table: str) -> str:
        names = self.names(table)
        marks = ", ".join("?" * len(names))
        return f"INSERT INTO {self.full_name(table)} ({', '.join(names)}) VALUES ({marks}) ON CONFLICT DO NOTHING"

    def _names(self, table: str) -> tuple[str, ...]:
        return (*ROW_COLUMNS, *self.schema.table(table).columns)

    def _json(self, table: str) -> Mapping[str, None]:
        columns = self.schema.table(table).columns
        return dict.fromkeys(name for name, kind in columns.items() if _JSON.search(kind))


def _check(sql: str) -> None:
    """Raise `UsageError` for a statement that changes rows, or reads a table without the membership filter.

    Textual and strict: it protects guests from mistakes, not the store from guests, who run in this process.
    """
    if not _SELECT.match(sql) or _CHANGE.search(sql):
        raise UsageError("storage: a statement begins with SELECT or WITH; rows are changed by insert and update")
    own = set(_SUBQUERY.findall(sql))
    if other := [name for name in _SOURCE.findall(sql) if name not in own]:
        raise UsageError(f"storage: a statement does not read {other[0]!r}; it names a table of its schema in braces")
