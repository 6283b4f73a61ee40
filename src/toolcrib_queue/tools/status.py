"""Tools that look at the whole queue: its state, its tokens, its events; and the switch that pauses it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from toolcrib.plugin import Context, Row, Rows, fit_page

from ..operations import home_of, id_of, is_paused, limit_of, one_of, queue_tool, set_paused, storage_of
from ..state import date_of
from .agents import agent_line


@queue_tool(
    "x.queue.control",
    "queue",
    "write",
    {"action": one_of(("pause", "resume", "status"))},
    ["action"],
    idempotent=True,
    traits=["by_action"],
    metadata={"reads": {"action": ["status"]}},
)
async def orchestrator_control(ctx: Context, action: str) -> dict[str, Any]:
    """Pause or resume the caller's queue: while it is paused, no task is handed out and no hook runs."""
    if action != "status":
        await set_paused(ctx, action == "pause")
    status = "paused" if await is_paused(ctx) else "running"

    def work(rows: Rows) -> list[dict[str, Any]]:
        sql = "SELECT id, title, assigned_agent_id FROM {tasks} AS t WHERE status = 'IN_PROGRESS' ORDER BY id"
        return rows.select(sql)

    running = await storage_of(ctx).read(work)
    if action == "status":
        return {"status": status, "running_tasks": running}
    return {"status": status, "message": f"The queue is {status}; {len(running)} tasks are at work."}


@queue_tool("x.queue.status", "queue", "read", {}, idempotent=False)
async def queue_status(ctx: Context) -> dict[str, Any]:
    """Tell how the queue is doing: projects, agents and what they work on, tasks by state; and this session."""
    paused = await is_paused(ctx)

    def work(rows: Rows) -> dict[str, Any]:
        projects = rows.select("SELECT id, name, status FROM {projects} AS p ORDER BY id")
        sql = "SELECT * FROM {agents} AS a WHERE project_id = ? ORDER BY created_at, id"
        titles = {
            row["id"]: row
            for row in rows.select(
                "SELECT id, title, status FROM {tasks} AS t WHERE status IN ('ASSIGNED', 'IN_PROGRESS')"
            )
        }
        agents = [
            {**agent_line(one), "working_on": titles.get(one["current_task_id"] or "", {}).get("title")}
            for one in rows.select(sql, (home_of(rows),))
        ]
        counting = "SELECT status, count(*) AS n FROM {tasks} AS t WHERE archived_at IS NULL GROUP BY status"
        counts = Counter({row["status"]: int(row["n"]) for row in rows.select(counting)})
        ready = rows.select("SELECT id, title FROM {tasks} AS t WHERE status = 'READY' ORDER BY priority, id LIMIT 20")
        at_work = [
            {"id": one["id"], "title": one["title"]} for one in titles.values() if one["status"] == "IN_PROGRESS"
        ]
        tasks = {"total": counts.total(), "by_status": dict(counts), "in_progress": at_work, "ready_to_work": ready}
        return {"projects": projects, "agents": agents, "tasks": tasks, "orchestrator_paused": paused}

    status = await storage_of(ctx).read(work)
    session = await ctx.lent.insight(ctx.principal, ctx.session_key, ctx.stored_taint).status()
    return {**status, "session": dict(session)}


@queue_tool(
    "x.queue.usage",
    "queue",
    "read",
    {"project_id": id_of("project"), "task_id": id_of("task")},
    explicit=["project_id"],
    idempotent=False,
    examples=[{}, {"project_id": "<project_id>"}],
)
async def queue_usage(ctx: Context, project_id: str = "", task_id: str = "") -> dict[str, Any]:
    """Tell the tokens, cost and time of agents: by project, by task of a project, or by run; and this session's."""

    def work(rows: Rows) -> dict[str, Any]:
        if task_id:
            rows.get("tasks", task_id)
            columns, where, given = "agent_id, result", "WHERE task_id = ?", (task_id,)
        elif project_id:
            rows.get("projects", project_id)
            columns, where, given = "task_id", "WHERE project_id = ?", (project_id,)
        else:
            columns, where, given = "project_id", "", ()
        sql = (
            f"SELECT {columns}, sum(tokens_used) AS tokens, sum(cost_usd) AS cost_usd, sum(seconds) AS seconds"
            f" FROM {{results}} AS r {where} GROUP BY {columns} ORDER BY 1"
        )
        found = [_ledger_line(row) for row in rows.select(sql, given)]
        costs = [row["cost_usd"] for row in found if row["cost_usd"] is not None]
        return {
            "breakdown": found,
            "total": sum(row["tokens"] for row in found),
            "total_cost_usd": round(sum(costs), 6) if costs else None,
            "total_seconds": round(sum(row["seconds"] for row in found), 1),
        }

    usage = await storage_of(ctx).read(work)
    session = await ctx.lent.insight(ctx.principal, ctx.session_key).usage()
    return {**usage, "session": dict(session)}


def _ledger_line(row: Row) -> dict[str, Any]:
    """Return a sum of the ledger; its cost is None where no agent reports one."""
    cost = row["cost_usd"]
    figures = {"tokens": int(row["tokens"]), "seconds": round(float(row["seconds"] or 0.0), 1)}
    return {**row, **figures, "cost_usd": None if cost is None else round(float(cost), 6)}


@queue_tool(
    "x.queue.events",
    "queue",
    "read",
    {"limit": limit_of(10, 200), "project_id": id_of("project")},
    explicit=["project_id"],
    idempotent=False,
)
async def queue_events(ctx: Context, limit: int, project_id: str = "") -> dict[str, Any]:
    """List the newest events of the queue: tasks, plans, projects, agents."""
    if project_id:
        await storage_of(ctx).read(lambda rows: rows.require(project_id, "viewer"))
    found = await ctx.events(project_id=project_id, limit=limit)
    events = fit_page(
        {"id": one.id, "type": one.type, "project_id": one.project_id, **one.payload, "time": date_of(one.time)}
        for one in found
    )
    return {"events": events, "count": len(events)}
