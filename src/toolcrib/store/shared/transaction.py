"""Rows that members of a project share, as one transaction reads and writes them.

Every read goes through `SharedTransaction.select`, whose filter `Statements` adds. Only the check of unique columns
looks at all rows of a table.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from msgspec import Struct, field

from ...core.json import dumps, loads
from ...core.patterns import regex
from ...core.schema import invalid_argument
from ...core.services.shared_storage import ROLES, ROW_COLUMNS, Member, Role, Row, Schema, Table
from ...core.similar import nearest
from ...errors import ToolFailure, UsageError
from ..chain import Transaction, padded
from ..database import Connection
from ..records import RecordContent, SearchText, put_record, remove_record
from ..row_marks import RowMarks
from ..statements import TABLE_NAME, Statement, Statements
from .schema import full_name, text_key

_COLUMN: Final = regex(r"[a-z][a-z0-9_]*")
_OTHER_KINDS: Final = regex(r"\b(?:REAL|BLOB)\b")
"""A JSON text of SQLite rounds the first and cannot hold the second."""
_APART: Final = 1e-6
"""Seconds between the rows that one transaction adds: lists show them in their order."""
_CELL_BYTES: Final = 1 << 20
"""Maximum size of one value."""
_COMPARED: Final = 200
"""Rows whose ids and titles an unknown id is compared with, those changed last."""
_SHOWN: Final = 80
"""Characters of a title in a message."""
_BEGINNING: Final = 4
"""Characters from which on the beginning of an id stands for it."""


class IndexedText(Struct, frozen=True, kw_only=True):
    """Searched text of a row that a transaction wrote: its vectors are still missing."""

    key: tuple[str, str]
    id: str
    revision: int
    """Of the search record."""
    text: str
    title: str


class SharedTransaction(Struct, kw_only=True):
    """The rows that one principal may see, in one transaction; see `core.services.shared_storage.Rows`."""

    statements: Statements
    """Of the guest whose tables these are."""
    principal: str
    member: str
    """The member that it reads and writes as: the principal, or the builder of a project that is not finished."""
    now: float
    mask: Callable[[Any], Any]
    connection: Connection
    marks: RowMarks
    """Marks of untrusted content."""
    transaction: Transaction | None = None
    """None while reading."""
    indexed: list[IndexedText] = field(default_factory=list[IndexedText])
    published: int = 0
    _inserted: int = 0
    _roles: dict[str, Role | None] = field(default_factory=dict[str, "Role | None"])
    """The principal's roles that this transaction has read: every write checks one."""

    @property
    def schema(self) -> Schema:
        """The tables of the guest."""
        return self.statements.schema

    def role(self, project_id: str) -> Role | None:
        """Return the principal's role in a project."""
        if project_id not in self._roles:
            sql = "SELECT role FROM members WHERE principal = ? AND project_id = ?"
            found = self.connection.execute(sql, (self.member, project_id)).fetchone()
            self._roles[project_id] = found[0] if found else None
        return self._roles[project_id]

    def require(self, project_id: str, role: Role = "editor") -> None:
        """Raise `not_found` for a project of others, `denied` without the role."""
        self._check_role("project", project_id, self.role(project_id), role)

    def get(self, table: str, id: str, role: Role = "viewer") -> Row:
        """Return a row; the same failure for an unknown id and for a row of a foreign project.

        `role` is the least that the principal needs; every member may read.
        """
        found = self.find(table, id)
        if found and role == ROLES[0]:  # visible to members only, and each of them is a viewer at least
            return found
        noun = self.schema.table(table).noun
        self._check_role(noun, id, self.role(found["project_id"]) if found else None, role)
        assert found is not None, "a row without membership raises"
        return found

    def find(self, table: str, id: str) -> Row | None:
        """Return a visible row."""
        found = self.select(f"SELECT * FROM {{{table}}} AS one WHERE id = ?", (id,))
        return found[0] if found else None

    def select(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run a SELECT over the visible rows of the tables that it names in braces.

        JSON columns come back decoded.
        """
        names, json, found = self._select(sql, parameters)
        rows = [dict(zip(names, row)) for row in found]  # noqa: B905 - strict costs as much as the dict
        return [_decoded(row, json) for row in rows] if json.keys() & set(names) else rows

    def select_values(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a SELECT and return its rows as they come from the database."""
        return self._select(sql, parameters)[2]

    def select_columns(self, columns: Sequence[str], source: str, parameters: Sequence[Any] = ()) -> list[list[Any]]:
        """Run a SELECT and return the values of each column: the database hands over one text for all of its rows."""
        kinds = [ROW_COLUMNS, *(self.schema.table(name).columns for name in TABLE_NAME.findall(source))]
        for name in columns:
            if not _COLUMN.fullmatch(name) or any(_OTHER_KINDS.search(kind.get(name, "")) for kind in kinds):
                raise UsageError(f"storage: {name!r} is not a column of texts or whole numbers")
        gathered = ", ".join(map(self.connection.array_of.format, columns))
        _, statement, rows = self._run(f"SELECT {gathered} {source}", parameters)
        found: list[list[Any]] = [loads(text) for text in rows[0]]
        if self.marks.has_any:
            self.marks.note(statement.tables, columns, list(zip(*found, strict=True)))
        return found

    def _select(self, sql: str, parameters: Sequence[Any]) -> tuple[list[str], Mapping[str, None], list[Any]]:
        """Return the names of the columns, the JSON columns of the tables, and the rows."""
        names, statement, found = self._run(sql, parameters)
        self.marks.note(statement.tables, names, found)
        return names, statement.json, found

    def _run(self, sql: str, parameters: Sequence[Any]) -> tuple[list[str], Statement, list[Any]]:
        statement = self.statements.select(sql)
        is_asked_along = self.marks.is_asked_along
        text = statement.with_marks if is_asked_along else statement.sql
        cursor = self.connection.execute(text, (self.member, *parameters))
        names, found = [column[0] for column in cursor.description], cursor.fetchall()
        if is_asked_along:
            names.pop()
            self.marks.answer(has_any=bool(found and found[0][-1]))
            found = [row[:-1] for row in found]
        return names, statement, found

    def create_project(self, project_id: str) -> None:
        """Make the principal the owner of a new project."""
        sql = "SELECT 1 FROM members WHERE project_id = ?"
        if self.connection.execute(sql, (project_id,)).fetchone():
            raise ToolFailure("conflict", f"there is a project {project_id!r} already")
        self._put_member(project_id, self.member, "owner")

    def hand_over(self, project_id: str, built: str) -> None:
        """Make the principal the owner of the project that is finished now; `built` is the key of its note."""
        self.require(project_id, "owner")
        sql = "UPDATE members SET principal = ? WHERE principal = ? AND project_id = ?"
        self._writing().execute(sql, (self.principal, self.member, project_id))
        self._writing().execute("DELETE FROM meta WHERE key = ?", (built,))

    def members(self, project_id: str) -> list[Member]:
        """Return the members of a project."""
        self.require(project_id, "viewer")
        sql = "SELECT principal, role FROM members WHERE project_id = ? ORDER BY principal"
        rows = self.connection.execute(sql, (project_id,)).fetchall()
        return [Member(principal=principal, role=role) for principal, role in rows]

    def set_member(self, project_id: str, principal: str, role: Role | None) -> None:
        """Add, change or remove a member."""
        self.require(project_id, "owner")
        if role is not None and role not in ROLES:
            raise invalid_argument("role", f"{role!r} is not a role; roles are {', '.join(ROLES)}", keyword="limit")
        owners = [one.principal for one in self.members(project_id) if one.role == "owner"]
        if owners == [principal] and role != "owner":
            raise ToolFailure("conflict", f"{principal} is the last owner of project {project_id}", hint="name another")
        self._writing().execute("DELETE FROM members WHERE principal = ? AND project_id = ?", (principal, project_id))
        self._roles.clear()
        if role is not None:
            self._put_member(project_id, principal, role)

    def insert(self, table: str, values: Mapping[str, Any], *, id: str = "") -> Row:
        """Add a row and return it.

        Raises `ToolFailure`: `conflict` for an id or unique columns that exist, `denied` and `not_found` by the
        project.
        """
        of = self.schema.table(table)
        moment = self.now + self._inserted * _APART
        self._inserted += 1
        row: Row = {
            **dict.fromkeys(of.columns),
            **self._storable(values),
            "id": id or str(uuid.uuid4()),
            "revision": 1,
            "created_by": self.principal,
            "created_at": moment,
            "updated_at": moment,
            "deleted_at": None,
        }
        self.require(row["project_id"])
        names = self.statements.names(table)
        if len(row) != len(names):
            _check_names(of, row)
        values_of = self._encoded(of, row, names)
        if self._writing().execute(self.statements.insert(table), values_of).rowcount != 1:
            self._check_unique(of, row)
            raise ToolFailure("conflict", f"there is a {of.noun} {row['id']} already")
        self.marks.put(self._writing(), of.name, row["id"], values)
        self._index(of, row, is_new=True)
        return row

    def update(
        self,
        table: str,
        id: str,
        changes: Mapping[str, Any],
        *,
        revision: int | None = None,
        expected: Mapping[str, Any] | None = None,
        before: Row | None = None,
    ) -> Row:
        """Change a row and return it.

        `revision` and `expected` are what the caller has read: a row that differs is a `conflict`, with the present
        values.
        """
        of = self.schema.table(table)
        if before is None:
            before = self.get(table, id, "editor")
        else:
            self.require(before["project_id"])
        wanted = {**(expected or {}), **({} if revision is None else {"revision": revision})}
        other = {name: before[name] for name, value in wanted.items() if before[name] != value}
        if other:
            raise ToolFailure(
                "conflict",
                f"{of.noun} {id} was changed meanwhile",
                hint="read it again and change its present state",
                details={"current": other},
            )
        changed = self._storable(changes)
        if protected := [name for name in ("id", "project_id", "deleted_at") if name in changed]:
            raise UsageError(f"storage: an update does not change {', '.join(protected)}")
        row = {**before, **changed, "revision": before["revision"] + 1, "updated_at": self.now}
        _check_names(of, row)
        if any(name in changed for columns in of.unique for name in columns):
            self._check_unique(of, row)
        names = [*changed, "revision", "updated_at"]
        assigned = ", ".join(f"{name} = ?" for name in names)
        sql = f"UPDATE {full_name(self.schema, of)} SET {assigned} WHERE id = ? AND project_id = ?"
        self._writing().execute(sql, [*self._encoded(of, row, names), id, before["project_id"]])
        self.marks.put(self._writing(), of.name, id, changes)
        if any(name in changed for name in (of.title, *of.text)):
            self._index(of, row)
        return row

    def update_all(self, table: str, ids: Collection[str], changes: Mapping[str, Any]) -> None:
        """Change many rows in the same way."""
        of = self.schema.table(table)
        apart = {"id", "project_id", "deleted_at", of.title, *of.text, *chain.from_iterable(of.unique)}
        if protected := [name for name in changes if name in apart]:
            raise UsageError(f"storage: update_all does not change {', '.join(protected)}")
        changed = self._storable(changes)
        _check_names(of, changed)
        assigned = "".join(f"{name} = ?, " for name in changed)
        values = self._encoded(of, changed, changed)
        for part, listed, _ in self._editable(of, ids):
            sql = f"UPDATE {full_name(self.schema, of)} SET {assigned}revision = revision + 1, updated_at = ? WHERE"
            self._writing().execute(f"{sql} {listed}", [*values, self.now, *part])
            for id in part:
                self.marks.put(self._writing(), of.name, id, changes)

    def _editable(self, of: Table, ids: Collection[str]) -> Iterator[tuple[Sequence[str], str, Mapping[str, str]]]:
        """Yield parts of the ids, each with the condition for its rows, and with their projects.

        Raises `ToolFailure` as `get` does for an editor.
        """
        for part in padded([*ids]):
            listed = f"id IN ({', '.join('?' * len(part))})"
            found = dict(self.select_values(f"SELECT id, project_id FROM {{{of.name}}} AS one WHERE {listed}", part))
            for id in part if len(found) < len(set(part)) else ():
                self.get(of.name, id)  # raises for the unknown one
            for project_id in set(found.values()):
                self.require(project_id)
            yield part, listed, found

    def move(self, table: str, id: str, project_id: str) -> Row:
        """Give a row to another project and return it."""
        of = self.schema.table(table)
        before = self.get(table, id, "editor")
        self.require(project_id)
        row: Row = {
            **before,
            "project_id": project_id,
            "revision": before["revision"] + 1,
            "updated_at": self.now,
        }
        self._check_unique(of, row)
        sql = f"UPDATE {full_name(self.schema, of)} SET project_id = ?, revision = ?, updated_at = ? WHERE id = ?"
        self._writing().execute(sql, (project_id, row["revision"], self.now, id))
        remove_record(self._writing(), text_key(self.schema.name, before["project_id"]), id)
        self._index(of, row)
        return row

    def delete(self, table: str, id: str) -> Row:
        """Mark a row as deleted."""
        of = self.schema.table(table)
        row: Row = {**self.get(table, id, "editor"), "deleted_at": self.now}
        self._writing().execute(f"UPDATE {full_name(self.schema, of)} SET deleted_at = ? WHERE id = ?", (self.now, id))
        self.marks.remove(self._writing(), of.name, (id,))
        if of.title or of.text:
            remove_record(self._writing(), text_key(self.schema.name, row["project_id"]), id)
        return row

    def delete_all(self, table: str, ids: Collection[str]) -> None:
        """Mark many rows as deleted."""
        of = self.schema.table(table)
        for part, listed, found in self._editable(of, ids):
            sql = f"UPDATE {full_name(self.schema, of)} SET deleted_at = ? WHERE {listed}"
            self._writing().execute(sql, (self.now, *part))
            self.marks.remove(self._writing(), of.name, part)
            for id, project_id in found.items() if of.title or of.text else ():
                remove_record(self._writing(), text_key(self.schema.name, project_id), id)

    def has_room(self, key: str, most: int, count: Callable[[], int]) -> bool:
        """Whether one more fits below `most` of what `count` counts."""
        return self._writing().has_room((self.schema.name, key), most, count)

    def publish(self, type: str, project_id: str, payload: Mapping[str, Any]) -> None:
        """Record an event with this transaction."""
        content = self.mask(dict(payload))
        put_event(self._writing(), type, project_id, self.principal, content, self.now, self.marks.mark)
        self.published += 1

    def _meant(self, table: Table, id: str) -> str:
        """Return the visible row that `id` names in another table, or `; did you mean …?` by id or title; else nothing.

        Only for the message of an unknown id; compares the newest rows that the principal sees.
        """
        for other in self.schema.tables:
            if other is not table and (row := self.find(other.name, id)):
                return f"; this is the id of the {other.noun} {str(row[other.title or 'id'])[:200]!r}"
        columns = f"id, {table.title or 'id'}"
        rows = self.select_values(
            f"SELECT {columns} FROM {{{table.name}}} AS one ORDER BY updated_at DESC LIMIT {_COMPARED}"
        )
        ids = {name: found for found, title in rows for name in (title, found)}
        begun = [found for found in ids if len(id) >= _BEGINNING and found.startswith(id)]
        close = begun or nearest(id, ids, 1)
        if not close:
            return ""
        meant = ids[close[0]]
        title = next(str(title or "") for found, title in rows if found == meant)
        return f"; did you mean {meant!r}{f' ({title[:_SHOWN]!r})' if title not in ('', meant) else ''}?"

    def _check_role(self, noun: str, id: str, role: Role | None, wanted: Role) -> None:
        if role is None:
            table = next((table for table in self.schema.tables if table.noun == noun), None)
            meant, listed_by = (self._meant(table, id), table.listed_by) if table else ("", "a list or a search")
            raise ToolFailure("not_found", f"there is no {noun} {id[:200]!r}{meant}", hint=f"{listed_by} has the ids")
        if ROLES.index(role) < ROLES.index(wanted):
            raise ToolFailure(
                "denied",
                f"your role for {noun} {id} is {role}; this needs {wanted}",
                hint="ask an owner of the project for the role",
            )

    def _check_unique(self, of: Table, row: Row) -> None:
        for names in of.unique:
            same = " AND ".join(f"{name} = ?" for name in names)
            sql = f"SELECT 1 FROM {full_name(self.schema, of)} WHERE deleted_at IS NULL AND id <> ? AND {same}"
            values = self._encoded(of, row, names)
            if self.connection.execute(sql, (row["id"], *values)).fetchone():
                what = ", ".join(name for name in names if name != "project_id")
                raise ToolFailure("conflict", f"there is a {of.noun} with the same {what} already")

    def _storable(self, values: Mapping[str, Any]) -> Row:
        """Return values as they are read again: without secrets, and without NUL, which PostgreSQL has in no text."""
        masked: Row = self.mask(dict(values))
        for name, value in masked.items():
            if isinstance(value, str) and "\0" in value:
                masked[name] = value.replace("\0", "\ufffd")
        return masked

    def _encoded(self, of: Table, row: Row, names: Iterable[str]) -> list[Any]:
        """Return values of a row as they are stored."""
        json, values = self.statements.json(of.name), list[Any]()
        for name in names:
            value = row[name]
            if name in json and value is not None:
                value = dumps(value).decode()
            if isinstance(value, str) and len(value) > _CELL_BYTES // 4 and len(value.encode()) > _CELL_BYTES:
                raise invalid_argument(name, f"it has more than {_CELL_BYTES:,} bytes", keyword="limit")
            values.append(value)
        return values

    def _put_member(self, project_id: str, principal: str, role: Role) -> None:
        sql = "INSERT INTO members (project_id, principal, role) VALUES (?, ?, ?)"
        self._writing().execute(sql, (project_id, principal, role))
        self._roles.clear()

    def _index(self, of: Table, row: Row, *, is_new: bool = False) -> None:
        if not of.title and not of.text:
            return
        title = str(row.get(of.title) or "")
        text = "\n\n".join(str(row[name]) for name in of.text if row[name])
        words = SearchText(text=f"{title} {title} {title} {text}")
        key = text_key(self.schema.name, row["project_id"])
        content = RecordContent({}, of.name, words)
        record = put_record(self._writing(), key, row["id"], content, None, self.now, is_new=is_new)
        self.indexed.append(IndexedText(key=key, id=row["id"], revision=record.revision, text=text, title=title))

    def _writing(self) -> Transaction:
        if self.transaction is None:
            raise UsageError("storage: this transaction only reads")
        return self.transaction


def put_event(
    transaction: Transaction,
    type: str,
    project_id: str,
    actor: str,
    payload: Mapping[str, Any],
    now: float,
    tainted: str,
) -> None:
    """Add an event to the log."""
    transaction.publish((type, project_id, actor, dumps(payload).decode(), now, tainted))


def _decoded(row: Row, json: Mapping[str, None]) -> Row:
    for name in json:
        if isinstance(row.get(name), str):
            row[name] = loads(row[name])
    return row


def _check_names(table: Table, row: Row) -> None:
    if unknown := [name for name in row if name not in table.columns and name not in ROW_COLUMNS]:
        raise UsageError(f"storage: table {table.name} has no column {', '.join(unknown)}")
