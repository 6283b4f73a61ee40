"""Common parts of the calendar's operations: declaration, and the accounts of the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Any, Final, Literal

from toolcrib.plugin import (
    Context,
    Row,
    Rows,
    as_mapping,
    finds_rows,
    invalid_argument,
    takes_names,
    tool,
)

from ..graph.calendar_tables import project_of
from ..graph.model import SCHEMA
from ..graph.operations import storage_of
from .model import KIND, zone_of
from .remote import CATEGORY, accounts_of
from .sync import Sync

_REFRESH: Final = 60.0
"""Seconds between two looks at the same account; the setting `tools.calendar.refresh_seconds`."""
TIME: Final = KIND.fields["start_at"]
TEXT: Final = KIND.fields["description"]
SCOPE: Final = {"type": "string", "enum": ["user", "project", "calendar_id"]}

_Operation = Callable[..., Any]


_ROWS: Final = {"project_id": "projects", "task_id": "tasks", "onto_event_id": "events"}
"""Arguments that name a row of a table."""


def id_of(noun: str, more: str = "") -> dict[str, Any]:
    """Return the schema of an id, which the description says is `noun`'s."""
    return {"type": "string", "minLength": 1, "maxLength": 300, "description": f"Id of the {noun}{more}"}


def operation(
    op: str,
    name: str,
    kind: Literal["read", "write", "destructive"],
    properties: Mapping[str, Any],
    required: Sequence[str] = (),
    **options: Any,
) -> Callable[[_Operation], _Operation]:
    """Declare a function as the operation `op` of the calendar: a tool that reaches beyond this machine."""
    schema = {"type": "object", "properties": dict(properties), "required": list(required)}
    declared: dict[str, Any] = {"open_world": True, "tags": ["calendar"], **options}
    if kind != "read":
        found = {name: table for name, table in _ROWS.items() if name in properties}
        declared["check"] = finds_rows(SCHEMA, found)
    declare = tool(op=op, name=name, category="cal", kind=kind, input_schema=schema, **declared)
    named = takes_names(SCHEMA, {"project_id": "projects"} if "project_id" in properties else {})
    return lambda function: declare(named(function))


def _settings(ctx: Context) -> Mapping[str, Any]:
    return as_mapping(ctx.lent.setting(CATEGORY))


def default_zone(ctx: Context) -> tuple[tzinfo, str | None]:
    """Return the zone of times without an offset, and its name; UTC without a setting."""
    name = str(_settings(ctx).get("timezone") or "")
    return (zone_of(name, "tools.calendar.timezone"), name) if name else (UTC, None)


async def sync_of(ctx: Context) -> Sync:
    """Return the synchronisation of the caller's accounts, which has not begun."""
    storage = storage_of(ctx)
    now = await storage.read(lambda rows: rows.now)
    accounts = accounts_of(_settings(ctx), ctx.principal, ctx.lent.authorization)
    invitations = ctx.storage(SCHEMA, source="calendar")
    return Sync(
        storage=storage,
        invitations=invitations,
        web=ctx.lent.web,
        accounts=accounts,
        zone=default_zone(ctx)[0],
        now=now,
    )


async def refresh(ctx: Context) -> Sync:
    """Synchronise the accounts of the caller whose turn it is."""
    sync = await sync_of(ctx)
    await sync.run(older_than=_refresh_seconds(ctx))
    return sync


def _refresh_seconds(ctx: Context) -> float:
    seconds = _settings(ctx).get("refresh_seconds")
    return float(seconds) if seconds is not None else _REFRESH


async def send(ctx: Context, calendar_id: str | None, *, wanted: bool = True) -> list[str]:
    """Synchronise the calendar of a change that was stored; return warnings."""
    if not calendar_id or not wanted:
        return []
    sync = await sync_of(ctx)
    await sync.run(older_than=_refresh_seconds(ctx), calendar_id=calendar_id)
    return sync.warnings


def publish(rows: Rows, op: str, row: Row, **more: Any) -> None:
    """Record the event of a change in its transaction; `more` joins its payload."""
    _, entity, action = op.split(".")
    payload = {"op": op, "entity": entity, "action": action, "kind": entity, "id": row["id"], **more}
    rows.publish(op, project_of(row) or "", payload)


def scoped(name: str, value: str, is_wanted: bool) -> str:
    """Return `value` where the scope wants it, else an empty text. Raises `ToolFailure` where it is missing."""
    if is_wanted and not value:
        raise invalid_argument(name, f"{name} is required for this calendar_scope", keyword="required")
    return value if is_wanted else ""
