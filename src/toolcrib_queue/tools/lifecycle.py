"""Tools on the life of a task: stop, restart, reopen, skip, delete, archive."""

from __future__ import annotations

from typing import Any, Final

from toolcrib.plugin import Row, Rows, ToolFailure, fit_page

from ..model import CLAIMED, FINAL
from ..operations import OF_ANY_PROJECT, OF_TASK, OFFSET, TEXT, in_project, limit_of, read_page, transaction_tool
from ..state import date_of, dependents_of, fire, note, settle
from .tasks import brief

_FEEDBACK: Final = {**OF_TASK, "feedback": TEXT}


@transaction_tool("x.task.stop", "tasks", "write", OF_TASK, ["task_id"], idempotent=False)
def stop_task(rows: Rows, task_id: str) -> dict[str, Any]:
    """Stop a task that an agent is at work on; it is BLOCKED until it is restarted, and its claim has ended."""
    _stop(rows, rows.get("tasks", task_id, "editor"))
    return {"stopped": task_id}


def _stop(rows: Rows, task: Row) -> Row:
    if task["status"] == "WAITING_INPUT":
        task = fire(rows, task, "HUMAN_REPLIED")
    if task["status"] == "ASSIGNED":
        return fire(rows, task, "TIMEOUT", error_message="stopped by a person")
    return fire(rows, task, "ADMIN_STOP", error_message="stopped by a person")


@transaction_tool("x.task.restart", "tasks", "write", OF_TASK, ["task_id"], idempotent=False)
def restart_task(rows: Rows, task_id: str) -> dict[str, Any]:
    """Make a task READY again from any state but IN_PROGRESS, with all its retries."""
    task = rows.get("tasks", task_id, "editor")
    fire(rows, task, "ADMIN_RESTART", retry_count=0, error_message="", archived_at=None)
    return {"restarted": task_id, "title": task["title"], "previous_status": task["status"]}


@transaction_tool("x.task.reopen", "tasks", "write", _FEEDBACK, ["task_id", "feedback"], idempotent=False)
def reopen_with_feedback(rows: Rows, task_id: str, feedback: str) -> dict[str, Any]:
    """Make a finished or waiting task READY again, with feedback for the next agent among its notes."""
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


@transaction_tool("x.task.delete", "tasks", "destructive", OF_TASK, ["task_id"])
def delete_task(rows: Rows, task_id: str) -> dict[str, Any]:
    """Delete a task; it is stopped first, and what waited for it waits no more."""
    task = rows.get("tasks", task_id, "editor")
    waiting = dependents_of(rows, task_id)
    if task["status"] in CLAIMED:
        _stop(rows, task)
    sql = "SELECT id FROM {dependencies} AS d WHERE task_id = ? OR depends_on = ?"
    for edge in rows.select(sql, (task["id"], task["id"])):
        rows.delete("dependencies", edge["id"])
    rows.delete("tasks", task["id"])
    for other in waiting:
        settle(rows, rows.get("tasks", other["id"]))
    return {"deleted": task_id, "title": task["title"]}


@transaction_tool(
    "x.task.skip",
    "tasks",
    "write",
    OF_TASK,
    ["task_id"],
    idempotent=False,
    approval="always",
    policy={"edge_cases": ["Only BLOCKED and FAILED tasks are skipped."]},
)
def skip_task(rows: Rows, task_id: str) -> dict[str, Any]:
    """Count a BLOCKED or FAILED task as COMPLETED, so that what waits for it goes on. A person is asked every time."""
    held = [one["id"] for one in dependents_of(rows, task_id) if one["status"] == "DEFINED"]
    fire(rows, rows.get("tasks", task_id, "editor"), "ADMIN_SKIP")
    free = [task for task in (rows.get("tasks", id) for id in held) if task["status"] == "READY"]
    unblocked = [{"id": task["id"], "title": task["title"]} for task in free]
    return {"skipped": task_id, "unblocked_count": len(unblocked), "unblocked": unblocked}


@transaction_tool(
    "x.task.active",
    "tasks",
    "read",
    {"include_completed": {"type": "boolean", "default": False}},
)
def list_active_tasks_all_projects(rows: Rows, include_completed: bool) -> dict[str, Any]:
    """List the unfinished tasks of all projects, by project: as many as fit. list_tasks pages through all."""
    where = "archived_at IS NULL"
    if not include_completed:
        where += " AND status NOT IN ('COMPLETED', 'FAILED')"
    total = rows.select(f"SELECT count(*) AS n FROM {{tasks}} AS t WHERE {where}")[0]["n"]
    found = rows.select(f"SELECT * FROM {{tasks}} AS t WHERE {where} ORDER BY project_id, priority, id LIMIT 200")
    over = rows.select("SELECT count(*) AS n FROM {tasks} AS t WHERE status IN ('COMPLETED', 'FAILED')")[0]["n"]
    shown = fit_page({"by_project": line, "tasks": line} for line in map(brief, found))  # each is there twice
    by_project: dict[str, list[dict[str, Any]]] = {}
    for line in shown:
        by_project.setdefault(line["tasks"]["project_id"], []).append(line["by_project"])
    return {
        "by_project": by_project,
        "tasks": [line["tasks"] for line in shown],
        "total": int(total),
        "project_count": len({task["project_id"] for task in found}),
        "hidden_completed": 0 if include_completed else int(over),
    }


@transaction_tool("x.task.archive", "tasks", "write", OF_TASK, ["task_id"], idempotent=False)
def archive_task(rows: Rows, task_id: str) -> dict[str, Any]:
    """Archive a COMPLETED, FAILED or BLOCKED task: lists leave it out until restore_task."""
    task = rows.get("tasks", task_id, "editor")
    if task["status"] not in FINAL or task["archived_at"] is not None:
        state = "archived already" if task["archived_at"] is not None else task["status"]
        raise ToolFailure("conflict", f"task {task_id} is {state}", hint=f"archive_task takes {', '.join(FINAL)}")
    rows.update("tasks", task_id, {"archived_at": rows.now})
    return {"archived": task_id, "title": task["title"], "status": task["status"]}


@transaction_tool(
    "x.task.archive_all",
    "tasks",
    "write",
    {**OF_ANY_PROJECT, "include_failed": {"type": "boolean", "default": False}},
    idempotent=False,
)
def archive_tasks(rows: Rows, include_failed: bool, project_id: str = "") -> dict[str, Any]:
    """Archive all COMPLETED tasks of a project; with `include_failed` the FAILED and BLOCKED ones, too."""
    wanted = FINAL if include_failed else FINAL[:1]
    chosen, given = in_project(rows, project_id, role="editor")
    marks = ", ".join("?" * len(wanted))
    sql = "SELECT id, title, status, project_id FROM {tasks} AS t WHERE archived_at IS NULL"
    found = rows.select(f"{sql} AND status IN ({marks}){chosen} ORDER BY id", (*wanted, *given))
    found = [task for task in found if rows.role(task.pop("project_id")) != "viewer"]
    ids = [task["id"] for task in found]
    rows.update_all("tasks", ids, {"archived_at": rows.now})
    return {
        "archived_count": len(found),
        "archived_ids": ids,
        "archived": found,
        "archive_dir": None,
        "project_id": project_id or None,
    }


@transaction_tool(
    "x.task.archived",
    "tasks",
    "read",
    {**OF_ANY_PROJECT, "limit": limit_of(50, 200), "offset": OFFSET},
)
def list_archived(rows: Rows, limit: int, offset: int, project_id: str = "") -> dict[str, Any]:
    """List archived tasks, the newest first."""
    chosen, given = in_project(rows, project_id)
    where = f"{{tasks}} AS t WHERE archived_at IS NOT NULL{chosen}"
    total = rows.select(f"SELECT count(*) AS n FROM {where}", given)[0]["n"]
    sql = f"SELECT * FROM {where} ORDER BY archived_at DESC, id"
    tasks, more = read_page(rows, sql, given, _archived, limit=limit, offset=offset)
    return {"tasks": tasks, "count": len(tasks), "total": int(total), "project_id": project_id or None, **more}


def _archived(task: Row) -> dict[str, Any]:
    return {**brief(task), "archived_at": date_of(task["archived_at"])}


@transaction_tool("x.task.restore", "tasks", "write", OF_TASK, ["task_id"], idempotent=False)
def restore_task(rows: Rows, task_id: str) -> dict[str, Any]:
    """Take a task back from the archive, in the state that it had."""
    task = rows.get("tasks", task_id, "editor")
    if task["archived_at"] is None:
        raise ToolFailure("conflict", f"task {task_id} is not archived")
    rows.update("tasks", task_id, {"archived_at": None})
    return {"restored": task_id, "title": task["title"], "new_status": task["status"]}
