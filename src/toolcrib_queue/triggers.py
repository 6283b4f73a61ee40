"""Times of the one scheduler at which the queue is called: for a hook, and for due events."""

from __future__ import annotations

from typing import Final

from toolcrib.plugin import Context, Row, ToolFailure

from .operations import storage_of

__all__ = ["schedule_events", "schedule_hook", "unschedule_hook"]

_TICK_SECONDS: Final = 10


async def schedule_hook(ctx: Context, hook: Row) -> None:
    """Let the scheduler call `run_queue`: for this hook at its times, or for due events of all hooks."""
    trigger = hook["trigger_config"]
    if trigger["type"] == "veto":
        return
    if trigger["type"] == "cron":
        kind, config = "cron", {"cron": trigger["expr"]}
    elif trigger["type"] == "periodic":
        kind, config = "interval", {"interval_seconds": trigger["interval_seconds"]}
    else:
        await schedule_events(ctx)
        return
    made, _ = await ctx.schedules.create(
        title=f"queue: {hook['name']}"[:200],
        trigger_type=kind,
        trigger_config=config,
        action={"type": "call", "tool": "run_queue", "arguments": {"hook_id": hook["id"]}},
    )
    await storage_of(ctx).write(lambda rows: rows.update("hooks", hook["id"], {"schedule_id": made.id}))


async def schedule_events(ctx: Context) -> None:
    """Let the scheduler call `run_queue` for due events of all hooks and playbooks; one schedule does it."""
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
