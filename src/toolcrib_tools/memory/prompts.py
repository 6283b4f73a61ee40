"""Named texts with placeholders, and saved prompts: stored under a name, filled in when used.

`{{name}}` stands for what is given for it, `{{name|words}}` for these words where nothing is. Everything else stands as
it is, braces that hold no plain name included.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict, cast

from msgspec import Struct
from pydantic import Field

from toolcrib.plugin import Context, Record, Records, ToolFailure, did_you_mean, nearest, tool

from .._records import ProjectId, Values, change, finds, names_of, project_of

CONTENT: Final = 100_000
"""Characters of a prompt or a template."""
_FILLED: Final = 1_000_000
"""Characters of one that was filled in."""
_MOST: Final = 500
"""Prompts, and templates, of one project."""
_PLACE: Final = re.compile(r"\{\{ *([A-Za-z_][A-Za-z0-9_]{0,63}) *(?:\|([^{}\n]*))?\}\}")

Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9_. -]*$")]
Variables = Annotated[dict[str, Any], Field(max_length=200)]

_prompt_tool = partial(tool, category="prompt", open_world=False)


class Variable(TypedDict):
    """A place to fill in."""

    name: str
    required: bool
    default: Annotated[str | None, Field(description="null for one that is required.")]


class Text(TypedDict):
    """A prompt or a template."""

    name: str
    description: str
    content: str
    variables: list[Variable]
    tags: NotRequired[list[str]]


class TextInfo(TypedDict):
    """A prompt or a template without its text."""

    name: str
    description: str
    variables: list[str]
    tags: NotRequired[list[str]]


def variables_of(content: str) -> list[Variable]:
    """Return the places of a text, each once, in their order. One that has words anywhere is not required."""
    found: dict[str, str | None] = {}
    for name, words in ((match[1], match[2]) for match in _PLACE.finditer(content)):
        found[name] = words if found.get(name) is None else found[name]
    return [Variable(name=name, required=words is None, default=words) for name, words in found.items()]


def filled(content: str, variables: Mapping[str, Any]) -> str:
    """Return the text with its places filled in; what is put there is not looked at again.

    Raises `ToolFailure("invalid_arguments")` naming each value that is missing, unknown, or no plain one.
    """
    places = {place["name"]: place["default"] for place in variables_of(content)}
    wrong = [f"{name}: is missing" for name, words in places.items() if words is None and name not in variables]
    for name, value in variables.items():
        if name not in places:
            wrong.append(f"{name}: there is no such place{did_you_mean(name, places)}")
        elif not isinstance(value, str | int | float):
            wrong.append(f"{name}: takes a text, a number or true and false, not {type(value).__name__}")
    if wrong:
        needed = ", ".join(places) or "none"
        raise ToolFailure("invalid_arguments", f"variables: {'; '.join(wrong)}", hint=f"its places: {needed}")
    values = {name: _text_of_value(variables.get(name, words)) for name, words in places.items()}
    size = len(content) + sum(len(values[match[1]]) - len(match[0]) for match in _PLACE.finditer(content))
    if size > _FILLED:  # before it is made: a long value at very many places has no room in memory
        raise ToolFailure("too_large", f"the text would have {size:,} characters, at most {_FILLED:,} are made")
    return _PLACE.sub(lambda match: values[match[1]], content)


class Texts(Struct, frozen=True, kw_only=True):
    """The prompts or the templates of one project. Lives as long as a call."""

    records: Records
    project: str
    what: str
    """Display name of the kind: prompt, template."""

    async def all(self) -> list[Text]:
        """Return all of them, by name."""
        found = await self.records.list(group=self.project, limit=_MOST)
        return sorted((_text(record.value) for record in found), key=lambda text: text["name"].casefold())

    async def infos(self) -> list[TextInfo]:
        """Return all of them without their texts, by name."""
        return [_info(text) for text in await self.all()]

    async def find(self, name: str) -> Text:
        """Return one; raises `ToolFailure` with the names that there are."""
        return _text((await self._record(name)).value)

    async def seek(self, name: str) -> Text | None:
        """Return a text by its name; None if there is none."""
        found = await self.records.get(self._id(name))
        return None if found is None else _text(found.value)

    async def save(
        self, name: str, content: str, description: str, *, replace: bool, tags: list[str] | None = None
    ) -> tuple[Text, bool]:
        """Keep one; return it, and whether it is new. Raises `ToolFailure` for one that may not be replaced.

        A description and tags that are not given stay.
        """
        names = [text["name"] for text in await self.all()]
        if len(names) >= _MOST and await self.records.get(self._id(name)) is None:
            raise ToolFailure("too_large", f"this project has {_MOST} {self.what}s already", hint=names_of(names))

        def make(before: Values | None) -> Values:
            if before is not None and not replace:
                raise ToolFailure("tool_error", f"there is a {self.what} {name!r} already", hint="give it another name")
            summary = description or (before["description"] if before else "")
            named = (before or {}).get("tags", []) if tags is None else list(dict.fromkeys(tags))
            made = {"name": name.strip(), "description": summary, "content": content, "changed": time.time()}
            return {**made, "tags": named} if named else made

        kept = await change(self.records, self._id(name), make, group=self.project)
        return _text(kept.value), kept.revision == 1

    async def remove(self, name: str) -> str:
        """Forget one; return its name."""
        found = await self._record(name)
        await self.records.remove(found.id)
        return str(found.value["name"])

    async def _record(self, name: str) -> Record:
        found = await self.records.get(self._id(name))
        if found is None:
            raise missing(self.what, name, [text["name"] for text in await self.all()])
        return found

    def _id(self, name: str) -> str:
        return f"{self.project}\n{name.strip().casefold()}"


def texts_of(ctx: Context, what: str, project_id: str) -> Texts:
    """Return the prompts or the templates that the caller has in a project."""
    return Texts(records=ctx.records(f"{what}s"), project=project_of(ctx, project_id), what=what)


def missing(what: str, name: str, names: list[str]) -> ToolFailure:
    """Return the failure for an unknown name: with the nearest one, or all names."""
    near = nearest(name, names, 1)
    hint = f"did you mean {near[0]!r}?" if near else names_of(names)
    return ToolFailure("not_found", f"there is no {what} {name!r}", hint=hint)


def _text(value: Mapping[str, Any]) -> Text:
    content = cast("str", value["content"])
    text = Text(name=value["name"], description=value["description"], content=content, variables=variables_of(content))
    if tags := value.get("tags"):
        text["tags"] = list(tags)
    return text


def _info(text: Text) -> TextInfo:
    info = TextInfo(
        name=text["name"],
        description=text["description"],
        variables=[place["name"] for place in text["variables"]],
    )
    if "tags" in text:
        info["tags"] = text["tags"]
    return info


def _text_of_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Prompts(TypedDict):
    """By name."""

    prompts: list[TextInfo]


class PromptSaved(TypedDict):
    """Outcome of a prompt that was saved."""

    name: str
    status: Literal["created", "updated"]
    variables: list[Variable]


@_prompt_tool(op="x.prompt.list", kind="read", tags=["prompt", "library"], examples=[{}, {"tag": "review"}])
async def list_saved_prompts(ctx: Context, tag: str = "", project_id: ProjectId = "") -> Prompts:
    """List the prompts that were saved in a project.

    Args:
        tag: Only those with this tag.
        project_id: The project; that of this session when not given.
    """
    infos = await texts_of(ctx, "prompt", project_id).infos()
    return Prompts(prompts=[one for one in infos if not tag or tag in one.get("tags", ())])


@_prompt_tool(op="x.prompt.read", kind="read", tags=["prompt", "library"], examples=[{"name": "review"}])
async def read_prompt(name: Name, ctx: Context, project_id: ProjectId = "") -> Text:
    """Read a prompt as it was saved, with the places that are to be filled in.

    Args:
        name: Its name.
        project_id: The project; that of this session when not given.
    """
    return await texts_of(ctx, "prompt", project_id).find(name)


@_prompt_tool(
    op="x.prompt.render",
    kind="read",
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


@_prompt_tool(
    op="x.prompt.save",
    kind="write",
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


@_prompt_tool(
    check=finds(lambda given, ctx: texts_of(ctx, "prompt", given.get("project_id", "")).find(given["name"])),
    op="x.prompt.delete",
    kind="destructive",
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
