"""The local calendar: events, days, time zones, series with exceptions, ranges, and calendars of projects."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.plugin import Rows
from toolcrib_work.calendar import event_list
from toolcrib_work.calendar.computing_limit import in_turn
from toolcrib_work.calendar.event_list import list_range
from toolcrib_work.calendar.ical import occurrences, parse
from toolcrib_work.calendar.model import Range
from toolcrib_work.graph.model import SCHEMA
from unit.toolcrib_work.caldav_server import event
from unit.toolcrib_work.people import Person, person

NOBODY = "00000000-0000-4000-8000-000000000000"
BERLIN = {"timezone": "Europe/Berlin"}


@pytest.fixture
async def berlin() -> AsyncGenerator[Person]:
    """A user whose times without an offset are in Berlin."""
    settings = bare().with_values(builtins=("onto", "cal"), tools={"calendar": BERLIN})
    async with Toolcrib(settings, memory=True) as crib:
        yield person(crib, "ada")


async def starts(who: Person, first: str, last: str, **more: Any) -> list[str]:
    found = await who.ok("cal.event.list", timeMin=first, timeMax=last, **more)
    return [entry["start_at"] for entry in found["events"]]


async def created(who: Person, title: str, start: str, **more: Any) -> str:
    return str((await who.ok("cal.event.create", title=title, start_at=start, **more))["event"]["id"])


async def test_an_event_is_created_listed_read_changed_and_deleted(ada: Person) -> None:
    made = await ada.ok(
        "cal.event.create",
        title=" Call the printer ",
        start_at="2026-11-30T09:00:00+01:00",
        end_at="2026-11-30T09:30:00+01:00",
        location="Phone",
    )
    id = made["event"]["id"]
    listed = await ada.ok("cal.event.list", timeMin="2026-11-30", timeMax="2026-12-01")
    await ada.ok("cal.event.update", onto_event_id=id, start_at="2026-11-30T14:00:00+01:00", description="Ask for red")
    got = await ada.ok("cal.event.get", onto_event_id=id)
    by_id = await ada.ok("cal.event.get", event_id=id)
    await ada.ok("cal.event.delete", id=id)

    assert by_id == got
    assert listed["events"] == [
        {
            "source": "ontology",
            "onto_event_id": id,
            "external_event_id": None,
            "is_synced": False,
            "title": "Call the printer",
            "start_at": "2026-11-30T09:00:00+01:00",
            "end_at": "2026-11-30T09:30:00+01:00",
            "event": {"location": "Phone"},
        }
    ]
    counts = ("total", "ontology_count", "external_count", "warnings")
    assert [listed[name] for name in counts] == [1, 1, 0, []]
    event = got["event"]
    assert (got["source"], event["start_at"], event["end_at"]) == (
        "ontology",
        "2026-11-30T14:00:00+01:00",
        "2026-11-30T14:30:00+01:00",
    )
    assert (event["project_id"], event["sync_status"], event["type_key"]) == (None, "local", "event.work")
    assert (await ada.refused("cal.event.get", onto_event_id=id))[0] == "NOT_FOUND"
    assert await starts(ada, "2026-11-30", "2026-12-01") == []


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"title": " "}, "title"),
    ({"start_at": "tomorrow"}, "start_at"),
    ({"end_at": "2026-11-30T08:00:00Z"}, "end_at"),
    ({"end_at": "2026-12-01"}, "end_at"),
    ({"timezone": "Mars/Olympus"}, "timezone"),
    ({"recurrence": "FREQ=SOMETIMES"}, "recurrence"),
    ({"recurrence": "FREQ=SECONDLY"}, "recurrence"),
    ({"recurrence": "BYDAY=MO"}, "recurrence"),
    ({"recurrence": "FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30"}, "recurrence"),  # never: searched for until the year 9999
    ({"recurrence": "FREQ=DAILY;INTERVAL=0"}, "recurrence"),
    ({"recurrence": "FREQ=DAILY;COUNT=0"}, "recurrence"),
    ({"recurrence": "FREQ=DAILY;COUNT=2;UNTIL=20261231"}, "recurrence"),  # one of both, by RFC 5545
    ({"recurrence": "FREQ=DAILY;UNTIL=20261129"}, "recurrence"),  # before it begins: it would be in no list
    ({"type_key": "event.party"}, "type_key"),
    ({"calendar_scope": "calendar_id"}, "calendar_id"),
    ({"calendar_scope": "project"}, "project_id"),
    ({"title": "x" * 501}, "title"),
    ({"start_at": "2026-03-29T02:30", "timezone": "Europe/Berlin"}, "start_at"),  # the clocks go forward over it
    ({"end_at": "2027-03-28T02:30", "timezone": "Europe/Berlin"}, "end_at"),
    ({"start_at": "9999-12-31"}, "start_at"),  # no day follows it
    ({"start_at": "0001-01-01T00:00", "timezone": "Asia/Tokyo"}, "start_at"),
    ({"end_at": "9999-12-31T23:59-12:00"}, "end_at"),
]
"""Changes of an event, and the argument that each makes wrong."""


async def test_two_ids_of_an_event_name_the_same_one_or_are_refused(ada: Person) -> None:
    id, other = [await created(ada, "Call", "2026-11-30T09:00:00+01:00") for _ in range(2)]
    both = await ada.ok("cal.event.update", onto_event_id=id, event_id=id, title="Ring")
    refused = await ada.refused("cal.event.delete", onto_event_id=id, event_id=other)

    assert (both["event"]["title"], refused) == ("Ring", ("VALIDATION_ERROR", ["event_id"]))


async def test_an_event_that_is_not_valid_is_refused_with_the_path_and_not_stored(ada: Person) -> None:
    given = {"title": "x", "start_at": "2026-11-30T09:00:00Z"}
    refused = [await ada.refused("cal.event.create", **{**given, **change}) for change, _ in WRONG]

    assert refused == [("VALIDATION_ERROR", [path]) for _, path in WRONG]
    assert await starts(ada, "2026-11-01", "2026-12-31") == []


async def test_a_series_keeps_its_hour_when_the_clocks_change(berlin: Person) -> None:
    weekly = {"recurrence": "FREQ=WEEKLY;BYDAY=MO", "end_at": "2026-10-19T09:15"}
    await created(berlin, "Standup", "2026-10-19T09:00", **weekly)
    await created(berlin, "In UTC", "2026-10-19T07:00Z", recurrence="FREQ=WEEKLY;COUNT=2", timezone="UTC")

    assert await starts(berlin, "2026-10-18", "2026-11-03") == [
        "2026-10-19T07:00:00Z",
        "2026-10-19T09:00:00+02:00",
        "2026-10-26T07:00:00Z",
        "2026-10-26T09:00:00+01:00",
        "2026-11-02T09:00:00+01:00",
    ]


async def test_a_page_of_events_is_as_long_as_a_result_and_the_next_one_goes_on_behind_it(ada: Person) -> None:
    daily = {"recurrence": "FREQ=DAILY;COUNT=20", "location": "Bridge " * 30}
    for hour in range(8):
        await created(ada, f"Watch {hour}", f"2026-11-01T{hour:02}:00Z", **daily)
    pages: list[dict[str, Any]] = []
    found: list[str] = []
    while not pages or len(found) < pages[0]["total"]:
        given = {"timeMin": "2026-11-01", "timeMax": "2026-12-01", "limit": 200, "offset": len(found)}
        result = await ada.session.call("tool_exec", {"op": "cal.event.list", "args": given})
        assert result.structured_content is not None
        pages.append(result.structured_content["result"])
        found += [entry["start_at"] for entry in pages[-1]["events"]]

    assert found == [f"2026-11-{day:02}T{hour:02}:00:00Z" for day in range(1, 21) for hour in range(8)]
    assert [page["message"].split(" events")[0] for page in pages] == [
        f"{len(page['events'])} of 160" for page in pages
    ]


async def test_an_occurrence_that_the_clocks_go_forward_over_comes_later_and_is_as_long(berlin: Person) -> None:
    daily = {"recurrence": "FREQ=DAILY;COUNT=3", "end_at": "2026-03-28T03:15"}
    id = await created(berlin, "Backup", "2026-03-28T02:30", **daily)
    found = await berlin.ok("cal.event.list", timeMin="2026-03-28", timeMax="2026-03-31")
    shifted = found["events"][1]["start_at"]
    await berlin.ok("cal.event.delete", onto_event_id=id, instance_start_at=shifted)
    wall = await created(berlin, "Elsewhere", "2026-03-29T02:30", timezone="UTC")
    refused = await berlin.refused("cal.event.update", onto_event_id=wall, timezone="Europe/Berlin")

    assert [(entry["start_at"], entry["end_at"]) for entry in found["events"]] == [
        ("2026-03-28T02:30:00+01:00", "2026-03-28T03:15:00+01:00"),
        ("2026-03-29T03:30:00+02:00", "2026-03-29T04:15:00+02:00"),
        ("2026-03-30T02:30:00+02:00", "2026-03-30T03:15:00+02:00"),
    ]
    assert await starts(berlin, "2026-03-28", "2026-03-31") == [
        "2026-03-28T02:30:00+01:00",
        "2026-03-29T02:30:00Z",
        "2026-03-30T02:30:00+02:00",
    ]
    assert refused == ("VALIDATION_ERROR", ["timezone"])


@pytest.mark.parametrize(
    ("start", "until", "written"),
    [
        ("2026-10-24T18:00", "20261026", "20261026T225959Z"),
        ("2026-10-24T18:00", "20261026T180000", "20261026T170000Z"),
        ("2026-10-24T18:00", "20261026T170000Z", "20261026T170000Z"),
        ("2026-10-24", "20261026T170000Z", "20261026"),
    ],
)
async def test_a_series_ends_with_the_day_or_the_time_that_is_named(
    berlin: Person, start: str, until: str, written: str
) -> None:
    await created(berlin, "Daily", start, recurrence=f"FREQ=DAILY;UNTIL={until}")
    listed = await berlin.ok("cal.event.list", timeMin="2026-10-24", timeMax="2026-10-30")

    assert [one["start_at"][:10] for one in listed["events"]] == ["2026-10-24", "2026-10-25", "2026-10-26"]
    assert listed["events"][0]["event"]["recurrence"] == f"FREQ=DAILY;UNTIL={written}"


async def test_a_series_that_begins_with_an_offset_gets_the_zone_of_the_setting_or_needs_one(
    berlin: Person, ada: Person
) -> None:
    daily = {"recurrence": "FREQ=DAILY"}
    await created(berlin, "Lunch", "2027-03-27T12:00:00+01:00", **daily)
    later = await created(berlin, "Tea", "2027-03-27T16:00:00+01:00")
    await berlin.ok("cal.event.update", onto_event_id=later, **daily)
    refused = await berlin.refused("cal.event.create", title="Far", start_at="2027-03-27T12:00:00+05:00", **daily)
    unknown = await ada.refused("cal.event.create", title="x", start_at="2027-03-27T12:00:00+01:00", **daily)
    given = await ada.ok(
        "cal.event.create", title="x", start_at="2027-03-27T12:00:00+01:00", timezone="Europe/Paris", **daily
    )

    assert await starts(berlin, "2027-03-27", "2027-03-29") == [
        "2027-03-27T12:00:00+01:00",
        "2027-03-27T16:00:00+01:00",
        "2027-03-28T12:00:00+02:00",
        "2027-03-28T16:00:00+02:00",
    ]
    assert refused == unknown == ("VALIDATION_ERROR", ["timezone"])
    assert given["event"]["timezone"] == "Europe/Paris"


async def test_one_occurrence_is_moved_another_cancelled_and_both_move_with_the_series(berlin: Person) -> None:
    id = await created(berlin, "Standup", "2026-10-19T09:00", recurrence="FREQ=WEEKLY;COUNT=4")
    second = {"onto_event_id": id, "instance_start_at": "2026-10-26T08:00:00Z"}
    await berlin.ok("cal.event.update", **second, start_at="2026-10-27T10:00", title="Standup, late")
    await berlin.ok("cal.event.delete", onto_event_id=id, instance_start_at="2026-11-02T09:00")
    listed = await berlin.ok("cal.event.list", timeMin="2026-10-18", timeMax="2026-11-12")
    await berlin.ok("cal.event.update", onto_event_id=id, start_at="2026-10-19T11:00")

    assert [one["event"] for one in listed["events"]] == [{"recurrence": "FREQ=WEEKLY;COUNT=4"}, {}, {}]

    assert [(one["start_at"], one["title"]) for one in listed["events"]] == [
        ("2026-10-19T09:00:00+02:00", "Standup"),
        ("2026-10-27T10:00:00+01:00", "Standup, late"),
        ("2026-11-09T09:00:00+01:00", "Standup"),
    ]
    assert await starts(berlin, "2026-10-18", "2026-11-12") == [
        "2026-10-19T11:00:00+02:00",
        "2026-10-27T10:00:00+01:00",
        "2026-11-09T11:00:00+01:00",
    ]
    refused = await berlin.refused("cal.event.update", **second, start_at="2026-10-28T10:00")
    assert refused == ("VALIDATION_ERROR", ["instance_start_at"])


async def test_a_whole_day_is_a_day_wherever_the_reader_is_and_ends_before_the_next(berlin: Person) -> None:
    await created(berlin, "Fair", "2026-11-01", end_at="2026-11-03")
    await created(berlin, "Birthday", "2026-11-05", recurrence="FREQ=YEARLY")

    assert await starts(berlin, "2026-11-02", "2026-11-03") == ["2026-11-01"]
    assert await starts(berlin, "2026-11-03", "2026-11-04") == []
    assert await starts(berlin, "2027-11-05T00:00:00+01:00", "2027-11-05T00:01:00+01:00") == ["2027-11-05"]


async def test_a_list_is_paged_and_its_range_is_checked(ada: Person) -> None:
    await created(ada, "Daily", "2026-11-01T09:00:00Z", recurrence="FREQ=DAILY", timezone="UTC")
    page = await ada.ok("cal.event.list", timeMin="2026-11-01", timeMax="2026-12-01", limit=2, offset=28)

    assert (page["total"], [(one["start_at"], one["end_at"]) for one in page["events"]]) == (
        30,
        [("2026-11-29T09:00:00Z", None), ("2026-11-30T09:00:00Z", None)],
    )
    for first, last in (("2026-11-02", "2026-11-01"), ("2026-01-01", "2046-01-01")):
        refused = await ada.refused("cal.event.list", timeMin=first, timeMax=last)
        assert refused == ("VALIDATION_ERROR", ["timeMax"])


async def test_a_list_without_an_end_covers_a_month_and_says_when_the_next_event_begins(ada: Person) -> None:
    for title, start in (("Soon", "2026-11-20T09:00:00Z"), ("Later", "2027-02-01T09:00:00Z")):
        await created(ada, title, start)

    first = await ada.ok("cal.event.list", timeMin="2026-11-01")
    none = await ada.ok("cal.event.list", timeMin="2026-12-24")
    chosen = await ada.ok("cal.event.list", timeMin="2026-12-24", timeMax="2026-12-31")
    before = await ada.ok("cal.event.list", timeMax="2026-11-21")

    assert [[one["title"] for one in found["events"]] for found in (first, none, chosen)] == [["Soon"], [], []]
    assert ["2027-02-01T09:00:00Z" in found["message"] for found in (first, none, chosen)] == [False, True, False]
    assert "to 2026-11-21" in before["message"]


async def test_without_the_libraries_single_events_work_and_a_series_names_the_extra(
    ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    imports = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] in ("icalendar", "recurring_ical_events"):
            raise ImportError(f"No module named {name!r}", name=name)
        return imports(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    await created(ada, "Once", "2026-11-30T09:00:00Z")
    refused = await ada.envelope(
        "cal.event.create", title="Again", start_at="2026-11-30T09:00:00Z", recurrence="FREQ=DAILY"
    )

    assert await starts(ada, "2026-11-30", "2026-12-01") == ["2026-11-30T09:00:00Z"]
    assert "the extra `calendar`" in str(refused["error"])


async def test_an_event_is_of_its_project_and_of_the_task_that_it_is_for(ada: Person) -> None:
    project = await ada.project("Launch")
    other = await ada.project("Other")
    task = await ada.made("task", project, "Print")
    event = await ada.ok("cal.event.create", title="Print", start_at="2026-11-30", task_id=task)
    await created(ada, "Mine alone", "2026-11-30")

    assert (event["event"]["project_id"], event["event"]["owner_entity"]) == (project, {"kind": "task", "id": task})
    scope = {"calendar_scope": "project", "project_id": project}
    of_project = await ada.ok("cal.event.list", timeMin="2026-11-30", timeMax="2026-12-01", **scope)
    everything = await ada.ok("cal.event.list", timeMin="2026-11-30", timeMax="2026-12-01", project_id=other)
    assert [one["title"] for one in of_project["events"]] == ["Print"]
    assert [one["title"] for one in everything["events"]] == ["Mine alone", "Print"]
    wrong = {"title": "x", "start_at": "2026-11-30", "project_id": other, "task_id": task}
    assert await ada.refused("cal.event.create", **wrong) == ("VALIDATION_ERROR", ["task_id"])
    assert (await ada.refused("cal.event.create", **{**wrong, "task_id": NOBODY}))[0] == "NOT_FOUND"


async def test_a_project_has_one_calendar_that_is_created_before_it_is_changed(ada: Person) -> None:
    project = await ada.project("Launch")
    empty = await ada.ok("cal.project.get", project_id=project)
    early = await ada.refused("cal.project.set", project_id=project, action="update", name="x")
    await ada.ok("cal.project.set", project_id=project, action="create", color_id="7", sync_enabled=False)
    twice = await ada.refused("cal.project.set", project_id=project, action="create")
    await ada.ok("cal.project.set", project_id=project, action="update", description="All dates")
    calendar = (await ada.ok("cal.project.get", project_id=project))["calendar"]
    nothing = await ada.refused("cal.project.set", project_id=project, action="update")

    assert (empty["calendar"], early[0], twice[0], nothing[0]) == (None, "CONFLICT", "CONFLICT", "VALIDATION_ERROR")
    names = ("name", "description", "color_id", "sync_enabled", "principal", "external_calendar_id")
    assert [calendar[name] for name in names] == ["Launch", "All dates", "7", False, "ada", None]


async def test_every_operation_leaves_an_event_in_the_log_with_its_entity_and_action(
    crib: Toolcrib, ada: Person
) -> None:
    project = await ada.project()
    id = await created(ada, "Print", "2026-11-30", project_id=project)
    await ada.ok("cal.event.update", onto_event_id=id, title="Print it")
    await ada.ok("cal.event.get", onto_event_id=id)
    await ada.ok("cal.project.set", project_id=project, action="create")
    await ada.ok("cal.project.get", project_id=project)
    await ada.ok("cal.event.list", calendar_scope="project", project_id=project)
    await ada.ok("cal.event.delete", onto_event_id=id)
    log = await crib.store.shared.events("ada", project_id=project, types=(), limit=50)

    told = {event.type: (event.payload["entity"], event.payload["action"]) for event in log if "cal." in event.type}
    assert told == {
        **{f"cal.event.{action}": ("event", action) for action in ("create", "update", "get", "list", "delete")},
        **{f"cal.project.{action}": ("project", action) for action in ("set", "get")},
    }


async def test_series_that_have_used_up_the_time_of_a_list_leave_the_others_listed(
    ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_list, "_TOGETHER", 0.0)
    await created(ada, "Since 1900", "1900-01-01T09:00:00Z", recurrence="FREQ=DAILY", timezone="UTC")
    await created(ada, "Weekly", "2026-11-01T09:00:00Z", recurrence="FREQ=WEEKLY", timezone="UTC")

    found = await ada.ok("cal.event.list", timeMin="2026-11-01", timeMax="2026-11-08")

    assert [entry["title"] for entry in found["events"]] == ["Weekly"]
    assert ["'Since 1900' is not listed" in text for text in found["warnings"]] == [True]


def test_a_resource_of_a_server_that_holds_many_series_takes_the_time_of_one() -> None:
    """A foreign calendar may hold thousands in one, and each that began in 1900 takes two seconds."""
    series = [event(f"s{number}", "Daily", ":19000101T090000Z", "RRULE:FREQ=DAILY") for number in range(20)]
    events = [text[text.index("BEGIN:VEVENT") : text.index("END:VCALENDAR")] for text in series]
    ical = series[0].replace(events[0], "".join(events))
    parsed = parse(ical, UTC)
    assert parsed is not None
    row = {**parsed.fields, **parsed.bounds, "synced": parsed.fields, "sync_status": "synced", "ical": ical}

    with pytest.raises(TimeoutError, match="of computing"):
        occurrences(
            row, Range(start=datetime(2026, 11, 1, tzinfo=UTC), end=datetime(2026, 12, 1, tzinfo=UTC), zone=UTC)
        )


async def test_recurrences_of_one_principal_are_computed_one_at_a_time_and_others_do_not_wait(
    ada: Person, eve: Person
) -> None:
    daily, done = {"recurrence": "FREQ=DAILY", "timezone": "UTC"}, list[str]()

    async def create(who: Person, name: str) -> None:
        await created(who, name, "2026-11-01T09:00:00Z", **daily)
        done.append(name)

    async with anyio.create_task_group() as tasks, in_turn("ada"):
        tasks.start_soon(create, ada, "ada's")
        await create(eve, "eve's")
    assert done == ["eve's", "ada's"]


async def test_a_range_is_listed_for_other_parts_of_the_guest_without_any_request(crib: Toolcrib, ada: Person) -> None:
    await created(ada, "Daily", "2026-11-01T09:00:00Z", recurrence="FREQ=DAILY", timezone="UTC")
    first, last = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 3, tzinfo=UTC)

    def work(rows: Rows) -> Any:
        return list_range(rows, first, last)

    for principal, expected in (("ada", ["2026-11-01T09:00:00Z", "2026-11-02T09:00:00Z"]), ("eve", [])):
        entries, warnings = await crib.store.shared.read(SCHEMA, principal, lambda value: value, work, long=False)
        assert ([entry["start_at"] for entry in entries], warnings) == (expected, [])


@pytest.mark.long
async def test_a_series_of_a_server_that_would_be_computed_without_end_hides_no_other_event(
    crib: Toolcrib, ada: Person
) -> None:
    rules = {"never": "FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30", "often": "FREQ=SECONDLY", "still": "FREQ=DAILY;INTERVAL=0"}
    ids = {name: await created(ada, name, "2020-11-01T09:00:00Z", recurrence="FREQ=DAILY") for name in rules}
    await created(ada, "Dentist", "2026-11-03T09:00:00Z")

    def take_over(rows: Rows) -> None:
        for name, rule in rules.items():
            rows.update("events", ids[name], {"recurrence": rule})

    await crib.store.shared.write(SCHEMA, "ada", lambda value: value, take_over)
    found = await ada.ok("cal.event.list", timeMin="2026-11-01", timeMax="2026-12-01")

    assert [entry["title"] for entry in found["events"]] == ["Dentist"]
    assert len([text for text in found["warnings"] if "is not listed: its recurrence takes" in text]) == len(rules)
