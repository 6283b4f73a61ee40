"""Tools that move, copy and remove files and folders."""

from __future__ import annotations

from typing import Final

from toolcrib.plugin import Context, FileEntry, ToolFailure, Workspace, unshown

from .._workspace.place import entry_at, name_of, workspace_of, workspace_tool
from .edits import EditReport
from .undo import MOST_BYTES, apply, history_of, in_turn

_MOST_FILES: Final = 2_000
"""Files of a folder that is copied."""
_COPIED: Final = 256 * 1024 * 1024
"""Bytes of a folder that is copied: all of it is written at once or not at all."""


@workspace_tool(
    op="x.file.move",
    category="files",
    kind="destructive",
    traits=["file_writer"],
    locks=["source", "destination"],
    tags=["file", "folder", "move", "rename"],
    examples=[{"source": "draft.md", "destination": "docs/final.md"}],
    policy={"edge_cases": ["A folder as destination takes the source into it only when the path ends in a slash."]},
)
async def move_file(source: str, destination: str, ctx: Context, overwrite: bool = False) -> EditReport:
    """Move or rename a file or a folder. Folders that are missing on the way are made.

    Args:
        source: What to move.
        destination: Where it goes: its new path, or a folder, with a slash at the end, that it goes into.
        overwrite: Replace a file that is there.
    """
    workspace = workspace_of(ctx)
    async with in_turn(workspace):
        entry = await entry_at(workspace, source)
        target = name_of(workspace, _target(entry, destination))
        there = await _check_target(workspace, entry, target, overwrite=overwrite)
        if there is None:
            written = await workspace.move(entry.path, target)
            history_of(ctx).record_move(entry.path, written.path)
            return EditReport(path=written.path, action="moved", size=entry.size, pending=written.pending, undo=True)
        content = await unshown(workspace).read(entry.path)
        before = {entry.path: content, there.path: await unshown(workspace).read(there.path)}
        done, undo = await apply(ctx, workspace, before, {entry.path: None, there.path: content})
    pending = any(one.pending for one in done)
    return EditReport(path=there.path, action="moved", size=len(content), pending=pending, undo=undo)


@workspace_tool(
    op="x.file.copy",
    category="files",
    kind="destructive",
    traits=["file_writer"],
    locks=["destination"],
    tags=["file", "folder", "copy", "duplicate"],
    examples=[{"source": "config.example.yaml", "destination": "config.yaml"}],
    policy={"edge_cases": ["Of a folder regular files are copied, hidden ones too; links and empty folders are not."]},
)
async def copy_file(source: str, destination: str, ctx: Context, overwrite: bool = False) -> EditReport:
    """Copy a file, or a folder with all files in it (at most 2,000 files and 256 MiB).

    Args:
        source: What to copy.
        destination: The path of the copy, or a folder, with a slash at the end, that it goes into.
        overwrite: Replace a file that is there.
    """
    workspace = workspace_of(ctx)
    async with in_turn(workspace):
        entry = await entry_at(workspace, source)
        target = name_of(workspace, _target(entry, destination))
        there = await _check_target(workspace, entry, target, overwrite=overwrite)
        contents = await _contents(workspace, entry, target)
        before: dict[str, bytes | None] = dict.fromkeys(contents)
        if there is not None:
            before[target] = await unshown(workspace).read(target)
        done, undo = await apply(ctx, workspace, before, contents)
    size = sum(len(content) for content in contents.values())
    return EditReport(path=target, action="copied", size=size, pending=any(one.pending for one in done), undo=undo)


@workspace_tool(
    op="x.file.remove",
    category="files",
    kind="destructive",
    idempotent=True,
    traits=["file_writer"],
    locks=["path"],
    tags=["file", "folder", "delete", "remove"],
    examples=[{"path": "old.txt"}, {"path": "build", "recursive": True}],
    policy={
        "dont": ["Do not remove what you have not looked into."],
        "edge_cases": ["undo says whether undo_edit can bring it back: not more than 64 MiB, nor empty folders."],
    },
)
async def remove_file(path: str, ctx: Context, recursive: bool = False) -> EditReport:
    """Remove a file, or a folder.

    Args:
        path: What to remove.
        recursive: Remove a folder with all that is in it.
    """
    workspace = workspace_of(ctx)
    async with in_turn(workspace):
        entry = await entry_at(workspace, path)
        before = await _backup_of(workspace, entry)
        written = await workspace.remove(path, recursive=recursive)
        undo = False
        if before is not None:
            undo = history_of(ctx).record(before, dict.fromkeys(before))
    pending = any(one.pending for one in written)
    return EditReport(path=entry.path, action="removed", size=entry.size, pending=pending, undo=undo)


def _target(entry: FileEntry, destination: str) -> str:
    name = entry.path.rstrip("/").rpartition("/")[2]
    return f"{destination.rstrip('/')}/{name}" if destination.endswith("/") and destination != "/" else destination


async def _check_target(workspace: Workspace, entry: FileEntry, target: str, *, overwrite: bool) -> FileEntry | None:
    """Return the file that is replaced, None for a free path; raises `ToolFailure` if it must not be replaced."""
    there = await workspace.stat(target)
    if there is None:
        return None
    if there.path == entry.path:
        raise ToolFailure("tool_error", f"{target!r} is what it is called already")
    if there.kind == "folder":
        raise ToolFailure("tool_error", f"{target!r} is a folder", hint=f"{target}/ puts it into the folder")
    if entry.kind != "file" or there.kind != "file":
        raise ToolFailure("tool_error", f"{target!r} is there already, and only files are replaced by files")
    if not overwrite:
        raise ToolFailure("tool_error", f"{target!r} is there already", hint="set overwrite to replace it")
    return there


async def _contents(workspace: Workspace, entry: FileEntry, target: str) -> dict[str, bytes]:
    """Return the contents of a copy, by path; raises `ToolFailure` for more than one call may copy."""
    if entry.kind == "file":
        return {target: await unshown(workspace).read(entry.path)}
    if entry.kind != "folder":
        raise ToolFailure("tool_error", f"{entry.path!r} is neither a file nor a folder")
    files = await workspace.walk(entry.path, hidden=True, limit=_MOST_FILES + 1)
    if len(files) > _MOST_FILES or sum(file.size for file in files) > _COPIED:
        raise ToolFailure(
            "too_large", f"{entry.path!r} holds more than one call copies", hint="copy its folders one by one"
        )
    if not files:
        raise ToolFailure("tool_error", f"there is no file in {entry.path!r} to copy")
    inside = {file.path.removeprefix(entry.path).lstrip("/"): file for file in files}
    return {f"{target}/{name}": await unshown(workspace).read(file.path) for name, file in inside.items()}


async def _backup_of(workspace: Workspace, entry: FileEntry) -> dict[str, bytes | None] | None:
    """Return the contents for an undo; None for more than is kept, or a file that may not be read."""
    files = [entry] if entry.kind == "file" else []
    if entry.kind == "folder":
        files = list(await workspace.walk(entry.path, hidden=True, limit=_MOST_FILES + 1))
    if not files or len(files) > _MOST_FILES or sum(file.size for file in files) > MOST_BYTES:
        return None
    try:
        return {file.path: await unshown(workspace).read(file.path) for file in files}
    except ToolFailure:
        return None
