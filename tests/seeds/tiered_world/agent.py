"""Agents and their profiles."""

from __future__ import annotations

from typing import Any, cast

import yaml

from toolcrib.errors import ToolFailure

from .state import WORLD, Record, found

__all__ = [
    "check_profile",
    "create_agent",
    "create_profile",
    "delete_agent",
    "delete_profile",
    "edit_agent",
    "edit_profile",
    "export_profile",
    "get_agent_error",
    "get_profile",
    "import_profile",
    "install_profile",
    "list_agents",
    "list_available_tools",
    "list_profiles",
    "pause_agent",
    "resume_agent",
]

_FIXES = {"timeout": "Give the task more time.", "merge": "Resolve the conflict and restart the task."}


def list_agents() -> Record:
    return {"agents": [dict(agent) for agent in WORLD.agents.values()]}


def create_agent(name: str = "", agent_type: str = "claude") -> Record:
    agent_id = WORLD.number("agent")
    WORLD.agents[agent_id] = {"id": agent_id, "name": name or agent_id, "agent_type": agent_type, "status": "IDLE"}
    return {"created": agent_id}


def edit_agent(agent_id: str, **changes: str) -> Record:
    found(WORLD.agents, agent_id, "agent").update(changes)
    return {"updated": agent_id, "fields": sorted(changes)}


def _set_status(agent_id: str, status: str) -> Record:
    found(WORLD.agents, agent_id, "agent")["status"] = status
    return {"agent_id": agent_id, "status": status}


def pause_agent(agent_id: str) -> Record:
    return _set_status(agent_id, "PAUSED")


def resume_agent(agent_id: str) -> Record:
    return _set_status(agent_id, "IDLE")


def delete_agent(agent_id: str) -> Record:
    if found(WORLD.agents, agent_id, "agent")["status"] == "BUSY":
        raise ToolFailure("tool_error", f"The agent '{agent_id}' is at work")
    del WORLD.agents[agent_id]
    return {"deleted": agent_id}


def get_agent_error(task_id: str) -> Record:
    error = found(WORLD.tasks, task_id, "task").get("error", "")
    kind = next((kind for kind in _FIXES if kind in error), "unknown" if error else "none")
    return {"task_id": task_id, "error": error or None, "class": kind, "suggested_fix": _FIXES.get(kind)}


def list_profiles() -> Record:
    return {"profiles": [{"id": profile["id"], "name": profile["name"]} for profile in WORLD.profiles.values()]}


def create_profile(id: str, name: str, **given: Any) -> Record:
    if id in WORLD.profiles:
        raise ToolFailure("tool_error", f"The profile '{id}' exists already")
    WORLD.profiles[id] = {"id": id, "name": name, "needs": sorted(given.get("mcp_servers", {})), **given}
    return {"created": id}


def get_profile(profile_id: str) -> Record:
    return dict(found(WORLD.profiles, profile_id, "profile"))


def edit_profile(profile_id: str, **changes: Any) -> Record:
    profile = found(WORLD.profiles, profile_id, "profile")
    profile.update(changes)
    profile["needs"] = sorted(profile.get("mcp_servers", {})) or profile["needs"]
    return {"updated": profile_id, "fields": sorted(changes)}


def delete_profile(profile_id: str) -> Record:
    found(WORLD.profiles, profile_id, "profile")
    del WORLD.profiles[profile_id]
    return {"deleted": profile_id}


def list_available_tools() -> Record:
    named = {tool for profile in WORLD.profiles.values() for tool in profile.get("allowed_tools", ())}
    return {"tools": sorted({"Bash", "Edit", "Read", "Write", *named})}


def check_profile(profile_id: str) -> Record:
    needs = found(WORLD.profiles, profile_id, "profile")["needs"]
    missing = [need for need in needs if need not in WORLD.installed]
    return {"profile_id": profile_id, "ok": not missing, "missing": missing}


def install_profile(profile_id: str) -> Record:
    missing = check_profile(profile_id)["missing"]
    WORLD.installed.update(missing)
    return {"profile_id": profile_id, "installed": missing}


def export_profile(profile_id: str, create_gist: bool = False) -> Record:
    text = yaml.safe_dump(get_profile(profile_id), sort_keys=False)
    gist = {"gist": f"gist/{profile_id}"} if create_gist else {}
    return {"profile_id": profile_id, "yaml": text, **gist}


def import_profile(source: str, id: str = "", name: str = "", overwrite: bool = False) -> Record:
    try:
        loaded: Any = yaml.safe_load(source)
    except yaml.YAMLError as error:
        raise ToolFailure("tool_error", f"The source is no YAML: {error}") from error
    if not isinstance(loaded, dict):
        raise ToolFailure("tool_error", "The source is no profile: a mapping was expected")
    given = cast("Record", loaded)
    profile_id = id or str(given.get("id", ""))
    if not profile_id or (profile_id in WORLD.profiles and not overwrite):
        raise ToolFailure("tool_error", f"The profile '{profile_id}' has no id or exists already; say id or overwrite")
    WORLD.profiles[profile_id] = {"needs": [], **given, "id": profile_id, "name": name or given.get("name", profile_id)}
    return {"imported": profile_id}
