"""Tools that create, list, read and edit tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any, Final

from toolcrib.plugin import Context, Row, Rows, ToolFailure, fit_page

from ..automation.vetoes import veto_of
from ..events import publish
from ..model import BLOCKING, CLAIMED, TASK_TYPES, TRANSITIONS, VERIFICATIONS, Event, Status
from ..operations import (
    INTEGER,
    LONG,
    NAME,
    OFFSET,
    active_project,
    changes_of,
    home_of,
    id_of,
    limit_of,
    one_of,
    project_of,
    queue_tool,
    storage_of,
    transaction_tool,
)
from ..runs.evidence import ACCEPTANCE, check_declared, missing_evidence
from ..state import add_dependency, date_of, dependents_of, fire, needs_of, new_task_id, settle, unmet_of

_PAGE: Final = 200
"""Tasks of one page of a list."""
_FEW: Final = 1_000
"""Tasks of one status that a list always counts."""
_COUNTED: Final = 20_000
"""Tasks that it counts of all statuses with more: these two and a page are what 100,000 tasks allow in 5 ms."""
_ORDER: Final[tuple[Status, ...]] = (
    "IN_PROGRESS",
    "ASSIGNED",
    "WAITING_INPUT",
    "VERIFYING",
    "AWAITING_APPROVAL",
    "AWAITING_PLAN_APPROVAL",
    "READY",
    "PAUSED",
    "BLOCKED",
    "DEFINED",
    "FAILED",
    "COMPLETED",
)
"""Statuses in the order of a list."""
_OVER: Final = ("FAILED", "COMPLETED")

_TITLE: Final = {**NAME, "description": "The task in a line"}
_TYPE: Final = one_of(TASK_TYPES)
_IDS: Final = {"type": "array", "items": {"type": "string"}, "maxItems": 100}

_EDITS: Final[Mapping[tuple[Status, Status], Sequence[Event]]] = {
    ("READY", "IN_PROGRESS"): ("ASSIGNED", "AGENT_STARTED"),
    ("READY", "COMPLETED"): ("ASSIGNED", "AGENT_STARTED", "AGENT_COMPLETED", "VERIFY_PASSED"),
    ("READY", "FAILED"): ("ASSIGNED", "AGENT_STARTED", "AGENT_FAILED"),
    ("READY", "BLOCKED"): ("ASSIGNED", "TIMEOUT"),
    ("ASSIGNED", "IN_PROGRESS"): ("AGENT_STARTED",),
    ("ASSIGNED", "BLOCKED"): ("TIMEOUT",),
    ("IN_PROGRESS", "COMPLETED"): ("AGENT_COMPLETED", "VERIFY_PASSED"),
    ("IN_PROGRESS", "FAILED"): ("AGENT_FAILED",),
    ("IN_PROGRESS", "BLOCKED"): ("ADMIN_STOP",),
    ("IN_PROGRESS", "READY"): ("RECOVERY",),
    ("VERIFYING", "COMPLETED"): ("VERIFY_PASSED",),
    ("VERIFYING", "FAILED"): ("VERIFY_FAILED",),
    ("FAILED", "BLOCKED"): ("MAX_RETRIES",),
    ("FAILED", "IN_PROGRESS"): ("ADMIN_RESTART", "ASSIGNED", "AGENT_STARTED"),
    ("BLOCKED", "IN_PROGRESS"): ("ADMIN_RESTART", "ASSIGNED", "AGENT_STARTED"),
    ("COMPLETED", "IN_PROGRESS"): ("ADMIN_RESTART", "ASSIGNED", "AGENT_STARTED"),
}
"""Status that a person sees and the one that he sets → the events between them; READY is a restart from any other.

Each event is applied by `state.fire`, so that an edit has all that follows from the way in between: ended claims,
published events, dependencies.
"""

_REFUSABLE: Final[Mapping[str, str]] = {"IN_PROGRESS": "task.started", "COMPLETED": "task.completed"}
"""Status of an edit → event that a hook can refuse."""


@queue_tool(
    "x.task.create",
    "tasks",
    "write",
    {
        "title": _TITLE,
        "description": {**LONG, "description": "All that an agent needs to do it"},
        "project_id": id_of("project; the active one when not given, else the caller's inbox"),
        "priority": {**INTEGER, "default": 100, "description": "Smaller numbers come first"},
        "requires_approval": {"type": "boolean", "default": False, "description": "A person approves its result"},
        "task_type": _TYPE,
        "profile_id": id_of("agent profile"),
        "preferred_workspace_id": id_of("workspace"),
        "attachments": {
            "type": "array",
            "items": {"type": "string", "maxLength": 1000},
            "maxItems": 100,
            "description": "Files of the workspace to read first",
        },
        "depends_on": {**_IDS, "description": "Ids of tasks of the same project that come before"},
        "parent_task_id": id_of("task that this one is a part of"),
        "verification_type": one_of(VERIFICATIONS),
        "max_retries": {"type": "integer", "minimum": 0, "maximum": 100, "default": 3},
        "acceptance": ACCEPTANCE,
    },
    ["title"],
    idempotent=False,
    explicit=["project_id", "profile_id"],
    traits=["file_reader"],
    tags=["task", "todo", "work", "queue", "new"],
    examples=[
        {"title": "Fix the login redirect", "task_type": "bugfix", "priority": 10},
        {"title": "Green tests", "acceptance": [{"type": "command", "command": "pytest -q"}]},
    ],
    policy={
        "do": ["list_tasks first: the task may exist already.", "Declare in `acceptance` what shows that it is done."],
        "edge_cases": ["A task that waits for others is DEFINED until they are COMPLETED, then READY."],
    },
)
async def create_task(ctx: Context, title: str, **given: Any) -> dict[str, Any]:
    """Create a task for the agents of a project, ready unless it waits for others."""
    check_declared(given.get("acceptance") or [])
    await _check_attachments(ctx, given)

    def work(rows: Rows) -> dict[str, Any]:
        task = insert_task(rows, project_of(ctx, rows, given.get("project_id") or ""), title, given)
        return {
            "created": task["id"],
            "title": task["title"],
            "status": task["status"],
            "project_id": task["project_id"],
            "waits_for": unmet_of(rows, task["id"]),
        }

    return await storage_of(ctx).write(work)


async def _check_attachments(ctx: Context, given: Mapping[str, Any]) -> None:
    """Raise `ToolFailure("not_found")` for a file that neither the session nor a workspace of the project has."""
    wanted: Sequence[str] = given.get("attachments") or ()
    if ctx.workspace is None or not wanted:
        return

    def look(rows: Rows) -> list[str]:
        sql = "SELECT workspace_path FROM {workspaces} AS w WHERE project_id = ? ORDER BY created_at, id"
        return [row["workspace_path"] for row in rows.select(sql, (given.get("project_id") or "",))]

    folders = [*await storage_of(ctx).read(look), "."]
    for number, path in enumerate(wanted):
        for folder in folders:
            with suppress(ToolFailure):  # a workspace of others that is out of reach
                if await ctx.workspace.stat(str(PurePosixPath(folder, path))) is not None:
                    break
        else:
            message = f"attachments[{number}]: there is no {path[:200]!r} in {', '.join(folders)}"
            raise ToolFailure("not_found", message, hint="name it as it is in the project's workspace")


def insert_task(rows: Rows, project_id: str, title: str, given: Mapping[str, Any]) -> Row:
    """Add a task with its dependencies. Raises `ToolFailure` for an unknown profile, workspace, parent or task."""
    _check_links(rows, project_id, given)
    parent = rows.find("tasks", given.get("parent_task_id") or "")
    values: dict[str, Any] = {
        "project_id": project_id,
        "title": title.strip(),
        "description": given.get("description") or "",
        "status": "DEFINED",
        "priority": given.get("priority", 100),
        "task_type": given.get("task_type"),
        "verification_type": given.get("verification_type"),
        "requires_approval": int(given.get("requires_approval") or False),
        "profile_id": given.get("profile_id"),
        "preferred_workspace_id": given.get("preferred_workspace_id"),
        "parent_task_id": given.get("parent_task_id"),
        "attachments": given.get("attachments") or [],
        "acceptance": given.get("acceptance") or [],
        "llm_config": given.get("llm_config") or {},
        "token_limit": given.get("token_limit"),
        "retry_count": 0,
        "max_retries": given.get("max_retries", 3),
        "generation": 0,
        "baseline": {},
        "plan": [],
        "is_plan_subtask": int(given.get("is_plan_subtask") or False),
        "error_message": "",
        "playbook_id": given.get("playbook_id"),
        "depth": given.get("depth") or (parent["depth"] if parent else 0),
    }
    task = rows.insert("tasks", values, id=new_task_id())
    publish(rows, "task.created", task, **({"hook_id": given["hook_id"]} if "hook_id" in given else {}))
    for number, other in enumerate(dict.fromkeys(given.get("depends_on") or [])):
        task = add_dependency(rows, task, _other(rows, project_id, other, f"depends_on[{number}]"))
    return settle(rows, task)


def _other(rows: Rows, project_id: str, id: str, path: str) -> Row:
    found = rows.find("tasks", id)
    if found is None or found["project_id"] != project_id:
        raise ToolFailure(
            "not_found", f"{path}: there is no task {id[:200]!r} in this project", hint="list_tasks has the ids"
        )
    return found


def _check_links(rows: Rows, project_id: str, given: Mapping[str, Any]) -> None:
    if workspace_id := given.get("preferred_workspace_id"):
        workspace = rows.find("workspaces", workspace_id)
        if workspace is None or workspace["project_id"] != project_id:
            message = f"there is no workspace {workspace_id!r} in project {project_id}"
            raise ToolFailure("not_found", message, hint="list_workspaces shows their ids")
    if profile_id := given.get("profile_id"):
        sql = "SELECT profile_id FROM {profiles} AS p WHERE profile_id = ? AND project_id = ?"
        if not rows.select(sql, (profile_id, home_of(rows))):
            raise ToolFailure("not_found", f"there is no profile {profile_id!r}", hint="list_profiles shows their ids")
    if parent := given.get("parent_task_id"):
        _other(rows, project_id, parent, "parent_task_id")


@transaction_tool(
    "x.task.get",
    "tasks",
    "read",
    {"task_id": id_of("task")},
    ["task_id"],
    tags=["task", "work", "details"],
)
def get_task(rows: Rows, task_id: str) -> dict[str, Any]:
    """Get one task in full: its state, its dependencies both ways, its notes and its last result."""
    return view(rows, rows.get("tasks", task_id))


def view(rows: Rows, task: Row) -> dict[str, Any]:
    """Return a task in full."""
    needs = needs_of(rows, task["id"])
    agent = rows.find("agents", task["assigned_agent_id"] or "")
    subtasks = rows.select("SELECT id FROM {tasks} AS t WHERE parent_task_id = ? ORDER BY priority, id", (task["id"],))
    notes = rows.select(
        "SELECT type, label, content FROM {contexts} AS c WHERE task_id = ? ORDER BY created_at, id", (task["id"],)
    )
    last = rows.select("SELECT * FROM {results} AS r WHERE task_id = ? ORDER BY created_at DESC LIMIT 1", (task["id"],))
    plain = (
        "id title description project_id status priority task_type verification_type profile_id preferred_workspace_id"
        " parent_task_id attachments acceptance retry_count max_retries branch_name pr_url question generation plan"
        " llm_config token_limit"
    )
    return {
        **{name: task[name] for name in plain.split()},
        "requires_approval": bool(task["requires_approval"]),
        "is_plan_subtask": bool(task["is_plan_subtask"]),
        "assigned_agent": task["assigned_agent_id"]
        and {
            "id": task["assigned_agent_id"],
            "name": agent["name"] if agent else task["assigned_agent_id"],
        },
        "workspace_id": task["workspace_id"],
        "lease_until": date_of(task["lease_until"]),
        "resume_after": date_of(task["resume_after"]),
        "depends_on": [one["id"] for one in needs],
        "waits_for": [one["id"] for one in needs if one["type"] in BLOCKING and one["status"] != "COMPLETED"],
        "blocks": [one["id"] for one in dependents_of(rows, task["id"])],
        "subtasks": [one["id"] for one in subtasks],
        "error_message": task["error_message"],
        "result": last[0]["summary"] if last else "",
        "notes": notes,
        "is_archived": task["archived_at"] is not None,
        "created": date_of(task["created_at"]),
        "changed": date_of(task["updated_at"]),
    }


def brief(task: Row) -> dict[str, Any]:
    """Return a task as a line of a list."""
    names = ("id", "title", "status", "project_id", "priority", "task_type", "assigned_agent_id", "profile_id")
    return {name: task[name] for name in names if task[name] is not None}


@queue_tool(
    "x.task.list",
    "tasks",
    "read",
    {
        "project_id": id_of("project; the active one when not given, else all"),
        "status": one_of(_ORDER),
        "show_all": {"type": "boolean", "default": False, "description": "Tasks of all projects, finished ones, too"},
        "include_completed": {"type": "boolean", "default": False},
        "completed_only": {"type": "boolean", "default": False, "description": "Only COMPLETED and FAILED tasks"},
        "display_mode": {**one_of(("flat", "tree", "compact")), "default": "flat"},
        "show_dependencies": {"type": "boolean", "default": False},
        "limit": limit_of(_PAGE, _PAGE),
        "offset": OFFSET,
        "cursor": {
            "type": "string",
            "maxLength": 300,
            "description": "next_cursor of the last page, instead of offset",
        },
    },
    explicit=["project_id"],
    tags=["task", "todo", "left to do", "work", "backlog", "open"],
    examples=[{}, {"status": "BLOCKED", "show_dependencies": True}, {"display_mode": "tree", "show_all": True}],
    policy={"edge_cases": ["Without arguments: tasks that are neither COMPLETED nor FAILED, in pages: next_cursor."]},
)
async def list_tasks(ctx: Context, limit: int, offset: int, cursor: str = "", **given: Any) -> dict[str, Any]:
    """List tasks: those at work first, then by status, priority and id."""
    status, only = given.get("status"), given["completed_only"]
    if only and status is not None and status not in _OVER:
        raise ToolFailure("invalid_arguments", f"completed_only and status {status} leave nothing to list")
    if status is not None:
        wanted: Sequence[Status] = (status,)
    elif only:
        wanted = _OVER
    else:
        wanted = _ORDER if given["show_all"] or given["include_completed"] else [s for s in _ORDER if s not in _OVER]

    def work(rows: Rows) -> dict[str, Any]:
        project_id = given.get("project_id") or ""
        if project_id:
            rows.get("projects", project_id)
        elif not given["show_all"]:
            project_id = active_project(ctx, rows)
        found, counts, is_exact = page_of(rows, project_id, wanted, limit + 1, offset=offset, cursor=cursor)
        lines = fit_page(_line(rows, task, given) for task in found[:limit])
        more, found = found[len(lines) :], found[: len(lines)]
        if given["display_mode"] == "tree":
            lines = _tree(found, lines)
        shown: dict[str, Any] = {"tasks": lines, "total": sum(counts.values()), "by_status": counts}
        if not is_exact:
            shown["total_is_at_least"] = True
        if more:
            last = found[-1]
            shown["next_cursor"] = f"{last['status']}:{last['priority']}:{last['id']}"
            shown |= {} if cursor else {"next_offset": offset + len(found)}
        return shown

    return await storage_of(ctx).read(work)


def page_of(
    rows: Rows, project_id: str, wanted: Sequence[Status], limit: int, *, offset: int = 0, cursor: str = ""
) -> tuple[list[Row], dict[Status, int], bool]:
    """Return tasks in the order of their statuses, the number of tasks in each, and whether all are counted.

    Pages by `cursor`, `STATUS:PRIORITY:ID` of the last task before, take the same time wherever they are; those by
    `offset` grow with it: all before are counted. Raises `ToolFailure` for a cursor of another list.
    """
    chosen, given = (" AND project_id = ?", (project_id,)) if project_id else ("", ())
    where = f"{{tasks}} AS t WHERE archived_at IS NULL{chosen} AND status = ?"
    after: tuple[Any, ...] = ()
    first = skipped = 0
    if cursor:
        first, after = _read_cursor(cursor, wanted)
        counted, is_exact = _counts(rows, where, given, wanted, 0)
    else:
        counted, is_exact = _counts(rows, where, given, wanted, offset + limit)
        skipped = offset
        while first < len(wanted) and skipped >= counted[wanted[first]]:
            skipped -= counted[wanted[first]]
            first += 1
    # By their ids, which an index has in order: a sort of whole rows, up to the offset, takes ten times as long.
    # For one project PostgreSQL takes the index only for all of its columns, though two are NULL in every row here.
    order = "archived_at, deleted_at, priority, id" if project_id else "priority, id"
    found: list[Row] = []
    for status in wanted[first:]:
        if len(found) == limit:
            break
        behind = " AND (priority, id) > (?, ?)" if after else ""
        ids = f"SELECT id FROM {where}{behind} ORDER BY {order} LIMIT ? OFFSET ?"
        sql = f"SELECT * FROM {{tasks}} AS page WHERE id IN ({ids}) ORDER BY priority, id"
        found += rows.select(sql, (*given, status, *after, limit - len(found), skipped)) if counted[status] else ()
        after, skipped = (), 0
    return found, {status: number for status, number in counted.items() if number}, is_exact


def _counts(
    rows: Rows, where: str, given: Sequence[Any], wanted: Sequence[Status], needed: int
) -> tuple[dict[Status, int], bool]:
    """Return the number of tasks in each status, up to a limit that is at least `needed`; and whether none reached it.

    To count all of them would take longer than all the rest.
    """

    def count(status: Status, most: int) -> int:
        sql = f"SELECT count(*) AS n FROM (SELECT 1 AS one FROM {where} LIMIT ?) AS counted"
        return int(rows.select(sql, (*given, status, most))[0]["n"])

    counted: dict[Status, int] = {status: count(status, _FEW) for status in wanted}
    large: list[Status] = [status for status in wanted if counted[status] == _FEW]
    most = max(_FEW, needed, _COUNTED // max(1, len(large)))
    counted |= {status: count(status, most) for status in large}
    return counted, most not in counted.values()


def _read_cursor(cursor: str, wanted: Sequence[Status]) -> tuple[int, tuple[int, str]]:
    """Return the place of a cursor's status, and what the tasks after it are greater than."""
    status, priority, id = (*cursor.split(":", 2), "", "")[:3]
    if status not in wanted or not priority.isdecimal():
        raise ToolFailure(
            "invalid_arguments",
            f"cursor: {cursor!r} is not of this list",
            hint="give next_cursor of the page before, with the same project and statuses",
        )
    return wanted.index(status), (int(priority), id)


def _line(rows: Rows, task: Row, given: Mapping[str, Any]) -> dict[str, Any]:
    line = brief(task)
    if given["display_mode"] == "compact":
        line = {name: line[name] for name in ("id", "title", "status")}
    if given["show_dependencies"]:
        needs = needs_of(rows, task["id"])
        line["depends_on"] = [{"id": one["id"], "status": one["status"], "type": one["type"]} for one in needs]
    return line


def _tree(tasks: Sequence[Row], lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines with subtasks below their task."""
    by_id = {task["id"]: line for task, line in zip(tasks, lines, strict=True)}
    top: list[dict[str, Any]] = []
    for task, line in zip(tasks, lines, strict=True):
        parent = by_id.get(task["parent_task_id"] or "")
        (top if parent is None else parent.setdefault("subtasks", [])).append(line)
    return top


@queue_tool(
    "x.task.edit",
    "tasks",
    "write",
    {
        "task_id": id_of("task"),
        "project_id": id_of("project", "; another one moves the task there"),
        "title": _TITLE,
        "description": LONG,
        "priority": INTEGER,
        "task_type": one_of(TASK_TYPES, nullable=True),
        "status": {**one_of(tuple(TRANSITIONS)), "description": "What it is now; the way there must be legal"},
        "max_retries": {"type": "integer", "minimum": 0, "maximum": 100},
        "verification_type": one_of(VERIFICATIONS),
        "profile_id": {"type": ["string", "null"], "maxLength": 200},
        "requires_approval": {"type": "boolean"},
        "result": {**LONG, "description": "With status COMPLETED or FAILED: what came of it"},
    },
    ["task_id"],
    explicit=["project_id", "profile_id"],
    tags=["task", "work", "status", "complete", "change"],
    examples=[{"task_id": "<task_id>", "status": "IN_PROGRESS"}, {"task_id": "<task_id>", "priority": 5}],
    policy={
        "do": ["Set a task IN_PROGRESS when you begin, COMPLETED or FAILED with a result when you end."],
        "edge_cases": [
            "A task that waits for others can neither begin nor be completed.",
            "A task with `acceptance` is completed by complete_task, which checks it.",
        ],
    },
)
async def edit_task(ctx: Context, task_id: str, **given: Any) -> dict[str, Any]:
    """Change fields of a task, or its status where the table of transitions has a way."""
    wanted = changes_of(given, "result")
    status, project_id = wanted.pop("status", None), wanted.pop("project_id", None)
    if status in _REFUSABLE:
        before = await storage_of(ctx).read(lambda rows: rows.get("tasks", task_id, "editor"))
        if before["status"] != status and _way(before, status):  # no hook runs for an edit that may not be
            refusal = await veto_of(ctx, task_id, _REFUSABLE[status])
            if refusal is not None:
                raise refusal

    def work(rows: Rows) -> dict[str, Any]:
        task = rows.get("tasks", task_id, "editor")
        is_moved = project_id not in (None, task["project_id"])
        if is_moved:
            task = _move(rows, task, project_id)
        _check_links(rows, task["project_id"], wanted)
        stored = {name: int(value) if isinstance(value, bool) else value for name, value in wanted.items()}
        changed = {name: value for name, value in stored.items() if value != task[name]}
        _check_weaker(task, changed)
        fields = sorted([*changed, "project_id"] if is_moved else changed)
        if changed:
            task = rows.update("tasks", task_id, changed)
        if status is not None and status != task["status"]:
            task = _set_status(rows, task, status, given.get("result") or "")
            fields.append("status")
        return {"updated": task_id, "fields": fields, "status": task["status"], "title": task["title"]}

    return await storage_of(ctx).write(work)


def _asks_person(task: Mapping[str, Any]) -> bool:
    return bool(task["requires_approval"]) or task["verification_type"] == "human"


def _check_weaker(task: Row, changed: Mapping[str, Any]) -> None:
    """Raise `ToolFailure("conflict")` where an edit would take away that a person approves the result."""
    if _asks_person(task) and not _asks_person({**task, **changed}):
        raise ToolFailure(
            "conflict",
            f"a person approves the result of task {task['id']}: an edit does not take that away",
            hint="approve_task and skip_task ask the person; or create_task without it",
        )


def _move(rows: Rows, task: Row, project_id: str) -> Row:
    """Give a task with its notes and results to another project.

    Raises `ToolFailure("conflict")` for one that is tied to its project.
    """
    rows.get("projects", project_id, "editor")
    subtasks = rows.select("SELECT id FROM {tasks} AS t WHERE parent_task_id = ?", (task["id"],))
    ties = {
        "an agent is at work on it": task["status"] in CLAIMED,
        "it is a part of another task": task["parent_task_id"] is not None,
        "it has subtasks": bool(subtasks),
        "it depends on tasks": bool(needs_of(rows, task["id"])),
        "tasks depend on it": bool(dependents_of(rows, task["id"])),
        "it prefers a workspace of its project": task["preferred_workspace_id"] is not None,
        "hooks of its project can refuse it": _can_be_refused(rows, task),
    }
    if held := [reason for reason, is_tied in ties.items() if is_tied]:
        raise ToolFailure("conflict", f"task {task['id']} cannot move to project {project_id}: {', '.join(held)}")
    for table in ("contexts", "results"):
        for row in rows.select(f"SELECT id FROM {{{table}}} AS r WHERE task_id = ?", (task["id"],)):
            rows.move(table, row["id"], project_id)
    return rows.move("tasks", task["id"], project_id)


def _can_be_refused(rows: Rows, task: Row) -> bool:
    hooks = rows.select("SELECT trigger_config FROM {hooks} AS h WHERE project_id = ?", (task["project_id"],))
    return any(hook["trigger_config"]["type"] == "veto" for hook in hooks)


def _way(task: Row, status: Status) -> Sequence[Event]:
    """Return the events that an edit of the status stands for. Raises `ToolFailure("conflict")` where it may not be."""
    events = _EDITS.get((task["status"], status), ("ADMIN_RESTART",) if status == "READY" else ())
    if not events:
        reachable = [after for before, after in _EDITS if before == task["status"]]
        raise ToolFailure(
            "conflict",
            f"task {task['id']} is {task['status']}: it cannot be set {status}",
            hint=f"it can be set {', '.join(dict.fromkeys([*reachable, 'READY']))}",
            details={"status": task["status"], "legal_events": list(TRANSITIONS[task["status"]])},
        )
    if status == "COMPLETED" and (missing := missing_evidence(task)):
        raise ToolFailure("conflict", f"task {task['id']} is not shown to be done: {missing}", hint="use complete_task")
    return events


def _set_status(rows: Rows, task: Row, status: Status, result: str) -> Row:
    for event in _way(task, status):
        person = {"assigned_agent_id": rows.principal, "claimed_at": rows.now} if event == "ASSIGNED" else {}
        failed = {"error_message": result} if event in ("AGENT_FAILED", "VERIFY_FAILED") else {}
        task = fire(rows, task, event, **person, **failed)
    if status in _OVER and result:
        values: dict[str, Any] = {
            "agent_id": rows.principal,
            "result": status.lower(),
            "summary": result,
            "files_changed": [],
        }
        more: dict[str, Any] = {"error_message": result if status == "FAILED" else "", "tokens_used": 0, "evidence": []}
        rows.insert("results", {"project_id": task["project_id"], "task_id": task["id"], **values, **more})
    return task
