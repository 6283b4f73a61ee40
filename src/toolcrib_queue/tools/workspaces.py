"""Tools for the workspaces of a project: the folders that agents work in."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

from toolcrib.plugin import Context, Row, Rows, ToolFailure, invalid_argument
from toolcrib_tools._workspace.place import workspace_of
from toolcrib_tools.git.repository import Repository, repository_at

from ..operations import (
    NAME,
    OF_ANY_PROJECT,
    OF_PROJECT,
    id_of,
    named_row,
    one_of,
    queue_tool,
    storage_of,
    transaction_tool,
)
from ..state import release

_BRANCHES: Final = 50
"""Branches of one workspace that are compared with the default branch."""


@queue_tool(
    "x.workspace.add",
    "project",
    "write",
    {
        **OF_PROJECT,
        "source": one_of(("clone", "link")),
        "path": {"type": "string", "maxLength": 1000, "description": "Folder in the workspace of this session"},
        "name": NAME,
    },
    ["project_id", "source"],
    idempotent=False,
    needs=["workspace"],
    timeout=600,
    examples=[{"project_id": "<project_id>", "source": "link", "path": "shop"}],
)
async def add_workspace(ctx: Context, project_id: str, source: str, path: str = "", name: str = "") -> dict[str, Any]:
    """Add a folder that agents work in, one task at a time: an existing one (link), or a clone of the repository."""
    project = await storage_of(ctx).read(lambda rows: rows.get("projects", project_id, "editor"))
    folder = await _folder_for(ctx, project, source, path or project_id)

    def work(rows: Rows) -> dict[str, Any]:
        used = rows.select("SELECT project_id FROM {workspaces} AS w WHERE workspace_path = ?", (folder,))
        if used:
            raise invalid_argument("path", f"project {used[0]['project_id']} uses this folder already")
        values: dict[str, Any] = {
            "project_id": project_id,
            "workspace_path": folder,
            "source_type": source,
            "name": name or folder.rpartition("/")[2],
        }
        made = rows.insert("workspaces", values)
        return {"created": made["id"], "project_id": project_id, "workspace_path": folder, "source_type": source}

    if source == "clone":
        branch, url = shlex.quote(project["repo_default_branch"]), shlex.quote(project["repo_url"])
        command = f"git clone --quiet --branch {branch} -- {url} {shlex.quote(folder)}"
        result = await ctx.call("run_command", {"command": command, "timeout": 500})
        if result.is_error or await workspace_of(ctx).stat(f"{folder}/.git") is None:
            raise ToolFailure("tool_error", f"git clone failed: {result.text[-1500:]}")
    return await storage_of(ctx).write(work)


async def _folder_for(ctx: Context, project: Row, source: str, path: str) -> str:
    """Return the absolute path of a folder to link or to clone into. Raises `ToolFailure` where that cannot be."""
    workspace = workspace_of(ctx)
    folder = str(workspace.local(path))
    there = await workspace.stat(folder)
    if source == "link" and (there is None or there.kind != "folder"):
        raise invalid_argument("path", f"{path!r} is not an existing folder", hint="source clone makes one of repo_url")
    if source == "clone" and not project["repo_url"]:
        raise invalid_argument("source", f"project {project['id']} has no repo_url to clone")
    if source == "clone" and there is not None:
        raise invalid_argument("path", f"{path!r} exists already", hint="source link takes it as it is")
    return folder


@queue_tool("x.workspace.list", "project", "read", OF_ANY_PROJECT, explicit=["project_id"])
async def list_workspaces(ctx: Context, project_id: str = "") -> dict[str, Any]:
    """List workspaces, and which agent and task each is locked by."""
    return {"workspaces": [_shown(one) for one in await _workspaces(ctx, project_id)]}


def _shown(workspace: Row) -> dict[str, Any]:
    names = ("id", "project_id", "workspace_path", "source_type", "name", "locked_by_agent_id", "locked_by_task_id")
    return {name: workspace[name] for name in names}


async def _workspaces(ctx: Context, project_id: str) -> list[Row]:
    def work(rows: Rows) -> list[Row]:
        if not project_id:
            return rows.select("SELECT * FROM {workspaces} AS w ORDER BY project_id, created_at, id")
        rows.get("projects", project_id)
        return rows.select(
            "SELECT * FROM {workspaces} AS w WHERE project_id = ? ORDER BY created_at, id", (project_id,)
        )

    return await storage_of(ctx).read(work)


@transaction_tool("x.workspace.release", "project", "write", {"workspace_id": id_of("workspace")}, ["workspace_id"])
def release_workspace(rows: Rows, workspace_id: str) -> dict[str, Any]:
    """Unlock a workspace; the task that an agent has in it is READY again, and that agent's claim has ended."""
    workspace = rows.get("workspaces", workspace_id, "editor")
    if workspace["locked_by_task_id"] is None:
        return {"workspace_id": workspace_id, "status": "not locked"}
    release(rows, workspace)
    return {
        "workspace_id": workspace_id,
        "released_from_agent": workspace["locked_by_agent_id"],
        "released_from_task": workspace["locked_by_task_id"],
    }


@transaction_tool(
    "x.workspace.remove",
    "project",
    "destructive",
    {
        "workspace_id": id_of("workspace", ", or its name in the project"),
        "project_id": id_of("project that it belongs to"),
    },
    ["workspace_id"],
    explicit=["project_id"],
)
def remove_workspace(rows: Rows, workspace_id: str, project_id: str = "") -> dict[str, Any]:
    """Remove a workspace from its project; refused while it is locked. The folder stays."""
    workspace = named_row(rows, "workspaces", workspace_id, project_id)
    if project_id not in ("", workspace["project_id"]):
        raise invalid_argument("project_id", f"workspace {workspace_id} belongs to project {workspace['project_id']}")
    if workspace["locked_by_task_id"] is not None:
        message = f"workspace {workspace_id} is locked by task {workspace['locked_by_task_id']}"
        raise ToolFailure("conflict", message, hint="release_workspace")
    rows.delete("workspaces", workspace["id"])
    names = ("name", "project_id", "workspace_path")
    return {"deleted": workspace["id"], **{name: workspace[name] for name in names}}


async def _branch_of(ctx: Context, project_id: str) -> str:
    def work(rows: Rows) -> str:
        return str(rows.get("projects", project_id)["repo_default_branch"])

    return await storage_of(ctx).read(work)


@queue_tool(
    "x.workspace.sync",
    "project",
    "write",
    {**OF_ANY_PROJECT, "skip_locked": {"type": "boolean", "default": True}},
    idempotent=False,
    needs=["workspace"],
    timeout=600,
)
async def sync_workspaces(ctx: Context, skip_locked: bool, project_id: str = "") -> dict[str, Any]:
    """Bring workspaces to the newest commit of the default branch of their project, by git_pull in each."""
    found = await _workspaces(ctx, project_id)
    shown = [await _sync(ctx, one, skip_locked) for one in found]
    statuses = [one["status"] for one in shown]
    return {
        "project_id": project_id or None,
        "default_branch": await _branch_of(ctx, project_id) if project_id else None,
        "total_workspaces": len(found),
        "synced": statuses.count("synced"),
        "skipped": statuses.count("skipped"),
        "no_remote": statuses.count("no_remote"),
        "errors": statuses.count("error") + statuses.count("conflict"),
        "workspaces": shown,
    }


async def _sync(ctx: Context, workspace: Row, skip_locked: bool) -> dict[str, Any]:
    line = {**_shown(workspace), "workspace_id": workspace["id"]}
    if workspace["locked_by_task_id"] is not None and skip_locked:
        return {**line, "status": "skipped", "reason": f"locked by task {workspace['locked_by_task_id']}"}
    branch = await _branch_of(ctx, workspace["project_id"])
    if not await _has_remote(ctx, workspace["workspace_path"]):
        return {**line, "status": "no_remote", "reason": "the repository has no remote: there is nothing to sync"}
    result = await ctx.call("git_pull", {"repo": workspace["workspace_path"], "branch": branch})
    if not result.is_error:
        return {**line, "status": "synced", "action": f"pulled {branch}"}
    status = "conflict" if result.error is not None and result.error.code == "conflict" else "error"
    return {**line, "status": status, "reason": result.text[:1000]}


async def _has_remote(ctx: Context, folder: str) -> bool:
    """Whether there may be something to pull: a folder without a repository is left to git_pull, which says so."""
    try:
        repository = await repository_at(ctx, folder)
        return bool((await repository.ask("remote")).strip())
    except ToolFailure:
        return True


@queue_tool(
    "x.workspace.conflicts",
    "project",
    "read",
    OF_ANY_PROJECT,
    explicit=["project_id"],
    needs=["workspace"],
    timeout=300,
)
async def find_merge_conflict_workspaces(ctx: Context, project_id: str = "") -> dict[str, Any]:
    """Find workspaces with unmerged files, or with branches that conflict with the default branch of their project."""
    found = await _workspaces(ctx, project_id)

    def work(rows: Rows) -> dict[str, str]:
        sql = "SELECT id, branch_name FROM {tasks} AS t WHERE branch_name IS NOT NULL"
        return {row["branch_name"]: row["id"] for row in rows.select(sql)}

    tasks = await storage_of(ctx).read(work)
    reports: list[dict[str, Any]] = []
    unreadable: list[dict[str, str]] = []
    for one in found:
        try:
            repository = await repository_at(ctx, one["workspace_path"])
            report = await _conflicts(repository, await _branch_of(ctx, one["project_id"]), tasks)
        except ToolFailure as failure:
            unreadable.append({"workspace_id": one["id"], "reason": failure.message})
            continue
        if report["has_working_tree_conflict"] or report["branch_conflicts"]:
            own = {"workspace_id": one["id"], "workspace_name": one["name"], "workspace_path": one["workspace_path"]}
            locks = {name: one[name] for name in ("locked_by_agent_id", "locked_by_task_id")}
            reports.append({**own, **locks, **report})
    return {
        "project_id": project_id or None,
        "workspaces_scanned": len(found) - len(unreadable),
        "workspaces_with_conflicts": len(reports),
        "conflicts": reports,
        **({"unreadable": unreadable} if unreadable else {}),
    }


async def _conflicts(repository: Repository, default: str, tasks: Mapping[str, str]) -> dict[str, Any]:
    """Return the unmerged files of a repository, and the branches that do not merge into the default one."""
    listed = await repository.ask(
        "for-each-ref", "--format=%(refname:short)", f"--count={_BRANCHES}", "--sort=-committerdate", "refs/heads"
    )
    branches: list[dict[str, Any]] = []
    has_default = await repository.has(f"refs/heads/{default}")
    for branch in listed.split() if has_default else []:
        if branch == default:
            continue
        merged = await repository.run("merge-tree", "--write-tree", "--name-only", "--no-messages", default, branch)
        if merged.status == 1:
            behind = await repository.ask("rev-list", "--count", f"{branch}..{default}")
            branches.append(
                {
                    "branch": branch,
                    "task_id": tasks.get(branch),
                    "conflicting_files": merged.text.splitlines()[1:],
                    "commits_behind_main": int(behind),
                }
            )
    return {
        "current_branch": await repository.branch(),
        "has_working_tree_conflict": bool(await repository.conflicts()),
        "branch_conflicts": branches,
    }
