"""Tools that write files and edit parts of them; every change can be undone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

from anyio import to_thread
from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, Workspace, note_shown, unshown

from .._workspace.file_text import Text, decoded, encoding_by_name
from .._workspace.place import file_at, name_of, workspace_of, workspace_tool
from .text_matches import Edit, hunks, line_of, spans_of
from .undo import MOST_FILE_BYTES, apply, in_turn

EDIT_BYTES: Final = 32 * 1024 * 1024
"""Bytes of a file to edit: its text is held several times."""

_MOST_OPERATIONS: Final = 200
_DIFF: Final = 4_000
"""Characters of a diff in a result."""

_FIELDS: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    "edit": (frozenset({"search", "replace"}), frozenset({"replace_all", "before", "after"})),
    "create": (frozenset({"content"}), frozenset()),
    "write": (frozenset({"content"}), frozenset()),
    "remove": (frozenset(), frozenset()),
    "move": (frozenset({"target"}), frozenset()),
}
"""Required and optional fields, by action."""


class Draft:
    """Contents by path, as the workspace names paths. Lives as long as one call."""

    def __init__(self, workspace: Workspace) -> None:
        """Start with what the workspace holds."""
        self._workspace = workspace
        self.before: dict[str, bytes | None] = {}
        """Earlier content of each changed file; None stands for a missing file."""
        self.after: dict[str, bytes | None] = {}
        """Each as it is to be."""

    async def find(self, path: str, *, limit: int | None = None) -> bytes | None:
        """Return the future content at `path`; None for no file. Raises `ToolFailure` for a folder."""
        name = name_of(self._workspace, path)
        if name in self.after:
            return self.after[name]
        if await self._workspace.stat(path) is None:
            return None
        await file_at(self._workspace, path)
        return await unshown(self._workspace).read(path, limit=limit)

    async def read(self, path: str, *, limit: int | None = None) -> bytes:
        """Return the future content at `path`; raises `ToolFailure` for no file, or one above `limit` bytes."""
        content = await self.find(path, limit=limit)
        if content is None:
            await file_at(self._workspace, path)  # raises, with the nearest names
            raise ToolFailure("not_found", f"there is no {path!r} any more: an operation before this one took it away")
        return content

    async def show(self, path: str, content: bytes) -> None:
        """Note that the result shows a part of a content, and that a part of it stays in the file."""
        await note_shown(self._workspace, {path: content})

    async def put(self, path: str, content: bytes | None) -> str:
        """Let `content` be what is at `path`; return the path as the workspace names it."""
        name = name_of(self._workspace, path)
        if name not in self.before:
            entry = await self._workspace.stat(path)
            self.before[name] = None if entry is None else await unshown(self._workspace).read(path)
        self.after[name] = content
        return name


class EditReport(TypedDict, total=False):
    """Outcome of the change of one file."""

    path: str
    action: Literal["created", "changed", "removed", "moved", "copied", "unchanged"]
    size: Annotated[int, Field(description="Bytes.")]
    replacements: int
    lines: Annotated[list[int], Field(description="Numbers of the lines that were changed, as they were before.")]
    diff: str
    encoding: Annotated[str, Field(description="Where it is not UTF-8.")]
    line_ends: Annotated[str, Field(description="Where they are not LF.")]
    pending: Annotated[bool, Field(description="It waits for review: the disk is as it was.")]
    undo: Annotated[bool, Field(description="Whether undo_edit can take it back.")]


@workspace_tool(
    op="x.file.write",
    category="files",
    kind="destructive",
    idempotent=True,
    traits=["file_writer"],
    locks=["path"],
    tags=["file", "write", "create", "save"],
    examples=[{"path": "notes/today.md", "content": "# Today\n"}, {"path": "a.py", "content": "", "if_exists": "fail"}],
    policy={
        "do": ["Use edit_file to change a part of a file."],
        "dont": ["Do not write a file that you have not read: its content is gone then."],
        "edge_cases": ["A file that is there keeps its encoding and its line ends, unless an encoding is named."],
    },
)
async def write_file(
    path: str,
    content: str,
    ctx: Context,
    if_exists: Literal["overwrite", "fail"] = "overwrite",
    if_missing: Literal["create", "fail"] = "create",
    encoding: str = "",
) -> EditReport:
    """Write a text file, whole: make it, with the folders that it lies in, or replace what it holds.

    Args:
        path: The file, such as "src/app.py".
        content: The text of the file.
        if_exists: fail refuses to replace a file that is there.
        if_missing: fail refuses to make a file that is not there yet.
        encoding: How to write it, such as "utf-8" or "utf-16"; else as the file is written now, or in UTF-8.
    """
    workspace = workspace_of(ctx)
    async with in_turn(workspace):
        entry = None if await workspace.stat(path) is None else await file_at(workspace, path)
        if entry is not None and if_exists == "fail":
            raise ToolFailure("tool_error", f"{path!r} is there already", hint="edit_file changes a part of it")
        if entry is None and if_missing == "fail":
            await file_at(workspace, path)  # raises, with the names that are nearest
        is_kept = entry is None or entry.size <= MOST_FILE_BYTES
        before = await unshown(workspace).read(path) if entry is not None and is_kept else None
        text = await to_thread.run_sync(_written, content, before, encoding)
        after = text.to_bytes()
        if after == before:
            return EditReport(path=name_of(workspace, path), action="unchanged", size=len(after))
        name = name_of(workspace, path)
        if is_kept:
            written, undo = await apply(ctx, workspace, {name: before}, {name: after})
        else:
            written, undo = await workspace.write_all({name: after}), False
    change = EditReport(path=written[0].path, action="created" if entry is None else "changed", size=len(after))
    return _as_written(change, text) | {"pending": written[0].pending, "undo": undo}


@workspace_tool(
    op="x.file.edit",
    category="files",
    kind="write",
    traits=["file_writer"],
    locks=["path"],
    tags=["file", "edit", "replace", "patch", "change"],
    examples=[
        {"path": "src/app.py", "search": "timeout = 10", "replace": "timeout = 30"},
        {"path": "README.md", "search": "colour", "replace": "color", "replace_all": True},
    ],
    policy={
        "do": ["Take as many lines into search as make it occur once, exactly as they stand in the file."],
        "dont": ["Do not take line numbers into search."],
        "edge_cases": ["\\n in search and replace means the line end that the file has; all else is left as it is."],
    },
)
async def edit_file(
    path: str,
    search: Annotated[str, Field(min_length=1)],
    replace: str,
    ctx: Context,
    replace_all: bool = False,
    before: str = "",
    after: str = "",
) -> EditReport:
    """Replace a piece of text in a file by another one. The piece must occur exactly once, unless replace_all is set.

    When it does not occur, the answer shows the lines that come nearest; when it occurs several times, where.

    Args:
        path: The file, such as "src/app.py".
        search: The text to replace, as it stands in the file.
        replace: The text to put there; empty takes the piece out.
        replace_all: Replace it wherever it occurs.
        before: Where it occurs several times: the text right before the place that is meant. It stays.
        after: The text right behind that place. It stays.
    """
    workspace = workspace_of(ctx)
    edit = Edit(search=search, replace=replace, every=replace_all, before=before, after=after)
    async with in_turn(workspace):
        entry = await file_at(workspace, path)
        content = await workspace.read(path, limit=EDIT_BYTES)
        change, new = await to_thread.run_sync(partial(_apply_edit, content, edit, entry.path))
        written, undo = await apply(ctx, workspace, {entry.path: content}, {entry.path: new})
    return change | {"pending": written[0].pending, "undo": undo}


class Operation(TypedDict):
    """One of the changes that are made together."""

    path: Annotated[str, Field(description="The file.")]
    action: NotRequired[
        Annotated[
            Literal["edit", "create", "write", "remove", "move"],
            Field(description="edit when not given; create makes a file that is not there yet, write any."),
        ]
    ]
    search: NotRequired[Annotated[str, Field(description="edit: the text to replace, as it stands in the file.")]]
    replace: NotRequired[Annotated[str, Field(description="edit: the text to put there.")]]
    replace_all: NotRequired[Annotated[bool, Field(description="edit: wherever it occurs.")]]
    before: NotRequired[Annotated[str, Field(description="edit: what stands right before it, and stays.")]]
    after: NotRequired[Annotated[str, Field(description="edit: what stands right behind it, and stays.")]]
    content: NotRequired[Annotated[str, Field(description="create and write: the whole text of the file.")]]
    target: NotRequired[Annotated[str, Field(description="move: where the file goes.")]]


class OperationResult(TypedDict):
    """Outcome of all operations."""

    changed: list[EditReport]
    undo: Annotated[bool, Field(description="Whether undo_edit can take them back, all together.")]


@workspace_tool(
    op="x.file.multi_edit",
    category="files",
    kind="destructive",
    traits=["file_writer"],
    locks=["operations.path", "operations.target"],
    tags=["file", "edit", "refactor", "rename", "atomic", "batch"],
    examples=[
        {
            "operations": [
                {"path": "a.py", "search": "old_name", "replace": "new_name", "replace_all": True},
                {"path": "b.py", "action": "move", "target": "lib/b.py"},
                {"path": "c.py", "action": "write", "content": "import a\n"},
            ]
        }
    ],
    policy={
        "do": ["Use it for changes that make sense only together."],
        "edge_cases": [
            "Operations see what those before them made.",
            "If one edit fails, none is made, and every failing one is reported.",
        ],
    },
)
async def multi_edit(
    operations: Annotated[list[Operation], Field(min_length=1, max_length=_MOST_OPERATIONS)], ctx: Context
) -> OperationResult:
    """Make several changes to several files, all or none: edit, write, remove and move files in one step.

    Args:
        operations: The changes, in their order; a later one sees what an earlier one made.
    """
    workspace = workspace_of(ctx)
    async with in_turn(workspace):
        draft = Draft(workspace)
        changes: list[EditReport] = []
        wrong: list[str] = []
        codes: set[str] = set()
        for place, operation in enumerate(operations):
            try:
                changes.append(await _draft_edits(draft, operation))
            except ToolFailure as failure:
                codes.add(failure.code)
                wrong.append(f"operations[{place}]: {failure.message}" + (f" ({failure.hint})" if failure.hint else ""))
        if wrong:
            raise ToolFailure(
                codes.pop() if len(codes) == 1 else "tool_error",
                f"{len(wrong)} of {len(operations)} operations cannot be made, so none was:\n" + "\n".join(wrong),
                hint="mend these and send all of them again",
            )
        written, undo = await apply(ctx, workspace, draft.before, draft.after)
    pending = {one.path: one.pending for one in written}
    return OperationResult(
        changed=[one | {"pending": pending.get(one.get("path", ""), workspace.diverts)} for one in changes], undo=undo
    )


async def _draft_edits(draft: Draft, operation: Operation) -> EditReport:
    """Make one change in the draft; raises `ToolFailure` when it cannot be made."""
    action, path = operation.get("action", "edit"), operation["path"]
    _check_fields(action, operation)
    match action:
        case "create" | "write":
            before = await draft.find(path)
            if before is not None and action == "create":
                raise ToolFailure("tool_error", f"{path!r} is there already", hint="edit it, or write it anew")
            text = await to_thread.run_sync(_written, operation.get("content", ""), before, "")
            name = await draft.put(path, text.to_bytes())
            return EditReport(path=name, action="created" if before is None else "changed", size=len(text.to_bytes()))
        case "remove":
            await draft.read(path)
            return EditReport(path=await draft.put(path, None), action="removed")
        case "move":
            content = await draft.read(path)
            target = operation.get("target", "")
            if await draft.find(target) is not None:
                raise ToolFailure("tool_error", f"{target!r} is there already", hint="remove it first")
            await draft.put(path, None)
            return EditReport(path=await draft.put(target, content), action="moved", size=len(content))
        case _:
            content = await draft.read(path, limit=EDIT_BYTES)
            await draft.show(path, content)
            edit = Edit(
                search=operation.get("search", ""),
                replace=operation.get("replace", ""),
                every=operation.get("replace_all", False),
                before=operation.get("before", ""),
                after=operation.get("after", ""),
            )
            change, new = await to_thread.run_sync(partial(_apply_edit, content, edit, path))
            return change | {"path": await draft.put(path, new)}


def _check_fields(action: str, operation: Operation) -> None:
    given = operation.keys() - {"action", "path"}
    needed, allowed = _FIELDS[action]
    if missing := needed - given:
        raise ToolFailure("invalid_arguments", f"{action} needs {' and '.join(sorted(missing))}")
    if extra := given - needed - allowed:
        raise ToolFailure("invalid_arguments", f"{action} has no {' and no '.join(sorted(extra))}")


def _written(content: str, before: bytes | None, encoding: str) -> Text:
    """Return the text as it is to be written: as the file that is there, or as the caller says."""
    if encoding:
        return Text(raw=content, encoding=encoding_by_name(encoding))
    try:
        return decoded(before).rewritten(content) if before else Text(raw=content)
    except ToolFailure:
        return Text(raw=content)  # it was not text before


def _apply_edit(content: bytes, edit: Edit, path: str) -> tuple[EditReport, bytes]:
    """Return the report of an edit, and the file's new content."""
    text = decoded(content, path=path)
    spans = spans_of(text, edit, path)
    new = text.replaced(spans).to_bytes()
    change = EditReport(
        path=path,
        action="changed",
        size=len(new),
        replacements=len(spans),
        lines=[line_of(text.plain, start) for start, _, _ in spans[:50]],
        diff=hunks(text.plain, spans, _DIFF),
    )
    return _as_written(change, text), new


def _as_written(change: EditReport, text: Text) -> EditReport:
    """Add what is unusual about how the file is written."""
    extra: dict[str, Any] = {}
    if text.encoding.title != "utf-8":
        extra["encoding"] = text.encoding.title
    if text.line_ends not in ("", "LF"):
        extra["line_ends"] = text.line_ends
    return change | EditReport(**extra)
