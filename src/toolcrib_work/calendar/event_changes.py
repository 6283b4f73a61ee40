"""The columns of an event after a change: of the whole event, of a series, or of one occurrence."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, time, timedelta, tzinfo
from typing import Any

from toolcrib.plugin import Row, invalid_argument

from .ical import check_rule, occurrences
from .model import Range, changed_times, fields_of, given_moment, instance_key, moment_text, parse_moment, zone_of


def checked_changes(row: Row, changes: Mapping[str, Any], zone: tzinfo, zone_name: str | None) -> dict[str, Any]:
    """Return the columns that an update changes. Raises `ToolFailure`."""
    if changes.get("recurrence") and not (changes.get("timezone") or row["timezone"]):
        begin = str(changes.get("start_at") or row["start_at"])
        if named := series_zone(begin, zone, zone_name):
            changes = {**changes, "timezone": named}
    values = dict(changes)
    if "title" in values:
        values["title"] = values["title"].strip()
    if any(name in changes for name in ("start_at", "end_at", "timezone")):
        times = fields_of(row, changes, zone, zone_name)
        values |= {**times, "exceptions": changed_times(row, times, zone)}
    after = {**row, **values}
    if any(name in changes for name in ("start_at", "timezone", "recurrence")):
        values["recurrence"] = checked_rule(after["recurrence"], after, zone)
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


def instance_changes(row: Row, instance: str, changes: Mapping[str, Any], zone: tzinfo) -> dict[str, Any]:
    """Return the columns after a change of one occurrence."""
    own = ("title", "description", "location", "start_at", "end_at")
    if other := [name for name in changes if name not in own]:
        raise invalid_argument(other[0], f"one occurrence has no {other[0]} of its own; it has {', '.join(own)}")
    key = known_instance(row, instance, zone)
    value = dict(row["exceptions"].get(key) or {})
    original = parse_moment(key, "instance_start_at", zone)
    as_it_was = fields_of(row, {"start_at": moment_text(original)}, zone)
    known = {name: value.get(name, as_it_was[name]) for name in ("start_at", "end_at")}
    times = fields_of({**row, **known}, {k: v for k, v in changes.items() if k in ("start_at", "end_at")}, zone)
    if times["all_day"] != row["all_day"]:
        raise invalid_argument("start_at", "an occurrence is of whole days where its series is")
    texts = {name: changes[name] for name in ("title", "description", "location") if name in changes}
    value |= {**texts, "start_at": times["start_at"], "end_at": times["end_at"]}
    exceptions = dict(sorted({**row["exceptions"], key: value}.items()))
    return {"exceptions": exceptions, "starts": min(row["starts"], times["starts"])}


def known_instance(row: Row, text: str, zone: tzinfo) -> str:
    """Return the key of an occurrence that a series has. Raises `ToolFailure`."""
    if row["ends"] is not None:
        raise invalid_argument("instance_start_at", f"event {row['title']!r} takes place once")
    moment = given_moment(text, "instance_start_at", zone_of(row["timezone"]) if row["timezone"] else zone)
    key = instance_key(moment)
    if row["exceptions"].get(key) is not None:
        return key
    begins = moment if isinstance(moment, datetime) else datetime.combine(moment, time(), zone)
    # The library reads day by day, and loses an occurrence of a gap of the clocks that is on the border of two.
    around = Range(start=begins - timedelta(hours=26), end=begins + timedelta(days=2), zone=zone)
    try:
        known = {one.key for one in occurrences(row, around)}
    except TimeoutError as error:
        raise invalid_argument(
            "instance_start_at", f"the recurrence of event {row['title']!r} takes {error}"
        ) from error
    if key not in known:
        hint = "give instance_start_at as list_calendar_events returns it"
        raise invalid_argument(
            "instance_start_at", f"{text!r} is not an occurrence of event {row['title']!r}", hint=hint
        )
    return key


def series_zone(start_at: str, zone: tzinfo, zone_name: str | None) -> str | None:
    """Return the zone of a series that names none and begins with an offset; None if the offset does not matter.

    It is that of the setting, if its clocks show this time then. Raises `ToolFailure` for another offset: the series
    would not keep its hour when the clocks change.
    """
    start = parse_moment(start_at, "start_at", zone)
    if not isinstance(start, datetime) or start.tzinfo is zone or not start.utcoffset():
        return None
    if zone_name and start.astimezone(zone).utcoffset() == start.utcoffset():
        return zone_name
    hint = "name the zone, such as Europe/Berlin: an offset does not know when summer begins"
    raise invalid_argument("timezone", "a series needs it", keyword="required", hint=hint)


def checked_rule(text: str | None, times: Mapping[str, Any], zone: tzinfo) -> str | None:
    """Return the rule of a series, None for an event that takes place once. Raises `ToolFailure`."""
    if not text:
        return None
    start = parse_moment(times["start_at"], "start_at", zone)
    if times["timezone"] and isinstance(start, datetime):
        start = start.astimezone(zone_of(times["timezone"]))
    return check_rule(text, start)
