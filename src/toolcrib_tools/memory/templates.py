"""File templates with placeholders, stored by name or read from an index in the workspace."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NotRequired, TypedDict, cast

from msgspec import Struct
from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, Workspace, as_mapping, did_you_mean

from .._records import ProjectId, finds
from .._workspace.file_text import data_at, decoded
from .._workspace.place import file_at, workspace_of, workspace_tool
from .project_records import memory_tool
from .prompts import CONTENT, Name, Text, TextInfo, Variable, Variables, filled, missing, texts_of, variables_of

PLACES: Final = (".toolcrib/templates/index.json", ".toolcrib/templates/index.yaml")
"""Default paths of an index; the configuration may set another: `tools: {templates: {index: PATH}}`."""
_SYNTAXES: Final = ("places", "mustache", "jinja2")
_ORIGINS: Final = ("standalone", "embedded")
_KEYS: Final = ("name", "source_path", "syntax", "variables", "origin", "description")
_TOP: Final = ("generated_at", "template_count", "templates")
_MOST: Final = 500
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,99}")
_STATEMENT: Final = re.compile(r"\{%[^%]{0,200}%\}|\{\{\s{0,20}[#/^>&!{.][^}]{0,200}\}\}")
_FILTER: Final = re.compile(r"\{\{[^{}|]{0,200}\|[^{}]{0,200}\}\}")
"""Bounded, so that no text takes longer than its length."""

_OptionalName = Annotated[str, Field(max_length=100, pattern=r"^([A-Za-z0-9][A-Za-z0-9_. -]*)?$")]
_Path = Annotated[str, Field(min_length=1)]


class IndexedTemplate(Struct, frozen=True, kw_only=True):
    """A template in a file."""

    name: str
    path: str
    """Its file."""
    description: str
    content: str


class IndexReport(Struct, frozen=True, kw_only=True):
    """Templates of an index file, with errors and warnings."""

    path: str
    templates: Mapping[str, IndexedTemplate]
    """Valid templates."""
    errors: Sequence[str]
    warnings: Sequence[str]


async def load_index(ctx: Context) -> IndexReport | None:
    """Return the index of the session's workspace; None if there is none. A broken one has no templates."""
    if ctx.workspace is None:
        return None
    index = as_mapping(ctx.lent.setting("templates")).get("index")
    if index is not None and not isinstance(index, str):
        return IndexReport(path="", templates={}, errors=["tools.templates.index is not a path"], warnings=())
    for path in [index] if index else PLACES:
        if await ctx.workspace.stat(path) is None and not index:
            continue
        try:
            return await checked_at(ctx.workspace, path)
        except ToolFailure as failure:
            return IndexReport(path=path, templates={}, errors=[failure.message.removeprefix(path)], warnings=())
    return None


async def checked_at(workspace: Workspace, path: str) -> IndexReport:
    """Read an index and its templates; each error and warning has its place.

    Raises `ToolFailure` for a file that is not there, or neither JSON nor YAML.
    """
    data = await data_at(workspace, path)
    errors: list[str] = []
    warnings: list[str] = []
    found: dict[str, IndexedTemplate] = {}
    entries = _entries(data, errors, warnings)
    for name, entry in entries.items():
        where = f"templates.{name}"
        wrong = _wrong(name, entry, where, warnings)
        if not wrong:
            try:
                content = (await workspace.read(entry["source_path"], limit=CONTENT)).decode()
            except ToolFailure as failure:
                wrong = [f"{where}.source_path: {failure.message}"]
            except UnicodeDecodeError:
                wrong = [f"{where}.source_path: {entry['source_path']} is not UTF-8"]
            else:
                wrong = _against(entry, content, where)
                if not wrong:
                    found[name] = IndexedTemplate(
                        name=name, path=entry["source_path"], description=entry.get("description", ""), content=content
                    )
        errors += wrong
    return IndexReport(path=path, templates=found, errors=errors, warnings=warnings)


def unfillable(content: str, syntax: str) -> str:
    """Return the parts of a template's syntax that are not filled in here; empty if all are."""
    statement = None if syntax == "places" else _STATEMENT.search(content)
    if statement is None and syntax == "jinja2":
        statement = _FILTER.search(content)
    return "" if statement is None else statement[0]


def _entries(data: Any, errors: list[str], warnings: list[str]) -> dict[str, Any]:
    if not isinstance(data, dict):
        errors.append("an index is a mapping with `templates`")
        return {}
    top = cast("dict[str, Any]", data)
    warnings += [f"{key}: nothing is known of this key{did_you_mean(key, _TOP)}" for key in top if key not in _TOP]
    listed = top.get("templates")
    if not isinstance(listed, dict):
        errors.append(
            "templates: is missing" if listed is None else "templates: is not a mapping of names to templates"
        )
        return {}
    entries = cast("dict[str, Any]", listed)
    if len(entries) > _MOST:
        errors.append(f"templates: an index has at most {_MOST}, this one has {len(entries):,}")
        return {}
    count = top.get("template_count", len(entries))
    if count != len(entries):
        warnings.append(f"template_count: says {count}, there are {len(entries)}")
    return entries


def _wrong(name: str, entry: Any, where: str, warnings: list[str]) -> list[str]:
    """Return the problems of an entry by itself."""
    if not isinstance(entry, dict):
        return [f"{where}: is not a mapping with source_path"]
    fields = cast("dict[str, Any]", entry)
    warnings += [
        f"{where}.{key}: nothing is known of this key{did_you_mean(key, _KEYS)}" for key in fields if key not in _KEYS
    ]
    wrong = [] if _NAME.fullmatch(name) else [f"{where}: a name has letters, digits, `_`, `.`, `-` and blanks"]
    if not isinstance(fields.get("source_path"), str) or not fields["source_path"]:
        wrong.append(f"{where}.source_path: {'is missing' if 'source_path' not in fields else 'is not a path'}")
    for key, allowed in (("syntax", _SYNTAXES), ("origin", _ORIGINS)):
        if key in fields and fields[key] not in allowed:
            wrong.append(f"{where}.{key}: is one of {', '.join(allowed)}, not {fields[key]!r}")
    wrong += [
        f"{where}.{key}: is not text" for key in ("name", "description") if not isinstance(fields.get(key, ""), str)
    ]
    if fields.get("name", name) != name:
        warnings.append(f"{where}.name: says {fields['name']!r}, the template is called {name!r}")
    variables = fields.get("variables", [])
    if not isinstance(variables, list) or not all(isinstance(one, str) for one in cast("list[Any]", variables)):
        wrong.append(f"{where}.variables: is not a list of names")
    return wrong


def _against(entry: Mapping[str, Any], content: str, where: str) -> list[str]:
    """Return the differences between an entry and its file."""
    path = entry["source_path"]
    if strange := unfillable(content, entry.get("syntax", "places")):
        return [f"{where}: {path} has {strange}, which is not filled in: only {{{{name}}}} and its like are"]
    if "variables" not in entry:
        return []
    there = [place["name"] for place in variables_of(content)]
    wrong = [f"{where}.variables: {path} has no {one!r}" for one in entry["variables"] if one not in there]
    return [*wrong, *(f"{where}.variables: lacks {one!r} of {path}" for one in there if one not in entry["variables"])]


class Template(Text):
    """A template."""

    path: NotRequired[Annotated[str, Field(description="Its file, where an index of the workspace names it.")]]


class TemplateInfo(TextInfo):
    """A template without its text."""

    path: NotRequired[Annotated[str, Field(description="Its file, where an index of the workspace names it.")]]


class Templates(TypedDict):
    """By name."""

    templates: list[TemplateInfo]
    problems: NotRequired[Annotated[list[str], Field(description="What is wrong with the index of the workspace.")]]


class TemplateVariables(TypedDict):
    """Placeholders of a template."""

    variables: list[Variable]
    required: Annotated[list[str], Field(description="Those that must be given.")]


class IndexChecked(TypedDict):
    """Validity of an index."""

    path: str
    valid: bool
    templates: Annotated[list[str], Field(description="Those that can be used.")]
    errors: list[str]
    warnings: list[str]


class FileWritten(TypedDict):
    """The new file."""

    path: str
    size: Annotated[int, Field(description="Bytes.")]
    replaced: bool
    pending: Annotated[bool, Field(description="It waits for review: the disk is as it was.")]


@memory_tool(
    op="x.template.list",
    kind="read",
    tags=["template", "boilerplate", "scaffold", "available"],
    examples=[{}],
    policy={"do": ["Look here before you write a new file by hand: write_file_from_template fills one in."]},
)
async def list_templates(ctx: Context, project_id: ProjectId = "") -> Templates:
    """List the templates for files that a project has: those that were saved, and those in files of the workspace.

    Args:
        project_id: The project; that of this session when not given.
    """
    saved = [TemplateInfo(**info) for info in await texts_of(ctx, "template", project_id).infos()]
    index = await load_index(ctx)
    if index is None:
        return Templates(templates=saved)
    names = {one["name"].casefold() for one in saved}
    in_files = [
        TemplateInfo(
            name=one.name,
            description=one.description,
            variables=[place["name"] for place in variables_of(one.content)],
            path=one.path,
        )
        for one in index.templates.values()
        if one.name.casefold() not in names
    ]
    listed = Templates(templates=sorted([*saved, *in_files], key=lambda one: one["name"].casefold()))
    if index.errors:
        listed["problems"] = [_placed(index.path, error) for error in index.errors]
    return listed


@memory_tool(op="x.template.get", kind="read", tags=["template"], examples=[{"name": "handler.py"}])
async def get_template(name: Name, ctx: Context, project_id: ProjectId = "") -> Template:
    """Get a template: its text, and the places that are to be filled in.

    Args:
        name: Its name.
        project_id: The project; that of this session when not given.
    """
    return await _find(ctx, name, project_id)


@memory_tool(
    op="x.template.variables",
    kind="read",
    traits=["file_reader"],
    tags=["template", "variables", "placeholders", "fill in"],
    examples=[{"template": "handler.py"}, {"template_path": "templates/handler.py.tpl"}],
    policy={"do": ["Ask it before write_file_from_template: it names exactly what variables takes."]},
)
async def list_template_variables(
    ctx: Context, template: _OptionalName = "", template_path: str = "", project_id: ProjectId = ""
) -> TemplateVariables:
    """List the places of a template that are to be filled in, and which of them have words of their own.

    Args:
        template: Name of the template.
        template_path: A file of the workspace that is a template, in the place of a name.
        project_id: The project; that of this session when not given.
    """
    variables = variables_of(await _content(ctx, project_id, template=template, template_path=template_path))
    return TemplateVariables(variables=variables, required=[one["name"] for one in variables if one["required"]])


@workspace_tool(
    op="x.template.validate_index",
    category="memory",
    kind="read",
    tags=["template", "index", "check", "lint"],
    examples=[{"path": ".toolcrib/templates/index.json"}],
    policy={"edge_cases": ["One entry that is wrong does not take the others away: templates names what can be used."]},
)
async def validate_template_index(path: _Path, ctx: Context) -> IndexChecked:
    """Validate an index of templates: its shape, that the files are there, and that their variables are as it says.

    Args:
        path: The index, a JSON or YAML file with `templates`: name → source_path, and description, variables, syntax.
    """
    checked = await checked_at(workspace_of(ctx), path)
    return IndexChecked(
        path=checked.path,
        valid=not checked.errors,
        templates=list(checked.templates),
        errors=list(checked.errors),
        warnings=list(checked.warnings),
    )


@memory_tool(
    op="x.template.create",
    kind="write",
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
        replace: Also if there is one of that name.
        project_id: The project; that of this session when not given.
    """
    kept, _ = await texts_of(ctx, "template", project_id).save(name, content, description, replace=replace)
    return kept


@memory_tool(
    check=finds(lambda given, ctx: texts_of(ctx, "template", given.get("project_id", "")).find(given["name"])),
    op="x.template.delete",
    kind="destructive",
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


@workspace_tool(
    op="x.template.write_file",
    category="memory",
    kind="write",
    traits=["file_writer"],
    locks=["output_path"],
    tags=["template", "boilerplate", "scaffold", "file", "generate"],
    examples=[
        {"template": "handler.py", "output_path": "src/orders.py", "variables": {"name": "list_orders"}},
        {"content": "# {{title}}\n", "output_path": "docs/orders.md", "variables": {"title": "Orders"}},
    ],
    policy={"edge_cases": ["A file that is there is left alone unless overwrite is set."]},
)
async def write_file_from_template(
    output_path: _Path,
    ctx: Context,
    template: _OptionalName = "",
    template_path: str = "",
    content: Annotated[str, Field(max_length=CONTENT)] = "",
    variables: Variables | None = None,
    overwrite: bool = False,
    project_id: ProjectId = "",
) -> FileWritten:
    """Write a file from a template, its places filled in. Give template, template_path or content.

    Args:
        output_path: The file, such as "src/orders.py".
        template: Name of the template.
        template_path: A file of the workspace that is a template, in the place of a name.
        content: The text of a template, in the place of a name.
        variables: What stands in the places of the template, by their names.
        overwrite: Also if there is a file already.
        project_id: The project; that of this session when not given.
    """
    workspace = workspace_of(ctx)
    found = await _content(ctx, project_id, template=template, template_path=template_path, content=content)
    made = filled(found, variables or {}).encode()
    entry = await workspace.stat(output_path)
    if entry is not None and not overwrite:
        raise ToolFailure("tool_error", f"{output_path!r} is there already", hint="set overwrite to replace it")
    written = await workspace.write(output_path, made)
    return FileWritten(path=written.path, size=written.size, replaced=entry is not None, pending=written.pending)


async def _find(ctx: Context, name: str, project_id: str) -> Template:
    """Return a template, saved or in a file. Raises `ToolFailure` with the names that there are."""
    texts = texts_of(ctx, "template", project_id)
    saved = await texts.seek(name)
    if saved is not None:
        return Template(**saved)
    index = await load_index(ctx)
    in_files = {} if index is None else {one.name.casefold(): one for one in index.templates.values()}
    one = in_files.get(name.strip().casefold())
    if one is None:
        raise missing("template", name, [*(text["name"] for text in await texts.all()), *in_files])
    variables = variables_of(one.content)
    return Template(name=one.name, description=one.description, content=one.content, variables=variables, path=one.path)


def _placed(path: str, error: str) -> str:
    """Return an error with the file that it is in; one that begins with a line has its place already."""
    return f"{path}{error}" if error.startswith(":") else f"{path}: {error}"


async def _content(ctx: Context, project_id: str, *, template: str, template_path: str, content: str = "") -> str:
    """Return the text of the template that is meant. Raises `ToolFailure` unless exactly one is."""
    given = {"template": template.strip(), "template_path": template_path.strip(), "content": content}
    named = [name for name, value in given.items() if value]
    if len(named) != 1:
        raise ToolFailure(
            "invalid_arguments",
            f"give one of {', '.join(given)}" if not named else f"{' and '.join(named)}: give one of them",
            hint="list_templates shows the names",
        )
    if template_path.strip():
        workspace = workspace_of(ctx)
        entry = await file_at(workspace, template_path)
        return decoded(await workspace.read(entry.path, limit=CONTENT), path=entry.path).raw
    return content or (await _find(ctx, template, project_id))["content"]
