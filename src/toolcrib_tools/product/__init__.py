"""Guides to Toolcrib for models: tools, ways of working, concepts."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Any, Final

from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, did_you_mean, tool

__all__ = ["get_field_info", "get_product_overview", "get_usage_guide"]

_GUIDE: Final = "guide.md"
_MARK: Final = "\n## "

Word = Annotated[str, Field(max_length=100)]


@tool(
    category="knowledge",
    kind="read",
    open_world=False,
    idempotent=False,
    op="util.product.overview",
    tags=["about", "help", "toolcrib", "version", "categories"],
    examples=[{}],
    policy={"do": ["Read it when the user asks what you can do, or what Toolcrib is."]},
)
async def get_product_overview(ctx: Context) -> dict[str, Any]:
    """Tell what Toolcrib is, how this session is set up, its categories of tools, and topics of the guide."""
    status = await ctx.lent.insight(ctx.principal, ctx.session_key).status()
    return {
        "product": "Toolcrib: any number of tools, one small stable context, one safe way to run them.",
        "version": status["version"],
        "session": status["session"],
        "tools": status["tools"],
        "guide_topics": list(_topics()),
    }


@tool(
    category="knowledge",
    kind="read",
    open_world=False,
    op="util.product.usage_guide",
    tags=["help", "manual", "instructions", "howto", "toolcrib"],
    examples=[{"topic": "approval"}, {}],
    policy={"do": ["Read the topic before you explain to the user how Toolcrib behaves."]},
)
def get_usage_guide(topic: Word = "") -> str:
    """Explain how to work with Toolcrib: finding and calling tools, approval, results, files, background, limits.

    Args:
        topic: One topic, such as "approval"; the whole guide when empty.
    """
    topics = _topics()
    if not topic.strip():
        return "\n\n".join(f"{name}: {text}" for name, text in topics.items())
    wanted = topic.strip().lower()
    if wanted not in topics:
        message = f"there is no topic {topic!r}{did_you_mean(wanted, topics)}"
        raise ToolFailure("not_found", message, hint=f"there are {', '.join(topics)}")
    return topics[wanted]


@tool(
    category="knowledge",
    kind="read",
    open_world=False,
    idempotent=False,
    op="util.schema.field_info",
    tags=["schema", "fields", "arguments", "values", "enum", "properties"],
    examples=[{"entity_type": "task", "field_name": "status"}, {"entity_type": "note"}],
    policy={"edge_cases": ["Covers the tools of this session; a server may have limits of its own."]},
)
async def get_field_info(
    entity_type: Annotated[str, Field(min_length=1, max_length=100)], ctx: Context, field_name: Word = ""
) -> dict[str, Any]:
    """Tell which fields a kind of thing has: type, allowed values, default, limits, and which tools take or need it.

    Args:
        entity_type: The kind of thing, as it stands in the names of tools, such as "task" or "file".
        field_name: One field; all when empty.
    """
    fields = ctx.lent.insight(ctx.principal, ctx.session_key).fields(entity_type)
    if not fields:
        raise ToolFailure(
            "not_found",
            f"no tool of this session works on {entity_type!r}",
            hint="name the thing as tools do, in one word: create_task works on a task",
        )
    if not field_name:
        return {"entity_type": entity_type, "fields": dict(fields)}
    if field_name not in fields:
        message = f"no tool takes {field_name!r} for a {entity_type}{did_you_mean(field_name, fields)}"
        raise ToolFailure("not_found", message, hint=f"there are {', '.join(fields)}")
    return {"entity_type": entity_type, "fields": {field_name: fields[field_name]}}


def _topics() -> dict[str, str]:
    """Read the guide that comes with this package: its sections by name."""
    text = files(__name__).joinpath(_GUIDE).read_text(encoding="utf-8")
    sections = (section.partition("\n") for section in text.split(_MARK)[1:])
    return {name.strip(): body.replace("\n", " ").strip() for name, _, body in sections}
