"""Triggers: when a schedule fires, compared minute by minute with a calendar that is read by brute force."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.errors import ToolFailure
from toolcrib.jobs.triggers import Trigger, local_zone, stored_trigger, trigger_of

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
BERLIN = "Europe/Berlin"

CHANGES = [
    (BERLIN, "2026-03-29"),
    (BERLIN, "2026-10-25"),
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-05"),  # half an hour
    ("Australia/Lord_Howe", "2026-10-04"),
    ("America/Havana", "2026-03-08"),  # at midnight
    ("America/Havana", "2026-11-01"),
    ("America/Sao_Paulo", "2018-11-04"),  # no midnight
    ("America/Sao_Paulo", "2018-02-18"),  # the day before ends twice
    ("Pacific/Apia", "2011-12-30"),  # no such day
    ("Asia/Kathmandu", "2026-05-05"),  # no change, and an offset of 5:45
]
HOURS = 36


@cache
def minutes(zone: str, day: str) -> tuple[tuple[int, datetime], ...]:
    """Every minute around a change: seconds since 1970, and what a clock on the wall shows."""
    first = int(datetime.fromisoformat(f"{day}T00:00+00:00").timestamp()) - HOURS * 1800
    place = ZoneInfo(zone)
    return tuple(
        (at, datetime.fromtimestamp(at, place).replace(tzinfo=None)) for at in range(first, first + HOURS * 3600, 60)
    )


def numbers(field: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        start, _, end = ("0", "", str(high)) if span == "*" else span.partition("-")
        found |= set(range(max(low, int(start)), int(end or start) + 1, int(step or 1)))
    return found


def expected(text: str, zone: str, day: str) -> list[int]:
    """The times at which an expression fires, by trying each minute of the calendar."""
    minute, hour, dom, _, dow = text.split()
    in_hour, in_day = numbers(minute, 0, 59), numbers(hour, 0, 23)
    of_month, of_week = numbers(dom, 1, 31), {number % 7 for number in numbers(dow, 0, 7)}

    def fits(wall: datetime) -> bool:
        days = (wall.day in of_month, wall.isoweekday() % 7 in of_week)
        is_day = all(days) if dom.startswith("*") or dow.startswith("*") else any(days)
        return is_day and wall.minute in in_hour and wall.hour in in_day

    real = minutes(zone, day)
    if len(in_day) == 24:
        return [at for at, wall in real if fits(wall)]
    found: set[int] = set()
    wall, last = real[0][1], real[-1][1]
    shown: dict[datetime, int] = {}
    for at, one in real:
        shown.setdefault(one, at)
    while wall <= last:
        if fits(wall):
            found.add(shown[wall] if wall in shown else next(at for at, one in real if one > wall))
        wall += timedelta(minutes=1)
    return sorted(found)


def fired(text: str, zone: str, day: str) -> list[int]:
    trigger, real = trigger_of("cron", {"cron": text}, zone), minutes(zone, day)
    found: list[int] = []
    moment: float | None = trigger.after(real[0][0] - 1, start=0)
    while moment is not None and moment <= real[-1][0]:
        found.append(int(moment))
        moment = trigger.after(moment, start=0)
    return found


def fields(high: int, low: int = 0) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    return st.one_of(
        st.just("*"),
        number.map(str),
        st.integers(2, 30).map(lambda step: f"*/{step}"),
        st.lists(number, min_size=2, max_size=4).map(lambda found: ",".join(map(str, found))),
        st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}"),
    )


@pytest.mark.slow
@pytest.mark.parametrize(("zone", "day"), CHANGES)
@settings(max_examples=5, deadline=None)
@given(minute=fields(59), hour=st.one_of(fields(23), fields(3)), dow=st.one_of(st.just("*"), fields(7)))
def test_a_cron_fires_at_each_wall_minute_once_whatever_the_clocks_do(
    zone: str, day: str, minute: str, hour: str, dow: str
) -> None:
    text = f"{minute} {hour} * * {dow}"

    assert fired(text, zone, day) == expected(text, zone, day)


@pytest.mark.parametrize(
    ("text", "day", "times"),
    [
        ("30 2 * * *", "2026-03-29", ["29T03:00+02:00", "30T02:30+02:00"]),
        ("*/20 2 * * *", "2026-03-29", ["29T03:00+02:00", "30T02:00+02:00"]),
        ("30 2 * * *", "2026-10-25", ["25T02:30+02:00", "26T02:30+01:00"]),
        ("30 * * * *", "2026-10-25", ["25T00:30+02:00", "25T01:30+02:00", "25T02:30+02:00", "25T02:30+01:00"]),
    ],
)
def test_a_skipped_hour_fires_at_the_next_minute_and_a_repeated_one_the_first_time(
    text: str, day: str, times: list[str]
) -> None:
    trigger = trigger_of("cron", {"cron": text}, BERLIN)
    moment = datetime.fromisoformat(f"{day}T00:00").replace(tzinfo=ZoneInfo(BERLIN)).timestamp()

    assert list(shown(trigger, moment, len(times))) == times


def shown(trigger: Trigger, moment: float, count: int) -> Iterable[str]:
    for _ in range(count):
        found = trigger.after(moment, start=0)
        assert found is not None
        moment = found
        yield datetime.fromtimestamp(moment, ZoneInfo(trigger.zone)).isoformat(timespec="minutes")[8:]


def test_a_time_without_an_offset_is_wall_time_of_the_zone() -> None:
    skipped, repeated, given_offset = (
        trigger_of("once", {"run_at": text}, BERLIN).value
        for text in ("2026-03-29T02:30", "2026-10-25T02:30", "2026-06-01T10:00Z")
    )

    assert skipped == "2026-03-29T03:00:00+02:00"
    assert repeated == "2026-10-25T02:30:00+02:00"
    assert given_offset == "2026-06-01T12:00:00+02:00"


def test_an_interval_keeps_its_phase() -> None:
    trigger = trigger_of("interval", {"interval_seconds": 90}, "UTC")

    assert trigger.first(NOW) == NOW + 90
    assert trigger.after(NOW + 1000, start=NOW) == NOW + 1080
    assert trigger.after(NOW + 1080, start=NOW) == NOW + 1170


@pytest.mark.parametrize(
    ("type", "config", "zone", "place"),
    [
        ("once", {"run_at": "2026-03-01T11:59:59Z"}, "UTC", "trigger_config.run_at"),
        ("once", {"run_at": "tomorrow"}, "UTC", "trigger_config.run_at"),
        ("once", {"run_at": "0001-01-01T00:00"}, "Asia/Tokyo", "trigger_config.run_at"),
        ("once", {}, "UTC", "trigger_config.run_at"),
        ("interval", {"interval_seconds": 0.5}, "UTC", "trigger_config.interval_seconds"),
        ("interval", {"interval_seconds": float("nan")}, "UTC", "trigger_config.interval_seconds"),
        ("interval", {"interval_seconds": 1e12}, "UTC", "trigger_config.interval_seconds"),
        ("interval", {"interval_seconds": True}, "UTC", "trigger_config.interval_seconds"),
        ("cron", {"cron": "0 0 30 2 *"}, "UTC", "trigger_config.cron"),
        ("cron", {"cron": "0 0 */30 2 MON#5"}, "UTC", "trigger_config.cron"),
        ("cron", {"cron": "61 * * * *"}, "UTC", "trigger_config.cron"),
        ("cron", {"cron": "* * * * * *"}, "UTC", "trigger_config.cron"),
        ("cron", {"cron": "L/2 * * * *"}, "UTC", "trigger_config.cron"),
        ("cron", {"cron": f"{','.join(['1-59'] * 20_000)} * * * *"}, "UTC", "trigger_config.cron"),
        ("cron", {"cron": f"{'9' * 5_000} * * * *"}, "UTC", "trigger_config.cron"),
        ("cron", {"cron": ""}, "UTC", "trigger_config.cron"),
        ("cron", {"cron": "0 9 * * *"}, "Europe/Berlim", "timezone"),
        ("daily", {}, "UTC", "trigger_type"),
    ],
)
def test_what_never_fires_or_cannot_be_read_is_refused_with_its_place(
    type: str, config: dict[str, object], zone: str, place: str
) -> None:
    with pytest.raises(ToolFailure) as failure:
        trigger_of(type, config, zone).first(NOW)

    assert failure.value.code == "invalid_arguments"
    assert failure.value.message.partition(": ")[0] == place


@pytest.mark.parametrize("type", ["once", "cron", "interval"])
def test_a_trigger_is_the_same_when_it_was_stored(type: str) -> None:
    config = {"run_at": "2026-06-01T10:00", "cron": "0 9 * * MON", "interval_seconds": 2.5}
    trigger = trigger_of(type, config, BERLIN)

    assert stored_trigger(trigger.type, str(trigger.value), trigger.zone) == trigger


def test_the_zone_of_the_machine_is_the_one_it_names() -> None:
    assert local_zone({"TZ": ":America/Havana"}) == "America/Havana"
    assert ZoneInfo(local_zone({"TZ": "nowhere/at/all"}))
