"""Tools of a worker: claim a task, keep the claim, ask, complete or give up; and what it reads first (`prime`).

`claim_task` takes two transactions. The task is ASSIGNED in the first; hooks that can refuse and the hashes of the
baseline take their time between the two; the second makes it IN_PROGRESS. An error between them gives the task back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from toolcrib.plugin import Context, Row, Rows, ToolFailure, as_mapping, invalid_argument

from ..automation.vetoes import veto_of
from ..events import publish
from ..model import Event
from ..notices import send_notice
from ..operations import (
    INTEGER,
    OF_AGENT,
    TEXT,
    home_of,
    id_of,
    is_paused,
    limit_of,
    named_row,
    queue_tool,
    storage_of,
    transaction_tool,
)
from ..runs.claims import keep_claim
from ..runs.evidence import baseline_of, evidence_of
from ..scheduler import assign, takes_part, tick
from ..state import (
    INPUT_SECONDS,
    LEASE_SECONDS,
    branch_of,
    date_of,
    fire,
    folder_of,
    get_claimed,
    renew,
    unmet_of,
)
from .tasks import view

_BYTES_A_TOKEN: Final = 4
_SHORTEST, _LONGEST = 60, 31_536_000
"""Bounds of `question_ttl`, in seconds."""
_NEXT: Final = 5
"""Ready tasks, and results, that `prime` shows; folders of a message."""
_CLAIM: Final[Mapping[str, Any]] = {
    "task_id": id_of("task"),
    "generation": {"type": "integer", "minimum": 0, "description": "Of the claim, as claim_task returned it"},
}

_SPENT: Final[Mapping[str, Any]] = {
    "tokens_used": {**INTEGER, "default": 0},
    "cost_usd": {"type": "number", "minimum": 0, "maximum": 1_000_000},
}


def places_of(rows: Rows, task: Row) -> list[str]:
    """Return the folders of the workspaces of a task's project, that which it prefers first."""
    sql = "SELECT workspace_path FROM {workspaces} AS w WHERE project_id = ? ORDER BY id <> ?, created_at, id"
    preferred = task["workspace_id"] or task["preferred_workspace_id"] or ""
    return [row["workspace_path"] for row in rows.select(sql, (task["project_id"], preferred))]


def profile_of(rows: Rows, task: Row) -> Row | None:
    """Return the agent profile of a task: its own, else the default one of its project."""
    project = rows.find("projects", task["project_id"])
    named = task["profile_id"] or (project["default_profile_id"] if project else None)
    sql = "SELECT * FROM {profiles} AS p WHERE profile_id = ? AND project_id = ?"
    found = rows.select(sql, (named, home_of(rows))) if named else []
    return found[0] if found else None


@queue_tool(
    "x.queue.claim",
    "queue",
    "write",
    {**OF_AGENT, "project_id": id_of("project", "; without it any")},
    ["agent_id"],
    idempotent=False,
    explicit=["project_id"],
    policy={"edge_cases": ["The claim ends after 300 s without heartbeat_task; what comes later changes nothing."]},
)
async def claim_task(ctx: Context, agent_id: str, project_id: str = "") -> dict[str, Any]:
    """Claim the next task for an idle agent, as the scheduler chooses it, and begin with it."""
    paused = await is_paused(ctx)

    def take(rows: Rows) -> tuple[Row, str, Row | None] | None:
        id = named_row(rows, "agents", agent_id, home_of(rows))["id"]
        tick(rows)  # first: the agent may have a claim of its own whose lease ran out
        agent = rows.get("agents", id, "editor")
        if agent["state"] != "IDLE":
            task_id = agent["current_task_id"]
            message = f"agent {agent['name']} is {agent['state']}" + (f" with task {task_id}" if task_id else "")
            hint = "complete_task or fail_task ends it: get_task has its generation" if task_id else "resume_agent"
            raise ToolFailure("conflict", message, hint=hint, details={"current_task_id": task_id})
        if project_id:
            rows.get("projects", project_id, "editor")
        made = assign(rows, [id], project_id=project_id, is_paused=paused, reaches=partial(_reaches, ctx))
        return (made[0], folder_of(rows, made[0]), profile_of(rows, made[0])) if made else None

    taken = await storage_of(ctx).write(take)
    if taken is None:
        if paused:
            return {"task": None, "message": "The queue is paused."}
        held = await storage_of(ctx).read(partial(_hindrances, ctx, project_id))
        return {"task": None, "message": f"No task can begin: {'; '.join(held)}." if held else "No task is ready."}
    task, folder, profile = taken
    try:
        refusal = await veto_of(ctx, task["id"], "task.started")
        baseline = await baseline_of(ctx, task, folder)
    except BaseException:
        await storage_of(ctx).write(lambda rows: _give_back(rows, task))
        raise
    if refusal is not None:
        await storage_of(ctx).write(lambda rows: _block(rows, task, refusal.message))
        return dict(await claim_task(ctx, agent_id, project_id))

    def begin(rows: Rows) -> dict[str, Any]:
        held = get_claimed(rows, task["id"], task["generation"])
        begin = {"begin": held["baseline"]["begin"]} if "begin" in held["baseline"] else {}
        started = fire(rows, held, "AGENT_STARTED", baseline={**baseline, **begin})
        return {
            "task": view(rows, started),
            "generation": started["generation"],
            "lease_until": date_of(started["lease_until"]),
            "workspace_path": folder,
            "branch": branch_of(started),
            "instructions": profile["system_prompt_suffix"] if profile else "",
            "message": "Work on it; heartbeat_task keeps the claim, complete_task ends it.",
        }

    return await storage_of(ctx).write(begin)


def _reaches(ctx: Context, folder: str) -> bool:
    """Whether the files of this session include a folder; one without files leaves that to its caller."""
    if ctx.workspace is not None:
        try:
            ctx.workspace.local(folder)
        except ToolFailure:
            return False
    return True


def _hindrances(ctx: Context, project_id: str, rows: Rows) -> list[str]:
    """Return why ready tasks cannot begin: what stops their projects, and their workspaces; some of it."""
    chosen, given = (" AND project_id = ?", (project_id,)) if project_id else ("", ())
    ready = f"SELECT project_id FROM {{tasks}} AS t WHERE status = 'READY' AND archived_at IS NULL{chosen}"
    held: list[str] = []
    for one in rows.select(f"SELECT * FROM {{projects}} AS p WHERE id IN ({ready}) ORDER BY id", given):
        places = rows.select("SELECT created_by FROM {workspaces} AS w WHERE project_id = ?", (one["id"],))
        if not project_id and not takes_part(rows, one, places):
            held.append(f"project {one['id']} is not yours: name it, or add a workspace to it")
        elif one["status"] != "ACTIVE":
            held.append(f"project {one['id']} is {one['status']}")
        elif one["budget_limit"] is not None and one["total_tokens_used"] >= one["budget_limit"]:
            held.append(f"project {one['id']} has used {one['total_tokens_used']} of {one['budget_limit']} tokens")
    for one in rows.select(f"SELECT * FROM {{workspaces}} AS w WHERE project_id IN ({ready}) ORDER BY id", given):
        if one["locked_by_task_id"]:
            held.append(f"{one['workspace_path']} has task {one['locked_by_task_id']}")
        elif not _reaches(ctx, one["workspace_path"]):
            held.append(f"{one['workspace_path']} is outside of this session's files")
    return held[:_NEXT]


def _give_back(rows: Rows, task: Row, event: Event = "EXECUTION_ERROR", **changes: Any) -> None:
    held = rows.find("tasks", task["id"])
    if held is not None and held["generation"] == task["generation"] and held["status"] == "ASSIGNED":
        fire(rows, held, event, **changes)


def _block(rows: Rows, task: Row, reason: str) -> None:
    """Set a task aside that a hook refused, for a person to look at: READY again, it would be claimed at once."""
    _give_back(rows, task, "TIMEOUT", error_message=reason)


@transaction_tool("x.queue.heartbeat", "queue", "write", _CLAIM, ["task_id", "generation"], idempotent=True)
def heartbeat_task(rows: Rows, task_id: str, generation: int) -> dict[str, Any]:
    """Keep a claim for another 300 s; answers with what changed about the task meanwhile."""
    task = get_claimed(rows, task_id, generation)
    if task["status"] != "WAITING_INPUT":  # a question has its own, longer time
        task = renew(rows, task)
    return {"task_id": task_id, "status": task["status"], "lease_until": date_of(task["lease_until"])}


@queue_tool(
    "x.queue.complete",
    "queue",
    "write",
    {
        **_CLAIM,
        "summary": {**TEXT, "description": "What was done"},
        "files_changed": {"type": "array", "items": {"type": "string"}, "maxItems": 1000},
        **_SPENT,
        "branch": id_of("branch with the result: that of the claim, where the work is committed there"),
        "pr_url": {"type": "string", "maxLength": 1000},
    },
    ["task_id", "generation", "summary"],
    idempotent=False,
    timeout=600,
    policy={"edge_cases": ["A task with `acceptance` stays IN_PROGRESS until every entry is shown."]},
)
async def complete_task(ctx: Context, task_id: str, generation: int, summary: str, **given: Any) -> dict[str, Any]:
    """End a claimed task: its declared evidence is checked, then it is verified or waits for a person."""
    evidence = await keep_claim(ctx, task_id, generation, lambda: check_done(ctx, task_id, generation))
    return await end_task(ctx, task_id, generation, summary, evidence, given)


async def check_done(ctx: Context, task_id: str, generation: int) -> list[dict[str, Any]]:
    """Return the evidence of a claimed task.

    Raises `ToolFailure("conflict")` where a part of it is missing, or a hook refuses the result.
    """

    def look(rows: Rows) -> tuple[Row, str]:
        task = get_claimed(rows, task_id, generation, ("IN_PROGRESS",))
        return task, folder_of(rows, task)

    task, folder = await storage_of(ctx).read(look)
    evidence = await evidence_of(ctx, task, folder)
    if lacks := [one for one in evidence if not one["is_shown"]]:
        shown = "; ".join(
            f"{one['type']} {one.get('command') or one.get('path') or one.get('tool') or ''}".strip() for one in lacks
        )
        raise ToolFailure(
            "conflict",
            f"task {task_id} is not shown to be done: {shown}",
            hint="the task is still yours: finish it, or give up with fail_task",
            details={"evidence": evidence},
        )

    if refusal := await veto_of(ctx, task_id, "task.completed"):
        raise refusal
    return evidence


async def end_task(
    ctx: Context,
    task_id: str,
    generation: int,
    summary: str,
    evidence: Sequence[Mapping[str, Any]],
    given: Mapping[str, Any],
) -> dict[str, Any]:
    """End a claimed task whose evidence was found; one with a plan, a pull request or an approver waits for that."""

    def end(rows: Rows) -> Row:
        held = get_claimed(rows, task_id, generation, ("IN_PROGRESS",))
        if given.get("branch", branch_of(held)) != branch_of(held):  # approve_task merges it
            raise invalid_argument("branch", f"the branch of task {task_id} is {branch_of(held)}")
        _add_result(rows, held, "completed", {**given, "summary": summary, "evidence": [*evidence]})
        places = {"branch_name": given.get("branch") or held["branch_name"], "pr_url": given.get("pr_url")}
        done = fire(rows, held, "AGENT_COMPLETED", **places)
        if given.get("plan"):
            done = fire(rows, done, "PLAN_FOUND", plan=given["plan"])
            publish(rows, "plan.found", done, steps=len(given["plan"]))
        elif done["requires_approval"] or done["verification_type"] == "human" or given.get("pr_url"):
            done = fire(rows, done, "PR_CREATED")
            if done["pr_url"]:
                publish(rows, "pr.created", done, pr_url=done["pr_url"])
        elif done["verification_type"] != "qa_agent":
            done = fire(rows, done, "VERIFY_PASSED")
        return done

    done = await storage_of(ctx).write(end)
    ended = {"task_id": task_id, "status": done["status"], "evidence": [*evidence]}
    if done["status"] not in ("AWAITING_APPROVAL", "AWAITING_PLAN_APPROVAL"):
        return ended
    steps = "".join(f"\n{number}. {step['title']}" for number, step in enumerate(done["plan"], 1))
    how = f"{summary}{steps}\n\nApprove: toolcrib queue approve {task_id}"
    return {**ended, **await send_notice(ctx, done["project_id"], f"{done['title']} waits for approval", how)}


@transaction_tool(
    "x.queue.fail",
    "queue",
    "write",
    {**_CLAIM, "error_message": TEXT, **_SPENT},
    ["task_id", "generation", "error_message"],
    idempotent=False,
)
def fail_task(rows: Rows, task_id: str, generation: int, error_message: str, **spent: Any) -> dict[str, Any]:
    """Give a claimed task up, with the reason; it is tried again while it has retries left."""
    task = get_claimed(rows, task_id, generation, ("IN_PROGRESS",))
    _add_result(rows, task, "failed", {"error_message": error_message, **spent})
    failed = fire(rows, task, "AGENT_FAILED", error_message=error_message)
    if task["token_limit"] is not None and _tokens_of(rows, task_id) >= task["token_limit"]:
        failed = fire(rows, failed, "MAX_RETRIES")
    return {
        "task_id": task_id,
        "status": failed["status"],
        "retries": f"{task['retry_count']} / {task['max_retries']}",
    }


def _tokens_of(rows: Rows, task_id: str) -> int:
    """Return the tokens of all attempts."""
    sql = "SELECT sum(tokens_used) AS n FROM {results} AS r WHERE task_id = ?"
    return int(rows.select(sql, (task_id,))[0]["n"] or 0)


def _begun(rows: Rows, task: Row) -> float:
    """Return when this attempt of a task began: at its claim, or where its question was asked."""
    sql = "SELECT max(created_at) AS last FROM {results} AS r WHERE task_id = ? AND created_at >= ?"
    claimed = float(task["claimed_at"] or rows.now)
    return float(rows.select(sql, (task["id"], claimed))[0]["last"] or claimed)


def _add_result(rows: Rows, task: Row, result: str, given: Mapping[str, Any]) -> None:
    """Store what an agent ended with, and count its tokens."""
    tokens = int(given.get("tokens_used") or 0)
    values: dict[str, Any] = {
        "project_id": task["project_id"],
        "task_id": task["id"],
        "agent_id": task["assigned_agent_id"] or rows.principal,
        "result": result,
        "summary": given.get("summary") or "",
        "files_changed": given.get("files_changed") or [],
        "error_message": given.get("error_message") or "",
        "tokens_used": tokens,
        "evidence": given.get("evidence") or [],
        "cost_usd": given.get("cost_usd"),
        "seconds": round(rows.now - _begun(rows, task), 1),
    }
    rows.insert("results", values)
    if not tokens:
        return
    project = rows.get("projects", task["project_id"])
    used = project["total_tokens_used"] + tokens
    rows.update("projects", project["id"], {"total_tokens_used": used})
    if project["budget_limit"] is not None and used >= project["budget_limit"]:
        publish(rows, "budget.warning", task, total_tokens_used=used, budget_limit=project["budget_limit"])
    agent = rows.find("agents", task["assigned_agent_id"] or "")
    if agent is not None:
        rows.update("agents", agent["id"], {"total_tokens_used": agent["total_tokens_used"] + tokens})


@queue_tool(
    "x.queue.ask",
    "queue",
    "write",
    {**_CLAIM, "question": TEXT, **_SPENT},
    ["task_id", "generation", "question"],
    idempotent=False,
    policy={"edge_cases": ["Without an answer by `expires` (a day) the task is PAUSED, then READY again."]},
)
async def ask_question(ctx: Context, task_id: str, generation: int, question: str, **spent: Any) -> dict[str, Any]:
    """Ask a person about a claimed task. The claim stays; heartbeat_task tells when the answer has come."""
    seconds = _question_ttl(ctx.lent.setting("queue"))

    def work(rows: Rows) -> tuple[Row, dict[str, Any]]:
        task = get_claimed(rows, task_id, generation, ("IN_PROGRESS",))
        _add_result(rows, task, "waiting_input", {"summary": question, **spent})
        asked = fire(rows, task, "AGENT_QUESTION", question=question, lease_until=rows.now + seconds)
        answer = {"task_id": task_id, "status": asked["status"], "expires": date_of(asked["lease_until"])}
        return asked, answer

    asked, answer = await storage_of(ctx).write(work)
    how = f"{question}\n\nAnswer: toolcrib queue answer {task_id} TEXT"
    return {**answer, **await send_notice(ctx, asked["project_id"], f"{asked['title']} asks", how)}


def _question_ttl(settings: Any) -> float:
    """Return the seconds that a question waits: `tools: {queue: {question_ttl: …}}`, else a day."""
    given = as_mapping(settings).get("question_ttl")
    if given is None:
        return INPUT_SECONDS
    if isinstance(given, bool) or not isinstance(given, int | float) or not _SHORTEST <= given <= _LONGEST:
        message = f"tools: {{queue: {{question_ttl: {given!r}}}}} is not a number of seconds"
        raise ToolFailure("unavailable", message, hint=f"it is between {_SHORTEST} and {_LONGEST}")
    return float(given)


@transaction_tool(
    "x.queue.answer",
    "queue",
    "write",
    {"task_id": id_of("task"), "answer": TEXT},
    ["task_id", "answer"],
    idempotent=False,
)
def answer_question(rows: Rows, task_id: str, answer: str) -> dict[str, Any]:
    """Answer the question of an agent; its task goes on with the answer among its notes."""
    task = rows.get("tasks", task_id, "editor")
    question = task["question"] or ""
    changed = fire(rows, task, "HUMAN_REPLIED", question=None, lease_until=rows.now + LEASE_SECONDS)
    values: dict[str, Any] = {"task_id": task_id, "type": "answer", "label": question[:500], "content": answer}
    rows.insert("contexts", {"project_id": task["project_id"], **values})
    return {"task_id": task_id, "status": changed["status"], "question": question}


@transaction_tool(
    "x.queue.verify",
    "queue",
    "write",
    {
        "task_id": id_of("task"),
        "agent_id": {
            **OF_AGENT["agent_id"],
            "description": "Id or name of the agent that verifies; not the one that did it",
        },
        "is_passed": {"type": "boolean"},
        "comment": TEXT,
    },
    ["task_id", "agent_id", "is_passed", "comment"],
    idempotent=False,
    examples=[{"task_id": "<task_id>", "agent_id": "<agent_id>", "is_passed": True, "comment": "All cases hold."}],
)
def verify_task(rows: Rows, task_id: str, agent_id: str, is_passed: bool, comment: str) -> dict[str, Any]:
    """Verify the result of a task in VERIFYING by a second agent."""
    task, agent = rows.get("tasks", task_id, "editor"), named_row(rows, "agents", agent_id, home_of(rows))
    sql = "SELECT agent_id FROM {results} AS r WHERE task_id = ? ORDER BY created_at DESC LIMIT 1"
    done_by = rows.select(sql, (task_id,))
    if done_by and done_by[0]["agent_id"] == agent["id"]:
        raise ToolFailure("conflict", f"agent {agent['name']} did task {task_id}: another one verifies it")
    values: dict[str, Any] = {
        "task_id": task_id,
        "type": "verification",
        "label": agent["name"],
        "content": comment,
    }
    rows.insert("contexts", {"project_id": task["project_id"], **values})
    more: dict[str, Any] = {} if is_passed else {"error_message": comment}
    changed = fire(rows, task, "VERIFY_PASSED" if is_passed else "VERIFY_FAILED", **more)
    return {"task_id": task_id, "status": changed["status"]}


@transaction_tool(
    "x.queue.prime",
    "queue",
    "read",
    {"project_id": id_of("project"), "max_tokens": {**limit_of(1000, 20_000), "minimum": 100}},
    ["project_id"],
)
def prime(rows: Rows, project_id: str, max_tokens: int) -> dict[str, Any]:
    """Tell where a project stands: tasks at work, open questions, the next ready ones, blockers, last results."""
    project = rows.get("projects", project_id)
    return {"project_id": project_id, "text": _primer(rows, project, max_tokens * _BYTES_A_TOKEN)}


def _primer(rows: Rows, project: Row, room: int) -> str:
    """Return sections in the order of their weight, as many lines as fit into so many bytes."""

    def tasks(*statuses: str, limit: int = 20) -> list[Row]:
        marks = ", ".join("?" * len(statuses))
        sql = (
            f"SELECT * FROM {{tasks}} AS t WHERE project_id = ? AND status IN ({marks}) AND archived_at IS NULL"
            " ORDER BY priority, id LIMIT ?"
        )
        return rows.select(sql, (project["id"], *statuses, limit))

    results = rows.select(
        "SELECT r.result, r.summary, r.error_message, t.title FROM {results} AS r JOIN {tasks} AS t ON t.id = r.task_id"
        " WHERE r.project_id = ? ORDER BY r.created_at DESC, r.id LIMIT ?",
        (project["id"], _NEXT),
    )
    sections = {
        "At work": [f"{one['id']}: {one['title']}. {one['description']}" for one in tasks("IN_PROGRESS", "ASSIGNED")],
        "Open questions": [f"{one['id']}: {one['question']}" for one in tasks("WAITING_INPUT")],
        "Next": [f"{one['id']} (priority {one['priority']}): {one['title']}" for one in tasks("READY", limit=_NEXT)],
        "Blocked": [
            f"{one['id']}: {one['title']} ({one['error_message'] or ', '.join(unmet_of(rows, one['id'])) or 'stopped'})"
            for one in tasks("BLOCKED", "FAILED", "DEFINED", limit=10)
        ],
        "Last results": [
            f"{one['title']}: {one['result']}. {one['summary'] or one['error_message']}" for one in results
        ],
    }
    lines = [f"# {project['name']} ({project['status']}, branch {project['repo_default_branch']})"]
    room -= len(lines[0].encode())
    for name, entries in sections.items():
        for number, entry in enumerate(entries):
            text = " ".join(entry.split())
            shown = f"- {text[:300]}" if number else f"\n## {name}\n- {text[:300]}"
            if len(shown.encode()) + 1 > room:
                break
            room -= len(shown.encode()) + 1
            lines.append(shown)
    return "\n".join(lines)
