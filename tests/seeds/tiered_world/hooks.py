"""Hooks and their runs."""

from __future__ import annotations

from typing import Any

from .state import WORLD, Record, found

__all__ = ["create_hook", "delete_hook", "edit_hook", "fire_hook", "list_hook_runs", "list_hooks"]


def create_hook(project_id: str, name: str, trigger: Record, prompt_template: str, **given: Any) -> Record:
    WORLD.project(project_id)
    hook_id = WORLD.number("hook")
    hook: Record = {"id": hook_id, "project_id": project_id, "name": name, "trigger": trigger, "enabled": True}
    WORLD.hooks[hook_id] = {**hook, "prompt_template": prompt_template, "runs": [], **given}
    return {"created": hook_id, "name": name}


def list_hooks(project_id: str = "") -> Record:
    hooks = [hook for hook in WORLD.hooks.values() if project_id in ("", hook["project_id"])]
    return {"hooks": [{key: value for key, value in hook.items() if key != "runs"} for hook in hooks]}


def edit_hook(hook_id: str, **changes: Any) -> Record:
    found(WORLD.hooks, hook_id, "hook").update(changes)
    return {"updated": hook_id, "fields": sorted(changes)}


def delete_hook(hook_id: str) -> Record:
    runs = found(WORLD.hooks, hook_id, "hook")["runs"]
    del WORLD.hooks[hook_id]
    return {"deleted": hook_id, "runs": len(runs)}


def list_hook_runs(hook_id: str, limit: int = 10) -> Record:
    runs = found(WORLD.hooks, hook_id, "hook")["runs"]
    return {"hook_id": hook_id, "runs": list(reversed(runs))[:limit]}


def fire_hook(hook_id: str) -> Record:
    hook = found(WORLD.hooks, hook_id, "hook")
    if not hook["enabled"]:
        return {"fired": "", "message": f"{hook_id} is not enabled"}
    run = {"number": len(hook["runs"]) + 1, "prompt": hook["prompt_template"]}
    hook["runs"].append(run)
    WORLD.tell("hook_fired", hook_id=hook_id)
    return {"fired": hook_id, "run": run["number"]}
