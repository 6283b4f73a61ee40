"""Plans: the steps of a session's work, and events of other sessions' plans."""

from .steps import (
    add_dependent_step,
    add_step,
    complete_plan,
    complete_step_with_output,
    create_plan,
    get_blocked_steps,
    get_plan_status,
    plan,
    set_step_status,
    start_plan,
)
from .subscriptions import get_task_events, list_subscriptions, subscribe_to_tasks, unsubscribe

__all__ = [
    "add_dependent_step",
    "add_step",
    "complete_plan",
    "complete_step_with_output",
    "create_plan",
    "get_blocked_steps",
    "get_plan_status",
    "get_task_events",
    "list_subscriptions",
    "plan",
    "set_step_status",
    "start_plan",
    "subscribe_to_tasks",
    "unsubscribe",
]
