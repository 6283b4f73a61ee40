"""Lists of events: a series is one entry for each of its occurrences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, time, timedelta, tzinfo
from time import thread_time
from typing import Any, Final

from toolcrib.plugin import Context, Row, Rows, ToolFailure, fit_page, invalid_argument

from ..graph.calendar_tables import NOT_DELETING, project_of
from ..graph.operations import storage_of
from .computing_limit import in_turn
from .event_rows import owners_of
from .ical import SECONDS, Occurrence, occurrences
from .model import Range, given_moment, instance_key, moment_text
from .operation import SCOPE, TIME, default_zone, id_of, operation, refresh, scoped

_USUAL: Final = timedelta(days=30)
"""Time that a list covers whose range has no end: what is next is asked more often than what the year brings."""
_YEAR: Final = timedelta(days=366)
_WIDEST: Final = timedelta(days=366 * 10)
_READ: Final = 20_000
"""Events that one list considers."""
_TOGETHER: Final = 5.0
"""CPU time of the series of one list: hostile ones cannot hold it up."""
_LEAST_SECONDS: Final = 0.02
"""Limit of each further series."""


@operation(
    "cal.event.list",
    "list_calendar_events",
    "read",
    {
        "timeMin": {**TIME, "description": "ISO 8601; without it today"},
        "timeMax": {**TIME, "description": "ISO 8601; without it 30 days later"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 200, "default": 50},
        "offset": {"type": "integer", "minimum": 0, "maximum": 1_000_000, "default": 0},
        "calendar_scope": {**SCOPE, "default": "user"},
        "project_id": id_of("project", ", for the scope project"),
        "calendar_id": id_of("calendar"),
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

    A recurring event is listed once for each occurrence; `event` of a later one has only what differs from the first
    one listed. A calendar that cannot be reached is a warning; its events are listed as they were last seen.
    """
    of_project = scoped("project_id", project_id, calendar_scope == "project")
    of_calendar = calendar_id or scoped("calendar_id", "", calendar_scope == "calendar_id")
    storage, (zone, own_zone) = storage_of(ctx), default_zone(ctx)

    def check(rows: Rows) -> None:
        if of_project:
            rows.require(of_project, "viewer")
        if of_calendar:
            rows.get("calendars", of_calendar)

    await storage.read(check)
    sync = await refresh(ctx)
    start, end = _range(timeMin, timeMax, sync.now, zone)

    def work(rows: Rows) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str], list[Row], str]:
        sql = "SELECT * FROM {calendars} AS c WHERE kind <> 'account' ORDER BY name, id"
        calendars = [row for row in rows.select(sql) if of_project in ("", row["project_id"])]
        of = {"project_id": of_project, "calendar_id": of_calendar}
        entries, warnings = list_range(rows, start, end, **of, zone=zone)
        wanted = entries[offset : offset + limit]
        page = fit_page(
            _shortened(wanted, owners_of(rows, list({entry["onto_event_id"] for entry in wanted})), own_zone)
        )
        later = [] if entries or timeMax else list_range(rows, end, end + _YEAR, **of, zone=zone)[0]
        return entries, page, warnings, calendars, f" The next one begins at {later[0]['start_at']}." if later else ""

    async with in_turn(ctx.principal):
        entries, page, warnings, calendars, next_one = await storage.read(work, long=True)
    external = sum(entry["source"] == "external" for entry in entries)
    payload = {"op": "cal.event.list", "entity": "event", "action": "list", "total": len(entries)}
    storage.note("cal.event.list", of_project, payload)
    return {
        "events": page,
        "total": len(entries),
        "ontology_count": len(entries) - external,
        "external_count": external,
        **({"timezone": own_zone} if own_zone else {}),
        **({"calendars": [_calendar_line(row) for row in calendars]} if calendars and offset == 0 else {}),
        "warnings": [*sync.warnings, *warnings],
        "message": f"{len(page)} of {len(entries)} events from {moment_text(start)} to {moment_text(end)}.{next_one}",
    }


def _shortened(
    entries: Iterable[dict[str, Any]], owners: Mapping[str, Mapping[str, str]], own_zone: str | None
) -> Iterator[dict[str, Any]]:
    """Yield lines with their owners; a later one of a series has only what differs from the first one."""
    first: dict[str, dict[str, Any]] = {}
    for entry in entries:
        event: dict[str, Any] = entry["event"]
        if owner := owners.get(entry["onto_event_id"]):
            event[f"{owner['kind']}_id"] = owner["id"]
        if event.get("timezone") == own_zone:
            event.pop("timezone", None)
        before = first.setdefault(entry["onto_event_id"], event)
        if before is not event:
            changed = {**before, **event}
            entry["event"] = {name: event.get(name) for name in changed if event.get(name) != before.get(name)}
        yield entry


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
    conditions = ["starts < ?", "(ends IS NULL OR ends >= ?)", NOT_DELETING]
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
    spent = 0.0
    for row in found[:_READ]:
        began = thread_time()
        try:
            for one in occurrences(row, range, SECONDS if spent < _TOGETHER else _LEAST_SECONDS):
                begins = one.start if isinstance(one.start, datetime) else datetime.combine(one.start, time(), zone)
                entries.setdefault((row["uid"], one.key or instance_key(one.start)), (begins, _entry(row, one)))
        except TimeoutError as error:
            warnings.append(f"event {row['title']!r} is not listed: its recurrence takes {error}")
        except ToolFailure as failure:
            warnings.append(f"event {row['title']!r} is not listed: {failure.message}: {failure.hint}")
        except Exception as error:  # noqa: BLE001 - a series that the library cannot expand hides no other event
            warnings.append(f"event {row['title']!r} is not listed: {error}")
        spent += thread_time() - began
    ordered = sorted(entries.values(), key=lambda entry: (entry[0], entry[1]["title"]))
    conflicts = sum(row["sync_status"] == "conflict" for row in found[:_READ])
    if conflicts:
        warnings.append(f"events with a conflict: {conflicts}; get_calendar_event_details shows both versions of each")
    return [entry for _, entry in ordered], list(dict.fromkeys(warnings))


def _entry(row: Row, one: Occurrence) -> dict[str, Any]:
    """Return a line of a list. Fields without a value are left out: lists are what a model reads often."""
    fields = {**row, **(one.changes or {})}
    event = {
        name: fields[name]
        for name in ("description", "location", "timezone", "recurrence", "calendar_id", "external_link")
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


def _range(first: str, last: str, now: float, zone: tzinfo) -> tuple[datetime, datetime]:
    def moment(text: str, path: str) -> datetime:
        parsed = given_moment(text, path, zone)
        return parsed if isinstance(parsed, datetime) else datetime.combine(parsed, time(), zone)

    today = datetime.combine(datetime.fromtimestamp(now, zone).date(), time(), zone)
    end = moment(last, "timeMax") if last else None
    start = moment(first, "timeMin") if first else today if end is None or end > today else end - _USUAL
    end = end or start + _USUAL
    if end <= start:
        message = f"timeMax {moment_text(end)} is not after timeMin {moment_text(start)}"
        raise invalid_argument("timeMax", message, hint="a list ends before timeMax: for one day give the day after it")
    if end - start > _WIDEST:
        raise invalid_argument("timeMax", "a list covers ten years at most", hint="choose a shorter time range")
    return start, end


def _calendar_line(row: Row) -> dict[str, Any]:
    line = {"id": row["id"], "name": row["name"], "project_id": project_of(row), "account": row["account"]}
    return {name: value for name, value in line.items() if value}
