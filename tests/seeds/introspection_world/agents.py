"""Sub-agents, background tasks, waypoints, and questions to the user."""

from __future__ import annotations

from typing import Any

from toolcrib.errors import ToolFailure

from . import system
from .state import WORLD, Record, found

__all__ = [
    "cancelBackgroundTask",
    "cancel_subagent",
    "close_subagent",
    "delegate",
    "delete_waypoint",
    "getBackgroundTask",
    "listBackgroundCapableTools",
    "listBackgroundTasks",
    "list_active_subagents",
    "list_subagent_profiles",
    "list_waypoints",
    "request_clarification",
    "restore_waypoint",
    "save_waypoint",
    "send_to_subagent",
    "share_context",
    "start_background",
    "validateProfile",
    "waypoint_info",
]

_CAPABLE = {"run": system.run, "calculate": system.calculate}


def delegate(task: str, name: str = "", profile: str = "default", context: str = "", **given: Record) -> Record:
    agent_id = name or WORLD.number("agent")
    agent: Record = {"id": agent_id, "task": task, "profile": profile, "context": context, "status": "active"}
    WORLD.agents[agent_id] = {**agent, "config": given.get("inline_config", {}), "messages": []}
    return {"subagent_id": agent_id, "status": "active"}


def send_to_subagent(subagent_id: str, message: str) -> Record:
    found(WORLD.agents, subagent_id, "sub-agent")["messages"].append(message)
    return {"subagent_id": subagent_id, "messages": len(WORLD.agents[subagent_id]["messages"])}


def _end(subagent_id: str, status: str) -> Record:
    found(WORLD.agents, subagent_id, "sub-agent")["status"] = status
    return {"subagent_id": subagent_id, "status": status}


def close_subagent(subagent_id: str) -> Record:
    return _end(subagent_id, "closed")


def cancel_subagent(subagent_id: str) -> Record:
    return _end(subagent_id, "cancelled")


def list_active_subagents() -> Record:
    return {"subagents": [agent["id"] for agent in WORLD.agents.values() if agent["status"] == "active"]}


def list_subagent_profiles() -> Record:
    return {"profiles": sorted({"default", *(agent["profile"] for agent in WORLD.agents.values())})}


def validateProfile(path: str) -> Record:
    is_valid = WORLD.text(path).startswith("name:")
    return {"path": path, "valid": is_valid, "errors": [] if is_valid else ["a profile begins with its name"]}


def share_context(content: str) -> Record:
    WORLD.shared.append(content)
    return {"shared": len(WORLD.shared)}


def start_background(tool_name: str, arguments: Record, timeout_seconds: float | None = None) -> Record:
    if tool_name not in _CAPABLE:
        raise ToolFailure("tool_error", f"{tool_name} cannot run in the background; these can: {', '.join(_CAPABLE)}")
    task_id = WORLD.number("task")
    run: Any = _CAPABLE[tool_name]
    job: Record = {"task_id": task_id, "tool_name": tool_name, "timeout_seconds": timeout_seconds}
    WORLD.jobs[task_id] = {**job, "status": "completed", "result": run(**arguments)}
    return {"task_id": task_id}


def getBackgroundTask(task_id: str) -> Record:
    return dict(found(WORLD.jobs, task_id, "background task"))


def cancelBackgroundTask(task_id: str) -> Record:
    job = found(WORLD.jobs, task_id, "background task")
    was, job["status"] = job["status"], "cancelled"
    return {"task_id": task_id, "was": was}


def listBackgroundTasks() -> Record:
    return {"tasks": [{"task_id": name, "status": job["status"]} for name, job in WORLD.jobs.items()]}


def listBackgroundCapableTools() -> Record:
    return {"tools": sorted(_CAPABLE)}


def list_waypoints() -> Record:
    return {"waypoints": [{"id": name, "description": one["description"]} for name, one in WORLD.waypoints.items()]}


def waypoint_info(waypoint_id: str) -> Record:
    kept = found(WORLD.waypoints, waypoint_id, "waypoint")
    return {"id": waypoint_id, "description": kept["description"], "files": sorted(kept["files"])}


def save_waypoint(description: str) -> Record:
    waypoint_id = WORLD.number("waypoint")
    WORLD.waypoints[waypoint_id] = {"description": description, "files": dict(WORLD.files)}
    return {"id": waypoint_id}


def restore_waypoint(waypoint_id: str) -> Record:
    WORLD.files = dict(found(WORLD.waypoints, waypoint_id, "waypoint")["files"])
    return {"restored": waypoint_id, "files": len(WORLD.files)}


def delete_waypoint(waypoint_id: str) -> Record:
    found(WORLD.waypoints, waypoint_id, "waypoint")
    del WORLD.waypoints[waypoint_id]
    return {"deleted": waypoint_id}


def request_clarification(context: str, questions: list[str]) -> Record:
    WORLD.questions.append({"context": context, "questions": questions})
    return {"asked": len(questions)}
