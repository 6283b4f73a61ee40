"""Templates: texts of files that are written again and again, with places to fill in."""

from __future__ import annotations

from typing import Annotated, TypedDict

from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, tool

from .._records import ProjectId
from .._workspace.place import workspace_of
from .filling import CONTENT, Name, Text, TextInfo, Variables, filled, texts_of

__all__ = [
    "FileWritten",
    "Templates",
    "create_template",
    "delete_template",
    "get_template",
    "list_templates",
    "write_file_from_template",
]


class Templates(TypedDict):
    """By name."""

    templates: list[TextInfo]


class FileWritten(TypedDict):
    """The new file."""

    path: str
    size: Annotated[int, Field(description="Bytes.")]
    replaced: bool
    pending: Annotated[bool, Field(description="It waits for review: the disk is as it was.")]


@tool(category="memory", kind="read", open_world=False, tags=["template", "boilerplate", "scaffold"], examples=[{}])
async def list_templates(ctx: Context, project_id: ProjectId = "") -> Templates:
    """List the templates for files that a project has.

    Args:
        project_id: The project; that of this session when not given.
    """
    return Templates(templates=await texts_of(ctx, "template", project_id).infos())


@tool(category="memory", kind="read", open_world=False, tags=["template"], examples=[{"name": "handler.py"}])
async def get_template(name: Name, ctx: Context, project_id: ProjectId = "") -> Text:
    """Get a template: its text, and the places that are to be filled in.

    Args:
        name: Its name.
        project_id: The project; that of this session when not given.
    """
    return await texts_of(ctx, "template", project_id).find(name)


@tool(
    category="memory",
    kind="write",
    open_world=False,
    tags=["template", "boilerplate", "scaffold", "new"],
    examples=[{"name": "handler.py", "content": 'async def {{name}}():\n    """{{purpose|To be written.}}"""\n'}],
    policy={"edge_cases": ["A template of that name is replaced only where replace says so."]},
)
async def create_template(
    name: Name,
    content: Annotated[str, Field(min_length=1, max_length=CONTENT)],
    ctx: Context,
    description: Annotated[str, Field(max_length=500)] = "",
    replace: bool = False,
    project_id: ProjectId = "",
) -> Text:
    """Keep a template for files. {{name}} in it is a place to fill in, {{name|words}} one with words of its own.

    Args:
        name: Its name, such as "handler.py".
        content: The text.
        description: What it is for.
        replace: Also where there is one of that name.
        project_id: The project; that of this session when not given.
    """
    kept, _ = await texts_of(ctx, "template", project_id).save(name, content, description, replace=replace)
    return kept


@tool(
    category="memory",
    kind="destructive",
    open_world=False,
    tags=["template", "remove"],
    examples=[{"name": "handler.py"}],
)
async def delete_template(name: Name, ctx: Context, project_id: ProjectId = "") -> str:
    """Delete a template.

    Args:
        name: Its name.
        project_id: The project; that of this session when not given.
    """
    return f"deleted: {await texts_of(ctx, 'template', project_id).remove(name)}"


@tool(
    category="memory",
    kind="write",
    open_world=False,
    needs=["workspace"],
    traits=["file_writer"],
    locks=["output_path"],
    tags=["template", "boilerplate", "scaffold", "file", "generate"],
    examples=[
        {"template": "handler.py", "output_path": "src/orders.py", "variables": {"name": "list_orders"}},
    ],
    policy={"edge_cases": ["A file that is there is left alone unless overwrite is set."]},
)
async def write_file_from_template(
    template: Name,
    output_path: Annotated[str, Field(min_length=1)],
    ctx: Context,
    variables: Variables | None = None,
    overwrite: bool = False,
    project_id: ProjectId = "",
) -> FileWritten:
    """Write a file from a template, its places filled in.

    Args:
        template: Name of the template.
        output_path: The file, such as "src/orders.py".
        variables: What stands in the places of the template, by their names.
        overwrite: Also where there is a file already.
        project_id: The project; that of this session when not given.
    """
    workspace = workspace_of(ctx)
    found = await texts_of(ctx, "template", project_id).find(template)
    content = filled(found["content"], variables or {}).encode()
    entry = await workspace.stat(output_path)
    if entry is not None and not overwrite:
        raise ToolFailure("tool_error", f"{output_path!r} is there already", hint="set overwrite to replace it")
    written = await workspace.write(output_path, content)
    return FileWritten(path=written.path, size=written.size, replaced=entry is not None, pending=written.pending)
