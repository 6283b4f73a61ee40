"""Tools that archive tasks, list what is archived and bring it back."""

from __future__ import annotations

from typing import Any

from toolcrib.plugin import Rows, ToolFailure

from .model import FINAL
from .operations import OF_ANY_PROJECT, OF_TASK, limit_of, transaction_tool
from .state import date_of
from .tasks import brief

__all__ = ["archive_task", "archive_tasks", "list_archived", "restore_task"]


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


@transaction_tool(
    "x.task.archived",
    "tasks",
    "read",
    {**OF_ANY_PROJECT, "limit": limit_of(50, 200)},
)
def list_archived(rows: Rows, limit: int, project_id: str = "") -> dict[str, Any]:
    """List archived tasks, the newest first."""
    if project_id:
        rows.get("projects", project_id)
    chosen, given = (" AND project_id = ?", (project_id,)) if project_id else ("", ())
    where = f"{{tasks}} AS t WHERE archived_at IS NOT NULL{chosen}"
    total = rows.select(f"SELECT count(*) AS n FROM {where}", given)[0]["n"]
    found = rows.select(f"SELECT * FROM {where} ORDER BY archived_at DESC, id LIMIT ?", (*given, limit))
    tasks = [{**brief(task), "archived_at": date_of(task["archived_at"])} for task in found]
    return {"tasks": tasks, "count": len(tasks), "total": int(total), "project_id": project_id or None}


@transaction_tool("x.task.restore", "tasks", "write", OF_TASK, ["task_id"], idempotent=False)
def restore_task(rows: Rows, task_id: str) -> dict[str, Any]:
    """Take a task back from the archive, in the state that it had."""
    task = rows.get("tasks", task_id, "editor")
    if task["archived_at"] is None:
        raise ToolFailure("conflict", f"task {task_id} is not archived")
    rows.update("tasks", task_id, {"archived_at": None})
    return {"restored": task_id, "title": task["title"], "new_status": task["status"]}
