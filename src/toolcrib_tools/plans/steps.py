"""Tools that make a plan and change it, at once or step by step."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from toolcrib.plugin import Context, Record, ToolFailure

from .._records import Values
from .state import (
    MOST_STEPS,
    EventDraft,
    EventType,
    Plans,
    PlanView,
    StepDraft,
    StepStatus,
    StepView,
    check_open,
    new_step,
    plan_tool,
    plan_view,
    set_status,
    step_of,
    step_view,
)

_OUTCOME: Final = ("status", "result", "error", "output")
"""Members of a step's outcome."""

Needs = Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=50)] | None
"""Names of tools, tags or categories; a name that does not exist is a warning of the selection."""

Text = Annotated[str, Field(max_length=20_000)]
Description = Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"\S")]

_ENDS: Final[dict[str, EventType]] = {
    "completed": "plan_completed",
    "failed": "plan_failed",
    "cancelled": "plan_cancelled",
}


class Todo(TypedDict):
    """One thing to do."""

    title: Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"\S")]
    content: NotRequired[Annotated[str, Field(max_length=20_000)]]
    id: NotRequired[Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,40}$")]]
    status: NotRequired[StepStatus]


@plan_tool(
    op="x.plan.todo",
    metadata={"plan": True},
    kind="write",
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
    todos: Annotated[list[Todo | str], Field(max_length=MOST_STEPS)] | None = None,
    todo_id: str = "",
    status: StepStatus | None = None,
    result: Annotated[str, Field(max_length=20_000)] = "",
    required_tools: Needs = None,
    required_capabilities: Needs = None,
) -> PlanView:
    """Make a plan for this conversation, or say how it goes, and get it as it is then.

    Args:
        action: create makes one, update changes a todo or the words of the plan, rewrite replaces the todos.
        name: What the plan is for; needed to create one.
        overview: What is to be reached, in a few sentences.
        plan: The plan in full, as Markdown.
        todos: What is to be done, in order, a line or an object each; needed to create and to rewrite.
        todo_id: update: the todo, such as "s1".
        status: update: how it stands with the todo.
        result: update: what came of it.
        required_tools: Names of tools that the plan needs.
        required_capabilities: Kinds of tools that it needs.
    """
    plans = Plans.of(ctx)
    _check(action, name, todos, todo_id, status, result)
    drafts = [_draft(todo) for todo in todos or []]
    named = (("title", name), ("overview", overview), ("text", plan))
    words: Values = {key: text for key, text in named if text.strip()}
    needs = _needs(required_tools, required_capabilities)
    if action == "create":
        before = await plans.current()
        if before is not None and before.value["status"] in ("created", "active"):
            await plans.edit(before, _given_up)
        more: Values = {key: text for key, text in words.items() if key != "title"}
        return await plan_view(plans, await plans.create(name, drafts, "active", **more, **needs))
    words |= needs
    record = await plans.here(hint="plan with action create makes one")
    if action == "rewrite":
        return await plan_view(plans, await plans.edit(record, lambda value: _replace_steps(value, words, drafts)))
    return await plan_view(plans, await _update_step(plans, record, words, (todo_id, status, result)))


def _check(
    action: str, name: str, todos: list[Todo | str] | None, todo_id: str, status: StepStatus | None, result: str
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


def _needs(tools: list[str] | None, capabilities: list[str] | None) -> Values:
    """Return the needs that are given; those of an update replace what the plan needed before."""
    given = (("required_tools", tools), ("required_capabilities", capabilities))
    return {key: list(dict.fromkeys(listed)) for key, listed in given if listed is not None}


def _given_up(value: Values) -> list[EventDraft]:
    value["status"] = "cancelled"
    return [EventDraft(type="plan_cancelled", step_id="", text=value["title"])]


def _draft(todo: Todo | str) -> StepDraft:
    if isinstance(todo, str):
        return StepDraft(todo)
    content = todo.get("content", "").strip()
    text = f"{todo['title'].strip()}: {content}" if content else todo["title"].strip()
    return StepDraft(text, todo.get("id", ""), todo.get("status", "pending"))


def _replace_steps(value: Values, words: Values, todos: list[StepDraft]) -> list[EventDraft]:
    """Replace the steps. One that says the same as before keeps its outcome; an id goes to the todo that has it."""
    check_open(value)
    value.update(words)
    value["status"] = "active"
    known: dict[str, dict[str, Any]] = {step["description"]: step for step in value["steps"]}
    old: dict[str, dict[str, Any]] = {step["id"]: step for step in value["steps"]}  # so that no number is given twice
    events: list[EventDraft] = []
    steps: list[dict[str, Any]] = []
    for todo in todos:
        before = known.pop(todo.description.strip(), None)
        step = old.pop(before["id"], None) if before is not None and todo.id in ("", before["id"]) else None
        if step is None:
            old.pop(todo.id, None)
            step = new_step([*old.values(), *steps][-MOST_STEPS + 1 :], todo, ())
            step |= {key: before[key] for key in _OUTCOME} if before is not None else {}
            events.append(EventDraft(type="step_added", step_id=step["id"], text=step["description"]))
        if todo.status != "pending":
            step["status"] = todo.status
        steps.append(step)
    there = {step["id"] for step in steps}
    for step in steps:
        step["depends_on"] = [name for name in step["depends_on"] if "/" in name or name in there]
    value["steps"] = steps
    return events


async def _update_step(plans: Plans, record: Record, words: Values, todo: tuple[str, StepStatus | None, str]) -> Record:
    todo_id, status, result = todo
    others = await plans.others(record)

    def update(value: Values) -> list[EventDraft]:
        check_open(value)
        value.update(words)
        if status is None:
            return []
        value["status"] = "active"
        events = set_status(value, todo_id, status, others, **({"result": result} if result else {}))
        if all(step["status"] in ("completed", "skipped") for step in value["steps"]):
            value["status"] = "completed"
            events.append(EventDraft(type="plan_completed", step_id="", text=value["title"]))
        return events

    return await plans.edit(record, update)


class Blocked(TypedDict):
    """Steps that wait, and their dependencies."""

    blocked: list[StepView]


class StepDone(TypedDict):
    """A step, and those that need not wait for it any more."""

    step: StepView
    unblocked: Annotated[list[StepView], Field(description="With the outputs of what they waited for in `inputs`.")]
    inputs: Annotated[dict[str, Any], Field(description="Step → what it hands on to those that are unblocked.")]


@plan_tool(
    op="x.plan.create",
    metadata={"plan": True},
    kind="write",
    approval="never",
    tags=["plan", "todo", "steps"],
    examples=[{"title": "Add paging to the API", "steps": ["Read the handlers", "Write the tests", "Add paging"]}],
    policy={
        "do": ["Make one for work of three steps and more; start_plan begins it."],
        "edge_cases": ["A session works on one plan: end the one that is open with complete_plan first."],
    },
)
async def create_plan(
    title: Description,
    steps: Annotated[list[Description], Field(min_length=1, max_length=MOST_STEPS)],
    ctx: Context,
    required_tools: Needs = None,
    required_capabilities: Needs = None,
) -> PlanView:
    """Make a plan of steps for what is to be done in this conversation.

    Args:
        title: What it is for.
        steps: What is to be done, in order, a line each.
        required_tools: Names of tools that the plan needs.
        required_capabilities: Kinds of tools that it needs.
    """
    plans = Plans.of(ctx)
    before = await plans.current()
    if before is not None and before.value["status"] == "active":
        raise ToolFailure(
            "tool_error",
            f"the plan {before.value['title']!r} is being worked on",
            hint="add_step adds to it; complete_plan ends it, with status cancelled if it is not wanted any more",
        )
    return await plan_view(plans, await plans.create(title, steps, **_needs(required_tools, required_capabilities)))


@plan_tool(
    op="x.plan.start",
    metadata={"plan": True},
    kind="write",
    idempotent=True,
    approval="never",
    tags=["plan", "todo", "begin"],
    examples=[{}],
)
async def start_plan(ctx: Context) -> PlanView:
    """Begin the work on the plan of this conversation."""
    plans = Plans.of(ctx)

    def start(plan: Values) -> list[EventDraft]:
        check_open(plan)
        if plan["status"] == "active":
            return []
        plan["status"] = "active"
        return [EventDraft(type="plan_started", step_id="", text=plan["title"])]

    return await plan_view(plans, await plans.edit(await plans.here(), start))


@plan_tool(
    op="x.plan.step.set_status",
    kind="write",
    idempotent=True,
    approval="never",
    tags=["plan", "todo", "step", "progress", "done"],
    examples=[
        {"step_id": "s1", "status": "in_progress"},
        {"step_id": "s1", "status": "completed", "result": "three handlers have no paging"},
        {"step_id": "s2", "status": "failed", "error": "the test database is down"},
    ],
    policy={"do": ["Set a step in_progress when you begin with it, and completed as soon as it is done."]},
)
async def set_step_status(
    step_id: str, status: StepStatus, ctx: Context, result: Text = "", error: Text = ""
) -> StepDone:
    """Say how it stands with a step of the plan.

    Args:
        step_id: The step, such as "s1".
        status: How it stands.
        result: What came of it.
        error: Why it failed.
    """
    if error and status != "failed":
        raise ToolFailure("invalid_arguments", f"error says why a step failed; this one is {status}")
    return await _set_step(ctx, step_id, status, result=result, error=error)


@plan_tool(
    op="x.plan.step.complete",
    kind="write",
    idempotent=True,
    approval="never",
    tags=["plan", "todo", "step", "output", "hand over"],
    examples=[{"step_id": "s1", "output": {"handlers": ["list_orders", "list_items"]}}],
)
async def complete_step_with_output(step_id: str, output: dict[str, Any], ctx: Context) -> StepDone:
    """Complete a step, and hand on what came of it to the steps that wait for it.

    Args:
        step_id: The step, such as "s1".
        output: What it hands on.
    """
    return await _set_step(ctx, step_id, "completed", output=output)


@plan_tool(
    op="x.plan.status",
    metadata={"plan": True},
    kind="read",
    tags=["plan", "todo", "progress", "status"],
    examples=[{}],
)
async def get_plan_status(ctx: Context) -> PlanView:
    """Get the plan of this conversation, how it stands with each step, and which can be begun now."""
    plans = Plans.of(ctx)
    return await plan_view(plans, await plans.here())


@plan_tool(
    op="x.plan.complete",
    metadata={"plan": True},
    kind="write",
    approval="never",
    tags=["plan", "todo", "end"],
    examples=[{"status": "completed"}, {"status": "cancelled"}],
    policy={"edge_cases": ["A plan is completed when every step is: set what is not wanted any more to skipped."]},
)
async def complete_plan(status: Literal["completed", "failed", "cancelled"], ctx: Context) -> PlanView:
    """End the plan of this conversation.

    Args:
        status: How it ended.
    """
    plans = Plans.of(ctx)

    def end(plan: Values) -> list[EventDraft]:
        check_open(plan)
        left = [step["id"] for step in plan["steps"] if step["status"] not in ("completed", "skipped")]
        if status == "completed" and left:
            raise ToolFailure(
                "tool_error",
                f"the plan is not completed: {', '.join(left)} are not",
                hint="complete them or set them to skipped, or end the plan as failed or cancelled",
            )
        plan["status"] = status
        return [EventDraft(type=_ENDS[status], step_id="", text=plan["title"])]

    return await plan_view(plans, await plans.edit(await plans.here(), end))


@plan_tool(
    op="x.plan.step.add",
    kind="write",
    approval="never",
    tags=["plan", "todo", "step"],
    examples=[{"description": "Update the changelog"}],
)
async def add_step(description: Description, ctx: Context) -> StepView:
    """Add a step to the end of the plan.

    Args:
        description: What is to be done.
    """
    return await _added(ctx, description, [])


@plan_tool(
    op="x.plan.step.add_dependent",
    kind="write",
    approval="never",
    tags=["plan", "todo", "step", "dependency", "wait"],
    examples=[{"description": "Release", "depends_on": ["s2", "s3"]}],
    policy={"edge_cases": ["4/s2 is step s2 of plan 4, which another session or agent of yours works on."]},
)
async def add_dependent_step(
    description: Description, depends_on: Annotated[list[str], Field(min_length=1, max_length=100)], ctx: Context
) -> StepView:
    """Add a step to the plan that cannot begin before others are completed or skipped.

    Args:
        description: What is to be done.
        depends_on: The steps that it waits for, such as "s2", or "4/s2" for one of another plan.
    """
    return await _added(ctx, description, depends_on)


@plan_tool(op="x.plan.step.blocked", kind="read", tags=["plan", "todo", "step", "waiting"], examples=[{}])
async def get_blocked_steps(ctx: Context) -> Blocked:
    """List the steps of the plan that wait for others, and for which."""
    plans = Plans.of(ctx)
    record = await plans.here()
    waiting = await plans.waiting(record)
    return Blocked(
        blocked=[
            step_view(step, waiting[step["id"]])
            for step in record.value["steps"]
            if waiting[step["id"]] and step["status"] not in ("completed", "skipped")
        ]
    )


async def _set_step(ctx: Context, step_id: str, status: StepStatus, **more: Any) -> StepDone:
    plans = Plans.of(ctx)
    record = await plans.here()
    others = await plans.others(record)
    freed: list[str] = []

    def step(plan: Values) -> list[EventDraft]:
        events = set_status(plan, step_id, status, others, **more)
        freed[:] = [one["step_id"] for one in events if one["type"] == "step_unblocked"]
        return events

    kept = await plans.edit(record, step)
    waiting = await plans.waiting(kept)
    changed = step_of(kept.value, step_id)
    free = [step_of(kept.value, id) for id in freed]
    inputs = {
        one["id"]: one["output"]
        for one in kept.value["steps"]
        if one["output"] is not None and any(one["id"] in other["depends_on"] for other in free)
    }
    return StepDone(
        step=step_view(changed, waiting[changed["id"]]),
        unblocked=[step_view(one, waiting[one["id"]]) for one in free],
        inputs=inputs,
    )


async def _added(ctx: Context, description: str, depends_on: list[str]) -> StepView:
    plans = Plans.of(ctx)
    record = await plans.here()
    needed = await plans.check_links(record, depends_on)

    def add(plan: Values) -> list[EventDraft]:
        check_open(plan)
        plan["steps"].append(new_step(plan["steps"], description, needed))
        return [EventDraft(type="step_added", step_id=plan["steps"][-1]["id"], text=description.strip())]

    kept = await plans.edit(record, add)
    waiting = await plans.waiting(kept)
    new = kept.value["steps"][-1]
    return step_view(new, waiting[new["id"]])
