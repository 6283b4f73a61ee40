"""Status of this Toolcrib for the calling session, and the name of a session."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from toolcrib.plugin import SESSIONS, Context, ToolFailure, tool

__all__ = ["get_recent_events", "get_status", "get_token_usage", "session_describe"]


@tool(
    op="x.session.describe",
    category="system",
    kind="write",
    open_world=False,
    idempotent=True,
    approval="never",
    tags=["title", "name", "label", "conversation", "topic"],
    examples=[{"description": "Fix the login redirect"}],
    policy={
        "do": ["Describe it once it is clear what it is about, and again when that changes."],
        "edge_cases": ["It is the user who reads it: in the list of conversations, the status and the log."],
    },
)
async def session_describe(
    description: Annotated[str, Field(min_length=1, max_length=120, pattern=r"\S")], ctx: Context
) -> dict[str, Any]:
    """Say in a few words what this session is about, so that the user finds it again.

    Args:
        description: A title of one line.
    """
    shown = " ".join("".join(one if one.isprintable() else " " for one in description).split())
    if not shown:
        raise ToolFailure("invalid_arguments", "description: there is nothing in it that can be shown")
    records = ctx.records(SESSIONS)
    before = await records.get(ctx.session_key)
    kept = await records.put(ctx.session_key, {"description": shown}, text=shown)
    return {**kept.value, "before": before.value["description"] if before else None}


@tool(
    op="x.system.status",
    category="system",
    kind="read",
    open_world=False,
    idempotent=False,
    tags=["health", "sources", "servers", "problems", "version", "state"],
    examples=[{}],
    policy={"do": ["Look here when a tool that should be there is missing: problems tells why."]},
)
async def get_status(ctx: Context) -> dict[str, Any]:
    """Tell how Toolcrib is doing: its version, how this session is set up, how many tools it has, sources, problems."""
    return dict(await ctx.lent.insight(ctx.principal, ctx.session_key).status())


@tool(
    op="x.system.token_usage",
    category="system",
    kind="read",
    open_world=False,
    idempotent=False,
    tags=["tokens", "cost", "budget", "calls", "spent"],
    examples=[{}],
    policy={"edge_cases": ["Tokens are estimated at four bytes each. What the model itself says is not counted here."]},
)
async def get_token_usage(ctx: Context) -> dict[str, Any]:
    """Tell what this session has used: calls and tokens of results by tool, of definitions, today's, what is left."""
    return dict(await ctx.lent.insight(ctx.principal, ctx.session_key).usage())


@tool(
    op="x.system.events",
    category="system",
    kind="read",
    open_world=False,
    idempotent=False,
    tags=["history", "log", "audit", "calls", "errors"],
    examples=[{"limit": 5}, {"outcome": "error"}, {"tool": "git_*", "limit": 50}],
    policy={"edge_cases": ["Arguments and results are not shown. The call that asks is not in it yet."]},
)
async def get_recent_events(
    ctx: Context,
    limit: Annotated[int, Field(ge=1, le=500)] = 20,
    tool: Annotated[str, Field(max_length=200)] = "",
    outcome: Literal["", "ok", "error", "denied", "timeout", "cancelled"] = "",
) -> dict[str, Any]:
    """List the newest calls of tools, the newest first: when, which tool, what came of it, how long it took.

    Args:
        limit: How many at most.
        tool: Only calls of this tool; * stands for anything.
        outcome: Only calls that ended like this; "error" is every one that failed.
    """
    insight = ctx.lent.insight(ctx.principal, ctx.session_key)
    events = await insight.events(limit=limit, tool=tool, outcome=outcome)
    return {"events": events, "count": len(events)}
