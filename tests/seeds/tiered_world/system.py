"""Usage, state and events; the life of a task after it was queued; prompt templates."""

from __future__ import annotations

import re
from typing import Any

from toolcrib.errors import ToolFailure

from .git import git_diff
from .state import WORLD, Record, found

__all__ = [
    "add_dependency",
    "approve_plan",
    "approve_task",
    "archive_task",
    "archive_tasks",
    "delete_plan",
    "delete_task",
    "get_chain_health",
    "get_recent_events",
    "get_status",
    "get_task_dependencies",
    "get_task_diff",
    "get_task_result",
    "get_task_tree",
    "get_token_usage",
    "list_active_tasks_all_projects",
    "list_archived",
    "list_prompts",
    "orchestrator_control",
    "process_task_completion",
    "read_prompt",
    "reject_plan",
    "remove_dependency",
    "render_prompt",
    "reopen_with_feedback",
    "restart_daemon",
    "restart_task",
    "restore_task",
    "skip_task",
    "stop_task",
]


def _task(task_id: str) -> Record:
    return found(WORLD.tasks, task_id, "task")


def _move(task_id: str, status: str, *before: str, **also: Any) -> Record:
    """Change the status of a task; raises `ToolFailure` when it is in none of those `before`."""
    task = _task(task_id)
    if before and task["status"] not in before:
        raise ToolFailure("tool_error", f"{task_id} is {task['status']}, not {' or '.join(before)}")
    task.update(status=status, **also)
    WORLD.tell("task_moved", task_id=task_id, status=status)
    return {"task_id": task_id, "status": status}


def get_token_usage() -> Record:
    used: dict[str, int] = {}
    for task in WORLD.tasks.values():
        used[task["project_id"]] = used.get(task["project_id"], 0) + task.get("tokens", 0)
    return {"tokens": used, "total": sum(used.values())}


def get_status() -> Record:
    by_status: dict[str, int] = {}
    for task in WORLD.tasks.values():
        by_status[task["status"]] = by_status.get(task["status"], 0) + 1
    return {"projects": len(WORLD.projects), "agents": len(WORLD.agents), "tasks": by_status, "paused": WORLD.paused}


def get_recent_events(limit: int = 10) -> Record:
    return {"events": list(reversed(WORLD.events))[:limit]}


def restart_daemon(reason: str) -> Record:
    WORLD.tell("daemon_restarted", reason=reason)
    return {"restarting": True, "reason": reason}


def orchestrator_control(action: str) -> Record:
    WORLD.paused = {"pause": True, "resume": False}.get(action, WORLD.paused)
    return {"paused": WORLD.paused}


def list_active_tasks_all_projects() -> Record:
    active = [task for task in WORLD.tasks.values() if task["status"] in ("READY", "IN_PROGRESS")]
    return {"tasks": [{key: task[key] for key in ("id", "title", "project_id", "status")} for task in active]}


def get_task_tree(task_id: str, compact: bool = False, max_depth: int = 4) -> Record:
    task = _task(task_id)
    shown: Record = {"id": task_id} if compact else {"id": task_id, "title": task["title"], "status": task["status"]}
    children = [other["id"] for other in WORLD.tasks.values() if other["parent"] == task_id]
    if children and max_depth > 1:
        shown["subtasks"] = [get_task_tree(child, compact, max_depth - 1) for child in children]
    return shown


def stop_task(task_id: str) -> Record:
    return _move(task_id, "BLOCKED", "READY", "IN_PROGRESS")


def restart_task(task_id: str) -> Record:
    return _move(task_id, "READY", result="")


def reopen_with_feedback(task_id: str, feedback: str) -> Record:
    description = f"{_task(task_id).get('description', '')}\n\nFeedback: {feedback}".strip()
    return _move(task_id, "READY", "COMPLETED", "FAILED", description=description)


def delete_task(task_id: str) -> Record:
    _task(task_id)
    del WORLD.tasks[task_id]
    for task in WORLD.tasks.values():
        task["depends_on"] = [other for other in task["depends_on"] if other != task_id]
    return {"deleted": task_id}


def archive_task(task_id: str) -> Record:
    _move(task_id, "ARCHIVED", "COMPLETED")
    WORLD.archive[task_id] = WORLD.tasks.pop(task_id)
    return {"archived": task_id}


def archive_tasks(project_id: str = "") -> Record:
    done = [task for task in WORLD.tasks.values() if task["status"] == "COMPLETED"]
    chosen = [task["id"] for task in done if project_id in ("", task["project_id"])]
    return {"archived": [archive_task(task_id)["archived"] for task_id in chosen]}


def list_archived(project_id: str = "") -> Record:
    return {"tasks": [name for name, task in WORLD.archive.items() if project_id in ("", task["project_id"])]}


def restore_task(task_id: str) -> Record:
    found(WORLD.archive, task_id, "archived task")
    WORLD.tasks[task_id] = {**WORLD.archive.pop(task_id), "status": "COMPLETED"}
    return {"restored": task_id}


def approve_task(task_id: str) -> Record:
    return _move(task_id, "COMPLETED", approved=True)


def process_task_completion(task_id: str, workspace_path: str) -> Record:
    return _move(task_id, "COMPLETED", "READY", "IN_PROGRESS", result=f"completed in {workspace_path}")


def approve_plan(task_id: str) -> Record:
    task, made = _task(task_id), list[str]()
    for step in task["plan"]:
        child = WORLD.number("task")
        WORLD.tasks[child] = {**task, "id": child, "title": step, "parent": task_id, "plan": [], "depends_on": []}
        made.append(child)
    task["plan"] = []
    return {"task_id": task_id, "subtasks": made}


def reject_plan(task_id: str, feedback: str) -> Record:
    _task(task_id).update(plan=[], plan_feedback=feedback)
    return {"task_id": task_id, "rejected": True, "feedback": feedback}


def delete_plan(task_id: str) -> Record:
    steps, _task(task_id)["plan"] = len(_task(task_id)["plan"]), []
    return {"task_id": task_id, "deleted_steps": steps}


def skip_task(task_id: str) -> Record:
    _move(task_id, "COMPLETED", result="skipped")
    freed = [task["id"] for task in WORLD.tasks.values() if task_id in task["depends_on"]]
    return {"skipped": task_id, "unblocked": freed}


def get_task_dependencies(task_id: str) -> Record:
    dependents = [task["id"] for task in WORLD.tasks.values() if task_id in task["depends_on"]]
    return {"task_id": task_id, "depends_on": list(_task(task_id)["depends_on"]), "dependents": dependents}


def add_dependency(task_id: str, depends_on: str) -> Record:
    _task(depends_on)
    if task_id == depends_on or task_id in _chain(depends_on):
        raise ToolFailure("tool_error", f"{task_id} cannot wait for {depends_on}: that would be a circle")
    task = _task(task_id)
    task["depends_on"] = sorted({*task["depends_on"], depends_on})
    return {"task_id": task_id, "depends_on": task["depends_on"]}


def remove_dependency(task_id: str, depends_on: str) -> Record:
    task = _task(task_id)
    task["depends_on"] = [other for other in task["depends_on"] if other != depends_on]
    return {"task_id": task_id, "depends_on": task["depends_on"]}


def _chain(task_id: str) -> set[str]:
    direct = WORLD.tasks[task_id]["depends_on"]
    return {*direct, *(other for name in direct if name in WORLD.tasks for other in _chain(name))}


def get_chain_health(task_id: str = "") -> Record:
    looked_at = [task_id] if task_id else list(WORLD.tasks)
    stuck = [
        {"task_id": name, "waits_for": sorted(other for other in _chain(name) if _is_stuck(other))}
        for name in looked_at
    ]
    return {"stuck": [chain for chain in stuck if chain["waits_for"]]}


def _is_stuck(task_id: str) -> bool:
    return task_id not in WORLD.tasks or WORLD.tasks[task_id]["status"] in ("BLOCKED", "FAILED")


def get_task_result(task_id: str) -> Record:
    task = _task(task_id)
    return {"task_id": task_id, "status": task["status"], "result": task["result"] or None}


def get_task_diff(task_id: str) -> Record:
    return {"task_id": task_id, **git_diff(project_id=_task(task_id)["project_id"])}


def list_prompts(project_id: str) -> Record:
    project = WORLD.project(project_id)
    return {"prompts": [name for owner, name in WORLD.prompts if owner == project]}


def read_prompt(project_id: str, name: str) -> Record:
    if (project_id, name) not in WORLD.prompts:
        raise ToolFailure(
            "tool_error", f"There is no prompt '{name}'; there are: {list_prompts(project_id)['prompts']}"
        )
    return {"name": name, "content": WORLD.prompts[project_id, name]}


def render_prompt(project_id: str, name: str, variables: dict[str, Any] | None = None) -> Record:
    given = {"project": project_id, **(variables or {})}
    text = read_prompt(project_id, name)["content"]
    return {"name": name, "content": re.sub(r"{{(\w+)}}", lambda hit: str(given.get(hit[1], hit[0])), text)}
