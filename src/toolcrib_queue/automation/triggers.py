"""Times of the one scheduler at which the queue is called: for a hook, and for due events.

A hook with times has a schedule of its own. Those of events and webhooks share one that calls every 10 s; before each
call the scheduler asks whether anything is due (`hooks._is_due`), and makes none otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from toolcrib.plugin import Context, Row, ToolFailure, invalid_argument

_TICK_SECONDS: Final = 10
_TIMES: Final[Mapping[str, tuple[str, str, str]]] = {
    "cron": ("cron", "cron", "expr"),
    "periodic": ("interval", "interval_seconds", "interval_seconds"),
}
"""Type of a hook's trigger → the type of its schedule, and the names of its value in a schedule and in the trigger."""


async def schedule_hook(ctx: Context, hook: Row) -> str | None:
    """Let the scheduler call `run_queue`: for this hook at its times, or for due events of all hooks.

    Return the id of a schedule that is the hook's own. Raises `ToolFailure` for times that are none.
    """
    trigger = hook["trigger_config"]
    if trigger["type"] == "veto":
        return None
    if trigger["type"] not in _TIMES:
        await schedule_events(ctx)
        return None
    kind, name, own = _TIMES[trigger["type"]]
    try:
        made, _ = await ctx.schedules.create(
            title=f"queue: {hook['name']}"[:200],
            trigger_type=kind,
            trigger_config={name: trigger[own]},
            action={"type": "call", "tool": "run_queue", "arguments": {"hook_id": hook["id"]}},
        )
    except ToolFailure as failure:
        for error in failure.details.get("field_errors", ()):  # of a schedule, which has other names
            raise invalid_argument(f"trigger.{own}", error["message"], hint=failure.hint) from None
        raise
    return made.id


async def schedule_events(ctx: Context) -> None:
    """Let the scheduler call `run_queue` for due events of all hooks and playbooks.

    A second request for the same schedule returns the first one: one does it, however many hooks there are.
    """
    await ctx.schedules.create(
        title="queue: events",
        trigger_type="interval",
        trigger_config={"interval_seconds": _TICK_SECONDS},
        action={"type": "call", "tool": "run_queue", "arguments": {}},
    )


async def unschedule_hook(ctx: Context, hook: Row) -> None:
    """Cancel the schedule of a hook; one that has ended, or that another member made, stays as it is."""
    if hook["schedule_id"]:
        try:
            await ctx.schedules.cancel(hook["schedule_id"])
        except ToolFailure as failure:
            if failure.code not in ("not_found", "conflict"):
                raise
