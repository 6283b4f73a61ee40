"""`toolcrib schedule`: calls that are made later, once or again and again."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ...config import Settings
from ...config.directories import here
from ...core.json import dumps, fields_of
from ...core.services.schedules import Schedule
from ...core.settings import seconds_of
from ...crib.schedules import new_plan, scheduler_at, session_for_cli, unfired
from ...crib.storage import has_store, open_store
from ...disclosure.settings import BY_CATALOG
from ...errors import ToolFailure, UsageError
from ...jobs.scheduler import ACTIONS, Scheduler
from ...jobs.triggers import local_zone, trigger_of
from ..actions import action_group
from ..open_crib import only_for, opened, report_missing
from ..options import AsJson, ConfigFiles, Wait, find_by_id, read_object, run, settings_of
from ..output import Column, emit_json, escape, local_time, note, out, table

_COLUMNS: Final[tuple[Column, ...]] = (
    ("ID", "<"),
    ("NEXT", "<"),
    ("STATUS", "<"),
    ("RUNS", ">"),
    ("LAST", "<"),
    ("TRIGGER", "<"),
    ("PRINCIPAL", "<"),
    ("WHAT", "<"),
)
_PREFIX: Final = "sched_"
_AWAY: Final = ("connecting", "failed", "stale", "needs_login", "closed")
"""States of a source whose tools may be unknown."""

schedule = action_group(
    "List the schedules: calls that are made later. Add one, show, pause, resume, run or cancel it.\n\n"
    "They are fired by the local daemon of stdio clients, `toolcrib serve` and `toolcrib worker`, as background jobs.",
    default="list",
)

_Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a schedule, or its beginning.")]
_Act = Callable[[Scheduler, Schedule], Awaitable[Schedule]]


@schedule.command("list")
def list_schedules(
    every: Annotated[bool, typer.Option("--all", help="Those that have ended, too.")] = False,
    config: ConfigFiles = None,
    as_json: AsJson = False,
) -> None:
    """List the schedules of every principal, the next one first."""

    async def listed(settings: Settings) -> tuple[list[Schedule], list[str]]:
        if not has_store(settings):
            return [], []
        async with _scheduler(settings) as scheduler:
            found = await scheduler.list(None, every=every)
            active = [one for one in found if one.status == "active"]
            places = {
                place: [one.id for one in active if one.place == place] for place in {one.place for one in active}
            }
            warnings = {place: await unfired(scheduler, settings, place) for place in sorted(places)}
            return found, [f"{', '.join(places[place])}: {text}" for place, text in warnings.items() if text]

    found, warnings = run(lambda: listed(settings_of(config)))
    if as_json:
        emit_json([_shown(one) for one in found])
    elif found:
        print_schedules(found)
    else:
        note("no schedules")
    for warning in warnings:
        note(warning)


def print_schedules(schedules: Iterable[Schedule], *, width: int | None = None) -> None:
    """Print a table, on a terminal at most `width` wide."""
    table(_COLUMNS, map(_cells, schedules), width=width)


@schedule.command("add")
def add_schedule(
    title: Annotated[str, typer.Argument(metavar="TITLE", help="What it is called.")] = "",
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="Once: 2026-03-01T09:30.")] = None,
    every: Annotated[str | None, typer.Option("--every", metavar="TIME", help="Seconds, or 15m, 2h, 1d.")] = None,
    cron: Annotated[str | None, typer.Option("--cron", metavar="EXPR", help="Five fields: '30 9 * * MON-FRI'.")] = None,
    message: Annotated[str | None, typer.Option("--message", metavar="TEXT", help="Send this message.")] = None,
    task: Annotated[str | None, typer.Option("--task", metavar="PROMPT", help="Let an agent do this task.")] = None,
    call: Annotated[str | None, typer.Option("--call", metavar="TOOL", help="Call this tool.")] = None,
    arguments: Annotated[str, typer.Option("--args", metavar="JSON", help="With --call: its arguments.")] = "{}",
    timezone: Annotated[str, typer.Option("--timezone", metavar="ZONE", help="Instead of this machine's.")] = "",
    mode: Annotated[str, typer.Option("--mode", help="What runs unasked: cautious, autonomous …")] = "",
    config: ConfigFiles = None,
    as_json: AsJson = False,
    wait: Wait = 10.0,
) -> None:
    """Add a schedule. Its tools work in this folder; a call that asks waits in `toolcrib approvals`."""
    triggers = {"once": at, "interval": every, "cron": cron}
    actions = {"send_message": message, "agent_task": task, "call": call}
    kind, when = _one_of(triggers, "--at, --every or --cron")
    what, text = _one_of(actions, "--message, --task or --call")
    action: dict[str, Any] = {"type": what, ACTIONS[what]: text}
    if what == "call":
        action["arguments"] = read_object(arguments)

    async def add(settings: Settings) -> tuple[Schedule, bool, str]:
        if mode and mode not in settings.policy.modes:
            raise UsageError(f"there is no mode {mode!r}, only {', '.join(settings.policy.modes)}")
        value: Any = _seconds(when) if kind == "interval" else when
        config = {{"once": "run_at", "interval": "interval_seconds", "cron": "cron"}[kind]: value}
        trigger = trigger_of(kind, config, timezone or local_zone(settings.environment))
        session = session_for_cli(settings, mode=mode, folders=settings.workspace.roots or (here().project,))
        if call is not None:
            await _check_tool(settings, call, wait)
        async with _scheduler(settings) as scheduler:
            made, is_new = await scheduler.create(new_plan(title, trigger, action, session, settings))
            return made, is_new, await unfired(scheduler, settings)

    try:
        made, is_new, warning = run(lambda: add(settings_of(config)))
    except ToolFailure as failure:
        _, is_about_time, problem = failure.whole.partition("trigger_config.")
        if not is_about_time:
            raise
        option = {"once": "--at", "interval": "--every", "cron": "--cron"}[kind]
        raise ToolFailure(failure.code, f"{option}: {problem.partition(': ')[2]}") from failure
    if not is_new:
        note("an equal schedule is active already; no second one was added")
    _print(made, as_json=as_json)
    if warning:
        note(warning)


@schedule.command("show")
def show_schedule(id: _Id, config: ConfigFiles = None, as_json: AsJson = False) -> None:
    """Show one schedule: what it does when, and how its last run ended."""

    async def itself(_: Scheduler, found: Schedule) -> Schedule:
        return found

    _print(_with(config, id, itself), as_json=as_json)


@schedule.command("pause")
def pause_schedule(id: _Id, config: ConfigFiles = None, as_json: AsJson = False) -> None:
    """Let a schedule fire no more until it is resumed."""
    _print(_with(config, id, lambda scheduler, one: scheduler.pause(one.id, None)), as_json=as_json)


@schedule.command("resume")
def resume_schedule(id: _Id, config: ConfigFiles = None, as_json: AsJson = False) -> None:
    """Let a paused schedule fire again."""
    _print(_with(config, id, lambda scheduler, one: scheduler.resume(one.id, None)), as_json=as_json)


@schedule.command("cancel")
def cancel_schedule(id: _Id, config: ConfigFiles = None, as_json: AsJson = False) -> None:
    """End a schedule. A run that goes on is a job: `toolcrib jobs cancel`."""
    _print(_with(config, id, lambda scheduler, one: scheduler.cancel(one.id, None)), as_json=as_json)


@schedule.command("run")
def run_schedule(id: _Id, config: ConfigFiles = None, as_json: AsJson = False) -> None:
    """Fire a schedule now, beside its times, in a process that fires schedules."""
    _print(_with(config, id, lambda scheduler, one: scheduler.run_now(one.id, None)), as_json=as_json)


async def _check_tool(settings: Settings, name: str, wait: float) -> None:
    """Raise `ToolFailure("not_found")` for a name that no tool has; print a note where its server is not reached."""
    async with opened(only_for(settings, name), wait=wait) as crib, crib.session(profile=BY_CATALOG) as session:
        found = crib.explainer.why(name, session)
        away = any(one.state in _AWAY for one in crib.tools.sources)
        if found.code == "not_found" and not (settings.sources.no_prefix and away):
            report_missing(crib, session, name)
            raise ToolFailure("not_found", found.reason, hint=found.hint)
        if not found.tool and found.code in ("not_found", "unavailable"):
            note(f"added without a look at {name}: {found.reason}")


@asynccontextmanager
async def _scheduler(settings: Settings) -> AsyncGenerator[Scheduler]:
    async with open_store(settings) as store:
        yield scheduler_at(store, settings)


def _with(config: list[Path] | None, id: str, act: _Act) -> Schedule:
    """Find the schedule, act on it and return it as it is then; print a warning if no process would fire it."""

    async def found(settings: Settings) -> tuple[Schedule, str]:
        if not has_store(settings):
            raise _no_such(id)
        async with _scheduler(settings) as scheduler:
            one = find_by_id(await scheduler.list(None, every=True), id, _PREFIX)
            if one is None:
                raise _no_such(id)
            done = await act(scheduler, one)
            return done, await unfired(scheduler, settings, done.place) if done.status == "active" else ""

    done, warning = run(lambda: found(settings_of(config)))
    if warning:
        note(warning)
    return done


def _no_such(id: str) -> ToolFailure:
    hint = "`toolcrib schedule list --all` lists them"
    return ToolFailure("not_found", f"there is no schedule {id[:60]!r}", hint=hint)


def _one_of(given: dict[str, str | None], names: str) -> tuple[str, str]:
    """Return the one option that was given. Raises `UsageError` for none, and for several."""
    found = [(name, value) for name, value in given.items() if value is not None]
    if len(found) != 1:
        raise UsageError(f"give one of {names}, not {len(found) or 'none'}")
    return found[0]


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        seconds = seconds_of(text)
    if seconds is None:
        raise UsageError(f"--every: {text!r} is not a number of seconds, nor a time such as 15m, 2h or 1d")
    return seconds


def _print(one: Schedule, *, as_json: bool) -> None:
    if as_json:
        emit_json(_shown(one))
        return
    for key, value in (_shown(one) | {"created": local_time(one.created)}).items():
        if value in ("", None):
            continue
        shown = value if isinstance(value, str) else dumps(value).decode()
        out(f"{key}: {escape(shown)}")


def _shown(one: Schedule) -> dict[str, Any]:
    return {key: value for key, value in fields_of(one).items() if key != "next_run"}


def _cells(one: Schedule) -> tuple[str, ...]:
    what = next((str(value) for key, value in one.action.items() if key != "type"), f"not readable: {one.problem}")
    value = next(iter(one.trigger_config.values()))
    return (
        one.id,
        "running" if one.is_running else "" if one.next_run is None else local_time(one.next_run),
        one.status,
        str(one.runs),
        one.outcome,
        f"{one.trigger_type} {value:g} s" if isinstance(value, float) else f"{one.trigger_type} {value}",
        one.principal,
        f"{one.title}: {what}" if one.title else what,
    )
