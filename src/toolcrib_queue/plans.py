"""Plans: a file of steps that a task ended with, each of which becomes a task once a person approved it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any, Final

from toolcrib.plugin import Context, Row, Rows, ToolFailure
from toolcrib_tools._workspace.place import workspace_of
from toolcrib_tools.git.repository import Repository

from .events import publish
from .operations import id_of, queue_tool, storage_of
from .state import fire

_ARCHIVE: Final = "plans/archived"
"""Folder for plans that were taken up: tools do not write into `.claude`."""
_NO_COMMIT: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""Empty tree of git: everything was added since then."""
_STEPS: Final = 20
"""Steps of a plan that become subtasks."""
_PLANS: Final = (".claude/plan.md", "plan.md", "docs/plans/*.md", "plans/*.md", "docs/plan.md")
_STEP: Final = re.compile(
    r"^(?:#{2,3}\s+(?:(?:step|phase)\s*\d*[:.)]?\s*|\d+[:.)]\s*)|\d+[.)]\s+)(?P<title>\S.*)$", re.IGNORECASE
)
"""A step of a plan: `## Step 1: …`, `### 2. …`, or an entry of a numbered list at the left margin."""


@queue_tool(
    "x.plan.process",
    "tasks",
    "write",
    {"task_id": id_of("task"), "workspace_path": {"type": "string", "minLength": 1, "maxLength": 1000}},
    ["task_id", "workspace_path"],
    idempotent=False,
    needs=["workspace"],
)
async def process_task_completion(ctx: Context, task_id: str, workspace_path: str) -> dict[str, Any]:
    """Look for a plan in the workspace of a task in VERIFYING; its steps wait for approval, the file is archived."""

    def look(rows: Rows) -> Row:
        return rows.get("tasks", task_id, "editor")

    task = await storage_of(ctx).read(look)
    if task["is_plan_subtask"]:
        return {"plan_found": False, "reason": f"task {task_id} comes from a plan itself"}
    found = await _plan_in(ctx, workspace_path)
    if found is None:
        return {"plan_found": False, "reason": f"no plan in {', '.join(_PLANS)}"}
    file, text = found
    steps = _plan_steps(text)
    if not steps:
        return {"plan_found": False, "reason": f"{file} has no steps", "plan_file": file}
    workspace, base = workspace_of(ctx), workspace_path.rstrip("/")
    if text in await _archived(ctx, base):
        return {"plan_found": False, "reason": f"{file} is the plan of an earlier task", "plan_file": file}
    archived = f"{_ARCHIVE}/{task_id}-plan.md"

    def work(rows: Rows) -> None:
        changed = fire(rows, rows.get("tasks", task_id, "editor"), "PLAN_FOUND", plan=steps)
        publish(rows, "plan.found", changed, steps=len(steps))

    await storage_of(ctx).write(work)
    await workspace.write(f"{base}/{archived}", text.encode())
    with suppress(ToolFailure):  # tools do not change .claude; its plan is known by its text from now on
        await workspace.remove(f"{base}/{file}")
    described = sum(bool(step["description"].strip()) for step in steps)
    return {
        "plan_found": True,
        "steps_count": len(steps),
        "plan_file": file,
        "archived_path": archived,
        "quality_score": round(described / len(steps), 2),
    }


async def _archived(ctx: Context, base: str) -> set[str]:
    """Return the texts of the plans that were taken up in a workspace."""
    workspace = workspace_of(ctx)
    if await workspace.stat(f"{base}/{_ARCHIVE}") is None:
        return set()
    entries = await workspace.list(f"{base}/{_ARCHIVE}")
    return {(await workspace.read(one.path)).decode("utf-8", "replace") for one in entries if one.kind == "file"}


async def _plan_in(ctx: Context, folder: str) -> tuple[str, str] | None:
    """Return the first plan below a folder: its path there, and its text."""
    workspace, base = workspace_of(ctx), folder.rstrip("/")
    for pattern in _PLANS:
        parent, _, name = pattern.rpartition("/")
        if name != "*.md":
            paths: Sequence[str] = [pattern]
        else:
            at = await workspace.stat(f"{base}/{parent}")
            if at is None or at.kind != "folder":
                continue
            names = [entry.path.rpartition("/")[2] for entry in await workspace.list(f"{base}/{parent}")]
            paths = [f"{parent}/{one}" for one in names if one.endswith(".md")]
        for path in paths:
            entry = await workspace.stat(f"{base}/{path}")
            if entry is not None and entry.kind == "file":
                return path, (await workspace.read(f"{base}/{path}", limit=1_000_000)).decode("utf-8", "replace")
    return None


async def planned_in(repository: Repository, start: str, branch: str) -> list[dict[str, str]]:
    """Return the steps of the first plan that a branch added or changed since the commit `start`; none without one."""
    words = ("diff", "--name-only", "-z", "--diff-filter=AMR", start or _NO_COMMIT, branch, "--")
    changed = (await repository.ask(*words)).split("\0")
    for pattern in _PLANS:
        for path in changed:
            if fnmatchcase(path, pattern) and (steps := _plan_steps(await repository.ask("show", f"{branch}:{path}"))):
                return steps
    return []


def _plan_steps(text: str) -> list[dict[str, str]]:
    """Return the steps of a plan, at most 20: the title of each, and the text below it."""
    steps: list[dict[str, str]] = []
    for line in text.splitlines():
        found = _STEP.match(line)
        if found is not None:
            steps.append({"title": found["title"].strip(" *#"), "description": ""})
        elif steps and not line.startswith("# "):
            steps[-1]["description"] += f"{line}\n"
    return [{**step, "description": step["description"].strip()} for step in steps[:_STEPS]]
