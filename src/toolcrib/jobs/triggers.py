"""Triggers of schedules: once, at an interval, or by a cron expression in wall time of one zone.

A cron expression is read as wall time: each matching minute of a day fires once. A minute that a change of the clocks
skips fires at the next minute that exists, one that it repeats fires the first time. An expression for every hour
(`*/15 * * * *`) follows real time instead: it pauses at no change of the clocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

from msgspec import Struct

from ..core.schema import invalid_argument
from ..core.similar import nearest
from ..errors import ToolFailure

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

TriggerType = Literal["once", "cron", "interval"]

_CONFIG_KEYS: Final[Mapping[str, str]] = {"once": "run_at", "cron": "cron", "interval": "interval_seconds"}
"""The key of `trigger_config` that each type reads."""
_MIN_INTERVAL_SECONDS: Final = 1.0
_MAX_INTERVAL_SECONDS: Final = 10 * 366 * 86_400.0
"""Seconds of the longest interval: ten years."""
_MAX_EXPRESSION_LENGTH: Final = 1_000
"""Of an expression, which is read again for each time."""
_CRON_HINT: Final = "such as 30 9 * * MON-FRI"
_CRON_FIELDS: Final = 5
_HOURS_PER_DAY: Final = 24
_MAX_TIME: Final = datetime(9000, 1, 1, tzinfo=UTC)
"""Times behind this one are not computed with: the calendar ends in the year 9999."""


class Trigger(Struct, frozen=True, kw_only=True):
    """Trigger of a schedule. Made by `trigger_of`, which checks it, or from its stored form."""

    type: TriggerType
    value: str | float
    """ISO time with its offset, cron expression, or seconds."""
    zone: str = "UTC"
    """IANA name."""

    @property
    def config(self) -> dict[str, Any]:
        """The trigger as `trigger_config` has it."""
        return {_CONFIG_KEYS[self.type]: self.value}

    def first(self, now: float) -> float:
        """Return when it fires first, in seconds since 1970. Raises `ToolFailure("invalid_arguments")` for never."""
        found = self.after(now, start=now)
        if found is None:
            if self.type == "once":
                shown = datetime.fromtimestamp(now, zone_of(self.zone)).isoformat(timespec="seconds")
                raise _refusal("run_at", f"{self.value} is in the past", f"now is {shown}")
            raise _refusal("cron", f"{self.value!r} never fires", "no date matches all of its fields")
        return found

    def after(self, moment: float, *, start: float) -> float | None:
        """Return the first time after `moment`, None for never; an interval counts from `start`."""
        if self.type == "once":
            at = datetime.fromisoformat(str(self.value)).timestamp()
            return at if at > moment else None
        if self.type == "interval":
            seconds = float(self.value)
            return start + seconds * (math.floor((moment - start) / seconds) + 1)
        return _next_cron(str(self.value), moment, zone_of(self.zone))


def stored_trigger(kind: str, value: str, zone: str) -> Trigger:
    """Return a trigger of its stored form: `str` of its value."""
    return Trigger(
        type=cast("TriggerType", kind), value=float(value) if kind == "interval" else value, zone=zone_of(zone).key
    )


def trigger_of(type: str, config: Mapping[str, Any], zone: str) -> Trigger:
    """Return the checked trigger; times without an offset are wall time of `zone`.

    Raises `ToolFailure("invalid_arguments")` naming the value that cannot be taken.
    """
    if type not in _CONFIG_KEYS:
        raise ToolFailure(
            "invalid_arguments", f"trigger_type: {type!r} is not one of {', '.join(get_args(TriggerType))}"
        )
    zone_of(zone)
    key = _CONFIG_KEYS[type]
    value = config.get(key)
    if value is None:
        raise _refusal(key, f"a trigger of type {type} needs it")
    checked = {"once": _moment, "cron": _expression, "interval": _seconds}[type](value, zone)
    return Trigger(type=cast("TriggerType", type), value=checked, zone=zone)


def zone_of(name: str) -> ZoneInfo:
    """Return a time zone. Raises `ToolFailure("invalid_arguments")` with the nearest names."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones  # 6 ms that most processes do not need

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        near = nearest(name, sorted(available_timezones()))
        hint = f"did you mean {', '.join(near)}?" if near else "give an IANA name, such as Europe/Berlin"
        raise ToolFailure("invalid_arguments", f"timezone: there is no time zone {name!r}", hint=hint) from None


def local_zone(environ: Mapping[str, str]) -> str:
    """Return the IANA name of this machine's zone; UTC where the machine names none."""
    names = [environ.get("TZ", "").strip().removeprefix(":")]
    with suppress(OSError):
        names.append(str(Path("/etc/localtime").readlink()).rpartition("zoneinfo/")[2])
    with suppress(OSError, UnicodeDecodeError):
        names.append(Path("/etc/timezone").read_text().strip())
    for name in filter(None, names):
        with suppress(ToolFailure):
            return zone_of(name).key
    return "UTC"


def _moment(value: Any, zone: str) -> str:
    try:
        moment = datetime.fromisoformat(str(value).strip())
    except ValueError:
        raise _refusal("run_at", f"{str(value)[:60]!r} is not an ISO 8601 time", "such as 2026-03-01T09:30") from None
    try:
        if moment.tzinfo is None:
            moment = _skip_gap(moment, zone_of(zone))
        return moment.astimezone(zone_of(zone)).isoformat()
    except (OverflowError, ValueError):
        raise _refusal("run_at", f"{value} is outside the calendar") from None


def _skip_gap(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the instant of a wall time: the first of two, or the end of the gap that swallows it."""
    local = wall.replace(tzinfo=zone)
    if not _is_skipped(local):
        return local
    before, after = wall - timedelta(days=1), wall + timedelta(days=1)
    low, high = (one.replace(tzinfo=zone).timestamp() for one in (before, after))
    while high - low > 1:  # the last second whose wall time lies before the skipped one
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, zone).replace(tzinfo=None) < wall:
            low = middle
        else:
            high = middle
    return datetime.fromtimestamp(high, zone)


def _is_skipped(local: datetime) -> bool:
    return local.astimezone(UTC).astimezone(local.tzinfo).replace(tzinfo=None) != local.replace(tzinfo=None)


def _seconds(value: Any, zone: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _refusal("interval_seconds", f"{value!r} is not a number of seconds")
    if not _MIN_INTERVAL_SECONDS <= value <= _MAX_INTERVAL_SECONDS:
        raise _refusal(
            "interval_seconds", f"{value:g} is not between {_MIN_INTERVAL_SECONDS:g} and {_MAX_INTERVAL_SECONDS:g}"
        )
    return float(value)


def _expression(value: Any, zone: str) -> str:
    fields = str(value).split()
    if len(fields) != _CRON_FIELDS:
        known = "minute, hour, day of month, month, day of week"
        problem = f"{str(value)[:60]!r} has {len(fields)} fields, not {_CRON_FIELDS}: {known}"
        raise _refusal("cron", problem, _CRON_HINT)
    text = " ".join(fields)
    if len(text) > _MAX_EXPRESSION_LENGTH:
        raise _refusal("cron", f"the expression has {len(text):,} characters, not {_MAX_EXPRESSION_LENGTH} at most")
    from cronsim import CronSim, CronSimError  # 28 ms that most processes do not need

    try:
        CronSim(text, datetime(2000, 1, 1))
    except (CronSimError, AssertionError) as error:
        raise _refusal("cron", f"{text!r}: {str(error).lower() or 'bad expression'}", _CRON_HINT) from None
    return text


def _next_cron(text: str, moment: float, zone: ZoneInfo) -> float | None:
    """Return the first match after `moment`, None if there is none for 50 years.

    CronSim reads an expression as wall time only where neither minute nor hour begins with a star, so a star is
    written as the range that it stands for. The real time of every hour is ours: CronSim leaves minutes out where the
    clocks change by half an hour.
    """
    from cronsim import CronSim  # see `_expression`

    minute, hour, *day = text.split()
    parsed = CronSim(text, datetime(2000, 1, 1))
    start = datetime.fromtimestamp(math.floor(moment), zone)
    if len(parsed.hours) == _HOURS_PER_DAY:
        return _next_minute(parsed.minutes, " ".join(day), start)
    wall = " ".join((minute.replace("*", "0-59"), hour.replace("*", "0-23"), *day))
    for found in CronSim(wall, start):
        if found.timestamp() > moment:  # a repeated hour is over, several skipped minutes fall on one
            return found.timestamp()
        if found.astimezone(UTC) > _MAX_TIME:
            break
    return None


def _next_minute(minutes: set[int], day: str, start: datetime) -> float | None:
    """Return the first real minute after `start` on a day that matches, and that a clock shows as one of `minutes`."""
    from cronsim import CronSim  # see `_expression`

    zone = cast("ZoneInfo", start.tzinfo)
    next_minute = start.timestamp() // 60 * 60 + 60
    eve = datetime.fromtimestamp(next_minute, zone).replace(tzinfo=None, hour=0, minute=0, second=0, fold=0)
    for midnight in CronSim(f"0 0 {day}", eve - timedelta(minutes=1)):
        at = max(next_minute, _skip_gap(midnight, zone).timestamp())
        while (local := datetime.fromtimestamp(at, zone)).date() == midnight.date():
            if local.minute in minutes:
                return at
            at += 60
        if midnight.year > _MAX_TIME.year:
            break
    return None


def _refusal(key: str, problem: str, hint: str = "") -> ToolFailure:
    return invalid_argument(f"trigger_config.{key}", problem, hint=hint)
