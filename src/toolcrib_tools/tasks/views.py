"""Tasks: their fields, the rules between them (dependencies exist and have no cycles), and their views."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

from pydantic import Field

from toolcrib.plugin import Context, Record, Records, ToolFailure, tool

from .._records import ProjectId, Values, change, date_of, names_of, own_project, project_of

__all__ = [
    "DONE",
    "MOST_TASKS",
    "OPEN",
    "Board",
    "Change",
    "Status",
    "Task",
    "TaskLine",
    "TaskList",
    "TaskType",
    "Verification",
    "board_of",
    "get_task",
    "list_tasks",
    "task_of",
]

Status = Literal["DEFINED", "READY", "IN_PROGRESS", "COMPLETED", "FAILED", "BLOCKED"]
TaskType = Literal["feature", "bugfix", "refactor", "test", "docs", "chore", "research", "plan"]
Verification = Literal["auto_test", "qa_agent", "human"]

OPEN: Final = ("DEFINED", "READY", "IN_PROGRESS", "BLOCKED")
DONE: Final = ("COMPLETED", "FAILED")
MOST_TASKS: Final = 10_000
"""Tasks of one owner, of all projects."""
_HISTORY: Final = 50
"""Changes that a task remembers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """All tasks of one owner, as they were when it was read; it knows what it has written since. Lives for one call."""

    records: Records
    tasks: dict[str, Record] = field(default_factory=dict[str, Record])

    def find(self, task_id: str) -> Record:
        """Return a task; raises `ToolFailure` with those that there are."""
        found = self.tasks.get(task_id.strip().removeprefix("#"))
        if found is None:
            there = sorted(self.tasks, key=int)
            raise ToolFailure("not_found", f"there is no task {task_id!r}", hint=names_of(there))
        return found

    def check_links(self, id: str, depends_on: Sequence[str], parent_id: str) -> tuple[list[str], str]:
        """Return a task's dependencies and parent, by id.

        Raises `ToolFailure` for an unknown task, and for a cycle of dependencies.
        """
        wanted = list(dict.fromkeys(self.find(other).id for other in depends_on))
        parent = self.find(parent_id).id if parent_id else ""
        self._check_circle(id, "depends_on", {id: wanted})
        self._check_circle(id, "parent_id", {id: [parent] if parent else []})
        return wanted, parent

    def unmet(self, depends_on: Sequence[str]) -> list[str]:
        """Return the tasks that are not completed; a deleted one counts as completed."""
        return [other for other in depends_on if other in self.tasks and self._status(other) != "COMPLETED"]

    def children(self, id: str) -> list[str]:
        """Return the tasks that belong to one."""
        return [other for other, record in self.tasks.items() if record.value["parent_id"] == id]

    def dependents(self, id: str) -> list[str]:
        """Return the tasks that wait for one."""
        return [other for other, record in self.tasks.items() if id in record.value["depends_on"]]

    async def add(self, value: Values, *, group: str) -> Record:
        """Keep a new task."""
        if len(self.tasks) >= MOST_TASKS:
            raise ToolFailure("too_large", f"there are {MOST_TASKS:,} tasks already")
        record = await self.records.add(value, group=group, text=_words(value))
        self.tasks[record.id] = record
        return record

    async def edit(self, record: Record, changes: Mapping[str, Any], *, group: str | None = None) -> Record:
        """Change a task, and remember what was changed."""

        def make(before: Values | None) -> Values:
            if before is None:
                raise ToolFailure("not_found", f"task {record.id} was deleted meanwhile")
            if "status" in changes and before["status"] != record.value["status"]:
                raise ToolFailure(
                    "conflict",
                    f"task {record.id} is {before['status']} by now, not {record.value['status']}",
                    hint="get_task shows what became of it",
                )
            entry = {"time": time.time(), **{name: changes[name] for name in changes if name != "description"}}
            return {**before, **changes, "history": [*before["history"], entry][-_HISTORY:]}

        kept = await change(self.records, record.id, make, group=record.group if group is None else group, text=_words)
        self.tasks[record.id] = kept
        return kept

    async def settle(self, id: str) -> tuple[list[str], list[str]]:
        """Make those who wait for a task ready, or blocked again; return the ids of both."""
        ready: list[str] = []
        blocked: list[str] = []
        for other in self.dependents(id):
            record = self.tasks[other]
            is_held = bool(self.unmet(record.value["depends_on"]))
            if is_held and record.value["status"] == "READY":
                await self.edit(record, {"status": "BLOCKED"})
                blocked.append(other)
            elif not is_held and record.value["status"] == "BLOCKED":
                await self.edit(record, {"status": "READY"})
                ready.append(other)
        return ready, blocked

    def _status(self, id: str) -> str:
        return str(self.tasks[id].value["status"])

    def _check_circle(self, id: str, key: str, new: Mapping[str, Sequence[str]]) -> None:
        """Follow the links from a task on; raise `ToolFailure` with the way that leads back to it."""
        ways = [[id]]
        seen: set[str] = set()
        while ways:
            way = ways.pop()
            for other in new.get(way[-1]) or self._linked(way[-1], key, new):
                if other == id:
                    shown = " → ".join([*way, id])
                    raise ToolFailure("tool_error", f"{key}: task {id} would wait for itself: {shown}")
                if other not in seen:
                    seen.add(other)
                    ways.append([*way, other])

    def _linked(self, id: str, key: str, new: Mapping[str, Sequence[str]]) -> Sequence[str]:
        if id in new or id not in self.tasks:
            return ()
        linked: str | list[str] = self.tasks[id].value[key]
        return [linked] if isinstance(linked, str) and linked else list(linked)


async def board_of(ctx: Context) -> Board:
    """Return the tasks of the calling session."""
    records = ctx.records("tasks")
    found = await records.list(limit=MOST_TASKS)
    return Board(records=records, tasks={record.id: record for record in found})


def _words(value: Mapping[str, Any]) -> str:
    return f"{value['title']} {value['title']} {value['description']}"


_ORDER: Final = {"IN_PROGRESS": 0, "READY": 1, "BLOCKED": 2, "DEFINED": 3, "FAILED": 4, "COMPLETED": 5}


class TaskLine(TypedDict):
    """A task in a list."""

    id: str
    title: str
    status: Status
    priority: NotRequired[int]
    task_type: NotRequired[TaskType | None]
    profile_id: NotRequired[str | None]
    depends_on: NotRequired[list[str]]
    waits_for: NotRequired[Annotated[list[str], Field(description="Those of depends_on that are not completed.")]]
    subtasks: NotRequired[list[Any]]


class Change(TypedDict):
    """Entry of a task's history."""

    time: str
    changed: dict[str, Any]


class Task(TypedDict):
    """A task in full."""

    id: str
    title: str
    description: str
    project_id: Annotated[str, Field(description="Empty for a task of no project.")]
    status: Status
    priority: int
    task_type: TaskType | None
    requires_approval: bool
    verification_type: Verification | None
    profile_id: str | None
    preferred_workspace_id: str | None
    attachments: list[str]
    depends_on: list[str]
    waits_for: list[str]
    needed_by: list[str]
    parent_id: str
    subtasks: list[str]
    retries: int
    max_retries: int
    result: str
    created: str
    changed: str
    history: list[Change]


class TaskList(TypedDict):
    """Those in progress first, then by priority."""

    tasks: list[TaskLine]
    total: int
    by_status: dict[str, int]


@tool(
    op="x.task.get",
    category="tasks",
    kind="read",
    open_world=False,
    tags=["task", "work", "details"],
    examples=[{"task_id": "12"}],
)
async def get_task(task_id: Annotated[str, Field(min_length=1)], ctx: Context) -> Task:
    """Get one task in full: its description, what it waits for, who waits for it, its result and its history.

    Args:
        task_id: Its id, as create_task and list_tasks tell it.
    """
    board = await board_of(ctx)
    return task_of(board, board.find(task_id))


@tool(
    op="x.task.list",
    explicit=["project_id"],
    category="tasks",
    kind="read",
    open_world=False,
    tags=["task", "todo", "left to do", "work", "backlog", "open"],
    examples=[
        {},
        {"status": "BLOCKED", "show_dependencies": True},
        {"display_mode": "tree", "include_completed": True},
    ],
    policy={"edge_cases": ["Without arguments: the tasks of this project that are not done."]},
)
async def list_tasks(
    ctx: Context,
    project_id: ProjectId = "",
    status: Status | None = None,
    show_all: bool = False,
    include_completed: bool = False,
    completed_only: bool = False,
    display_mode: Literal["flat", "tree", "compact"] = "flat",
    show_dependencies: bool = False,
) -> TaskList:
    """List tasks, those in progress first, then by priority.

    Args:
        project_id: The project; that of this session when not given.
        status: Only those in this state.
        show_all: The tasks of all projects, those that are done too.
        include_completed: Also those that are done: COMPLETED or FAILED.
        completed_only: Only those that are done.
        display_mode: flat; tree puts subtasks below their task; compact tells no more than id, title and status.
        show_dependencies: Also tell what each waits for.
    """
    if completed_only and status is not None and status not in DONE:
        raise ToolFailure("invalid_arguments", f"completed_only and status {status} leave nothing to list")
    board = await board_of(ctx)
    project = project_of(ctx, project_id or own_project(ctx))
    shown = [
        record
        for record in board.tasks.values()
        if (show_all and not project_id) or record.group == project
        if status in (None, record.value["status"])
        if not completed_only or record.value["status"] in DONE
        if record.value["status"] not in DONE or status or completed_only or include_completed or show_all
    ]
    shown.sort(key=_order)
    lines = {record.id: _line(board, record, display_mode, show_dependencies) for record in shown}
    top = list(lines.values())
    if display_mode == "tree":
        for record in reversed(shown):
            _put_below(lines, record.id, record.value["parent_id"])
        top = [lines[record.id] for record in shown if record.value["parent_id"] not in lines]
    return TaskList(tasks=top, total=len(shown), by_status=dict(Counter(one.value["status"] for one in shown)))


def task_of(board: Board, record: Record) -> Task:
    """Return the full view of a task."""
    value = record.value
    fields: dict[str, Any] = {
        **value,
        "id": record.id,
        "waits_for": board.unmet(value["depends_on"]),
        "needed_by": sorted(board.dependents(record.id), key=int),
        "subtasks": sorted(board.children(record.id), key=int),
        "created": date_of(record.created),
        "changed": date_of(record.updated),
        "history": [
            Change(time=date_of(entry["time"]), changed={name: entry[name] for name in entry if name != "time"})
            for entry in value["history"]
        ],
    }
    return Task(**fields)


def _order(record: Record) -> tuple[int, int, int]:
    return _ORDER[record.value["status"]], record.value["priority"], int(record.id)


def _line(board: Board, record: Record, display_mode: str, show_dependencies: bool) -> TaskLine:
    value = record.value
    line = TaskLine(id=record.id, title=value["title"], status=value["status"])
    if display_mode != "compact":
        line.update(priority=value["priority"], task_type=value["task_type"], profile_id=value["profile_id"])
    if show_dependencies:
        line.update(depends_on=list(value["depends_on"]), waits_for=board.unmet(value["depends_on"]))
    return line


def _put_below(lines: dict[str, TaskLine], id: str, parent_id: str) -> None:
    if parent_id in lines:
        lines[parent_id]["subtasks"] = [lines[id], *lines[parent_id].get("subtasks", [])]
