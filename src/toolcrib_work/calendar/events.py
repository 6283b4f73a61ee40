"""Operations on one event: get, create, update and delete, here and on its calendar server.

    read the row ─> ask the owner of a shared calendar ─> times and rule, in a thread ─> one transaction: row, event
      ─> `send`: the calendar of the event is synchronised ─> the row as it is by then, with warnings

Nothing but the transaction decides whether the operation succeeds: a server that does not answer leaves the event
pending. The transaction compares what was checked before it: of an update the revision of the row, of one occurrence
that is deleted the columns of its series.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import tzinfo
from typing import Any, Final, Literal

import anyio.to_thread

from toolcrib.plugin import Context, Row, Rows, ToolFailure, invalid_argument

from ..graph.calendar_tables import NOT_DELETING, project_of
from ..graph.nodes import get_row
from ..graph.operations import fields_of as schemas_of
from ..graph.operations import storage_of
from .computing_limit import in_turn
from .event_changes import checked_changes, checked_rule, instance_changes, known_instance, series_zone
from .event_rows import insert_event, owners_of
from .model import KIND, ensure_personal, event_view, fields_of
from .operation import (
    SCOPE,
    TIME,
    default_zone,
    id_of,
    operation,
    publish,
    refresh,
    scoped,
    send,
)
from .project_calendars import calendar_of_project
from .sync import mark_deleted, mark_pending, resolve

_OF_SERIES: Final = ("start_at", "end_at", "timezone", "recurrence", "ical")
"""Columns that say when the occurrences of a series are."""
_SYNC: Final = {"type": "boolean", "default": True, "description": "Whether the calendar server gets the change"}
_INSTANCE: Final = {
    **TIME,
    "description": "Of a recurring event: `instance_start_at` of the one occurrence that is meant, from a list",
}
_WHICH: Final[Mapping[str, Any]] = {
    "onto_event_id": id_of("event"),
    "event_id": id_of("event", " on its calendar server"),
    "calendar_scope": SCOPE,
    "project_id": id_of("project"),
    "calendar_id": id_of("calendar"),
}


@operation(
    "cal.event.get",
    "get_calendar_event_details",
    "read",
    _WHICH,
    open_world=False,
    examples=[{"onto_event_id": "<onto_event_id>"}],
)
async def get_calendar_event_details(ctx: Context, **given: Any) -> dict[str, Any]:
    """Get one event with all its fields, by onto_event_id or event_id; of a conflict both versions."""
    storage = storage_of(ctx)

    def work(rows: Rows) -> tuple[Row, dict[str, Any]]:
        row = _find(rows, given)
        return row, _view(rows, row)

    row, shown = await storage.read(work)
    payload = {"op": "cal.event.get", "entity": "event", "action": "get", "kind": "event", "id": row["id"]}
    storage.note("cal.event.get", project_of(row) or "", payload)
    return {"source": row["origin"], "event": shown, "message": f"Event {row['title']!r}."}


@operation(
    "cal.event.create",
    "create_calendar_event",
    "write",
    {
        **schemas_of(KIND, "title", "start_at"),
        "end_at": {**KIND.fields["end_at"], "type": "string"},
        **schemas_of(KIND, "description", "location"),
        "project_id": id_of("project"),
        "task_id": id_of("task", " of the project that the event is for"),
        "calendar_scope": {**SCOPE, "default": "user"},
        "calendar_id": id_of("calendar"),
        "sync_to_calendar": _SYNC,
        **schemas_of(KIND, "timezone", "recurrence"),
        "type_key": {**KIND.schema["properties"]["type_key"], "default": KIND.default_type},
    },
    ["title", "start_at"],
    examples=[
        {"title": "Call the printer", "start_at": "2026-11-30T09:00:00+01:00", "end_at": "2026-11-30T09:30:00+01:00"}
    ],
)
async def create_calendar_event(
    ctx: Context,
    title: str,
    start_at: str,
    calendar_scope: str,
    sync_to_calendar: bool,
    type_key: str,
    end_at: str | None = None,
    description: str | None = None,
    location: str | None = None,
    project_id: str = "",
    task_id: str = "",
    calendar_id: str = "",
    timezone: str | None = None,
    recurrence: str | None = None,
) -> dict[str, Any]:
    """Create an event (meeting, appointment, lunch): of a project, or of the user alone without project_id.

    With a synchronised calendar it is sent to the server as well. A repeated event needs `timezone`, so that it keeps
    its hour in summer and winter.
    """
    (zone, zone_name), op = default_zone(ctx), "cal.event.create"
    of_calendar = calendar_id or scoped("calendar_id", "", calendar_scope == "calendar_id")
    if calendar_scope == "project":
        scoped("project_id", project_id, True)
    if recurrence and not timezone:
        timezone = series_zone(start_at, zone, zone_name)
    times = fields_of({}, {"start_at": start_at, "end_at": end_at, "timezone": timezone}, zone, zone_name)
    async with in_turn(ctx.principal):
        rule = await anyio.to_thread.run_sync(checked_rule, recurrence, times, zone)
    storage = storage_of(ctx)
    of_project = await storage.read(lambda rows: _project_of_task(rows, task_id, project_id)) if task_id else project_id
    calendar, failed = await _calendar_of(ctx, of_project, of_calendar, is_sent=sync_to_calendar)

    def work(rows: Rows) -> Row:
        here = of_project or (calendar["project_id"] if calendar is not None else ensure_personal(rows))
        rows.require(here)
        uid = str(uuid.uuid4())
        row = insert_event(
            rows,
            {
                "project_id": here,
                "uid": uid,
                "title": title.strip(),
                "description": description,
                "location": location,
                **times,
                **({"ends": None} if rule else {}),
                "recurrence": rule,
                "exceptions": {},
                "type_key": type_key,
                "state_key": "confirmed",
                "origin": "ontology",
                "calendar_id": None if calendar is None else calendar["id"],
                "href": None if calendar is None else f"{calendar['href']}{uid}.ics",
                "sync_status": "local" if calendar is None else "pending",
            },
            task_id=task_id,
        )
        publish(rows, op, row, title=row["title"])
        return row

    row = await storage.write(work)
    warnings = [*failed, *await send(ctx, row["calendar_id"])]
    return await _changed(ctx, row, warnings, f"Created event {row['title']!r}")


@operation(
    "cal.event.update",
    "update_calendar_event",
    "write",
    {
        **_WHICH,
        **schemas_of(KIND, "title", "start_at", "end_at", "description", "location"),
        "sync_to_calendar": _SYNC,
        **schemas_of(KIND, "timezone", "recurrence", "type_key", "state_key"),
        "instance_start_at": _INSTANCE,
        "resolve_conflict": {"type": "string", "enum": ["keep_local", "keep_remote"]},
    },
    idempotent=False,
    examples=[{"onto_event_id": "<onto_event_id>", "start_at": "2026-12-01T10:00:00+01:00"}],
)
async def update_calendar_event(ctx: Context, sync_to_calendar: bool, **given: Any) -> dict[str, Any]:
    """Change fields of an event, of one occurrence with instance_start_at, or end a conflict with resolve_conflict.

    An end moves with its beginning, unless it is given. null clears a field.
    """
    zone, zone_name = default_zone(ctx)
    instance, choice = given.get("instance_start_at"), given.get("resolve_conflict")
    changes = {
        name: value for name, value in given.items() if name not in (*_WHICH, "instance_start_at", "resolve_conflict")
    }
    if not changes and not choice:
        raise invalid_argument("", "nothing to change: give at least one field", keyword="minProperties")
    storage = storage_of(ctx)
    before = await storage.read(lambda rows: _find(rows, given, "editor"))
    await _ask_owner_of(ctx, before, is_sent=sync_to_calendar)
    async with in_turn(ctx.principal):
        checked = await anyio.to_thread.run_sync(_checked, before, changes, instance or "", zone, zone_name)

    def work(rows: Rows) -> Row | None:
        row = rows.get("events", before["id"], "editor")
        if row["revision"] != before["revision"]:
            raise ToolFailure("conflict", f"event {row['id']} was changed meanwhile", hint="read it again")
        if row["conflict"]:
            if not choice:
                raise ToolFailure(
                    "conflict",
                    f"event {row['id']}: {row['sync_error']}",
                    hint="get_calendar_event_details shows both; choose by resolve_conflict: keep_local or keep_remote",
                )
            resolved = resolve(rows, row, choice, rows.now)
            if resolved is None or not changes:
                publish(rows, "cal.event.update", row, fields=["conflict"])
                return resolved
            raise invalid_argument("resolve_conflict", "end the conflict first, then change the event")
        if choice:
            raise invalid_argument("resolve_conflict", f"event {row['id']} has no conflict")
        if not sync_to_calendar and row["sync_status"] == "synced":
            raise invalid_argument("sync_to_calendar", "an event of a synchronised calendar is changed there as well")
        row = mark_pending(rows, row, checked)
        publish(rows, "cal.event.update", row, fields=sorted(changes))
        return row

    row = await storage.write(work)
    warnings = await send(ctx, before["calendar_id"])
    if row is None:
        return {"event": None, "warnings": warnings, "message": f"Deleted event {before['title']!r}, as on its server."}
    return await _changed(ctx, row, warnings, f"Updated event {row['title']!r}")


def _checked(
    before: Row, changes: Mapping[str, Any], instance: str, zone: tzinfo, zone_name: str | None
) -> dict[str, Any]:
    """Return the columns that an update changes. Raises `ToolFailure`."""
    if not changes:
        return {}
    if instance:
        return instance_changes(before, instance, changes, zone)
    return checked_changes(before, changes, zone, zone_name)


@operation(
    "cal.event.delete",
    "delete_calendar_event",
    "destructive",
    {**_WHICH, "sync_to_calendar": _SYNC, "instance_start_at": _INSTANCE},
    examples=[{"onto_event_id": "<onto_event_id>"}],
)
async def delete_calendar_event(
    ctx: Context, sync_to_calendar: bool, instance_start_at: str = "", **given: Any
) -> dict[str, Any]:
    """Delete an event, here and on its calendar server, or one occurrence of a recurring event."""
    zone, _ = default_zone(ctx)
    storage = storage_of(ctx)
    before = await storage.read(lambda rows: _find(rows, given, "editor"))
    await _ask_owner_of(ctx, before, is_sent=sync_to_calendar)
    key = ""
    if instance_start_at:
        async with in_turn(ctx.principal):
            key = await anyio.to_thread.run_sync(known_instance, before, instance_start_at, zone)
    if before["sync_status"] in ("synced", "pending") and not sync_to_calendar:
        raise invalid_argument("sync_to_calendar", "an event of a synchronised calendar is deleted there as well")

    def work(rows: Rows) -> None:
        row = rows.get("events", before["id"], "editor")
        if row["conflict"]:
            raise ToolFailure(
                "conflict",
                f"event {row['id']}: {row['sync_error']}",
                hint="choose a version with update_calendar_event and resolve_conflict, then delete the event",
            )
        if key:
            if any(row[name] != before[name] for name in _OF_SERIES):
                raise ToolFailure("conflict", f"event {row['id']} was changed meanwhile", hint="read it again")
            mark_pending(rows, row, {"exceptions": {**row["exceptions"], key: None}})
        else:
            mark_deleted(rows, row, everywhere=sync_to_calendar)
        publish(rows, "cal.event.delete", row, title=row["title"])

    await storage.write(work)
    warnings = await send(ctx, before["calendar_id"], wanted=sync_to_calendar)
    left = await storage.read(lambda rows: rows.find("events", before["id"]))
    what = f"one occurrence of event {before['title']!r}" if instance_start_at else f"event {before['title']!r}"
    if left is not None and left["sync_status"] == "conflict":
        return {"deleted": None, "synced": False, "warnings": warnings, "message": f"{what}: {left['sync_error']}."}
    return {
        "deleted": before["id"],
        **({"instance_start_at": instance_start_at} if instance_start_at else {}),
        "synced": bool(before["calendar_id"]) and (left is None or left["sync_status"] == "synced"),
        "warnings": warnings,
        "message": f"Deleted {what}.",
    }


def _find(rows: Rows, given: Mapping[str, Any], role: Literal["viewer", "editor"] = "viewer") -> Row:
    """Return the event that the arguments name; an `event_id` may be one of ours, too. Raises `ToolFailure`."""
    if id := given.get("onto_event_id"):
        row = get_row(rows, KIND, id, role)
        if given.get("event_id", id) not in (row["uid"], row["id"]):
            raise invalid_argument("event_id", f"event {id} has the event_id {row['uid']!r}; give one of the two")
        return row
    if not (uid := given.get("event_id")):
        raise invalid_argument("onto_event_id", "onto_event_id or event_id is required", keyword="required")
    conditions, values = ["(uid = ? OR id = ?)", NOT_DELETING], [uid, uid]
    for name, scope in (("project_id", "project"), ("calendar_id", "calendar_id")):
        value = given.get(name) or ""
        scoped(name, value, given.get("calendar_scope") == scope)
        if value:
            conditions.append(f"{name} = ?")
            values.append(value)
    sql = f"SELECT id FROM {{events}} AS e WHERE {' AND '.join(conditions)} ORDER BY origin DESC, id LIMIT 2"
    found = rows.select(sql, values)
    if not found:
        raise ToolFailure("not_found", f"there is no event {uid[:200]!r}", hint="list_calendar_events has the ids")
    return rows.get("events", found[0]["id"], role)


def _view(rows: Rows, row: Row) -> dict[str, Any]:
    return event_view(row, owners_of(rows, [row["id"]]).get(row["id"]))


async def _changed(ctx: Context, row: Row, warnings: list[str], message: str) -> dict[str, Any]:
    """Return an event after a change, as it is stored now."""

    def work(rows: Rows) -> dict[str, Any]:
        return _view(rows, rows.find("events", row["id"]) or row)

    shown = await storage_of(ctx).read(work)
    waits = {"pending": "; it waits to be sent to its calendar", "conflict": "; its calendar has another version"}
    text = f"{message}{waits.get(shown['sync_status'], '')}."
    return {"event": shown, "warnings": warnings, "message": text}


def _project_of_task(rows: Rows, task_id: str, project_id: str) -> str:
    """Return the project of a task, which is that of the event."""
    task = rows.get("tasks", task_id)
    if project_id and task["project_id"] != project_id:
        raise invalid_argument("task_id", f"task {task_id} belongs to another project")
    return str(task["project_id"])


async def _calendar_of(
    ctx: Context, project_id: str, calendar_id: str, *, is_sent: bool
) -> tuple[Row | None, list[str]]:
    """Return the calendar that a new event is sent to, None for none, and warnings. Raises `ToolFailure`."""

    async def target() -> Row | None:
        return await storage_of(ctx).read(lambda rows: _target(rows, project_id, calendar_id))

    found, failed = await target(), list[str]()
    if not is_sent:
        return None, failed
    if found is None and not project_id and not calendar_id:
        sync = await refresh(ctx)  # the calendars of an account may not be known yet
        failed, found = sync.warnings, await target()
        if found is None and sync.accounts:
            known = "is known yet" if failed else "takes events of yours: make one there"
            failed = [*failed, f"the event is kept here alone: no calendar of an account {known}"]
    if found is not None:
        await _ask_owner(ctx, found)
    return found, failed


def _target(rows: Rows, project_id: str, calendar_id: str) -> Row | None:
    """Return the calendar that gets a new event; None where it is only stored here."""
    if project_id:
        rows.require(project_id)
    if calendar_id:
        calendar = rows.get("calendars", calendar_id, "editor")
        if project_of(calendar) and project_id and calendar["project_id"] != project_id:
            raise invalid_argument("calendar_id", f"calendar {calendar_id} belongs to another project")
        return calendar if calendar["href"] and calendar["sync_enabled"] else None
    if project_id:
        calendar = calendar_of_project(rows, project_id)
        return calendar if calendar is not None and calendar["href"] and calendar["sync_enabled"] else None
    sql = (
        "SELECT * FROM {calendars} AS c WHERE kind = 'user' AND principal = ? AND sync_enabled = 1 AND is_shared = 0"
        " ORDER BY created_at, id LIMIT 1"
    )
    found = rows.select(sql, [rows.principal])
    return found[0] if found else None


async def _ask_owner_of(ctx: Context, row: Row, *, is_sent: bool) -> None:
    if row["calendar_id"] and is_sent:
        calendar = await storage_of(ctx).read(lambda rows: rows.find("calendars", row["calendar_id"]))
        if calendar is not None:
            await _ask_owner(ctx, calendar)


async def _ask_owner(ctx: Context, calendar: Row) -> None:
    """Ask the user before a change in a calendar of another person. Raises `ToolFailure` without a yes."""
    if not calendar["is_shared"]:
        return
    question = f"Calendar {calendar['name']!r} belongs to another person. Change it?"
    answer = await ctx.clarify(question, ("yes", "no"), allow_custom=False)
    if answer != "yes":
        raise ToolFailure("denied", f"the user did not agree to a change in calendar {calendar['name']!r}")
