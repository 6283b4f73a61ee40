"""One plan of steps, some of which wait for others, and who wants to hear of them."""

from __future__ import annotations

from typing import Any

from toolcrib.errors import ToolFailure

from .state import WORLD, Record, found

__all__ = [
    "addDependentStep",
    "addStep",
    "completePlan",
    "completeStepWithOutput",
    "createPlan",
    "getBlockedSteps",
    "getPlanStatus",
    "getTaskEvents",
    "listSubscriptions",
    "setStepStatus",
    "startPlan",
    "subscribeToTasks",
    "unsubscribe",
]


def _plan() -> Record:
    if not WORLD.plan:
        raise ToolFailure("tool_error", "There is no plan yet: create one with createPlan")
    return WORLD.plan


def _step(step_id: str) -> Record:
    return found({step["id"]: step for step in _plan()["steps"]}, step_id, "step")


def _tell(kind: str, **facts: Any) -> None:
    WORLD.events.append({"type": kind, **facts})


def _new(description: str, depends_on: list[str]) -> Record:
    return {"id": WORLD.number("step"), "description": description, "status": "pending", "depends_on": depends_on}


def createPlan(title: str, steps: list[str]) -> Record:
    WORLD.plan = {"title": title, "status": "created", "steps": [_new(step, []) for step in steps]}
    _tell("plan_created", title=title)
    return getPlanStatus()


def startPlan() -> Record:
    _plan()["status"] = "active"
    _tell("plan_started")
    return {"status": "active"}


def setStepStatus(step_id: str, status: str, result: str = "", error: str = "") -> Record:
    _step(step_id).update(status=status, result=result, error=error)
    _tell(f"step_{status}", step_id=step_id)
    return dict(_step(step_id))


def getPlanStatus() -> Record:
    return {**_plan(), "steps": [dict(step) for step in _plan()["steps"]]}


def completePlan(status: str) -> Record:
    _plan()["status"] = status
    _tell(f"plan_{status}")
    return {"status": status}


def addStep(description: str) -> Record:
    return addDependentStep(description, [])


def addDependentStep(description: str, depends_on: list[str]) -> Record:
    for step_id in depends_on:
        _step(step_id)
    step = _new(description, depends_on)
    _plan()["steps"].append(step)
    return dict(step)


def completeStepWithOutput(step_id: str, output: Record) -> Record:
    _step(step_id).update(status="completed", output=output)
    _tell("step_completed", step_id=step_id)
    return dict(_step(step_id))


def getBlockedSteps() -> Record:
    steps = {step["id"]: step for step in _plan()["steps"]}
    waiting = {
        step_id: [other for other in step["depends_on"] if steps[other]["status"] != "completed"]
        for step_id, step in steps.items()
    }
    return {"blocked": [{"id": name, "waits_for": others} for name, others in waiting.items() if others]}


def subscribeToTasks(event_types: list[str]) -> Record:
    subscription = WORLD.number("subscription")
    WORLD.subscriptions[subscription] = {"id": subscription, "event_types": event_types}
    return dict(WORLD.subscriptions[subscription])


def getTaskEvents(limit: int = 20) -> Record:
    wanted = {kind for one in WORLD.subscriptions.values() for kind in one["event_types"]}
    events = [event for event in WORLD.events if not wanted or event["type"] in wanted]
    return {"events": events[-limit:]}


def listSubscriptions() -> Record:
    return {"subscriptions": [dict(one) for one in WORLD.subscriptions.values()]}


def unsubscribe(subscription_id: str) -> Record:
    found(WORLD.subscriptions, subscription_id, "subscription")
    del WORLD.subscriptions[subscription_id]
    return {"unsubscribed": subscription_id}
