"""Notes of a project: texts under titles, for later sessions."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Final, Literal, TypedDict

from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, tool

from .._records import ProjectId, date_of
from .._workspace.place import folder_at, workspace_of
from .collections import NOTE_CHARACTERS, same_text, shelf_of

__all__ = [
    "Compared",
    "Content",
    "Note",
    "NoteInfo",
    "NoteWritten",
    "Notes",
    "Title",
    "append_note",
    "compare_specs_notes",
    "delete_note",
    "list_notes",
    "read_note",
    "write_note",
]

_SPECS: Final = (".md", ".mdx", ".rst", ".txt", ".adoc")
"""Endings of files that are specifications."""

Title = Annotated[str, Field(min_length=1, max_length=200, pattern=r"\S")]
Content = Annotated[str, Field(max_length=NOTE_CHARACTERS)]


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


@tool(
    op="x.note.list",
    category="memory",
    kind="read",
    open_world=False,
    tags=["note", "memory"],
    examples=[{}, {"project_id": "shop"}],
)
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


@tool(
    op="x.note.read",
    category="memory",
    kind="read",
    open_world=False,
    tags=["note", "memory"],
    examples=[{"title": "How we deploy"}],
)
async def read_note(title: Title, ctx: Context, project_id: ProjectId = "") -> Note:
    """Read a note.

    Args:
        title: Its title; the case of letters makes no difference.
        project_id: The project; that of this session when not given.
    """
    value = (await shelf_of(ctx, project_id).note(title)).value
    return Note(title=value["title"], content=value["content"], changed=date_of(value["changed"]))


@tool(
    op="x.note.write",
    category="memory",
    kind="write",
    open_world=False,
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


@tool(
    op="x.note.append",
    category="memory",
    kind="write",
    open_world=False,
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


@tool(
    op="x.note.delete",
    category="memory",
    kind="destructive",
    open_world=False,
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


@tool(
    op="x.note.compare_specs",
    category="memory",
    kind="read",
    open_world=False,
    needs=["workspace"],
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
