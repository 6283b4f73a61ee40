"""Publication of a result before its task ends: a plain push of its branch, or a pull request.

    tools:
      queue:
        completion: pull_request # merge (the default), push

Both are calls of the session: its rules decide, and what they ask is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolcrib.plugin import Context, Row, ToolFailure, as_mapping

__all__ = ["completion_of", "publish_branch"]

_COMPLETIONS: Final = ("merge", "push", "pull_request")
_ORIGIN: Final = "origin"


def completion_of(settings: Any) -> str:
    """Return the completion of runs; `settings` is the configuration under `tools: {queue: …}`.

    Raises `ToolFailure("unavailable")` for a value that there is not.
    """
    given = as_mapping(settings).get("completion")
    if given is None:
        return _COMPLETIONS[0]
    if given not in _COMPLETIONS:
        message = f"tools: {{queue: {{completion: {given!r}}}}} is unknown"
        raise ToolFailure("unavailable", message, hint=f"it is {', '.join(_COMPLETIONS)}")
    return str(given)


async def publish_branch(ctx: Context, completion: str, task: Row, folder: str, target: str, summary: str) -> str:
    """Push the branch of a task to `origin`, and open a pull request if that is wanted; return its address.

    Raises `ToolFailure` where either cannot be done, or is refused.
    """
    branch = task["branch_name"]
    await _call(ctx, "git_push", {"branch": branch, "remote": _ORIGIN, "repo": folder})
    if completion != "pull_request" or task["pr_url"]:
        return str(task["pr_url"] or "")  # a push goes to the open pull request of an earlier attempt
    words = {"title": task["title"], "body": f"{summary}\n\nTask: {task['id']}"}
    opened = await _call(ctx, "git_create_pr", {**words, "branch": branch, "base": target, "repo": folder})
    return opened.strip().rpartition("\n")[2]


async def _call(ctx: Context, tool: str, arguments: Mapping[str, Any]) -> str:
    result = await ctx.call(tool, arguments)
    if result.error is not None:
        raise ToolFailure(result.error.code, f"{tool}: {result.error.message}", hint=result.error.hint)
    return result.text
