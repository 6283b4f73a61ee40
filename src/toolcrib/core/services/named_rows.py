"""Rows that the arguments of guests' tools name, and checks that they are there before a person is asked.

Rows have ids; people and models know projects and playbooks by their names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any

from ...errors import ToolFailure
from ..context import Context
from .shared_storage import Rows, Schema

_Function = Callable[..., Awaitable[Any]]
_Check = Callable[[Mapping[str, Any], Context], Awaitable[None]]


def id_named(rows: Rows, table: str, named: str, project_id: str = "") -> str:
    """Return the id of the only row with this name, if `named` is not an id; `named` itself where no row has the name.

    `project_id` leaves out other projects. Raises `ToolFailure("conflict")` for a name that several rows have.
    """
    return _known_id(rows, table, named, project_id) or named


def _known_id(rows: Rows, table: str, named: str, project_id: str = "") -> str:
    """Return `id_named`, empty if there is neither a row with this id nor one with this name."""
    if rows.select_values(f"SELECT id FROM {{{table}}} AS t WHERE id = ?", (named,)):
        return named
    chosen, given = (" AND project_id = ?", (project_id,)) if project_id else ("", ())
    sql = f"SELECT id FROM {{{table}}} AS t WHERE lower(name) = lower(?){chosen} ORDER BY created_at, id"
    same = [str(row["id"]) for row in rows.select(sql, (named.strip(), *given))]
    if len(same) > 1:
        raise ToolFailure("conflict", f"{len(same)} {table} are called {named!r}", hint=f"ids: {', '.join(same)}")
    return same[0] if same else ""


def takes_names(schema: Schema, tables: Mapping[str, str]) -> Callable[[_Function], _Function]:
    """Return the decorator for a tool whose arguments may be names of rows: `{"project_id": "projects"}`.

    The function gets ids, by `id_named`. It is the inner decorator: a tool's declaration stands on what it returns.

        @tool(...)
        @takes_names(SCHEMA, {"project_id": "projects"})
        async def list_tasks(ctx: Context, project_id: str) -> list[dict[str, Any]]: ...
    """

    def mark(function: _Function) -> _Function:
        @wraps(function)
        async def run(ctx: Context, *arguments: Any, **given: Any) -> Any:
            storage = ctx.storage(schema)
            known = storage.known_ids
            wanted = {
                name: given[name] for name, of in tables.items() if given.get(name) and (of, given[name]) not in known
            }
            if wanted:

                def ids(rows: Rows) -> dict[str, str]:
                    return {name: _known_id(rows, tables[name], named) for name, named in wanted.items()}

                found = {name: id for name, id in (await storage.read(ids)).items() if id}
                known.update((tables[name], id) for name, id in found.items())
                given |= found
            return await function(ctx, *arguments, **given)

        return run if tables else function

    return mark


class _Rehearsed(ToolFailure):
    """Ends the transaction of a rehearsal: nothing of it is stored."""


def finds_rows(schema: Schema, tables: Mapping[str, str]) -> _Check | None:
    """Return the `check` of a tool whose arguments name rows, `{"task_id": "tasks"}`; None without such arguments.

    It raises the failure of a row that does not exist.
    """

    @takes_names(schema, {name: table for name, table in tables.items() if "name" in schema.table(table).columns})
    async def find(ctx: Context, **given: Any) -> None:
        def look(rows: Rows) -> None:
            for name, table in tables.items():
                if given.get(name):
                    rows.get(table, given[name])

        await ctx.storage(schema).read(look)

    async def check(arguments: Mapping[str, Any], ctx: Context) -> None:
        await find(ctx, **arguments)

    return check if tables else None


def rehearsal(schema: Schema, work: Callable[..., Any], named: Mapping[str, str] | None = None) -> _Check:
    """Return the `check` of a tool that changes rows by `work(rows, **arguments)`: that runs, and is taken back.

    It raises every failure of `work`: rows that do not exist, or are in another state. `named` as of `takes_names`.
    """

    @takes_names(schema, named or {})
    async def rehearse(ctx: Context, **given: Any) -> None:
        def run(rows: Rows) -> None:
            work(rows, **given)
            raise _Rehearsed("cancelled", "rehearsal")

        with suppress(_Rehearsed):
            await ctx.storage(schema).write(run)

    async def check(arguments: Mapping[str, Any], ctx: Context) -> None:
        await rehearse(ctx, **arguments)

    return check
