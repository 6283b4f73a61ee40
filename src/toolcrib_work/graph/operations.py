"""Declaration of operations as tools: arguments as JSON Schema, transaction, event.

    @operation_tool("onto.task.get", "get_onto_task_details", "read", {"task_id": ID("task")}, ["task_id"])
    async def run(ctx: Context, task_id: str) -> dict[str, Any]: ...

Most operations exist once for each kind; a function such as `changes._creator` makes them from the model of the kind.
A writing one publishes its event in its transaction, a reading one leaves a `note` after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, TypeVar

from toolcrib.plugin import Context, Rows, SharedStorage, ToolFailure, finds_rows, takes_names, tool

from .model import KINDS, SCHEMA, Kind
from .nodes import brief_columns, operation

CATEGORY: Final = "onto"

MOST: Final = 50
"""Entities of one list."""

OFFSET: Final = {"type": "integer", "minimum": 0, "maximum": 1_000_000, "default": 0}

T = TypeVar("T")

Operation = Callable[..., Any]
"""An async function of a context and the given arguments."""

_CURRENT: Final = (CATEGORY, "work", "cal")
"""Categories whose tools take the current project where they require one."""


def ID(noun: str, more: str = "") -> dict[str, Any]:
    """Return the schema of an id argument."""
    return {"type": "string", "minLength": 1, "maxLength": 100, "description": f"Id of the {noun}{more}"}


def limit(default: int) -> dict[str, Any]:
    """Return the schema of a limit. A larger one than `MOST` counts as that: the message of a list has the total."""
    return {"type": "integer", "minimum": 1, "default": default}


def fields_of(kind: Kind, *names: str) -> dict[str, Any]:
    """Return the schemas of a kind's fields, keys and props; all without names."""
    properties = kind.schema["properties"]
    return {name: properties[name] for name in names or properties}


def changes_of(given: Mapping[str, Any], *others: str) -> dict[str, Any]:
    """Return the fields among the arguments of an update."""
    return {name: value for name, value in given.items() if name not in others}


def operation_tool(
    op: str,
    name: str,
    kind: Literal["read", "write", "destructive"],
    properties: Mapping[str, Any],
    required: Sequence[str] = (),
    *,
    description: str = "",
    category: str = CATEGORY,
    tags: Sequence[str] = ("ontology",),
    traits: Sequence[str] = (),
    **options: Any,
) -> Callable[[Operation], Operation]:
    """Return the decorator that makes a function the tool of an operation; it is described by its docstring."""
    schema = {"type": "object", "properties": dict(properties), "required": list(required)}

    named = takes_names(SCHEMA, {"project_id": "projects"} if "project_id" in properties else {})
    if kind != "read":
        found = {f"{one.name}_id": one.plural for one in KINDS.values() if f"{one.name}_id" in properties}
        options.setdefault("check", finds_rows(SCHEMA, found))

    def mark(function: Operation) -> Operation:
        function.__doc__ = description or function.__doc__
        return tool(
            op=op,
            name=name,
            category=category,
            kind=kind,
            open_world=False,
            input_schema=schema,
            tags=tags,
            traits=[*traits] if kind == "read" else [*traits, "store_writer"],
            **options,
        )(named(function))

    return mark


def storage_of(ctx: Context) -> SharedStorage:
    """Return the tables of the graph for the caller."""
    return ctx.storage(SCHEMA)


def shift(ctx: Context, project_id: str, name: str) -> dict[str, Any]:
    """Make a project the current one of the session, and return the `context_shift` of the result."""
    with suppress(ToolFailure):  # a session that has ended makes no further call; the project is there
        ctx.set_default("project_id", project_id, categories=_CURRENT)
    return {"new_context": "project", "entity_id": project_id, "entity_name": name}


def note(ctx: Context, op: str, project_id: str = "", **more: Any) -> None:
    """Record the event of an operation that only reads."""
    storage_of(ctx).note(op, project_id, operation(op, **more))


def listed(
    rows: Rows,
    kind: Kind,
    wanted: Mapping[str, Any],
    most: int,
    *,
    offset: int = 0,
    ids: Sequence[str] | None = None,
) -> tuple[list[dict[str, Any]], int]:
    """Return the newest rows of a kind with these values, from `offset` on, and how many there are.

    The rows have the columns that `brief` needs.
    """
    given = {name: value for name, value in wanted.items() if value is not None}
    conditions = [f"{name} = ?" for name in given]
    values = [*given.values()]
    if ids is not None:
        conditions.append(f"id IN ({', '.join('?' * len(ids))})" if ids else "id IS NULL")
        values += ids
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    table = f"{{{kind.plural}}} AS one{where}"
    sql = f"SELECT {', '.join(brief_columns(kind))} FROM {table} ORDER BY updated_at DESC, id LIMIT ? OFFSET ?"
    found = rows.select(sql, [*values, most, offset])
    if len(found) < most and (found or not offset):
        return found, offset + len(found)
    # A statement of its own: PostgreSQL plans one with both anew each time, which takes longer than two of them.
    return found, int(rows.select(f"SELECT count(*) AS n FROM {table}", values)[0]["n"])


def counted(count: int, noun: str) -> str:
    """Return a number of things, of a noun that takes an s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def part(shown: int, offset: int, total: int, nouns: str) -> str:
    """Return the message of a part of a list, with the offset of the next part."""
    if shown == total:
        return f"{total} {nouns}."
    rest = f"; go on with offset {offset + shown}" if offset + shown < total else ""
    return f"{shown} of {total} {nouns}{rest}."
