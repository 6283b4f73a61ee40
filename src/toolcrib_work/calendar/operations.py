"""Operations `cal.*`: events of the user and of projects, and the calendars of projects."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Any, Final, Literal, cast

import anyio.to_thread

from toolcrib.plugin import Context, Row, Rows, SharedStorage, ToolFailure, tool

from ..graph.model import SCHEMA as GRAPH
from .ical import Occurrence, check_rule, needs, occurrences
from .model import (
    SCHEMA,
    Range,
    changed_times,
    ensure_personal,
    event_view,
    fields_of,
    instance_key,
    invalid,
    moment_text,
    parse_moment,
    project_of,
    utc_text,
    zone_of,
)
from .remote import CATEGORY, accounts_of
from .sync import Sync, mark_deleted, mark_pending, resolve

__all__ = [
    "create_calendar_event",
    "delete_calendar_event",
    "get_calendar_event_details",
    "get_project_calendar",
    "list_calendar_events",
    "list_range",
    "set_project_calendar",
    "update_calendar_event",
]

_TITLE: Final = 500
_LONG: Final = 50_000
_REFRESH: Final = 60.0
"""Seconds between two looks at the same account; the setting `tools.calendar.refresh_seconds`."""
_YEAR: Final = timedelta(days=366)
_WIDEST: Final = timedelta(days=366 * 10)
_READ: Final = 20_000
"""Events that one list considers."""

_TIME: Final = {
    "type": "string",
    "maxLength": 40,
    "description": "ISO 8601: a time, or a day for an event of whole days",
}
_END: Final = {**_TIME, "description": "ISO 8601; of whole days the day after the last one"}
_TEXT: Final = {"type": ["string", "null"], "maxLength": _LONG}
_SCOPE: Final = {"type": "string", "enum": ["user", "project", "calendar_id"]}
_ZONE: Final = {"type": ["string", "null"], "maxLength": 100, "description": "IANA name, such as Europe/Berlin"}
_RULE: Final = {
    "type": ["string", "null"],
    "maxLength": 500,
    "description": "RRULE of RFC 5545, such as FREQ=WEEKLY;BYDAY=MO",
}
_TYPE: Final = {
    "type": "string",
    "pattern": r"^event\.(work|collab|marker)(\.[a-z0-9_]+)*$",
    "maxLength": 200,
    "default": "event.work",
}
_SYNC: Final = {"type": "boolean", "default": True, "description": "Whether the calendar server gets the change"}
_INSTANCE: Final = {
    **_TIME,
    "description": "Of a recurring event: `instance_start_at` of the one occurrence that is meant, from a list",
}


def _id(noun: str, more: str = "") -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": 300, "description": f"Id of the {noun}{more}"}


_WHICH: Final[Mapping[str, Any]] = {
    "onto_event_id": _id("event"),
    "event_id": _id("event", " on its calendar server"),
    "calendar_scope": _SCOPE,
    "project_id": _id("project"),
    "calendar_id": _id("calendar"),
}

_Operation = Callable[..., Any]


def _operation(
    op: str,
    name: str,
    kind: Literal["read", "write", "destructive"],
    properties: Mapping[str, Any],
    required: Sequence[str] = (),
    **options: Any,
) -> Callable[[_Operation], _Operation]:
    schema = {"type": "object", "properties": dict(properties), "required": list(required)}
    declared: dict[str, Any] = {"open_world": True, "tags": ["calendar"], **options}
    return tool(op=op, name=name, category="cal", kind=kind, input_schema=schema, **declared)


# --- settings


def _storage(ctx: Context) -> SharedStorage:
    return ctx.storage(SCHEMA)


def _settings(ctx: Context) -> Mapping[str, Any]:
    given = ctx.lent.setting(CATEGORY)
    return cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {}


def _zone(ctx: Context) -> tuple[tzinfo, str | None]:
    """Return the zone of times without an offset, and its name; UTC without a setting."""
    name = str(_settings(ctx).get("timezone") or "")
    return (zone_of(name, "tools.calendar.timezone"), name) if name else (UTC, None)


async def _sync(ctx: Context) -> Sync:
    storage = _storage(ctx)
    now = await storage.read(lambda rows: rows.now)
    accounts = accounts_of(_settings(ctx), ctx.principal, ctx.lent.authorization)
    invitations = ctx.storage(SCHEMA, source="calendar")
    return Sync(
        storage=storage, invitations=invitations, web=ctx.lent.web, accounts=accounts, zone=_zone(ctx)[0], now=now
    )


async def _refresh(ctx: Context) -> Sync:
    """Synchronise the accounts of the caller whose turn it is."""
    sync = await _sync(ctx)
    seconds = _settings(ctx).get("refresh_seconds")
    await sync.run(older_than=float(seconds) if seconds is not None else _REFRESH)
    return sync


async def _send(ctx: Context, calendar_id: str | None, *, wanted: bool = True) -> list[str]:
    """Synchronise the calendar of a change that was stored; return warnings."""
    if not calendar_id or not wanted:
        return []
    sync = await _sync(ctx)
    await sync.run(calendar_id=calendar_id)
    return sync.warnings


def _publish(rows: Rows, op: str, row: Row, **more: Any) -> None:
    _, entity, action = op.split(".")
    payload = {"op": op, "entity": entity, "action": action, "kind": entity, "id": row["id"], **more}
    rows.publish(op, project_of(row) or "", payload)


# --- lists


def list_range(
    rows: Rows,
    start: datetime,
    end: datetime,
    *,
    project_id: str = "",
    calendar_id: str = "",
    zone: tzinfo = UTC,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the events between two moments that a principal may see, earliest first, and warnings.

    Of all its projects and its own, of one project, or of one calendar. A series is one entry for each occurrence, an
    event in two calendars is one entry. Nothing is read from calendar servers.
    """
    range = Range(start=start, end=end, zone=zone)
    conditions = ["starts < ?", "(ends IS NULL OR ends >= ?)", "sync_status <> 'deleting'"]
    values: list[Any] = [end.timestamp() + 86_400, start.timestamp() - 86_400]
    for name, value in (("project_id", project_id), ("calendar_id", calendar_id)):
        if value:
            conditions.append(f"{name} = ?")
            values.append(value)
    sql = f"SELECT * FROM {{events}} AS e WHERE {' AND '.join(conditions)} ORDER BY origin DESC, starts, id LIMIT ?"
    found = rows.select(sql, [*values, _READ + 1])
    warnings: list[str] = []
    if len(found) > _READ:
        warnings.append(f"only {_READ:,} events were considered: choose a shorter time range")
    entries: dict[tuple[str, str], tuple[datetime, dict[str, Any]]] = {}
    for row in found[:_READ]:
        try:
            for one in occurrences(row, range):
                begins = one.start if isinstance(one.start, datetime) else datetime.combine(one.start, time(), zone)
                entries.setdefault((row["uid"], one.key or instance_key(one.start)), (begins, _entry(row, one)))
        except ToolFailure as failure:
            warnings.append(f"event {row['title']!r} is not listed: {failure.message}: {failure.hint}")
        except Exception as error:  # noqa: BLE001 - a series that the library cannot expand hides no other event
            warnings.append(f"event {row['title']!r} is not listed: {error}")
    ordered = sorted(entries.values(), key=lambda entry: (entry[0], entry[1]["title"]))
    conflicts = sum(row["sync_status"] == "conflict" for row in found[:_READ])
    if conflicts:
        warnings.append(f"{conflicts} events have a conflict: cal.event.get shows both versions")
    return [entry for _, entry in ordered], list(dict.fromkeys(warnings))


def _entry(row: Row, one: Occurrence) -> dict[str, Any]:
    """Return a line of a list. Fields without a value are left out: lists are what a model reads often."""
    fields = {**row, **(one.changes or {})}
    event = {
        name: fields[name]
        for name in ("description", "location", "timezone", "recurrence", "task_id", "calendar_id", "external_link")
        if fields[name]
    }
    if row["all_day"]:
        event["all_day"] = True
    if row["state_key"] != "confirmed":
        event["state_key"] = row["state_key"]
    if row["sync_status"] not in ("local", "synced"):
        event["sync_status"] = row["sync_status"]
    if project_of(row):
        event["project_id"] = row["project_id"]
    if "description" in event:
        event["description"] = event["description"][:200]
    return {
        "source": row["origin"],
        "onto_event_id": row["id"],
        "external_event_id": row["uid"] if row["etag"] else None,
        "is_synced": row["sync_status"] == "synced",
        "title": fields["title"],
        "start_at": moment_text(one.start),
        "end_at": moment_text(one.end) if one.end is not None else None,
        **({"instance_start_at": one.key} if one.key else {}),
        "event": event,
    }


@_operation(
    "cal.event.list",
    "list_calendar_events",
    "read",
    {
        "timeMin": {**_TIME, "description": "ISO 8601; without it today"},
        "timeMax": {**_TIME, "description": "ISO 8601; without it a year later"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 200, "default": 50},
        "offset": {"type": "integer", "minimum": 0, "maximum": 1_000_000, "default": 0},
        "calendar_scope": {**_SCOPE, "default": "user"},
        "project_id": _id("project", ", for the scope project"),
        "calendar_id": _id("calendar", ", for the scope calendar_id"),
    },
    examples=[{"timeMin": "2026-11-30", "timeMax": "2026-12-07"}],
)
async def list_calendar_events(
    ctx: Context,
    limit: int,
    offset: int,
    calendar_scope: str,
    timeMin: str = "",
    timeMax: str = "",
    project_id: str = "",
    calendar_id: str = "",
) -> dict[str, Any]:
    """List events of a time range, earliest first: of the user with all projects, of a project, or of a calendar.

    A recurring event is listed once for each occurrence. A calendar that cannot be reached is a warning; its events
    are listed as they were last seen.
    """
    of_project = _scoped("project_id", project_id, calendar_scope == "project")
    of_calendar = _scoped("calendar_id", calendar_id, calendar_scope == "calendar_id")
    storage, (zone, _) = _storage(ctx), _zone(ctx)

    def check(rows: Rows) -> None:
        if of_project:
            rows.require(of_project, "viewer")
        if of_calendar:
            rows.get("calendars", of_calendar)

    await storage.read(check)
    sync = await _refresh(ctx)
    start, end = _range(timeMin, timeMax, sync.now, zone)

    def work(rows: Rows) -> tuple[list[dict[str, Any]], list[str], list[Row]]:
        sql = "SELECT * FROM {calendars} AS c WHERE kind <> 'account' ORDER BY name, id"
        calendars = [row for row in rows.select(sql) if of_project in ("", row["project_id"])]
        entries, warnings = list_range(rows, start, end, project_id=of_project, calendar_id=of_calendar, zone=zone)
        return entries, warnings, calendars

    entries, warnings, calendars = await storage.read(work, long=True)
    page = entries[offset : offset + limit]
    external = sum(entry["source"] == "external" for entry in entries)
    payload = {"op": "cal.event.list", "entity": "event", "action": "list", "total": len(entries)}
    storage.note("cal.event.list", of_project, payload)
    return {
        "events": page,
        "total": len(entries),
        "ontology_count": len(entries) - external,
        "external_count": external,
        **({"calendars": [_calendar_line(row) for row in calendars]} if calendars and offset == 0 else {}),
        "warnings": [*sync.warnings, *warnings],
        "message": f"{len(page)} of {len(entries)} events from {moment_text(start)} to {moment_text(end)}.",
    }


def _range(first: str, last: str, now: float, zone: tzinfo) -> tuple[datetime, datetime]:
    def moment(text: str, path: str) -> datetime:
        parsed = parse_moment(text, path, zone)
        return parsed if isinstance(parsed, datetime) else datetime.combine(parsed, time(), zone)

    today = datetime.combine(datetime.fromtimestamp(now, zone).date(), time(), zone)
    end = moment(last, "timeMax") if last else None
    start = moment(first, "timeMin") if first else today if end is None or end > today else end - _YEAR
    end = end or start + _YEAR
    if end <= start:
        raise invalid("timeMax", f"timeMax {moment_text(end)} is not after timeMin {moment_text(start)}")
    if end - start > _WIDEST:
        raise invalid("timeMax", "a list covers ten years at most", hint="choose a shorter time range")
    return start, end


def _scoped(name: str, value: str, is_wanted: bool) -> str:
    if is_wanted and not value:
        raise invalid(name, f"{name} is required for this calendar_scope", keyword="required")
    return value if is_wanted else ""


def _calendar_line(row: Row) -> dict[str, Any]:
    line = {"id": row["id"], "name": row["name"], "project_id": project_of(row), "account": row["account"]}
    return {name: value for name, value in line.items() if value}


# --- single events


def _find(rows: Rows, given: Mapping[str, Any], role: Literal["viewer", "editor"] = "viewer") -> Row:
    """Return the event that the arguments name. Raises `ToolFailure`."""
    if id := given.get("onto_event_id"):
        row = rows.get("events", id, role)
        if row["sync_status"] == "deleting":
            raise ToolFailure("not_found", f"there is no event {id!r}", hint="it was deleted")
        return row
    if not (uid := given.get("event_id")):
        raise invalid("onto_event_id", "onto_event_id or event_id is required", keyword="required")
    scope = given.get("calendar_scope")
    conditions, values = ["uid = ?", "sync_status <> 'deleting'"], [uid]
    for name in ("project_id", "calendar_id"):
        if (given.get(name) and scope == name.removesuffix("_id")) or (name == "calendar_id" and given.get(name)):
            conditions.append(f"{name} = ?")
            values.append(given[name])
    sql = f"SELECT id FROM {{events}} AS e WHERE {' AND '.join(conditions)} ORDER BY origin DESC, id LIMIT 2"
    found = rows.select(sql, values)
    if not found:
        raise ToolFailure("not_found", f"there is no event {uid[:200]!r}", hint="cal.event.list names the events")
    return rows.get("events", found[0]["id"], role)


@_operation(
    "cal.event.get",
    "get_calendar_event_details",
    "read",
    _WHICH,
    open_world=False,
    examples=[{"onto_event_id": "<onto_event_id>"}],
)
async def get_calendar_event_details(ctx: Context, **given: Any) -> dict[str, Any]:
    """Get one event with all its fields, by onto_event_id or event_id; of a conflict both versions."""
    storage = _storage(ctx)
    row = await storage.read(lambda rows: _find(rows, given))
    payload = {"op": "cal.event.get", "entity": "event", "action": "get", "kind": "event", "id": row["id"]}
    storage.note("cal.event.get", project_of(row) or "", payload)
    return {"source": row["origin"], "event": event_view(row), "message": f"Event {row['title']!r}."}


@_operation(
    "cal.event.create",
    "create_calendar_event",
    "write",
    {
        "title": {"type": "string", "minLength": 1, "maxLength": _TITLE, "pattern": r"\S"},
        "start_at": _TIME,
        "end_at": _END,
        "description": _TEXT,
        "location": {**_TEXT, "maxLength": _TITLE},
        "project_id": _id("project"),
        "task_id": _id("task", " of the project that the event is for"),
        "calendar_scope": {**_SCOPE, "default": "user"},
        "calendar_id": _id("calendar", ", for the scope calendar_id"),
        "sync_to_calendar": _SYNC,
        "timezone": _ZONE,
        "recurrence": _RULE,
        "type_key": _TYPE,
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
    """Create an event: of a project, or of the user alone without project_id.

    With a synchronised calendar it is sent to the server as well. A repeated event needs `timezone`, so that it keeps
    its hour in summer and winter.
    """
    (zone, zone_name), op = _zone(ctx), "cal.event.create"
    of_calendar = _scoped("calendar_id", calendar_id, calendar_scope == "calendar_id")
    if calendar_scope == "project":
        _scoped("project_id", project_id, True)
    times = fields_of({}, {"start_at": start_at, "end_at": end_at, "timezone": timezone}, zone, zone_name)
    await _load(recurrence)
    rule = _rule(recurrence, times, zone)
    task_project = await _project_of_task(ctx, task_id, project_id) if task_id else ""
    of_project = project_id or task_project
    target = await _storage(ctx).read(lambda rows: _target(rows, of_project, of_calendar))
    if target is None and sync_to_calendar and not of_project and not of_calendar:
        await _refresh(ctx)  # the calendars of an account may not be known yet
        target = await _storage(ctx).read(lambda rows: _target(rows, of_project, of_calendar))
    is_sent = sync_to_calendar and target is not None
    if is_sent and target is not None:
        await _ask_owner(ctx, target)

    def work(rows: Rows) -> Row:
        here = of_project or (target["project_id"] if target is not None and is_sent else ensure_personal(rows))
        rows.require(here)
        uid = str(uuid.uuid4())
        row = rows.insert(
            "events",
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
                "task_id": task_id or None,
                "origin": "ontology",
                "calendar_id": target["id"] if is_sent and target is not None else None,
                "href": f"{target['href']}{uid}.ics" if is_sent and target is not None else None,
                "sync_status": "pending" if is_sent else "local",
            },
        )
        _publish(rows, op, row, title=row["title"])
        return row

    row = await _storage(ctx).write(work)
    warnings = await _send(ctx, row["calendar_id"])
    return await _changed(ctx, row, warnings, f"Created event {row['title']!r}")


@_operation(
    "cal.event.update",
    "update_calendar_event",
    "write",
    {
        **_WHICH,
        "title": {"type": "string", "minLength": 1, "maxLength": _TITLE, "pattern": r"\S"},
        "start_at": _TIME,
        "end_at": {**_END, "type": ["string", "null"]},
        "description": _TEXT,
        "location": {**_TEXT, "maxLength": _TITLE},
        "sync_to_calendar": _SYNC,
        "timezone": _ZONE,
        "recurrence": _RULE,
        "type_key": {key: value for key, value in _TYPE.items() if key != "default"},
        "state_key": {"type": "string", "enum": ["confirmed", "tentative", "cancelled"]},
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
    zone, zone_name = _zone(ctx)
    instance, choice = given.get("instance_start_at"), given.get("resolve_conflict")
    changes = {
        name: value for name, value in given.items() if name not in (*_WHICH, "instance_start_at", "resolve_conflict")
    }
    if not changes and not choice:
        raise invalid("", "nothing to change: give at least one field", keyword="minProperties")
    storage = _storage(ctx)
    before = await storage.read(lambda rows: _find(rows, given, "editor"))
    await _ask_owner_of(ctx, before, is_sent=sync_to_calendar)
    await _load(before["recurrence"], given.get("recurrence"))
    checked = _checked_changes(before, changes, zone, zone_name) if not instance else {}

    def work(rows: Rows) -> Row | None:
        row = rows.get("events", before["id"], "editor")
        if row["revision"] != before["revision"]:
            raise ToolFailure("conflict", f"event {row['id']} was changed meanwhile", hint="read it again")
        if row["conflict"]:
            if not choice:
                raise ToolFailure(
                    "conflict",
                    f"event {row['id']}: {row['sync_error']}",
                    hint="cal.event.get shows both; choose one with resolve_conflict: keep_local or keep_remote",
                )
            resolved = resolve(rows, row, choice, rows.now)
            if resolved is None or not changes:
                _publish(rows, "cal.event.update", row, fields=["conflict"])
                return resolved
            raise invalid("resolve_conflict", "end the conflict first, then change the event")
        if choice:
            raise invalid("resolve_conflict", f"event {row['id']} has no conflict")
        values = _instance_changes(row, instance, changes, zone) if instance else checked
        if not sync_to_calendar and row["sync_status"] == "synced":
            raise invalid("sync_to_calendar", "an event of a synchronised calendar is changed there as well")
        row = mark_pending(rows, row, values)
        _publish(rows, "cal.event.update", row, fields=sorted(changes))
        return row

    row = await storage.write(work)
    warnings = await _send(ctx, before["calendar_id"])
    if row is None:
        return {"event": None, "warnings": warnings, "message": f"Deleted event {before['title']!r}, as on its server."}
    return await _changed(ctx, row, warnings, f"Updated event {row['title']!r}")


@_operation(
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
    zone, _ = _zone(ctx)
    storage = _storage(ctx)
    before = await storage.read(lambda rows: _find(rows, given, "editor"))
    await _ask_owner_of(ctx, before, is_sent=sync_to_calendar)
    if before["sync_status"] in ("synced", "pending") and not sync_to_calendar:
        raise invalid("sync_to_calendar", "an event of a synchronised calendar is deleted there as well")

    def work(rows: Rows) -> None:
        row = rows.get("events", before["id"], "editor")
        if row["conflict"]:
            raise ToolFailure(
                "conflict",
                f"event {row['id']}: {row['sync_error']}",
                hint="choose a version with cal.event.update and resolve_conflict, then delete the event",
            )
        if instance_start_at:
            key = _known_instance(row, instance_start_at, zone)
            mark_pending(rows, row, {"exceptions": {**row["exceptions"], key: None}})
        else:
            mark_deleted(rows, row, everywhere=sync_to_calendar)
        _publish(rows, "cal.event.delete", row, title=row["title"])

    await storage.write(work)
    warnings = await _send(ctx, before["calendar_id"], wanted=sync_to_calendar)
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


async def _changed(ctx: Context, row: Row, warnings: list[str], message: str) -> dict[str, Any]:
    """Return an event after a change, as it is stored now."""
    current = await _storage(ctx).read(lambda rows: rows.find("events", row["id"])) or row
    waits = {"pending": "; it waits to be sent to its calendar", "conflict": "; its calendar has another version"}
    shown = f"{message}{waits.get(current['sync_status'], '')}."
    return {"event": event_view(current), "warnings": warnings, "message": shown}


def _checked_changes(row: Row, changes: Mapping[str, Any], zone: tzinfo, zone_name: str | None) -> dict[str, Any]:
    """Return the columns that an update changes. Raises `ToolFailure`."""
    values = dict(changes)
    if "title" in values:
        values["title"] = values["title"].strip()
    if any(name in changes for name in ("start_at", "end_at", "timezone")):
        times = fields_of(row, changes, zone, zone_name)
        values |= {**times, "exceptions": changed_times(row, times, zone)}
    after = {**row, **values}
    if any(name in changes for name in ("start_at", "timezone", "recurrence")):
        values["recurrence"] = _rule(after["recurrence"], after, zone)
        if not values["recurrence"]:
            values["exceptions"] = {}
    is_series = bool(values.get("recurrence", row["recurrence"])) or (row["ends"] is None and not row["recurrence"])
    if "starts" in values or "recurrence" in values:
        edges = fields_of(after, {}, zone, zone_name)
        values |= {
            "starts": min(edges["starts"], *_exception_starts(after, zone)),
            "ends": None if is_series else edges["ends"],
        }
    return values


def _exception_starts(row: Mapping[str, Any], zone: tzinfo) -> list[float]:
    moved = [one["start_at"] for one in row["exceptions"].values() if one is not None]
    times = [fields_of({}, {"start_at": text}, zone)["starts"] for text in moved]
    return times or [float("inf")]


def _instance_changes(row: Row, instance: str, changes: Mapping[str, Any], zone: tzinfo) -> dict[str, Any]:
    """Return the columns after a change of one occurrence."""
    own = ("title", "description", "location", "start_at", "end_at")
    if other := [name for name in changes if name not in own]:
        raise invalid(other[0], f"one occurrence has no {other[0]} of its own; it has {', '.join(own)}")
    key = _known_instance(row, instance, zone)
    value = dict(row["exceptions"].get(key) or {})
    original = parse_moment(key, "instance_start_at", zone)
    as_it_was = fields_of(row, {"start_at": moment_text(original)}, zone)
    known = {name: value.get(name, as_it_was[name]) for name in ("start_at", "end_at")}
    times = fields_of({**row, **known}, {k: v for k, v in changes.items() if k in ("start_at", "end_at")}, zone)
    if times["all_day"] != row["all_day"]:
        raise invalid("start_at", "an occurrence is of whole days where its series is")
    texts = {name: changes[name] for name in ("title", "description", "location") if name in changes}
    value |= {**texts, "start_at": times["start_at"], "end_at": times["end_at"]}
    exceptions = dict(sorted({**row["exceptions"], key: value}.items()))
    return {"exceptions": exceptions, "starts": min(row["starts"], times["starts"])}


def _known_instance(row: Row, text: str, zone: tzinfo) -> str:
    """Return the key of an occurrence that a series has. Raises `ToolFailure`."""
    if row["ends"] is not None:
        raise invalid("instance_start_at", f"event {row['title']!r} takes place once")
    moment = parse_moment(text, "instance_start_at", zone_of(row["timezone"]) if row["timezone"] else zone)
    key = instance_key(moment)
    if row["exceptions"].get(key) is not None:
        return key
    begins = moment if isinstance(moment, datetime) else datetime.combine(moment, time(), zone)
    around = Range(start=begins - timedelta(days=1), end=begins + timedelta(days=2), zone=zone)
    if key not in {one.key for one in occurrences(row, around)}:
        hint = "give instance_start_at as cal.event.list returns it"
        raise invalid("instance_start_at", f"{text!r} is not an occurrence of event {row['title']!r}", hint=hint)
    return key


async def _load(*rules: str | None) -> None:
    """Load the libraries of recurring events in a thread, before a rule is checked."""
    if any(rules):
        await anyio.to_thread.run_sync(needs, "a recurring event")


def _rule(text: str | None, times: Mapping[str, Any], zone: tzinfo) -> str | None:
    if not text:
        return None
    start = parse_moment(times["start_at"], "start_at", zone)
    if times["timezone"] and isinstance(start, datetime):
        start = start.astimezone(zone_of(times["timezone"]))
    return check_rule(text, start)


async def _project_of_task(ctx: Context, task_id: str, project_id: str) -> str:
    """Return the project of a task, which is that of the event."""
    task = await ctx.storage(GRAPH).read(lambda rows: rows.get("tasks", task_id))
    if project_id and task["project_id"] != project_id:
        raise invalid("task_id", f"task {task_id} belongs to another project")
    return str(task["project_id"])


def _target(rows: Rows, project_id: str, calendar_id: str) -> Row | None:
    """Return the calendar that gets a new event; None where it is only stored here."""
    if project_id:
        rows.require(project_id)
    if calendar_id:
        calendar = rows.get("calendars", calendar_id, "editor")
        if project_of(calendar) and project_id and calendar["project_id"] != project_id:
            raise invalid("calendar_id", f"calendar {calendar_id} belongs to another project")
        return calendar if calendar["href"] and calendar["sync_enabled"] else None
    if project_id:
        calendar = _project_calendar(rows, project_id)
        return calendar if calendar is not None and calendar["href"] and calendar["sync_enabled"] else None
    sql = (
        "SELECT * FROM {calendars} AS c WHERE kind = 'user' AND principal = ? AND sync_enabled = 1 AND is_shared = 0"
        " ORDER BY created_at, id LIMIT 1"
    )
    found = rows.select(sql, [rows.principal])
    return found[0] if found else None


async def _ask_owner_of(ctx: Context, row: Row, *, is_sent: bool) -> None:
    if row["calendar_id"] and is_sent:
        calendar = await _storage(ctx).read(lambda rows: rows.find("calendars", row["calendar_id"]))
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


# --- calendars of projects


def _project_calendar(rows: Rows, project_id: str) -> Row | None:
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
    return await ctx.storage(GRAPH).read(lambda rows: rows.get("projects", project_id, role))


@_operation(
    "cal.project.get",
    "get_project_calendar",
    "read",
    {"project_id": _id("project")},
    ["project_id"],
    open_world=False,
    examples=[{"project_id": "<project_id>"}],
)
async def get_project_calendar(ctx: Context, project_id: str) -> dict[str, Any]:
    """Get the calendar of a project; null where it has none yet."""
    await _require_project(ctx, project_id, "viewer")
    storage = _storage(ctx)
    row = await storage.read(lambda rows: _project_calendar(rows, project_id))
    payload = {"op": "cal.project.get", "entity": "project", "action": "get", "kind": "project", "id": project_id}
    storage.note("cal.project.get", project_id, payload)
    message = f"Calendar {row['name']!r}." if row is not None else "The project has no calendar yet."
    return {"calendar": _calendar_view(row) if row is not None else None, "message": message}


@_operation(
    "cal.project.set",
    "set_project_calendar",
    "write",
    {
        "project_id": _id("project"),
        "action": {"type": "string", "enum": ["create", "update"]},
        "name": {"type": "string", "minLength": 1, "maxLength": _TITLE, "description": "Else that of the project"},
        "description": _TEXT,
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
        raise invalid("", "nothing to change: give at least one field", keyword="minProperties")
    storage, op = _storage(ctx), "cal.project.set"

    def work(rows: Rows) -> Row:
        known = _project_calendar(rows, project_id)
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
            row = rows.insert("calendars", {**fixed, **place, **fields, **switched})
        _publish(rows, op, row, project_id=project_id, calendar=action)
        return row

    row = await storage.write(work)
    warnings = await _place_calendar(ctx, row, is_renamed=action == "update" and bool(fields))
    current = await storage.read(lambda rows: rows.get("calendars", row["id"]))
    verb = "Created" if action == "create" else "Updated"
    message = f"{verb} calendar {current['name']!r}."
    return {"calendar": _calendar_view(current), "action": action, "warnings": warnings, "message": message}


async def _place_calendar(ctx: Context, row: Row, *, is_renamed: bool) -> list[str]:
    """Bring a project's calendar to the first account of its principal, and its events up to date there."""
    if not row["sync_enabled"] or row["principal"] != ctx.principal:
        return []
    sync = await _sync(ctx)
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
