"""The core tools: tasks, and a message."""

from __future__ import annotations

from typing import Any

from .state import WORLD, Record, found

__all__ = ["create_task", "edit_task", "get_task", "list_tasks", "send_message"]

DONE = ("COMPLETED", "FAILED")


def create_task(title: str, project_id: str = "", **given: Any) -> Record:
    project = WORLD.project(project_id)
    task_id = WORLD.number("task")
    task: Record = {"id": task_id, "title": title, "project_id": project, "status": "READY", "priority": 100, **given}
    WORLD.tasks[task_id] = {**task, "depends_on": [], "parent": "", "result": "", "plan": []}
    WORLD.tell("task_created", task_id=task_id)
    return {"created": task_id, "title": title, "project_id": project}


def list_tasks(
    project_id: str = "", status: str = "", display_mode: str = "flat", show_dependencies: bool = False, **which: bool
) -> Record:
    shown = [task for task in WORLD.tasks.values() if _wanted(task, project_id, status, which)]
    listed = [_line(task, display_mode, show_dependencies) for task in shown]
    return {"tasks": listed, "total": len(listed), "display_mode": display_mode}


def _wanted(task: Record, project_id: str, status: str, which: dict[str, bool]) -> bool:
    if (project_id and task["project_id"] != project_id) or (status and task["status"] != status):
        return False
    is_done = task["status"] in DONE
    if which.get("completed_only"):
        return is_done
    return not is_done or bool(status) or which.get("show_all", False) or which.get("include_completed", False)


def _line(task: Record, display_mode: str, show_dependencies: bool) -> Record:
    keys = (
        ["id", "title", "status"] if display_mode == "compact" else ["id", "title", "status", "project_id", "priority"]
    )
    line = {key: task[key] for key in keys}
    if display_mode == "tree":
        line["subtasks"] = [other["id"] for other in WORLD.tasks.values() if other["parent"] == task["id"]]
    if show_dependencies:
        line["depends_on"] = list(task["depends_on"])
    return line


def get_task(task_id: str) -> Record:
    return dict(found(WORLD.tasks, task_id, "task"))


def edit_task(task_id: str, **changes: Any) -> Record:
    task = found(WORLD.tasks, task_id, "task")
    if "project_id" in changes:
        WORLD.project(changes["project_id"])
    task.update(changes)
    WORLD.tell("task_edited", task_id=task_id)
    return {"updated": task_id, "fields": sorted(changes)}


def send_message(channel_id: str, content: str) -> Record:
    WORLD.messages.append({"channel_id": channel_id, "content": content})
    return {"success": True, "channel_id": channel_id}
