"""Views of tasks: one in full, or a list."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

from pydantic import Field

from toolcrib.plugin import Context, Record, ToolFailure, tool

from .._records import ProjectId, date_of, own_project, project_of
from .model import DONE, Board, Status, TaskType, Verification, board_of

__all__ = [
    "Change",
    "Task",
    "TaskLine",
    "TaskList",
    "get_task",
    "list_tasks",
    "task_of",
]

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
