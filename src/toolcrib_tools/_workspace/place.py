"""Workspace of a call, and lookup of a path in it; a missing path is refused with the nearest names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import Final

from anyio import to_thread

from toolcrib.plugin import Context, FileEntry, ToolFailure, Workspace, as_mapping, nearest, tool

_NEAREST: Final = 3
_PROJECT: Final = "project:"

workspace_tool = partial(tool, open_world=False, needs=["workspace"])
"""Declares a tool that works on the files of the session and reaches nothing else."""


def workspace_of(ctx: Context) -> Workspace:
    """Return the files of the session; raises `ToolFailure` where no folder was declared."""
    if ctx.workspace is None:
        raise ToolFailure(
            "unavailable",
            "this session has no workspace to work in",
            hint="declare one: `workspace: .` in the config, or session(workspace=…)",
        )
    return ctx.workspace


async def path_of(ctx: Context, path: str) -> str:
    """Return a path of the workspace for `project:ID/PATH`: PATH in a workspace of that project; any other unchanged.

    PATH may begin with the name or id of one of several workspaces. Raises `ToolFailure`.
    """
    if not path.startswith(_PROJECT):
        return path
    id, _, rest = path.removeprefix(_PROJECT).partition("/")
    listed = await ctx.call("list_workspaces", {"project_id": id})
    if listed.error is not None:
        raise ToolFailure(listed.error.code, listed.error.message, hint=listed.error.hint)
    places = as_mapping(listed.structured_content)["workspaces"]
    if not places:
        raise ToolFailure("not_found", f"project {id} has no workspace", hint="add_workspace gives it one")
    first, _, below = rest.partition("/")
    named = [place for place in places if first and first in (place["id"], place["name"])]
    return str(PurePosixPath((named or places)[0]["workspace_path"], below if named else rest))


async def entry_at(workspace: Workspace, path: str) -> FileEntry:
    """Return the entry at `path`; raises `ToolFailure` naming what is there instead."""
    entry = await workspace.stat(path)
    if entry is None:
        raise ToolFailure("not_found", f"there is no {path!r}", hint=await _instead(workspace, path))
    return entry


async def file_at(workspace: Workspace, path: str) -> FileEntry:
    """Return the file at `path`; raises `ToolFailure` for anything else."""
    entry = await entry_at(workspace, path)
    if entry.kind == "folder":
        raise ToolFailure("tool_error", f"{path!r} is a folder", hint="list_directory shows what is in it")
    if entry.kind != "file":
        raise ToolFailure("tool_error", f"{path!r} is not a regular file")
    return entry


async def folder_at(workspace: Workspace, path: str) -> FileEntry:
    """Return the folder at `path`; raises `ToolFailure` for anything else."""
    entry = await entry_at(workspace, path)
    if entry.kind != "folder":
        raise ToolFailure("tool_error", f"{path!r} is not a folder", hint="name the folder that it is in")
    return entry


def name_of(workspace: Workspace, path: str) -> str:
    """Return one spelling for every spelling of a path, the workspace's own, whether something is there or not."""
    local, root = workspace.local(path), workspace.root
    return str(local.relative_to(root)) if local.is_relative_to(root) else str(local)


async def _instead(workspace: Workspace, path: str) -> str:
    """Say what could be meant: the nearest names in the folder, or that the folder itself is not there."""
    pure = PurePosixPath(path)
    for parent in pure.parents:
        entry = await workspace.stat(str(parent))
        if entry is None or entry.kind != "folder":
            continue
        missing = pure.relative_to(parent).parts[0]
        near = await to_thread.run_sync(_nearest, missing, await workspace.list(str(parent)), abandon_on_cancel=True)
        if near:
            rest = pure.relative_to(parent).parts[1:]
            meant = ", ".join(str(parent.joinpath(name, *rest)) for name in near)
            return f"did you mean {meant}?"
        return f"list_directory shows what is in {str(parent)!r}, the nearest folder that is there"
    return "list_directory shows what is there"


def _nearest(name: str, entries: Sequence[FileEntry]) -> list[str]:
    """Return the names in a folder that are most similar to one, ignoring case."""
    near = nearest(name, [PurePosixPath(entry.path).name for entry in entries], _NEAREST)
    return [other for other in near if other != name]  # the same name is there, and no folder
