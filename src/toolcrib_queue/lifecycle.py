"""Tools that operate on the life of a task: stop, restart, archive, approve, plans, dependencies, results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolcrib.plugin import Context, Row, Rows, ToolFailure

from .branches import task_repository
from .model import CLAIMED, DEPENDENCY_TYPES, FINAL
from .operations import LONG, id_of, limit_of, one_of, queue_tool, storage_of
from .state import add_dependency as depend
from .state import date_of, dependents_of, fire, needs_of, note, settle
from .tasks import brief
from .work import places_of

__all__ = [
    "add_dependency",
    "archive_task",
    "archive_tasks",
    "delete_task",
    "get_agent_error",
    "get_chain_health",
    "get_task_dependencies",
    "get_task_diff",
    "get_task_result",
    "get_task_tree",
    "list_active_tasks_all_projects",
    "list_archived",
    "remove_dependency",
    "reopen_with_feedback",
    "restart_task",
    "restore_task",
    "skip_task",
    "stop_task",
]

_TASK: Final = {"task_id": id_of("task")}
_FEEDBACK: Final = {**_TASK, "feedback": {**LONG, "minLength": 1}}

_ADVICE: Final[Mapping[str, tuple[str, str]]] = {
    r"rate.?limit|429|overloaded": ("rate_limit", "wait, or run fewer agents at a time"),
    r"token|context (?:length|window)|budget": ("tokens", "split the task, or raise the budget of the project"),
    r"time.?out|timed out": ("timeout", "split the task, or give its commands more time"),
    r"permission|denied|forbidden|401|403": ("permission", "check the profile's tools and the rules of the session"),
    r"conflict|merge": ("merge_conflict", "sync_workspaces, then restart_task"),
    r"test|assert": ("tests", "reopen_with_feedback with the failing test"),
}
"""Pattern of an error message → its type, and what helps."""


@queue_tool("x.task.stop", "tasks", "write", _TASK, ["task_id"], idempotent=False)
async def stop_task(ctx: Context, task_id: str) -> dict[str, Any]:
    """Stop a task that an agent is at work on; it is BLOCKED until it is restarted, and its claim has ended."""

    def work(rows: Rows) -> dict[str, Any]:
        _stop(rows, rows.get("tasks", task_id, "editor"))
        return {"stopped": task_id}

    return await storage_of(ctx).write(work)


def _stop(rows: Rows, task: Row) -> Row:
    if task["status"] == "WAITING_INPUT":
        task = fire(rows, task, "HUMAN_REPLIED")
    if task["status"] == "ASSIGNED":
        return fire(rows, task, "TIMEOUT", error_message="stopped by a person")
    return fire(rows, task, "ADMIN_STOP", error_message="stopped by a person")


@queue_tool("x.task.restart", "tasks", "write", _TASK, ["task_id"], idempotent=False)
async def restart_task(ctx: Context, task_id: str) -> dict[str, Any]:
    """Make a task READY again from any state but IN_PROGRESS, with all its retries."""

    def work(rows: Rows) -> dict[str, Any]:
        task = rows.get("tasks", task_id, "editor")
        fire(rows, task, "ADMIN_RESTART", retry_count=0, error_message="", archived_at=None)
        return {"restarted": task_id, "title": task["title"], "previous_status": task["status"]}

    return await storage_of(ctx).write(work)


@queue_tool("x.task.reopen", "tasks", "write", _FEEDBACK, ["task_id", "feedback"], idempotent=False)
async def reopen_with_feedback(ctx: Context, task_id: str, feedback: str) -> dict[str, Any]:
    """Make a finished or waiting task READY again, with feedback for the next agent among its notes."""

    def work(rows: Rows) -> dict[str, Any]:
        task = rows.get("tasks", task_id, "editor")
        note(rows, task, "feedback", feedback)
        changed = fire(rows, task, "ADMIN_RESTART", retry_count=0, error_message="", archived_at=None)
        return {
            "reopened": task_id,
            "title": task["title"],
            "previous_status": task["status"],
            "status": changed["status"],
            "feedback_added": True,
            "requires_approval": bool(task["requires_approval"]),
        }

    return await storage_of(ctx).write(work)


@queue_tool("x.task.delete", "tasks", "destructive", _TASK, ["task_id"])
async def delete_task(ctx: Context, task_id: str) -> dict[str, Any]:
    """Delete a task; it is stopped first, and what waited for it waits no more."""

    def work(rows: Rows) -> dict[str, Any]:
        task = rows.get("tasks", task_id, "editor")
        waiting = dependents_of(rows, task_id)
        _remove(rows, task)
        for other in waiting:
            settle(rows, rows.get("tasks", other["id"]))
        return {"deleted": task_id, "title": task["title"]}

    return await storage_of(ctx).write(work)


def _remove(rows: Rows, task: Row) -> None:
    """Delete a task with its dependencies; one that an agent has is stopped first."""
    if task["status"] in CLAIMED:
        _stop(rows, task)
    sql = "SELECT id FROM {dependencies} AS d WHERE task_id = ? OR depends_on = ?"
    for edge in rows.select(sql, (task["id"], task["id"])):
        rows.delete("dependencies", edge["id"])
    rows.delete("tasks", task["id"])


@queue_tool("x.task.archive", "tasks", "write", _TASK, ["task_id"], idempotent=False)
async def archive_task(ctx: Context, task_id: str) -> dict[str, Any]:
    """Archive a COMPLETED, FAILED or BLOCKED task: lists leave it out until restore_task."""

    def work(rows: Rows) -> dict[str, Any]:
        task = rows.get("tasks", task_id, "editor")
        if task["status"] not in FINAL or task["archived_at"] is not None:
            state = "archived already" if task["archived_at"] is not None else task["status"]
            raise ToolFailure("conflict", f"task {task_id} is {state}", hint=f"archive_task takes {', '.join(FINAL)}")
        rows.update("tasks", task_id, {"archived_at": rows.now})
        return {"archived": task_id, "title": task["title"], "status": task["status"]}

    return await storage_of(ctx).write(work)


@queue_tool(
    "x.task.archive_all",
    "tasks",
    "write",
    {"project_id": id_of("project", "; without it all"), "include_failed": {"type": "boolean", "default": False}},
    idempotent=False,
)
async def archive_tasks(ctx: Context, include_failed: bool, project_id: str = "") -> dict[str, Any]:
    """Archive all COMPLETED tasks of a project; with `include_failed` the FAILED and BLOCKED ones, too."""
    wanted = FINAL if include_failed else FINAL[:1]

    def work(rows: Rows) -> dict[str, Any]:
        if project_id:
            rows.get("projects", project_id, "editor")
        chosen, given = (" AND project_id = ?", (project_id,)) if project_id else ("", ())
        marks = ", ".join("?" * len(wanted))
        sql = f"SELECT * FROM {{tasks}} AS t WHERE archived_at IS NULL AND status IN ({marks}){chosen} ORDER BY id"
        found = [task for task in rows.select(sql, (*wanted, *given)) if rows.role(task["project_id"]) != "viewer"]
        for task in found:
            rows.update("tasks", task["id"], {"archived_at": rows.now})
        return {
            "archived_count": len(found),
            "archived_ids": [task["id"] for task in found],
            "archived": [{"id": task["id"], "title": task["title"], "status": task["status"]} for task in found],
            "archive_dir": None,
            "project_id": project_id or None,
        }

    return await storage_of(ctx).write(work)


@queue_tool(
    "x.task.archived",
    "tasks",
    "read",
    {"project_id": id_of("project", "; without it all"), "limit": limit_of(50, 200)},
)
async def list_archived(ctx: Context, limit: int, project_id: str = "") -> dict[str, Any]:
    """List archived tasks, the newest first."""

    def work(rows: Rows) -> dict[str, Any]:
        if project_id:
            rows.get("projects", project_id)
        chosen, given = (" AND project_id = ?", (project_id,)) if project_id else ("", ())
        where = f"{{tasks}} AS t WHERE archived_at IS NOT NULL{chosen}"
        total = rows.select(f"SELECT count(*) AS n FROM {where}", given)[0]["n"]
        found = rows.select(f"SELECT * FROM {where} ORDER BY archived_at DESC, id LIMIT ?", (*given, limit))
        tasks = [{**brief(task), "archived_at": date_of(task["archived_at"])} for task in found]
        return {"tasks": tasks, "count": len(tasks), "total": int(total), "project_id": project_id or None}

    return await storage_of(ctx).read(work)


@queue_tool("x.task.restore", "tasks", "write", _TASK, ["task_id"], idempotent=False)
async def restore_task(ctx: Context, task_id: str) -> dict[str, Any]:
    """Take a task back from the archive, in the state that it had."""

    def work(rows: Rows) -> dict[str, Any]:
        task = rows.get("tasks", task_id, "editor")
        if task["archived_at"] is None:
            raise ToolFailure("conflict", f"task {task_id} is not archived")
        rows.update("tasks", task_id, {"archived_at": None})
        return {"restored": task_id, "title": task["title"], "new_status": task["status"]}

    return await storage_of(ctx).write(work)


@queue_tool(
    "x.task.skip",
    "tasks",
    "write",
    _TASK,
    ["task_id"],
    idempotent=False,
    approval="always",
    policy={"edge_cases": ["Only BLOCKED and FAILED tasks are skipped."]},
)
async def skip_task(ctx: Context, task_id: str) -> dict[str, Any]:
    """Count a BLOCKED or FAILED task as COMPLETED, so that what waits for it goes on. A person is asked every time."""

    def work(rows: Rows) -> dict[str, Any]:
        held = [one["id"] for one in dependents_of(rows, task_id) if one["status"] == "DEFINED"]
        fire(rows, rows.get("tasks", task_id, "editor"), "ADMIN_SKIP")
        free = [task for task in (rows.get("tasks", id) for id in held) if task["status"] == "READY"]
        unblocked = [{"id": task["id"], "title": task["title"]} for task in free]
        return {"skipped": task_id, "unblocked_count": len(unblocked), "unblocked": unblocked}

    return await storage_of(ctx).write(work)


@queue_tool("x.task.dependencies", "tasks", "read", _TASK, ["task_id"])
async def get_task_dependencies(ctx: Context, task_id: str) -> dict[str, Any]:
    """List what a task depends on and what waits for it, with the status of each."""

    def work(rows: Rows) -> dict[str, Any]:
        task = rows.get("tasks", task_id)
        later = rows.select(
            "SELECT t.id, t.title, t.status, d.type FROM {dependencies} AS d JOIN {tasks} AS t ON t.id = d.task_id"
            " WHERE d.depends_on = ? ORDER BY d.created_at, t.id",
            (task_id,),
        )
        return {
            "task_id": task_id,
            "title": task["title"],
            "status": task["status"],
            "depends_on": needs_of(rows, task_id),
            "blocks": later,
        }

    return await storage_of(ctx).read(work)


@queue_tool(
    "x.task.depend",
    "tasks",
    "write",
    {
        **_TASK,
        "depends_on": id_of("task that comes before"),
        "type": {**one_of(DEPENDENCY_TYPES), "default": "blocks", "description": "blocks and parent hold it back"},
    },
    ["task_id", "depends_on"],
    idempotent=True,
)
async def add_dependency(ctx: Context, task_id: str, depends_on: str, type: str) -> dict[str, Any]:
    """Let a task depend on another one of its project; a cycle is refused."""

    def work(rows: Rows) -> dict[str, Any]:
        task, other = rows.get("tasks", task_id, "editor"), rows.get("tasks", depends_on)
        changed = depend(rows, task, other, type)
        return {
            "ok": True,
            "task_id": task_id,
            "depends_on": depends_on,
            "type": type,
            "status": changed["status"],
            "task_title": task["title"],
            "depends_on_title": other["title"],
        }

    return await storage_of(ctx).write(work)


@queue_tool(
    "x.task.undepend", "tasks", "write", {**_TASK, "depends_on": id_of("other task")}, ["task_id", "depends_on"]
)
async def remove_dependency(ctx: Context, task_id: str, depends_on: str) -> dict[str, Any]:
    """Let a task depend on another one no more."""

    def work(rows: Rows) -> dict[str, Any]:
        task = rows.get("tasks", task_id, "editor")
        sql = "SELECT id FROM {dependencies} AS d WHERE task_id = ? AND depends_on = ?"
        found = rows.select(sql, (task_id, depends_on))
        if not found:
            raise ToolFailure("not_found", f"task {task_id} does not depend on {depends_on[:200]!r}")
        rows.delete("dependencies", found[0]["id"])
        settle(rows, task)
        return {"ok": True, "task_id": task_id, "removed_dependency": depends_on, "task_title": task["title"]}

    return await storage_of(ctx).write(work)


@queue_tool(
    "x.task.chain",
    "tasks",
    "read",
    {"task_id": id_of("task"), "project_id": id_of("project")},
    explicit=["project_id"],
    examples=[{"project_id": "<project_id>"}],
)
async def get_chain_health(ctx: Context, task_id: str = "", project_id: str = "") -> dict[str, Any]:
    """Tell what is stuck behind a BLOCKED or FAILED task, or behind all of those of a project."""

    def work(rows: Rows) -> dict[str, Any]:
        if task_id:
            task = rows.get("tasks", task_id)
            stuck = _downstream(rows, task) if task["status"] in ("BLOCKED", "FAILED") else []
            return {"task_id": task_id, "status": task["status"], "stuck_downstream": stuck, "stuck_count": len(stuck)}
        if project_id:
            rows.get("projects", project_id)
        chosen, given = (" AND project_id = ?", (project_id,)) if project_id else ("", ())
        where = f"status IN ('BLOCKED', 'FAILED') AND archived_at IS NULL{chosen}"
        sql = f"SELECT * FROM {{tasks}} AS t WHERE {where} ORDER BY id"
        chains = [(task, _downstream(rows, task)) for task in rows.select(sql, given)]
        stuck_chains = [
            {"blocked_task": brief(task), "stuck_downstream": stuck, "stuck_count": len(stuck)}
            for task, stuck in chains
            if stuck
        ]
        return {"stuck_chains": stuck_chains, "total_stuck_chains": len(stuck_chains)}

    return await storage_of(ctx).read(work)


def _downstream(rows: Rows, task: Row) -> list[dict[str, Any]]:
    """Return the tasks that wait for one, over any number of others."""
    found: dict[str, Row] = {}
    ahead = [task]
    while ahead:
        for other in dependents_of(rows, ahead.pop()["id"]):
            if other["id"] not in found and other["status"] == "DEFINED":
                found[other["id"]] = other
                ahead.append(other)
    return [{"id": one["id"], "title": one["title"], "status": one["status"]} for one in found.values()]


@queue_tool("x.task.result", "tasks", "read", _TASK, ["task_id"])
async def get_task_result(ctx: Context, task_id: str) -> dict[str, Any]:
    """Get the last result of a task: summary, changed files, tokens, and the evidence that was checked."""

    def work(rows: Rows) -> dict[str, Any]:
        rows.get("tasks", task_id)
        row = _last_result(rows, task_id)
        if row is None:
            raise ToolFailure("not_found", f"task {task_id} has no result yet")
        names = (
            "task_id",
            "agent_id",
            "result",
            "summary",
            "files_changed",
            "error_message",
            "tokens_used",
            "evidence",
        )
        return {**{name: row[name] for name in names}, "time": date_of(row["created_at"])}

    return await storage_of(ctx).read(work)


def _last_result(rows: Rows, task_id: str) -> Row | None:
    sql = "SELECT * FROM {results} AS r WHERE task_id = ? ORDER BY created_at DESC, id LIMIT 1"
    found = rows.select(sql, (task_id,))
    return found[0] if found else None


@queue_tool("x.task.diff", "tasks", "read", _TASK, ["task_id"], needs=["workspace"])
async def get_task_diff(ctx: Context, task_id: str) -> dict[str, Any]:
    """Show what the branch of a task changes: since its work began, else against the default branch of its project."""

    def work(rows: Rows) -> tuple[Row, Row, list[str]]:
        task = rows.get("tasks", task_id)
        return task, rows.get("projects", task["project_id"]), places_of(rows, task) or ["."]

    task, project, places = await storage_of(ctx).read(work)
    if not task["branch_name"]:
        raise ToolFailure(
            "not_found", f"task {task_id} has no branch", hint="complete_task takes the branch of a result"
        )
    branch, default = task["branch_name"], project["repo_default_branch"]
    folder, start = await _start_of(ctx, task, default, places)
    arguments: dict[str, Any] = {"repo": folder, "ref1": start, "ref2": branch}
    result = await ctx.call("git_diff", arguments)
    if result.error is not None:
        raise ToolFailure(result.error.code, result.error.message, hint=result.error.hint)
    return {"task_id": task_id, "diff": result.text, "branch": task["branch_name"]}


async def _start_of(ctx: Context, task: Row, default: str, places: Sequence[str]) -> tuple[str, str]:
    """Return the first workspace whose repository has the branch of a task, and the commit where its work began.

    A run keeps that commit: its branch can hold newer work of other workspaces, which this default branch has not yet.
    Without one it is the commit where the branch left the default branch.
    """
    branch, begin = task["branch_name"], task["baseline"].get("begin", "")
    for place in places:
        repository = await task_repository(ctx, place, default)
        if repository is not None and await repository.has(f"refs/heads/{branch}"):
            if begin and not (await repository.run("merge-base", "--is-ancestor", begin, branch)).status:
                return place, begin
            found = await repository.run("merge-base", default, branch)
            return place, default if found.status else found.text
    return places[0], default


@queue_tool("x.task.error", "agent", "read", _TASK, ["task_id"])
async def get_agent_error(ctx: Context, task_id: str) -> dict[str, Any]:
    """Tell why the last agent failed on a task: the kind of error, its message, and what helps."""

    def work(rows: Rows) -> dict[str, Any]:
        task = rows.get("tasks", task_id)
        shown = {
            "task_id": task_id,
            "title": task["title"],
            "status": task["status"],
            "retries": f"{task['retry_count']} / {task['max_retries']}",
        }
        row = _last_result(rows, task_id)
        message = (row["error_message"] if row else "") or task["error_message"]
        if not message:
            return {**shown, "message": "no agent failed on this task"}
        kinds = (advice for pattern, advice in _ADVICE.items() if re.search(pattern, message, re.IGNORECASE))
        kind, fix = next(kinds, ("unknown", "read the message; reopen_with_feedback or skip_task"))
        return {
            **shown,
            "result": row["result"] if row else "failed",
            "error_type": kind,
            "error_message": message[:2000],
            "suggested_fix": fix,
            "agent_summary": (row["summary"] if row else "")[:1000],
        }

    return await storage_of(ctx).read(work)


@queue_tool(
    "x.task.active",
    "tasks",
    "read",
    {"include_completed": {"type": "boolean", "default": False}},
)
async def list_active_tasks_all_projects(ctx: Context, include_completed: bool) -> dict[str, Any]:
    """List the unfinished tasks of all projects, by project; at most 200."""

    def work(rows: Rows) -> dict[str, Any]:
        where = "archived_at IS NULL"
        if not include_completed:
            where += " AND status NOT IN ('COMPLETED', 'FAILED')"
        total = rows.select(f"SELECT count(*) AS n FROM {{tasks}} AS t WHERE {where}")[0]["n"]
        found = rows.select(f"SELECT * FROM {{tasks}} AS t WHERE {where} ORDER BY project_id, priority, id LIMIT 200")
        over = rows.select("SELECT count(*) AS n FROM {tasks} AS t WHERE status IN ('COMPLETED', 'FAILED')")[0]["n"]
        by_project: dict[str, list[dict[str, Any]]] = {}
        for task in found:
            by_project.setdefault(task["project_id"], []).append(brief(task))
        return {
            "by_project": by_project,
            "tasks": [brief(task) for task in found],
            "total": int(total),
            "project_count": len(by_project),
            "hidden_completed": 0 if include_completed else int(over),
        }

    return await storage_of(ctx).read(work)


@queue_tool(
    "x.task.tree",
    "tasks",
    "read",
    {
        **_TASK,
        "compact": {"type": "boolean", "default": False},
        "max_depth": {"type": "integer", "minimum": 1, "maximum": 20, "default": 4},
    },
    ["task_id"],
)
async def get_task_tree(ctx: Context, task_id: str, compact: bool, max_depth: int) -> dict[str, Any]:
    """Show a task with its subtasks as a tree, and how many of them are done."""

    def work(rows: Rows) -> dict[str, Any]:
        lines: list[str] = []
        counts = Counter[str]()
        root = _branch(rows, rows.get("tasks", task_id), 0, max_depth, (compact, lines, counts))
        done, total = counts["COMPLETED"], sum(counts.values())
        bar = {"progress_bar": f"[{'█' * (10 * done // total):░<10}] {done}/{total}"} if total and not compact else {}
        return {
            "root": root,
            "formatted": "\n".join(lines),
            "subtask_completed": done,
            "subtask_total": total,
            "subtask_by_status": dict(counts),
            **bar,
        }

    return await storage_of(ctx).read(work)


def _branch(
    rows: Rows, task: Row, depth: int, max_depth: int, kept: tuple[bool, list[str], Counter[str]]
) -> dict[str, Any]:
    compact, lines, counts = kept
    lines.append(f"{'  ' * depth}{task['status']} {task['title']} ({task['id']})")
    node = brief(task) if not compact else {"id": task["id"], "title": task["title"], "status": task["status"]}
    if depth < max_depth:
        sql = "SELECT * FROM {tasks} AS t WHERE parent_task_id = ? ORDER BY priority, created_at, id"
        children = rows.select(sql, (task["id"],))
        counts.update(child["status"] for child in children)
        node["subtasks"] = [_branch(rows, child, depth + 1, max_depth, kept) for child in children]
    return node
