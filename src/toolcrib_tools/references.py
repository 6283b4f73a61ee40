"""Reference documents for an agent: listed, selected and checked; and embeddings of text.

    tools:
      references:
        sources:
          - {id: style, name: Style guide, description: How we write code, path: docs/style.md, tags: [style]}
        folders: [docs/references]          # beside .toolcrib/references, which no tool writes

A file holds one reference, or several under `sources`, as JSON or YAML. Paths begin at the workspace's root. An
invalid entry is reported with its place and hides no other; of two with one id, the configuration's wins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict, cast

from msgspec import Struct, field
from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, as_mapping, did_you_mean, nearest, tool

from ._records import names_of
from ._workspace.file_text import ENDINGS, data_at, decoded
from ._workspace.place import file_at, workspace_of, workspace_tool

__all__ = [
    "FOLDER",
    "Embedding",
    "Mode",
    "Reference",
    "ReferenceChecked",
    "ReferenceContent",
    "ReferenceInfo",
    "ReferenceList",
    "References",
    "Selection",
    "Type",
    "check_entry",
    "compute_embedding",
    "list_references",
    "references_of",
    "select_references",
    "sources_in",
    "validate_reference",
]

Type = Literal["local", "url", "inline", "mcp"]
Mode = Literal["auto", "selectable"]

FOLDER: Final = ".toolcrib/references"
_MOST: Final = 500
_FILES: Final = 500
_CONTENT: Final = 200_000
"""Characters of a reference that is written in the configuration."""
_NEEDED: Final[dict[Type, tuple[str, ...]]] = {
    "local": ("path",),
    "url": ("url",),
    "inline": ("content",),
    "mcp": ("server", "tool"),
}
_TEXTS: Final = ("id", "name", "description", "fetch_hint", "path", "url", "content", "server", "tool")
_KEYS: Final = (*_TEXTS, "type", "mode", "tags", "args")
_OTHERS: Final = ("contents", "embedding", "version")
"""Further names of the fields, from other programs."""

_MOST_BYTES: Final = 1 << 20
_TEXT: Final = 100_000
"""Characters of a text that is embedded; a model reads its first some hundred words."""

_SELECTED: Final = "references"

"""Characters of a file whose text is given with the selection."""

_Id = Annotated[str, Field(min_length=1, max_length=200)]
_Tags = Annotated[list[Annotated[str, Field(min_length=1, max_length=100)]], Field(max_length=50)]

_MOST_FILES: Final = 200
"""Files of a folder that are listed."""


class Reference(Struct, frozen=True, kw_only=True):
    """One document, or where it is to be had."""

    id: str
    name: str
    type: Type
    description: str = ""
    mode: Mode = "selectable"
    tags: tuple[str, ...] = ()
    place: str = ""
    """The path, the address, or server and tool."""
    content: str = ""
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fetch_hint: str = ""


class References(Struct, frozen=True, kw_only=True):
    """All that a session has."""

    all: Mapping[str, Reference]
    problems: Sequence[str]
    """Problems of the other entries, each with its place."""


async def references_of(ctx: Context) -> References:
    """Return the references of a session."""
    config = ctx.lent.setting("references")
    settings = as_mapping(config)
    problems = [] if config is None or isinstance(config, Mapping) else ["tools.references: is not a mapping"]
    given: list[tuple[str, Any]] = []
    for number, one in enumerate(_list(settings, "sources", problems)):
        given.append((f"tools.references.sources[{number}]", one))
    for folder in [*_list(settings, "folders", problems), FOLDER]:
        given += await _in_folder(ctx, str(folder), problems)
    found: dict[str, Reference] = {}
    for where, one in given:
        reference, errors, _ = check_entry(one, where)
        problems += errors
        if reference is None:
            continue
        if reference.id in found:
            problems.append(f"{where}: there is a reference {reference.id!r} already")
        elif len(found) >= _MOST:
            problems.append(f"{where}: there are {_MOST} references already")
        else:
            found[reference.id] = reference
    return References(all=found, problems=problems)


def sources_in(data: Any, where: str) -> list[tuple[str, Any]]:
    """Return the references that a file holds, unchecked, each with its place: the file itself, or its `sources`."""
    listed = as_mapping(data).get("sources")
    if not isinstance(listed, list):
        return [(where, data)]
    return [(f"{where}: sources[{number}]", one) for number, one in enumerate(cast("list[Any]", listed))]


def check_entry(data: Any, where: str) -> tuple[Reference | None, list[str], list[str]]:
    """Return a reference, what is wrong with it (it is None then), and what is only strange."""
    if not isinstance(data, Mapping):
        return None, [f"{where}: a reference is a mapping with id, name and one of path, url, content, server"], []
    fields = cast("Mapping[str, Any]", data)
    strange = [
        f"{where}: {key}: nothing is known of this key{did_you_mean(key, _KEYS)}"
        for key in fields
        if key not in _KEYS and key not in _OTHERS
    ]
    kind: Any = fields.get("type") or _type_of(fields)
    errors = _wrong(fields, kind)
    if errors:
        return None, [f"{where}: {error}" for error in errors], strange
    place = f"{fields['server']}: {fields['tool']}" if kind == "mcp" else fields.get("path") or fields.get("url") or ""
    reference = Reference(
        id=fields["id"].strip(),
        name=fields["name"],
        type=kind,
        description=fields.get("description", ""),
        mode=fields.get("mode", "selectable"),
        tags=tuple(fields.get("tags", ())),
        place=place,
        content=fields.get("content", "") if kind == "inline" else "",
        args=fields.get("args", {}),
        fetch_hint=fields.get("fetch_hint", ""),
    )
    return reference, [], strange


def _wrong(fields: Mapping[str, Any], kind: Any) -> list[str]:
    errors = [f"{key}: is missing" for key in ("id", "name") if key not in fields]
    errors += [f"{key}: is not text" for key in _TEXTS if key in fields and not isinstance(fields[key], str)]
    errors += [
        f"{key}: is empty" for key in ("id", "name") if isinstance(fields.get(key), str) and not fields[key].strip()
    ]
    if not isinstance(kind, str) or kind not in _NEEDED:
        errors.append(f"type: is one of {', '.join(_NEEDED)}, not {kind!r}")
    else:
        errors += [f"{key}: is missing; type {kind} needs it" for key in _NEEDED[kind] if not fields.get(key)]
    if fields.get("mode", "selectable") not in ("auto", "selectable"):
        errors.append(f"mode: is auto or selectable, not {fields['mode']!r}")
    tags = fields.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in cast("list[Any]", tags)):
        errors.append("tags: is not a list of words")
    if not isinstance(fields.get("args", {}), Mapping):
        errors.append("args: is not a mapping")
    if isinstance(fields.get("content"), str) and len(fields["content"]) > _CONTENT:
        errors.append(f"content: has {len(fields['content']):,} characters, {_CONTENT:,} is the most; put it in a file")
    if kind == "url" and isinstance(fields.get("url"), str) and not fields["url"].startswith(("http://", "https://")):
        errors.append(f"url: is not an address of the web: {fields['url']!r}")
    return errors


def _type_of(fields: Mapping[str, Any]) -> Type:
    """Infer the type of an entry that names none."""
    kinds: list[Type] = [kind for kind, needed in _NEEDED.items() if needed[0] in fields]
    return kinds[0] if kinds else "local"


def _list(settings: Mapping[str, Any], key: str, problems: list[str]) -> list[Any]:
    value = settings.get(key, [])
    if isinstance(value, list):
        return cast("list[Any]", value)
    problems.append(f"tools.references.{key}: is not a list")
    return []


async def _in_folder(ctx: Context, folder: str, problems: list[str]) -> list[tuple[str, Any]]:
    """Return the contents of a folder's files; the usual folder need not exist."""
    if ctx.workspace is None:
        return []
    try:
        entry = await ctx.workspace.stat(folder)
        if entry is None or entry.kind != "folder":
            if folder != FOLDER:
                problems.append(f"tools.references.folders: there is no folder {folder!r}")
            return []
        listed = await ctx.workspace.list(folder)
    except ToolFailure as failure:
        problems.append(f"{folder}: {failure.message}")
        return []
    files = [one.path for one in listed if one.kind == "file" and one.path.endswith(ENDINGS)]
    found: list[tuple[str, Any]] = []
    for path in files[:_FILES]:
        try:
            found += sources_in(await data_at(ctx.workspace, path), path)
        except ToolFailure as failure:
            problems.append(failure.message if path in failure.message else f"{path}: {failure.message}")
    return found


class ReferenceChecked(TypedDict):
    """Validity of a file of references."""

    path: str
    valid: bool
    references: Annotated[list[str], Field(description="Ids of those that can be used.")]
    errors: list[str]
    warnings: list[str]


class Embedding(TypedDict):
    """Embedding of a text."""

    model: Annotated[str, Field(description="Vectors of one model are comparable.")]
    dimensions: int
    embedding: Annotated[list[float], Field(description="Of length 1.")]


@workspace_tool(
    op="x.reference.validate",
    category="knowledge",
    kind="read",
    tags=["reference", "check", "lint", "schema"],
    examples=[{"path": ".toolcrib/references/style.json"}],
    policy={"edge_cases": ["One that is wrong does not take the others of its file away."]},
)
async def validate_reference(path: Annotated[str, Field(min_length=1)], ctx: Context) -> ReferenceChecked:
    """Validate a file with a reference, or with several under `sources`: its keys, and that local files are there.

    Args:
        path: The file, JSON or YAML.
    """
    workspace = workspace_of(ctx)
    data = await data_at(workspace, path)
    found: list[str] = []
    errors: list[str] = []
    warnings: list[str] = []
    for where, one in sources_in(data, path):
        reference, wrong, strange = check_entry(one, where)
        errors += wrong
        warnings += strange
        if reference is None:
            continue
        if reference.id in found:
            errors.append(f"{where}: there is a reference {reference.id!r} already")
            continue
        found.append(reference.id)
        if reference.type == "local":
            try:
                if await workspace.stat(reference.place) is None:
                    warnings.append(f"{where}: path: there is no {reference.place!r}")
            except ToolFailure as failure:
                warnings.append(f"{where}: path: {failure.message}")
    return ReferenceChecked(path=path, valid=not errors, references=found, errors=errors, warnings=warnings)


@tool(
    op="x.reference.embed",
    traits=["file_reader"],
    category="knowledge",
    kind="read",
    open_world=False,
    tags=["embedding", "vector", "semantic", "similarity"],
    examples=[{"input": "Releases are cut on Thursdays."}, {"file": "docs/style.md"}, {"reference": "style"}],
    policy={
        "dont": ["To find something by its meaning, memory_search and knowledge_search do it at once."],
        "edge_cases": ["A model reads the first some hundred words of a text: embed long ones in parts."],
    },
)
async def compute_embedding(
    ctx: Context,
    input: Annotated[str, Field(max_length=_TEXT)] = "",
    file: str = "",
    reference: str = "",
) -> Embedding:
    """Compute the embedding of a text, a file or a reference: the vector of its meaning, to compare with others.

    Args:
        input: The text.
        file: A file of the workspace, in the place of a text.
        reference: Id of a reference, in the place of a text.
    """
    given = {"input": input.strip(), "file": file.strip(), "reference": reference.strip()}
    named = [name for name, value in given.items() if value]
    if len(named) != 1:
        found = f"{' and '.join(named)} are given" if named else "none is given"
        raise ToolFailure("invalid_arguments", f"give one of {', '.join(given)}: {found}")
    text = input if input.strip() else await _text(ctx, file.strip(), reference.strip())
    made = await ctx.lent.embed([text[:_TEXT]])
    vector = list(made.vectors[0])
    return Embedding(model=made.model, dimensions=len(vector), embedding=vector)


async def _text(ctx: Context, file: str, reference: str) -> str:
    if reference:
        references = (await references_of(ctx)).all
        if reference not in references:
            raise ToolFailure("not_found", f"there is no reference {reference!r}", hint="list_references shows them")
        one = references[reference]
        if one.type in ("url", "mcp"):
            return f"{one.name}. {one.description}"
        if one.type == "inline":
            return one.content
        file = one.place
    workspace = workspace_of(ctx)
    entry = await file_at(workspace, file)
    text = decoded(await workspace.read(entry.path, limit=_MOST_BYTES), path=entry.path).plain
    if not text.strip():
        raise ToolFailure("tool_error", f"{entry.path!r} has no text")
    return text


class ReferenceInfo(TypedDict):
    """A reference without its text."""

    id: str
    name: str
    description: str
    type: Type
    mode: Annotated[Mode, Field(description="auto: to be read before work begins.")]
    tags: list[str]
    place: Annotated[str, Field(description="Where it is: a path, an address, or server and tool.")]
    selected: Annotated[bool, Field(description="It was selected in this session.")]


class ReferenceList(TypedDict):
    """By id."""

    references: list[ReferenceInfo]
    total: Annotated[int, Field(description="Number of all references, regardless of filters.")]
    tags: Annotated[list[str], Field(description="All tags.")]
    problems: NotRequired[Annotated[list[str], Field(description="What is wrong with others.")]]


class ReferenceContent(TypedDict):
    """A reference that was selected: its text, or how to have it."""

    id: str
    name: str
    description: str
    content: NotRequired[str]
    files: NotRequired[list[str]]
    how: NotRequired[Annotated[str, Field(description="What to do to read it.")]]
    mentions: Annotated[list[str], Field(description="Other references that its text names.")]


class Selection(TypedDict):
    """The references that were selected now."""

    references: list[ReferenceContent]


@tool(
    op="x.reference.list",
    category="knowledge",
    kind="read",
    open_world=False,
    tags=["reference", "guideline", "conventions", "documentation", "standard", "specification", "curated"],
    examples=[{}, {"tags": ["style"]}, {"mode": "auto"}],
    policy={"do": ["Look here before work in an area that may have rules: tags say what references are about."]},
)
async def list_references(
    ctx: Context, tags: _Tags | None = None, mode: Literal["all", "auto", "selectable"] = "all"
) -> ReferenceList:
    """List the references: guidelines and documents that the user chose for you to go by.

    Args:
        tags: Only those with any of these tags.
        mode: Only those to be read before work begins (auto), or only the others (selectable).
    """
    references = await references_of(ctx)
    chosen = _choose(ctx)
    shown = [
        ReferenceInfo(
            id=one.id,
            name=one.name,
            description=one.description,
            type=one.type,
            mode=one.mode,
            tags=list(one.tags),
            place=one.place,
            selected=one.id in chosen,
        )
        for one in sorted(references.all.values(), key=lambda one: one.id)
        if mode in ("all", one.mode) and (tags is None or _has_any(one, tags))
    ]
    every = sorted({tag for one in references.all.values() for tag in one.tags})
    listed = ReferenceList(references=shown, total=len(references.all), tags=every)
    if references.problems:
        listed["problems"] = list(references.problems)
    return listed


@tool(
    op="x.reference.select",
    category="knowledge",
    kind="read",
    open_world=False,
    tags=["reference", "guideline", "style guide", "conventions", "documentation", "standard", "read"],
    examples=[{"ids": ["style"]}, {"tags": ["security"]}, {"query": "how do we log errors"}, {}],
    policy={
        "do": ["Select what mentions names when the text leans on it."],
        "edge_cases": [
            "Without ids, tags and query, those of mode auto are selected.",
            "A reference on the web or behind a server is not fetched here: how says which tool does.",
        ],
    },
)
async def select_references(
    ctx: Context,
    ids: Annotated[list[_Id], Field(max_length=50)] | None = None,
    tags: _Tags | None = None,
    query: Annotated[str, Field(max_length=1_000)] = "",
    limit: Annotated[int, Field(ge=1, le=50)] = 5,
) -> Selection:
    """Select references by id, by tag or by what they are about, and get their text, or how to have it.

    Args:
        ids: These, as list_references tells them.
        tags: All that have any of these tags.
        query: Those that are about this, the best first.
        limit: At most so many by query.
    """
    references = await references_of(ctx)
    wanted = _by_id(references, ids or ())
    wanted += [one for one in references.all.values() if tags and _has_any(one, tags)]
    if query.strip():
        wanted += await _about(ctx, references, query, limit)
    if not ids and not tags and not query.strip():
        wanted = [one for one in references.all.values() if one.mode == "auto"]
    unique = list({one.id: one for one in wanted}.values())
    if not unique:
        raise ToolFailure("not_found", "no reference fits", hint=names_of(list(references.all)))
    _choose(ctx).update(one.id for one in unique)
    return Selection(references=[await _reading(ctx, references, one) for one in unique])


def _choose(ctx: Context) -> set[str]:
    """Return the ids that were selected in this session, to be added to."""
    return ctx.runtime.setdefault(_SELECTED, set[str]())


def _has_any(reference: Reference, tags: Sequence[str]) -> bool:
    return bool({tag.casefold() for tag in reference.tags} & {tag.casefold() for tag in tags})


def _by_id(references: References, ids: Sequence[str]) -> list[Reference]:
    """Return the references of these ids; raises `ToolFailure` that names each one that there is not."""
    missing = [id for id in ids if id.strip() not in references.all]
    if missing:
        known = list(references.all)
        near = [close for id in missing for close in nearest(id, known, 1)]
        hint = f"did you mean {', '.join(near)}?" if near else names_of(known)
        named = ", ".join(map(repr, missing))
        raise ToolFailure("not_found", f"there is no reference {named}", hint=hint)
    return [references.all[id.strip()] for id in ids]


async def _about(ctx: Context, references: References, query: str, limit: int) -> list[Reference]:
    """Return the references that a query is about: near in meaning, then those that share its words."""
    texts = {
        one.id: (one.name, f"{one.description} {' '.join(one.tags)} {one.content}") for one in references.all.values()
    }
    meant = await ctx.lent.nearest(query, {id: ". ".join(text) for id, text in texts.items()}, limit)
    ranked = [*meant.found, *ctx.lent.rank(query, texts, limit)]
    return [references.all[id] for id in list(dict.fromkeys(ranked))[:limit]]


async def _reading(ctx: Context, references: References, one: Reference) -> ReferenceContent:
    reading = ReferenceContent(id=one.id, name=one.name, description=one.description, mentions=[])
    if one.type == "inline":
        reading["content"] = one.content
    elif one.type == "url":
        reading["how"] = f"read it with web_fetch: {one.place}"
    elif one.type == "mcp":
        server, _, tool_name = one.place.partition(": ")
        given = f" with {json.dumps(dict(one.args), ensure_ascii=False)}" if one.args else ""
        reading["how"] = f"call the tool {tool_name} of the server {server}{given}"
    else:
        await _read(ctx, one, reading)
    if one.fetch_hint:
        reading["how"] = f"{reading['how']}; {one.fetch_hint}" if "how" in reading else one.fetch_hint
    reading["mentions"] = _mentions(references, one.id, reading.get("content", ""))
    return reading


async def _read(ctx: Context, one: Reference, reading: ReferenceContent) -> None:
    """Add the text of a local reference to its entry, or the reason why it is missing."""
    if ctx.workspace is None:
        reading["how"] = f"{one.place} is a file, and this session has no workspace to read it in"
        return
    try:
        entry = await ctx.workspace.stat(one.place)
        if entry is None:
            reading["how"] = f"{one.place} is not there: tell the user"
        elif entry.kind == "folder":
            reading["files"] = [file.path for file in await ctx.workspace.walk(one.place, limit=_MOST_FILES)]
            reading["how"] = "read_file reads each of the files"
        elif entry.size > _MOST_BYTES:
            reading["how"] = f"it is large: read_file reads {entry.path} in pages"
        else:
            content = await ctx.workspace.read(entry.path, limit=_MOST_BYTES)
            reading["content"] = decoded(content, path=entry.path).plain
    except ToolFailure as failure:
        reading["how"] = f"it cannot be read here: {failure.message}"


def _mentions(references: References, own: str, content: str) -> list[str]:
    others = (id for id in references.all if id != own and id in content)
    return [id for id in others if re.search(rf"(?<![\w-]){re.escape(id)}(?![\w-])", content)]
