"""Checks of tools that change rows of guests: no person is asked about a call that must fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from ...errors import ToolFailure
from ..context import Context
from .named_rows import takes_names
from .shared_storage import Rows, Schema

__all__ = ["finds_rows", "rehearsal"]

_Check = Callable[[Mapping[str, Any], Context], Awaitable[None]]


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
