"""Events of plans for other sessions: tools that follow plans, and tell what happened to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypedDict

from pydantic import Field

from toolcrib.plugin import Context, Record, ToolFailure

from .._records import date_of, names_of
from .state import EventType, Plans, plan_tool

_MOST: Final = 50
"""Subscriptions of one session."""


class Subscription(TypedDict):
    """Subscription of a session to events."""

    id: str
    event_types: list[EventType]
    plan_id: Annotated[str, Field(description="Only of this plan; empty for all.")]


class Subscriptions(TypedDict):
    """Subscriptions of this session."""

    subscriptions: list[Subscription]


class Event(TypedDict):
    """Event of a plan."""

    number: int
    type: EventType
    plan_id: str
    plan: Annotated[str, Field(description="Title of the plan.")]
    step_id: Annotated[str, Field(description="Empty for what happened to the plan itself.")]
    text: str
    own: Annotated[bool, Field(description="This session did it.")]
    time: str


class Events(TypedDict):
    """The oldest first."""

    events: list[Event]
    last: Annotated[int, Field(description="Number of the newest event that there is; give it as `after` next time.")]


@plan_tool(
    op="x.plan.subscription.create",
    kind="write",
    approval="never",
    tags=["plan", "todo", "events", "agents", "notify"],
    examples=[{"event_types": ["step_completed", "step_failed"]}, {"event_types": ["plan_completed"], "plan_id": "4"}],
    policy={"do": ["get_task_events tells what happened since."]},
)
async def subscribe_to_tasks(
    event_types: Annotated[list[EventType], Field(min_length=1)], ctx: Context, plan_id: str = ""
) -> Subscription:
    """Follow what happens to plans from now on, your own and those of other sessions and agents that work for you.

    Args:
        event_types: What to hear of.
        plan_id: Only of this plan.
    """
    plans = Plans.of(ctx)
    if plan_id and await plans.records.get(plan_id) is None:
        raise ToolFailure("not_found", f"there is no plan {plan_id!r}", hint="get_plan_status tells the id of a plan")
    if len(await _mine(ctx)) >= _MOST:
        raise ToolFailure("too_large", f"this session has {_MOST} subscriptions already", hint="unsubscribe ends one")
    events = await plans.happened()
    value = {
        "event_types": list(dict.fromkeys(event_types)),
        "plan_id": plan_id,
        "since": int(events[-1].id) if events else 0,
    }
    return _to_subscription(await ctx.records("plan_subscriptions").add(value, group=ctx.session_key))


@plan_tool(
    op="x.plan.events",
    kind="read",
    idempotent=False,
    tags=["plan", "todo", "events", "agents"],
    examples=[{}, {"limit": 5, "after": 41}],
    policy={"edge_cases": ["Without a subscription: what happened to the plans of this session."]},
)
async def get_task_events(
    ctx: Context, limit: Annotated[int, Field(ge=1, le=200)] = 20, after: Annotated[int, Field(ge=0)] = 0
) -> Events:
    """Get what happened to the plans that this session follows, the newest of it.

    Args:
        limit: How many events at most.
        after: Only events with a greater number than this.
    """
    plans = Plans.of(ctx)
    mine = await _mine(ctx)
    happened = await plans.happened()
    wanted = [one for one in happened if int(one.id) > after and _is_wanted(one, mine, ctx.session_key)]
    return Events(
        events=[_event(one, ctx.session_key) for one in wanted[-limit:]],
        last=int(happened[-1].id) if happened else 0,
    )


@plan_tool(op="x.plan.subscription.list", kind="read", tags=["plan", "todo", "events", "subscription"], examples=[{}])
async def list_subscriptions(ctx: Context) -> Subscriptions:
    """List what this session follows."""
    return Subscriptions(subscriptions=[_to_subscription(record) for record in await _mine(ctx)])


@plan_tool(
    op="x.plan.subscription.delete",
    kind="write",
    approval="never",
    tags=["plan", "todo", "events", "subscription"],
    examples=[{"subscription_id": "1"}],
)
async def unsubscribe(subscription_id: str, ctx: Context) -> str:
    """Follow something no more.

    Args:
        subscription_id: Its id, as subscribe_to_tasks and list_subscriptions tell it.
    """
    mine = [record.id for record in await _mine(ctx)]
    if subscription_id not in mine:
        raise ToolFailure("not_found", f"this session has no subscription {subscription_id!r}", hint=names_of(mine))
    await ctx.records("plan_subscriptions").remove(subscription_id)
    return f"ended: {subscription_id}"


async def _mine(ctx: Context) -> list[Record]:
    found = await ctx.records("plan_subscriptions").list(group=ctx.session_key)
    return sorted(found, key=lambda record: int(record.id))


def _is_wanted(event: Record, subscriptions: list[Record], session: str) -> bool:
    if not subscriptions:
        return bool(event.value["session"] == session)
    return any(_follows(subscription.value, event) for subscription in subscriptions)


def _follows(subscription: Mapping[str, Any], event: Record) -> bool:
    return (
        int(event.id) > subscription["since"]
        and event.value["type"] in subscription["event_types"]
        and subscription["plan_id"] in ("", event.value["plan_id"])
    )


def _to_subscription(record: Record) -> Subscription:
    value = record.value
    return Subscription(id=record.id, event_types=list(value["event_types"]), plan_id=value["plan_id"])


def _event(record: Record, session: str) -> Event:
    value = record.value
    return Event(
        number=int(record.id),
        type=value["type"],
        plan_id=value["plan_id"],
        plan=value["plan"],
        step_id=value["step_id"],
        text=value["text"],
        own=value["session"] == session,
        time=date_of(value["time"]),
    )
