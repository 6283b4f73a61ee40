"""Tools on the dependencies of tasks: what one waits for, what waits for it, and trees of subtasks."""

from __future__ import annotations

from collections import Counter
from typing import Any

from toolcrib.plugin import Row, Rows, ToolFailure

from ..model import DEPENDENCY_TYPES
from ..operations import OF_TASK, id_of, in_project, one_of, transaction_tool
from ..state import add_dependency as depend
from ..state import dependents_of, needs_of, settle
from .tasks import brief


@transaction_tool("x.task.dependencies", "tasks", "read", OF_TASK, ["task_id"])
def get_task_dependencies(rows: Rows, task_id: str) -> dict[str, Any]:
    """List what a task depends on and what waits for it, with the status of each."""
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


@transaction_tool(
    "x.task.depend",
    "tasks",
    "write",
    {
        **OF_TASK,
        "depends_on": id_of("task that comes before"),
        "type": {**one_of(DEPENDENCY_TYPES), "default": "blocks", "description": "blocks and parent hold it back"},
    },
    ["task_id", "depends_on"],
    idempotent=True,
)
def add_dependency(rows: Rows, task_id: str, depends_on: str, type: str) -> dict[str, Any]:
    """Let a task depend on another one of its project; a cycle is refused."""
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


@transaction_tool(
    "x.task.undepend", "tasks", "write", {**OF_TASK, "depends_on": id_of("other task")}, ["task_id", "depends_on"]
)
def remove_dependency(rows: Rows, task_id: str, depends_on: str) -> dict[str, Any]:
    """Let a task depend on another one no more."""
    task = rows.get("tasks", task_id, "editor")
    sql = "SELECT id FROM {dependencies} AS d WHERE task_id = ? AND depends_on = ?"
    found = rows.select(sql, (task_id, depends_on))
    if not found:
        raise ToolFailure("not_found", f"task {task_id} does not depend on {depends_on[:200]!r}")
    rows.delete("dependencies", found[0]["id"])
    settle(rows, task)
    return {"ok": True, "task_id": task_id, "removed_dependency": depends_on, "task_title": task["title"]}


@transaction_tool(
    "x.task.chain",
    "tasks",
    "read",
    {"task_id": id_of("task"), "project_id": id_of("project")},
    explicit=["project_id"],
    examples=[{"project_id": "<project_id>"}],
)
def get_chain_health(rows: Rows, task_id: str = "", project_id: str = "") -> dict[str, Any]:
    """Tell what is stuck behind a BLOCKED or FAILED task, or behind all of those of a project."""
    if task_id:
        task = rows.get("tasks", task_id)
        stuck = _downstream(rows, task) if task["status"] in ("BLOCKED", "FAILED") else []
        return {"task_id": task_id, "status": task["status"], "stuck_downstream": stuck, "stuck_count": len(stuck)}
    chosen, given = in_project(rows, project_id)
    where = f"status IN ('BLOCKED', 'FAILED') AND archived_at IS NULL{chosen}"
    sql = f"SELECT * FROM {{tasks}} AS t WHERE {where} ORDER BY id"
    chains = [(task, _downstream(rows, task)) for task in rows.select(sql, given)]
    stuck_chains = [
        {"blocked_task": brief(task), "stuck_downstream": stuck, "stuck_count": len(stuck)}
        for task, stuck in chains
        if stuck
    ]
    return {"stuck_chains": stuck_chains, "total_stuck_chains": len(stuck_chains)}


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


@transaction_tool(
    "x.task.tree",
    "tasks",
    "read",
    {
        **OF_TASK,
        "compact": {"type": "boolean", "default": False},
        "max_depth": {"type": "integer", "minimum": 1, "maximum": 20, "default": 4},
    },
    ["task_id"],
)
def get_task_tree(rows: Rows, task_id: str, compact: bool, max_depth: int) -> dict[str, Any]:
    """Show a task with its subtasks as a tree, and how many of them are done."""
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
