"""The queue in the console: tasks, those that wait for a person first, and the answers to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from toolcrib.plugin import (
    ConsoleView,
    ToolCaller,
    ToolFailure,
    ViewFields,
    ViewForm,
    ViewLink,
    ViewPage,
    ViewTable,
    ViewText,
)

from .model import WAITING

_EVENTS: Final = 30
_TASKS: Final = 200
"""Tasks that are shown at least."""
_LOOKED_AT: Final = 200
_ACTIONS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "answer": ("answer_question", ("answer",)),
    "approve": ("approve_task", ()),
    "approve_plan": ("approve_plan", ()),
    "reject_plan": ("reject_plan", ("feedback",)),
    "restart": ("restart_task", ()),
    "stop": ("stop_task", ()),
}
"""Tools by button, with the lines of text that they take."""
_FORMS: Final[Mapping[str, tuple[ViewForm, ...]]] = {
    "WAITING_INPUT": (ViewForm(inputs={"answer": "Answer"}, buttons={"answer": "Answer"}),),
    "AWAITING_APPROVAL": (ViewForm(buttons={"approve": "Approve the result"}),),
    "AWAITING_PLAN_APPROVAL": (
        ViewForm(buttons={"approve_plan": "Approve the plan"}),
        ViewForm(
            inputs={"feedback": "What is to be planned otherwise"},
            buttons={"reject_plan": "Reject the plan"},
        ),
    ),
    "ASSIGNED": (ViewForm(buttons={"stop": "Stop it"}),),
    "IN_PROGRESS": (ViewForm(buttons={"stop": "Stop it"}),),
    "BLOCKED": (ViewForm(buttons={"restart": "Start it again"}),),
    "FAILED": (ViewForm(buttons={"restart": "Start it again"}),),
}
"""Actions of a person on a task, by its status."""


async def list_all(
    tools: ToolCaller, given: Mapping[str, Any], most: float = _TASKS
) -> tuple[list[dict[str, Any]], int]:
    """Return the tasks of the first pages of `list_tasks`, `most` of them at least; and the number of all."""
    page = await tools.call("list_tasks", given)
    tasks: list[dict[str, Any]] = page["tasks"]
    while "next_cursor" in page and len(tasks) < most:
        page = await tools.call("list_tasks", {**given, "cursor": page["next_cursor"]})
        tasks += page["tasks"]
    return tasks, max(len(tasks), page["total"])


async def _show(tools: ToolCaller, path: str) -> ViewPage:
    return await _task(tools, path) if path else await _tasks(tools)


async def _tasks(tools: ToolCaller) -> ViewPage:
    found, total = await list_all(tools, {"show_all": True})
    tasks = sorted(found, key=lambda task: task["status"] not in WAITING)
    events = [event for event in await _noted(tools) if "op" not in event][:_EVENTS]  # not those of projects
    rows = [
        (task["status"], str(task["priority"]), ViewLink(task["title"], task["id"]), task["project_id"])
        for task in tasks
    ]
    happened = [(_moment(event["time"]), event["type"], str(event.get("title", ""))) for event in events]
    more = f" (the first {len(rows)} of {total})" if total > len(rows) else ""
    return ViewPage(
        title=f"Tasks{more}",
        blocks=(
            ViewTable(columns=("Status", "Priority", "Task", "Project"), rows=rows, empty="There are no tasks yet."),
            ViewTable(heading="What happened", columns=("Time", "Event", "Task"), rows=happened, empty="Nothing yet."),
        ),
    )


async def _task(tools: ToolCaller, id: str) -> ViewPage:
    task = await tools.call("get_task", {"task_id": id})
    agent: Mapping[str, Any] = task["assigned_agent"] or {}
    fields: dict[str, str | ViewLink] = {
        "Status": task["status"],
        "Project": task["project_id"],
        "Priority": str(task["priority"]),
        "Agent": str(agent.get("name", "")),
        "Branch": task["branch_name"] or "",
        "Pull request": task["pr_url"] or "",
        "Waits for": ", ".join(task["waits_for"]),
        "Changed": _moment(task["changed"]),
    }
    texts = {
        "Question": task["question"],
        "Description": task["description"],
        "Plan": "\n".join(f"{number}. {step['title']}" for number, step in enumerate(task["plan"], 1)),
        "Result": task["result"],
        "Error": task["error_message"],
    }
    subtasks = [(ViewLink(one, one),) for one in task["subtasks"]]
    return ViewPage(
        title=task["title"],
        blocks=(
            ViewFields(fields=fields),
            *(ViewText(heading=heading, text=text) for heading, text in texts.items() if text),
            *((ViewTable(columns=("Subtask",), rows=subtasks),) if subtasks else ()),
            *_FORMS.get(task["status"], ()),
        ),
    )


async def _noted(tools: ToolCaller) -> Sequence[Mapping[str, Any]]:
    """Return the newest events; none where the tools of the queue are not served beside those for tasks."""
    try:
        return (await tools.call("queue_events", {"limit": _LOOKED_AT}))["events"]
    except ToolFailure as failure:
        if failure.code != "not_found":
            raise
        return ()


def _moment(text: str) -> str:
    """Return a time of ISO 8601 as the console writes times: in this machine's zone."""
    return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")


async def _act(tools: ToolCaller, path: str, form: Mapping[str, str]) -> str:
    if form.get("button") not in _ACTIONS:
        raise ToolFailure("invalid_arguments", f"the form has no button; there are {', '.join(_ACTIONS)}")
    tool, names = _ACTIONS[form["button"]]
    await tools.call(tool, {"task_id": path, **{name: form.get(name, "") for name in names}})
    return path


VIEW: Final = ConsoleView(
    label="Tasks", categories=("playbooks", "queue", "tasks"), tool="list_tasks", show=_show, act=_act
)
