"""Hooks that can refuse: their steps run before an agent begins a task, or before its result is accepted.

A step that fails, a command with another exit status than 0, and 30 s that are over refuse the transition.

The steps run outside of a transaction, which no command may hold open: the claim of the task keeps others away.
"""

from __future__ import annotations

from typing import Any, Final

import anyio

from toolcrib.plugin import Context, Row, Rows, ToolFailure, invalid_argument

from ..events import publish
from ..operations import LONG, id_of, storage_of, transaction_tool
from ..state import folder_of
from .steps import make_step

VETOED: Final = ("task.started", "task.completed")
"""Events that a hook can refuse."""
_SECONDS: Final = 30.0
"""Time of all steps of one hook."""
_SHOWN: Final = 2000


async def veto_of(ctx: Context, task_id: str, event: str) -> ToolFailure | None:
    """Run the hooks that can refuse an event of a task; return the first refusal, with the name of its hook."""

    def look(rows: Rows) -> tuple[str, list[Row]]:
        task = rows.get("tasks", task_id, "editor")
        sql = "SELECT label FROM {contexts} AS c WHERE task_id = ? AND type = 'override'"
        overridden = {row["label"] for row in rows.select(sql, (task_id,))}
        sql = "SELECT * FROM {hooks} AS h WHERE project_id = ? AND enabled = 1 ORDER BY created_at, id"
        wanted = {"type": "veto", "event_type": event}
        found = [hook for hook in rows.select(sql, (task["project_id"],)) if hook["trigger_config"] == wanted]
        return folder_of(rows, task), [hook for hook in found if hook["id"] not in overridden]

    folder, hooks = await storage_of(ctx).read(look)
    for hook in hooks:
        begun = await storage_of(ctx).read(lambda rows: rows.now)
        results: list[dict[str, Any]] = []
        why = await _refusal(ctx, hook, folder, results)
        ended = _ended_run(hook, task_id, event, f"{ctx.call_id} {event} {task_id}", begun, results, why)
        await storage_of(ctx).write(lambda rows, run=ended: rows.insert("hook_runs", {**run, "completed_at": rows.now}))
        if why:
            return ToolFailure(
                "conflict",
                f"hook {hook['name']} refuses {event} of task {task_id}: {why}",
                hint=f"{hook['prompt_template'][:_SHOWN]} (override_veto asks a person)",
                details={"hook_id": hook["id"], "hook": hook["name"], "event": event, "reason": why},
            )
    return None


async def _refusal(ctx: Context, hook: Row, folder: str, results: list[dict[str, Any]]) -> str:
    """Make the steps of a hook in the folder of a task; return why it refuses, empty where it does not."""
    with anyio.move_on_after(_SECONDS) as scope:
        for number, step in enumerate(hook["context_steps"]):
            try:
                results.append(await make_step(ctx, hook, step, folder=folder))
            except ToolFailure as failure:
                return f"step {number}: {failure.message}"
            status = results[-1].get("exit_code", 0)
            if status or results[-1].get("status_code", 200) != 200:
                shown = "\n".join(str(results[-1].get(key, "")) for key in ("stdout", "stderr", "body")).strip()
                return f"step {number}: {f'exit status {status}' if status else 'no answer'}: {shown[-_SHOWN:]}"
    return f"it did not end within {_SECONDS:g} s" if scope.cancelled_caught else ""


def _ended_run(
    hook: Row, task_id: str, event: str, key: str, begun: float, results: list[dict[str, Any]], why: str
) -> dict[str, Any]:
    """Return the run of a hook for the list of its runs."""
    return {
        "project_id": hook["project_id"],
        "hook_id": hook["id"],
        "trigger_reason": f"veto:{event}",
        "event_key": key,
        "status": "failed" if why else "completed",
        "event_data": {"type": event, "task_id": task_id},
        "context_results": results,
        "prompt_sent": "",
        "task_id": task_id,
        "tokens_used": 0,
        "skipped_reason": why or None,
        "started_at": begun,
        "generation": 1,
    }


@transaction_tool(
    "x.hook.override",
    "queue",
    "write",
    {"task_id": id_of("task"), "hook_id": id_of("hook that refuses"), "reason": {**LONG, "minLength": 1}},
    ["task_id", "hook_id", "reason"],
    idempotent=False,
    approval="always",
)
def override_veto(rows: Rows, task_id: str, hook_id: str, reason: str) -> dict[str, Any]:
    """Let one task pass a hook that refuses it, for a reason that is kept among its notes. A person is asked."""
    task, hook = rows.get("tasks", task_id, "editor"), rows.get("hooks", hook_id, "editor")
    if hook["project_id"] != task["project_id"] or hook["trigger_config"]["type"] != "veto":
        raise invalid_argument("hook_id", f"hook {hook_id} refuses nothing of task {task_id}")
    values: dict[str, Any] = {"task_id": task_id, "type": "override", "label": hook_id, "content": reason}
    rows.insert("contexts", {"project_id": task["project_id"], **values})
    publish(rows, "hook.overridden", task, hook=hook["name"], reason=reason)
    return {"overridden": hook_id, "name": hook["name"], "task_id": task_id, "status": task["status"]}
