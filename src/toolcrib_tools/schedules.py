"""Scheduled tasks (seed 004): a message or a task for an agent, once, at an interval or by a cron expression."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

from pydantic import Field

from toolcrib.plugin import Context, Schedule, ToolFailure, tool

__all__ = ["ScheduledAction", "TriggerConfig", "scheduled_task"]

_TITLE: Final = 200
_LIST_FIRST: Final = "call it with operation list first: it names the task_id of each"


class TriggerConfig(TypedDict):
    """When it fires, by its trigger_type."""

    run_at: NotRequired[Annotated[str, Field(description="once: ISO 8601, such as 2026-03-01T09:30.")]]
    cron: NotRequired[Annotated[str, Field(description="cron: five fields, such as 30 9 * * MON-FRI.")]]
    interval_seconds: NotRequired[Annotated[float, Field(gt=0, description="interval: seconds, at least 1.")]]


class ScheduledAction(TypedDict):
    """What it does."""

    type: Literal["send_message", "agent_task"]
    content: NotRequired[Annotated[str, Field(description="send_message: the text for the user.")]]
    prompt: NotRequired[Annotated[str, Field(description="agent_task: the whole task; the agent sees nothing else.")]]


@tool(
    op="x.schedule.manage",
    category="scheduling",
    kind="write",
    open_world=False,
    idempotent=False,
    traits=["by_action"],
    metadata={"reads": {"operation": ["list"]}},
    tags=["task_scheduling", "schedule", "reminder", "timer", "cron", "later", "every"],
    explicit=["task_id"],
    examples=[
        {
            "operation": "create",
            "title": "Water",
            "trigger_type": "cron",
            "trigger_config": {"cron": "0 18 * * *"},
            "action": {"type": "send_message", "content": "Water the plants."},
        },
        {"operation": "list"},
    ],
    policy={
        "do": ["Find out the current time before you compute run_at."],
        "edge_cases": [
            "Times without an offset are the user's wall time.",
            "What was missed while nothing ran that fires tasks is made up for once, and says that it is late.",
        ],
    },
)
async def scheduled_task(
    operation: Literal["create", "list", "cancel", "update"],
    ctx: Context,
    task_id: str = "",
    title: Annotated[str, Field(max_length=_TITLE)] = "",
    trigger_type: Literal["once", "cron", "interval"] | None = None,
    trigger_config: TriggerConfig | None = None,
    action: ScheduledAction | None = None,
) -> dict[str, Any]:
    """Do something later or regularly: send a message to the user, or let an agent work on a task.

    Args:
        operation: create; list the active tasks; cancel or update the one with this task_id.
        task_id: From create or list.
        title: What the task is called.
        trigger_type: once at a time, by a cron expression, or at an interval.
        trigger_config: When it fires.
        action: What it does.
    """
    schedules = ctx.schedules
    if operation == "list":
        tasks = [_described(one) for one in await schedules.list()]
        warning = await schedules.warning() if tasks else ""
        return {"success": True, "tasks": tasks, "count": len(tasks), **({"warning": warning} if warning else {})}
    if operation == "create":
        if trigger_type is None or trigger_config is None or action is None:
            lacks = [
                name
                for name, value in (
                    ("trigger_type", trigger_type),
                    ("trigger_config", trigger_config),
                    ("action", action),
                )
                if value is None
            ]
            raise ToolFailure("invalid_arguments", f"create needs {', '.join(lacks)}")
        made, is_new = await schedules.create(
            title=title, trigger_type=trigger_type, trigger_config=dict(trigger_config), action=dict(action)
        )
        message = "The task is scheduled." if is_new else "An equal task is active already; no second one was made."
        return await _answer(ctx, made, message)
    if not task_id.strip():
        raise ToolFailure("invalid_arguments", f"{operation} needs task_id", hint=_LIST_FIRST)
    try:
        if operation == "cancel":
            cancelled = await schedules.cancel(task_id.strip())
            return {"success": True, "task_id": cancelled.id, "message": "The task is cancelled."}
        changed = await schedules.update(
            task_id.strip(),
            title=title or None,
            trigger_type=trigger_type,
            trigger_config=None if trigger_config is None else dict(trigger_config),
            action=None if action is None else dict(action),
        )
    except ToolFailure as failure:
        if failure.code != "not_found":
            raise
        raise ToolFailure("not_found", f"there is no task {task_id[:60]!r}", hint=_LIST_FIRST) from failure
    return await _answer(ctx, changed, "The task is updated.")


async def _answer(ctx: Context, task: Schedule, message: str) -> dict[str, Any]:
    warning = await ctx.schedules.warning()
    whole = f"{message} {warning}" if warning else message
    return {"success": True, "task_id": task.id, "next_run_at": task.next_run_at, "message": whole}


def _described(task: Schedule) -> dict[str, Any]:
    described: dict[str, Any] = {
        "task_id": task.id,
        "title": task.title,
        "status": task.status,
        "trigger_type": task.trigger_type,
        "trigger_config": dict(task.trigger_config),
        "timezone": task.zone,
        "action": dict(task.action),
        "next_run_at": task.next_run_at,
        "run_count": task.runs,
    }
    if task.runs:
        described |= {"last_run_at": task.last_run_at, "last_outcome": task.outcome}
    if task.problem:
        described |= {"problem": task.problem}
    return described
