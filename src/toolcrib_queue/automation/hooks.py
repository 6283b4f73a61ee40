"""Hooks: work that a time or an event starts. Its steps run as calls of the session, its prompt becomes a task.

Times are schedules of the one scheduler, which call `run_queue`. An event is put down as a due run in the transaction
that records it, so that neither is there without the other, and each hook runs once for each event.

    time, event, webhook, hand ─> run "due" ─> "running" ─> steps ─> prompt ─> task, run "completed"
                                     │            └─ process ended: made again after 900 s
                                     └─ switched off, cooldown: "skipped"; too many at once: it waits

The transaction that ends a run compares the `generation`: a process that was taken for dead creates no second task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolcrib.plugin import Context, Host, Row, Rows, ToolFailure, invalid_argument

from ..events import check_event, put_run
from ..model import SCHEMA
from ..operations import (
    INTEGER,
    LONG,
    NAME,
    OF_ANY_PROJECT,
    OFFSET,
    changes_of,
    id_of,
    in_project,
    is_paused,
    is_paused_for,
    limit_of,
    queue_tool,
    read_page,
    storage_of,
    transaction_tool,
)
from ..scheduler import has_due_task, tick
from ..state import date_of
from ..tools.tasks import insert_task
from .file_changes import has_changed_files, publish_changed_files
from .playbook_runs import has_due_playbook, move_playbooks
from .steps import CONTEXT_STEPS, check_steps, fill, make_steps
from .triggers import schedule_hook, unschedule_hook
from .vetoes import VETOED

_HOOK: Final = {"hook_id": id_of("hook")}
_DECIDING: Final = frozenset({"context_steps", "enabled", "trigger"})
"""Fields of a hook that decide what it refuses."""
_AT_ONCE: Final = 2
"""Runs of hooks of one project at the same time."""
_STALE: Final = 900.0
"""Seconds after which a run whose process ended is made again: its steps may run twice, its task is created once."""
_BATCH: Final = 20
"""Due runs that one call handles."""
_EVENT_NAME: Final = re.compile(r"[\w.-]{1,64}", re.ASCII)
_PING: Final = "ping"
"""The event by which GitHub tries a new webhook."""
_TRIGGER: Final = {
    "type": "object",
    "properties": {
        "type": {"type": "string", "enum": ["periodic", "cron", "event", "webhook", "veto"]},
        "interval_seconds": {"type": "number", "minimum": 1},
        "expr": {"type": "string", "maxLength": 200, "description": "Five fields of cron"},
        "event_type": {
            "type": "string",
            "maxLength": 200,
            "description": "Such as task.failed; * is every one. veto: task.started or task.completed. webhook: push",
        },
        "sender": {
            "type": "string",
            "maxLength": 100,
            "description": "webhook: whose signed requests come, of tools.queue.webhooks",
        },
    },
    "required": ["type"],
    "additionalProperties": False,
}
_NEEDED: Final[Mapping[str, str]] = {
    "periodic": "interval_seconds",
    "cron": "expr",
    "event": "event_type",
    "webhook": "",
    "veto": "event_type",
}
"""Type of a trigger → the key that it needs."""
_FIELDS: Final[Mapping[str, Any]] = {
    "name": NAME,
    "trigger": _TRIGGER,
    "context_steps": CONTEXT_STEPS,
    "prompt_template": {
        **LONG,
        "minLength": 1,
        "description": "{{step_0}}, {{step_0.field}}, {{event.field}} are filled. With veto: advice",
    },
    "cooldown_seconds": INTEGER,
    "llm_config": {
        "type": "object",
        "maxProperties": 50,
        "description": "For the task that it creates; model is used instead of that of the agent profile",
    },
}

_WAIT: Final = "wait"


@queue_tool(
    "x.hook.create",
    "hooks",
    "write",
    {"project_id": id_of("project"), **_FIELDS, "cooldown_seconds": {**INTEGER, "default": 3600}},
    ["project_id", "name", "trigger", "prompt_template"],
    idempotent=False,
    examples=[
        {
            "project_id": "<project_id>",
            "name": "Look at failures",
            "trigger": {"type": "event", "event_type": "task.failed"},
            "prompt_template": "Find out why {{event.title}} failed.",
        }
    ],
    policy={
        "edge_cases": [
            "When a hook has run, its prompt is a task of the project.",
            "One of type veto runs before the event, at most 30 s: a step that fails refuses it.",
        ]
    },
)
async def create_hook(ctx: Context, project_id: str, name: str, **given: Any) -> dict[str, Any]:
    """Create a hook: at times or at an event it gathers context and creates a task with the filled prompt."""
    trigger = given["trigger"]
    _check(trigger, given.get("context_steps") or [])

    def work(rows: Rows) -> Row:
        rows.get("projects", project_id, "editor")
        values: dict[str, Any] = {
            "project_id": project_id,
            "name": name.strip(),
            "enabled": 1,
            "trigger_config": trigger,
            "context_steps": given.get("context_steps") or [],
            "prompt_template": given["prompt_template"],
            "llm_config": given.get("llm_config") or {},
            "cooldown_seconds": given["cooldown_seconds"],
        }
        return rows.insert("hooks", values)

    hook = await storage_of(ctx).write(work)
    try:
        schedule_id = await schedule_hook(ctx, hook)
    except BaseException:
        await storage_of(ctx).write(lambda rows: rows.delete("hooks", hook["id"]))
        raise
    await storage_of(ctx).write(lambda rows: rows.update("hooks", hook["id"], {"schedule_id": schedule_id}))
    return {"created": hook["id"], "name": hook["name"], "project_id": project_id}


def _check(trigger: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> None:
    needed = _NEEDED[trigger["type"]]
    if needed and not trigger.get(needed):
        raise invalid_argument(f"trigger.{needed}", f"a trigger of type {trigger['type']} needs it", keyword="required")
    if trigger["type"] == "veto":
        if trigger["event_type"] not in VETOED:
            raise invalid_argument("trigger.event_type", f"a hook can refuse {' and '.join(VETOED)}", keyword="enum")
        if not steps:
            raise invalid_argument("context_steps", "a trigger of type veto needs them", keyword="required")
    elif trigger["type"] == "event":
        check_event(trigger["event_type"], "trigger.event_type")
    check_steps(steps)


@transaction_tool("x.hook.list", "hooks", "read", OF_ANY_PROJECT, explicit=["project_id"])
def list_hooks(rows: Rows, project_id: str = "") -> dict[str, Any]:
    """List hooks with their triggers."""
    chosen, given = in_project(rows, project_id, "WHERE")
    found = rows.select(f"SELECT * FROM {{hooks}} AS h{chosen} ORDER BY created_at, id", given)
    return {"hooks": [_shown(one) for one in found]}


def _shown(hook: Row) -> dict[str, Any]:
    return {
        "id": hook["id"],
        "project_id": hook["project_id"],
        "name": hook["name"],
        "enabled": bool(hook["enabled"]),
        "trigger": hook["trigger_config"],
        "cooldown_seconds": hook["cooldown_seconds"],
        "prompt_template": hook["prompt_template"][:200],
    }


@queue_tool(
    "x.hook.edit",
    "hooks",
    "write",
    {
        **_HOOK,
        **_FIELDS,
        "enabled": {"type": "boolean"},
        "max_tokens_per_run": {
            "type": ["integer", "null"],
            "minimum": 1,
            "description": "A task of the hook that failed with as many tokens is not tried again",
        },
    },
    ["hook_id"],
    examples=[{"hook_id": "<hook_id>", "enabled": False}],
)
async def edit_hook(ctx: Context, hook_id: str, **given: Any) -> dict[str, Any]:
    """Change a hook, or switch it on or off. One that can refuse is not changed: delete_hook asks a person."""
    changes = changes_of(given)
    before = await storage_of(ctx).read(lambda rows: rows.get("hooks", hook_id, "editor"))
    if before["trigger_config"]["type"] == "veto" and (frozen := sorted(_DECIDING & changes.keys())):
        raise ToolFailure(
            "conflict",
            f"hook {before['name']!r} can refuse: its {', '.join(frozen)} cannot be changed",
            hint="delete_hook asks a person; override_veto lets one task pass",
        )
    if "context_steps" in changes and before["created_by"] != ctx.principal:
        raise ToolFailure(
            "denied",
            f"steps of hook {before['name']!r} run with the rights of {before['created_by']!r}: no other changes them",
            hint="create a hook of your own",
        )
    _check(changes.get("trigger") or before["trigger_config"], changes.get("context_steps", before["context_steps"]))
    fields = sorted(changes)
    if "enabled" in changes:
        changes["enabled"] = int(changes["enabled"])
    changes["trigger_config"] = changes.pop("trigger", before["trigger_config"])
    is_moved = changes["trigger_config"] != before["trigger_config"]
    if is_moved:  # times that are none are refused before anything is changed
        changes["schedule_id"] = await schedule_hook(ctx, {**before, **changes})
    await storage_of(ctx).write(lambda rows: rows.update("hooks", hook_id, changes))
    if is_moved:
        await unschedule_hook(ctx, before)
    return {"updated": hook_id, "fields": fields}


@queue_tool("x.hook.delete", "hooks", "destructive", _HOOK, ["hook_id"], approval="always")
async def delete_hook(ctx: Context, hook_id: str) -> dict[str, Any]:
    """Delete a hook; its runs stay readable with its project only. A person is asked every time."""
    gone = await storage_of(ctx).write(lambda rows: rows.delete("hooks", hook_id))
    await unschedule_hook(ctx, gone)
    return {"deleted": hook_id, "name": gone["name"]}


@transaction_tool("x.hook.runs", "hooks", "read", {**_HOOK, "limit": limit_of(10, 100), "offset": OFFSET}, ["hook_id"])
def list_hook_runs(rows: Rows, hook_id: str, limit: int, offset: int) -> dict[str, Any]:
    """List the last runs of a hook, the newest first, with the task that each created."""
    hook = rows.get("hooks", hook_id)
    sql = "SELECT * FROM {hook_runs} AS r WHERE hook_id = ? ORDER BY created_at DESC, id"
    runs, more = read_page(rows, sql, (hook_id,), _run_line, limit=limit, offset=offset)
    return {"hook_id": hook_id, "hook_name": hook["name"], "runs": runs, **more}


def _run_line(run: Row) -> dict[str, Any]:
    names = ("id", "trigger_reason", "status", "tokens_used", "skipped_reason", "task_id")
    times = {name: date_of(run[name]) for name in ("started_at", "completed_at")}
    return {**{name: run[name] for name in names}, **times}


@queue_tool("x.hook.fire", "hooks", "write", _HOOK, ["hook_id"], idempotent=False, timeout=600)
async def fire_hook(ctx: Context, hook_id: str) -> dict[str, Any]:
    """Run a hook now, in spite of its cooldown, which begins anew; another member's steps wait for that one's clock."""

    def work(rows: Rows) -> tuple[Row, bool]:
        hook = rows.get("hooks", hook_id, "editor")
        if hook["trigger_config"]["type"] == "veto":
            raise invalid_argument("hook_id", f"hook {hook_id} runs before {hook['trigger_config']['event_type']} only")
        return put_run(rows, hook, "manual", ctx.call_id, {}), _has_foreign_steps(rows, hook)

    run, is_foreign = await storage_of(ctx).write(work)
    done = run if is_foreign else await _run(ctx, run["id"])
    return {"fired": hook_id, "status": done["status"], "run_id": run["id"], "task_id": done["task_id"]}


@queue_tool(
    "x.hook.receive",
    "queue",
    "write",
    {
        **_HOOK,
        "delivery": {
            "type": "string",
            "minLength": 1,
            "maxLength": 200,
            "description": "Names the event: one run each",
        },
        "signed": {"type": "object", "description": "For the server: by, event and body of a signed request"},
    },
    ["hook_id"],
    idempotent=False,
    additional=True,
    examples=[{"hook_id": "<hook_id>", "delivery": "build-7"}],
)
async def receive_webhook(
    ctx: Context, hook_id: str, delivery: str = "", signed: Mapping[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    """Take an event from outside for a hook of type webhook; all other arguments are fields of {{event.field}}.

    A delivery that came before runs the hook no second time.
    """
    event = str((signed or {}).get("event", ""))
    content: Mapping[str, Any] = fields if signed is None else signed.get("body", {})

    def work(rows: Rows) -> Row | None:
        hook = rows.get("hooks", hook_id, "editor")
        trigger = hook["trigger_config"]
        if trigger["type"] != "webhook":
            raise invalid_argument("hook_id", f"hook {hook_id} waits for no webhook: it is {trigger['type']}")
        if signed is not None and trigger.get("sender") != signed.get("by"):
            hint = "the trigger names its `sender`, one of tools.queue.webhooks"
            raise ToolFailure("denied", f"hook {hook_id} takes no events of {signed.get('by')!r}", hint=hint)
        if signed is not None and (event == _PING or trigger.get("event_type", event) not in (event, "*")):
            return None
        shown = event if _EVENT_NAME.fullmatch(event) else ""  # it stands in prompts without a fence
        own = {"type": "webhook", "project_id": hook["project_id"], "task_id": "", "event": shown}
        return put_run(rows, hook, "webhook", f"webhook {delivery or ctx.call_id}", {**content, **own})

    run = await storage_of(ctx, source="receive_webhook").write(work)
    if run is None:
        return {"received": hook_id, "ignored": event}
    return {"received": hook_id, "run_id": run["id"], "status": run["status"]}


_PENDING: Final = (
    "SELECT id FROM {hook_runs} AS r WHERE (status = 'running' AND started_at < ? OR status = 'due' AND NOT EXISTS"
    " (SELECT 1 FROM {hook_runs} AS b WHERE b.hook_id = r.hook_id AND b.status = 'running' AND b.started_at >= ?))"
)
"""Runs of hooks that are made now: those that wait for a run of their own hook do not hold up other hooks."""
_OPEN: Final = (
    "SELECT DISTINCT r.project_id, r.hook_id, h.created_by FROM {hook_runs} AS r LEFT JOIN {hooks} AS h"
    " ON h.id = r.hook_id WHERE r.status IN ('due', 'running')"
)


def _pending(rows: Rows, most: int) -> list[str]:
    begun = rows.now - _STALE
    foreign = [str(one["hook_id"]) for one in rows.select(_OPEN) if not _is_ours(rows, one)]
    sql = f"{_PENDING} AND hook_id NOT IN (''{', ?' * len(foreign)}) ORDER BY created_at, id LIMIT ?"
    return [str(row["id"]) for row in rows.select(sql, (begun, begun, *foreign, most))]


def _is_ours(rows: Rows, open_run: Row) -> bool:
    """Whether the caller's clock makes a run: of its own hook, or of one whose author may not change the project.

    A hook of another member waits for the clock of that member: its steps run with the rights of its author.
    """
    author = open_run["created_by"]
    editors = {one.principal for one in rows.members(open_run["project_id"]) if one.role != "viewer"}
    return rows.principal in editors and (author == rows.principal or author not in editors)


async def _is_due(host: Host, principal: str) -> bool:
    """Whether `run_queue` would do anything."""

    def look(rows: Rows) -> bool:
        return bool(_pending(rows, 1)) or has_due_task(rows) or has_due_playbook(rows)

    if await is_paused_for(host, principal):
        return False
    return await host.storage(principal, SCHEMA).read(look) or await has_changed_files(host, principal)


@queue_tool(
    "x.queue.run",
    "queue",
    "write",
    {"hook_id": id_of("hook that is due")},
    idempotent=False,
    timeout=900,
    due=_is_due,
    policy={"edge_cases": ["The scheduler calls it; calling it by hand does what is due a little earlier."]},
)
async def run_queue(ctx: Context, hook_id: str = "") -> dict[str, Any]:
    """Move the queue on: ended leases, pauses, questions, retries, playbooks, and the hooks that are due."""
    if await is_paused(ctx):
        return {"is_paused": True, "runs": []}
    await publish_changed_files(ctx)

    def work(rows: Rows) -> tuple[dict[str, int], list[str]]:
        if hook_id:
            hook = rows.get("hooks", hook_id, "editor")
            reason = hook["trigger_config"]["type"]
            put_run(rows, hook, reason, f"{reason} {ctx.first_call or ctx.call_id}", {})
        counts = {**tick(rows), "playbooks": len(move_playbooks(rows))}
        return counts, _pending(rows, _BATCH)

    counts, due = await storage_of(ctx).write(work)
    runs = [_run_line(await _run(ctx, id)) for id in due]
    return {"is_paused": False, **counts, "runs": runs}


async def _run(ctx: Context, run_id: str) -> Row:
    """Run one due run to its end; return it. Another process that has it goes on alone."""
    run, hook = await storage_of(ctx).write(lambda rows: _begin(rows, run_id))
    if hook is None:
        return run
    results, skipped, failed = await make_steps(ctx, hook)
    ended: dict[str, Any] = {"context_results": results}
    if failed or skipped:
        ended |= {"status": "failed" if failed else "skipped", "skipped_reason": failed or skipped}
    else:
        named = {f"step_{number}": result for number, result in enumerate(results)}
        ended |= {"status": "completed", "prompt_sent": fill(hook["prompt_template"], named, run["event_data"])}
    return await storage_of(ctx).write(lambda rows: _end(rows, run, hook, ended))


def _begin(rows: Rows, run_id: str) -> tuple[Row, Row | None]:
    """Begin a run and return it with its hook, without it where there is nothing to do now."""
    run = rows.get("hook_runs", run_id, "editor")
    hook = rows.find("hooks", run["hook_id"])
    if run["status"] not in ("due", "running") or (
        run["status"] == "running" and run["started_at"] >= rows.now - _STALE
    ):
        return run, None
    why = "the hook was deleted" if hook is None else _refusal(rows, hook, run)
    if why == _WAIT:
        return run, None
    if hook is None or why:
        ended: dict[str, Any] = {"status": "skipped", "skipped_reason": why, "completed_at": rows.now}
        return rows.update("hook_runs", run_id, ended), None
    rows.update("hooks", hook["id"], {"last_run": rows.now})
    begun = {"status": "running", "started_at": rows.now, "generation": run["generation"] + 1}
    return rows.update("hook_runs", run_id, begun), hook


def _end(rows: Rows, run: Row, hook: Row, ended: Mapping[str, Any]) -> Row:
    """Store how a run ended, with the task of its prompt, unless another process took it over."""
    held = rows.get("hook_runs", run["id"], "editor")
    if held["generation"] != run["generation"] or held["status"] != "running":
        return held
    made: dict[str, Any] = {}
    if ended["status"] == "completed":
        given = {
            "description": ended["prompt_sent"],
            "task_type": "chore",
            "hook_id": hook["id"],
            "depth": (run["depth"] or 0) + 1,
            "llm_config": hook["llm_config"],
            "token_limit": hook["max_tokens_per_run"],
        }
        made["task_id"] = insert_task(rows, hook["project_id"], f"Hook: {hook['name']}"[:500], given)["id"]
    return rows.update("hook_runs", run["id"], {**ended, **made, "completed_at": rows.now})


def _has_foreign_steps(rows: Rows, hook: Row) -> bool:
    return bool(hook["context_steps"]) and hook["created_by"] != rows.principal


def _refusal(rows: Rows, hook: Row, run: Row) -> str:
    """Return why a run is skipped now; `_WAIT` for one that comes later, empty for none."""
    if _has_foreign_steps(rows, hook):  # `_pending` waits for an author who is still there
        return f"its steps run with the rights of {hook['created_by']!r}, who may not change the project any more"
    if run["status"] == "running":  # a stale one, which passed these checks when it began
        return ""
    if not hook["enabled"] and run["trigger_reason"] != "manual":
        return "the hook is switched off"
    sql = "SELECT hook_id FROM {hook_runs} AS r WHERE project_id = ? AND status = 'running' AND started_at >= ?"
    active = [row["hook_id"] for row in rows.select(sql, (hook["project_id"], rows.now - _STALE))]
    if hook["id"] in active or len(active) >= _AT_ONCE:
        return _WAIT
    is_cool = hook["last_run"] is None or hook["last_run"] + hook["cooldown_seconds"] <= rows.now
    return "" if is_cool or run["trigger_reason"] == "manual" else f"cooldown of {hook['cooldown_seconds']} s"
