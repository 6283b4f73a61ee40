"""Plan of a session: steps, dependencies, progress, its views, and the events that it leaves for other sessions."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple, NotRequired, TypedDict

from msgspec import Struct
from pydantic import Field

from toolcrib.plugin import Context, Record, Records, ToolFailure, tool

from .._records import Values, change, names_of

plan_tool = partial(tool, category="coordination", open_world=False)

PlanStatus = Literal["created", "active", "completed", "failed", "cancelled"]
StepStatus = Literal["pending", "in_progress", "completed", "failed", "skipped"]
EventType = Literal[
    "plan_created",
    "plan_started",
    "plan_completed",
    "plan_failed",
    "plan_cancelled",
    "step_added",
    "step_pending",
    "step_in_progress",
    "step_completed",
    "step_failed",
    "step_skipped",
    "step_unblocked",
]

MOST_STEPS: Final = 200
"""Steps of one plan."""
EVENTS: Final = 1_000
"""Events of one owner that are kept; the oldest go first."""
_STEP_EVENTS: Final[Mapping[StepStatus, EventType]] = {
    "pending": "step_pending",
    "in_progress": "step_in_progress",
    "completed": "step_completed",
    "failed": "step_failed",
    "skipped": "step_skipped",
}
_OPEN: Final = ("created", "active")
_SWEEP: Final = 100
"""Every how many events the oldest are taken away."""

Step = dict[str, Any]


class EventDraft(TypedDict):
    """An event on its way into the store."""

    type: EventType
    step_id: str
    text: str


class Plans(Struct, frozen=True, kw_only=True):
    """The plans of one owner, as one session sees them. Lives as long as a call."""

    records: Records
    events: Records
    session: str

    @classmethod
    def of(cls, ctx: Context) -> Plans:
        """Return the plans of the calling session."""
        return cls(records=ctx.records("plans"), events=ctx.records("plan_events"), session=ctx.session_key)

    async def current(self) -> Record | None:
        """Return the plan that this session made last; None if it made none."""
        own = await self.records.list(group=self.session)
        return max(own, key=lambda record: int(record.id), default=None)

    async def here(self, *, hint: str = "make one with create_plan") -> Record:
        """Return the plan of this session; raises `ToolFailure` if there is none."""
        found = await self.current()
        if found is None:
            raise ToolFailure("not_found", "this session has no plan", hint=hint)
        return found

    async def create(
        self, title: str, steps: Sequence[str | StepDraft], status: PlanStatus = "created", **more: Any
    ) -> Record:
        """Make a plan, which is the session's from now on. Raises `ToolFailure("too_large")` for too many steps."""
        value: Values = {"title": title.strip(), "overview": "", "text": "", "status": status, "steps": [], **more}
        for step in steps:
            value["steps"].append(new_step(value["steps"], step, ()))
        record = await self.records.add(value, group=self.session, text=title)
        await self.tell(record, [EventDraft(type="plan_created", step_id="", text=value["title"])])
        return record

    async def edit(self, record: Record, make: Callable[[Values], list[EventDraft]]) -> Record:
        """Change a plan, and tell what happened; `make` changes what it is given, and says so.

        Raises what `make` raises.
        """
        events: list[EventDraft] = []

        def again(before: Values | None) -> Values:
            if before is None:
                raise ToolFailure("tool_error", f"plan {record.id} is gone")
            value = {**before, "steps": [dict(step) for step in before["steps"]]}
            events[:] = make(value)
            return value

        kept = await change(self.records, record.id, again, group=record.group)
        await self.tell(kept, events)
        return kept

    async def waiting(self, record: Record) -> dict[str, list[str]]:
        """Return by step its unmet dependencies, as they were named: neither completed nor skipped."""
        others = await self.others(record)
        return {step["id"]: unmet(step, record.value, others) for step in record.value["steps"]}

    async def check_links(self, record: Record, depends_on: Sequence[str]) -> list[str]:
        """Return these steps once each; raises `ToolFailure` for one that there is not."""
        wanted = list(dict.fromkeys(name.strip() for name in depends_on))
        for name in wanted:
            plan_id, _, step_id = name.rpartition("/")
            plan = record if not plan_id else await self.records.get(plan_id)
            if plan is None:
                raise ToolFailure("not_found", f"{name!r}: there is no plan {plan_id!r}")
            step_of(plan.value, step_id)
        return wanted

    async def tell(self, record: Record, events: Sequence[EventDraft]) -> None:
        """Store events for subscribers."""
        for one in events:
            value = {**one, "plan_id": record.id, "plan": record.value["title"], "time": time.time()}
            kept = await self.events.add({**value, "session": self.session})
            if int(kept.id) % _SWEEP == 0:
                await self._sweep()

    async def happened(self) -> list[Record]:
        """Return the events that are kept, the oldest first."""
        found = await self.events.list(limit=EVENTS + _SWEEP)
        return sorted(found, key=lambda record: int(record.id))

    async def others(self, record: Record) -> Mapping[str, Mapping[str, Any]]:
        """Return the other plans that steps of this one wait for, as they are now."""
        names = {name.rpartition("/")[0] for step in record.value["steps"] for name in step["depends_on"]} - {""}
        found = {name: await self.records.get(name) for name in names}
        return {name: plan.value for name, plan in found.items() if plan is not None}

    async def _sweep(self) -> None:
        for record in (await self.happened())[:-EVENTS]:
            await self.events.remove(record.id)


class StepDraft(NamedTuple):
    """A step to be made."""

    description: str
    id: str = ""
    """Empty for the next number."""
    status: StepStatus = "pending"


def step_of(plan: Mapping[str, Any], step_id: str) -> Step:
    """Return a step; raises `ToolFailure` with those that there are."""
    for step in plan["steps"]:
        if step["id"] == step_id.strip():
            return step
    raise ToolFailure(
        "not_found", f"the plan has no step {step_id!r}", hint=names_of([step["id"] for step in plan["steps"]])
    )


def check_open(plan: Mapping[str, Any]) -> None:
    """Raise `ToolFailure` for a plan that has ended."""
    if plan["status"] not in _OPEN:
        raise ToolFailure("tool_error", f"this plan is {plan['status']}", hint="create another one")


def new_step(steps: Sequence[Step], draft: str | StepDraft, depends_on: Sequence[str]) -> Step:
    """Return a new step for the end of the list. Raises `ToolFailure` for too many, an empty one, or an id twice."""
    draft = StepDraft(draft) if isinstance(draft, str) else draft
    if len(steps) >= MOST_STEPS:
        raise ToolFailure("too_large", f"a plan has at most {MOST_STEPS} steps")
    if not draft.description.strip():
        raise ToolFailure("invalid_arguments", f"step {len(steps) + 1} says nothing")
    if draft.id and any(step["id"] == draft.id for step in steps):
        raise ToolFailure("invalid_arguments", f"two steps have the id {draft.id!r}")
    numbers = (re.fullmatch(r"s(\d{1,6})", step["id"]) for step in steps)
    number = max((int(found[1]) for found in numbers if found), default=0) + 1
    return {
        "id": draft.id or f"s{number}",
        "description": draft.description.strip(),
        "status": draft.status,
        "depends_on": list(depends_on),
        "result": "",
        "error": "",
        "output": None,
    }


def set_status(
    plan: Values,
    step_id: str,
    status: StepStatus,
    others: Mapping[str, Mapping[str, Any]],
    **more: Any,
) -> list[EventDraft]:
    """Change the state of a step of `plan`, and return what happened: also which steps need not wait any more.

    Raises `ToolFailure` for a plan that is not being worked on, and for a step that waits for others.
    """
    check_open(plan)
    if plan["status"] == "created":
        raise ToolFailure("tool_error", "the plan was not started yet", hint="start_plan begins the work on it")
    step = step_of(plan, step_id)
    held = unmet(step, plan, others)
    if held and status in ("in_progress", "completed"):
        raise ToolFailure(
            "tool_error",
            f"step {step['id']} waits for {', '.join(held)}, so it cannot be {status}",
            hint="complete these first, or set them to skipped",
        )
    waited = {one["id"] for one in plan["steps"] if unmet(one, plan, others)}
    step.update(status=status, **more)
    freed = [one for one in plan["steps"] if one["id"] in waited and not unmet(one, plan, others)]
    text = str(step["error"] or step["result"] or step["description"])
    events = [EventDraft(type=_STEP_EVENTS[status], step_id=step["id"], text=text)]
    return [*events, *(EventDraft(type="step_unblocked", step_id=one["id"], text=one["description"]) for one in freed)]


def unmet(step: Mapping[str, Any], plan: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the unmet dependencies of a step. Those on a deleted plan count as met."""
    found: list[str] = []
    for name in step["depends_on"]:
        plan_id, _, step_id = name.rpartition("/")
        steps = (others.get(plan_id, {"steps": []}) if plan_id else plan)["steps"]
        if any(one["id"] == step_id and one["status"] not in ("completed", "skipped") for one in steps):
            found.append(name)
    return found


class StepView(TypedDict):
    """A step."""

    id: str
    description: str
    status: StepStatus
    depends_on: list[str]
    waits_for: Annotated[list[str], Field(description="Those of depends_on that are neither completed nor skipped.")]
    result: str
    error: str
    output: Annotated[dict[str, Any] | None, Field(description="What it hands on to those that wait for it.")]


class PlanView(TypedDict):
    """A plan, and how far it is."""

    plan_id: str
    title: str
    overview: str
    text: str
    status: PlanStatus
    steps: list[StepView]
    done: Annotated[int, Field(description="Steps that are completed or skipped.")]
    total: int
    next: Annotated[list[str], Field(description="Steps that can be begun now.")]
    required_tools: NotRequired[list[str]]
    required_capabilities: NotRequired[list[str]]


async def plan_view(plans: Plans, record: Record) -> PlanView:
    """Return the view of a plan."""
    waiting = await plans.waiting(record)
    steps = [step_view(step, waiting[step["id"]]) for step in record.value["steps"]]
    value = record.value
    view = PlanView(
        plan_id=record.id,
        title=value["title"],
        overview=value["overview"],
        text=value["text"],
        status=value["status"],
        steps=steps,
        done=sum(step["status"] in ("completed", "skipped") for step in steps),
        total=len(steps),
        next=[step["id"] for step in steps if step["status"] == "pending" and not step["waits_for"]],
    )
    for key in ("required_tools", "required_capabilities"):
        if value.get(key):
            view[key] = value[key]
    return view


def step_view(step: dict[str, Any], waits_for: list[str]) -> StepView:
    """Return the view of a step."""
    return StepView(
        id=step["id"],
        description=step["description"],
        status=step["status"],
        depends_on=list(step["depends_on"]),
        waits_for=waits_for,
        result=step["result"],
        error=step["error"],
        output=step["output"],
    )
