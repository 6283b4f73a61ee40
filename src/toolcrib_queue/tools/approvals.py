"""Tools for a person who says yes or no to what a task ended with: its result, or its plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from toolcrib.plugin import Context, Row, Rows, ToolFailure, rehearsal
from toolcrib_tools.git.repository import Repository

from ..events import publish
from ..model import SCHEMA, TRANSITIONS, Event
from ..operations import OF_TASK, TEXT, Operation, queue_tool, storage_of, transaction_tool
from ..runs.branches import check_merge, merge_branch, repository_with
from ..state import fire, note
from .tasks import insert_task
from .work import places_of

T = TypeVar("T")

_FEEDBACK: Final = {**OF_TASK, "feedback": TEXT}


def _approval(op: str, event: Event) -> Callable[[Operation], Operation]:
    """Return the decorator of a tool by which a person completes a task."""

    def end(rows: Rows, task_id: str) -> None:
        fire(rows, rows.get("tasks", task_id, "editor"), event)

    return queue_tool(
        op, "tasks", "write", OF_TASK, ["task_id"], idempotent=False, approval="always", check=rehearsal(SCHEMA, end)
    )


@_approval("x.task.approve", "PR_MERGED")
async def approve_task(ctx: Context, task_id: str) -> dict[str, Any]:
    """Approve the result of a task that is AWAITING_APPROVAL: it is COMPLETED. A person is asked every time.

    Its branch is merged into the default branch of the project, but for a pull request, which is merged where it is.
    """
    done, merged = await _complete(ctx, task_id, "PR_MERGED", lambda rows, task: task)
    return {"approved": task_id, "title": done["title"], **merged}


async def _complete(
    ctx: Context, task_id: str, event: Event, work: Callable[[Rows, Row], T]
) -> tuple[T, dict[str, Any]]:
    """Complete a task by a person's yes, with `work` in the same transaction, and merge its branch.

    Raises `ToolFailure("conflict")`, and changes nothing, for a branch that cannot be merged as things are.
    """

    def look(rows: Rows) -> tuple[Row, str, list[str]]:
        task = rows.get("tasks", task_id, "editor")
        return task, rows.get("projects", task["project_id"])["repo_default_branch"], places_of(rows, task)

    def end(rows: Rows) -> T:
        return work(rows, fire(rows, rows.get("tasks", task_id, "editor"), event))

    task, target, places = await storage_of(ctx).read(look)
    branch = "" if task["pr_url"] else task["branch_name"] or ""
    repository = await repository_with(ctx, branch, target, places) if branch else None
    if repository is not None and event in TRANSITIONS[task["status"]]:
        await check_merge(repository, branch)
    done = await storage_of(ctx).write(end)
    if repository is None:
        return done, {"merged_into": None} if branch else {}
    return done, await merge_result(ctx, repository, task, branch)


async def merge_result(ctx: Context, repository: Repository, task: Row, branch: str) -> dict[str, Any]:
    """Merge the branch of a task that is COMPLETED; return what its result says about it.

    A default branch that moved meanwhile, so that they conflict, is a warning with the files: the task stays as it is.
    """
    try:
        return {"merged_into": await merge_branch(repository, task, branch) or None}
    except ToolFailure as failure:
        reason = failure.message
    await storage_of(ctx).write(lambda rows: publish(rows, "task.merge_failed", task, branch=branch, reason=reason))
    return {"merged_into": None, "warning": reason}


@_approval("x.plan.approve", "PLAN_APPROVED")
async def approve_plan(ctx: Context, task_id: str) -> dict[str, Any]:
    """Approve the plan of a task: each step becomes a subtask that waits for the one before. A person is asked.

    The branch of the task is merged as by approve_task, so that the subtasks begin with the plan.
    """

    def work(rows: Rows, task: Row) -> dict[str, Any]:
        made: list[Row] = []
        for step in task["plan"]:
            given: dict[str, Any] = {
                "description": step["description"],
                "priority": task["priority"],
                "parent_task_id": task_id,
                "profile_id": task["profile_id"],
                "preferred_workspace_id": task["preferred_workspace_id"],
                "depends_on": [made[-1]["id"]] if made else [],
                "is_plan_subtask": True,
            }
            made.append(insert_task(rows, task["project_id"], step["title"][:500], given))
        subtasks = [{"id": one["id"], "title": one["title"]} for one in made]
        return {"approved": task_id, "title": task["title"], "subtask_count": len(made), "subtasks": subtasks}

    done, merged = await _complete(ctx, task_id, "PLAN_APPROVED", work)
    return {**done, **merged}


@transaction_tool("x.plan.reject", "tasks", "write", _FEEDBACK, ["task_id", "feedback"], idempotent=False)
def reject_plan(rows: Rows, task_id: str, feedback: str) -> dict[str, Any]:
    """Reject the plan of a task: it is READY again, with the feedback for the next agent."""
    task = rows.get("tasks", task_id, "editor")
    changed = fire(rows, task, "PLAN_REJECTED", plan=[])
    note(rows, task, "feedback", feedback)
    return {"rejected": task_id, "title": changed["title"], "status": changed["status"], "feedback_added": True}


@transaction_tool("x.plan.delete", "tasks", "destructive", OF_TASK, ["task_id"], idempotent=False)
def delete_plan(rows: Rows, task_id: str) -> dict[str, Any]:
    """Delete the plan of a task; the task itself is COMPLETED without subtasks."""
    changed = fire(rows, rows.get("tasks", task_id, "editor"), "PLAN_DELETED", plan=[])
    return {"deleted": task_id, "title": changed["title"], "status": changed["status"]}
