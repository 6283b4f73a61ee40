"""Notes of a project, and its profile: texts for later sessions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Annotated, Final, Literal, TypedDict

from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, Workspace

from .._records import ProjectId, date_of, finds, own_project
from .._workspace.place import folder_at, workspace_of, workspace_tool
from .project_records import NOTE_CHARACTERS, ProjectRecords, memory_tool, same_text, shelf_of

_SPECS: Final = (".md", ".mdx", ".rst", ".txt", ".adoc")
"""Endings of files that are specifications."""

Title = Annotated[str, Field(min_length=1, max_length=200, pattern=r"\S")]
Content = Annotated[str, Field(max_length=NOTE_CHARACTERS)]

_BEGIN: Final = "<!-- from memory: begin -->"
_END: Final = "<!-- from memory: end -->"
_MADE: Final = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}\n?", re.DOTALL)
_README: Final = ("README.md", "README.rst", "README.txt", "README")
_README_BYTES: Final = 1 << 20
_LINE: Final = 200
"""Characters of a memory or a note that the profile takes over."""
_SURE: Final = 0.5
"""Minimum confidence of a memory that the profile takes over."""
_KINDS: Final = 5
"""Kinds of files that are named."""
_WALKED: Final = 20_000


class NoteInfo(TypedDict):
    """A note without its text."""

    title: str
    size: Annotated[int, Field(description="Characters.")]
    changed: str


class Notes(TypedDict):
    """By title."""

    notes: list[NoteInfo]


class Note(TypedDict):
    """A note."""

    title: str
    content: str
    changed: str


class NoteWritten(TypedDict):
    """Outcome of a note that was written."""

    title: str
    status: Literal["created", "updated"]
    size: Annotated[int, Field(description="Characters.")]


class Compared(TypedDict):
    """Names of notes and of specifications, and the differences between the two lists."""

    only_in_specs: Annotated[list[str], Field(description="Paths.")]
    only_in_notes: Annotated[list[str], Field(description="Titles.")]
    both: Annotated[list[str], Field(description="Titles.")]


@memory_tool(op="x.note.list", kind="read", tags=["note", "memory"], examples=[{}, {"project_id": "shop"}])
async def list_notes(ctx: Context, project_id: ProjectId = "") -> Notes:
    """List the notes of a project.

    Args:
        project_id: The project; that of this session when not given.
    """
    notes = [
        NoteInfo(title=one.value["title"], size=len(one.value["content"]), changed=date_of(one.value["changed"]))
        for one in await shelf_of(ctx, project_id).all("note")
    ]
    return Notes(notes=sorted(notes, key=lambda note: note["title"].casefold()))


@memory_tool(op="x.note.read", kind="read", tags=["note", "memory"], examples=[{"title": "How we deploy"}])
async def read_note(title: Title, ctx: Context, project_id: ProjectId = "") -> Note:
    """Read a note.

    Args:
        title: Its title; the case of letters makes no difference.
        project_id: The project; that of this session when not given.
    """
    value = (await shelf_of(ctx, project_id).note(title)).value
    return Note(title=value["title"], content=value["content"], changed=date_of(value["changed"]))


@memory_tool(
    op="x.note.write",
    kind="write",
    idempotent=True,
    locks=["title"],
    tags=["note", "memory", "write down"],
    examples=[{"title": "How we deploy", "content": "1. make release\n2. tell the channel\n"}],
    policy={
        "do": ["append_note adds to a note and leaves the rest as it is."],
        "edge_cases": ["A note that has the title already is replaced whole."],
    },
)
async def write_note(title: Title, content: Content, ctx: Context, project_id: ProjectId = "") -> NoteWritten:
    """Write a note, or replace the one of that title.

    Args:
        title: Its title, such as "How we deploy".
        content: The whole text.
        project_id: The project; that of this session when not given.
    """
    return await _written(ctx, project_id, title, content, append=False)


@memory_tool(
    op="x.note.append",
    kind="write",
    locks=["title"],
    tags=["note", "memory", "add"],
    examples=[{"title": "Open questions", "content": "- who owns the billing service?"}],
)
async def append_note(title: Title, content: Content, ctx: Context, project_id: ProjectId = "") -> NoteWritten:
    """Add a text to the end of a note, on a line of its own. The note is made when there is none.

    Args:
        title: Its title.
        content: What to add.
        project_id: The project; that of this session when not given.
    """
    return await _written(ctx, project_id, title, content, append=True)


@memory_tool(
    check=finds(lambda given, ctx: shelf_of(ctx, given.get("project_id", "")).note(given["title"])),
    op="x.note.delete",
    kind="destructive",
    locks=["title"],
    tags=["note", "memory", "forget", "remove"],
    examples=[{"title": "Open questions"}],
)
async def delete_note(title: Title, ctx: Context, project_id: ProjectId = "") -> str:
    """Delete a note.

    Args:
        title: Its title.
        project_id: The project; that of this session when not given.
    """
    return f"deleted: {await shelf_of(ctx, project_id).remove_note(title)}"


@workspace_tool(
    op="x.note.compare_specs",
    category="memory",
    kind="read",
    tags=["note", "specification", "docs", "compare"],
    examples=[{}, {"specs_path": "docs/specs"}],
    policy={
        "edge_cases": [
            "They are compared by name: docs/specs/task-queue.md is the specification of the note Task queue.",
        ]
    },
)
async def compare_specs_notes(
    ctx: Context, specs_path: Annotated[str, Field(min_length=1)] = "specs", project_id: ProjectId = ""
) -> Compared:
    """Compare the notes of a project with its specification files: which has no counterpart.

    Args:
        specs_path: The folder with the specifications (md, mdx, rst, txt, adoc).
        project_id: The project; that of this session when not given.
    """
    workspace = workspace_of(ctx)
    await folder_at(workspace, specs_path)
    files = [entry.path for entry in await workspace.walk(specs_path) if entry.path.endswith(_SPECS)]
    specs = {_name(PurePosixPath(path).stem): path for path in files}
    titles = [one.value["title"] for one in await shelf_of(ctx, project_id).all("note")]
    notes = {_name(title): title for title in titles}
    return Compared(
        only_in_specs=sorted(path for name, path in specs.items() if name not in notes),
        only_in_notes=sorted(title for name, title in notes.items() if name not in specs),
        both=sorted(title for name, title in notes.items() if name in specs),
    )


def _name(text: str) -> str:
    return same_text(text.replace("-", " ").replace("_", " "))


async def _written(ctx: Context, project_id: str, title: str, content: str, *, append: bool) -> NoteWritten:
    if append and not content.strip():
        raise ToolFailure("invalid_arguments", "there is nothing to add: content is empty")
    record, is_new = await shelf_of(ctx, project_id).write_note(title, content, append=append)
    status: Literal["created", "updated"] = "created" if is_new else "updated"
    return NoteWritten(title=record.value["title"], status=status, size=len(record.value["content"]))


class Profile(TypedDict):
    """Profile of a project."""

    profile: Annotated[str, Field(description="Markdown; empty if nothing was written yet.")]


@memory_tool(op="x.project_profile.view", kind="read", tags=["project", "profile", "overview"], examples=[{}])
async def view_profile(ctx: Context, project_id: ProjectId = "") -> Profile:
    """View the profile of a project: what it is, and how things are done in it.

    Args:
        project_id: The project; that of this session when not given.
    """
    return Profile(profile=await shelf_of(ctx, project_id).profile())


@memory_tool(
    op="x.project_profile.edit",
    kind="write",
    idempotent=True,
    serial=True,
    tags=["project", "profile", "edit"],
    examples=[{"content": "# Shop\n\nSells boats. Python 3.12; `make test` before every push.\n"}],
    policy={"do": ["View it first: what is given here replaces the whole of it."]},
)
async def edit_project_profile(
    content: Annotated[str, Field(max_length=NOTE_CHARACTERS)], ctx: Context, project_id: ProjectId = ""
) -> Profile:
    """Replace the profile of a project.

    Args:
        content: The whole text, in Markdown.
        project_id: The project; that of this session when not given.
    """
    kept = await shelf_of(ctx, project_id).write_profile(content)
    return Profile(profile=kept.value["content"])


@memory_tool(
    op="x.note.promote",
    kind="write",
    idempotent=True,
    serial=True,
    tags=["note", "project", "profile"],
    examples=[{"title": "How we deploy"}],
    policy={"edge_cases": ["A note that was promoted before takes the place of its older text; the note stays."]},
)
async def promote_note(
    title: Annotated[str, Field(min_length=1, max_length=200)], ctx: Context, project_id: ProjectId = ""
) -> Profile:
    """Put a note into the profile of its project, as a section under the note's title.

    Args:
        title: Title of the note.
        project_id: The project; that of this session when not given.
    """
    shelf = shelf_of(ctx, project_id)
    note = (await shelf.note(title)).value
    old = await shelf.profile()
    new = _with_section(old, note["title"], note["content"])
    await shelf.change_profile(old, new)
    return Profile(profile=new)


@memory_tool(
    op="x.project_profile.regenerate",
    explicit=["project_id"],
    kind="write",
    idempotent=True,
    serial=True,
    tags=["project", "profile"],
    examples=[{}],
    policy={
        "edge_cases": [
            "Only the part between its two marks is made anew; what was written or promoted stays as it is.",
            "Memories that are less sure than 0.5 are left out.",
        ]
    },
)
async def regenerate_profile(ctx: Context, project_id: ProjectId = "") -> Profile:
    """Make the part of a project's profile anew that comes from its notes, its memories and its files.

    Args:
        project_id: The project; that of this session when not given. Its files are looked at where it is that.
    """
    own = shelf_of(ctx, own_project(ctx))
    shelf = shelf_of(ctx, project_id) if project_id.strip() else own
    lines = [*await _of_memory(shelf)]
    if ctx.workspace is not None and shelf.project == own.project:
        lines = [*await _of_files(ctx.workspace), *lines]
    if not lines:
        raise ToolFailure(
            "tool_error",
            "there is nothing to make a profile of: no file, no note, no memory",
            hint="write_note and store_memory keep what is known; edit_project_profile writes the profile itself",
        )
    old = await shelf.profile()
    made = "\n".join([_BEGIN, *lines, _END, ""])
    new = _replaced(_MADE, made, old) if _MADE.search(old) else f"{made}\n{old}".rstrip("\n") + "\n"
    await shelf.change_profile(old, new)
    return Profile(profile=new)


async def _of_memory(shelf: ProjectRecords) -> list[str]:
    memories = [one.value for one in await shelf.all("memory") if one.value["confidence"] >= _SURE]
    memories.sort(key=lambda value: (value["tags"], value["description"]))
    notes = sorted((one.value for one in await shelf.all("note")), key=lambda value: value["title"].casefold())
    return [
        *_section("What is remembered", (f"- {one['description']}: {_line(one['content'])}" for one in memories)),
        *_section("Notes", (f"- {one['title']}: {_line(one['content'])}" for one in notes)),
    ]


async def _of_files(workspace: Workspace) -> list[str]:
    """Return a description of the folder: the beginning of its README, and the kinds of its files."""
    files = [entry.path for entry in await workspace.walk(limit=_WALKED)]
    kinds = Counter(PurePosixPath(path).suffix for path in files if PurePosixPath(path).suffix)
    named = sorted(kinds.items(), key=lambda pair: (-pair[1], pair[0]))[:_KINDS]
    listed = [f"- {count} × {kind}" for kind, count in named]
    readme = next((name for name in _README if name in files), None)
    about = (
        []
        if readme is None
        else [_paragraph((await workspace.read(readme, limit=_README_BYTES)).decode(errors="replace"))]
    )
    return [*_section("About", (line for line in about if line)), *_section("Files", listed)]


def _section(title: str, lines: Iterable[str]) -> list[str]:
    found = list(lines)
    return [f"## {title}", "", *found, ""] if found else []


def _paragraph(text: str) -> str:
    """Return the first paragraph of a README that is not a heading, picture or badge."""
    for block in re.split(r"\n\s*\n", text):
        words = " ".join(
            line for line in block.splitlines() if not re.match(r"\s*(#|=+\s*$|-+\s*$|!\[|\[!|<|\.\.)", line)
        )
        if words.strip():
            return words.strip()
    return ""


def _line(content: str) -> str:
    """Return the first line of a text, without its mark of a heading."""
    first = next((line.strip() for line in content.splitlines() if line.strip()), "").lstrip("#").strip()
    return first if len(first) <= _LINE else f"{first[:_LINE]} …"


def _with_section(profile: str, title: str, content: str) -> str:
    """Return a profile with a note in it, in the place of what it held under its title."""
    begin, end = f"<!-- note: {title} -->", "<!-- end of note -->"
    made = f"{begin}\n## {title}\n\n{content.strip()}\n{end}\n"
    known = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}\n?", re.DOTALL)
    if known.search(profile):
        return _replaced(known, made, profile)
    return f"{profile.rstrip()}\n\n{made}" if profile.strip() else made


def _replaced(pattern: re.Pattern[str], made: str, text: str) -> str:
    """Replace the first match by `made` literally: a backslash in it has no meaning."""
    return pattern.sub(made.replace("\\", "\\\\"), text, count=1)
