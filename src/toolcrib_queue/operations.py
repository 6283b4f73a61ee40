"""Declaration of the queue's tools: the arguments as JSON Schema, the tables, the project of a call.

    @transaction_tool("x.task.get", "tasks", "read", OF_TASK, ["task_id"])
    def get_task(rows: Rows, task_id: str) -> dict[str, Any]: ...      # one transaction, no `await`

    @queue_tool(…)
    async def claim_task(ctx: Context, agent_id: str) -> dict[str, Any]: ...   # opens its own, calls other tools

Their docstrings are the descriptions that models read.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Final, Literal

from toolcrib.plugin import (
    LOCAL,
    Context,
    Host,
    Records,
    Role,
    Row,
    Rows,
    SharedStorage,
    ToolFailure,
    finds_rows,
    fit_page,
    id_named,
    rehearsal,
    takes_names,
    tool,
)

from .model import SCHEMA

Operation = Callable[..., Any]
"""An async function of a context and the given arguments."""

NAME: Final = {"type": "string", "minLength": 1, "maxLength": 500, "pattern": r"\S"}
LONG: Final = {"type": "string", "maxLength": 50_000}
TEXT: Final = {**LONG, "minLength": 1, "pattern": r"\S"}
INTEGER: Final = {"type": "integer", "minimum": 0, "maximum": 1_000_000_000}
OFFSET: Final = {"type": "integer", "minimum": 0, "maximum": 10_000_000, "default": 0}

_CONTROL: Final = "queue"
"""Collection of the switch that `orchestrator_control` sets."""

_VALUES: Final[Mapping[str, Any]] = {"integer": 1, "boolean": True}

_PROJECT: Final[Mapping[str, Any]] = {
    "status": "ACTIVE",
    "credit_weight": 1.0,
    "max_concurrent_agents": 2,
    "total_tokens_used": 0,
    "repo_url": "",
    "repo_default_branch": "main",
}


_TABLES: Final = {"project_id": "projects", "playbook_id": "playbooks"}
"""Arguments that take the name of a row of a table."""
_ROWS: Final = {**_TABLES, "task_id": "tasks", "hook_id": "hooks", "workspace_id": "workspaces"}
"""Arguments that name a row of a table."""


def id_of(noun: str, more: str = "") -> dict[str, Any]:
    """Return the schema of an id argument."""
    what = "Id or name" if noun == "agent" else "Id"  # of projects too, where words cost every request
    return {"type": "string", "minLength": 1, "maxLength": 200, "description": f"{what} of the {noun}{more}"}


OF_AGENT: Final = {"agent_id": id_of("agent")}
OF_TASK: Final = {"task_id": id_of("task")}
"""Schema of the arguments of a tool for one task."""
OF_PROJECT: Final = {"project_id": id_of("project")}
OF_ANY_PROJECT: Final = {"project_id": id_of("project", "; without it all")}


def one_of(values: Sequence[str], *, nullable: bool = False) -> dict[str, Any]:
    """Return the schema of one of some words."""
    words = {"type": "string", "enum": [*values]}
    return {"anyOf": [words, {"type": "null"}]} if nullable else words  # some APIs take strings alone in `enum`


def limit_of(default: int, most: int) -> dict[str, Any]:
    """Return the schema of a number of results."""
    return {"type": "integer", "minimum": 1, "maximum": most, "default": default}


def read_page(
    rows: Rows, sql: str, given: Sequence[Any], line: Callable[[Row], dict[str, Any]], *, limit: int, offset: int
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Return the lines of a page, as many as fit, and `next_offset` where more follow."""
    found = rows.select(f"{sql} LIMIT ? OFFSET ?", (*given, limit + 1, offset))
    lines = fit_page(line(row) for row in found[:limit])
    return lines, {"next_offset": offset + len(lines)} if len(lines) < len(found) else {}


def queue_tool(
    op: str,
    category: str,
    kind: Literal["read", "write", "destructive"],
    properties: Mapping[str, Any],
    required: Sequence[str] = (),
    *,
    additional: bool = False,
    **options: Any,
) -> Callable[[Operation], Operation]:
    """Return the decorator that makes a function a tool of the queue; `additional` lets it take other arguments."""
    schema = {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": additional,
    }
    given: dict[str, Any] = {"open_world": False, "tags": ["queue"], "examples": [_example(properties, required)]}
    if kind != "read":
        given["check"] = finds_rows(SCHEMA, {name: table for name, table in _ROWS.items() if name in properties})
    declare = tool(op=op, category=category, kind=kind, input_schema=schema, **{**given, **options})
    named = takes_names(SCHEMA, {name: table for name, table in _TABLES.items() if name in properties})
    return lambda function: declare(named(function))


def transaction_tool(
    op: str,
    category: str,
    kind: Literal["read", "write", "destructive"],
    properties: Mapping[str, Any],
    required: Sequence[str] = (),
    **options: Any,
) -> Callable[[Callable[..., dict[str, Any]]], Operation]:
    """Return the decorator for a tool that is one transaction: a function of the rows and the given arguments."""

    def mark(work: Callable[..., dict[str, Any]]) -> Operation:
        @wraps(work)
        async def run(ctx: Context, *arguments: Any, **given: Any) -> dict[str, Any]:
            storage = storage_of(ctx)
            transaction = storage.read if kind == "read" else storage.write
            return await transaction(lambda rows: work(rows, *arguments, **given))

        run.__annotations__ = {"ctx": Context}  # those of `work` name no context
        given: dict[str, Any] = {} if kind == "read" else {"check": rehearsal(SCHEMA, work, _TABLES)}
        return queue_tool(op, category, kind, properties, required, **{**given, **options})(run)

    return mark


def _example(properties: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    """Return the required arguments, with a value of its type for each."""
    return {
        name: properties[name]["enum"][0]
        if "enum" in properties[name]
        else _VALUES.get(properties[name]["type"], f"<{name}>")
        for name in required
    }


def storage_of(ctx: Context, *, source: str = "") -> SharedStorage:
    """Return the tables of the queue for the caller; `source` is the origin of content of strangers to be written."""
    return ctx.storage(SCHEMA, source=source)


def home_of(rows: Rows) -> str:
    """Return the project that holds a principal's agents and profiles, and tasks without another project."""
    return f"inbox-{hashlib.sha256(rows.principal.encode()).hexdigest()[:12]}"


def open_home(rows: Rows) -> str:
    """Return `home_of`, made when missing."""
    home = home_of(rows)
    if rows.role(home) is None:
        rows.create_project(home)
        rows.insert("projects", {"project_id": home, **_PROJECT, "name": "Inbox"}, id=home)
    return home


def named_row(rows: Rows, table: str, named: str, project_id: str) -> Row:
    """Return the row with this id, else the only one of the project with this name; to be changed.

    Raises `ToolFailure`: `conflict` for a name that several have, what `Rows.get` raises for none.
    """
    return rows.get(table, id_named(rows, table, named, project_id) if project_id else named, "editor")


def in_project(
    rows: Rows, project_id: str, joint: Literal["AND", "WHERE"] = "AND", role: Role = "viewer"
) -> tuple[str, tuple[str, ...]]:
    """Return the condition for the rows of a project, and its values; empty where the rows of any are meant.

    Raises `ToolFailure` for a project that the principal has not in that role.
    """
    if not project_id:
        return "", ()
    rows.get("projects", project_id, role)
    return f" {joint} project_id = ?", (project_id,)


def project_of(ctx: Context, rows: Rows, project_id: str) -> str:
    """Return the project of a new task: the named one, the active one, else the caller's inbox.

    Raises `ToolFailure` for an unknown one.
    """
    if project_id:
        return rows.get("projects", project_id, "editor")["id"]
    return active_project(ctx, rows) or open_home(rows)


def active_project(ctx: Context, rows: Rows) -> str:
    """Return the project of the session's context; empty where it names none of the queue."""
    named = str(ctx.defaults.get("project_id") or "")
    return named if named and rows.find("projects", named) is not None else ""


def named_id(rows: Rows, name: str) -> str:
    """Return the id of a new project, made of its name; the caller becomes its owner.

    The ids of other principals than the user of this machine end in a mark of theirs, so that no id tells which
    projects others have.
    """
    letters = [one for one in unicodedata.normalize("NFKD", name.casefold()) if not unicodedata.combining(one)]
    words = "".join(one if one.isalnum() and one.isascii() else " " for one in letters).split()
    base = "-".join(words)[:60] or "project"
    if rows.principal != LOCAL:
        base += f"-{home_of(rows)[-6:]}"
    number, id = 1, base
    while not _take(rows, id):
        number += 1
        id = f"{base}-{number}"
    return id


def _take(rows: Rows, id: str) -> bool:
    """Whether an id is the caller's now; that of a deleted project stays taken, with its events and results."""
    try:
        rows.create_project(id)
    except ToolFailure:
        return False
    return True


def changes_of(given: Mapping[str, Any], *others: str) -> dict[str, Any]:
    """Return the changed fields of an edit. Raises `ToolFailure` without any."""
    changes = {name: value for name, value in given.items() if name not in others}
    if not changes:
        raise ToolFailure("invalid_arguments", "nothing to change: give at least one field")
    return changes


async def is_paused(ctx: Context) -> bool:
    """Whether the caller's queue hands out no tasks at present."""
    return await _is_set(ctx.records(_CONTROL))


async def is_paused_for(host: Host, principal: str) -> bool:
    """Whether the queue of a principal hands out no tasks at present."""
    return await _is_set(host.records(principal, _CONTROL))


async def _is_set(records: Records) -> bool:
    found = await records.get("control")
    return found is not None and bool(found.value["is_paused"])


async def set_paused(ctx: Context, value: bool) -> None:
    """Pause or resume the caller's queue."""
    await ctx.records(_CONTROL).put("control", {"is_paused": value}, text="")
