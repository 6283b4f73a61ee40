"""Changes of a task: transitions by the table, claims with a lease and a generation, dependencies.

Everything here runs in one transaction of the store, whose writers exclude one another: what is read is still true when
it is written. A claim raises the `generation` of a task, and so does its end: work that still carries an older one
changes nothing.

    worker A   claim (generation 3) ──── stalls ──────────────────> complete(3): refused
    tick                                  lease over: READY (4)
    worker B                                       claim (5) ─────────────────────> complete(5): taken
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, cast

from toolcrib.plugin import Row, Rows, ToolFailure, invalid_argument

from .events import publish, publish_of
from .model import BLOCKING, CLAIMED, TOOLS, TRANSITIONS, Event, Status, legal_events

BRANCHES: Final = "task/"
"""Folder of the branches of tasks."""
LEASE_SECONDS: Final = 300.0
"""Time within which a worker renews its claim."""
INPUT_SECONDS: Final = 86_400.0
"""Time after which a question without an answer pauses its task, unless the operator sets `question_ttl`."""
_PAUSE_SECONDS: Final = 300.0
"""Pause of a task without another time to resume."""

_ADJECTIVES: Final = "amber bold brisk calm clear deft eager fair fleet glad keen kind lucid merry neat proud".split()
_NOUNS: Final = (
    "badger brook cedar comet crane delta ember falcon grove harbor heron lark maple otter reef wren".split()
)

_EVENTS: Final[Mapping[Status, str]] = {
    "IN_PROGRESS": "task.started",
    "COMPLETED": "task.completed",
    "FAILED": "task.failed",
    "BLOCKED": "task.blocked",
    "PAUSED": "task.paused",
    "WAITING_INPUT": "task.waiting_input",
    "AWAITING_PLAN_APPROVAL": "plan.awaiting_approval",
}
"""Status → type of the event of the log when a task enters it."""

_LATER: Final = (
    "WITH RECURSIVE later(id) AS ("
    "SELECT d.depends_on FROM {dependencies} AS d WHERE d.task_id = ? AND d.type IN ('blocks', 'parent') UNION "
    "SELECT e.depends_on FROM later AS l JOIN {dependencies} AS e ON e.task_id = l.id"
    " WHERE e.type IN ('blocks', 'parent')"
    ") SELECT id FROM later WHERE id = ? LIMIT 1"
)
"""Whether the first task waits for the second one, over any number of others."""


def date_of(seconds: float | None) -> str | None:
    """Return a time of seconds since 1970 in ISO 8601, in UTC."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def new_task_id() -> str:
    """Return an id that people can say: `brisk-heron-3f9a2c1b`."""
    return f"{secrets.choice(_ADJECTIVES)}-{secrets.choice(_NOUNS)}-{secrets.token_hex(4)}"


def branch_of(task: Row) -> str:
    """Return the branch of a task: the one with its work, else the name that it gets."""
    return str(task["branch_name"] or f"{BRANCHES}{task['id']}")


def folder_of(rows: Rows, task: Row) -> str:
    """Return the workspace of a claimed task, else the folder of the session."""
    workspace = rows.find("workspaces", task["workspace_id"] or "")
    return workspace["workspace_path"] if workspace else "."


def note(rows: Rows, task: Row, type: str, content: str) -> None:
    """Add a note to a task: feedback, an answer, what a run did."""
    values: dict[str, Any] = {"task_id": task["id"], "type": type, "label": type, "content": content}
    made = rows.insert("contexts", {"project_id": task["project_id"], **values})
    if type != "run":  # the events of a run contain it
        publish(rows, "note.created", task, note_id=made["id"], note_type=type)


def fire(rows: Rows, task: Row, event: Event, **changes: Any) -> Row:
    """Apply an event to a task; return it in its next status.

    All that follows is done in the same transaction: workspace and agent of an ended claim are free, the event is
    published, tasks that wait for this one are promoted or held back. `changes` are further columns, and come before
    what follows by itself.

    Raises `ToolFailure("conflict")` for an event that its status does not allow, with those that it does.
    """
    status = cast("Status", task["status"])
    after = TRANSITIONS[status].get(event)
    if after is None:
        legal = legal_events(status)
        tools = ", ".join(dict.fromkeys(TOOLS[one] for one in legal if one in TOOLS))
        raise ToolFailure(
            "conflict",
            f"task {task['id']} is {status}: {TOOLS.get(event, event)} is not possible",
            hint=f"possible in {status}: {tools or 'nothing, it waits for the queue'}",
            details={"status": status, "event": event, "legal_events": list(legal)},
        )
    if status in CLAIMED and after not in CLAIMED:
        _unlock(rows, task)
    changes = {**_consequences(rows, task, status, after), **changes, "status": after}
    changed = rows.update("tasks", task["id"], changes, expected={"status": status})
    if event == "ADMIN_STOP":
        publish(rows, "task.stopped", changed, event=event)
    elif after in _EVENTS and event != "HUMAN_REPLIED":
        error = changed["error_message"] if after in ("FAILED", "BLOCKED", "PAUSED") else ""  # else of an earlier run
        publish(rows, _EVENTS[after], changed, event=event, error_message=error or None)
    if after == "BLOCKED":
        waiting = [one["id"] for one in dependents_of(rows, task["id"]) if one["status"] == "DEFINED"]
        if waiting:
            publish(rows, "chain.stuck", changed, stuck_downstream=waiting, stuck_count=len(waiting))
    if after == "COMPLETED" or status == "COMPLETED":
        for other in dependents_of(rows, task["id"]):
            settle(rows, other)
    return settle(rows, changed) if after == "READY" else changed


def _consequences(rows: Rows, task: Row, status: Status, after: Status) -> dict[str, Any]:
    """Return the further changes when a task leaves one status for another."""
    changes: dict[str, Any] = {}
    if status in CLAIMED and after not in CLAIMED:
        ended = dict.fromkeys(("assigned_agent_id", "workspace_id", "lease_until", "question"))
        changes |= {**ended, "generation": task["generation"] + 1}
    if "PAUSED" in (status, after):
        changes["resume_after"] = rows.now + _PAUSE_SECONDS if after == "PAUSED" else None
    if "COMPLETED" in (status, after):
        changes["completed_at"] = rows.now if after == "COMPLETED" else None
    return changes


def settle(rows: Rows, task: Row) -> Row:
    """Promote a task whose dependencies are met; hold back one that is READY and waits again."""
    if task["status"] == "DEFINED" and not unmet_of(rows, task["id"]):
        return fire(rows, task, "DEPS_MET")
    if task["status"] == "READY" and unmet_of(rows, task["id"]):
        return fire(rows, task, "DEPS_UNMET")
    return task


def needs_of(rows: Rows, task_id: str) -> list[Row]:
    """Return the dependencies of a task: id, title, status and type of each, oldest first."""
    sql = (
        "SELECT t.id, t.title, t.status, d.type FROM {dependencies} AS d JOIN {tasks} AS t ON t.id = d.depends_on"
        " WHERE d.task_id = ? ORDER BY d.created_at, t.id"
    )
    return rows.select(sql, (task_id,))


def unmet_of(rows: Rows, task_id: str) -> list[str]:
    """Return the tasks that hold a task back; a deleted one does not."""
    return [one["id"] for one in needs_of(rows, task_id) if one["type"] in BLOCKING and one["status"] != "COMPLETED"]


def dependents_of(rows: Rows, task_id: str) -> list[Row]:
    """Return the tasks that a task holds back, in full."""
    sql = (
        "SELECT t.* FROM {dependencies} AS d JOIN {tasks} AS t ON t.id = d.task_id"
        " WHERE d.depends_on = ? AND d.type IN ('blocks', 'parent') ORDER BY t.created_at, t.id"
    )
    return rows.select(sql, (task_id,))


def add_dependency(rows: Rows, task: Row, other: Row, type: str = "blocks") -> Row:
    """Let a task depend on another one; again changes the type. Return the task.

    Raises `ToolFailure` for itself, for a cycle, for a task of another project, and for one that is at work.
    """
    if task["id"] == other["id"]:
        raise invalid_argument("depends_on", f"task {task['id']} cannot depend on itself")
    if task["project_id"] != other["project_id"]:
        raise invalid_argument("depends_on", f"task {other['id']} belongs to another project")
    is_held = type in BLOCKING and other["status"] != "COMPLETED"
    if is_held and task["status"] not in ("DEFINED", "READY", "BLOCKED", "FAILED", "PAUSED"):
        raise ToolFailure("conflict", f"task {task['id']} is {task['status']}: it cannot wait for another one now")
    if type in BLOCKING and rows.select(_LATER, (other["id"], task["id"])):
        raise invalid_argument(
            "depends_on", f"task {other['id']} depends on {task['id']} already: that would be a cycle"
        )
    sql = "SELECT * FROM {dependencies} AS d WHERE task_id = ? AND depends_on = ?"
    known = rows.select(sql, (task["id"], other["id"]))
    if known:
        rows.update("dependencies", known[0]["id"], {"type": type})
    else:
        values: dict[str, Any] = {
            "project_id": task["project_id"],
            "task_id": task["id"],
            "depends_on": other["id"],
            "type": type,
        }
        rows.insert("dependencies", values)
    return settle(rows, task)


def claim(rows: Rows, task: Row, agent_id: str, workspace_id: str | None, *, lease: float = LEASE_SECONDS) -> Row:
    """Assign a READY task to an agent, and lock its workspace. Return it with a new generation.

    Raises `ToolFailure` where the workspace is locked or the agent is not idle by now; `agent_id` may be one that the
    queue has no row of.
    """
    if workspace_id is not None:
        lock = {"locked_by_agent_id": agent_id, "locked_by_task_id": task["id"], "locked_at": rows.now}
        rows.update("workspaces", workspace_id, lock, expected={"locked_by_task_id": None})
    agent = rows.find("agents", agent_id)
    if agent is not None:
        busy = {"state": "BUSY", "current_task_id": task["id"], "last_heartbeat": rows.now}
        rows.update("agents", agent_id, busy, expected={"state": "IDLE"})
    return fire(
        rows,
        task,
        "ASSIGNED",
        assigned_agent_id=agent_id,
        workspace_id=workspace_id,
        generation=task["generation"] + 1,
        lease_until=rows.now + lease,
        claimed_at=rows.now,
    )


def get_claimed(rows: Rows, task_id: str, generation: int, statuses: Sequence[str] = CLAIMED) -> Row:
    """Return a task that the claim of this generation holds.

    Raises `ToolFailure("conflict")` where the claim has ended: its lease ran out, whether or not another worker has the
    task by now.
    """
    task = rows.get("tasks", task_id, "editor")
    is_late = task["lease_until"] is not None and task["lease_until"] < rows.now
    if task["generation"] != generation or task["status"] not in CLAIMED or is_late:
        raise ToolFailure(
            "conflict",
            f"claim {generation} of task {task_id} has ended; the task is {task['status']}",
            hint="stop working on it: claim_task gives the next one",
            details={"status": task["status"], "generation": task["generation"]},
        )
    if task["status"] not in statuses:
        raise ToolFailure("conflict", f"task {task_id} is {task['status']}, not {' or '.join(statuses)}")
    return task


def renew(rows: Rows, task: Row) -> Row:
    """Extend the lease of a claim."""
    if rows.find("agents", task["assigned_agent_id"]) is not None:
        rows.update("agents", task["assigned_agent_id"], {"last_heartbeat": rows.now})
    return rows.update("tasks", task["id"], {"lease_until": rows.now + LEASE_SECONDS})


def release(rows: Rows, workspace: Row) -> Row:
    """Unlock a workspace; a task that was at work in it is READY again."""
    task = rows.find("tasks", workspace["locked_by_task_id"] or "")
    if task is not None and task["workspace_id"] == workspace["id"] and task["status"] in ("ASSIGNED", "IN_PROGRESS"):
        fire(rows, task, "RECOVERY")
    free = {"locked_by_agent_id": None, "locked_by_task_id": None, "locked_at": None}
    return rows.update("workspaces", workspace["id"], free)


def _unlock(rows: Rows, task: Row) -> None:
    """Give back the workspace and the agent of a claim."""
    workspace = rows.find("workspaces", task["workspace_id"] or "")
    if workspace is not None and workspace["locked_by_task_id"] == task["id"]:
        free = {"locked_by_agent_id": None, "locked_by_task_id": None, "locked_at": None}
        rows.update("workspaces", workspace["id"], free)
    agent = rows.find("agents", task["assigned_agent_id"] or "")
    if agent is not None and agent["current_task_id"] == task["id"]:
        state = "PAUSED" if agent["is_pausing"] else "IDLE"
        agent = rows.update("agents", agent["id"], {"state": state, "current_task_id": None, "is_pausing": 0})
        if state == "PAUSED":
            publish_of(rows, "agent.paused", "agent", agent)
