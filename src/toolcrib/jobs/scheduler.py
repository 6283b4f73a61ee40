"""Scheduler: calls that are made later, once or again and again, under the rules of the session that set them.

A schedule waits in the store. Processes that serve or work look for due ones, and one of them claims each: it makes
the call as a background call of a session rebuilt like that of the creator, without a person to ask. A schedule whose
run goes on is not fired again before that ends. Times that passed while nothing fired are made up for once.

    look (1 s) ─> due, this process has what it needs ─> anything to do? no: next time, without a call
                                                           │ yes
                  row: worker, claim + 1 ─> call ─> row: outcome, next time, no worker

`claim` counts the runs of a row: the end of a run changes the row only under the claim that began it. A process that
was taken for dead therefore ends no run of its successor.
"""

from __future__ import annotations

import hashlib
import logging
import math
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

import anyio
from msgspec import Struct
from msgspec.structs import replace

from ..core.json import canonical, fields_of
from ..core.result import ToolResult
from ..core.saved_call import SavedSession
from ..core.services.schedules import Schedule
from ..errors import ToolFailure
from ..store.schedules import KEPT_SECONDS, MessageRow, ScheduleRow, ScheduleRows
from ..store.vault import Vault, purpose_of
from ..system.tasks import Background
from .triggers import Trigger, stored_trigger, zone_of

_logger = logging.getLogger(__name__)

ACTIONS: Final[Mapping[str, str]] = {"send_message": "content", "agent_task": "prompt", "call": "tool"}
"""Types of actions, each with the field that it needs."""
_MAX_TEXT_LENGTH: Final = 40_000
"""Characters of a message or a prompt."""
_MAX_SCHEDULES: Final = 1000
"""Open schedules of one principal."""
_POLL_SECONDS: Final = 1.0
"""Interval of looks for due schedules; those of this process are seen at once."""
_CLOCK_SKEW: Final = 600.0
"""Seconds that the clocks of machines which share a store may differ."""
_POLLS_PER_RECOVERY: Final = 5
"""Of so many looks one ends the runs of dead processes: that writes."""
_IDLE_OUTCOME: Final = "ok, nothing to do"
"""Outcome of a time at which no call was made."""
_LATE_SECONDS: Final = 10.0
"""A run is late when it begins that long after its time."""


class ScheduleSpec(Struct, frozen=True, kw_only=True):
    """Content of a schedule: what is done when, under which rules."""

    title: str
    trigger: Trigger
    action: Mapping[str, Any]
    session: SavedSession
    builtins: bool = True
    """Whether the creator had built-in tools: an agent is run by a process that has them, too."""
    tainted: str = ""
    """See `core.services.schedules.Schedule`."""

    def digest(self) -> str:
        """Return a hash over trigger and action: equal for schedules that do the same at the same times."""
        when = [self.trigger.type, self.trigger.value, self.trigger.zone]
        return hashlib.sha256(canonical([when, self.action])).hexdigest()


class ScheduledRun(Struct, frozen=True, kw_only=True):
    """One run of a schedule, for who makes its call."""

    id: str
    """Of the call."""
    key: str
    """Idempotency key."""
    title: str
    action: Mapping[str, Any]
    session: SavedSession
    tainted: str
    """See `core.services.schedules.Schedule`."""
    note: str
    """Says that the run is late, and since when it was due; empty for one in time."""


class Runner(Protocol):
    """Makes the calls of runs."""

    def offer(self) -> None:
        """Take note that there are schedules: jobs of runs may come."""
        ...

    def lacks(self, plan: ScheduleSpec) -> str:
        """Return the requirement of a schedule that this process lacks: it leaves it to others then. Empty for none."""
        ...

    async def is_due(self, plan: ScheduleSpec) -> bool:
        """Whether the call of a schedule has anything to do now. Raises `ToolFailure` where that cannot be read."""
        ...

    async def run(self, run: ScheduledRun) -> ToolResult | None:
        """Return the outcome of the call of a run, and of its job. None: a message that no channel takes."""
        ...

    def note(self, run: ScheduledRun) -> None:
        """Record that the message of a run waits for the next session."""
        ...


class Scheduler:
    """The schedules of one store and one configuration. Fires them between `start` and `stop`.

    A scheduler that was not started still creates, lists and changes schedules: those fire in another process.
    """

    def __init__(
        self,
        rows: ScheduleRows,
        vault: Vault,
        place: str,
        runner: Runner,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`place` names the configuration."""
        self.clock = clock
        """Seconds since 1970; tests set another one."""
        self._rows = rows
        self._vault = vault
        self._place = place
        self._runner = runner
        self._tasks: Background | None = None
        self._wake = anyio.Event()
        self._active = 0
        self._running = 0
        self._looked = math.inf
        """Time of the last look; a clock before it was set back, or nothing was looked at yet."""
        self._left: set[str] = set()
        """Schedules and messages that this process cannot read; each was logged once."""

    @property
    def works(self) -> bool:
        """Whether this process fires schedules, and has an active one or a run that goes on."""
        return self._tasks is not None and bool(self._active or self._running)

    async def start(self) -> None:
        """Fire due schedules from now on; again does nothing."""
        if self._tasks is None:
            self._tasks = Background()
            await self._tasks.start()
            self._tasks.spawn(self._watch)

    async def stop(self) -> None:
        """Fire no more. A run that waits for its job is left to the next process."""
        if self._tasks is not None:
            tasks, self._tasks = self._tasks, None
            await tasks.stop()
            try:
                await self._rows.sign_off()
            except ToolFailure as failure:
                _logger.debug("a scheduler could not sign off: %s", failure.message)

    @property
    def is_private(self) -> bool:
        """Whether only this process can fire: the store is in memory."""
        return self._rows.is_private

    @property
    def place(self) -> str:
        """The configuration whose schedules this process fires."""
        return self._place

    async def is_served(self, place: str | None = None) -> bool:
        """Whether this or another living process fires the schedules of a configuration, by default of this one."""
        if self._tasks is not None and place in (None, self._place):
            return True
        return await self._rows.is_served(self._place if place is None else place)

    async def create(self, plan: ScheduleSpec) -> tuple[Schedule, bool]:
        """Return a new schedule and True, or an equal active one and False; see `core.services.schedules.Schedules`."""
        now = self.clock()
        _check_action(plan.action)
        id = f"sched_{secrets.token_hex(8)}"
        row = ScheduleRow(
            id=id,
            principal=plan.session.principal,
            place=self._place,
            status="active",
            kind=plan.trigger.type,
            value=str(plan.trigger.value),
            zone=plan.trigger.zone,
            saved=self._seal(id, plan),
            digest=plan.digest(),
            created=now,
            start=now,
            next_run=plan.trigger.first(now),
        )
        stored = await self._rows.add(row, most=_MAX_SCHEDULES)
        self._look_again()
        shown = self._display_of(stored)
        if shown.problem:
            message = f"schedule {stored.id} is equal, and cannot be read: {shown.problem}"
            raise ToolFailure("conflict", message, hint="cancel it first")
        return shown, stored.id == id

    async def list(self, principal: str | None, *, every: bool = False) -> list[Schedule]:
        """Return the open schedules of a principal, or of all with None; or `every` one."""
        return [self._display_of(row) for row in await self._rows.list(principal, every=every)]

    async def get(self, id: str, principal: str | None) -> Schedule:
        """Return a schedule. Raises `ToolFailure("not_found")`."""
        row = await self._rows.get(id, principal)
        if row is None:
            raise _no_such_schedule(id)
        return self._display_of(row)

    async def update(self, id: str, principal: str | None, make: Callable[[ScheduleSpec], ScheduleSpec]) -> Schedule:
        """Change the content of a schedule; its times count from now."""
        now = self.clock()

        def change(row: ScheduleRow) -> ScheduleRow:
            old = self._open_row(row)
            plan = make(old)
            _check_action(plan.action)
            timing: dict[str, Any] = {}
            if plan.trigger != old.trigger:
                kind, value, zone = plan.trigger.type, str(plan.trigger.value), plan.trigger.zone
                timing = {"kind": kind, "value": value, "zone": zone, "start": now}
                timing["next_run"] = plan.trigger.first(now)
            return replace(row, saved=self._seal(row.id, plan), digest=plan.digest(), **timing)

        return await self._change(id, principal, change)

    async def pause(self, id: str, principal: str | None) -> Schedule:
        """Let it fire no more until it is resumed."""
        return await self._change(id, principal, lambda row: replace(row, status="paused"))

    async def resume(self, id: str, principal: str | None) -> Schedule:
        """Let it fire again. A time that passed meanwhile is made up for with `once`, and left out otherwise."""
        now = self.clock()

        def change(row: ScheduleRow) -> ScheduleRow:
            self._open_row(row)
            trigger = _trigger(row)
            missed = row.status == "paused" and trigger.type != "once"
            next_run = trigger.after(now, start=row.start) if missed else row.next_run
            return replace(row, status="active", next_run=next_run)

        return await self._change(id, principal, change)

    async def run_now(self, id: str, principal: str | None) -> Schedule:
        """Let it fire once now, beside its times."""
        now = self.clock()

        def change(row: ScheduleRow) -> ScheduleRow:
            self._open_row(row)  # one that cannot be read would wait for ever
            return replace(row, asked=now)

        return await self._change(id, principal, change)

    async def cancel(self, id: str, principal: str | None) -> Schedule:
        """End it. A run that goes on is not stopped: it is a job."""
        return await self._change(
            id, principal, lambda row: replace(row, status="cancelled", next_run=None, asked=None)
        )

    async def messages(self, principal: str) -> list[tuple[str, str, str]]:
        """Return title, text and mark (`Schedule.tainted`) of the messages that wait for this principal, once.

        One that the key does not open is kept for a week: the key may come back.
        """
        found: dict[str, tuple[str, str, str]] = {}
        lost: list[str] = []
        for row in await self._rows.messages(principal):
            try:
                values = self._vault.open(row.saved, purpose_of("schedule", row.id))
            except ToolFailure as failure:
                if self.clock() - row.created > KEPT_SECONDS:
                    lost.append(row.id)
                self._note_failure("message", row.id, failure)
                continue
            found[row.id] = (str(values["title"]), str(values["text"]), str(values.get("tainted", "")))
        if not found and not lost:
            return []
        taken = await self._rows.take_messages([*found, *lost])
        return [message for id, message in found.items() if id in taken]

    async def fire_due(self, *, recovers: bool = True) -> None:
        """Claim the schedules that are due, and begin their runs; with `recovers` end those of dead processes."""
        now = self.clock()
        if now < self._looked:
            await self._recover_runs(now)
        self._looked = now
        look = await self._rows.look(self._place, now)
        self._active = look.active
        if look.active or look.workers:
            self._runner.offer()
        if recovers and look.workers - {self._rows.worker}:
            for row, outcome in await self._rows.recover():
                await self._finish(row, outcome)
            look = await self._rows.look(self._place, now)
        for row in look.due:
            await self._claim(row, now)

    async def _recover_runs(self, now: float) -> None:
        """Give schedules their next time again that a run under a clock of the future took far ahead."""
        for row in await self._rows.list(None):
            if row.place != self._place or row.status != "active" or row.next_run is None:
                continue
            trigger = _trigger(row)
            latest = trigger.after(now + _CLOCK_SKEW, start=row.start)
            if latest is None or row.next_run <= latest:
                continue
            again = replace(row, next_run=trigger.after(now, start=row.start))
            if await self._rows.change(row.id, None, lambda current, was=row, to=again: to if current == was else None):
                _logger.warning("the clock was set back: schedule %s is due at its next time again", row.id)

    async def _watch(self) -> None:
        is_on, looks = False, 0
        while True:
            self._wake, looks = anyio.Event(), looks + 1
            try:
                if not is_on:
                    await self._rows.sign_on(self._place)
                    is_on = True
                await self.fire_due(recovers=looks % _POLLS_PER_RECOVERY == 1)
            except ToolFailure as failure:
                _logger.debug("schedules cannot be looked after now: %s", failure.message)
            except Exception:  # after any failure the next look comes
                _logger.exception("schedules could not be looked after")
            with anyio.move_on_after(_POLL_SECONDS):
                await self._wake.wait()

    async def _claim(self, row: ScheduleRow, now: float) -> None:
        """Begin a run, if this process can read the schedule and no other was first."""
        try:
            plan = self._open_row(row)
        except ToolFailure as failure:
            self._note_failure("schedule", row.id, failure)
            return
        if lacking := self._runner.lacks(plan):
            await self._wait_for_others(row, lacking)
            return
        is_turn = row.status == "active" and row.next_run is not None and row.next_run <= now
        due = row.next_run if is_turn else row.asked
        is_idle = row.asked is None and not await self._runner.is_due(plan)

        def change(current: ScheduleRow) -> ScheduleRow | None:  # None: it changed since it was looked at
            if (current.claim, current.worker, current.status) != (row.claim, "", row.status):
                return None
            if (current.next_run, current.asked, current.saved) != (row.next_run, row.asked, row.saved):
                return None
            if is_idle and (next_run := plan.trigger.after(now, start=row.start)) is not None:
                return replace(current, next_run=next_run, last_run=due, outcome=_IDLE_OUTCOME)
            return replace(current, worker=self._rows.worker, claim=row.claim + 1, due=due)

        claimed = await self._rows.change(row.id, None, change)
        if claimed is None or not claimed.worker:
            return
        self._running += 1
        if self._tasks is None:
            await self._run(claimed, plan)
        else:
            self._tasks.spawn(lambda: self._run(claimed, plan))

    async def _wait_for_others(self, row: ScheduleRow, lacking: str) -> None:
        """Say once in the row why a schedule that is due does not fire."""
        outcome = f"waits: {lacking}"
        if row.outcome != outcome:
            await self._rows.change(
                row.id, None, lambda current: None if current.worker else replace(current, outcome=outcome)
            )

    async def _run(self, row: ScheduleRow, plan: ScheduleSpec) -> None:
        try:
            seconds = self.clock() - (row.due or 0.0)
            late = "" if seconds < _LATE_SECONDS else str(timedelta(seconds=round(seconds)))
            note = f"[This was due at {_iso(row.due or 0.0, row.zone)} and runs {late} late (h:mm:ss).]" if late else ""
            if late:
                _logger.warning("schedule %s runs %s late", row.id, late)
            suffix = f" ({late} late)" if late else ""
            run = ScheduledRun(
                id=row.call,
                key=f"schedule:{row.id}:{row.runs + 1}",
                title=plan.title,
                action=plan.action,
                session=plan.session,
                tainted=plan.tainted,
                note=note,
            )
            result = await self._make_call(run)
            if result is None:
                await self._keep_message(row, run, f"ok{suffix}")
            else:
                await self._finish(row, f"{'ok' if result.error is None else result.error.code}{suffix}")
        finally:
            self._running -= 1

    async def _make_call(self, run: ScheduledRun) -> ToolResult | None:
        try:
            return await self._runner.run(run)
        except ToolFailure as failure:
            return ToolResult.of_failure(failure)
        except Exception:  # a schedule that runs for ever would never fire again
            _logger.exception("call %s failed inside Toolcrib", run.id)
            return ToolResult.failed("internal", "the run failed inside Toolcrib; the log has the reason")

    async def _keep_message(self, row: ScheduleRow, run: ScheduledRun, outcome: str) -> None:
        """End the run by leaving its message for the next session."""
        text = "\n".join(filter(None, (str(run.action["content"]), run.note)))
        sealed = self._vault.seal(
            {"title": run.title, "text": text, "tainted": run.tainted}, purpose_of("schedule", run.id)
        )
        message = MessageRow(id=run.id, principal=row.principal, created=self.clock(), saved=sealed)
        if await self._rows.keep_message(row, message, self._ending(row, outcome)):
            self._runner.note(run)

    async def _finish(self, row: ScheduleRow, outcome: str) -> None:
        await self._rows.change(row.id, None, self._ending(row, outcome), keep=True)

    def _ending(self, row: ScheduleRow, outcome: str) -> Callable[[ScheduleRow], ScheduleRow | None]:
        """Return the change that ends a run, for its holder alone."""
        now = self.clock()

        def change(current: ScheduleRow) -> ScheduleRow | None:
            if (current.worker, current.claim) != (row.worker, row.claim):
                return None
            next_run = current.next_run
            if next_run is not None and next_run <= now:
                next_run = _trigger(current).after(now, start=current.start)
            is_over = next_run is None and current.status != "cancelled"
            return replace(
                current,
                status="completed" if is_over else current.status,
                next_run=next_run,
                asked=None,
                runs=current.runs + 1,
                last_run=current.due,
                outcome=outcome,
                worker="",
                due=None,
            )

        return change

    async def _change(self, id: str, principal: str | None, make: Callable[[ScheduleRow], ScheduleRow]) -> Schedule:
        def change(row: ScheduleRow) -> ScheduleRow:
            if row.status not in ("active", "paused"):
                raise ToolFailure("conflict", f"schedule {row.id} is {row.status}", hint="create another one")
            return make(row)

        row = await self._rows.change(id, principal, change)
        if row is None:
            raise _no_such_schedule(id)
        self._look_again()
        return self._display_of(row)

    def _note_failure(self, kind: str, id: str, failure: ToolFailure) -> None:
        if id not in self._left:
            _logger.warning("%s %s is left to others: %s", kind, id, failure.message)
        self._left.add(id)

    def _look_again(self) -> None:
        self._wake.set()

    def _seal(self, id: str, plan: ScheduleSpec) -> str:
        values = {
            "title": plan.title,
            "action": plan.action,
            "session": fields_of(plan.session),
            "builtins": plan.builtins,
            "tainted": plan.tainted,
        }
        return self._vault.seal(values, purpose_of("schedule", id))

    def _open_row(self, row: ScheduleRow) -> ScheduleSpec:
        values: Mapping[str, Any] = self._vault.open(row.saved, purpose_of("schedule", row.id))
        session = SavedSession.from_json(values["session"])
        return ScheduleSpec(
            title=values["title"],
            trigger=_trigger(row),
            action=values["action"],
            session=session,
            builtins=values["builtins"],
            tainted=values.get("tainted", ""),
        )

    def _display_of(self, row: ScheduleRow) -> Schedule:
        """Return a schedule; of one that cannot be read, what its row has: it can be cancelled."""
        trigger = _trigger(row)
        plan, problem = None, ""
        try:
            plan = self._open_row(row)
        except ToolFailure as failure:
            problem = failure.message
        next_run = row.next_run if row.status == "active" else None
        return Schedule(
            id=row.id,
            principal=row.principal,
            title=plan.title if plan else "",
            trigger_type=trigger.type,
            trigger_config=trigger.config,
            zone=row.zone,
            action=plan.action if plan else {},
            mode=plan.session.mode if plan else "",
            status=row.status,
            next_run=next_run,
            next_run_at=None if next_run is None else _iso(next_run, row.zone),
            runs=row.runs,
            last_run_at=None if row.last_run is None else _iso(row.last_run, row.zone),
            outcome=row.outcome,
            is_running=bool(row.worker),
            created=row.created,
            tainted=plan.tainted if plan else "",
            place=row.place,
            problem=problem,
        )


def _check_action(action: Mapping[str, Any]) -> None:
    """Raise `ToolFailure("invalid_arguments")` for an action that cannot be taken."""
    type = str(action.get("type"))
    if type not in ACTIONS:
        raise ToolFailure("invalid_arguments", f"action.type: {type!r} is not one of {', '.join(ACTIONS)}")
    field = ACTIONS[type]
    value = action.get(field)
    if not isinstance(value, str) or not value.strip():
        raise ToolFailure("invalid_arguments", f"action.{field}: an action of type {type} needs it")
    if len(value) > _MAX_TEXT_LENGTH:
        raise ToolFailure(
            "invalid_arguments", f"action.{field}: {len(value):,} characters, the maximum is {_MAX_TEXT_LENGTH:,}"
        )


def _trigger(row: ScheduleRow) -> Trigger:
    return stored_trigger(row.kind, row.value, row.zone)


def _iso(moment: float, zone: str) -> str:
    return datetime.fromtimestamp(moment, zone_of(zone)).isoformat(timespec="seconds")


def _no_such_schedule(id: str) -> ToolFailure:
    return ToolFailure("not_found", f"there is no schedule {id[:60]!r}", hint="list the schedules for their ids")
