"""Saved prompts: stored under a name, filled in when used."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from pydantic import Field

from toolcrib.plugin import Context, tool

from .._records import ProjectId
from .placeholders import CONTENT, Name, Text, TextInfo, Variable, Variables, filled, texts_of, variables_of

__all__ = [
    "PromptSaved",
    "Prompts",
    "delete_prompt",
    "list_saved_prompts",
    "read_prompt",
    "render_prompt",
    "save_prompt",
]


class Prompts(TypedDict):
    """By name."""

    prompts: list[TextInfo]


class PromptSaved(TypedDict):
    """Outcome of a prompt that was saved."""

    name: str
    status: Literal["created", "updated"]
    variables: list[Variable]


@tool(
    op="x.prompt.list",
    category="prompt",
    kind="read",
    open_world=False,
    tags=["prompt", "library"],
    examples=[{}, {"tag": "review"}],
)
async def list_saved_prompts(ctx: Context, tag: str = "", project_id: ProjectId = "") -> Prompts:
    """List the prompts that were saved in a project.

    Args:
        tag: Only those with this tag.
        project_id: The project; that of this session when not given.
    """
    infos = await texts_of(ctx, "prompt", project_id).infos()
    return Prompts(prompts=[one for one in infos if not tag or tag in one.get("tags", ())])


@tool(
    op="x.prompt.read",
    category="prompt",
    kind="read",
    open_world=False,
    tags=["prompt", "library"],
    examples=[{"name": "review"}],
)
async def read_prompt(name: Name, ctx: Context, project_id: ProjectId = "") -> Text:
    """Read a prompt as it was saved, with the places that are to be filled in.

    Args:
        name: Its name.
        project_id: The project; that of this session when not given.
    """
    return await texts_of(ctx, "prompt", project_id).find(name)


@tool(
    op="x.prompt.render",
    category="prompt",
    kind="read",
    open_world=False,
    tags=["prompt", "library", "fill in", "variables"],
    examples=[{"name": "review", "variables": {"language": "Python"}}],
    policy={"edge_cases": ["A value stands in the text as it is: places in it are not filled in again."]},
)
async def render_prompt(
    name: Name, ctx: Context, variables: Variables | None = None, project_id: ProjectId = ""
) -> str:
    """Return a prompt with its places filled in.

    Args:
        name: Its name.
        variables: What stands in its places, by their names.
        project_id: The project; that of this session when not given.
    """
    found = await texts_of(ctx, "prompt", project_id).find(name)
    return filled(found["content"], variables or {})


@tool(
    op="x.prompt.save",
    category="prompt",
    kind="write",
    open_world=False,
    idempotent=True,
    tags=["prompt", "library", "save", "keep", "reuse"],
    examples=[
        {
            "name": "review",
            "content": "Review this {{language|Python}} change for {{concern}}.",
            "description": "Review of a change",
            "tags": ["review"],
        }
    ],
    policy={"edge_cases": ["A prompt of that name is replaced; its description and tags stay when none are given."]},
)
async def save_prompt(
    name: Name,
    content: Annotated[str, Field(min_length=1, max_length=CONTENT)],
    ctx: Context,
    description: Annotated[str, Field(max_length=500)] = "",
    tags: Annotated[list[Annotated[str, Field(min_length=1, max_length=100)]], Field(max_length=30)] | None = None,
    project_id: ProjectId = "",
) -> PromptSaved:
    """Save a prompt under a name. {{name}} in it is a place to fill in, {{name|words}} one with words of its own.

    Args:
        name: Its name, such as "review".
        content: The text.
        description: What it is for.
        tags: Words that list_saved_prompts finds it by.
        project_id: The project; that of this session when not given.
    """
    texts = texts_of(ctx, "prompt", project_id)
    kept, is_new = await texts.save(name, content, description, replace=True, tags=tags)
    status: Literal["created", "updated"] = "created" if is_new else "updated"
    return PromptSaved(name=kept["name"], status=status, variables=variables_of(content))


@tool(
    op="x.prompt.delete",
    category="prompt",
    kind="destructive",
    open_world=False,
    tags=["prompt", "library", "remove"],
    examples=[{"name": "review"}],
)
async def delete_prompt(name: Name, ctx: Context, project_id: ProjectId = "") -> str:
    """Delete a prompt that was saved.

    Args:
        name: Its name.
        project_id: The project; that of this session when not given.
    """
    return f"deleted: {await texts_of(ctx, 'prompt', project_id).remove(name)}"
