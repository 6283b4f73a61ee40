"""`session_describe`: a session by a name that says what it is about, wherever people see sessions."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from toolcrib.plugin import SESSIONS, Context, ToolFailure, tool

__all__ = ["session_describe"]


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
