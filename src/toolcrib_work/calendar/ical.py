"""Events as iCalendar (RFC 5545): reading, writing, and the occurrences of a series.

The libraries are those of the extra `calendar`, loaded at the first event that needs them.

An event of a server keeps its text (`ical`): what the fields of `model.FIELDS` cannot say, such as attendees and
alarms, stays in it, and only changed fields are written into it. `occurrences`, `parse`, `write` and `check_rule` may
compute for long; callers run them in a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import islice
from typing import Any, Final, cast

from msgspec import Struct

from toolcrib.plugin import ToolFailure, invalid_argument

from .computing_limit import computing_limit
from .model import KIND, Moment, Range, after_gap, bounds, instance_key, moment_text, parse_moment, zone_of

MAX_BYTES: Final = 500_000
"""Size of one event as iCalendar."""
_MOST: Final = 1000
"""Occurrences of one event in one list."""
SECONDS: Final = 0.5
"""CPU time for the occurrences of one event. A rule that matches no day is searched until the year 9999."""
_OFTEN: Final = ("SECONDLY", "MINUTELY")
_PLAIN: Final = ("FREQ", "COUNT", "INTERVAL", "UNTIL", "BYDAY", "WKST")
_PLAIN_FROM: Final = 1900
_WEEKDAYS: Final = frozenset({"MO", "TU", "WE", "TH", "FR", "SA", "SU"})
_PRODUCT: Final = "-//Toolcrib//Calendar//EN"
_TEXTS: Final = {"title": "SUMMARY", "description": "DESCRIPTION", "location": "LOCATION", "external_link": "URL"}
_OF_SERIES: Final = ("RRULE", "RDATE", "EXDATE", "EXRULE")
_TIMEZONE_YEARS: Final = 10


class Parsed(Struct, frozen=True, kw_only=True):
    """One event of a calendar server."""

    uid: str
    fields: dict[str, Any]
    """Values by the names of `model.FIELDS`."""
    bounds: dict[str, Any]
    """`starts` and `ends`."""


class Occurrence(Struct, frozen=True, kw_only=True):
    """One time that an event takes place, within a range."""

    start: Moment
    end: Moment | None
    key: str = ""
    """Original beginning of an occurrence of a series; empty for an event that occurs once."""
    changes: Mapping[str, Any] | None = None
    """Fields in which the occurrence differs from its series."""


def needs(what: str) -> tuple[Any, Any]:
    """Return the libraries `icalendar` and `recurring_ical_events`. Raises `ToolFailure` without the extra."""
    try:
        import icalendar  # of the extra `calendar`, slow to load
        import recurring_ical_events
    except ImportError as error:
        missing = (error.name or "icalendar").partition(".")[0]
        raise ToolFailure(
            "unavailable",
            f"{what} needs the library {missing}, which is not installed here",
            hint="the operator can install the extra `calendar`",
        ) from error
    return icalendar, recurring_ical_events


def check_rule(text: str, start: Moment) -> str:
    """Return a recurrence rule in its usual form. Raises `ToolFailure` for one that is wrong or too frequent."""
    icalendar, recurring = needs("a recurring event")
    plain = text.strip().removeprefix("RRULE:")
    try:
        rule = icalendar.vRecur.from_ical(plain)
    except ValueError as error:
        raise _bad_rule(text) from error
    frequency = str((rule.get("FREQ") or [""])[0]).upper()
    if not frequency:
        raise _bad_rule(text)
    if frequency in _OFTEN:
        raise invalid_argument("recurrence", f"an event repeats HOURLY at most, not {frequency}")
    if rule.get("COUNT", [1])[0] < 1 or ("COUNT" in rule and "UNTIL" in rule):  # RFC 5545, 3.3.10
        raise invalid_argument("recurrence", "COUNT is at least 1, and a rule has either COUNT or UNTIL")
    if "UNTIL" in rule:
        rule["UNTIL"] = [_until(last, start) for last in rule["UNTIL"]]
    written: str = rule.to_ical().decode()
    calendar = _new(icalendar)
    component = icalendar.Event()
    component.add("UID", "rule")
    component.add("DTSTART", start)
    component.add("RRULE", icalendar.vRecur.from_ical(written))
    calendar.add_component(component)
    try:
        with _limited(calendar, start, SECONDS):
            is_empty = next(iter(recurring.of(calendar).after(start)), None) is None
    except TimeoutError as error:
        raise invalid_argument(
            "recurrence", f"{text[:200]!r} has no occurrence in thousands of years, or too many"
        ) from error
    except Exception as error:  # the library raises errors of several kinds for rules that contradict the start
        raise _bad_rule(text) from error
    if is_empty:
        raise invalid_argument("recurrence", "UNTIL is before the beginning of the event")
    return written


def _until(last: Moment, start: Moment) -> Moment:
    """Return the end of a series as RFC 5545 wants it for its start: a day, or a time in UTC; a day means all of it."""
    if not isinstance(start, datetime):
        return last.date() if isinstance(last, datetime) else last
    moment = last if isinstance(last, datetime) else datetime.combine(last, time(23, 59, 59))
    return (moment if moment.tzinfo else moment.replace(tzinfo=start.tzinfo)).astimezone(UTC)


def parse(data: str, zone: tzinfo) -> Parsed | None:
    """Return the event of a resource; None for one that holds no event, such as a task. Raises `ValueError`."""
    icalendar, _ = needs("a calendar account")
    calendar = icalendar.Calendar.from_ical(data)
    events = list(calendar.walk("VEVENT"))
    if not events:
        return None
    master = next((one for one in events if "RECURRENCE-ID" not in one), events[0])
    start, end = _times(master, zone)
    fields: dict[str, Any] = {
        **{name: _text(master, key) for name, key in _TEXTS.items()},
        **_written_times(start, end),
        "timezone": _zone_name(start),
        "recurrence": master["RRULE"].to_ical().decode() if _is_one_rule(master) else None,
        "exceptions": _exceptions(master, events, zone),
        "state_key": _state(master),
    }
    fields["title"] = fields["title"] or "(no title)"
    is_series = any(name in master for name in _OF_SERIES) or len(events) > 1
    edges = bounds(start, end)
    times = [bounds(*_times(one, zone)) for one in events]
    return Parsed(
        uid=str(master.get("UID") or ""),
        fields=fields,
        bounds={
            "starts": min([edges["starts"], *(one["starts"] for one in times)]),
            "ends": None if is_series else edges["ends"],
        },
    )


def same_events(one: str | None, other: str) -> bool:
    """Whether two resources hold the same events, with all their properties: attendees and alarms, too."""
    icalendar, _ = needs("a calendar account")
    try:
        first, second = (
            sorted(event.to_ical() for event in icalendar.Calendar.from_ical(text).walk("VEVENT"))
            for text in (one or "", other)
        )
    except Exception:  # noqa: BLE001 - what cannot be read is another one
        return False
    return bool(first) and first == second


def write(row: Mapping[str, Any], base: str | None, changed: Mapping[str, Any], zone: tzinfo, now: float) -> str:
    """Return an event as iCalendar: `base` with the `changed` fields, its other properties as they are.

    Without `base`, the whole event of the row.
    """
    calendar = _built(row, base, changed, zone, datetime.fromtimestamp(now, UTC))
    today = datetime.fromtimestamp(now, UTC).date()
    years = timedelta(days=366 * _TIMEZONE_YEARS)
    begins = parse_moment(row["start_at"], "start_at", zone)
    first = begins.date() if isinstance(begins, datetime) else begins
    from_day = min(first, today) - timedelta(days=366)
    calendar.add_missing_timezones(first_date=from_day, last_date=max(first, today) + years)
    return cast("str", calendar.to_ical().decode())


def occurrences(row: Mapping[str, Any], range: Range, seconds: float = SECONDS) -> list[Occurrence]:
    """Return when an event takes place within a range, at most 1,000 times.

    Raises `TimeoutError` for a series that takes more than `seconds` of CPU time. With `SECONDS`, rules of the usual
    kinds have no limit: one that began in 1900 takes two seconds.
    """
    start = parse_moment(row["start_at"], "start_at", range.zone)
    end = parse_moment(row["end_at"], "end_at", range.zone) if row["end_at"] else None
    if row["ends"] is not None:
        return [Occurrence(start=start, end=end)] if range.covers(start, end) else []
    written: Mapping[str, Any] = row["synced"] or {}
    if row["sync_status"] == "pending" and row["ical"]:  # the text may be one that was sent since
        sent = parse(row["ical"], range.zone)
        written = sent.fields if sent is not None else written
    changed = {name: row[name] for name in written if row[name] != written[name]}
    calendar = _built(row, row["ical"], changed, range.zone, range.start)
    with _limited(calendar, start, seconds):
        return list(islice(_of_series(calendar, row, range), _MOST))


def _of_series(calendar: Any, row: Mapping[str, Any], range: Range) -> Iterator[Occurrence]:
    _, recurring = needs("a recurring event")
    for component in recurring.of(calendar).after(range.start.astimezone(UTC)):
        first, last = _times(component, range.zone)
        if not isinstance(first, datetime) and first > range.end.date() + timedelta(days=1):
            return
        if isinstance(first, datetime) and first >= range.end:
            return
        if not range.covers(first, last) or str(component.get("STATUS") or "") == "CANCELLED":
            continue
        own = component.get("RECURRENCE-ID")
        key = instance_key(_aware(own.dt, range.zone) if own is not None else first)
        texts = {name: _text(component, property) for name, property in _TEXTS.items()}
        differs = {name: text for name, text in texts.items() if text != row[name] and key in row["exceptions"]}
        yield Occurrence(start=first, end=last if last != first else None, key=key, changes=differs)


def _limited(calendar: Any, start: Moment, seconds: float) -> AbstractContextManager[None]:
    """Return the limit of an expansion; none by itself for plain rules, whose steps are few: it doubles the time."""
    events = calendar.walk("VEVENT")
    rules = [one.get("RRULE") for one in events if "RRULE" in one]
    is_plain = (
        len(rules) < 2
        and start.year >= _PLAIN_FROM
        and not any("EXRULE" in one for one in events)
        and all(map(_is_plain, rules))
    )
    return nullcontext() if is_plain and seconds >= SECONDS else computing_limit(seconds)


def _is_plain(rule: Any) -> bool:
    """Whether a rule has an occurrence in each few steps, and at most one a day. A list of rules is not."""
    if not isinstance(rule, dict):
        return False
    given = cast("dict[str, list[Any]]", rule)
    return (
        all(name.upper() in _PLAIN for name in given)
        and str(given["FREQ"][0]).upper() in ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
        and all(int(number) > 0 for number in given.get("INTERVAL", ()))
        and all(str(day).upper() in _WEEKDAYS for day in given.get("BYDAY", ()))
    )


def _built(row: Mapping[str, Any], base: str | None, changed: Mapping[str, Any], zone: tzinfo, now: datetime) -> Any:
    """Return the calendar object of an event."""
    icalendar, _ = needs("a recurring event")
    if base:
        calendar = icalendar.Calendar.from_ical(base)
        events = list(calendar.walk("VEVENT"))
        master = next((one for one in events if "RECURRENCE-ID" not in one), events[0])
        fields: Mapping[str, Any] = changed
    else:
        calendar = _new(icalendar)
        master = icalendar.Event()
        master.add("UID", row["uid"])
        master.add("SEQUENCE", -1)
        calendar.add_component(master)
        fields = {**row, **_times_of(row)}
    if fields:
        _write_fields(icalendar, calendar, master, row, fields, zone, now)
    return calendar


def _write_fields(
    icalendar: Any,
    calendar: Any,
    master: Any,
    row: Mapping[str, Any],
    fields: Mapping[str, Any],
    zone: tzinfo,
    now: datetime,
) -> None:
    for name, key in _TEXTS.items():
        if name in fields:
            before = _text(master, key)
            for one in calendar.walk("VEVENT"):
                if one is master or _text(one, key) == before:  # a changed occurrence without a text of its own
                    _put(one, key, row[name])
    if "state_key" in fields and (row["state_key"] != KIND.states[0] or "STATUS" in master):
        _put(master, "STATUS", str(row["state_key"]).upper())
    if any(name in fields for name in ("start_at", "end_at", "timezone", "all_day")):
        _put_times(master, *_moments(row, zone))
    if "recurrence" in fields:
        rule = row["recurrence"]
        _put(master, "RRULE", icalendar.vRecur.from_ical(rule) if rule else None)
    if any(name in fields for name in ("exceptions", "start_at", "timezone", "recurrence")):
        _write_exceptions(icalendar, calendar, master, row, zone)
    for one in calendar.walk("VEVENT"):
        _put(one, "DTSTAMP", now)
        _put(one, "LAST-MODIFIED", now)
    _put(master, "SEQUENCE", int(master.get("SEQUENCE") or 0) + 1)


def _write_exceptions(icalendar: Any, calendar: Any, master: Any, row: Mapping[str, Any], zone: tzinfo) -> None:
    """Write cancelled occurrences as EXDATE, and changed ones as events of their own."""
    exceptions: Mapping[str, Mapping[str, Any] | None] = row["exceptions"]
    start, _ = _moments(row, zone)
    own = start.tzinfo if isinstance(start, datetime) else None
    master.pop("EXDATE", None)
    if cancelled := [_original(key, own) for key, value in exceptions.items() if value is None]:
        master.add("EXDATE", cancelled)
    known: dict[str, Any] = {}
    for one in [one for one in calendar.walk("VEVENT") if "RECURRENCE-ID" in one]:
        key = instance_key(_aware(one["RECURRENCE-ID"].dt, zone))
        if exceptions.get(key) is None:
            calendar.subcomponents.remove(one)
        else:
            known[key] = one
    for key, value in exceptions.items():
        if value is not None:
            one = known.get(key) or _new_exception(icalendar, calendar, master, _original(key, own))
            for name in value.keys() & _TEXTS.keys():
                _put(one, _TEXTS[name], value[name])
            _put_times(one, *_moments({**row, **value}, zone))


def _new_exception(icalendar: Any, calendar: Any, master: Any, original: Moment) -> Any:
    one = icalendar.Event()
    one.add("UID", str(master["UID"]))
    one.add("RECURRENCE-ID", original)
    one.update({name: master[name] for name in _TEXTS.values() if name in master})
    calendar.add_component(one)
    return one


def _original(key: str, zone: tzinfo | None) -> Moment:
    """Return the original beginning of an occurrence, in the zone of its series."""
    moment = parse_moment(key, "instance_start_at", UTC)
    return moment.astimezone(zone) if isinstance(moment, datetime) and zone is not None else moment


def _put_times(component: Any, start: Moment, end: Moment | None) -> None:
    _put(component, "DTSTART", start)
    component.pop("DURATION", None)
    _put(component, "DTEND", end)


def _exceptions(master: Any, events: list[Any], zone: tzinfo) -> dict[str, Any]:
    """Return cancelled and changed occurrences by their original beginning."""
    exceptions: dict[str, Any] = {instance_key(_aware(moment, zone)): None for moment in master.exdates}
    for one in events:
        if one is master or "RECURRENCE-ID" not in one:
            continue
        key = instance_key(_aware(one["RECURRENCE-ID"].dt, zone))
        if _state(one) == "cancelled":
            exceptions[key] = None
            continue
        times = _written_times(*_times(one, zone))
        texts = {name: _text(one, property) for name, property in _TEXTS.items()}
        differing = {name: text for name, text in texts.items() if text != _text(master, _TEXTS[name])}
        exceptions[key] = {**differing, "start_at": times["start_at"], "end_at": times["end_at"]}
    return dict(sorted(exceptions.items()))


def _times(component: Any, zone: tzinfo) -> tuple[Moment, Moment | None]:
    """Return beginning and end of a component; a moment without a zone is in `zone`.

    One that begins where the clocks go forward begins and ends that much later: it lasts as long as it says.
    """
    if "DTSTART" not in component:
        raise ValueError("an event has no DTSTART")
    start = _aware(component["DTSTART"].dt, zone)
    if "DTEND" in component:
        end: Moment | None = _aware(component["DTEND"].dt, zone)
    elif "DURATION" in component:
        end = start + component["DURATION"].dt
    else:
        end = None
    if isinstance(start, datetime) and (later := after_gap(start)) is not None:
        if isinstance(end, datetime) and end.tzinfo is start.tzinfo:
            end += later.replace(tzinfo=None) - start.replace(tzinfo=None)
        start = later
    if not isinstance(start, datetime) and (end is None or isinstance(end, datetime) or end <= start):
        end = start + timedelta(days=1)
    return start, end


def _moments(row: Mapping[str, Any], zone: tzinfo) -> tuple[Moment, Moment | None]:
    """Return beginning and end of a row, in its own time zone."""
    own = zone_of(row["timezone"]) if row["timezone"] else None

    def moment(text: str, name: str) -> Moment:
        parsed = parse_moment(text, name, zone)
        if not isinstance(parsed, datetime):
            return parsed
        return parsed.astimezone(own or UTC)

    return moment(row["start_at"], "start_at"), moment(row["end_at"], "end_at") if row["end_at"] else None


def _times_of(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("start_at", "end_at", "timezone", "all_day")}


def _written_times(start: Moment, end: Moment | None) -> dict[str, Any]:
    return {
        "start_at": moment_text(start),
        "end_at": moment_text(end) if end is not None else None,
        "all_day": int(not isinstance(start, datetime)),
    }


def _aware(moment: date | datetime, zone: tzinfo) -> Moment:
    return moment.replace(tzinfo=zone) if isinstance(moment, datetime) and moment.tzinfo is None else moment


def _zone_name(start: Moment) -> str | None:
    """Return the IANA name of a moment's zone; None for UTC, offsets and the zones of other systems."""
    name = getattr(start.tzinfo, "key", None) if isinstance(start, datetime) else None
    return None if name in ("UTC", "Etc/UTC") else name


def _is_one_rule(master: Any) -> bool:
    return "RRULE" in master and not isinstance(master["RRULE"], list)


def _state(component: Any) -> str:
    state = str(component.get("STATUS") or "").lower()
    return state if state in KIND.states else KIND.states[0]


def _text(component: Any, name: str) -> str | None:
    value: Any = component.get(name)
    if isinstance(value, list):  # a property that occurs once came twice
        value = cast("list[Any]", value)[0]
    return str(value) if value else None


def _put(component: Any, name: str, value: Any) -> None:
    component.pop(name, None)
    if value is not None and value != "":
        component.add(name, value)


def _new(icalendar: Any) -> Any:
    calendar = icalendar.Calendar()
    calendar.add("PRODID", _PRODUCT)
    calendar.add("VERSION", "2.0")
    return calendar


def _bad_rule(text: str) -> ToolFailure:
    message = f"{text[:200]!r} is not a recurrence rule (example: FREQ=WEEKLY;BYDAY=MO;UNTIL=20261231T000000Z)"
    return invalid_argument("recurrence", message, keyword="format")
