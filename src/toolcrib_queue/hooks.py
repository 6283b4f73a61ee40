"""Hooks: work that a time or an event starts. Its steps run as calls of the session, its prompt becomes a task.

Times are schedules of the one scheduler, which call `run_queue`. An event is put down as a due run in the transaction
that records it, so that neither is there without the other, and each hook runs once for each event.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from toolcrib.plugin import Context, Row, Rows, ToolFailure, fenced_text

from .operations import INTEGER, LONG, NAME, changes_of, id_of, is_paused, limit_of, queue_tool, storage_of
from .scheduler import tick
from .state import date_of, invalid, put_run
from .tasks import insert_task

__all__ = ["create_hook", "delete_hook", "edit_hook", "fire_hook", "list_hook_runs", "list_hooks", "run_queue"]

_HOOK: Final = {"hook_id": id_of("hook")}
_AT_ONCE: Final = 2
"""Runs of hooks of one project at the same time."""
_STALE: Final = 900.0
"""Seconds after which a run whose process ended is made again: its steps may run twice, its task is created once."""
_LARGE: Final = 50_000
_TICK_SECONDS: Final = 10
_BATCH: Final = 20
"""Due runs that one call handles."""
_STEPS: Final[Mapping[str, str]] = {
    "shell": "command",
    "read_file": "path",
    "http": "url",
    "db_query": "query",
    "git_diff": "workspace",
}
"""Type of a step → the key that it needs."""
_QUERIES: Final[Mapping[str, str]] = {
    "recent_task_results": (
        "SELECT task_id, agent_id, result, summary, error_message, tokens_used FROM {results} AS r"
        " WHERE project_id = ? ORDER BY created_at DESC LIMIT 20"
    ),
    "task_detail": (
        "SELECT id, title, description, status, error_message FROM {tasks} AS t WHERE project_id = ? AND id = ?"
    ),
    "hook_runs": (
        "SELECT hook_id, trigger_reason, status, skipped_reason FROM {hook_runs} AS h"
        " WHERE project_id = ? ORDER BY created_at DESC LIMIT 20"
    ),
}
"""Queries that a step may name; `recent_events` reads the log."""
_SKIPS: Final = ("skip_llm_if_exit_zero", "skip_llm_if_empty", "skip_llm_if_status_ok")
_FIELD: Final = re.compile(r"\{\{\s*(\w+)(?:\.(\w+))?\s*\}\}")
_OWN_FIELDS: Final = ("type", "project_id", "task_id", "event")
"""Fields of an event that the queue wrote itself."""
_EMPTY_FILE: Final = "[the file is empty]"
"""What `read_file` returns for one."""
_EXIT: Final = re.compile(r"^\[(?:exit status (\d+)|ended by )", re.MULTILINE)

_TRIGGER: Final = {
    "type": "object",
    "properties": {
        "type": {"type": "string", "enum": ["periodic", "cron", "event"]},
        "interval_seconds": {"type": "number", "minimum": 1},
        "expr": {"type": "string", "maxLength": 200, "description": "Five fields of cron"},
        "event_type": {"type": "string", "maxLength": 200, "description": "Such as task.failed; * is every one"},
    },
    "required": ["type"],
    "additionalProperties": False,
}
_CONTEXT_STEPS: Final = {
    "type": "array",
    "maxItems": 20,
    "items": {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": [*_STEPS]},
            "command": {"type": "string", "maxLength": 4000},
            "timeout": {"type": "number", "minimum": 1, "maximum": 300},
            "path": {"type": "string", "maxLength": 1000},
            "max_lines": {"type": "integer", "minimum": 1, "maximum": 2000},
            "url": {"type": "string", "maxLength": 2000},
            "query": {"type": "string", "enum": [*_QUERIES, "recent_events"]},
            "params": {"type": "object"},
            "workspace": {"type": "string", "maxLength": 1000},
            "base_branch": {"type": "string", "maxLength": 200},
            **{name: {"type": "boolean"} for name in _SKIPS},
        },
        "required": ["type"],
        "additionalProperties": False,
    },
}
_FIELDS: Final[Mapping[str, Any]] = {
    "name": NAME,
    "trigger": _TRIGGER,
    "context_steps": _CONTEXT_STEPS,
    "prompt_template": {
        **LONG,
        "minLength": 1,
        "description": "{{step_0}}, {{step_0.field}}, {{event.field}} are filled",
    },
    "cooldown_seconds": INTEGER,
    "llm_config": {
        "type": "object",
        "maxProperties": 50,
        "description": "For the task that it creates; model is used instead of that of the agent profile",
    },
}


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
    policy={"edge_cases": ["When a hook has run, its prompt is a task of the project; fire_hook tries it at once."]},
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
        await _schedule(ctx, hook)
    except BaseException:
        await storage_of(ctx).write(lambda rows: rows.delete("hooks", hook["id"]))
        raise
    return {"created": hook["id"], "name": hook["name"], "project_id": project_id}


def _check(trigger: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> None:
    needed = {"periodic": "interval_seconds", "cron": "expr", "event": "event_type"}[trigger["type"]]
    if not trigger.get(needed):
        raise invalid(f"trigger.{needed}", f"a trigger of type {trigger['type']} needs it", keyword="required")
    for number, step in enumerate(steps):
        key = _STEPS[step["type"]]
        if not step.get(key):
            raise invalid(
                f"context_steps[{number}].{key}", f"a step of type {step['type']} needs it", keyword="required"
            )


async def _schedule(ctx: Context, hook: Row) -> None:
    """Let the scheduler call `run_queue`: for this hook at its times, or for due events of all hooks."""
    trigger = hook["trigger_config"]
    arguments: dict[str, Any] = {"hook_id": hook["id"]}
    if trigger["type"] == "cron":
        kind, config = "cron", {"cron": trigger["expr"]}
    elif trigger["type"] == "periodic":
        kind, config = "interval", {"interval_seconds": trigger["interval_seconds"]}
    else:
        kind, config, arguments = "interval", {"interval_seconds": _TICK_SECONDS}, {}
    action = {"type": "call", "tool": "run_queue", "arguments": arguments}
    made, _ = await ctx.schedules.create(
        title=f"queue: {hook['name']}"[:200] if arguments else "queue: events",
        trigger_type=kind,
        trigger_config=config,
        action=action,
    )
    if arguments:
        await storage_of(ctx).write(lambda rows: rows.update("hooks", hook["id"], {"schedule_id": made.id}))


async def _unschedule(ctx: Context, hook: Row) -> None:
    if hook["schedule_id"]:
        try:
            await ctx.schedules.cancel(hook["schedule_id"])
        except ToolFailure as failure:
            if failure.code not in ("not_found", "conflict"):  # it has ended, or another member made it
                raise


@queue_tool(
    "x.hook.list", "hooks", "read", {"project_id": id_of("project", "; without it all")}, explicit=["project_id"]
)
async def list_hooks(ctx: Context, project_id: str = "") -> dict[str, Any]:
    """List hooks with their triggers."""

    def work(rows: Rows) -> dict[str, Any]:
        if project_id:
            rows.get("projects", project_id)
        chosen, given = (" WHERE project_id = ?", (project_id,)) if project_id else ("", ())
        found = rows.select(f"SELECT * FROM {{hooks}} AS h{chosen} ORDER BY created_at, id", given)
        return {"hooks": [_shown(one) for one in found]}

    return await storage_of(ctx).read(work)


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
    """Change a hook, or switch it on or off."""
    changes = changes_of(given)
    before = await storage_of(ctx).read(lambda rows: rows.get("hooks", hook_id))
    _check(changes.get("trigger") or before["trigger_config"], changes.get("context_steps") or [])
    fields = sorted(changes)
    if "trigger" in changes:
        changes["trigger_config"] = changes.pop("trigger")
        if changes["trigger_config"] != before["trigger_config"]:
            changes["schedule_id"] = None
    if "enabled" in changes:
        changes["enabled"] = int(changes["enabled"])
    changed = await storage_of(ctx).write(lambda rows: rows.update("hooks", hook_id, changes))
    if "trigger_config" in changes and changes["trigger_config"] != before["trigger_config"]:
        await _unschedule(ctx, before)
        await _schedule(ctx, changed)
    return {"updated": hook_id, "fields": fields}


@queue_tool("x.hook.delete", "hooks", "destructive", _HOOK, ["hook_id"])
async def delete_hook(ctx: Context, hook_id: str) -> dict[str, Any]:
    """Delete a hook; its runs stay readable with its project only."""
    gone = await storage_of(ctx).write(lambda rows: rows.delete("hooks", hook_id))
    await _unschedule(ctx, gone)
    return {"deleted": hook_id, "name": gone["name"]}


@queue_tool("x.hook.runs", "hooks", "read", {**_HOOK, "limit": limit_of(10, 100)}, ["hook_id"])
async def list_hook_runs(ctx: Context, hook_id: str, limit: int) -> dict[str, Any]:
    """List the last runs of a hook, the newest first, with the task that each created."""

    def work(rows: Rows) -> dict[str, Any]:
        hook = rows.get("hooks", hook_id)
        sql = "SELECT * FROM {hook_runs} AS r WHERE hook_id = ? ORDER BY created_at DESC, id LIMIT ?"
        runs = [_run_line(one) for one in rows.select(sql, (hook_id, limit))]
        return {"hook_id": hook_id, "hook_name": hook["name"], "runs": runs}

    return await storage_of(ctx).read(work)


def _run_line(run: Row) -> dict[str, Any]:
    names = ("id", "trigger_reason", "status", "tokens_used", "skipped_reason", "task_id")
    times = {name: date_of(run[name]) for name in ("started_at", "completed_at")}
    return {**{name: run[name] for name in names}, **times}


@queue_tool("x.hook.fire", "hooks", "write", _HOOK, ["hook_id"], idempotent=False, timeout=600)
async def fire_hook(ctx: Context, hook_id: str) -> dict[str, Any]:
    """Run a hook now, in spite of its cooldown, which begins anew."""

    def work(rows: Rows) -> Row:
        hook = rows.get("hooks", hook_id, "editor")
        return put_run(rows, hook, "manual", ctx.call_id, {})

    run = await storage_of(ctx).write(work)
    done = await _run(ctx, run["id"])
    return {"fired": hook_id, "status": done["status"], "run_id": run["id"], "task_id": done["task_id"]}


@queue_tool(
    "x.queue.run",
    "queue",
    "write",
    {"hook_id": id_of("hook that is due")},
    idempotent=False,
    timeout=900,
    policy={"edge_cases": ["The scheduler calls it; calling it by hand does what is due a little earlier."]},
)
async def run_queue(ctx: Context, hook_id: str = "") -> dict[str, Any]:
    """Move the queue on: ended leases, pauses, questions, retries, and the hooks that are due."""
    if await is_paused(ctx):
        return {"is_paused": True, "runs": []}

    def work(rows: Rows) -> tuple[dict[str, int], list[str]]:
        if hook_id:
            hook = rows.get("hooks", hook_id, "editor")
            reason = hook["trigger_config"]["type"]
            put_run(rows, hook, reason, f"{reason} {ctx.first_call or ctx.call_id}", {})
        counts = tick(rows)
        sql = (
            "SELECT id FROM {hook_runs} AS r WHERE status = 'due' OR (status = 'running' AND started_at < ?)"
            " ORDER BY created_at, id LIMIT ?"
        )
        return counts, [row["id"] for row in rows.select(sql, (rows.now - _STALE, _BATCH))]

    counts, due = await storage_of(ctx).write(work)
    runs = [_run_line(await _run(ctx, id)) for id in due]
    return {"is_paused": False, **counts, "runs": runs}


async def _run(ctx: Context, run_id: str) -> Row:
    """Run one due run to its end; return it. Another process that has it goes on alone."""

    def begin(rows: Rows) -> tuple[Row, Row | None]:
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

    run, hook = await storage_of(ctx).write(begin)
    if hook is None:
        return run
    results, skipped, failed = await _context(ctx, hook)
    prompt = _fill(hook["prompt_template"], results, run["event_data"])

    def end(rows: Rows) -> Row:
        held = rows.get("hook_runs", run_id, "editor")
        if held["generation"] != run["generation"] or held["status"] != "running":
            return held  # another process took it over
        ended: dict[str, Any] = {"context_results": results, "completed_at": rows.now}
        if failed or skipped:
            return rows.update(
                "hook_runs",
                run_id,
                {**ended, "status": "failed" if failed else "skipped", "skipped_reason": failed or skipped},
            )
        given: dict[str, Any] = {"description": prompt, "task_type": "chore", "hook_id": hook["id"]}
        given |= {"llm_config": hook["llm_config"], "token_limit": hook["max_tokens_per_run"]}
        task = insert_task(rows, hook["project_id"], f"Hook: {hook['name']}"[:500], given)
        return rows.update(
            "hook_runs", run_id, {**ended, "status": "completed", "prompt_sent": prompt, "task_id": task["id"]}
        )

    return await storage_of(ctx).write(end)


async def _context(ctx: Context, hook: Row) -> tuple[list[dict[str, Any]], str, str]:
    """Make the steps of a hook in their order; return their results, and why it was skipped or failed."""
    results: list[dict[str, Any]] = []
    for number, step in enumerate(hook["context_steps"]):
        try:
            results.append(await _step(ctx, hook, step))
        except ToolFailure as failure:
            return results, "", f"step {number}: {failure.message}"
        if skipped := _skip_reason(step, results[-1]):
            return results, skipped, ""
    return results, "", ""


_WAIT: Final = "wait"


def _refusal(rows: Rows, hook: Row, run: Row) -> str:
    """Return why a run is skipped now; `_WAIT` for one that comes later, empty for none."""
    if run["status"] == "running":
        return ""
    if not hook["enabled"] and run["trigger_reason"] != "manual":
        return "the hook is switched off"
    sql = "SELECT hook_id FROM {hook_runs} AS r WHERE project_id = ? AND status = 'running' AND started_at >= ?"
    active = [row["hook_id"] for row in rows.select(sql, (hook["project_id"], rows.now - _STALE))]
    if hook["id"] in active or len(active) >= _AT_ONCE:
        return _WAIT
    is_cool = hook["last_run"] is None or hook["last_run"] + hook["cooldown_seconds"] <= rows.now
    return "" if is_cool or run["trigger_reason"] == "manual" else f"cooldown of {hook['cooldown_seconds']} s"


async def _step(ctx: Context, hook: Row, step: Mapping[str, Any]) -> dict[str, Any]:
    """Make one step as a call of this session; return its fields."""
    kind = step["type"]
    if kind == "db_query":
        return await _query(ctx, hook, step)
    name, arguments = {
        "shell": ("run_command", {"command": step.get("command"), "timeout": step.get("timeout", 60)}),
        "read_file": ("read_file", {"path": step.get("path"), "limit": step.get("max_lines", 500)}),
        "http": ("web_fetch", {"url": step.get("url")}),
        "git_diff": ("git_diff", {"repo": step.get("workspace"), "ref1": step.get("base_branch") or ""}),
    }[kind]
    result = await ctx.call(name, arguments)
    text = "" if kind == "read_file" and result.text == _EMPTY_FILE else result.text[:_LARGE]
    if kind == "http":
        return {"body": text, "status_code": 200 if not result.is_error else 0}
    if result.error is not None:
        raise ToolFailure(result.error.code, f"{name}: {result.error.message}", hint=result.error.hint)
    if kind == "shell":
        out, _, err = text.partition("\n[stderr]\n")
        found = _EXIT.search(text)
        return {"stdout": out, "stderr": err[:10_000], "exit_code": int(found[1] or 128) if found else 0}
    return {"content" if kind == "read_file" else "diff": text}


async def _query(ctx: Context, hook: Row, step: Mapping[str, Any]) -> dict[str, Any]:
    query = step["query"]
    params: Mapping[str, Any] = step.get("params") or {}
    if query == "recent_events":
        events = await ctx.lent.events.recent(ctx.principal, project_id=hook["project_id"], limit=20)
        found = [{"type": one.type, "payload": dict(one.payload), "time": date_of(one.time)} for one in events]
    else:
        given = (hook["project_id"], *([str(params.get("task_id", ""))] if query == "task_detail" else []))
        found = await storage_of(ctx).read(lambda rows: rows.select(_QUERIES[query], given))
    return {"rows": found, "count": len(found)}


def _skip_reason(step: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """Return why no prompt is needed after this step; empty where it goes on."""
    if step.get("skip_llm_if_exit_zero") and result.get("exit_code") == 0:
        return "skip_llm_if_exit_zero"
    if step.get("skip_llm_if_status_ok") and result.get("status_code") == 200:
        return "skip_llm_if_status_ok"
    content = next((result[name] for name in ("stdout", "content", "body", "rows", "diff") if name in result), "")
    is_empty = not content.strip() if isinstance(content, str) else not content
    return "skip_llm_if_empty" if step.get("skip_llm_if_empty") and is_empty else ""


def _fill(template: str, results: Sequence[Mapping[str, Any]], event: Mapping[str, Any]) -> str:
    """Return a prompt with its places filled; a place without a value stays empty.

    Outputs of steps, and texts of events that people and agents wrote, stand in a fence: an agent reads them as data.
    """
    room = _LARGE // max(1, len(_FIELD.findall(template)))
    known: dict[str, Any] = {f"step_{number}": result for number, result in enumerate(results)}
    known["event"] = event

    def known_fields(found: Any) -> Mapping[str, Any]:
        return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}

    def value(match: re.Match[str]) -> str:
        found: Any = known.get(match[1], "")
        if match[2]:
            found = known_fields(found).get(match[2], "")
        elif match[1] != "event":
            found = next(iter(known_fields(found).values()), "")
        if not found or isinstance(found, int | float) or (match[1] == "event" and match[2] in _OWN_FIELDS):
            return str(found)
        return fenced_text(str(found)[:room], match[0].strip("{} "))

    return _FIELD.sub(value, template)
