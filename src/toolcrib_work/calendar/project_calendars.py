"""Calendars of projects: one each, on the first account of the person who made it."""

from __future__ import annotations

from typing import Any, Literal

from toolcrib.plugin import Context, Row, Rows, ToolFailure, invalid_argument

from ..graph.model import TITLE
from ..graph.nodes import new_id
from ..graph.operations import storage_of
from .model import utc_text
from .operation import TEXT, id_of, operation, publish, sync_of


@operation(
    "cal.project.get",
    "get_project_calendar",
    "read",
    {"project_id": id_of("project")},
    ["project_id"],
    open_world=False,
    examples=[{"project_id": "<project_id>"}],
)
async def get_project_calendar(ctx: Context, project_id: str) -> dict[str, Any]:
    """Get the calendar of a project; null where it has none yet."""
    await _require_project(ctx, project_id, "viewer")
    storage = storage_of(ctx)
    row = await storage.read(lambda rows: calendar_of_project(rows, project_id))
    payload = {"op": "cal.project.get", "entity": "project", "action": "get", "kind": "project", "id": project_id}
    storage.note("cal.project.get", project_id, payload)
    message = f"Calendar {row['name']!r}." if row is not None else "The project has no calendar yet."
    return {"calendar": _calendar_view(row) if row is not None else None, "message": message}


@operation(
    "cal.project.set",
    "set_project_calendar",
    "write",
    {
        "project_id": id_of("project"),
        "action": {"type": "string", "enum": ["create", "update"]},
        "name": {"type": "string", "minLength": 1, "maxLength": TITLE, "description": "Else that of the project"},
        "description": TEXT,
        "color_id": {"type": "string", "maxLength": 50},
        "sync_enabled": {"type": "boolean", "description": "Whether a calendar account holds it too; for create, true"},
    },
    ["project_id", "action"],
    idempotent=False,
    examples=[{"project_id": "<project_id>", "action": "create", "name": "Launch"}],
)
async def set_project_calendar(
    ctx: Context, project_id: str, action: str, sync_enabled: bool | None = None, **fields: Any
) -> dict[str, Any]:
    """Create or change the calendar of a project; with a calendar account, its events are kept in step there."""
    project = await _require_project(ctx, project_id, "editor")
    if action == "update" and not fields and sync_enabled is None:
        raise invalid_argument("", "nothing to change: give at least one field", keyword="minProperties")
    storage, op = storage_of(ctx), "cal.project.set"

    def work(rows: Rows) -> Row:
        known = calendar_of_project(rows, project_id)
        switched = {} if sync_enabled is None else {"sync_enabled": int(sync_enabled)}
        if action == "update":
            if known is None:
                raise ToolFailure("conflict", f"project {project_id} has no calendar yet", hint="create it first")
            row = rows.update("calendars", known["id"], {**fields, **switched})
        else:
            if known is not None:
                raise ToolFailure("conflict", f"project {project_id} has a calendar already", hint="use action update")
            fixed = {"project_id": project_id, "kind": "project", "principal": rows.principal, "is_shared": 0}
            place = {"name": project["name"], "account": "", "href": "", "sync_enabled": 1}
            row = rows.insert("calendars", {**fixed, **place, **fields, **switched}, id=new_id())
        publish(rows, op, row, project_id=project_id, calendar=action)
        return row

    row = await storage.write(work)
    warnings = await _place_calendar(ctx, row, is_renamed=action == "update" and bool(fields))
    current = await storage.read(lambda rows: rows.get("calendars", row["id"]))
    verb = "Created" if action == "create" else "Updated"
    message = f"{verb} calendar {current['name']!r}."
    return {"calendar": _calendar_view(current), "action": action, "warnings": warnings, "message": message}


def calendar_of_project(rows: Rows, project_id: str) -> Row | None:
    """Return the calendar of a project; None where it has none yet."""
    found = rows.select("SELECT * FROM {calendars} AS c WHERE kind = 'project' AND project_id = ?", [project_id])
    return found[0] if found else None


def _calendar_view(row: Row) -> dict[str, Any]:
    return {
        **{name: row[name] for name in ("id", "project_id", "name", "description", "color_id")},
        "principal": row["principal"],
        "sync_enabled": bool(row["sync_enabled"]),
        "account": row["account"] or None,
        "external_calendar_id": row["href"] or None,
        "sync_error": row["sync_error"],
        "last_synced_at": utc_text(row["synced_at"]),
    }


async def _require_project(ctx: Context, project_id: str, role: Literal["viewer", "editor"]) -> Row:
    """Return a project of the graph. Raises `ToolFailure`."""
    return await storage_of(ctx).read(lambda rows: rows.get("projects", project_id, role))


async def _place_calendar(ctx: Context, row: Row, *, is_renamed: bool) -> list[str]:
    """Bring a project's calendar to the first account of its principal, and its events up to date there."""
    if not row["sync_enabled"] or row["principal"] != ctx.principal:
        return []
    sync = await sync_of(ctx)
    account = next((one for one in sync.accounts if row["account"] in ("", one.name)), None)
    if account is None:
        return []
    try:
        if not row["href"]:
            await sync.make_calendar(account, row)
        elif is_renamed:
            await sync.rename_calendar(account, row)
    except ToolFailure as failure:
        hint = f": {failure.hint}" if failure.hint else ""
        return [f"calendar account {account.name}: {failure.message}{hint}"]
    await sync.run(calendar_id=row["id"])
    return sync.warnings
