"""A plan in one tool: made, kept up to date and written anew. It is the same plan that the other tools speak of."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from toolcrib.plugin import Context, Record, ToolFailure, tool

from .._records import Values
from .showing import PlanTold, plan_told
from .state import MOST_STEPS, Plans, StepStatus, Told, check_open, new_step, set_status

__all__ = ["plan"]


@tool(
    op="x.plan.todo",
    category="coordination",
    kind="write",
    open_world=False,
    approval="never",
    serial=True,
    tags=["plan", "todo", "steps", "progress"],
    examples=[
        {"action": "create", "name": "Move to Python 3.13", "todos": ["Change the image", "Run the tests"]},
        {"action": "update", "todo_id": "s1", "status": "completed", "result": "image is 3.13.1"},
        {"action": "rewrite", "todos": ["Change the image", "Pin the dependencies", "Run the tests"]},
    ],
    policy={
        "do": ["create it before work of several steps, update each todo as soon as it is done."],
        "edge_cases": [
            "create gives up a plan that is still open.",
            "rewrite keeps what came of todos that say the same as before.",
            "A plan is completed with its last todo.",
        ],
    },
)
async def plan(
    action: Literal["create", "update", "rewrite"],
    ctx: Context,
    name: Annotated[str, Field(max_length=2_000)] = "",
    overview: Annotated[str, Field(max_length=20_000)] = "",
    plan: Annotated[str, Field(max_length=50_000)] = "",
    todos: Annotated[list[str], Field(max_length=MOST_STEPS)] | None = None,
    todo_id: str = "",
    status: StepStatus | None = None,
    result: Annotated[str, Field(max_length=20_000)] = "",
) -> PlanTold:
    """Make a plan for this conversation, or say how it goes, and get it as it is then.

    Args:
        action: create makes one, update changes a todo or the words of the plan, rewrite replaces the todos.
        name: What the plan is for; needed to create one.
        overview: What is to be reached, in a few sentences.
        plan: The plan in full, as Markdown.
        todos: What is to be done, in order, a line each; needed to create and to rewrite.
        todo_id: update: the todo, such as "s1".
        status: update: how it stands with the todo.
        result: update: what came of it.
    """
    plans = Plans.of(ctx)
    _check(action, name, todos, todo_id, status, result)
    words = {key: text for key, text in (("title", name), ("overview", overview), ("text", plan)) if text.strip()}
    if action == "create":
        before = await plans.current()
        if before is not None and before.value["status"] in ("created", "active"):
            await plans.edit(before, _given_up)
        more = {key: text for key, text in words.items() if key != "title"}
        return await plan_told(plans, await plans.create(name, todos or [], "active", **more))
    record = await plans.here()
    if action == "rewrite":
        return await plan_told(plans, await plans.edit(record, lambda value: _rewritten(value, words, todos or [])))
    return await plan_told(plans, await _updated(plans, record, words, (todo_id, status, result)))


def _check(
    action: str, name: str, todos: list[str] | None, todo_id: str, status: StepStatus | None, result: str
) -> None:
    """Raise `ToolFailure` where something is missing, or has no meaning with this action."""
    if action == "update":
        if todos is not None:
            raise ToolFailure("invalid_arguments", "update changes one todo", hint="rewrite replaces the todos")
        if bool(todo_id) != bool(status):
            raise ToolFailure("invalid_arguments", "update needs todo_id and status, or neither")
        if result and not todo_id:
            raise ToolFailure("invalid_arguments", "result is what came of a todo: say its todo_id and status")
        return
    if todo_id or status or result:
        raise ToolFailure("invalid_arguments", f"todo_id, status and result belong to update, not to {action}")
    if not todos:
        raise ToolFailure("invalid_arguments", f"{action} needs todos: what is to be done, a line each")
    if action == "create" and not name.strip():
        raise ToolFailure("invalid_arguments", "create needs a name: what the plan is for")


def _given_up(value: Values) -> list[Told]:
    value["status"] = "cancelled"
    return [Told(type="plan_cancelled", step_id="", text=value["title"])]


def _rewritten(value: Values, words: dict[str, str], todos: list[str]) -> list[Told]:
    """Replace the steps; one that says the same as before stays the step that it was."""
    check_open(value)
    value.update(words)
    value["status"] = "active"
    old: dict[str, dict[str, Any]] = {step["description"]: step for step in value["steps"]}
    known = list(value["steps"])  # so that no number is given twice
    told: list[Told] = []
    steps: list[dict[str, Any]] = []
    for todo in todos:
        step = old.pop(todo.strip(), None)
        if step is None:
            step = new_step(known[-MOST_STEPS + 1 :], todo, ())
            known.append(step)
            told.append(Told(type="step_added", step_id=step["id"], text=step["description"]))
        steps.append(step)
    there = {step["id"] for step in steps}
    for step in steps:
        step["depends_on"] = [name for name in step["depends_on"] if "/" in name or name in there]
    value["steps"] = steps
    return told


async def _updated(
    plans: Plans, record: Record, words: dict[str, str], todo: tuple[str, StepStatus | None, str]
) -> Record:
    todo_id, status, result = todo
    others = await plans.others(record)

    def update(value: Values) -> list[Told]:
        check_open(value)
        value.update(words)
        if status is None:
            return []
        value["status"] = "active"
        told = set_status(value, todo_id, status, others, **({"result": result} if result else {}))
        if all(step["status"] in ("completed", "skipped") for step in value["steps"]):
            value["status"] = "completed"
            told.append(Told(type="plan_completed", step_id="", text=value["title"]))
        return told

    return await plans.edit(record, update)
