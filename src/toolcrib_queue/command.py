"""Show the queue of tasks for agents; answer, approve and stop."""

from __future__ import annotations

import shlex
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Annotated, Any, Final

import anyio
import typer

from toolcrib.plugin import CommandHost, ToolCaller, ToolFailure, UsageError

from .model import CLAIMED, WAITING
from .view import list_all

_CATEGORIES: Final = ("playbooks", "queue", "tasks")
_WORKING: Final = (*_CATEGORIES, "agent", "code", "files", "git", "hooks", "search", "shell")
"""Categories that runs, the programs at work, their evidence and the steps of hooks need."""
_LOOK_SECONDS: Final = 2.0
_IDLE_SECONDS: Final = 5.0
"""Time between two looks for a ready task (the tick of seed 000)."""
_NAMED: Final = 5
"""Ids of an error message."""
_EVENTS: Final = 100
"""Events of one look of `follow`."""
_TAKEN: Final[Mapping[str, Sequence[str]]] = {
    "answer_question": ("WAITING_INPUT",),
    "approve_plan": ("AWAITING_PLAN_APPROVAL",),
    "approve_task": ("AWAITING_APPROVAL",),
    "stop_task": CLAIMED,
}
"""Statuses in which a tool does something."""

_Config = Annotated[
    list[Path] | None, typer.Option("--config", "-c", metavar="FILE", help="Instead of your own; repeatable.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Say yes to what would be asked.")]
_Task = Annotated[str, typer.Argument(help="Id of a task, or the beginning of it.")]

queue = typer.Typer(help=__doc__, invoke_without_command=True, rich_markup_mode=None)


@queue.callback()
def show(
    context: typer.Context,
    project: Annotated[str, typer.Option("--project", "-p", help="Only this project.")] = "",
    everything: Annotated[bool, typer.Option("--all", "-a", help="Finished tasks, too.")] = False,
    as_json: _Json = False,
    config: _Config = None,
) -> None:
    """Show tasks with their state: those that wait for you first."""
    if context.invoked_subcommand is not None:
        return
    host: CommandHost = context.obj
    given: dict[str, Any] = {"show_all": everything, **({"project_id": project} if project else {})}

    async def work(tools: ToolCaller) -> dict[str, Any]:
        listed, total = await list_all(tools, given)
        tasks = sorted(listed, key=lambda task: task["status"] not in WAITING)
        asked = [one["id"] for one in tasks if one["status"] == "WAITING_INPUT"]
        questions = {id: (await tools.call("get_task", {"task_id": id}))["question"] for id in asked}
        runs = await _active_runs(tools)
        waiting = [run for run in runs if run["status"] == "waiting" and project in ("", run["project_id"])]
        return {"tasks": tasks, "questions": questions, "total": total, "playbook_runs": waiting}

    found = host.run(work, categories=_CATEGORIES, config=config)
    if as_json:
        host.json(found)
        return
    columns = [("STATUS", "<"), ("PRIORITY", ">"), ("TASK", "<"), ("TITLE", "<"), ("PROJECT", "<")]
    names = ("status", "priority", "id", "title", "project_id")
    if found["tasks"]:
        host.table(columns, [[str(task[name]) for name in names] for task in found["tasks"]])
    elif not found["playbook_runs"]:
        host.out(
            "no tasks" if everything else "no task is open; `toolcrib queue --all` lists those that have ended, too"
        )
    files = "".join(f" -c {shlex.quote(str(file))}" for file in config or ())
    for id, question in found["questions"].items():
        host.out(f"\n{id} asks: {question}\n  toolcrib queue answer{files} {id} TEXT")
    for run in found["playbook_runs"]:
        words = "|".join(run["outcomes"]) or "-"
        host.out(
            f"\n{run['name']} waits at {run['node']}: {run['reason']}"
            f"\n  toolcrib queue decide{files} {run['id']} {words}"
        )
    if found["total"] > len(found["tasks"]):
        host.out(f"{found['total'] - len(found['tasks'])} more tasks")


@queue.command()
def follow(
    context: typer.Context,
    seconds: Annotated[float, typer.Option("--seconds", help="End after this time; else when interrupted.")] = 0.0,
    config: _Config = None,
) -> None:
    """Print what happens in the queue, line by line."""
    host: CommandHost = context.obj

    async def work(tools: ToolCaller) -> None:
        last, end = 0, time.monotonic() + seconds
        while True:
            events = (await tools.call("queue_events", {"limit": _EVENTS}))["events"]
            for event in reversed([one for one in events if one["id"] > last]):
                last = event["id"]
                what = f"{event.get('task_id', '')} {event.get('title', '')}"
                host.out(f"{event['time']}  {event['type']:24} {what}".rstrip())
            if seconds and time.monotonic() >= end:
                return
            await anyio.sleep(min(_LOOK_SECONDS, max(0.0, end - time.monotonic())) if seconds else _LOOK_SECONDS)

    host.run(work, categories=_CATEGORIES, config=config)


@queue.command()
def answer(
    context: typer.Context,
    task: _Task,
    text: Annotated[list[str], typer.Argument(help="The answer.")],
    yes: _Yes = False,
    config: _Config = None,
) -> None:
    """Answer the question of an agent; its task goes on."""
    done = _act(context, "answer_question", task, {"answer": " ".join(text)}, yes, config)
    context.obj.out(f"{done['task_id']} is {done['status']}.")


@queue.command()
def approve(context: typer.Context, task: _Task, yes: _Yes = False, config: _Config = None) -> None:
    """Approve the result of a task, or its plan, whose steps become tasks; it is COMPLETED."""
    done = _act(context, _approval, task, {}, yes, config)
    host: CommandHost = context.obj
    host.out(f"{done['approved']} is COMPLETED." + (f" {done['warning']}" if "warning" in done else ""))
    for step in done.get("subtasks", ()):
        host.out(f"  {step['id']}  {step['title']}")


def _approval(task: Mapping[str, Any]) -> str:
    """Return the tool that approves what a task waits with."""
    return "approve_plan" if task.get("status") == "AWAITING_PLAN_APPROVAL" else "approve_task"


@queue.command()
def decide(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="Id of a run of a playbook that waits, or the beginning of it.")],
    outcome: Annotated[str, typer.Argument(help="Outcome of its node.")],
    comment: Annotated[str, typer.Option("--comment", help="For the nodes that come after.")] = "",
    yes: _Yes = False,
    config: _Config = None,
) -> None:
    """Decide how a playbook goes on that waits for you."""
    host: CommandHost = context.obj

    async def work(tools: ToolCaller) -> Any:
        given = {"run_id": _meant("run", run, await _active_runs(tools))["id"], "outcome": outcome, "comment": comment}
        return await tools.call("decide_playbook_run", given)

    done = host.run(work, categories=_CATEGORIES, config=config, yes=yes)
    host.out(f"{done['name']} " + ("has ended." if done["completed_at"] else f"goes on at {done['node']}."))


@queue.command()
def stop(context: typer.Context, task: _Task, yes: _Yes = False, config: _Config = None) -> None:
    """Stop a task that an agent is at work on; the agent's claim has ended."""
    done = _act(context, "stop_task", task, {}, yes, config)
    context.obj.out(f"{done['stopped']} is BLOCKED.")


@queue.command()
def work(
    context: typer.Context,
    agents: Annotated[list[str] | None, typer.Argument(help="Names or ids of agents; else all of yours.")] = None,
    once: Annotated[bool, typer.Option("--once", help="End when no task is ready; else when interrupted.")] = False,
    yes: _Yes = False,
    config: _Config = None,
) -> None:
    """Let agents do the tasks that are ready: each program in the sandbox, on a branch of its task."""
    host: CommandHost = context.obj

    async def begin(tools: ToolCaller) -> None:
        chosen = await _agents(tools, agents or [])
        stopped: list[str] = []
        async with anyio.create_task_group() as group:
            for agent in chosen:
                group.start_soon(_work, host, tools, agent, once, stopped)
        if len(stopped) == len(chosen):
            raise ToolFailure("unavailable", f"no agent can work: {', '.join(stopped)}")

    host.run(begin, categories=_WORKING, config=config, yes=yes)


async def _agents(tools: ToolCaller, wanted: Sequence[str]) -> list[dict[str, Any]]:
    """Return the agents with these names or ids. Raises `UsageError` for one that there is not, and for none at all."""
    known = (await tools.call("list_agents", {}))["agents"]
    missing = [one for one in wanted if one not in {agent[key] for agent in known for key in ("id", "name")}]
    if missing or not known:
        there = ", ".join(agent["name"] for agent in known) or "none; make one with the tool create_agent"
        raise UsageError(f"there is no agent {', '.join(missing) or 'yet'}; agents: {there}")
    return [agent for agent in known if not wanted or agent["id"] in wanted or agent["name"] in wanted]


async def _work(host: CommandHost, tools: ToolCaller, agent: Mapping[str, Any], once: bool, stopped: list[str]) -> None:
    """Let one agent do one task after the other. A task that fails is printed, and the next one follows.

    An agent that is paused, or has the task of a process that was killed, is waited for. `stopped` gets the name of
    one that cannot work.
    """
    last = ""
    while True:
        await tools.call("run_queue", {})
        try:
            done = await tools.call("work_task", {"agent_id": agent["id"]})
        except ToolFailure as failure:
            message = f"{agent['name']}: {failure.message}" + (f" ({failure.hint})" if failure.hint else "")
            if message != last:
                host.out(message)
            if failure.code in ("unavailable", "denied") or (once and failure.code == "conflict"):
                stopped.append(agent["name"])
                return
            if failure.code == "conflict":
                last = message
                await anyio.sleep(_IDLE_SECONDS)
            continue
        last = ""
        if done.get("task_id"):
            reason = done.get("error_message") or done.get("summary") or ""
            host.out(f"{agent['name']}: {done['task_id']} is {done['status']}. {reason}".rstrip())
        elif once:
            host.out(f"{agent['name']}: {done['message']}")
            return
        else:
            await anyio.sleep(_IDLE_SECONDS)


def _act(
    context: typer.Context,
    tool: str | Callable[[Mapping[str, Any]], str],
    task: str,
    given: Mapping[str, Any],
    yes: bool,
    config: Sequence[Path] | None,
) -> dict[str, Any]:
    """Call a tool for the task with this id, or the only one whose id begins like it."""
    host: CommandHost = context.obj

    async def work(tools: ToolCaller) -> Any:
        known = _meant("task", task, (await list_all(tools, {"show_all": True}, inf))[0])
        name = tool if isinstance(tool, str) else tool(known)
        if known["status"] not in _TAKEN[name]:  # a person is not asked about what must fail
            message = f"task {known['id']} is {known['status']}"
            raise ToolFailure("conflict", message, hint=f"{name} takes a task that is {' or '.join(_TAKEN[name])}")
        return await tools.call(name, {"task_id": known["id"], **given})

    run: Callable[[ToolCaller], Awaitable[Any]] = work
    return dict(host.run(run, categories=_CATEGORIES, config=config, yes=yes))


async def _active_runs(tools: ToolCaller) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = []
    page: dict[str, Any] = {"next_offset": 0}
    while "next_offset" in page:
        given = {"is_active": True, "limit": 100, "offset": page["next_offset"]}
        page = await tools.call("list_playbook_runs", given)
        runs += page["runs"]
    return runs


def _meant(noun: str, wanted: str, known: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the row with this id, or the only one whose id begins like it, before a person is asked about it.

    Raises `ToolFailure("not_found")`, `UsageError` for several.
    """
    found = [one for one in known if one["id"] == wanted] or [one for one in known if one["id"].startswith(wanted)]
    if len(found) > 1:
        ids = ", ".join(one["id"] for one in found[:_NAMED]) + (" …" if len(found) > _NAMED else "")
        raise UsageError(f"{len(found)} {noun}s have an id that begins with {wanted!r}: {ids}")
    if not found:
        raise ToolFailure("not_found", f"there is no {noun} {wanted[:200]!r}", hint="`toolcrib queue --all` lists them")
    return found[0]
