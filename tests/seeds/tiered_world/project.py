"""Projects, their channels and their workspaces."""

from __future__ import annotations

from typing import Any

from .state import WORLD, Record, found

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


def list_projects() -> Record:
    return {"projects": [dict(project) for project in WORLD.projects.values()]}


def create_project(name: str, default_branch: str = "main", auto_create_channels: bool = False, **given: Any) -> Record:
    project_id = name.lower().replace(" ", "-")
    channels = [f"channel-{project_id}"] if auto_create_channels else []
    project: Record = {"id": project_id, "name": name, "status": "ACTIVE", "channels": channels, **given}
    WORLD.projects[project_id] = {**project, "default_branch": default_branch}
    WORLD.repositories[project_id] = {"branches": {default_branch: []}, "current": default_branch, "pulls": []}
    return {"created": project_id, "name": name, "channels": channels}


def _set_status(project_id: str, status: str) -> Record:
    found(WORLD.projects, project_id, "project")["status"] = status
    return {"project_id": project_id, "status": status}


def pause_project(project_id: str) -> Record:
    return _set_status(project_id, "PAUSED")


def resume_project(project_id: str) -> Record:
    return _set_status(project_id, "ACTIVE")


def delete_project(project_id: str, archive_channels: bool = False) -> Record:
    project = found(WORLD.projects, project_id, "project")
    gone = [task_id for task_id, task in WORLD.tasks.items() if task["project_id"] == project_id]
    for task_id in gone:
        del WORLD.tasks[task_id]
    for key in [key for key in WORLD.notes if key[0] == project_id]:
        del WORLD.notes[key]
    del WORLD.projects[project_id]
    WORLD.active = "" if WORLD.active == project_id else WORLD.active
    return {"deleted": project_id, "tasks": len(gone), "archived": project["channels"] if archive_channels else []}


def edit_project(project_id: str, **changes: Any) -> Record:
    project = found(WORLD.projects, project_id, "project")
    branch = changes.pop("repo_default_branch", project["default_branch"])
    channel = changes.get("discord_channel_id")
    project.update({**changes, "default_branch": branch, "channels": [channel] if channel else project["channels"]})
    return {"updated": project_id, "project": dict(project)}


def set_default_branch(project_id: str, branch: str) -> Record:
    found(WORLD.projects, project_id, "project")["default_branch"] = branch
    return {"project_id": project_id, "default_branch": branch}


def get_project_channels(project_id: str) -> Record:
    return {"project_id": project_id, "channels": list(found(WORLD.projects, project_id, "project")["channels"])}


def get_project_for_channel(channel_id: str) -> Record:
    owners = [name for name, project in WORLD.projects.items() if channel_id in project["channels"]]
    return {"channel_id": channel_id, "project_id": owners[0] if owners else None}


def add_workspace(project_id: str, source: str, path: str = "", name: str = "") -> Record:
    found(WORLD.projects, project_id, "project")
    workspace_id = name or WORLD.number("ws")
    workspace: Record = {"id": workspace_id, "project_id": project_id, "source": source, "path": path}
    WORLD.workspaces[workspace_id] = {**workspace, "locked_by": "", "conflict": False}
    return {"created": workspace_id, "source": source}


def list_workspaces(project_id: str = "") -> Record:
    spaces = [dict(space) for space in WORLD.workspaces.values() if project_id in ("", space["project_id"])]
    return {"workspaces": spaces}


def find_merge_conflict_workspaces(project_id: str = "") -> Record:
    return {"workspaces": [space["id"] for space in list_workspaces(project_id)["workspaces"] if space["conflict"]]}


def release_workspace(workspace_id: str) -> Record:
    space = found(WORLD.workspaces, workspace_id, "workspace")
    held, space["locked_by"] = space["locked_by"], ""
    return {"released": workspace_id, "was_held_by": held}


def remove_workspace(workspace_id: str, project_id: str = "") -> Record:
    space = found(WORLD.workspaces, workspace_id, "workspace")
    if project_id not in ("", space["project_id"]):
        return {"removed": "", "message": f"{workspace_id} belongs to {space['project_id']}"}
    del WORLD.workspaces[workspace_id]
    return {"removed": workspace_id}


def sync_workspaces(project_id: str = "", skip_locked: bool = True) -> Record:
    spaces = [WORLD.workspaces[space["id"]] for space in list_workspaces(project_id)["workspaces"]]
    synced = [space for space in spaces if not (skip_locked and space["locked_by"])]
    for space in synced:
        space["conflict"] = False
    return {"synced": [space["id"] for space in synced], "skipped": len(spaces) - len(synced)}


def set_active_project(project_id: str = "") -> Record:
    WORLD.active = WORLD.project(project_id) if project_id else ""
    return {"active_project": WORLD.active or None}
