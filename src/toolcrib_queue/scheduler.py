"""Scheduler: which agent gets which task, as a pure function of a snapshot; and the tick that keeps the queue going.

    assign = snapshot_of (reads) ─> schedule (pure) ─> claim of each, in one transaction

Projects share the idle agents by weight: with weights 2 and 1 the first gets two thirds of the tokens of the last 24 h.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from toolcrib.plugin import Row, Rows

from .model import CLAIMED
from .state import LEASE_SECONDS, claim, fire, settle

_WINDOW: Final = 86_400.0
"""Seconds in which the tokens of projects are compared."""
_BATCH: Final = 500
"""Tasks of one kind that a tick changes."""
_HELD: Final = (
    "SELECT 1 FROM {dependencies} AS d JOIN {tasks} AS other ON other.id = d.depends_on"
    " WHERE d.task_id = t.id AND d.type IN ('blocks', 'parent') AND other.status <> 'COMPLETED'"
)
"""Condition for the tasks that hold task `t` back."""


_WRITABLE: Final = "project_id IN (SELECT id FROM {projects} AS p)"
_DUE: Final[Mapping[str, tuple[str, bool]]] = {
    # A lease ends in the past, or so far ahead that the clock was set back since it was given.
    "recovered": (
        f"status IN ('ASSIGNED', 'IN_PROGRESS') AND lease_until - ? NOT BETWEEN 0 AND {2 * LEASE_SECONDS}",
        True,
    ),
    "unanswered": ("status = 'WAITING_INPUT' AND lease_until < ?", True),
    "resumed": ("status = 'PAUSED' AND resume_after <= ?", True),
    "retried": ("status = 'FAILED' AND archived_at IS NULL", False),
    "promoted": (f"status = 'DEFINED' AND archived_at IS NULL AND NOT EXISTS ({_HELD})", False),
}
"""Actions of a tick → the condition of their tasks, and whether it takes the time."""


class ReadyTask(Struct, frozen=True, kw_only=True):
    """A task that can be assigned."""

    id: str
    priority: int
    preferred_workspace_id: str | None = None


class ProjectState(Struct, frozen=True, kw_only=True):
    """A project as the scheduler sees it."""

    id: str
    status: str = "ACTIVE"
    credit_weight: float = 1.0
    max_concurrent_agents: int = 2
    running: int = 0
    """Tasks of it that agents have."""
    completed: int = 0
    """Tasks that it completed in the window."""
    used: int = 0
    """Tokens that it used in the window."""
    total_used: int = 0
    budget_limit: int | None = None
    ready: tuple[ReadyTask, ...] = ()
    workspaces: tuple[str, ...] = ()
    """Free ones."""
    has_workspaces: bool = False


class Snapshot(Struct, frozen=True, kw_only=True):
    """The queue at one moment."""

    agents: tuple[str, ...]
    """Idle ones, in the order in which they get work."""
    projects: tuple[ProjectState, ...]
    is_paused: bool = False


class Assignment(Struct, frozen=True, kw_only=True):
    """A task for an agent."""

    task_id: str
    agent_id: str
    project_id: str
    workspace_id: str | None


class _Room(Struct):
    """Remaining capacity of a project while assignments are made."""

    project: ProjectState
    ready: list[ReadyTask]
    workspaces: list[str]
    running: int
    taken: int = field(default=0)

    @property
    def is_open(self) -> bool:
        project = self.project
        has_budget = project.budget_limit is None or project.total_used < project.budget_limit
        has_place = bool(self.workspaces) or not project.has_workspaces
        is_free = self.running < project.max_concurrent_agents
        return project.status == "ACTIVE" and bool(self.ready) and has_budget and has_place and is_free


def schedule(snapshot: Snapshot) -> tuple[Assignment, ...]:
    """Return the assignments of a snapshot: each idle agent gets at most one task, each task goes to one agent.

    A project that completed nothing in the window comes first, then the one that is furthest below its share of tokens
    by `credit_weight`. In a project, tasks come by priority and id, in their preferred workspace where it is free.
    """
    if snapshot.is_paused:
        return ()
    rooms = [
        _Room(one, sorted(one.ready, key=lambda task: (task.priority, task.id)), list(one.workspaces), one.running)
        for one in snapshot.projects
    ]
    made: list[Assignment] = []
    for agent in dict.fromkeys(snapshot.agents):
        open_rooms = [room for room in rooms if room.is_open]
        if not open_rooms:
            break
        weight = sum(room.project.credit_weight for room in open_rooms) or 1.0
        used = sum(room.project.used for room in open_rooms) or 1
        room = min(open_rooms, key=lambda one: _rank(one, weight, used))
        task = room.ready.pop(0)
        workspace: str | None = None
        if room.project.has_workspaces:
            preferred = task.preferred_workspace_id
            workspace = preferred if preferred in room.workspaces else room.workspaces[0]
            room.workspaces.remove(workspace)
        room.running += 1
        room.taken += 1
        made.append(Assignment(task_id=task.id, agent_id=agent, project_id=room.project.id, workspace_id=workspace))
    return tuple(made)


def _rank(room: _Room, weight: float, used: int) -> tuple[bool, float, int, str]:
    """Order projects, least first, without a look at their tasks: `snapshot_of` relies on that."""
    project = room.project
    below = project.used / used - project.credit_weight / weight
    return bool(project.completed or room.taken), below, room.running, project.id


def _everywhere(folder: str) -> bool:
    return True


def snapshot_of(
    rows: Rows,
    agents: Sequence[str],
    *,
    project_id: str = "",
    is_paused: bool = False,
    reaches: Callable[[str], bool] = _everywhere,
) -> Snapshot:
    """Read what the scheduler needs for these idle agents, who work in folders that `reaches` holds for.

    Tasks are read of those projects alone that get an agent. Which ones they are depends on the number of ready tasks,
    not on the tasks: a schedule of nameless ones tells how many each project gets, and only so many are read.
    """
    counted = tuple(_projects(rows, len(agents), project_id, reaches))
    draft = Snapshot(agents=tuple(agents), projects=counted, is_paused=is_paused)
    wanted = Counter(one.project_id for one in schedule(draft))
    projects = [replace(one, ready=_ready(rows, one.id, wanted[one.id])) for one in counted if one.id in wanted]
    return replace(draft, projects=tuple(projects))


def _ready(rows: Rows, project_id: str, number: int) -> tuple[ReadyTask, ...]:
    """Return the first ready tasks of a project."""
    # By all columns of the index, though two are NULL in every row here: otherwise each ready task is read and sorted.
    ids = (
        "SELECT id FROM {tasks} AS t WHERE project_id = ? AND status = 'READY' AND archived_at IS NULL"
        " ORDER BY archived_at, deleted_at, priority, id LIMIT ?"
    )
    sql = f"SELECT id, priority, preferred_workspace_id FROM {{tasks}} AS one WHERE id IN ({ids}) ORDER BY priority, id"
    return tuple(ReadyTask(**task) for task in rows.select(sql, (project_id, number)))


def takes_part(rows: Rows, project: Row, workspaces: Sequence[Row]) -> bool:
    """Whether the caller began a project, or gave it one of its workspaces: others may make it an owner unasked."""
    began = project["created_by"] == rows.principal and rows.role(project["id"]) == "owner"
    return began or any(one["created_by"] == rows.principal for one in workspaces)


def _projects(rows: Rows, most: int, project_id: str, reaches: Callable[[str], bool]) -> Iterator[ProjectState]:
    """Return the active projects with ready tasks, with a nameless one for each that could be assigned.

    A project of others that is not named counts once the caller has given it a workspace: it may be shared unasked, and
    its tasks declare commands.
    """
    chosen, given = (" AND project_id = ?", (project_id,)) if project_id else ("", ())
    found = rows.select(f"SELECT * FROM {{projects}} AS p WHERE status = 'ACTIVE'{chosen} ORDER BY id", given)
    marks = ", ".join("?" * len(CLAIMED))
    counting = "SELECT project_id, count(*) AS n FROM {{tasks}} AS t WHERE status IN ({}){} GROUP BY project_id"
    claimed, ready = (
        {row["project_id"]: int(row["n"]) for row in rows.select(sql, values)}
        for sql, values in (
            (counting.format(marks, chosen), (*CLAIMED, *given)),
            (counting.format("?", chosen), ("READY", *given)),
        )
    )
    sql = (
        "SELECT project_id, sum(CASE result WHEN 'completed' THEN 1 ELSE 0 END) AS n, sum(tokens_used) AS used"
        f" FROM {{results}} AS r WHERE created_at > ?{chosen} GROUP BY project_id"
    )
    recent = {row["project_id"]: row for row in rows.select(sql, (rows.now - _WINDOW, *given))}
    columns = "id, project_id, workspace_path, locked_by_task_id, created_by"
    places = rows.select(f"SELECT {columns} FROM {{workspaces}} AS w ORDER BY created_at, id")
    for row in found:
        own = [place for place in places if place["project_id"] == row["id"]]
        if not project_id and not takes_part(rows, row, own):
            continue
        done = recent.get(row["id"], {"n": 0, "used": 0})
        yield ProjectState(
            id=row["id"],
            status=row["status"],
            credit_weight=row["credit_weight"],
            max_concurrent_agents=row["max_concurrent_agents"],
            running=claimed.get(row["id"], 0),
            completed=int(done["n"]),
            used=int(done["used"]),
            total_used=row["total_tokens_used"],
            budget_limit=row["budget_limit"],
            ready=(ReadyTask(id="", priority=0),) * min(most, ready.get(row["id"], 0)),
            workspaces=tuple(
                place["id"] for place in own if place["locked_by_task_id"] is None and reaches(place["workspace_path"])
            ),
            has_workspaces=bool(own),
        )


def assign(
    rows: Rows,
    agents: Sequence[str],
    *,
    project_id: str = "",
    is_paused: bool = False,
    lease: float = LEASE_SECONDS,
    reaches: Callable[[str], bool] = _everywhere,
) -> list[Row]:
    """Claim what the scheduler assigns to these idle agents, for a lease in seconds; return the tasks."""
    planned = schedule(snapshot_of(rows, agents, project_id=project_id, is_paused=is_paused, reaches=reaches))
    return [claim(rows, rows.get("tasks", one.task_id), one.agent_id, one.workspace_id, lease=lease) for one in planned]


def tick(rows: Rows) -> dict[str, int]:
    """Move on the tasks whose time has come: expired claims, pauses and questions, retries, met dependencies.

    Return how many of each. It changes nothing that is not due: any process may run it at any time.
    """
    counts = dict.fromkeys(_DUE, 0)
    for name, task in _due_tasks(rows):
        counts[name] += _move(rows, name, task)
    return counts


def has_due_task(rows: Rows) -> bool:
    """Whether `tick` would move a task on."""
    return next(_due_tasks(rows), None) is not None


def _due_tasks(rows: Rows) -> Iterator[tuple[str, Row]]:
    """Yield the tasks whose time has come that the caller may change, each with what happens to it."""
    for name, (condition, is_timed) in _DUE.items():
        sql = f"SELECT * FROM {{tasks}} AS t WHERE {_WRITABLE} AND {condition} ORDER BY priority, id LIMIT ?"
        for task in rows.select(sql, (*((rows.now,) if is_timed else ()), _BATCH)):
            if rows.role(task["project_id"]) != "viewer":
                yield name, task


def _move(rows: Rows, name: str, task: Row) -> int:
    if name == "recovered":
        fire(rows, task, "RECOVERY")
    elif name == "unanswered":
        fire(rows, task, "INPUT_TIMEOUT")
    elif name == "resumed":
        fire(rows, task, "RESUME_TIMER")
    elif name == "promoted":
        settle(rows, task)
    elif task["retry_count"] < task["max_retries"]:
        fire(rows, task, "RETRY", retry_count=task["retry_count"] + 1)
    else:
        fire(rows, task, "MAX_RETRIES")
    return 1
