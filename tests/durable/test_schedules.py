"""Schedules in every kind of store: each due time is fired once, whatever processes are there and die."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from durable.places import Place, everywhere, make_call, run_call, shared
from rig import eventually
from toolcrib.core.result import ToolResult
from toolcrib.core.saved_call import SavedSession
from toolcrib.core.services.schedules import Schedule
from toolcrib.errors import ToolFailure
from toolcrib.jobs.scheduler import ScheduledRun, Scheduler, ScheduleSpec
from toolcrib.jobs.triggers import trigger_of
from toolcrib.store.store import Store
from toolcrib.store.vault import Vault

START = datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp()
HOUR, DAY = 3600.0, 86_400.0
VAULT = Vault(b"k" * 32)


class Clock:
    """Time that a test turns."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


class Runs:
    """Keeps the runs that were made, and lets them end as a test wants it."""

    def __init__(self) -> None:
        self.made: list[ScheduledRun] = []
        self.noted: list[str] = []
        self.offered, self.lacking, self.is_idle = False, "", False
        self.result: ToolResult | None = ToolResult.of_text("done")
        self.go = anyio.Event()
        self.go.set()

    def offer(self) -> None:
        self.offered = True

    def lacks(self, plan: ScheduleSpec) -> str:
        return self.lacking

    async def is_due(self, plan: ScheduleSpec) -> bool:
        return not self.is_idle

    def note(self, run: ScheduledRun) -> None:
        self.noted.append(run.id)

    async def run(self, run: ScheduledRun) -> ToolResult | None:
        self.made.append(run)
        await self.go.wait()
        return self.result


class Desk:
    """One process: a store, a scheduler, and its runs."""

    def __init__(self, store: Store, clock: Clock, place: str = "") -> None:
        self.store, self.clock, self.runs = store, clock, Runs()
        self.scheduler = Scheduler(store.schedules, VAULT, place, self.runs, clock=clock)

    async def adds(
        self, type: str = "interval", *, principal: str = "ada", zone: str = "Europe/Berlin", **config: Any
    ) -> Schedule:
        config = config or {"interval_seconds": HOUR}
        session = SavedSession(key="schedule/1", principal=principal)
        action = {"type": "send_message", "content": "Water."}
        plan = ScheduleSpec(title="T", trigger=trigger_of(type, config, zone), action=action, session=session)
        made, _ = await self.scheduler.create(plan)
        return made

    async def at(self, moment: float) -> list[ScheduledRun]:
        """Return what is fired at that time."""
        self.clock.now, before = moment, len(self.runs.made)
        await self.scheduler.fire_due()
        return self.runs.made[before:]

    async def completes(self, one: Schedule) -> None:
        """Look two hours later, until it is completed: PostgreSQL notices the end of a session a moment later."""
        self.clock.now = START + 2 * HOUR

        async def is_completed() -> bool:
            await self.scheduler.fire_due()
            return (await self.shows(one)).status == "completed"

        await eventually(is_completed)

    async def shows(self, one: Schedule) -> Schedule:
        return await self.scheduler.get(one.id, None)


@pytest.fixture
async def desk(store: Store) -> Desk:
    return Desk(store, Clock())


@pytest.fixture
async def opens(place: Place) -> AsyncIterator[Callable[..., Desk]]:
    """Open another process at a place; all have one clock."""
    clock, stores = Clock(), list[Store]()

    def opened(name: str = "") -> Desk:
        stores.append(place.open())
        return Desk(stores[-1], clock, name)

    yield opened
    for store in stores:
        await store.close()


async def code(work: Any) -> str:
    with pytest.raises(ToolFailure) as failure:
        await work
    return failure.value.code


async def test_once_fires_at_its_time_and_is_completed(desk: Desk) -> None:
    one = await desk.adds("once", run_at="2026-03-29T02:30")

    assert one.next_run_at == "2026-03-29T03:00:00+02:00"
    assert await desk.at(START + 60) == []
    (run,) = await desk.at(one.next_run or 0)
    assert (run.title, run.action, run.session.principal, run.note) == ("T", one.action, "ada", "")
    assert await desk.at(START + 9 * DAY) == []
    done = await desk.shows(one)
    assert (done.status, done.next_run_at, done.runs, done.last_run_at, done.outcome) == (
        "completed",
        None,
        1,
        one.next_run_at,
        "ok",
    )
    assert await desk.scheduler.list("ada") == []


async def test_once_that_was_missed_fires_late_and_says_so(desk: Desk) -> None:
    await desk.adds("once", run_at="2026-03-28T14:00", zone="UTC")

    (run,) = await desk.at(START + 5 * HOUR + 1)

    assert run.note == "[This was due at 2026-03-28T14:00:00+00:00 and runs 3:00:01 late (h:mm:ss).]"
    assert [one.outcome for one in await desk.scheduler.list("ada", every=True)] == ["ok (3:00:01 late)"]


@pytest.mark.parametrize(
    ("type", "config", "following"),
    [
        ("interval", {"interval_seconds": HOUR}, "2026-03-31T13:00:00+00:00"),
        ("cron", {"cron": "0 * * * *"}, "2026-03-31T13:00:00+00:00"),
        ("cron", {"cron": "30 9 * * *"}, "2026-04-01T09:30:00+00:00"),
    ],
)
async def test_what_repeats_is_made_up_for_once_and_not_once_a_miss(
    desk: Desk, type: str, config: dict[str, Any], following: str
) -> None:
    one = await desk.adds(type, zone="UTC", **config)

    (run,) = await desk.at(START + 3 * DAY + 60)

    assert "late" in run.note
    assert await desk.at(START + 3 * DAY + 61) == []
    shown = await desk.shows(one)
    assert (shown.status, shown.next_run_at, shown.runs) == ("active", following, 1)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("config", [{"interval_seconds": HOUR}, {"cron": "0 * * * *"}])
async def test_what_ran_under_a_clock_of_the_future_runs_at_its_next_time_once_the_clock_is_right(
    desk: Desk, config: dict[str, Any], restarted: bool
) -> None:
    one = await desk.adds("cron" if "cron" in config else "interval", zone="UTC", **config)
    assert len(await desk.at(START + 30 * DAY)) == 1
    later = Desk(desk.store, desk.clock) if restarted else desk

    assert await later.at(START + 60) == []
    assert (await later.shows(one)).next_run == START + HOUR
    assert len(await later.at(START + HOUR)) == 1
    assert await later.at(START + HOUR - 60) == [], "a small step back makes nothing due twice"


async def test_a_schedule_with_nothing_to_do_goes_on_to_its_next_time_and_is_fired_when_it_is_asked_for(
    desk: Desk,
) -> None:
    one = await desk.adds()
    desk.runs.is_idle = True

    assert await desk.at(START + HOUR) == []
    passed = await desk.shows(one)
    await desk.scheduler.run_now(one.id, "ada")
    assert len(await desk.at(START + HOUR + 1)) == 1
    desk.runs.is_idle = False
    assert len(await desk.at(START + 2 * HOUR)) == 1

    assert (passed.runs, passed.outcome, passed.next_run) == (0, "ok, nothing to do", START + 2 * HOUR)
    assert (await desk.shows(one)).runs == 2


async def test_a_schedule_does_not_fire_while_its_run_goes_on_and_once_when_it_has_ended(desk: Desk) -> None:
    one = await desk.adds()
    desk.runs.go = anyio.Event()
    async with anyio.create_task_group() as tasks:
        desk.clock.now = START + HOUR
        tasks.start_soon(desk.scheduler.fire_due)
        while not desk.runs.made:
            await anyio.lowlevel.checkpoint()
        assert (await desk.shows(one)).is_running
        assert await desk.at(START + 5 * HOUR + 1) == []
        desk.runs.go.set()
    shown = await desk.shows(one)
    assert (shown.runs, shown.is_running, shown.next_run) == (1, False, START + 6 * HOUR)


async def test_an_equal_active_schedule_is_returned_and_no_second_one_made(desk: Desk) -> None:
    first, again, other = await desk.adds(), await desk.adds(), await desk.adds(principal="bob")
    await desk.scheduler.cancel(first.id, "ada")
    third = await desk.adds()

    assert (first.id == again.id, other.id != first.id, third.id not in (first.id, other.id)) == (True, True, True)
    assert [one.id for one in await desk.scheduler.list("ada")] == [third.id]


async def test_a_principal_sees_and_changes_its_own_schedules_alone(desk: Desk) -> None:
    one = await desk.adds()

    assert await desk.scheduler.list("bob") == []
    for act in (desk.scheduler.cancel, desk.scheduler.pause, desk.scheduler.resume, desk.scheduler.run_now):
        assert await code(act(one.id, "bob")) == "not_found"
    assert await code(desk.scheduler.get(one.id, "bob")) == "not_found"
    assert (await desk.shows(one)).status == "active"


async def test_a_paused_schedule_fires_again_from_its_next_time_on(desk: Desk) -> None:
    one = await desk.adds()
    await desk.scheduler.pause(one.id, "ada")

    assert (await desk.shows(one)).next_run_at is None
    assert await desk.at(START + 5 * HOUR + 60) == []
    resumed = await desk.scheduler.resume(one.id, "ada")
    assert (resumed.status, resumed.next_run) == ("active", START + 6 * HOUR)
    assert await desk.at(START + 5 * HOUR + 61) == []
    assert len(await desk.at(START + 6 * HOUR)) == 1


async def test_a_run_out_of_turn_leaves_the_times_as_they_are(desk: Desk) -> None:
    one, once = await desk.adds(), await desk.adds("once", run_at="2026-04-01", zone="UTC")
    for each in (one, once):
        await desk.scheduler.run_now(each.id, "ada")

    assert len(await desk.at(START + 60)) == 2
    assert await desk.at(START + 61) == []
    assert [(each.status, each.next_run) for each in (await desk.shows(one), await desk.shows(once))] == [
        ("active", one.next_run),
        ("active", once.next_run),
    ]


async def test_a_paused_schedule_runs_when_it_is_asked_to_and_is_not_late(desk: Desk) -> None:
    one = await desk.adds()
    await desk.scheduler.pause(one.id, "ada")
    desk.clock.now = START + DAY
    await desk.scheduler.run_now(one.id, "ada")

    (run,) = await desk.at(START + DAY)

    assert (run.note, (await desk.shows(one)).status) == ("", "paused")


async def test_a_cancelled_schedule_fires_no_more_and_cannot_be_changed(desk: Desk) -> None:
    one = await desk.adds()
    assert (await desk.scheduler.cancel(one.id, "ada")).status == "cancelled"

    assert await desk.at(START + DAY) == []
    for act in (desk.scheduler.cancel, desk.scheduler.pause, desk.scheduler.resume, desk.scheduler.run_now):
        assert await code(act(one.id, "ada")) == "conflict"
    assert [each.id for each in await desk.scheduler.list("ada", every=True)] == [one.id]


async def test_a_changed_trigger_counts_from_the_change(desk: Desk) -> None:
    one = await desk.adds()
    desk.clock.now = START + 60
    every_minute = trigger_of("interval", {"interval_seconds": 60}, "UTC")

    changed = await desk.scheduler.update(one.id, "ada", lambda plan: replace(plan, trigger=every_minute, title="N"))

    assert (changed.title, changed.trigger_config, changed.next_run) == ("N", {"interval_seconds": 60.0}, START + 120)
    (run,) = await desk.at(START + 120)
    assert run.title == "N"


async def test_a_failure_ends_the_run_and_not_the_schedule(desk: Desk) -> None:
    one = await desk.adds()
    desk.runs.result = ToolResult.failed("denied", "no")

    await desk.at(START + HOUR)

    shown = await desk.shows(one)
    assert (shown.status, shown.outcome, shown.next_run) == ("active", "denied", START + 2 * HOUR)


async def test_a_message_without_a_channel_waits_for_its_principal_and_is_given_once(desk: Desk) -> None:
    await desk.adds("once", run_at="2026-03-28T14:00", zone="UTC")
    desk.runs.result = None

    await desk.at(START + 2 * HOUR)

    assert await desk.store.schedules.has_messages()
    assert desk.runs.noted == [desk.runs.made[0].id]
    assert await desk.scheduler.messages("bob") == []
    assert await desk.scheduler.messages("ada") == [("T", "Water.", "")]
    assert await desk.scheduler.messages("ada") == []


async def test_a_message_that_the_key_does_not_open_waits_a_week_for_its_key(desk: Desk) -> None:
    desk.runs.result = None
    other = Scheduler(desk.store.schedules, Vault(b"x" * 32), "", desk.runs, clock=desk.clock)
    await desk.adds("once", run_at="2026-03-28T14:00", zone="UTC")
    await desk.at(START + 2 * HOUR)

    assert await other.messages("ada") == []
    assert await desk.scheduler.messages("ada") == [("T", "Water.", "")]

    await desk.adds("once", run_at="2026-03-28T15:00", zone="UTC")
    await desk.at(START + 3 * HOUR)
    desk.clock.now += 8 * DAY
    assert await other.messages("ada") == []
    assert await desk.scheduler.messages("ada") == []


async def test_what_this_process_lacks_a_tool_for_is_left_to_others_and_says_so(desk: Desk) -> None:
    one = await desk.adds()
    assert not desk.runs.offered
    desk.runs.lacking = "no process that fires has the tool x"

    assert await desk.at(START + HOUR) == []
    assert ((await desk.shows(one)).outcome, desk.runs.offered) == ("waits: no process that fires has the tool x", True)
    desk.runs.lacking = ""
    (run,) = await desk.at(START + HOUR + 30)
    assert "0:00:30 late" in run.note


async def test_bad_actions_are_refused_with_their_place(desk: Desk) -> None:
    session, trigger = SavedSession(key="s", principal="ada"), trigger_of("interval", {"interval_seconds": 1}, "UTC")
    for action, place in (
        ({"type": "email"}, "action.type"),
        ({"type": "send_message", "content": " "}, "action.content"),
        ({"type": "agent_task", "content": "x"}, "action.prompt"),
        ({"type": "agent_task", "prompt": "x" * 40_001}, "action.prompt"),
    ):
        with pytest.raises(ToolFailure) as failure:
            await desk.scheduler.create(ScheduleSpec(title="", trigger=trigger, action=action, session=session))
        assert (failure.value.code, failure.value.message.partition(":")[0]) == ("invalid_arguments", place)


async def test_what_another_key_sealed_is_left_to_who_has_it(desk: Desk) -> None:
    one = await desk.adds()
    stranger = Desk(desk.store, desk.clock)
    stranger.scheduler = Scheduler(desk.store.schedules, Vault(b"x" * 32), "", stranger.runs, clock=desk.clock)

    assert await stranger.at(START + HOUR) == []
    (unread,) = await stranger.scheduler.list("ada")
    assert (unread.id, unread.action, bool(unread.problem)) == (one.id, {}, True)
    assert len(await desk.at(START + HOUR)) == 1
    assert (await desk.shows(one)).runs == 1


@shared
async def test_of_two_processes_one_fires_each_due_time(opens: Callable[..., Desk]) -> None:
    ours, theirs = opens(), opens()
    for number in range(20):
        await ours.adds("once", run_at=f"2026-03-28T14:00:{number:02}", zone="UTC")
    ours.clock.now = START + DAY

    async with anyio.create_task_group() as tasks:
        for each in (ours, theirs, ours, theirs):
            tasks.start_soon(each.scheduler.fire_due)

    made = [run.id for each in (ours, theirs) for run in each.runs.made]
    assert (len(made), len(set(made))) == (20, 20)
    assert {one.status for one in await ours.scheduler.list("ada", every=True)} == {"completed"}


@shared
async def test_another_configuration_does_not_fire_it_and_does_not_count_as_who_would(
    opens: Callable[..., Desk],
) -> None:
    ours, theirs = opens("/a.yaml"), opens("/b.yaml")
    await ours.adds()

    assert await theirs.at(START + HOUR) == []
    await theirs.scheduler.start()
    assert (await ours.scheduler.is_served(), await theirs.scheduler.is_served()) == (False, True)
    await ours.store.schedules.sign_on("/b.yaml")
    await theirs.scheduler.stop()
    assert await theirs.scheduler.is_served()
    await ours.store.close()

    async def is_alone() -> bool:  # a PostgreSQL server notices the end of a session a moment later
        return not await theirs.store.schedules.is_served("/b.yaml")

    await eventually(is_alone)


def claimed(desk: Desk, one: Schedule) -> Callable[[], Any]:
    """A process that dies with a claim in its hand, before it made the call."""

    async def claim() -> Any:
        return await desk.store.schedules.change(
            one.id, None, lambda row: replace(row, worker=desk.store.schedules.worker, claim=1, due=row.next_run)
        )

    return claim


@shared
async def test_the_run_of_a_process_that_died_before_its_call_is_made_by_another_once(
    opens: Callable[..., Desk],
) -> None:
    dead, ours = opens(), opens()
    one = await dead.adds("once", run_at="2026-03-28T14:00", zone="UTC")
    row = await claimed(dead, one)()
    assert await ours.at(START + 2 * HOUR) == []

    await dead.store.close()
    await ours.completes(one)

    (run,) = ours.runs.made
    assert (run.id, run.key) == (row.call, f"schedule:{one.id}:1")
    assert await ours.at(START + DAY) == []


@shared
async def test_the_run_of_a_process_that_died_after_its_call_is_not_made_again(opens: Callable[..., Desk]) -> None:
    dead, ours = opens(), opens()
    one = await dead.adds("once", run_at="2026-03-28T14:00", zone="UTC")
    row = await claimed(dead, one)()
    await run_call(dead.store, replace(make_call(1), id=row.call))

    await dead.store.close()
    await ours.completes(one)

    assert ours.runs.made == []
    done = await ours.shows(one)
    assert (done.status, done.runs, done.outcome) == ("completed", 1, "ok")


@shared
async def test_who_lost_its_claim_ends_nothing(opens: Callable[..., Desk]) -> None:
    slow, ours = opens(), opens()
    one = await slow.adds()
    slow.runs.go = anyio.Event()
    async with anyio.create_task_group() as tasks:
        slow.clock.now = START + HOUR
        tasks.start_soon(slow.scheduler.fire_due)
        while not slow.runs.made:
            await anyio.lowlevel.checkpoint()
        await ours.store.schedules.change(one.id, None, lambda row: replace(row, worker="", claim=row.claim + 1))
        assert len(await ours.at(START + HOUR)) == 1
        slow.runs.result = ToolResult.failed("timeout", "late")
        slow.runs.go.set()
    shown = await ours.shows(one)
    assert (shown.runs, shown.outcome) == (1, "ok")


@everywhere
async def test_a_process_has_work_while_a_schedule_is_active(opens: Callable[..., Desk]) -> None:
    desk = opens()
    one = await desk.adds()
    await desk.at(START)
    assert not desk.scheduler.works  # it fires nothing yet
    await desk.scheduler.start()
    await desk.at(START)
    assert desk.scheduler.works
    await desk.scheduler.pause(one.id, None)
    await desk.at(START)
    assert not desk.scheduler.works
    await desk.scheduler.stop()


_KILLED = """
import os, signal, sys
from pathlib import Path
import anyio
from toolcrib.jobs.scheduler import Scheduler
from toolcrib.store.store import Store
from toolcrib.store.vault import Vault

class Dies:
    def offer(self): ...
    def lacks(self, plan): return ""
    async def is_due(self, plan): return True
    def note(self, run): ...
    async def run(self, run):
        print("claimed", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with Store.open(Path(sys.argv[1])) as store:
        await Scheduler(store.schedules, Vault(b"k" * 32), "", Dies(), clock=lambda: float(sys.argv[2])).fire_due()

anyio.run(main)
"""


@pytest.mark.process
async def test_a_process_killed_between_its_claim_and_its_call_loses_and_doubles_nothing(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    async with Store.open(file) as store:
        ours = Desk(store, Clock())
        one = await ours.adds("once", run_at="2026-03-28T14:00", zone="UTC")
        killed = await anyio.run_process([sys.executable, "-c", _KILLED, str(file), str(START + DAY)], check=False)
        assert (killed.stdout, killed.returncode) == (b"claimed\n", -9)
        assert (await ours.shows(one)).is_running

        assert len(await ours.at(START + DAY)) == 1
        assert await ours.at(START + 2 * DAY) == []
        done = await ours.shows(one)
        assert (done.status, done.runs, done.outcome) == ("completed", 1, "ok (22:00:00 late)")
