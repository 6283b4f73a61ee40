"""Runs of playbooks: which node comes next, by what its task or a person ended the last one with.

A run moves in the transactions of the tick, and by the tools for people here. What it waits for is in its row: a task
of an agent, or a person; a process that ends takes nothing with it.

    due ─> running: the task of a node ─ its outcome names a transition ─> next node … ─> completed
              │                        └ none does ─> waiting: a person decides
              └ terminal node, limit, deleted task: completed or failed

The agent of a node names the outcome by the last line of its summary: `OUTCOME: safe`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolcrib.plugin import Context, Row, Rows, ToolFailure, invalid_argument

from ..events import publish, put_playbook_run
from ..operations import LONG, OFFSET, id_of, limit_of, queue_tool, read_page, storage_of, transaction_tool
from ..state import date_of
from ..tools.tasks import insert_task
from .playbooks import entry_of
from .steps import fill

_OUTCOME: Final = "OUTCOME:"
_FAILED: Final = "failed"
"""Outcome of a node whose task is BLOCKED."""
_STEPS: Final = 200
"""Nodes that one run goes through: a circle without an end stops here."""
_BATCH: Final = 500
_SHOWN: Final = 20_000
_ACTIVE: Final = ("due", "running", "waiting")
_RUN: Final = {"run_id": id_of("run of a playbook")}


def move_playbooks(rows: Rows) -> list[Row]:
    """Move the caller's runs on as far as they go without an agent or a person; return those that moved."""
    found = _active(rows)
    moved = [_move(rows, run) for run in found]
    before = {run["id"]: run["revision"] for run in found}
    return [run for run in moved if run["revision"] != before[run["id"]]]


def has_due_playbook(rows: Rows) -> bool:
    """Whether `move_playbooks` would move a run on."""
    return any(_is_due(rows, run) for run in _active(rows))


def _active(rows: Rows) -> list[Row]:
    """Return the runs that have not ended and that the caller may change."""
    sql = "SELECT * FROM {playbook_runs} AS r WHERE status IN ('due', 'running', 'waiting') ORDER BY created_at, id"
    return [run for run in rows.select(f"{sql} LIMIT ?", (_BATCH,)) if rows.role(run["project_id"]) != "viewer"]


def _is_due(rows: Rows, run: Row) -> bool:
    """Whether a run is due, or its task has ended; one that waits for a person needs a task that says where to go."""
    if run["status"] == "due" or not run["task_id"]:
        return run["status"] == "due"
    task = rows.find("tasks", run["task_id"])
    if task is None or run["status"] == "running":
        return task is None or task["status"] in ("COMPLETED", "BLOCKED")
    text = _last_words(rows, task["id"]) if task["status"] == "COMPLETED" else ""
    return bool(text) and _goto(run["nodes"][run["node"]], _outcome_of(text)) is not None


def _move(rows: Rows, run: Row) -> Row:
    """Move a run on as far as the state of its task allows; return it, the same row where it does not."""
    if run["status"] == "due":
        return _begin(rows, run)
    if not run["task_id"]:
        return run  # it waits for a person
    task = rows.find("tasks", run["task_id"])
    if task is None:
        return _end(rows, run, "failed", f"the task of node {run['node']} was deleted")
    if task["status"] == "COMPLETED":
        text = _last_words(rows, task["id"])
        return _leave(rows, run, _outcome_of(text), text)
    if task["status"] == "BLOCKED" and run["status"] == "running":
        return _leave(rows, run, _FAILED, task["error_message"])
    return run


def _begin(rows: Rows, run: Row) -> Row:
    """Enter the first node, unless the playbook was deleted, switched off, or rests."""
    playbook = rows.find("playbooks", run["playbook_id"])
    is_manual = run["trigger_reason"] == "manual"
    why = ""
    if playbook is None:
        why = "the playbook was deleted"
    elif not playbook["enabled"] and not is_manual:
        why = "the playbook is switched off"
    elif playbook["last_run"] is not None and playbook["last_run"] + run["cooldown_seconds"] > rows.now:
        why = "" if is_manual else f"cooldown of {run['cooldown_seconds']} s"
    if why or playbook is None:
        return _end(rows, run, "skipped", why)
    rows.update("playbooks", playbook["id"], {"last_run": rows.now})
    _tell(rows, run, "started")
    return _enter(rows, {**run, "started_at": rows.now}, entry_of(run["nodes"]))


def _enter(rows: Rows, run: Row, name: str) -> Row:
    """Begin with a node: end at a terminal one, wait for a person, or make the task of an agent."""
    node = run["nodes"][name]
    state = {"started_at": run["started_at"], "path": run["path"], "node": name, "task_id": None, "reason": ""}
    if node.get("terminal"):
        return _end(rows, rows.update("playbook_runs", run["id"], state), "completed", "")
    if len(run["path"]) >= _STEPS:
        return _end(rows, rows.update("playbook_runs", run["id"], state), "failed", f"{_STEPS} nodes without an end")
    used = _tokens_of(rows, run)
    if run["max_tokens"] is not None and used >= run["max_tokens"]:
        reason = f"it used {used} of {run['max_tokens']} tokens"
        return _end(rows, rows.update("playbook_runs", run["id"], state), "failed", reason)
    results = {step["node"]: {"text": step["text"], "outcome": step["outcome"]} for step in run["path"]}
    prompt = fill(node["prompt"], results, run["event_data"])
    if node.get("wait_for_human"):
        return _wait(rows, rows.update("playbook_runs", run["id"], state), prompt)
    if words := _words(node):
        prompt += f"\n\nEnd your summary with one line, {_OUTCOME} and one of: {', '.join(words)}"
    given: dict[str, Any] = {key: node[key] for key in ("profile_id", "requires_approval", "acceptance") if key in node}
    limit = None if run["max_tokens"] is None else run["max_tokens"] - used
    given |= {"description": prompt, "playbook_id": run["playbook_id"], "token_limit": limit}
    given |= {"depth": (run["depth"] or 0) + 1}
    try:
        task = insert_task(rows, run["project_id"], f"{run['name']}: {name}"[:500], given)
    except ToolFailure as failure:  # a profile that is there no more
        return _end(rows, rows.update("playbook_runs", run["id"], state), "failed", failure.message)
    return rows.update("playbook_runs", run["id"], {**state, "task_id": task["id"], "status": "running"})


def _leave(rows: Rows, run: Row, outcome: str, text: str) -> Row:
    """Go on from a node by its outcome; one that no transition names waits for a person."""
    node = run["nodes"][run["node"]]
    goto = _goto(node, outcome)
    if goto is None:
        words = ", ".join(_words(node)) or "none"
        why = f"the outcome {outcome[:100]!r} is none of its transitions: {words}" if outcome else "no outcome is named"
        if run["status"] == "waiting" and run["reason"] == why:
            return run
        return _wait(rows, run, why)
    step = {"node": run["node"], "outcome": outcome, "text": text[:_SHOWN], "task_id": run["task_id"]}
    return _enter(rows, {**run, "path": [*run["path"], step]}, goto)


def _goto(node: Mapping[str, Any], outcome: str) -> str | None:
    """Return the node that an outcome leads to; None where none does."""
    for one in node.get("transitions", ()):
        if one["when"].casefold() == outcome.casefold():
            return str(one["goto"])
    return None if outcome == _FAILED else node.get("goto")


def _words(node: Mapping[str, Any]) -> list[str]:
    """Return the outcomes of a node that its agent, or a person, can name."""
    return [one["when"] for one in node.get("transitions", ()) if one["when"].casefold() != _FAILED]


def _wait(rows: Rows, run: Row, reason: str) -> Row:
    waiting = rows.update("playbook_runs", run["id"], {"status": "waiting", "reason": reason})
    _tell(rows, waiting, "waiting", reason=reason)
    return waiting


def _end(rows: Rows, run: Row, status: str, reason: str) -> Row:
    ended = rows.update(
        "playbook_runs", run["id"], {"status": status, "reason": reason, "completed_at": rows.now, "task_id": None}
    )
    if status != "skipped":
        _tell(rows, ended, status, reason=reason)
    return ended


def _tell(rows: Rows, run: Row, what: str, **more: Any) -> None:
    about = {"id": run["task_id"] or "", "title": run["name"], "playbook_id": run["playbook_id"]}
    publish(rows, f"playbook.run.{what}", {**run, **about}, run_id=run["id"], node=run["node"], **more)


def _tokens_of(rows: Rows, run: Row) -> int:
    tasks = [step["task_id"] for step in run["path"] if step["task_id"]]
    if not tasks:
        return 0
    marks = ", ".join("?" * len(tasks))
    sql = f"SELECT sum(tokens_used) AS n FROM {{results}} AS r WHERE task_id IN ({marks})"
    return int(rows.select(sql, tasks)[0]["n"] or 0)


def _last_words(rows: Rows, task_id: str) -> str:
    sql = "SELECT summary FROM {results} AS r WHERE task_id = ? ORDER BY created_at DESC, id LIMIT 1"
    found = rows.select(sql, (task_id,))
    return str(found[0]["summary"]) if found else ""


def _outcome_of(text: str) -> str:
    """Return the outcome that a last message names at its end; empty for none."""
    last = text.strip().rpartition("\n")[2].strip()
    return last.removeprefix(_OUTCOME).strip(" .*`") if last.startswith(_OUTCOME) else ""


@queue_tool(
    "x.playbook.run",
    "playbooks",
    "write",
    {
        "playbook_id": id_of("playbook"),
        "event": {"type": "object", "maxProperties": 50, "description": "Fields for {{event.field}} of its prompts"},
    },
    ["playbook_id"],
    idempotent=False,
)
async def run_playbook(ctx: Context, playbook_id: str, event: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Begin a run of a playbook now, in spite of its cooldown; its first node becomes a task."""

    def work(rows: Rows) -> dict[str, Any]:
        playbook = rows.get("playbooks", playbook_id, "editor")
        own = {"type": "manual", "project_id": playbook["project_id"], "task_id": ""}
        run = put_playbook_run(rows, playbook, "manual", ctx.call_id, {**(event or {}), **own})
        return _shown(_begin(rows, run) if run["status"] == "due" else run)

    return await storage_of(ctx).write(work)


@transaction_tool(
    "x.playbook.runs",
    "playbooks",
    "read",
    {
        "playbook_id": id_of("playbook", "; without it all"),
        "is_active": {"type": "boolean", "default": False},
        "limit": limit_of(10, 100),
        "offset": OFFSET,
    },
)
def list_playbook_runs(rows: Rows, is_active: bool, limit: int, offset: int, playbook_id: str = "") -> dict[str, Any]:
    """List runs of playbooks, the newest first: the nodes that each went through, and what it waits for."""
    if playbook_id:
        rows.get("playbooks", playbook_id)
    chosen, given = ("playbook_id = ?", (playbook_id,)) if playbook_id else ("1 = 1", ())
    if is_active:
        chosen += " AND status IN ('due', 'running', 'waiting')"
    sql = f"SELECT * FROM {{playbook_runs}} AS r WHERE {chosen} ORDER BY created_at DESC, id"
    runs, more = read_page(rows, sql, given, _shown, limit=limit, offset=offset)
    return {"runs": runs, **more}


def _shown(run: Row) -> dict[str, Any]:
    names = ("id", "playbook_id", "name", "version", "project_id", "status", "node", "task_id", "reason")
    shown = {name: run[name] for name in names}
    path = [{key: step[key] for key in ("node", "outcome", "task_id")} for step in run["path"]]
    shown |= {"trigger_reason": run["trigger_reason"], "path": path}
    if run["status"] == "waiting":
        shown["outcomes"] = [one["when"] for one in run["nodes"][run["node"]].get("transitions", ())]
    return {**shown, **{name: date_of(run[name]) for name in ("started_at", "completed_at")}}


@transaction_tool(
    "x.playbook.decide",
    "playbooks",
    "write",
    {
        **_RUN,
        "outcome": {"type": "string", "maxLength": 60, "default": "", "description": "One of its transitions"},
        "comment": {**LONG, "description": "Later nodes read it"},
    },
    ["run_id"],
    idempotent=False,
    approval="always",
)
def decide_playbook_run(rows: Rows, run_id: str, outcome: str, comment: str = "") -> dict[str, Any]:
    """Decide how a run goes on that waits for a person, who is asked every time."""
    run = rows.get("playbook_runs", run_id, "editor")
    if run["status"] != "waiting":
        raise ToolFailure("conflict", f"run {run_id} is {run['status']}: it does not wait for a person")
    node = run["nodes"][run["node"]]
    if _goto(node, outcome) is None:
        words = ", ".join(one["when"] for one in node["transitions"])
        raise invalid_argument("outcome", f"{outcome!r} is none of {words}", keyword="enum")
    return _shown(_leave(rows, run, outcome, comment))


@transaction_tool("x.playbook.stop", "playbooks", "write", {**_RUN, "reason": LONG}, ["run_id"], idempotent=False)
def stop_playbook_run(rows: Rows, run_id: str, reason: str = "") -> dict[str, Any]:
    """Stop a run; the task of its node stays as it is, for stop_task or delete_task."""
    run = rows.get("playbook_runs", run_id, "editor")
    if run["status"] not in _ACTIVE:
        raise ToolFailure("conflict", f"run {run_id} is {run['status']}: it has ended")
    task_id = run["task_id"]
    _end(rows, run, "stopped", reason or "a person stopped it")
    return {"stopped": run_id, "name": run["name"], "task_id": task_id}
