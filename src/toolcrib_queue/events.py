"""Events of the log, and the due runs of the hooks and playbooks that wait for them.

Both are put down in one transaction, so that neither is there without the other, and each runs once for each event: a
due run is named by the type of the event and the revision of its row. Nothing runs here; the next `run_queue` does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, cast

from toolcrib.plugin import Row, Rows, did_you_mean, invalid_argument

from .operations import home_of

FILE_EVENTS: Final = ("file.changed", "folder.changed")
"""Published while a hook or a playbook names one of them; `automation.file_changes`."""

_EVENT_TYPES: Final = (
    *("task.created", "task.started", "task.completed", "task.failed", "task.blocked", "task.stopped"),
    *("task.paused", "task.waiting_input", "task.merge_failed", "chain.stuck", "note.created", "hook.overridden"),
    *("plan.found", "plan.awaiting_approval", "git.commit", "git.push", "git.pr.created", "pr.created"),
    *("project.created", "project.paused", "project.resumed", "project.deleted", "budget.warning"),
    *("agent.created", "agent.paused", "agent.resumed", "agent.deleted"),
    *("playbook.run.started", "playbook.run.waiting", "playbook.run.completed", "playbook.run.failed"),
    *("playbook.run.stopped", "chat.message", *FILE_EVENTS),
)
"""Every type of event that the queue publishes."""
_ANY: Final = "*"
_TITLE: Final = 100
"""Characters of a message that are its title."""
_MOST_DEPTH: Final = 10
"""Hooks and playbooks in a row, each started by a task of the one before: two that start each other end there."""


def check_event(type: str, path: str) -> None:
    """Raise `ToolFailure("invalid_arguments")` for a type that no event has: what waits for it would wait for ever."""
    if type == _ANY or type in _EVENT_TYPES:
        return
    message = f"there is no event {type[:100]!r}{did_you_mean(type, _EVENT_TYPES)}"
    hint = f"events: {', '.join(_EVENT_TYPES)}; {_ANY} is every one"
    raise invalid_argument(path, message, keyword="enum", hint=hint)


def publish(rows: Rows, type: str, task: Row, **more: Any) -> None:
    """Record an event of a task, and a due run of each hook and playbook that waits for it.

    A hook does not hear of the tasks that it created; `hook_id` says so while one is being created.
    Tasks that a playbook made start no playbook: two that wait for each other's tasks would never end.
    """
    cause = f"{more.get('run_id') or more.get('note_id') or task['id']} {task['revision']}"
    _publish(rows, type, task, {"task_id": task["id"], "title": task["title"], **more}, cause)


def publish_of(rows: Rows, type: str, kind: Literal["agent", "project"], row: Row) -> None:
    """Record an event of an agent or a project, and the due runs, as `publish` does for a task."""
    _publish(rows, type, row, {f"{kind}_id": row["id"], "title": row["name"]}, f"{row['id']} {row['revision']}")


def publish_file(rows: Rows, type: str, workspace: Row, path: str, moment: float) -> None:
    """Record a change of a file or a folder of a workspace, and the due runs, as `publish` does for a task."""
    about = {"task_id": None, "title": path, "path": path, "workspace_id": workspace["id"]}
    _publish(rows, type, workspace, about, f"{workspace['id']} {path} {moment}")


def publish_message(rows: Rows, project: Row, author: str, text: str, delivery: str) -> None:
    """Record a message of the channel of a project, and the due runs, as `publish` does for a task."""
    title = " ".join(f"{author}: {text}".split())[:_TITLE]
    about = {"task_id": None, "title": title, "author": author, "text": text}
    _publish(rows, "chat.message", project, about, f"{project['id']} {delivery}")


def _publish(rows: Rows, type: str, subject: Row, about: Mapping[str, Any], cause: str) -> None:
    project_id = subject["project_id"]
    payload = {"project_id": project_id, **about}
    rows.publish(type, project_id, payload)
    key, event, depth = f"{type} {cause}", {"type": type, **payload}, subject.get("depth") or 0
    sql = "SELECT * FROM {hooks} AS h WHERE project_id = ? AND enabled = 1"
    for hook in rows.select(sql, (project_id,)):
        trigger = hook["trigger_config"]
        is_wanted = trigger["type"] == "event" and trigger["event_type"] in (type, _ANY)
        if is_wanted and hook["id"] != about.get("hook_id") and not _created(rows, hook, about.get("task_id")):
            put_run(rows, hook, f"event:{type}", key, event, depth)
    if subject.get("playbook_id"):
        return
    sql = "SELECT * FROM {playbooks} AS p WHERE enabled = 1 AND (project_id = ? OR scope = 'system' AND project_id = ?)"
    for playbook in rows.select(sql, (project_id, home_of(rows))):  # others may share their inbox unasked
        if _starts(rows, playbook, subject, event):
            put_playbook_run(rows, playbook, f"event:{type}", key, event, depth)


def _created(rows: Rows, hook: Row, task_id: str | None) -> bool:
    """Whether a run of the hook created the task: one that waits for the end of tasks would never end itself."""
    sql = "SELECT 1 FROM {hook_runs} AS r WHERE hook_id = ? AND task_id = ? LIMIT 1"
    return bool(task_id and rows.select_values(sql, (hook["id"], task_id)))


def _starts(rows: Rows, playbook: Row, subject: Row, event: Mapping[str, Any]) -> bool:
    """Whether a playbook waits for this event: its type, its filter, and the agent of its scope."""
    for trigger in playbook["triggers"]:
        named: Mapping[str, Any] = {"event_type": trigger} if isinstance(trigger, str) else trigger
        known = {**subject, **event}
        wanted = cast("Mapping[str, Any]", named.get("filter") or {})
        if named["event_type"] in (event["type"], _ANY) and all(known.get(key) == wanted[key] for key in wanted):
            _, _, agent_type = playbook["scope"].partition("agent-type:")
            return not agent_type or _agent_type(rows, subject) == agent_type
    return False


def _agent_type(rows: Rows, subject: Row) -> str:
    """Return the type of the agent that is the subject, or has that task, or had it last; empty for none."""
    if "agent_type" in subject:
        return str(subject["agent_type"])
    agent_id = subject.get("assigned_agent_id")
    if not agent_id:
        sql = "SELECT agent_id FROM {results} AS r WHERE task_id = ? ORDER BY created_at DESC, id LIMIT 1"
        agent_id = next((row["agent_id"] for row in rows.select(sql, (subject["id"],))), "")
    agent = rows.find("agents", agent_id)
    return str(agent["agent_type"]) if agent else ""


def put_run(rows: Rows, hook: Row, reason: str, key: str, event: Mapping[str, Any], depth: int = 0) -> Row:
    """Put down a due run of a hook; `key` names its cause, for which it runs once.

    `depth` is that of the task whose event it is: the hooks and playbooks in a row that led to it.
    """
    more: dict[str, Any] = {"prompt_sent": "", "tokens_used": 0, "context_results": [], "generation": 0}
    begun = _begun(rows, "skipped_reason", reason, event, depth)
    return _put(rows, "hook", hook, hook["project_id"], {"event_key": key, **more, **begun})


def put_playbook_run(rows: Rows, playbook: Row, reason: str, key: str, event: Mapping[str, Any], depth: int = 0) -> Row:
    """Put down a due run of a playbook in the project of its event; it keeps to the version that it begins with."""
    names = ("version", "nodes", "max_tokens", "cooldown_seconds", "name")
    more: dict[str, Any] = {**{name: playbook[name] for name in names}, "node": "", "path": [], "reason": ""}
    project_id = str(event.get("project_id") or playbook["project_id"])
    begun = _begun(rows, "reason", reason, event, depth)
    return _put(rows, "playbook", playbook, project_id, {"event_key": key, **more, **begun})


def _begun(rows: Rows, why: str, reason: str, event: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """Return the state of a new run: due, or skipped, which its column `why` explains."""
    begun: dict[str, Any] = {"trigger_reason": reason, "event_data": dict(event), "depth": depth, "status": "due"}
    if depth < _MOST_DEPTH:
        return begun
    explained = f"{depth} hooks and playbooks in a row have led to it: those that start each other end here"
    return {**begun, "status": "skipped", why: explained, "completed_at": rows.now}


def _put(rows: Rows, kind: str, owner: Row, project_id: str, values: dict[str, Any]) -> Row:
    sql = f"SELECT * FROM {{{kind}_runs}} AS r WHERE {kind}_id = ? AND event_key = ?"
    if known := rows.select(sql, (owner["id"], values["event_key"])):
        return known[0]
    return rows.insert(f"{kind}_runs", {"project_id": project_id, f"{kind}_id": owner["id"], **values})
