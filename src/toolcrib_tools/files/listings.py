"""Folder listings, and search by path patterns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import Field

from toolcrib.plugin import Context, FileEntry, ToolFailure, Workspace

from .._workspace.file_search import FileFilter, base_at, files_below, still_there
from .._workspace.pages import fit_lines, room_of
from .._workspace.patterns import NEVER, parse_glob
from .._workspace.place import folder_at, path_of, workspace_of, workspace_tool

_ENTRIES: Final = 500
"""Default entries of one answer (seed 003: 500)."""
_MOST: Final = 5_000
_DEEPEST: Final = 8
_STATED: Final = 20_000
"""Files whose times are looked at."""
_NOTE: Final = 300

_Count = Annotated[int, Field(ge=1, le=_MOST)]


@workspace_tool(
    op="x.file.list",
    category="files",
    kind="read",
    tags=["folder", "list", "ls", "tree", "directory"],
    metadata={"result": "lines", "compression_hint": "skip"},
    examples=[{}, {"path": "src", "depth": 2}],
    policy={"edge_cases": ["Links are named and not followed.", "A file in (pending) waits for review."]},
)
async def list_directory(
    ctx: Context,
    path: str = ".",
    depth: Annotated[int, Field(ge=1, le=_DEEPEST)] = 1,
    hidden: bool = True,
    max_results: _Count = _ENTRIES,
) -> str:
    """List what is in a folder: one line each, folders with a slash at the end, files with their size in bytes.

    Args:
        path: The folder; the workspace's root when not given.
        depth: How many levels to show; 1 is only the folder itself.
        hidden: Also what begins with a dot.
        max_results: At most so many lines.
    """
    workspace = workspace_of(ctx)
    base = await folder_at(workspace, await path_of(ctx, path))
    lines: list[str] = []
    more = await _list_folder(workspace, base.path, _Listing(depth=depth, hidden=hidden, most=max_results), lines)
    if not lines:
        return f"[{base.path!r} is empty]"
    notes = [f"the first {len(lines)} are shown, there are more"] if more else []
    return fit_lines(lines, room_of(ctx.result_bytes, _NOTE), notes, hint="list a folder in it, or set a smaller depth")


class _Listing:
    """Options of a listing."""

    def __init__(self, *, depth: int, hidden: bool, most: int) -> None:
        self.depth, self.hidden, self.most = depth, hidden, most


async def _list_folder(workspace: Workspace, path: str, wanted: _Listing, lines: list[str], level: int = 1) -> bool:
    """Add the lines of one folder and those in it; return whether there are more."""
    for entry in await workspace.list(path):
        name = entry.path.rpartition("/")[2]
        if name.startswith(".") and not wanted.hidden:
            continue
        if len(lines) == wanted.most:
            return True
        lines.append("  " * (level - 1) + _line(name, entry))
        is_deeper = entry.kind == "folder" and level < wanted.depth and name not in NEVER
        if is_deeper and await _listed_if_allowed(workspace, entry.path, wanted, lines, level + 1):
            return True
    return False


async def _listed_if_allowed(workspace: Workspace, path: str, wanted: _Listing, lines: list[str], level: int) -> bool:
    """List a folder inside; one that may not be looked into is only named."""
    try:
        return await _list_folder(workspace, path, wanted, lines, level)
    except ToolFailure:
        return False


def _line(name: str, entry: FileEntry) -> str:
    pending = "  (pending)" if entry.pending else ""
    match entry.kind:
        case "folder":
            return f"{name}/{pending}"
        case "file":
            return f"{name}  {entry.size}{pending}"
        case kind:
            return f"{name}  ({kind}){pending}"


@workspace_tool(
    op="x.file.glob",
    category="files",
    kind="read",
    tags=["glob", "find", "pattern", "file"],
    metadata={"result": "lines", "compression_hint": "skip"},
    examples=[{"pattern": "**/*.py"}, {"pattern": "*.{yaml,yml}", "path": "config", "sort": "modified"}],
    policy={
        "do": ["Use search_files when you know only a part of the name."],
        "edge_cases": [
            "A pattern without a slash matches names at any depth; ./*.py matches only in the folder itself.",
            "Files that .gitignore leaves out are not found unless ignored is set.",
        ],
    },
)
async def glob_files(
    pattern: str,
    ctx: Context,
    path: str = ".",
    sort: Literal["path", "modified"] = "path",
    hidden: bool = False,
    ignored: bool = False,
    max_results: _Count = _ENTRIES,
) -> str:
    """Find files whose path matches a pattern such as "src/**/*.py". Returns one path a line.

    Args:
        pattern: * is any part of a name, ** any folders, ? one character, [ab] one of some, {py,pyi} one of some texts.
        path: The folder to search; the workspace's root when not given.
        sort: modified lists the newest first.
        hidden: Also files that begin with a dot, or lie in a folder that does.
        ignored: Also files that .gitignore leaves out.
        max_results: At most so many paths.
    """
    workspace = workspace_of(ctx)
    base = await base_at(workspace, path)
    wanted = FileFilter(hidden=hidden or "/." in f"/{pattern}", ignored=ignored, globs=[parse_glob(pattern)])
    found = await files_below(workspace, base, wanted)
    paths = await _newest_first(workspace, found.paths) if sort == "modified" else found.paths
    shown = await still_there(workspace, paths[:max_results])
    if not shown:
        return f"[no file below {path!r} matches {pattern!r}{'' if ignored else '; ignored files were not looked at'}]"
    notes = [f"the first {max_results} of {len(paths)} are shown"] if len(paths) > max_results else []
    if not found.is_whole:
        notes.append("the folder has more files than one search goes through")
    return fit_lines(shown, room_of(ctx.result_bytes, _NOTE), notes, hint="search a smaller folder")


async def _newest_first(workspace: Workspace, paths: Sequence[str]) -> Sequence[str]:
    if len(paths) > _STATED:
        raise ToolFailure(
            "too_large", f"{len(paths)} files match, too many to sort by time", hint="search a smaller folder"
        )
    found = zip(paths, await workspace.stat_many(paths), strict=True)
    times = {path: entry.modified for path, entry in found if entry is not None}
    return sorted(times, key=lambda path: (-times[path], path))
