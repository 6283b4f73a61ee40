"""Tools that read what a task has come to: its result, its changes, its error."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolcrib.plugin import Context, Row, Rows, ToolFailure

from ..operations import OF_TASK, queue_tool, storage_of, transaction_tool
from ..runs.branches import task_repository
from ..state import date_of
from .work import places_of

_ADVICE: Final[Mapping[str, tuple[str, str]]] = {
    r"rate.?limit|429|overloaded": ("rate_limit", "wait, or run fewer agents at a time"),
    r"token|context (?:length|window)|budget": ("tokens", "split the task, or raise the budget of the project"),
    r"time.?out|timed out": ("timeout", "split the task, or give its commands more time"),
    r"permission|denied|forbidden|401|403": ("permission", "check the profile's tools and the rules of the session"),
    r"conflict|merge": ("merge_conflict", "sync_workspaces, then restart_task"),
    r"test|assert": ("tests", "reopen_with_feedback with the failing test"),
}
"""Pattern of an error message → its type, and what helps."""


@transaction_tool("x.task.result", "tasks", "read", OF_TASK, ["task_id"])
def get_task_result(rows: Rows, task_id: str) -> dict[str, Any]:
    """Get the last result of a task: summary, changed files, tokens, and the evidence that was checked."""
    rows.get("tasks", task_id)
    row = _last_result(rows, task_id)
    if row is None:
        raise ToolFailure("not_found", f"task {task_id} has no result yet")
    names = (
        "task_id",
        "agent_id",
        "result",
        "summary",
        "files_changed",
        "error_message",
        "tokens_used",
        "evidence",
    )
    return {**{name: row[name] for name in names}, "time": date_of(row["created_at"])}


def _last_result(rows: Rows, task_id: str) -> Row | None:
    sql = "SELECT * FROM {results} AS r WHERE task_id = ? ORDER BY created_at DESC, id LIMIT 1"
    found = rows.select(sql, (task_id,))
    return found[0] if found else None


@queue_tool("x.task.diff", "tasks", "read", OF_TASK, ["task_id"], needs=["workspace"])
async def get_task_diff(ctx: Context, task_id: str) -> dict[str, Any]:
    """Show what the branch of a task changes: since its work began, else against the default branch of its project."""

    def work(rows: Rows) -> tuple[Row, Row, list[str]]:
        task = rows.get("tasks", task_id)
        return task, rows.get("projects", task["project_id"]), places_of(rows, task) or ["."]

    task, project, places = await storage_of(ctx).read(work)
    if not task["branch_name"]:
        raise ToolFailure(
            "not_found", f"task {task_id} has no branch", hint="complete_task takes the branch of a result"
        )
    branch, default = task["branch_name"], project["repo_default_branch"]
    folder, start = await _start_of(ctx, task, default, places)
    arguments: dict[str, Any] = {"repo": folder, "ref1": start, "ref2": branch}
    result = await ctx.call("git_diff", arguments)
    if result.error is not None:
        raise ToolFailure(result.error.code, result.error.message, hint=result.error.hint)
    return {"task_id": task_id, "diff": result.text, "branch": task["branch_name"]}


async def _start_of(ctx: Context, task: Row, default: str, places: Sequence[str]) -> tuple[str, str]:
    """Return the first workspace whose repository has the branch of a task, and the commit where its work began.

    A run keeps that commit: its branch can hold newer work of other workspaces, which this default branch has not yet.
    Without one it is the commit where the branch left the default branch.
    """
    branch, begin = task["branch_name"], task["baseline"].get("begin", "")
    for place in places:
        repository = await task_repository(ctx, place, default)
        if repository is not None and await repository.has(f"refs/heads/{branch}"):
            if begin and not (await repository.run("merge-base", "--is-ancestor", begin, branch)).status:
                return place, begin
            found = await repository.run("merge-base", default, branch)
            return place, default if found.status else found.text
    return places[0], default


@transaction_tool("x.task.error", "agent", "read", OF_TASK, ["task_id"])
def get_agent_error(rows: Rows, task_id: str) -> dict[str, Any]:
    """Tell why the last agent failed on a task: the kind of error, its message, and what helps."""
    task = rows.get("tasks", task_id)
    shown = {
        "task_id": task_id,
        "title": task["title"],
        "status": task["status"],
        "retries": f"{task['retry_count']} / {task['max_retries']}",
    }
    row = _last_result(rows, task_id)
    message = (row["error_message"] if row else "") or task["error_message"]
    if not message:
        return {**shown, "message": "no agent failed on this task"}
    kinds = (advice for pattern, advice in _ADVICE.items() if re.search(pattern, message, re.IGNORECASE))
    kind, fix = next(kinds, ("unknown", "read the message; reopen_with_feedback or skip_task"))
    return {
        **shown,
        "result": row["result"] if row else "failed",
        "error_type": kind,
        "error_message": message[:2000],
        "suggested_fix": fix,
        "agent_summary": (row["summary"] if row else "")[:1000],
    }
