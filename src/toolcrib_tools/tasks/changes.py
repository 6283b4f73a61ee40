"""Tools that create and change tasks, including the effects on dependent tasks."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypedDict

from pydantic import Field

from toolcrib.plugin import Context, Record, ToolFailure, tool

from .._records import ProjectId, project_of
from .views import DONE, OPEN, Board, Status, TaskType, Verification, board_of

__all__ = [
    "CreateReport",
    "Description",
    "EditReport",
    "Ids",
    "Name",
    "Priority",
    "Title",
    "create_task",
    "edit_task",
]

_NORMAL: Final = 100
"""Priority of a task that says none; a smaller number comes first."""

Title = Annotated[str, Field(min_length=1, max_length=500, pattern=r"\S")]
Description = Annotated[str, Field(max_length=50_000)]
Priority = Annotated[int, Field(ge=0, le=1_000_000)]
Ids = Annotated[list[str], Field(max_length=100)]
Name = Annotated[str, Field(max_length=200)]


class CreateReport(TypedDict):
    """The new task."""

    created: Annotated[str, Field(description="Its id.")]
    title: str
    status: Status
    waits_for: list[str]


class EditReport(TypedDict):
    """Outcome for a task and for those that wait for it."""

    updated: Annotated[str, Field(description="Its id.")]
    fields: Annotated[list[str], Field(description="What is another now than before.")]
    status: Status
    now_ready: Annotated[list[str], Field(description="Tasks that waited for it and need not any more.")]
    now_blocked: Annotated[list[str], Field(description="Tasks that were ready and wait for it again.")]
    note: str


@tool(
    op="x.task.create",
    category="tasks",
    kind="write",
    open_world=False,
    tags=["task", "todo", "work", "queue", "new"],
    examples=[
        {"title": "Fix the login redirect", "task_type": "bugfix", "priority": 10},
        {"title": "Announce the release", "depends_on": ["12", "13"]},
    ],
    policy={
        "do": ["list_tasks first: the task may be there already."],
        "edge_cases": ["A task that waits for others is BLOCKED until they are completed, then it becomes READY."],
    },
)
async def create_task(
    title: Title,
    ctx: Context,
    description: Description = "",
    project_id: ProjectId = "",
    priority: Priority = _NORMAL,
    task_type: TaskType | None = None,
    requires_approval: bool = False,
    depends_on: Ids | None = None,
    parent_id: str = "",
    profile_id: Name = "",
    preferred_workspace_id: Name = "",
    attachments: Annotated[list[str], Field(max_length=100)] | None = None,
) -> CreateReport:
    """Create a task, ready to be worked on unless it waits for others.

    Args:
        title: What is to be done, in a line.
        description: All that is needed to do it.
        project_id: The project; that of this session when not given.
        priority: Smaller numbers come first; 100 is normal.
        task_type: What kind of work it is.
        requires_approval: The user is asked before it may begin.
        depends_on: Ids of tasks that must be completed before.
        parent_id: Id of the task that it is a part of.
        profile_id: The agent that should do it.
        preferred_workspace_id: The workspace that it should be done in.
        attachments: Paths or links of what belongs to it.
    """
    board = await board_of(ctx)
    needed, parent = board.check_links("", depends_on or [], parent_id)
    unmet = board.unmet(needed)
    status: Status = "BLOCKED" if unmet else "READY"
    value: dict[str, Any] = {
        "title": title.strip(),
        "description": description,
        "project_id": project_id.strip(),
        "status": status,
        "priority": priority,
        "task_type": task_type,
        "requires_approval": requires_approval,
        "verification_type": None,
        "profile_id": profile_id or None,
        "preferred_workspace_id": preferred_workspace_id or None,
        "attachments": attachments or [],
        "depends_on": needed,
        "parent_id": parent,
        "retries": 0,
        "max_retries": 0,
        "result": "",
        "history": [],
    }
    record = await board.add(value, group=project_of(ctx, project_id))
    return CreateReport(created=record.id, title=value["title"], status=status, waits_for=unmet)


@tool(
    op="x.task.edit",
    explicit=["parent_id", "profile_id", "project_id"],
    category="tasks",
    kind="write",
    open_world=False,
    serial=True,
    tags=["task", "work", "status", "complete", "change"],
    examples=[
        {"task_id": "12", "status": "IN_PROGRESS"},
        {"task_id": "12", "status": "COMPLETED", "result": "Merged; all tests pass."},
        {"task_id": "14", "depends_on": ["12"], "priority": 5},
    ],
    policy={
        "do": ["Set a task IN_PROGRESS when you begin, COMPLETED or FAILED with a result when you end."],
        "edge_cases": [
            "A task that waits for others can neither begin nor be completed.",
            "A task that fails becomes READY again as long as it has retries left.",
            "Where the user has to approve or verify, he is asked; what he refuses is not changed.",
        ],
    },
)
async def edit_task(
    task_id: Annotated[str, Field(min_length=1)],
    ctx: Context,
    title: Title | None = None,
    description: Description | None = None,
    status: Status | None = None,
    result: Annotated[str, Field(max_length=50_000)] | None = None,
    priority: Priority | None = None,
    task_type: TaskType | Literal[""] | None = "",
    depends_on: Ids | None = None,
    parent_id: str | None = "",
    max_retries: Annotated[int, Field(ge=0, le=100)] | None = None,
    verification_type: Verification | None = None,
    profile_id: Name | None = "",
    project_id: ProjectId = "",
) -> EditReport:
    """Change a task. What is not given stays as it is.

    Args:
        task_id: Its id.
        title: What is to be done, in a line.
        description: All that is needed to do it.
        status: The state that it is in now.
        result: What came of it.
        priority: Smaller numbers come first; 100 is normal.
        task_type: What kind of work it is; null for none.
        depends_on: Ids of all tasks that must be completed before; an empty list lets it wait for none.
        parent_id: Id of the task that it is a part of; null for none.
        max_retries: How often it is made READY again when it fails.
        verification_type: Who says that it is completed: human asks the user, the others want a result.
        profile_id: The agent that should do it; null for none.
        project_id: The project that it moves to.
    """
    board = await board_of(ctx)
    record = board.find(task_id)
    given = {
        "title": None if title is None else title.strip(),
        "description": description,
        "status": status,
        "result": result,
        "priority": priority,
        "max_retries": max_retries,
        "verification_type": verification_type,
        "project_id": project_id.strip() or None,
    }
    may_be_none = {"task_type": task_type, "profile_id": profile_id}
    wanted: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    wanted |= {name: value for name, value in may_be_none.items() if value != ""}
    if depends_on is not None or parent_id != "":
        wanted |= _links(board, record, depends_on, parent_id)
    changes, note = _apply_status(board, record, wanted)
    await _ask(ctx, record, changes)
    return await _applied(ctx, board, record, changes, note)


def _links(board: Board, record: Record, depends_on: list[str] | None, parent_id: str | None) -> dict[str, Any]:
    old = record.value
    needed, parent = board.check_links(
        record.id,
        old["depends_on"] if depends_on is None else depends_on,
        old["parent_id"] if parent_id == "" else parent_id or "",
    )
    return {"depends_on": needed, "parent_id": parent}


def _apply_status(board: Board, record: Record, wanted: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the changes with their consequences, and a note about them.

    Raises `ToolFailure` for a state that the task cannot be in.
    """
    old = record.value
    changes = {name: value for name, value in wanted.items() if value != old[name]}
    new: dict[str, Any] = {**old, **changes}
    unmet = board.unmet(new["depends_on"])
    if unmet and new["status"] in ("IN_PROGRESS", "COMPLETED") and {"status", "depends_on"} & changes.keys():
        raise ToolFailure(
            "tool_error",
            f"task {record.id} waits for {', '.join(unmet)}, so it cannot be {new['status']}",
            hint="complete these first, or change depends_on",
        )
    is_checked = new["verification_type"] in ("auto_test", "qa_agent")
    if changes.get("status") == "COMPLETED" and is_checked and not str(new["result"]).strip():
        raise ToolFailure(
            "tool_error",
            f"task {record.id} is verified by {new['verification_type']}: it cannot be completed without a result",
            hint="say in result what was checked, and what came of it",
        )
    if changes.get("status") == "FAILED" and new["retries"] < new["max_retries"]:
        retries = new["retries"] + 1
        note = f"it failed, and is ready for retry {retries} of {new['max_retries']}"
        return {**changes, "status": "BLOCKED" if unmet else "READY", "retries": retries}, note
    if unmet and new["status"] == "READY":
        return {**changes, "status": "BLOCKED"}, f"it waits for {', '.join(unmet)}"
    if not unmet and new["status"] == "BLOCKED" and "depends_on" in changes:
        return {**changes, "status": "READY"}, "it waits for nothing any more"
    still_open = [other for other in board.children(record.id) if board.tasks[other].value["status"] in OPEN]
    if changes.get("status") in DONE and still_open:
        return changes, f"a part of it is still open: {', '.join(sorted(still_open, key=int))}"
    return changes, "" if changes else "nothing is another than before"


async def _ask(ctx: Context, record: Record, changes: dict[str, Any]) -> None:
    """Ask the user where a task may not begin or end without him; raises `ToolFailure` for a no."""
    new: dict[str, Any] = {**record.value, **changes}
    status = changes.get("status")
    if status == "IN_PROGRESS" and new["requires_approval"]:
        question = f"May work on task {record.id} begin: {new['title']}?"
    elif status == "COMPLETED" and new["verification_type"] == "human":
        came = f" What came of it: {new['result']}" if new["result"] else ""
        question = f"Is task {record.id} completed: {new['title']}?{came}"
    else:
        return
    answer = await ctx.clarify(question, ("yes", "no"))
    if answer.strip().casefold() != "yes":
        raise ToolFailure(
            "tool_error",
            f"the user did not agree that task {record.id} is {status}: {answer}",
            hint="the task is unchanged",
        )


async def _applied(ctx: Context, board: Board, record: Record, changes: dict[str, Any], note: str) -> EditReport:
    ready: list[str] = []
    blocked: list[str] = []
    if changes:
        group = project_of(ctx, changes["project_id"]) if "project_id" in changes else None
        record = await board.edit(record, changes, group=group)
        if "status" in changes:
            ready, blocked = await board.settle(record.id)
    return EditReport(
        updated=record.id,
        fields=sorted(changes),
        status=record.value["status"],
        now_ready=ready,
        now_blocked=blocked,
        note=note,
    )
