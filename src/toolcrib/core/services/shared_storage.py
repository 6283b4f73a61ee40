"""Relational storage that guests share between the members of a project, and the event log of its changes.

A guest describes its tables by a `Schema`. Every row belongs to a project; a principal sees the rows of the projects
that it is a member of, and no others: `Rows` is the only way to them. Statements are SQL in the dialect that SQLite and
PostgreSQL both understand, with `?` for parameters.

    SCHEMA = Schema(
        name="todo",
        tables=(Table(name="tasks", noun="task", columns={"name": "TEXT NOT NULL"}, title="name"),),
    )
    rows = await ctx.storage(SCHEMA).read(lambda rows: rows.select("SELECT * FROM {tasks} AS t"))

`Context.storage` returns the tables for the principal of a call, `ServiceHost.host` those for a service.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeVar

from msgspec import Struct, field

from ...errors import UsageError
from ..patterns import regex

T = TypeVar("T")

Row = dict[str, Any]
"""One row: the table's columns and `ROW_COLUMNS`, by name."""

Role = Literal["owner", "editor", "viewer"]

ROLES: Final[tuple[Role, ...]] = ("viewer", "editor", "owner")
"""Each role includes those before it: a viewer reads, an editor writes, an owner changes the members."""

ROW_COLUMNS: Final[Mapping[str, str]] = {
    "id": "TEXT NOT NULL PRIMARY KEY",
    "project_id": "TEXT NOT NULL",
    "revision": "INTEGER NOT NULL",
    "created_by": "TEXT NOT NULL",
    "created_at": "REAL NOT NULL",
    "updated_at": "REAL NOT NULL",
    "deleted_at": "REAL",
}
"""Columns of every table. A row with `deleted_at` is in no read; `revision` grows by one with each change."""

_PLAIN: Final = regex(r"[a-z][a-z0-9_]{0,40}")


class Table(Struct, frozen=True, kw_only=True):
    """A table of a guest, without `ROW_COLUMNS`, which every table has."""

    name: str
    noun: str
    """Name of one row in errors: `there is no task 'x'`."""
    columns: Mapping[str, str]
    """Name → SQL type: TEXT, INTEGER, REAL or BLOB, with constraints; JSON is stored as text and read as a value."""
    indexes: tuple[tuple[str, ...], ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    """Columns whose values together occur once among the rows that are not deleted."""
    title: str = ""
    """Column whose words count three times in a search."""
    text: tuple[str, ...] = ()
    """Other searched columns."""
    listed_by: str = "a list or a search"
    """Tool that finds its rows: the error of an unknown id names it."""


class Schema(Struct, frozen=True, kw_only=True):
    """The tables of one guest. A new store gets them as described; an older one runs the migrations that it lacks."""

    name: str
    """Prefix of the tables' names in the database."""
    tables: tuple[Table, ...]
    migrations: Mapping[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])
    """Version, from 2 on → statements that change the tables of the version before; `{tasks}` is a table's name.

    A new version makes the tables and indexes that are new by itself: they need no statement."""
    absorbs: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Name of a former schema → statements that move its rows into these tables, under their ids, and drop its own.

    They run once, in a store that has that schema. The search records and the marks of the rows come along."""

    def __post_init__(self) -> None:
        """Raise `UsageError` for a name that is not plain."""
        for name in (self.name, *(table.name for table in self.tables)):
            if not _PLAIN.fullmatch(name):
                raise UsageError(f"storage: {name!r} is not a name of lower-case letters, digits and _")

    @property
    def version(self) -> int:
        """The newest version."""
        return max(self.migrations, default=1)

    def table(self, name: str) -> Table:
        """Return a table. Raises `UsageError` for an unknown name."""
        for table in self.tables:
            if table.name == name:
                return table
        raise UsageError(f"storage {self.name} has no table {name!r}, only {', '.join(t.name for t in self.tables)}")


class Member(Struct, frozen=True, kw_only=True):
    """Membership of a principal in a project."""

    principal: str
    role: Role


class TextHit(Struct, frozen=True, kw_only=True):
    """A row that a search found; greater scores are better."""

    table: str
    id: str
    project_id: str
    score: float


class Event(Struct, frozen=True, kw_only=True):
    """A change or an operation that was recorded."""

    id: int
    """Grows with each event."""
    type: str
    """Dotted: `task.created`."""
    project_id: str
    """Empty for an event outside of projects: only its actor reads it."""
    actor: str
    """The principal that caused it."""
    payload: Mapping[str, Any]
    time: float
    """Seconds since 1970."""
    tainted: str = ""
    """The tool that had brought content of strangers into the session which caused it; empty for a clean one."""


class Rows(Protocol):
    """The rows that one principal may see, in one transaction. Synchronous: it runs in the store's own thread.

    A row of a foreign project is `not_found`, as an unknown id is; a member without the role gets `denied`.
    """

    @property
    def principal(self) -> str:
        """The principal of this transaction."""
        ...

    @property
    def now(self) -> float:
        """Time of this transaction, in seconds since 1970."""
        ...

    def role(self, project_id: str) -> Role | None:
        """Return the principal's role in a project; None for a project that it cannot see."""
        ...

    def require(self, project_id: str, role: Role = "editor") -> None:
        """Raise `ToolFailure` unless the principal has this role in the project: `not_found` or `denied`."""
        ...

    def get(self, table: str, id: str, role: Role = "viewer") -> Row:
        """Return a row. Raises `ToolFailure`: `not_found`, or `denied` without the role."""
        ...

    def find(self, table: str, id: str) -> Row | None:
        """Return a row; None if there is none for this principal."""
        ...

    def select(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run a SELECT, which may begin with WITH; return its rows.

        `{tasks}` in place of a table's name is the rows of that table which the principal may see. Raises `UsageError`
        for a statement that reads a table by its name in the database, or changes one. A recursion begins with a column
        of a table: PostgreSQL compares texts by their column.
        """
        ...

    def select_values(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a SELECT as `select` does; return the values of each row in the order of the columns, JSON as text.

        For thousands of rows: a mapping for each takes a third of the time of the SELECT.
        """
        ...

    def select_columns(self, columns: Sequence[str], source: str, parameters: Sequence[Any] = ()) -> list[list[Any]]:
        """Run `SELECT columns source` as `select` does; return the values of each column, all in one order of the rows.

        For thousands of rows in any order: half the time of `select_values`. Columns of texts and whole numbers only.
        `source` begins with FROM.
        """
        ...

    def create_project(self, project_id: str) -> None:
        """Make the principal the owner of a new project. Raises `ToolFailure("conflict")` for an id with members."""
        ...

    def members(self, project_id: str) -> list[Member]:
        """Return the members of a project, for any of them."""
        ...

    def set_member(self, project_id: str, principal: str, role: Role | None) -> None:
        """Add a member, change its role, or remove it with None. For owners; the last owner stays."""
        ...

    def insert(self, table: str, values: Mapping[str, Any], *, id: str = "") -> Row:
        """Add a row of `values["project_id"]`, where the principal must be an editor; return it.

        Of the rows that a transaction adds, a later one has a later `created_at`, by a microsecond.
        """
        ...

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

        Raises `ToolFailure("conflict")` unless it has this `revision` and these `expected` values. `before` is the row
        as this transaction has read it last: it is not read again.
        """
        ...

    def update_all(self, table: str, ids: Collection[str], changes: Mapping[str, Any]) -> None:
        """Change many rows in the same way, in few statements. Fails as `update` does, for one of them.

        Raises `UsageError` for columns that are searched or unique.
        """
        ...

    def delete_all(self, table: str, ids: Collection[str]) -> None:
        """Mark many rows as deleted, in few statements. Fails as `delete` does, for one of them."""
        ...

    def move(self, table: str, id: str, project_id: str) -> Row:
        """Give a row to another project and return it; the principal must be an editor of both."""
        ...

    def delete(self, table: str, id: str) -> Row:
        """Mark a row as deleted: no read returns it any more. Return it."""
        ...

    def has_room(self, key: str, most: int, count: Callable[[], int]) -> bool:
        """Whether one more fits below `most` of what `count` counts and `key` names, for the caller to add.

        Far below `most` few additions are counted.
        """
        ...

    def publish(self, type: str, project_id: str, payload: Mapping[str, Any]) -> None:
        """Record an event with this transaction: both are stored, or neither."""
        ...


class SharedStorage(Protocol):
    """The tables of a guest for one principal.

    Raises `ToolFailure("storage")` while the store cannot be used. Secrets are masked before they are stored.
    """

    @property
    def known_ids(self) -> set[tuple[str, str]]:
        """Tables and ids that the principal had read before, for the caller to add to: none of them is a name.

        Their rows may be gone.
        """
        ...

    async def read(self, work: Callable[[Rows], T], *, long: bool = False) -> T:
        """Return `work(rows)` for a `work` that only reads; `long` runs it in a thread, on one state of the store."""
        ...

    async def write(self, work: Callable[[Rows], T]) -> T:
        """Return `work(rows)`, run in one durable transaction; nothing is stored when it raises.

        `work` may be called again after a failed commit: it must not keep a state of its own.
        """
        ...

    async def build(
        self,
        project_id: str,
        parts: Sequence[Callable[[Rows], object]],
        finish: Callable[[Rows], T],
        report: Callable[[int, int], Awaitable[None]],
    ) -> T:
        """Create a project with many rows: run `parts`, then return `finish(rows)`.

        A large one takes several transactions, so that others write in between; the principal sees the project after
        the last one, whole. Where a part raises, or the process ends, it is never seen, and its rows are removed later.
        `parts` may be called again, as the work of `write`. `finish` publishes the events. `report` gets the number of
        parts that are done, and of all.
        """
        ...

    def note(self, type: str, project_id: str, payload: Mapping[str, Any]) -> None:
        """Record an event soon, together with others: for operations that only read. Never waits or raises."""
        ...

    async def search(
        self, query: str, *, project_id: str = "", tables: Sequence[str] = (), limit: int = 20
    ) -> list[TextHit]:
        """Return rows that share words with a query, best first, of one project or of all, of some tables or of all.

        With an embedder, rows of the same meaning in other words match as well.
        """
        ...


EventHandler = Callable[[Event], Awaitable[None]]


class EventLog(Protocol):
    """The events of one store, from all guests and processes."""

    async def recent(
        self, principal: str, *, project_id: str = "", types: Sequence[str] = (), limit: int = 50
    ) -> list[Event]:
        """Return the newest events that a principal may see, newest first."""
        ...

    async def subscribe(self, name: str, types: Sequence[str], handler: EventHandler) -> None:
        """Deliver events of these types (`*` for all) from now on, in their order, at least once each.

        The position is stored under `name`: after a restart, delivery resumes where it stood. An event whose handler
        raises is delivered again, later; those behind it wait. The log keeps the newest 100,000 events.
        """
        ...
