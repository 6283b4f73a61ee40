"""A run: the program of an agent does one task in the sandbox, from its claim to its end.

The claim has a lease that the run renews. Where the process of the run is killed, the lease ends, the task is READY
again, and the next run goes on with what the branch of the task holds.

    claim (or the answered task) ─> workspace locked ─> branch checked out ─> baseline
      ─> program in the sandbox ─> other refs restored ─> claim renewed ─> commit
      ─> error: fail_task │ question: ask_question │ result: evidence, plan, push ─> end_task ─> merge

Nothing of a result is trusted: the queue commits, checks the evidence and merges itself. Work is committed only while
the claim holds, because the folder may have another task by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from toolcrib.plugin import Context, Row, Rows, ToolFailure, fenced_text
from toolcrib_tools._workspace.place import workspace_of
from toolcrib_tools.git.repository import Program, Repository, run

from ..events import publish
from ..operations import OF_AGENT, home_of, id_of, named_row, queue_tool, storage_of
from ..plans import planned_in
from ..state import fire, folder_of, get_claimed, needs_of, note, renew
from ..tools.approvals import merge_result
from ..tools.work import ask_question, check_done, claim_task, end_task, fail_task, places_of, profile_of
from .branches import (
    Begun,
    begin_branch,
    check_markers,
    check_merge,
    commit_work,
    completion_of,
    publish_branch,
    refs_of,
    restore_refs,
    task_repository,
)
from .claims import keep_claim
from .evidence import baseline_at
from .program_tools import tools_for
from .programs import AgentProgram, Outcome, Setup, program_of

_QUESTION: Final = "QUESTION:"
_LONGEST: Final = 120_000
"""Bytes of a prompt: Linux takes 131,072 for one argument of a program. What comes last is cut, the notes."""
_SHOWN: Final = 4000
"""Characters of a message or of an output that are kept."""
_GROUND: Final = (
    "You do this task alone, in the current folder. Do not commit: the queue commits what you change, and checks the"
    f" result itself. If you cannot go on without an answer of a person, end with one line that begins with {_QUESTION}"
    " and change nothing that depends on the answer. Else end with a summary of what you did."
)


@queue_tool(
    "x.queue.work",
    "queue",
    "write",
    {**OF_AGENT, "project_id": id_of("project", "; without it any")},
    ["agent_id"],
    idempotent=False,
    explicit=["project_id"],
    open_world=True,
    timeout=7200,
    policy={
        "do": ["Give the program its key: tools: {queue: {agents: {claude: {environment: {…}}}}}."],
        "edge_cases": ["A run that ends with a question goes on by the next call after answer_question."],
    },
)
async def work_task(ctx: Context, agent_id: str, project_id: str = "") -> dict[str, Any]:
    """Let the program of an agent do its next task: in the sandbox, in the task's workspace and on its branch."""
    agent = await storage_of(ctx).read(lambda rows: named_row(rows, "agents", agent_id, home_of(rows)))
    program = program_of(agent["agent_type"], ctx.lent.setting("queue"))
    completion = completion_of(ctx.lent.setting("queue"))
    if ctx.sandbox is None or ctx.sandbox.kind == "none":
        hint = "`toolcrib doctor` says why; without one an agent takes tasks by claim_task"
        raise ToolFailure("unavailable", "agents run in the sandbox, and there is none", hint=hint)
    held = await storage_of(ctx).write(lambda rows: _answered(rows, agent))
    if held is None:
        if waiting := await storage_of(ctx).read(lambda rows: _asking(rows, agent)):
            how = f"answer_question, or `toolcrib queue answer {waiting} TEXT`"
            return {"task": None, "message": f"Task {waiting} waits for an answer: {how}."}
        claimed = await claim_task(ctx, agent["id"], project_id)
        if claimed["task"] is None:
            return claimed
        held = claimed["task"]["id"], claimed["generation"]
    task_id, generation = held
    try:
        return await _run(ctx, agent, program, completion, task_id, generation)
    except ToolFailure as failure:
        await _give_up(ctx, task_id, generation, failure.message)
        raise


def _asking(rows: Rows, agent: Row) -> str:
    """Return the task of an agent whose question waits for its answer; empty for none."""
    task = rows.find("tasks", agent["current_task_id"] or "")
    return (
        task["id"] if task is not None and task["status"] == "WAITING_INPUT" and task["lease_until"] > rows.now else ""
    )


def _answered(rows: Rows, agent: Row) -> tuple[str, int] | None:
    """Take again the task of an agent whose question was answered; the claim gets a new generation.

    The newest note decides: an answer that no run has begun with since. A run that is at work notes that it began.
    """
    task = rows.find("tasks", agent["current_task_id"] or "")
    if task is None or task["status"] != "IN_PROGRESS":
        return None
    sql = (
        "SELECT type FROM {contexts} AS c WHERE task_id = ? AND type IN ('answer', 'run') ORDER BY created_at DESC, id"
    )
    newest = rows.select(f"{sql} LIMIT 1", (task["id"],))
    if not newest or newest[0]["type"] != "answer":
        return None
    taken = rows.update("tasks", task["id"], {"generation": task["generation"] + 1})
    return renew(rows, taken)["id"], taken["generation"]


async def _run(
    ctx: Context, agent: Row, program: AgentProgram, completion: str, task_id: str, generation: int
) -> dict[str, Any]:
    own = str(workspace_of(ctx).local("."))
    claimed = await storage_of(ctx).write(partial(_begin, task_id, generation, own))
    if isinstance(claimed, str):
        return {"task": None, "message": f"Task {claimed} is at work in this folder."}
    task, folder, setup, default = claimed.task, claimed.folder, claimed.setup, claimed.default
    program.check(setup)
    repository = await task_repository(ctx, folder, default)
    begin_at, refs = Begun(branch="", start=""), dict[str, str]()
    report: dict[str, Any] = {"task_id": task_id}
    if repository is not None:
        begin_at = await begin_branch(repository, task, claimed.needed, claimed.others)
        refs = await refs_of(repository)
        baseline = await baseline_at(repository, task, workspace_of(ctx).local(folder), begin_at.start)
        await storage_of(ctx).write(partial(_keep_baseline, task_id, generation, baseline, begin_at.conflict))
    if begin_at.conflict:
        setup = replace(setup, prompt=f"{setup.prompt}\n\n## Conflict\n{begin_at.conflict}")
        report["conflict"] = begin_at.conflict
    place = workspace_of(ctx).local(folder)
    async with tools_for(ctx, program, setup, place) as bound:
        report["tools"] = program.way(bound)
        session = f", session {bound.served.session}" if bound.served is not None else ""
        about = f"{agent['name']} ({program.agent_type}), {report['tools']}{session}"
        outcome = await _ended(ctx, program, bound, place, task_id, generation, about)
    report |= {"summary": outcome.text[-_SHOWN:], **outcome.spent}
    branch = begin_at.branch
    if repository is not None and (moved := await restore_refs(repository, branch, refs)):
        report["restored_refs"] = moved
    try:
        await storage_of(ctx).write(lambda rows: renew(rows, get_claimed(rows, task_id, generation)))
    except ToolFailure as failure:  # the folder may be that of another task by now: nothing is committed in it
        reason = outcome.error or failure.message
        return {**report, **await _give_up(ctx, task_id, generation, reason, outcome)}
    commit = await _committed(ctx, repository, branch, task, agent, outcome.text) if repository is not None else ""
    report |= {"branch": branch, "commit": commit}
    ways = _Ways(repository, begin_at, folder, default, completion)
    ended = await _end(ctx, task, generation, outcome, ways)
    if repository is not None and ended["status"] == "COMPLETED" and completion == "merge":
        report |= await merge_result(ctx, repository, {**task, "status": "COMPLETED"}, branch)
    return {**report, **ended}


class _Claimed(Struct, frozen=True):
    """A claimed task, as a run begins with it."""

    task: Row
    folder: str
    setup: Setup
    needed: list[str]
    """Branches of the tasks that it depends on."""
    others: list[str]
    """Other workspaces of its project."""
    default: str
    """The default branch of its project."""


def _begin(task_id: str, generation: int, own: str, rows: Rows) -> _Claimed | str:
    """Return the task of a claim, which now has a workspace: `own` where its project has none.

    Returns the id of another task that is at work in the folder, and gives the claim back then.
    """
    task = get_claimed(rows, task_id, generation, ("IN_PROGRESS",))
    # Projects lock their workspaces one by one, and two of them may have the same folder.
    if user := _user_of(rows, own if task["workspace_id"] is None else folder_of(rows, task), task_id):
        fire(rows, task, "RECOVERY")
        return user
    if task["workspace_id"] is None:
        task = _occupy(rows, task, own)
    branches = [rows.get("tasks", one["id"])["branch_name"] for one in needs_of(rows, task_id)]
    folder = folder_of(rows, task)
    return _Claimed(
        task=task,
        folder=folder,
        setup=_setup(rows, task),
        needed=[name for name in branches if name],
        others=[place for place in places_of(rows, task) if place != folder],
        default=rows.get("projects", task["project_id"])["repo_default_branch"],
    )


def _keep_baseline(task_id: str, generation: int, baseline: Mapping[str, Any], conflict: str, rows: Rows) -> None:
    task = rows.update("tasks", get_claimed(rows, task_id, generation)["id"], {"baseline": baseline})
    if conflict:
        note(rows, task, "conflict", conflict)


class _Ways(Struct, frozen=True):
    """Place of a run's result, and how the result is taken from it."""

    repository: Repository | None
    begun: Begun
    folder: str
    default: str
    completion: str


async def _end(ctx: Context, task: Row, generation: int, outcome: Outcome, ways: _Ways) -> dict[str, Any]:
    """End a claim with what the program ended with: a failure, a question, or a result whose evidence is checked."""
    task_id: str = task["id"]
    if outcome.error:
        return await _give_up(ctx, task_id, generation, outcome.error, outcome)
    if question := _question_of(outcome.text):
        return dict(await ask_question(ctx, task_id, generation, question=question, **outcome.spent))
    summary = outcome.text[-_SHOWN:] or "Done."
    try:
        # Tests and a push take longer than a lease.
        evidence, found = await keep_claim(
            ctx, task_id, generation, partial(_checked, ctx, task, generation, ways, summary)
        )
        return await end_task(ctx, task_id, generation, summary, evidence, {**outcome.spent, **found})
    except ToolFailure as failure:
        return await _give_up(ctx, task_id, generation, failure.message, outcome)


async def _checked(
    ctx: Context, task: Row, generation: int, ways: _Ways, summary: str
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Check a result, and publish it if that is wanted; return its evidence, and where the result is."""
    repository, begun, found = ways.repository, ways.begun, dict[str, Any]()
    if repository is None:
        return await check_done(ctx, task["id"], generation), found
    if await storage_of(ctx).read(partial(_had_conflict, task["id"])):
        await check_markers(repository, begun.start, begun.branch)
    await check_merge(repository, begun.branch)
    found["branch"] = begun.branch
    evidence = await check_done(ctx, task["id"], generation)
    if not task["is_plan_subtask"]:
        found["plan"] = await planned_in(repository, begun.start, begun.branch)
    if ways.completion != "merge" and not found.get("plan"):
        known = {**task, "branch_name": begun.branch}
        url = await publish_branch(ctx, ways.completion, known, ways.folder, ways.default, summary)
        await _tell(ctx, task, "git.push", branch=begun.branch)
        if url and url != task["pr_url"]:
            await _tell(ctx, task, "git.pr.created", branch=begun.branch, pr_url=url)
        found |= {"pr_url": url} if url else {}
    return evidence, found


async def _committed(ctx: Context, repository: Repository, branch: str, task: Row, agent: Row, summary: str) -> str:
    commit = await commit_work(repository, branch, task, agent, summary)
    if commit:
        await _tell(ctx, task, "git.commit", branch=branch, commit=commit)
    return commit


async def _tell(ctx: Context, task: Row, type: str, **about: str) -> None:
    """Publish an event of a run of a task."""
    await storage_of(ctx).write(lambda rows: publish(rows, type, rows.get("tasks", task["id"]), **about))


def _had_conflict(task_id: str, rows: Rows) -> bool:
    """Whether a run of a task began with a conflict that its program was to resolve."""
    sql = "SELECT id FROM {contexts} AS c WHERE task_id = ? AND type = 'conflict' LIMIT 1"
    return bool(rows.select(sql, (task_id,)))


def _user_of(rows: Rows, folder: str, task_id: str) -> str:
    """Return the other task that is at work in a folder; empty for none."""
    sql = "SELECT locked_by_task_id AS id FROM {workspaces} AS w WHERE workspace_path = ?"
    return next((str(row["id"]) for row in rows.select(sql, (folder,)) if row["id"] not in (None, task_id)), "")


def _occupy(rows: Rows, task: Row, folder: str) -> Row:
    """Lock the folder of the session for a task whose project has no workspace; it is one of it from now on."""
    sql = "SELECT id FROM {workspaces} AS w WHERE project_id = ? AND workspace_path = ?"
    found = rows.select(sql, (task["project_id"], folder))
    values: dict[str, Any] = {"project_id": task["project_id"], "workspace_path": folder, "source_type": "link"}
    id = found[0]["id"] if found else rows.insert("workspaces", {**values, "name": folder.rpartition("/")[2]})["id"]
    lock = {"locked_by_agent_id": task["assigned_agent_id"], "locked_by_task_id": task["id"], "locked_at": rows.now}
    rows.update("workspaces", id, lock, expected={"locked_by_task_id": None})
    return rows.update("tasks", task["id"], {"workspace_id": id})


async def _give_up(
    ctx: Context, task_id: str, generation: int, reason: str, outcome: Outcome | None = None
) -> dict[str, Any]:
    """Fail the task of this claim; a claim that has ended stays as it is."""
    error = reason.strip()[-_SHOWN:] or "It failed without a reason."
    spent = outcome.spent if outcome else {"tokens_used": 0}
    with suppress(ToolFailure):
        failed = await fail_task(ctx, task_id, generation, error_message=error, **spent)
        return {**failed, "error_message": error}
    task = await storage_of(ctx).read(lambda rows: rows.get("tasks", task_id))
    return {"task_id": task_id, "status": task["status"], "error_message": error}


def _failed_before(task: Row) -> bool:
    return bool(task["retry_count"] and task["error_message"])


def _setup(rows: Rows, task: Row) -> Setup:
    """Return the input of the program: the task, its acceptance, its notes; and the settings of its profile."""
    sql = "SELECT label, content FROM {contexts} AS c WHERE task_id = ? AND type NOT IN ('conflict', 'run')"
    sql = f"{sql} ORDER BY created_at, id"
    notes = [f"- {one['label']}: {one['content']}" for one in rows.select(sql, (task["id"],))]
    shown = [
        "- " + " ".join(str(entry[key]) for key in ("type", "command", "path", "tool") if entry.get(key))
        for entry in task["acceptance"]
    ]
    parts = {
        "": task["description"],
        "Read first": "\n".join(f"- {path}" for path in task["attachments"]),
        "How to work": _GROUND,
        "It is done when the queue finds": "\n".join(shown),
        "The last attempt failed": fenced_text(task["error_message"], "last attempt") if _failed_before(task) else "",
        "Notes and answers": "\n".join(notes),
    }
    text = "\n\n".join(f"## {name}\n{part}" if name else part for name, part in parts.items() if part)
    profile = profile_of(rows, task)
    bound: Mapping[str, Any] = profile or {}
    prompt = f"# {task['title']}\n\n{text}".encode()[:_LONGEST].decode("utf-8", "ignore")
    return Setup(
        prompt=prompt,
        model=str(task["llm_config"].get("model") or bound.get("model") or ""),
        instructions=bound.get("system_prompt_suffix") or "",
        allowed_tools=tuple(bound.get("allowed_tools") or ()),
        mcp_servers=bound.get("mcp_servers") or {},
        permission_mode=bound.get("permission_mode") or "",
    )


async def _ended(
    ctx: Context, program: AgentProgram, setup: Setup, place: Path, task_id: str, generation: int, about: str
) -> Outcome:
    """Run the program to its end and keep the claim meanwhile; a claim that ended stops it. The task notes the run."""
    started = Program(
        argv=program.command_line(setup),
        cwd=place,
        folders=(place,),
        environment=program.environment_of(setup),
        readable=(*program.readable, *(setup.served.readable if setup.served is not None else ())),
        network=program.network,
        trusted=False,
        seconds=program.seconds,
    )
    try:
        await storage_of(ctx).write(lambda rows: note(rows, get_claimed(rows, task_id, generation), "run", about))
        done = await keep_claim(ctx, task_id, generation, partial(run, ctx, started))
    except ToolFailure as failure:
        if failure.code not in ("conflict", "not_found"):
            raise
        return Outcome(text="", error=failure.message)
    outcome = program.outcome(done.stdout.decode("utf-8", "replace"))
    if ctx.cleaner is not None:  # its words go into notes and into the message of a commit
        clean = ctx.cleaner.value
        outcome = replace(outcome, text=clean(outcome.text), error=clean(outcome.error))
    if done.status == 0 and not outcome.error:
        return outcome
    refused = f"\nnot reachable: {'; '.join(done.refused)}" if done.refused else ""
    reason = outcome.error if outcome.text else done.message or outcome.error
    return replace(outcome, error=f"exit status {done.status}: {reason}{refused}")


def _question_of(text: str) -> str:
    """Return the question that a last message ends with; empty for none."""
    last = text.strip().rpartition("\n")[2].strip()
    return last.removeprefix(_QUESTION).strip() if last.startswith(_QUESTION) else ""
