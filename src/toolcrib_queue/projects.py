"""Tools for projects and their workspaces, the folders that agents work in."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from toolcrib.plugin import Context, Row, Rows, ToolFailure
from toolcrib_tools._workspace.place import workspace_of
from toolcrib_tools.git.repository import Repository, repository_at

from .events import publish_of
from .model import CLAIMED
from .operations import NAME, changes_of, home_of, id_of, named_id, one_of, queue_tool, storage_of
from .state import invalid, release

__all__ = [
    "add_workspace",
    "create_project",
    "delete_project",
    "edit_project",
    "find_merge_conflict_workspaces",
    "get_project_channels",
    "get_project_for_channel",
    "list_projects",
    "list_workspaces",
    "pause_project",
    "release_workspace",
    "remove_workspace",
    "resume_project",
    "set_active_project",
    "set_default_branch",
    "sync_workspaces",
]

_PROJECT: Final = {"project_id": id_of("project")}
_OPTIONAL: Final = {"project_id": id_of("project", "; without it all")}
_WEIGHT: Final = {"type": "number", "minimum": 0, "maximum": 1000}
_AGENTS: Final = {"type": "integer", "minimum": 0, "maximum": 100}
_BRANCH: Final = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": r"^[^\s-][^\s]*$"}
_SHORT: Final = {"type": ["string", "null"], "maxLength": 200}
_NO_CHANNELS: Final = (
    "channels are named targets of the setting tools.messaging.channels: they are neither created nor archived here"
)
_BRANCHES: Final = 50
"""Branches of one workspace that are compared with the default branch."""


@queue_tool("x.project.list", "project", "read", {})
async def list_projects(ctx: Context) -> dict[str, Any]:
    """List the projects of the caller, with the folder of the first workspace of each."""

    def work(rows: Rows) -> dict[str, Any]:
        places = {
            row["project_id"]: row["workspace_path"]
            for row in rows.select(
                "SELECT project_id, workspace_path FROM {workspaces} AS w ORDER BY created_at DESC, id"
            )
        }
        found = rows.select("SELECT * FROM {projects} AS p ORDER BY created_at, id")
        return {"projects": [_line(project, places.get(project["id"])) for project in found]}

    return await storage_of(ctx).read(work)


def _line(project: Row, workspace: str | None) -> dict[str, Any]:
    names = ("id", "name", "status", "credit_weight", "max_concurrent_agents")
    line = {**{name: project[name] for name in names}, "workspace": workspace}
    channel = project["discord_channel_id"]
    return {**line, "discord_channel_id": channel} if channel else line


@queue_tool(
    "x.project.create",
    "project",
    "write",
    {
        "name": NAME,
        "credit_weight": {**_WEIGHT, "default": 1.0},
        "max_concurrent_agents": {**_AGENTS, "default": 2},
        "repo_url": {"type": "string", "maxLength": 1000, "default": ""},
        "default_branch": {**_BRANCH, "default": "main"},
        "auto_create_channels": {"type": "boolean", "default": False},
    },
    ["name"],
    idempotent=False,
    examples=[{"name": "Shop", "repo_url": "https://example.com/shop.git"}],
)
async def create_project(ctx: Context, name: str, auto_create_channels: bool, **given: Any) -> dict[str, Any]:
    """Create a project; its id is made of its name."""

    def work(rows: Rows) -> dict[str, Any]:
        same = rows.select("SELECT id FROM {projects} AS p WHERE name = ?", (name.strip(),))
        if same:
            raise ToolFailure("conflict", f"there is a project {name.strip()!r} already: {same[0]['id']}")
        id = named_id(rows, name)
        values: dict[str, Any] = {
            "project_id": id,
            "name": name.strip(),
            "status": "ACTIVE",
            "credit_weight": given["credit_weight"],
            "max_concurrent_agents": given["max_concurrent_agents"],
            "total_tokens_used": 0,
            "repo_url": given["repo_url"],
            "repo_default_branch": given["default_branch"],
        }
        publish_of(rows, "project.created", "project", rows.insert("projects", values, id=id))
        made = {"created": id, "project_id": id, "name": name.strip(), "auto_create_channels": auto_create_channels}
        return {**made, "warning": _NO_CHANNELS} if auto_create_channels else made

    return await storage_of(ctx).write(work)


async def _set_status(ctx: Context, project_id: str, status: str) -> Row:
    def work(rows: Rows) -> Row:
        project = rows.get("projects", project_id, "editor")
        if project["status"] != status:
            project = rows.update("projects", project_id, {"status": status})
            publish_of(rows, "project.paused" if status == "PAUSED" else "project.resumed", "project", project)
        return project

    return await storage_of(ctx).write(work)


@queue_tool("x.project.pause", "project", "write", _PROJECT, ["project_id"], idempotent=True)
async def pause_project(ctx: Context, project_id: str) -> dict[str, Any]:
    """Pause a project: none of its tasks is assigned; those at work go on."""
    return {"paused": project_id, "name": (await _set_status(ctx, project_id, "PAUSED"))["name"]}


@queue_tool("x.project.resume", "project", "write", _PROJECT, ["project_id"], idempotent=True)
async def resume_project(ctx: Context, project_id: str) -> dict[str, Any]:
    """Resume a paused project."""
    return {"resumed": project_id, "name": (await _set_status(ctx, project_id, "ACTIVE"))["name"]}


@queue_tool(
    "x.project.edit",
    "project",
    "write",
    {
        **_PROJECT,
        "name": NAME,
        "credit_weight": _WEIGHT,
        "max_concurrent_agents": _AGENTS,
        "budget_limit": {"type": ["integer", "null"], "minimum": 0, "description": "Tokens; null for no limit"},
        "discord_channel_id": {**_SHORT, "description": "Name of a channel of send_message; null for none"},
        "default_profile_id": _SHORT,
        "repo_default_branch": _BRANCH,
    },
    ["project_id"],
    examples=[{"project_id": "<project_id>", "budget_limit": 1_000_000}],
)
async def edit_project(ctx: Context, project_id: str, **given: Any) -> dict[str, Any]:
    """Change settings of a project."""
    changes = changes_of(given)

    def work(rows: Rows) -> dict[str, Any]:
        if profile := changes.get("default_profile_id"):
            sql = "SELECT id FROM {profiles} AS p WHERE profile_id = ? AND project_id = ?"
            if not rows.select(sql, (profile, home_of(rows))):
                raise ToolFailure("not_found", f"there is no profile {profile!r}", hint="list_profiles")
        rows.get("projects", project_id, "editor")
        rows.update("projects", project_id, changes)
        return {"updated": project_id, "fields": sorted(changes)}

    return await storage_of(ctx).write(work)


@queue_tool(
    "x.project.branch",
    "project",
    "write",
    {**_PROJECT, "branch": _BRANCH},
    ["project_id", "branch"],
    examples=[{"project_id": "<project_id>", "branch": "main"}],
)
async def set_default_branch(ctx: Context, project_id: str, branch: str) -> dict[str, Any]:
    """Set the branch that the work of a project ends up in."""

    def work(rows: Rows) -> dict[str, Any]:
        project = rows.get("projects", project_id, "editor")
        rows.update("projects", project_id, {"repo_default_branch": branch})
        before = project["repo_default_branch"]
        status = "unchanged" if before == branch else "updated"
        return {"project_id": project_id, "default_branch": branch, "previous_branch": before, "status": status}

    return await storage_of(ctx).write(work)


@queue_tool(
    "x.project.delete",
    "project",
    "destructive",
    {**_PROJECT, "archive_channels": {"type": "boolean", "default": False}},
    ["project_id"],
)
async def delete_project(ctx: Context, project_id: str, archive_channels: bool) -> dict[str, Any]:
    """Delete a project with its tasks, workspaces and hooks; refused while an agent is at work. Folders stay."""

    def work(rows: Rows) -> tuple[dict[str, Any], list[str]]:
        rows.require(project_id, "owner")
        project = rows.get("projects", project_id)
        if project_id == home_of(rows):
            raise ToolFailure("conflict", "the inbox holds your agents and profiles: it cannot be deleted")
        marks = ", ".join("?" * len(CLAIMED))
        sql = f"SELECT id FROM {{tasks}} AS t WHERE project_id = ? AND status IN ({marks})"
        if busy := rows.select(sql, (project_id, *CLAIMED)):
            raise ToolFailure(
                "conflict", f"tasks are at work: {', '.join(one['id'] for one in busy)}", hint="stop_task"
            )
        sql = "SELECT schedule_id FROM {hooks} AS h WHERE project_id = ? AND schedule_id IS NOT NULL"
        schedules = [one["schedule_id"] for one in rows.select(sql, (project_id,))]
        for table in ("hook_runs", "hooks", "results", "contexts", "dependencies", "tasks", "workspaces"):
            for row in rows.select(f"SELECT id FROM {{{table}}} AS one WHERE project_id = ?", (project_id,)):
                rows.delete(table, row["id"])
        rows.publish("project.deleted", project_id, {"project_id": project_id, "title": project["name"]})
        rows.delete("projects", project_id)
        gone: dict[str, Any] = {"deleted": project_id, "name": project["name"]}
        if channel := project["discord_channel_id"]:
            gone["channel_ids"] = [channel]
        if archive_channels:
            gone |= {"archive_channels": False, "warning": _NO_CHANNELS}
        return gone, schedules

    gone, schedules = await storage_of(ctx).write(work)
    for schedule in schedules:
        with suppress(ToolFailure):  # the project is gone: one that ended meanwhile is no reason to fail
            await ctx.schedules.cancel(schedule)
    return gone


@queue_tool("x.project.channels", "project", "read", _PROJECT, ["project_id"])
async def get_project_channels(ctx: Context, project_id: str) -> dict[str, Any]:
    """Get the channel of a project."""

    def work(rows: Rows) -> dict[str, Any]:
        return {"project_id": project_id, "channel_id": rows.get("projects", project_id)["discord_channel_id"]}

    return await storage_of(ctx).read(work)


@queue_tool("x.project.of_channel", "project", "read", {"channel_id": id_of("channel")}, ["channel_id"])
async def get_project_for_channel(ctx: Context, channel_id: str) -> dict[str, Any]:
    """Find the project of a channel."""

    def work(rows: Rows) -> dict[str, Any]:
        sql = "SELECT id, name FROM {projects} AS p WHERE discord_channel_id = ? ORDER BY id LIMIT 1"
        found = rows.select(sql, (channel_id,))
        id, name = (found[0]["id"], found[0]["name"]) if found else (None, None)
        return {"channel_id": channel_id, "project_id": id, "project_name": name}

    return await storage_of(ctx).read(work)


@queue_tool("x.project.activate", "project", "write", _OPTIONAL, explicit=["project_id"], idempotent=True)
async def set_active_project(ctx: Context, project_id: str = "") -> dict[str, Any]:
    """Set the project that fills `project_id` of later calls of this session; none given clears it.

    Git tools work in its first workspace.
    """
    if not project_id:
        for name in ("project_id", "repo"):
            ctx.set_default(name, None)
        return {"active_project": None, "message": "No project is active."}

    def work(rows: Rows) -> tuple[str, str | None]:
        project = rows.get("projects", project_id)
        sql = "SELECT workspace_path FROM {workspaces} AS w WHERE project_id = ? ORDER BY created_at, id LIMIT 1"
        found = rows.select(sql, (project_id,))
        return project["name"], found[0]["workspace_path"] if found else None

    name, folder = await storage_of(ctx).read(work)
    ctx.set_default("project_id", project_id)
    ctx.set_default("repo", folder)
    return {"active_project": project_id, "name": name, **({"repo": folder} if folder else {})}


@queue_tool(
    "x.workspace.add",
    "project",
    "write",
    {
        **_PROJECT,
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
            raise invalid("path", f"project {used[0]['project_id']} uses this folder already")
        values: dict[str, Any] = {
            "project_id": project_id,
            "workspace_path": folder,
            "source_type": source,
            "name": name or folder.rpartition("/")[2],
        }
        made = rows.insert("workspaces", values)
        return {"created": made["id"], "project_id": project_id, "workspace_path": folder, "source_type": source}

    if source == "clone":
        await _clone(ctx, project, folder)
    return await storage_of(ctx).write(work)


async def _folder_for(ctx: Context, project: Row, source: str, path: str) -> str:
    """Return the absolute path of a folder to link or to clone into. Raises `ToolFailure` where that cannot be."""
    workspace = workspace_of(ctx)
    folder = str(workspace.local(path))
    there = await workspace.stat(folder)
    if source == "link" and (there is None or there.kind != "folder"):
        raise invalid("path", f"{path!r} is not an existing folder", hint="source clone makes one of repo_url")
    if source == "clone" and not project["repo_url"]:
        raise invalid("source", f"project {project['id']} has no repo_url to clone")
    if source == "clone" and there is not None:
        raise invalid("path", f"{path!r} exists already", hint="source link takes it as it is")
    return folder


async def _clone(ctx: Context, project: Row, folder: str) -> None:
    branch, url = shlex.quote(project["repo_default_branch"]), shlex.quote(project["repo_url"])
    command = f"git clone --quiet --branch {branch} -- {url} {shlex.quote(folder)}"
    result = await ctx.call("run_command", {"command": command, "timeout": 500})
    if result.is_error or await workspace_of(ctx).stat(f"{folder}/.git") is None:
        raise ToolFailure("tool_error", f"git clone failed: {result.text[-1500:]}")


@queue_tool("x.workspace.list", "project", "read", _OPTIONAL, explicit=["project_id"])
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


@queue_tool("x.workspace.release", "project", "write", {"workspace_id": id_of("workspace")}, ["workspace_id"])
async def release_workspace(ctx: Context, workspace_id: str) -> dict[str, Any]:
    """Unlock a workspace; the task that an agent has in it is READY again, and that agent's claim has ended."""

    def work(rows: Rows) -> dict[str, Any]:
        workspace = rows.get("workspaces", workspace_id, "editor")
        if workspace["locked_by_task_id"] is None:
            return {"workspace_id": workspace_id, "status": "not locked"}
        release(rows, workspace)
        return {
            "workspace_id": workspace_id,
            "released_from_agent": workspace["locked_by_agent_id"],
            "released_from_task": workspace["locked_by_task_id"],
        }

    return await storage_of(ctx).write(work)


@queue_tool(
    "x.workspace.remove",
    "project",
    "destructive",
    {"workspace_id": id_of("workspace"), "project_id": id_of("project that it belongs to")},
    ["workspace_id"],
    explicit=["project_id"],
)
async def remove_workspace(ctx: Context, workspace_id: str, project_id: str = "") -> dict[str, Any]:
    """Remove a workspace from its project; refused while it is locked. The folder stays."""

    def work(rows: Rows) -> dict[str, Any]:
        workspace = rows.get("workspaces", workspace_id, "editor")
        if project_id not in ("", workspace["project_id"]):
            raise invalid("project_id", f"workspace {workspace_id} belongs to project {workspace['project_id']}")
        if workspace["locked_by_task_id"] is not None:
            message = f"workspace {workspace_id} is locked by task {workspace['locked_by_task_id']}"
            raise ToolFailure("conflict", message, hint="release_workspace")
        rows.delete("workspaces", workspace_id)
        names = ("name", "project_id", "workspace_path")
        return {"deleted": workspace_id, **{name: workspace[name] for name in names}}

    return await storage_of(ctx).write(work)


async def _branch_of(ctx: Context, project_id: str) -> str:
    def work(rows: Rows) -> str:
        return str(rows.get("projects", project_id)["repo_default_branch"])

    return await storage_of(ctx).read(work)


@queue_tool(
    "x.workspace.sync",
    "project",
    "write",
    {**_OPTIONAL, "skip_locked": {"type": "boolean", "default": True}},
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
        "errors": statuses.count("error") + statuses.count("conflict"),
        "workspaces": shown,
    }


async def _sync(ctx: Context, workspace: Row, skip_locked: bool) -> dict[str, Any]:
    line = {**_shown(workspace), "workspace_id": workspace["id"]}
    if workspace["locked_by_task_id"] is not None and skip_locked:
        return {**line, "status": "skipped", "reason": f"locked by task {workspace['locked_by_task_id']}"}
    branch = await _branch_of(ctx, workspace["project_id"])
    result = await ctx.call("git_pull", {"repo": workspace["workspace_path"], "branch": branch})
    if not result.is_error:
        return {**line, "status": "synced", "action": f"pulled {branch}"}
    try:
        repository = await repository_at(ctx, workspace["workspace_path"])
        status = "conflict" if await repository.conflicts() else "error"
    except ToolFailure:
        status = "error"
    return {**line, "status": status, "reason": result.text[:1000]}


@queue_tool(
    "x.workspace.conflicts", "project", "read", _OPTIONAL, explicit=["project_id"], needs=["workspace"], timeout=300
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
