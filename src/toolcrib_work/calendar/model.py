"""Events as data: times as they are written and compared, checks of what a caller gives, results.

A time is a day (`2026-11-30`, an event of whole days, whose end is the day after its last one) or a moment in ISO 8601.
A moment without an offset is in the event's time zone, or in that of the setting `tools.calendar.timezone`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, time, timedelta, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

from msgspec import Struct

from toolcrib.plugin import Row, Rows, ToolFailure, invalid_argument

from ..graph.calendar_tables import PERSONAL, project_of
from ..graph.model import KINDS

Moment = date | datetime
"""A day, or a moment with its offset."""

FIELDS: Final = (
    "title",
    "description",
    "location",
    "start_at",
    "end_at",
    "all_day",
    "timezone",
    "recurrence",
    "exceptions",
    "state_key",
    "external_link",
)
"""Columns of an event that a calendar server holds as well."""

KIND: Final = KINDS["event"]

_DAY: Final = len("2026-11-30")
_ANYWHERE: Final = 14 * 3600.0
"""Seconds by which a day begins and ends earlier or later somewhere else."""


class Range(Struct, frozen=True, kw_only=True):
    """The time that a list covers, and the zone of days and of moments without an offset."""

    start: datetime
    end: datetime
    zone: tzinfo

    def covers(self, start: Moment, end: Moment | None) -> bool:
        """Whether an event overlaps the range; one without a length counts at its beginning."""
        begins = _instant(start, self.zone)
        ends = _instant(end, self.zone) if end is not None else begins
        return begins < self.end and (ends > self.start or begins == ends == self.start)


def personal(principal: str) -> str:
    """Return the project of the rows that belong to a principal alone."""
    return f"{PERSONAL}{principal}"


def ensure_personal(rows: Rows) -> str:
    """Return the project of the caller's own rows; it is created before its first row."""
    project_id = personal(rows.principal)
    if rows.role(project_id) is None:
        rows.create_project(project_id)
    return project_id


def zone_of(name: str, path: str = "timezone") -> ZoneInfo:
    """Return a time zone. Raises `ToolFailure` for an unknown name."""
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:  # an unknown name, a folder of names ("Europe"), a path
        raise _unknown_zone(name, path) from error


def parse_moment(text: str, path: str, zone: tzinfo) -> Moment:
    """Return a day, or a moment with its offset. Raises `ToolFailure` for other texts."""
    plain = text.strip()
    try:
        if len(plain) == _DAY:
            return date.fromisoformat(plain)
        moment = datetime.fromisoformat(plain)
    except ValueError as error:
        message = f"{text!r} is not an ISO 8601 date or time (example: 2026-11-30T09:00:00+01:00)"
        raise invalid_argument(path, message, keyword="format") from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)


def given_moment(text: str, path: str, zone: tzinfo) -> Moment:
    """Return a day or a moment that a caller gave. Raises `ToolFailure` for the first and the last year."""
    moment = parse_moment(text, path, zone)
    if not MINYEAR < moment.year < MAXYEAR:
        raise invalid_argument(path, f"year {moment.year} is not between {MINYEAR + 1} and {MAXYEAR - 1}")
    return moment


def after_gap(moment: datetime) -> datetime | None:
    """Return what the clocks show instead of a time that they go forward over; None for one that they do show."""
    shown = moment.astimezone(UTC).astimezone(moment.tzinfo)
    return shown if shown.replace(tzinfo=None) != moment.replace(tzinfo=None) else None


def moment_text(moment: Moment) -> str:
    """Return the text of a day or a moment, `Z` for UTC."""
    if not isinstance(moment, datetime):
        return moment.isoformat()
    text = moment.isoformat(timespec="seconds")
    return text.replace("+00:00", "Z") if moment.utcoffset() == timedelta(0) and _is_utc(moment) else text


def utc_text(seconds: float | None) -> str | None:
    """Return a time of seconds since 1970 in ISO 8601."""
    return None if seconds is None else moment_text(datetime.fromtimestamp(seconds, UTC).replace(microsecond=0))


def instance_key(moment: Moment) -> str:
    """Return the key of an occurrence among the exceptions of its event: its original beginning, in UTC."""
    return moment_text(moment.astimezone(UTC) if isinstance(moment, datetime) else moment)


def fields_of(
    row: Mapping[str, Any], changes: Mapping[str, Any], zone: tzinfo, zone_name: str | None = None
) -> dict[str, Any]:
    """Return the columns of an event's times after `changes`, in one form; an end moves with its beginning.

    `row` is empty for a new event. `zone` is the setting's, for moments without an offset. Raises `ToolFailure`.
    """
    name = changes["timezone"] if "timezone" in changes else row.get("timezone")
    of_event: tzinfo = zone_of(name) if name else zone
    if given_start := changes.get("start_at"):
        start = given_moment(given_start, "start_at", of_event)
    else:
        start = parse_moment(row.get("start_at", ""), "start_at", of_event)
    given_end = changes.get("end_at")
    end: Moment | None
    if given_end:
        end = given_moment(given_end, "end_at", of_event)
    elif "end_at" in changes or not row.get("end_at"):
        end = None
    else:
        end = _moved_end(row, start, of_event)
    if end is not None and isinstance(start, datetime) is not isinstance(end, datetime):
        raise invalid_argument("end_at", "start_at and end_at are both days or both times", keyword="format")
    if name and isinstance(start, datetime):
        start = start.astimezone(of_event) if "start_at" in changes else start.replace(tzinfo=of_event)
        if isinstance(end, datetime):
            is_given = "end_at" in changes or "start_at" in changes
            end = end.astimezone(of_event) if is_given else end.replace(tzinfo=of_event)
    _check_shown(changes, start, end)
    if not isinstance(start, datetime):
        end = max(end, start + timedelta(days=1)) if end is not None and end >= start else end
        end = end or start + timedelta(days=1)
    if end is not None and _instant(end, of_event) < _instant(start, of_event):
        raise invalid_argument("end_at", f"end_at {moment_text(end)} is before start_at {moment_text(start)}")
    if isinstance(start, datetime) and not name and start.tzinfo is zone and isinstance(zone, ZoneInfo):
        name = zone_name
    return {
        "start_at": moment_text(start),
        "end_at": moment_text(end) if end is not None else None,
        "all_day": int(not isinstance(start, datetime)),
        "timezone": name if isinstance(start, datetime) else None,
        **bounds(start, end),
    }


def _check_shown(changes: Mapping[str, Any], start: Moment, end: Moment | None) -> None:
    """Raise `ToolFailure` for a given time that no clock of its zone shows: an event could end before it begins."""
    for moment, name in ((start, "start_at"), (end, "end_at")):
        path = name if name in changes else "timezone"
        if path in changes and isinstance(moment, datetime) and (later := after_gap(moment)) is not None:
            wall = moment.replace(tzinfo=None).isoformat()
            message = f"the clocks of {moment.tzinfo} go forward over {wall}, to {moment_text(later)}"
            raise invalid_argument(path, message)


def bounds(start: Moment, end: Moment | None) -> dict[str, float]:
    """Return the columns that bound an event which occurs once, wide enough for a day of any zone."""
    if isinstance(start, datetime):
        last = end if isinstance(end, datetime) else start
        return {"starts": start.timestamp(), "ends": last.timestamp()}
    last_day = end or start + timedelta(days=1)
    return {
        "starts": _instant(start, UTC).timestamp() - _ANYWHERE,
        "ends": _instant(last_day, UTC).timestamp() + _ANYWHERE,
    }


def changed_times(row: Mapping[str, Any], after: Mapping[str, Any], zone: tzinfo) -> dict[str, Any]:
    """Return the exceptions of a series whose beginning changes: they move with it; of another kind of time, none."""
    old: dict[str, Any] = row["exceptions"]
    if not old or (row["start_at"], row["timezone"]) == (after["start_at"], after["timezone"]):
        return old
    if bool(row["all_day"]) is not bool(after["all_day"]):
        return {}
    before_zone = zone_of(row["timezone"]) if row["timezone"] else zone
    after_zone = zone_of(after["timezone"]) if after["timezone"] else zone
    first, second = (_wall(parse_moment(one["start_at"], "start_at", zone)) for one in (row, after))
    moved: dict[str, Any] = {}
    for key, value in old.items():
        moment = parse_moment(key, "instance_start_at", UTC)
        local = moment.astimezone(before_zone) if isinstance(moment, datetime) else moment
        shifted = _wall(local) + (second - first)
        at: Moment = shifted.replace(tzinfo=after_zone) if isinstance(moment, datetime) else shifted.date()
        moved[instance_key(at)] = value
    return moved


def event_view(row: Mapping[str, Any], owner: Mapping[str, str] | None) -> dict[str, Any]:
    """Return an event as a result, in full."""
    names = (
        "title",
        "description",
        "location",
        "start_at",
        "end_at",
        "timezone",
        "recurrence",
        "type_key",
        "state_key",
    )
    shown: dict[str, Any] = {"id": row["id"], "project_id": project_of(row)}
    shown |= {name: row[name] for name in names}
    shown["all_day"] = bool(row["all_day"])
    if row["exceptions"]:
        shown["exceptions"] = row["exceptions"]
    shown |= {
        "owner_entity": owner,
        "calendar_id": row["calendar_id"],
        "external_event_id": row["uid"] if row["etag"] else None,
        "external_link": row["external_link"],
        "sync_status": row["sync_status"],
        "sync_error": row["sync_error"],
        "last_synced_at": utc_text(row["synced_at"]),
        "created_by": row["created_by"],
        "created_at": utc_text(row["created_at"]),
        "updated_at": utc_text(row["updated_at"]),
    }
    if row["conflict"]:
        shown["conflict"] = _conflict_view(row)
    return shown


def _conflict_view(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields in which the two versions differ; `null` where the server or the user deleted the event."""
    conflict: Row = row["conflict"]
    theirs: dict[str, Any] | None = conflict["fields"]
    names = [name for name in FIELDS if theirs is not None and theirs.get(name) != row[name]]
    return {
        "here": None if conflict["intent"] == "deleting" else {name: row[name] for name in names},
        "on_server": None if theirs is None else {name: theirs.get(name) for name in names},
        "how_to_resolve": "update_calendar_event with resolve_conflict: keep_local or keep_remote",
    }


def _moved_end(row: Mapping[str, Any], start: Moment, zone: tzinfo) -> Moment | None:
    """Return the end of an event that begins at another time and lasts as long as before.

    Times last as long in hours, also over a change of the clocks; days in days.
    """
    old_start = parse_moment(row["start_at"], "start_at", zone)
    old_end = parse_moment(row["end_at"], "end_at", zone)
    if isinstance(start, datetime) is not isinstance(old_start, datetime):
        return None
    if isinstance(start, datetime) and isinstance(old_start, datetime) and isinstance(old_end, datetime):
        return (start.astimezone(UTC) + (old_end - old_start)).astimezone(start.tzinfo)
    return start + (_wall(old_end) - _wall(old_start))


def _wall(moment: Moment) -> datetime:
    return moment.replace(tzinfo=None) if isinstance(moment, datetime) else datetime.combine(moment, time())


def _instant(moment: Moment, zone: tzinfo) -> datetime:
    return moment if isinstance(moment, datetime) else datetime.combine(moment, time(), zone)


def _is_utc(moment: datetime) -> bool:
    return moment.tzinfo is UTC or str(moment.tzinfo) in ("UTC", "Etc/UTC")


def _unknown_zone(name: str, path: str) -> ToolFailure:
    return invalid_argument(path, f"{name[:100]!r} is not a time zone (example: Europe/Berlin)", keyword="format")
