"""A plan as it is told."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from pydantic import Field

from toolcrib.plugin import Record

from .state import Plans, PlanStatus, StepStatus

__all__ = ["PlanTold", "StepTold", "plan_told", "step_told"]


class StepTold(TypedDict):
    """A step."""

    id: str
    description: str
    status: StepStatus
    depends_on: list[str]
    waits_for: Annotated[list[str], Field(description="Those of depends_on that are neither completed nor skipped.")]
    result: str
    error: str
    output: Annotated[dict[str, Any] | None, Field(description="What it hands on to those that wait for it.")]


class PlanTold(TypedDict):
    """A plan, and how far it is."""

    plan_id: str
    title: str
    overview: str
    text: str
    status: PlanStatus
    steps: list[StepTold]
    done: Annotated[int, Field(description="Steps that are completed or skipped.")]
    total: int
    next: Annotated[list[str], Field(description="Steps that can be begun now.")]


async def plan_told(plans: Plans, record: Record) -> PlanTold:
    """Return a plan as it is told."""
    waiting = await plans.waiting(record)
    steps = [step_told(step, waiting[step["id"]]) for step in record.value["steps"]]
    value = record.value
    return PlanTold(
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


def step_told(step: dict[str, Any], waits_for: list[str]) -> StepTold:
    """Return a step as it is told."""
    return StepTold(
        id=step["id"],
        description=step["description"],
        status=step["status"],
        depends_on=list(step["depends_on"]),
        waits_for=waits_for,
        result=step["result"],
        error=step["error"],
        output=step["output"],
    )
