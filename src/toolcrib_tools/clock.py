"""Current time and conversion between time zones, from this machine's IANA database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from toolcrib.plugin import ToolFailure, nearest, tool

__all__ = ["convert_time", "current_time"]


@tool(
    op="x.time.now",
    category="time",
    kind="read",
    tags=["now", "today", "day", "clock"],
    open_world=False,
    idempotent=False,
    examples=[{"zone": "Europe/Berlin"}, {}],
)
async def current_time(zone: str = "UTC") -> dict[str, Any]:
    """Tell the current date and time, the weekday and the offset from UTC in a time zone.

    Args:
        zone: IANA name of the zone, such as "Europe/Berlin" or "UTC".
    """
    return _describe_time(datetime.now(_zone(zone)), zone)


@tool(
    op="x.time.convert",
    category="time",
    kind="read",
    open_world=False,
    examples=[{"time": "2026-03-01T09:30", "from_zone": "America/New_York", "to_zone": "Asia/Tokyo"}],
    policy={"edge_cases": ["A local time that a change of the clocks skips or repeats is read as the earlier offset."]},
)
async def convert_time(time: str, to_zone: str, from_zone: str = "UTC") -> dict[str, Any]:
    """Convert a date and time from one time zone to another.

    Args:
        time: ISO 8601, such as "2026-03-01T09:30". An offset in it ("+02:00", "Z") counts instead of from_zone.
        to_zone: IANA name of the zone to convert to.
        from_zone: IANA name of the zone that the time is given in.
    """
    try:
        given = datetime.fromisoformat(time)
    except ValueError:
        raise ToolFailure("tool_error", f"{time!r} is not an ISO 8601 time; write it like 2026-03-01T09:30") from None
    if given.tzinfo is None:
        given = given.replace(tzinfo=_zone(from_zone))
    try:
        return _describe_time(given.astimezone(_zone(to_zone)), to_zone)
    except OverflowError:
        raise ToolFailure("tool_error", f"{time!r} is outside the years 1 to 9999 in {to_zone}") from None


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        near = nearest(name, sorted(available_timezones()))
        meant = f"did you mean {', '.join(near)}?" if near else "give an IANA name such as Europe/Berlin"
        raise ToolFailure("not_found", f"there is no time zone {name!r}; {meant}") from None


def _describe_time(moment: datetime, zone: str) -> dict[str, Any]:
    return {
        "time": moment.isoformat(timespec="seconds"),
        "zone": zone,
        "weekday": moment.strftime("%A"),
        "utc": moment.astimezone(UTC).isoformat(timespec="seconds"),
    }
